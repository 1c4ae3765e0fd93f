// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process. Every rank has one cell a channel, with the message it offers
// there; the receiver copies or adds straight from the sender's buffer, so nothing is staged.
//
// A rank locks its own cell to offer and to see its message taken, and its sender's cell to take
// one: never two at once, and no lock is shared by the world. It wakes others when it has given the
// lock back, which they would wait for else.
//
// A cell meets cells of its own channel only. While it is TAKING, rank `to` reads `data`, and its own
// rank stays in the exchange until that ends, whatever fails.
//
// Invariants (each cell guarded by its mutex), checked by may_turn:
//   1. The cell's rank alone turns EMPTY into FULL, and at its exchange's end FULL (it withdraws)
//      or REFUSED into EMPTY: outside of exchanges a cell is EMPTY.
//   2. Rank `to` alone turns FULL into TAKING or REFUSED, and TAKING into EMPTY.
#include "base/assert.h"
#include "base/clock.h"
#include "comm/internal.h"
#include "mics/core/comm.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// How often who waits looks at the time.
static const double LOOK_US = 0.25e6;

typedef enum cell_state { CELL_EMPTY, CELL_FULL, CELL_TAKING, CELL_REFUSED } cell_state;

typedef struct cell {
    _Alignas(MICS_ALIGNMENT) pthread_mutex_t mutex;
    pthread_cond_t offered; // FULL: awaited by receivers
    pthread_cond_t taken;   // EMPTY or REFUSED: awaited by the cell's rank
    bool aborted;
    cell_state state;
    int32_t to;
    const void *data;
    size_t bytes;
    const char *what;
    int32_t waits_for; // rank this one may be waiting for; MICS_RANK_NONE outside of exchanges
} cell;

// A rank's newest heartbeat, and whether the rank is there. Guarded by the world's mutex.
typedef struct place {
    bool open; // a comm of this rank exists
    bool posted;
    mics_heartbeat heartbeat;
} place;

// Memory in common; what the members see begins MICS_ALIGNMENT bytes behind it.
typedef struct common {
    struct common *next;
    int32_t users; // that have not given it back
} common;

_Static_assert(sizeof(common) <= MICS_ALIGNMENT, "the head must fit before an aligned block");

struct mics_thread_world {
    mics_memory *memory;
    double timeout_s; // of a rank until it sets its own
    int32_t ranks;
    int64_t cells_ready; // cells whose mutex and conditions exist
    pthread_mutex_t mutex;
    bool timeout_reported; // guarded by mutex
    common *commons;       // all that exist; guarded by mutex
    place *places;         // (ranks)
    cell *cells;           // (ranks, MICS_CHANNELS)
};

typedef struct thread_comm {
    mics_comm base;
    mics_memory *memory;
    mics_thread_world *world;
    double timeout_s;
    mics_timeout_handler timeout_handler; // NULL: fail_timeout says it
    void *timeout_ctx;
} thread_comm;

static cell *cell_of(const mics_thread_world *world, int32_t rank, int32_t channel)
{
    return &world->cells[(int64_t)rank * MICS_CHANNELS + channel];
}

static bool may_turn(cell_state from, cell_state to, bool own)
{
    switch (to) {
    case CELL_FULL:
        return own && from == CELL_EMPTY;
    case CELL_EMPTY:
        return own ? from != CELL_TAKING : from == CELL_TAKING;
    default:
        return !own && from == CELL_FULL;
    }
}

// Called with the cell's mutex; `own`: by its rank.
static void turn(cell *at, cell_state to, bool own)
{
    MICS_ASSERT(may_turn(at->state, to, own));
    at->state = to;
}

// ---- waiting ----

// Waits for a signal, but looks at the time now and then, as patience asks for. Returns whether the
// wait is over.
static bool wait_patiently(pthread_cond_t *signal, pthread_mutex_t *mutex, mics_patience *patience)
{
    const double slice_us = fmin(LOOK_US, fmax(patience->left_us, 0));
    mics_condition_wait(signal, mutex, slice_us);
    return mics_patience_ends(patience);
}

// Whom a rank waits for: on `channel`, or else on another one, or nobody.
static int32_t waits_for(const mics_thread_world *world, int32_t rank, int32_t channel)
{
    int32_t next = MICS_RANK_NONE;
    for (int32_t i = 0; i < MICS_CHANNELS && next == MICS_RANK_NONE; i++) {
        cell *at = cell_of(world, rank, (channel + i) % MICS_CHANNELS);
        pthread_mutex_lock(&at->mutex);
        next = at->waits_for;
        pthread_mutex_unlock(&at->mutex);
    }
    return next;
}

// Writes who is to blame for `peer` not coming: follows who waits for whom until a rank that is in
// no exchange. Ranks whose exchange failed still count as waiting.
static void explain_timeout(const mics_thread_world *world, int32_t peer, int32_t channel,
                            char *text, size_t capacity)
{
    int32_t rank = peer;
    for (int32_t hop = 0; hop <= world->ranks; hop++) {
        int32_t next = waits_for(world, rank, channel);
        if (next == MICS_RANK_NONE) {
            snprintf(text, capacity,
                     "rank %d is in no exchange: see what it does, or raise run.comm_timeout_s",
                     (int)rank);
            return;
        }
        rank = next;
    }
    snprintf(text, capacity, "the ranks wait for one another: their collectives differ in order");
}

// Called without a lock. One word a world: the first rank's that timed out, since others wait for
// the same.
static mics_status fail_timeout(thread_comm *self, const mics_exchange *exchange, bool sending)
{
    mics_thread_world *world = self->world;
    pthread_mutex_lock(&world->mutex);
    bool first = !world->timeout_reported;
    world->timeout_reported = true;
    pthread_mutex_unlock(&world->mutex);
    if (!first)
        return MICS_ERR_TIMEOUT;
    const mics_timeout timeout = {.what = exchange->what,
                                  .rank = self->base.rank,
                                  .peer = sending ? exchange->to : exchange->from,
                                  .sending = sending,
                                  .waited_s = self->timeout_s};
    if (self->timeout_handler != NULL) {
        self->timeout_handler(self->timeout_ctx, &timeout);
        return MICS_ERR_TIMEOUT;
    }
    char why[128] = "";
    explain_timeout(world, timeout.peer, exchange->channel, why, sizeof why);
    return mics_fail(MICS_ERR_TIMEOUT, "%s: rank %d waited %g s for rank %d to %s; %s",
                     timeout.what, (int)timeout.rank, timeout.waited_s, (int)timeout.peer,
                     sending ? "receive" : "send", why);
}

// ---- one exchange ----

// Offers this rank's message, if there is one; does not wait.
static mics_status offer(thread_comm *self, const mics_exchange *exchange)
{
    cell *mine = cell_of(self->world, self->base.rank, exchange->channel);
    pthread_mutex_lock(&mine->mutex);
    bool aborted = mine->aborted;
    mine->waits_for = exchange->from;
    if (!aborted && exchange->to != MICS_RANK_NONE) {
        mine->to = exchange->to;
        mine->data = exchange->send;
        mine->bytes = exchange->bytes;
        mine->what = exchange->what;
        turn(mine, CELL_FULL, true);
    }
    pthread_mutex_unlock(&mine->mutex);
    if (!aborted && exchange->to != MICS_RANK_NONE)
        pthread_cond_broadcast(&mine->offered);
    return aborted ? MICS_ERR_ABORTED : MICS_OK;
}

// Waits, with the sender's cell locked, until it offers a message to this rank.
static mics_status await_offer(thread_comm *self, cell *source)
{
    mics_patience patience = mics_patience_begin(self->timeout_s);
    bool expired = false;
    while (!source->aborted && !(source->state == CELL_FULL && source->to == self->base.rank)) {
        if (expired)
            return MICS_ERR_TIMEOUT;
        expired = wait_patiently(&source->offered, &source->mutex, &patience);
    }
    return source->aborted ? MICS_ERR_ABORTED : MICS_OK;
}

// The sender's cell is locked and FULL. Its rank cannot leave while the state is TAKING, so the
// copy needs no lock.
static void take(cell *source, const mics_exchange *exchange)
{
    turn(source, CELL_TAKING, false);
    pthread_mutex_unlock(&source->mutex);
    if (exchange->reduce == MICS_REDUCE_SUM_F32)
        comm_add_f32(exchange, 0, source->data, exchange->bytes / sizeof(float));
    else if (source->bytes > 0)
        memcpy(exchange->recv, source->data, source->bytes);
    pthread_mutex_lock(&source->mutex);
    turn(source, CELL_EMPTY, false);
}

// Two collectives that differ are a defect of the program, also where their sizes agree.
static mics_status refuse(const thread_comm *self, const mics_exchange *exchange,
                          size_t offered_bytes, const char *offered_what)
{
    return mics_fail(MICS_ERR_COMM,
                     "%s: rank %d expects %zu bytes from rank %d, which sends %zu (%s)",
                     exchange->what, (int)self->base.rank, mics_exchange_incoming(exchange),
                     (int)exchange->from, offered_bytes, offered_what);
}

static mics_status receive(thread_comm *self, const mics_exchange *exchange)
{
    cell *source = cell_of(self->world, exchange->from, exchange->channel);
    pthread_mutex_lock(&source->mutex);
    mics_status status = await_offer(self, source);
    bool fits = status == MICS_OK && source->bytes == mics_exchange_incoming(exchange) &&
                strcmp(source->what, exchange->what) == 0;
    if (fits) {
        take(source, exchange);
    } else if (status == MICS_OK) {
        status = refuse(self, exchange, source->bytes, source->what);
        turn(source, CELL_REFUSED, false);
    }
    pthread_mutex_unlock(&source->mutex);
    pthread_cond_signal(&source->taken);
    if (status == MICS_ERR_TIMEOUT)
        return fail_timeout(self, exchange, false);
    return status;
}

// Waits, with this rank's cell locked, until its message was taken, or withdraws it: at once when
// the exchange has failed already. Never while it is being read.
static mics_status await_taken(thread_comm *self, cell *mine, bool failed)
{
    mics_patience patience = mics_patience_begin(self->timeout_s);
    bool expired = false;
    while (mine->state == CELL_FULL && !mine->aborted && !failed && !expired)
        expired = wait_patiently(&mine->taken, &mine->mutex, &patience);
    while (mine->state == CELL_TAKING)
        pthread_cond_wait(&mine->taken, &mine->mutex);
    cell_state end = mine->state;
    turn(mine, CELL_EMPTY, true);
    if (end == CELL_EMPTY)
        return MICS_OK;
    if (end == CELL_REFUSED)
        return MICS_ERR_COMM; // logged by the receiver
    return mine->aborted ? MICS_ERR_ABORTED : MICS_ERR_TIMEOUT;
}

// `status` is how receiving went; returns how the exchange did.
static mics_status finish(thread_comm *self, const mics_exchange *exchange, mics_status status)
{
    cell *mine = cell_of(self->world, self->base.rank, exchange->channel);
    bool failed = status != MICS_OK;
    pthread_mutex_lock(&mine->mutex);
    if (exchange->to != MICS_RANK_NONE) {
        if (!failed)
            mine->waits_for = exchange->to;
        mics_status sent = await_taken(self, mine, failed);
        if (!failed)
            status = sent;
    }
    // A failed exchange leaves whom it waited for, for explain_timeout.
    if (status == MICS_OK)
        mine->waits_for = MICS_RANK_NONE;
    pthread_mutex_unlock(&mine->mutex);
    if (!failed && status == MICS_ERR_TIMEOUT)
        return fail_timeout(self, exchange, true);
    return status;
}

static mics_status thread_exchange(void *ctx, const mics_exchange *exchange)
{
    thread_comm *self = ctx;
    mics_status status = offer(self, exchange);
    if (status == MICS_OK && exchange->from != MICS_RANK_NONE)
        status = receive(self, exchange);
    return finish(self, exchange, status);
}

static void thread_set_timeout(void *ctx, double seconds)
{
    thread_comm *self = ctx;
    self->timeout_s = seconds;
}

static void thread_abort(void *ctx)
{
    thread_comm *self = ctx;
    mics_thread_world *world = self->world;
    for (int64_t i = 0; i < world->cells_ready; i++) {
        cell *at = &world->cells[i];
        pthread_mutex_lock(&at->mutex);
        at->aborted = true;
        pthread_cond_broadcast(&at->offered);
        pthread_cond_broadcast(&at->taken);
        pthread_mutex_unlock(&at->mutex);
    }
}

static void thread_set_timeout_handler(void *ctx, mics_timeout_handler handler, void *handler_ctx)
{
    thread_comm *self = ctx;
    self->timeout_handler = handler;
    self->timeout_ctx = handler_ctx;
}

// ---- heartbeats ----

static void thread_post(void *ctx, const mics_heartbeat *heartbeat)
{
    thread_comm *self = ctx;
    place *mine = &self->world->places[self->base.rank];
    pthread_mutex_lock(&self->world->mutex);
    mine->heartbeat = *heartbeat;
    mine->posted = true;
    pthread_mutex_unlock(&self->world->mutex);
}

static bool thread_read(void *ctx, int32_t rank, mics_heartbeat *heartbeat_out, double *age_s_out)
{
    thread_comm *self = ctx;
    const place *at = &self->world->places[rank];
    pthread_mutex_lock(&self->world->mutex);
    bool posted = at->posted;
    if (posted) {
        *heartbeat_out = at->heartbeat;
        *age_s_out = 0; // threads live as long as this process
    }
    pthread_mutex_unlock(&self->world->mutex);
    return posted;
}

// ---- memory in common ----
//
// The world has it until all members have given it back, or else to the end: a member that failed
// may never have heard of it.

static mics_status make_common(void *ctx, size_t bytes, int32_t users, comm_ticket *ticket_out,
                               void **memory_out)
{
    thread_comm *self = ctx;
    void *block = NULL;
    MICS_TRY(mics_alloc(self->world->memory, MICS_MEM_HOST, MICS_ALIGNMENT + bytes, &block));
    common *head = block;
    head->users = users;
    pthread_mutex_lock(&self->world->mutex);
    head->next = self->world->commons;
    self->world->commons = head;
    pthread_mutex_unlock(&self->world->mutex);
    *memory_out = ticket_out->address = (char *)block + MICS_ALIGNMENT;
    return MICS_OK;
}

static mics_status find_common(void *ctx, size_t bytes, const comm_ticket *ticket,
                               void **memory_out)
{
    (void)ctx, (void)bytes;
    *memory_out = ticket->address;
    return MICS_OK;
}

static void thread_unshare(void *ctx, void *memory)
{
    thread_comm *self = ctx;
    common *head = (common *)(void *)((char *)memory - MICS_ALIGNMENT);
    pthread_mutex_lock(&self->world->mutex);
    const bool last = --head->users == 0;
    common **at = &self->world->commons;
    while (last && *at != head)
        at = &(*at)->next;
    if (last)
        *at = head->next;
    pthread_mutex_unlock(&self->world->mutex);
    if (last)
        mics_free(self->world->memory, head);
}

static mics_status thread_share(void *ctx, const mics_comm_group *over, size_t bytes,
                                void **memory_out)
{
    static const comm_share_ops ops = {
        .make = make_common, .find = find_common, .drop = thread_unshare};
    thread_comm *self = ctx;
    return comm_share_by(&self->base, &ops, over, bytes, memory_out);
}

// ---- opening and closing ----

static void thread_close(void *ctx)
{
    thread_comm *self = ctx;
    pthread_mutex_lock(&self->world->mutex);
    self->world->places[self->base.rank].open = false;
    pthread_mutex_unlock(&self->world->mutex);
    mics_free(self->memory, self);
}

static mics_status cell_init(cell *at)
{
    at->waits_for = MICS_RANK_NONE;
    return mics_locks_init(&at->mutex, (pthread_cond_t *[]){&at->offered, &at->taken}, 2);
}

mics_status mics_thread_world_open(mics_memory *memory, int32_t ranks, double timeout_s,
                                   mics_thread_world **world_out)
{
    if (ranks < 1 || !(timeout_s > 0))
        return mics_fail(MICS_ERR_INVALID, "cannot open %d ranks that wait %g s for one another",
                         (int)ranks, timeout_s);
    mics_status status = MICS_OK;
    void *block = NULL;
    mics_thread_world *world = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &world));
    world->memory = memory;
    world->ranks = ranks;
    world->timeout_s = timeout_s;
    if (pthread_mutex_init(&world->mutex, NULL) != 0) {
        mics_free(memory, world);
        return mics_fail(MICS_ERR_MEMORY, "no mutex for %d ranks", (int)ranks);
    }
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_HOST, (size_t)ranks * sizeof(place), &block));
    world->places = block;
    size_t cells = (size_t)ranks * MICS_CHANNELS;
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_HOST, cells * sizeof(cell), &block));
    world->cells = block;
    for (; world->cells_ready < (int64_t)cells; world->cells_ready++)
        MICS_TRY_OUT(cell_init(&world->cells[world->cells_ready]));
    *world_out = world;
    return MICS_OK;
out:
    mics_thread_world_close(world);
    return status;
}

void mics_thread_world_close(mics_thread_world *world)
{
    if (world == NULL)
        return;
    for (int64_t i = 0; i < world->cells_ready; i++) {
        cell *at = &world->cells[i];
        pthread_mutex_destroy(&at->mutex);
        pthread_cond_destroy(&at->offered);
        pthread_cond_destroy(&at->taken);
    }
    pthread_mutex_destroy(&world->mutex);
    mics_free(world->memory, world->cells);
    while (world->commons != NULL) {
        common *head = world->commons;
        world->commons = head->next;
        mics_free(world->memory, head);
    }
    mics_free(world->memory, world->places);
    mics_free(world->memory, world);
}

mics_status mics_comm_thread_open(mics_memory *memory, mics_thread_world *world, int32_t rank,
                                  mics_comm **comm_out)
{
    static const mics_comm_ops ops = {
        .name = "thread",
        .exchange = thread_exchange,
        .set_timeout = thread_set_timeout,
        .abort = thread_abort,
        .set_timeout_handler = thread_set_timeout_handler,
        .post = thread_post,
        .read = thread_read,
        .close = thread_close,
        .share = thread_share,
        .unshare = thread_unshare,
    };
    if (rank < 0 || rank >= world->ranks)
        return mics_fail(MICS_ERR_INVALID, "there is no rank %d among %d", (int)rank,
                         (int)world->ranks);
    thread_comm *self = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &self));
    place *mine = &world->places[rank];
    pthread_mutex_lock(&world->mutex);
    bool taken = mine->open;
    mine->open = true;
    if (!taken)
        mine->posted = false;
    pthread_mutex_unlock(&world->mutex);
    if (taken) {
        mics_free(memory, self);
        return mics_fail(MICS_ERR_INVALID, "rank %d is open already", (int)rank);
    }
    self->memory = memory;
    self->world = world;
    self->timeout_s = world->timeout_s;
    self->base = (mics_comm){.ops = &ops,
                             .ctx = self,
                             .rank = rank,
                             .ranks = world->ranks,
                             .ranks_per_node = world->ranks,
                             .staging_bytes = 0,
                             .ranks_sharing = world->ranks};
    *comm_out = &self->base;
    return MICS_OK;
}
