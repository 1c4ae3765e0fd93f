// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs kernels: blocks one after another, the threads of a block as fibers that take turns where
// they wait for each other.
//
// 1. A thread runs until it ends or waits, so of what is not ordered by a barrier much happens in
//    an order that a chip would hardly choose. A launch draws ascending, descending or shuffled
//    order of blocks and threads; and whether all threads take turns, or one warp runs as far as it
//    can without the others, then the next. The first finds what warps must not read too early, the
//    second what they must not write before others have read it.
// 2. A barrier is passed when all threads of the block have come to it, at one place in the source.
//    A warp's operation is done by the last of its mask's lanes to come.
// 3. When nobody can go on, the kernel is wrong (a barrier in divergent code, a lane that left):
//    said, with where.
// 4. Dynamic shared memory is poisoned before each block. Stacks and shared memory end in bytes
//    that must stay as they are.
#include "state.h"
#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace mics_emulated
{

#if defined(__SANITIZE_ADDRESS__)
static const size_t STACK_BYTES = 262144;
#else
static const size_t STACK_BYTES = 65536 + 9 * 64;
#endif
static const int STACKS_A_BLOCK = 32;
static const uint64_t CANARY = 0x6d6963732d656e64u;
static const size_t SHARED_GUARD = 256;

enum fiber_state { FIBER_NEW, FIBER_READY, FIBER_AT_BARRIER, FIBER_IN_WARP, FIBER_DONE };

struct fiber {
    place at; // first: `here` points to it
    fiber_state state;
    int number;
    unsigned char *stack;
    warp_call *pending;
    int sum_value;
    const char *file;
    int line;
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
};

// A launch draws a few numbers, and would spend longer on the state of the library's generators. Source: Steele, Lea and Flood,
// Fast Splittable Pseudorandom Number Generators, 2014.
struct quick_random {
    typedef uint32_t result_type;
    uint64_t state;
    static constexpr uint32_t min()
    {
        return 0;
    }
    static constexpr uint32_t max()
    {
        return UINT32_MAX;
    }
    uint32_t operator()()
    {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return (uint32_t)(z >> 32);
    }
};

// What one thread of the system needs to run kernels; made at its first.
struct runner {
    std::vector<fiber> fibers;
    std::vector<unsigned char *> stacks;  // that are free
    std::vector<void *> blocks;           // of STACKS_A_BLOCK of them
    std::vector<std::vector<int>> groups; // of threads that take turns: all, or warp by warp
    bool shuffles;                        // the groups, anew whenever all have come to a halt
    quick_random random;
    unsigned char *shared;
    const launch_shape *shape;
    const std::function<void()> *thread_main;
    int count, arrived;
    int in_warp[32]; // by warp: threads that wait in an operation of it
    fiber *current;
    const std::vector<int> *group; // whose turns it is,
    size_t turn;                   // and who comes next in it
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
    ~runner();
};

__thread place *here = nullptr;
static __thread runner *running = nullptr;

// ---- saying what is wrong ----

void defect(const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (here == nullptr)
        defect_in("outside of kernels", "%s", text);
    char where[200];
    snprintf(where, sizeof where, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u)",
             running->shape->name, here->block.x, here->block.y, here->block.z, here->thread.x,
             here->thread.y, here->thread.z);
    defect_in(where, "%s", text);
}

void defect_in(const char *where, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "emulated: %s: %s\n", where, text);
    fflush(stderr);
    abort();
}

// ---- switching ----

#if defined(__x86_64__)
extern "C" void mics_emulated_switch(void **save, void *load);
// What a called function must keep stays on the stack that is left.
__asm__(".text\n.local mics_emulated_switch\n.type mics_emulated_switch,@function\n"
        "mics_emulated_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size mics_emulated_switch,.-mics_emulated_switch\n");

// From and to are each the runner or a fiber.
template <typename From, typename To> static void change(From *from, To *to)
{
    mics_emulated_switch(&from->sp, to->sp);
}
#else
template <typename From, typename To> static void change(From *from, To *to)
{
    swapcontext(&from->context, &to->context);
}
#endif

static void fiber_main()
{
    runner *self = running;
    fiber *f = self->current;
    (*self->thread_main)();
    f->state = FIBER_DONE;
    change(f, self);
    abort(); // nobody comes back
}

// A stream's thread that ends has no block of threads under way.
runner::~runner()
{
    free(shared);
    for (void *block : blocks)
        munmap(block, (size_t)STACKS_A_BLOCK * STACK_BYTES);
}

static unsigned char *take_stack(runner *self)
{
    if (self->stacks.empty()) {
        void *block = mmap(nullptr, (size_t)STACKS_A_BLOCK * STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (block == MAP_FAILED)
            defect_in("stacks", "no memory");
        self->blocks.push_back(block);
        for (int i = STACKS_A_BLOCK - 1; i >= 0; i--)
            self->stacks.push_back(static_cast<unsigned char *>(block) + (size_t)i * STACK_BYTES);
    }
    unsigned char *stack = self->stacks.back();
    self->stacks.pop_back();
    std::memcpy(stack, &CANARY, sizeof CANARY);
    return stack;
}

static void prepare(runner *self, fiber *f)
{
    f->stack = take_stack(self);
#if defined(__x86_64__)
    // As if fiber_main had been called: its return address on top, six registers below its own.
    void **top = reinterpret_cast<void **>(f->stack + STACK_BYTES);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(fiber_main);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f->sp = top;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
#endif
}

// The next of the group whose turns it is that can go on; NULL: none behind those that had theirs.
static fiber *next_fiber(runner *self)
{
    while (self->turn < self->group->size()) {
        fiber *f = &self->fibers[(size_t)(*self->group)[self->turn++]];
        if (f->state != FIBER_NEW && f->state != FIBER_READY)
            continue;
        if (f->state == FIBER_NEW)
            prepare(self, f);
        f->state = FIBER_READY;
        self->current = f;
        here = &f->at;
        return f;
    }
    return nullptr;
}

// A thread that waits hands over to the next of its group, or where none can go on to the runner.
static void wait_turn(runner *self, fiber *f)
{
    fiber *next = next_fiber(self);
    if (next != nullptr)
        change(f, next);
    else
        change(f, self);
}

// A stack is free when nobody runs on it any more.
static void leave_stack(runner *self, fiber *f)
{
    uint64_t canary;
    std::memcpy(&canary, f->stack, sizeof canary);
    if (canary != CANARY)
        defect("its local variables exceed %zu bytes, the stack here", STACK_BYTES);
    self->stacks.push_back(f->stack);
    f->stack = nullptr;
}

// ---- waiting for each other ----

int lane()
{
    return running->current->number % 32;
}

void *dynamic_shared()
{
    return running->shared;
}

int barrier(barrier_sum sum, int value, const char *file, int line)
{
    runner *self = running;
    fiber *f = self->current;
    f->sum_value = value;
    f->file = file;
    f->line = line;
    f->state = FIBER_AT_BARRIER;
    if (++self->arrived < self->count) {
        wait_turn(self, f);
        return f->sum_value;
    }
    self->arrived = 0;
    int count = 0;
    for (int i = 0; i < self->count; i++) {
        fiber *other = &self->fibers[(size_t)i];
        count += other->sum_value != 0;
        if (other->line != line || (other->file != file && std::strcmp(other->file, file) != 0))
            defect("__syncthreads in %s:%d, but thread %d of the block is at the one in %s:%d",
                   file, line, i, other->file, other->line);
    }
    const int result = sum == BARRIER_AND  ? count == self->count
                       : sum == BARRIER_OR ? count > 0
                                           : count;
    for (int i = 0; i < self->count; i++) {
        self->fibers[(size_t)i].sum_value = result;
        self->fibers[(size_t)i].state = FIBER_READY;
    }
    return result;
}

static bool same_call(const warp_call *a, const warp_call *b)
{
    return a->run == b->run && a->mask == b->mask && a->line == b->line &&
           (a->file == b->file || std::strcmp(a->file, b->file) == 0);
}

void warp(warp_call *call)
{
    runner *self = running;
    fiber *f = self->current;
    const int first = f->number / 32 * 32;
    if ((call->mask >> (f->number - first) & 1u) == 0)
        defect("%s in %s:%d: mask %08x lacks the lane that calls", call->name, call->file,
               call->line, call->mask);
    f->pending = call;
    const int exist = std::min(32, self->count - first);
    const unsigned there = exist == 32 ? 0xffffffffu : (1u << exist) - 1;
    const unsigned due = call->mask & there;
    // Most threads come before the last one, and need not look.
    if (++self->in_warp[first / 32] < (due == 0xffffffffu ? 32 : __builtin_popcount(due))) {
        f->state = FIBER_IN_WARP;
        wait_turn(self, f);
        return;
    }
    warp_call *by_lane[32] = {};
    bool all = true;
    for (int i = 0; i < 32 && first + i < self->count; i++) {
        if ((call->mask >> i & 1u) == 0)
            continue;
        const fiber *other = &self->fibers[(size_t)(first + i)];
        if (other->state == FIBER_DONE)
            defect("%s in %s:%d: lane %d of mask %08x has left the kernel", call->name, call->file,
                   call->line, i, call->mask);
        by_lane[i] = other->pending;
        all = all && by_lane[i] != nullptr && same_call(by_lane[i], call);
        if (!all)
            break;
    }
    if (!all) {
        f->state = FIBER_IN_WARP;
        wait_turn(self, f);
        return;
    }
    call->run(by_lane);
    for (int i = 0; i < 32; i++) {
        if (by_lane[i] == nullptr)
            continue;
        self->fibers[(size_t)(first + i)].pending = nullptr;
        self->fibers[(size_t)(first + i)].state = FIBER_READY;
        self->in_warp[first / 32]--;
    }
}

// ---- blocks ----

[[noreturn]] static void nobody_goes_on(runner *self)
{
    const fiber *at_barrier = nullptr, *in_warp = nullptr, *done = nullptr;
    for (int i = 0; i < self->count; i++) {
        const fiber *f = &self->fibers[(size_t)i];
        if (f->state == FIBER_AT_BARRIER && at_barrier == nullptr)
            at_barrier = f;
        if (f->state == FIBER_IN_WARP && in_warp == nullptr)
            in_warp = f;
        if (f->state == FIBER_DONE && done == nullptr)
            done = f;
    }
    char text[500] = "";
    size_t used = 0;
    const auto add = [&](int wrote) { used += wrote > 0 ? (size_t)wrote : 0; };
    if (at_barrier != nullptr)
        add(snprintf(text + used, sizeof text - used, " thread %d waits at __syncthreads, %s:%d;",
                     at_barrier->number, at_barrier->file, at_barrier->line));
    if (in_warp != nullptr)
        add(snprintf(text + used, sizeof text - used, " thread %d waits at %s, mask %08x, %s:%d;",
                     in_warp->number, in_warp->pending->name, in_warp->pending->mask,
                     in_warp->pending->file, in_warp->pending->line));
    if (done != nullptr)
        add(snprintf(text + used, sizeof text - used, " thread %d has left the kernel;",
                     done->number));
    const fiber *anybody = at_barrier != nullptr ? at_barrier : in_warp;
    char where[200];
    snprintf(where, sizeof where, "kernel %s, block (%u, %u, %u)", self->shape->name,
             anybody->at.block.x, anybody->at.block.y, anybody->at.block.z);
    defect_in(where, "nobody can go on:%s", text);
}

static void check_shared(const runner *self)
{
    const unsigned char *end = self->shared + self->shape->shared_bytes;
    for (size_t i = 0; i < SHARED_GUARD; i++)
        if (end[i] != 0xa5)
            defect_in(self->shape->name, "wrote %zu bytes past its %zu of dynamic shared memory", i,
                      self->shape->shared_bytes);
}

// Whether any thread of a group could go on.
static bool take_turns(runner *self, const std::vector<int> &group, int *done)
{
    bool moved = false;
    self->group = &group;
    self->turn = 0;
    while (fiber *f = next_fiber(self)) {
        change(self, f);
        // It may have handed over to others; only the last of them comes back.
        if (self->current->state == FIBER_DONE) {
            leave_stack(self, self->current);
            *done += 1;
        }
        moved = true;
    }
    here = nullptr;
    return moved;
}

static void run_block(runner *self, uint3 block)
{
    const launch_shape *shape = self->shape;
    const dim3 dim = shape->block;
    std::memset(self->shared, 0xff, shape->shared_bytes);
    std::memset(self->shared + shape->shared_bytes, 0xa5, SHARED_GUARD);
    self->arrived = 0;
    std::memset(self->in_warp, 0, sizeof self->in_warp);
    for (int i = 0; i < self->count; i++) {
        fiber *f = &self->fibers[(size_t)i];
        const unsigned u = (unsigned)i;
        f->at = {{u % dim.x, u / dim.x % dim.y, u / dim.x / dim.y}, block, dim, shape->grid};
        f->state = FIBER_NEW;
        f->number = i;
        f->pending = nullptr;
    }
    for (int done = 0; done < self->count;) {
        bool moved = false;
        if (self->shuffles)
            std::shuffle(self->groups.begin(), self->groups.end(), self->random);
        for (const std::vector<int> &group : self->groups)
            while (take_turns(self, group, &done))
                moved = true;
        if (!moved)
            nobody_goes_on(self);
    }
    check_shared(self);
}

enum arrangement { ASCENDING, DESCENDING, SHUFFLED, ARRANGEMENTS };

static void arrange(std::vector<int> *numbers, size_t count, arrangement how, quick_random *random)
{
    numbers->resize(count);
    for (size_t i = 0; i < count; i++)
        (*numbers)[i] = (int)(how == DESCENDING ? count - 1 - i : i);
    if (how == SHUFFLED)
        std::shuffle(numbers->begin(), numbers->end(), *random);
}

static void arrange_threads(runner *self, arrangement how, bool by_warp)
{
    const size_t size = by_warp ? 32 : (size_t)self->count, count = (size_t)self->count;
    std::vector<int> numbers, within;
    arrange(&numbers, (count + size - 1) / size, how, &self->random);
    self->groups.clear();
    for (int number : numbers) {
        const size_t first = (size_t)number * size;
        arrange(&within, std::min(size, count - first), how, &self->random);
        for (int &thread : within)
            thread += (int)first;
        self->groups.push_back(within);
    }
    self->shuffles = by_warp && how == SHUFFLED;
}

void run_grid(const launch_shape &shape, int order, const std::function<void()> &thread_main)
{
    static thread_local std::unique_ptr<runner> mine;
    if (mine == nullptr) {
        mine.reset(new runner());
        mine->shared = static_cast<unsigned char *>(
            aligned_alloc(1024, (SHARED_MOST + SHARED_GUARD + 1023) / 1024 * 1024));
    }
    runner *self = running = mine.get();
    self->shape = &shape;
    self->thread_main = &thread_main;
    self->count = (int)(shape.block.x * shape.block.y * shape.block.z);
    self->fibers.resize((size_t)self->count);
    self->random.state = (unsigned)order + 1000003u * settings().seed;
    const int drawn = (int)(self->random() % (2 * ARRANGEMENTS));
    const int number = settings().threads > 0 ? settings().threads - 1 : drawn;
    const arrangement how = (arrangement)(number % ARRANGEMENTS);
    arrange_threads(self, how, number / ARRANGEMENTS % 2 != 0);
    std::vector<int> blocks;
    arrange(&blocks, (size_t)shape.grid.x * shape.grid.y * shape.grid.z, how, &self->random);
    for (int block : blocks) {
        const unsigned u = (unsigned)block;
        run_block(self, {u % shape.grid.x, u / shape.grid.x % shape.grid.y,
                         u / shape.grid.x / shape.grid.y});
    }
    running = nullptr;
}

// ---- exchanges inside a warp ----

static value_call *of(warp_call *call)
{
    return static_cast<value_call *>(call);
}

// The value of `source`, which must take part.
static void take_from(warp_call *const by_lane[32], int lane_, int source)
{
    value_call *call = of(by_lane[lane_]);
    if (by_lane[source] == nullptr)
        defect("%s in %s:%d: lane %d reads lane %d, which is not in mask %08x or does not exist",
               call->name, call->file, call->line, lane_, source, call->mask);
    call->result = of(by_lane[source])->value;
}

template <typename Source> static void each(warp_call *const by_lane[32], Source source)
{
    for (int i = 0; i < 32; i++)
        if (by_lane[i] != nullptr)
            take_from(by_lane, i, source(i, of(by_lane[i])));
}

void shuffle_index(warp_call *const by_lane[32])
{
    each(by_lane, [](int i, const value_call *call) {
        return i / call->width * call->width + (int)(call->argument % (unsigned)call->width);
    });
}

void shuffle_up(warp_call *const by_lane[32])
{
    each(by_lane, [](int i, const value_call *call) {
        const int source = i - (int)call->argument;
        return source < i / call->width * call->width ? i : source;
    });
}

void shuffle_down(warp_call *const by_lane[32])
{
    each(by_lane, [](int i, const value_call *call) {
        const int source = i + (int)call->argument;
        return source >= (i / call->width + 1) * call->width ? i : source;
    });
}

void shuffle_xor(warp_call *const by_lane[32])
{
    each(by_lane, [](int i, const value_call *call) {
        const int source = i ^ (int)call->argument;
        return source >= (i / call->width + 1) * call->width ? i : source;
    });
}

template <typename Fold> static void fold(warp_call *const by_lane[32], uint64_t start, Fold step)
{
    uint64_t result = start;
    bool any = false;
    for (int i = 0; i < 32; i++) {
        if (by_lane[i] == nullptr)
            continue;
        result = step(result, of(by_lane[i])->value, i, !any);
        any = true;
    }
    for (int i = 0; i < 32; i++)
        if (by_lane[i] != nullptr)
            of(by_lane[i])->result = result;
}

void vote_ballot(warp_call *const by_lane[32])
{
    fold(by_lane, 0, [](uint64_t sum, uint64_t value, int i, bool) {
        return sum | (value != 0 ? uint64_t(1) << i : 0);
    });
}

void vote_all(warp_call *const by_lane[32])
{
    fold(by_lane, 1, [](uint64_t sum, uint64_t value, int, bool) {
        return (uint64_t)(sum != 0 && (uint32_t)value != 0);
    });
}

void nothing(warp_call *const[32])
{
}

void add_signed(warp_call *const by_lane[32])
{
    fold(by_lane, 0,
         [](uint64_t sum, uint64_t value, int, bool) { return (uint32_t)sum + (uint32_t)value; });
}

void max_signed(warp_call *const by_lane[32])
{
    fold(by_lane, 0, [](uint64_t most, uint64_t value, int, bool first) {
        return (uint64_t)(uint32_t)(first ? (int)value : std::max((int)most, (int)value));
    });
}

void min_signed(warp_call *const by_lane[32])
{
    fold(by_lane, 0, [](uint64_t least, uint64_t value, int, bool first) {
        return (uint64_t)(uint32_t)(first ? (int)value : std::min((int)least, (int)value));
    });
}

} // namespace mics_emulated
