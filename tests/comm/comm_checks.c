// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "comm_checks.h"
#include "mics/core/heartbeat.h"
#include "ranks.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>

// Two minutes of turns of a millisecond, fewer than a rank waits for another: what passes while the
// machine stands still is one of them.
enum { GUARD_ELEMS = 16, GUARD_BYTE = 0x5a, MAX_TURNS = 120 * 1000, MAX_AGE_S = 120 };

static void take_turn(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

// A float that any rank can make, of very different sizes, so that the order of a sum shows.
static float value_of(int32_t rank, int64_t i)
{
    uint64_t x = (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u;
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 31;
    float mantissa = (float)(x & 0xffffff) / 16777216.0f - 0.5f;
    return mantissa * (float)(1u << (x >> 60));
}

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

// Permutation `order` of [0, size): identity, reversed, strided, or shuffled.
static void make_order(int32_t order, int32_t size, int32_t *block_of)
{
    for (int32_t m = 0; m < size; m++)
        block_of[m] = order % 2 == 1 ? size - 1 - m : m;
    if (order < 2)
        return;
    for (int32_t m = size - 1; m > 0; m--) {
        int32_t other = (int32_t)(mix((uint32_t)(order * 1000 + m)) % (uint32_t)(m + 1));
        int32_t kept = block_of[m];
        block_of[m] = block_of[other];
        block_of[other] = kept;
    }
}

int32_t checks_group(int32_t ranks, int32_t rank, int32_t kind, mics_group *group_out)
{
    int32_t kinds = 0;
    // Every outer range that divides the world, cut into columns `stride` apart.
    for (int32_t outer = ranks; outer >= 1; outer--) {
        if (ranks % outer != 0)
            continue;
        for (int32_t stride = 1; stride <= outer; stride++) {
            if (outer % stride != 0)
                continue;
            if (kinds++ == kind)
                *group_out = (mics_group){.first = rank / outer * outer + rank % stride,
                                          .stride = stride,
                                          .size = outer / stride,
                                          .index = rank % outer / stride};
        }
    }
    return kinds;
}

typedef struct ring_case {
    mics_comm *comm;
    mics_comm_group ring;
    int64_t elems; // of a block
    float *buffer; // (size * elems), between two guards
    float *expected;
} ring_case;

static int32_t owner_of(const ring_case *at, int32_t block)
{
    for (int32_t m = 0; m < at->ring.group.size; m++) {
        if ((at->ring.block_of != NULL ? at->ring.block_of[m] : m) == block)
            return m;
    }
    return -1;
}

// The sum of one element over the members: from the one after the owner round to the owner.
static float sum_of(const ring_case *at, int32_t owner, int64_t i)
{
    mics_group group = at->ring.group;
    float sum = 0;
    for (int32_t step = 1; step <= group.size; step++) {
        float term = value_of(mics_group_rank(group, (owner + step) % group.size), i);
        sum = step == 1 ? term : sum + term;
    }
    return sum;
}

static void fill(const ring_case *at)
{
    memset(at->buffer - GUARD_ELEMS, GUARD_BYTE, GUARD_ELEMS * sizeof(float));
    memset(at->buffer + at->ring.group.size * at->elems, GUARD_BYTE, GUARD_ELEMS * sizeof(float));
    for (int64_t i = 0; i < at->ring.group.size * at->elems; i++)
        at->buffer[i] = value_of(at->comm->rank, i);
}

static mics_status check_guards(const ring_case *at)
{
    const unsigned char *before = (const unsigned char *)(at->buffer - GUARD_ELEMS);
    const unsigned char *after =
        (const unsigned char *)(at->buffer + at->ring.group.size * at->elems);
    for (size_t i = 0; i < GUARD_ELEMS * sizeof(float); i++)
        RANKS_EXPECT(before[i] == GUARD_BYTE && after[i] == GUARD_BYTE);
    return MICS_OK;
}

static mics_status check_same(const ring_case *at, const char *what, int64_t first, int64_t count)
{
    if (count > 0 &&
        memcmp(at->buffer + first, at->expected + first, (size_t)count * sizeof(float)) != 0)
        return mics_fail(MICS_ERR_NUMERIC,
                         "%s: rank %d of %d, group of %d from %d by %d, %lld elements: wrong bits",
                         what, at->comm->rank, at->comm->ranks, at->ring.group.size,
                         at->ring.group.first, at->ring.group.stride, (long long)at->elems);
    return check_guards(at);
}

static mics_status check_all_gather(const ring_case *at)
{
    mics_group group = at->ring.group;
    fill(at);
    for (int32_t block = 0; block < group.size; block++) {
        int32_t rank = mics_group_rank(group, owner_of(at, block));
        for (int64_t i = block * at->elems; i < (block + 1) * at->elems; i++)
            at->expected[i] = value_of(rank, i);
    }
    MICS_TRY(
        mics_comm_all_gather(at->comm, &at->ring, at->buffer, (size_t)at->elems * sizeof(float)));
    return check_same(at, "all-gather", 0, group.size * at->elems);
}

// By doubling: the ring's bits, whatever lay in the memory that it works in.
static mics_status check_doubling(const ring_case *at, void *work)
{
    mics_group group = at->ring.group;
    const size_t bytes = (size_t)at->elems * sizeof(float);
    fill(at);
    MICS_TRY(mics_comm_all_gather(at->comm, &at->ring, at->buffer, bytes));
    memcpy(at->expected, at->buffer, (size_t)group.size * bytes);
    fill(at);
    MICS_TRY(mics_comm_all_gather_doubling(at->comm, &at->ring, at->buffer, work, bytes));
    return check_same(at, "all-gather by doubling", 0, group.size * at->elems);
}

static mics_status check_reduce_scatter(const ring_case *at)
{
    mics_group group = at->ring.group;
    int32_t mine = at->ring.block_of != NULL ? at->ring.block_of[group.index] : group.index;
    fill(at);
    for (int64_t i = mine * at->elems; i < (mine + 1) * at->elems; i++)
        at->expected[i] = sum_of(at, group.index, i);
    MICS_TRY(mics_comm_reduce_scatter(at->comm, &at->ring, at->buffer, at->elems));
    return check_same(at, "reduce-scatter", mine * at->elems, at->elems);
}

// The same sums into another buffer, alone and on top of what it holds.
static mics_status check_reduce_scatter_into(const ring_case *at, float *into)
{
    mics_group group = at->ring.group;
    int32_t mine = at->ring.block_of != NULL ? at->ring.block_of[group.index] : group.index;
    for (int add = 0; add < 2; add++) {
        fill(at);
        MICS_TRY(mics_comm_reduce_scatter_into(at->comm, &at->ring, at->buffer, at->elems, into,
                                               add == 1));
        for (int64_t i = 0; i < at->elems; i++) {
            const float sum = sum_of(at, group.index, mine * at->elems + i);
            const float expected = add == 1 ? sum + sum : sum;
            if (memcmp(&into[i], &expected, sizeof expected) != 0)
                return mics_fail(MICS_ERR_NUMERIC,
                                 "reduce-scatter into another buffer: wrong bits");
        }
        MICS_TRY(check_guards(at));
    }
    return MICS_OK;
}

static mics_status check_all_reduce(const ring_case *at)
{
    mics_group group = at->ring.group;
    fill(at);
    for (int32_t block = 0; block < group.size; block++) {
        int32_t owner = owner_of(at, block);
        for (int64_t i = block * at->elems; i < (block + 1) * at->elems; i++)
            at->expected[i] = sum_of(at, owner, i);
    }
    MICS_TRY(mics_comm_all_reduce(at->comm, &at->ring, at->buffer, group.size * at->elems));
    return check_same(at, "all-reduce", 0, group.size * at->elems);
}

mics_status checks_ring(mics_comm *comm, mics_memory *memory, mics_group group, int32_t order,
                        int64_t elems, int32_t channel)
{
    void *buffer = NULL, *expected = NULL, *block_of = NULL, *into = NULL, *work = NULL;
    size_t bytes = (size_t)(group.size * elems + 2 * GUARD_ELEMS) * sizeof(float);
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_DATA, bytes, &buffer));
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_DATA, bytes, &expected));
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_DATA, (size_t)elems * sizeof(float), &into));
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_DATA, bytes, &work));
    MICS_TRY_OUT(
        mics_alloc(memory, MICS_MEM_HOST, (size_t)group.size * sizeof(int32_t), &block_of));
    make_order(order, group.size, block_of);
    ring_case at = {.comm = comm,
                    .ring = {.group = group,
                             .block_of = block_of,
                             .channel = channel,
                             .what = "checked collective"},
                    .elems = elems,
                    .buffer = (float *)buffer + GUARD_ELEMS,
                    .expected = expected};
    if (order == 0)
        at.ring.block_of = NULL;
    MICS_TRY_OUT(check_all_gather(&at));
    MICS_TRY_OUT(check_doubling(&at, work));
    MICS_TRY_OUT(check_reduce_scatter(&at));
    MICS_TRY_OUT(check_reduce_scatter_into(&at, into));
    MICS_TRY_OUT(check_all_reduce(&at));
out:
    mics_free(memory, block_of);
    mics_free(memory, work);
    mics_free(memory, into);
    mics_free(memory, expected);
    mics_free(memory, buffer);
    return status;
}

mics_status checks_many_rings(mics_comm *comm, mics_memory *memory, int32_t rounds,
                              int64_t elems_max, int32_t channel)
{
    int32_t kinds = checks_group(comm->ranks, comm->rank, -1, NULL);
    for (int32_t round = 0; round < rounds; round++) {
        // Small sizes, 0 among them, come often; sizes differ from round to round.
        uint32_t draw = mix((uint32_t)round + 77 + 1000 * (uint32_t)channel);
        int64_t elems =
            draw % 4 == 0 ? (int64_t)(draw >> 8) % 4 : (int64_t)(draw >> 8) % (elems_max + 1);
        mics_group group = {0};
        checks_group(comm->ranks, comm->rank, (round + channel) % kinds, &group);
        MICS_TRY(checks_ring(comm, memory, group, (int32_t)(draw >> 4) % 5, elems, channel));
    }
    return MICS_OK;
}

// One exchange between `to` and `from`, of floats that name their sender.
static mics_status check_exchange(mics_comm *comm, float *send, float *recv, size_t elems,
                                  int32_t to, int32_t from, mics_reduce reduce)
{
    for (size_t i = 0; i < elems; i++) {
        send[i] = value_of(comm->rank, (int64_t)i);
        recv[i] = value_of(comm->ranks, (int64_t)i);
    }
    mics_exchange exchange = {.to = to,
                              .from = from,
                              .send = send,
                              .recv = recv,
                              .bytes = elems * sizeof(float),
                              .reduce = reduce,
                              .what = "checked exchange"};
    MICS_TRY(mics_comm_exchange(comm, &exchange));
    for (size_t i = 0; i < elems; i++) {
        float kept = value_of(comm->ranks, (int64_t)i);
        float came = from == MICS_RANK_NONE ? kept : value_of(from, (int64_t)i);
        if (reduce == MICS_REDUCE_SUM_F32 && from != MICS_RANK_NONE)
            came = came + kept;
        RANKS_EXPECT(memcmp(&recv[i], &came, sizeof came) == 0);
    }
    return MICS_OK;
}

static mics_status check_partners(mics_comm *comm, float *send, float *recv, size_t elems,
                                  mics_reduce reduce)
{
    int32_t rank = comm->rank, ranks = comm->ranks, none = MICS_RANK_NONE;
    int32_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    int32_t partner = rank ^ 1; // pairs (0, 1), (2, 3) ...; a last odd rank keeps to itself
    if (partner >= ranks)
        partner = rank;
    MICS_TRY(check_exchange(comm, send, recv, elems, rank, rank, reduce));
    MICS_TRY(check_exchange(comm, send, recv, elems, next, previous, reduce));
    MICS_TRY(check_exchange(comm, send, recv, elems, previous, next, reduce));
    MICS_TRY(check_exchange(comm, send, recv, elems, partner, partner, reduce));
    MICS_TRY(check_exchange(comm, send, recv, elems, none, none, reduce));
    // One way: even ranks to the next odd one.
    bool sender = rank % 2 == 0 && rank + 1 < ranks, receiver = rank % 2 == 1;
    return check_exchange(comm, send, recv, elems, sender ? rank + 1 : none,
                          receiver ? rank - 1 : none, reduce);
}

// Round a ring, of `elems` floats at most: each rank sends another part of them.
static mics_status check_sizes(mics_comm *comm, float *send, float *recv, size_t elems)
{
    const int32_t rank = comm->rank, ranks = comm->ranks, from = (rank + ranks - 1) % ranks;
    const size_t sent = elems - elems * (size_t)(rank % 3) / 3,
                 came = elems - elems * (size_t)(from % 3) / 3;
    for (size_t i = 0; i < elems; i++) {
        send[i] = value_of(rank, (int64_t)i);
        recv[i] = value_of(ranks, (int64_t)i);
    }
    const mics_exchange exchange = {.to = (rank + 1) % ranks,
                                    .from = from,
                                    .send = send,
                                    .recv = recv,
                                    .bytes = sent * sizeof(float),
                                    .recv_bytes = came * sizeof(float),
                                    .reduce = MICS_REDUCE_COPY,
                                    .what = "exchange of two sizes"};
    MICS_TRY(mics_comm_exchange(comm, &exchange));
    for (size_t i = 0; i < elems; i++) {
        const float expected = value_of(i < came ? from : ranks, (int64_t)i);
        RANKS_EXPECT(memcmp(&recv[i], &expected, sizeof expected) == 0);
    }
    return MICS_OK;
}

mics_status checks_exchanges(mics_comm *comm, mics_memory *memory, size_t bytes)
{
    mics_status status = MICS_OK;
    void *send = NULL, *recv = NULL;
    size_t elems = bytes / sizeof(float);
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_DATA, bytes, &send));
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_DATA, bytes, &recv));
    MICS_TRY_OUT(check_partners(comm, send, recv, elems, MICS_REDUCE_COPY));
    MICS_TRY_OUT(check_partners(comm, send, recv, elems, MICS_REDUCE_SUM_F32));
    // What a message looks like does not depend on what its receiver does with it.
    mics_reduce mixed = comm->rank % 2 == 0 ? MICS_REDUCE_SUM_F32 : MICS_REDUCE_COPY;
    MICS_TRY_OUT(check_partners(comm, send, recv, elems, mixed));
    MICS_TRY_OUT(check_sizes(comm, send, recv, elems));
out:
    mics_free(memory, recv);
    mics_free(memory, send);
    return status;
}

mics_status checks_broadcast(mics_comm *comm, mics_memory *memory, size_t bytes)
{
    mics_status status = MICS_OK;
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_DATA, bytes, &block));
    unsigned char *data = block;
    for (int32_t root = 0; root < comm->ranks; root++) {
        for (size_t i = 0; i < bytes; i++)
            data[i] = comm->rank == root ? (unsigned char)mix((uint32_t)i + (uint32_t)root) : 0;
        MICS_TRY_OUT(mics_comm_broadcast(comm, root, data, bytes));
        for (size_t i = 0; i < bytes && status == MICS_OK; i++) {
            if (data[i] != (unsigned char)mix((uint32_t)i + (uint32_t)root))
                status =
                    mics_fail(MICS_ERR_NUMERIC, "broadcast from %d: byte %zu is wrong", root, i);
        }
        MICS_TRY_OUT(status);
    }
out:
    mics_free(memory, block);
    return status;
}

int64_t checks_hops(int32_t ranks)
{
    int64_t hops = 0;
    for (int64_t reach = 1; reach < ranks; reach *= 2)
        hops++;
    return hops;
}

mics_status checks_agree(mics_comm *comm)
{
    RANKS_EXPECT(mics_comm_agree(comm, MICS_OK) == MICS_OK);
    for (int32_t bad = 0; bad < comm->ranks; bad++) {
        bool mine = comm->rank == bad;
        RANKS_EXPECT(mics_comm_agree(comm, mine ? MICS_ERR_IO : MICS_OK) ==
                     (mine ? MICS_ERR_IO : MICS_ERR_PEER));
    }
    RANKS_EXPECT(mics_comm_agree(comm, MICS_ERR_FORMAT) == MICS_ERR_FORMAT);
    RANKS_EXPECT(mics_comm_agree(comm, MICS_OK) == MICS_OK);
    for (int32_t says = -1; says < comm->ranks; says++) {
        bool any = says < 0;
        RANKS_EXPECT(mics_comm_any(comm, comm->rank == says, &any) == MICS_OK);
        RANKS_EXPECT(any == (says >= 0));
    }
    return MICS_OK;
}

// ---- memory in common ----

// Every member writes its part, and after hearing from one another each reads all parts.
static mics_status check_parts(mics_comm *comm, mics_group group, unsigned char *memory,
                               size_t bytes, int32_t round)
{
    const size_t part = bytes / (size_t)group.size;
    MICS_TRY(mics_comm_agree(comm, MICS_OK));
    memset(memory + part * (size_t)group.index, group.index + 1 + round, part);
    MICS_TRY(mics_comm_agree(comm, MICS_OK));
    for (size_t i = 0; i < part * (size_t)group.size; i++)
        RANKS_EXPECT(memory[i] == (unsigned char)((int32_t)(i / part) + 1 + round));
    return MICS_OK;
}

static mics_status share_with(mics_comm *comm, mics_group group, size_t bytes)
{
    const mics_comm_group ring = {.group = group, .what = "sharing"};
    const int32_t first = group.first / comm->ranks_sharing,
                  last = mics_group_rank(group, group.size - 1) / comm->ranks_sharing;
    void *block = NULL;
    mics_status status = mics_comm_share(comm, &ring, bytes, &block);
    if (first != last) {
        RANKS_EXPECT(status == MICS_ERR_UNSUPPORTED && block == NULL);
        return MICS_OK;
    }
    MICS_TRY(status);
    const unsigned char *zeroes = block;
    for (size_t i = 0; i < bytes; i++)
        RANKS_EXPECT(zeroes[i] == 0);
    for (int32_t round = 0; status == MICS_OK && round < 2; round++)
        status = check_parts(comm, group, block, bytes, round);
    mics_comm_unshare(comm, block);
    return status;
}

mics_status checks_share(mics_comm *comm, size_t bytes)
{
    const int32_t kinds = checks_group(comm->ranks, comm->rank, -1, NULL);
    for (int32_t kind = 0; kind < kinds; kind++) {
        mics_group group = {0};
        checks_group(comm->ranks, comm->rank, kind, &group);
        if (comm->ranks_sharing > 1 || group.size > 1)
            MICS_TRY(share_with(comm, group, bytes));
    }
    const mics_comm_group alone = {.group = {.first = comm->rank, .stride = 1, .size = 1},
                                   .what = "nothing"};
    void *block = NULL;
    RANKS_EXPECT(mics_comm_share(comm, &alone, 0, &block) == MICS_ERR_INVALID);
    return mics_comm_agree(comm, MICS_OK);
}

// ---- two channels ----

// What the thread of channel 1 does while the caller uses channel 0.
typedef struct side_thread {
    mics_comm *comm;
    mics_memory *memory;
    mics_status (*function)(struct side_thread *self);
    int32_t rounds;
    int64_t elems_max;
    atomic_int rounds_done;
    mics_status status;
    pthread_t thread;
} side_thread;

static void *side_main(void *arg)
{
    side_thread *self = arg;
    mics_log_set_rank(self->comm->rank);
    self->status = self->function(self);
    if (self->status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    return NULL;
}

// Runs `side` beside `own`, which is the caller's `status` when it returns.
static mics_status join_side(side_thread *side, mics_status own)
{
    if (own != MICS_OK)
        mics_comm_abort(side->comm, NULL);
    pthread_join(side->thread, NULL);
    return own != MICS_OK ? own : side->status;
}

static mics_status run_many(side_thread *self)
{
    for (int32_t i = 0; i < self->rounds; i++) {
        MICS_TRY(checks_many_rings(self->comm, self->memory, 1, self->elems_max, 1));
        MICS_TRY(checks_many_rings(self->comm, self->memory, i % 7, self->elems_max, 1));
        atomic_fetch_add(&self->rounds_done, 1);
    }
    return MICS_OK;
}

mics_status checks_channels(mics_comm *comm, mics_memory *memory, int32_t rounds, int64_t elems_max)
{
    side_thread side = {.comm = comm,
                        .memory = memory,
                        .function = run_many,
                        .rounds = rounds / 4,
                        .elems_max = elems_max};
    RANKS_EXPECT(pthread_create(&side.thread, NULL, side_main, &side) == 0);
    mics_status status = checks_many_rings(comm, memory, rounds, elems_max, 0);
    return join_side(&side, status);
}

// On channel 0 all ranks wait for the last one, which waits for its own channel 1.
mics_status checks_stalled_channel(mics_comm *comm, mics_memory *memory)
{
    side_thread side = {
        .comm = comm, .memory = memory, .function = run_many, .rounds = 10, .elems_max = 3000};
    bool last = comm->rank == comm->ranks - 1;
    RANKS_EXPECT(pthread_create(&side.thread, NULL, side_main, &side) == 0);
    for (int turn = 0; turn < MAX_TURNS && last && atomic_load(&side.rounds_done) < side.rounds;
         turn++)
        take_turn();
    bool stuck = last && atomic_load(&side.rounds_done) < side.rounds;
    mics_status status = mics_comm_agree(comm, MICS_OK);
    if (status == MICS_OK && stuck)
        status = mics_fail(MICS_ERR_TIMEOUT, "a stall on channel 0 has stopped channel 1");
    return join_side(&side, status);
}

// ---- the heartbeat ----

mics_heartbeat checks_heartbeat(int32_t rank, int32_t value)
{
    mics_heartbeat heartbeat = {{0}};
    memcpy(heartbeat.bytes, &rank, sizeof rank);
    memcpy(heartbeat.bytes + MICS_HEARTBEAT_BYTES - sizeof value, &value, sizeof value);
    return heartbeat;
}

// Whether this rank reads `value` from all ranks.
static mics_status all_show(mics_comm *comm, int32_t value, bool *shown_out)
{
    *shown_out = true;
    for (int32_t rank = 0; rank < comm->ranks; rank++) {
        mics_heartbeat heartbeat, expected = checks_heartbeat(rank, value),
                                  before = checks_heartbeat(rank, value - 1);
        double age_s = -1;
        bool found = mics_comm_heartbeat_read(comm, rank, &heartbeat, &age_s);
        RANKS_EXPECT(!found || (age_s >= 0 && age_s < MAX_AGE_S));
        bool newest = found && memcmp(&heartbeat, &expected, sizeof heartbeat) == 0;
        bool older = !found || memcmp(&heartbeat, &before, sizeof heartbeat) == 0;
        RANKS_EXPECT(newest || older);
        *shown_out = *shown_out && newest;
    }
    return MICS_OK;
}

mics_status checks_heartbeats(mics_comm *comm, bool everybody)
{
    bool monitor = everybody || comm->rank == 0 || comm->rank == comm->ranks - 1;
    mics_heartbeat heartbeat;
    double age_s = -1;
    RANKS_EXPECT(!mics_comm_heartbeat_read(comm, comm->rank, &heartbeat, &age_s) && age_s == -1);
    RANKS_EXPECT(!mics_comm_heartbeat_read(comm, -1, &heartbeat, &age_s));
    RANKS_EXPECT(!mics_comm_heartbeat_read(comm, comm->ranks, &heartbeat, &age_s));
    for (int32_t value = 1; value <= 3; value++) {
        mics_heartbeat mine = checks_heartbeat(comm->rank, value);
        mics_comm_heartbeat_post(comm, &mine);
        RANKS_EXPECT(mics_comm_heartbeat_read(comm, comm->rank, &heartbeat, &age_s));
        RANKS_EXPECT(memcmp(&heartbeat, &mine, sizeof heartbeat) == 0 && age_s == 0);
        // Agreement serves as a barrier, too: nobody posts the next heartbeat before all have seen this.
        mics_status status = MICS_ERR_PEER;
        for (int turn = 0; status != MICS_OK; turn++) {
            bool shown = true;
            RANKS_EXPECT(turn < MAX_TURNS);
            if (monitor)
                MICS_TRY(all_show(comm, value, &shown));
            status = mics_comm_agree(comm, shown ? MICS_OK : MICS_ERR_UNSUPPORTED);
            take_turn();
        }
    }
    RANKS_EXPECT(monitor || !mics_comm_heartbeat_read(comm, 0, &heartbeat, &age_s));
    return MICS_OK;
}
