// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The public side of a communicator: checks the arguments once, so that transports need not, and
// builds agreement and broadcast from exchanges.
#include "mics/core/comm.h"
#include "internal.h"
#include "mics/core/heartbeat.h"
#include "mics/log.h"

// A broadcast travels in parts, so that the ranks of the chain pass them on at the same time.
enum { BROADCAST_PIECE_BYTES = 1024 * 1024 };

static bool is_rank_or_none(const mics_comm *comm, int32_t rank)
{
    return rank == MICS_RANK_NONE || (rank >= 0 && rank < comm->ranks);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    return first < second ? a_bytes > second - first : b_bytes > first - second;
}

static mics_status check_exchange(const mics_comm *comm, const mics_exchange *exchange)
{
    const char *what = exchange->what;
    bool sends = exchange->to != MICS_RANK_NONE, receives = exchange->from != MICS_RANK_NONE;
    if (what == NULL)
        return mics_fail(MICS_ERR_INVALID, "exchange: `what` names no reason");
    if (!is_rank_or_none(comm, exchange->to) || !is_rank_or_none(comm, exchange->from))
        return mics_fail(MICS_ERR_INVALID, "%s: ranks %d and %d are not both within the %d ranks",
                         what, (int)exchange->to, (int)exchange->from, (int)comm->ranks);
    if (exchange->channel < 0 || exchange->channel >= MICS_CHANNELS)
        return mics_fail(MICS_ERR_INVALID, "%s: channel %d is not one of %d", what,
                         (int)exchange->channel, (int)MICS_CHANNELS);
    if (exchange->reduce != MICS_REDUCE_COPY && exchange->reduce != MICS_REDUCE_SUM_F32)
        return mics_fail(MICS_ERR_INVALID, "%s: unknown reduction %d", what, (int)exchange->reduce);
    if (exchange->reduce == MICS_REDUCE_SUM_F32 && exchange->bytes % sizeof(float) != 0)
        return mics_fail(MICS_ERR_INVALID, "%s: %zu bytes are no whole number of floats", what,
                         exchange->bytes);
    if (exchange->into != NULL && exchange->reduce != MICS_REDUCE_SUM_F32)
        return mics_fail(MICS_ERR_INVALID, "%s: only a sum goes into another buffer", what);
    const size_t incoming = mics_exchange_incoming(exchange);
    if (exchange->reduce != MICS_REDUCE_COPY && incoming != exchange->bytes)
        return mics_fail(MICS_ERR_INVALID, "%s: a sum of %zu bytes is not sent as %zu", what,
                         incoming, exchange->bytes);
    if (sends && exchange->send == NULL && exchange->bytes > 0)
        return mics_fail(MICS_ERR_INVALID, "%s: no buffer for %zu bytes", what, exchange->bytes);
    if (receives && exchange->recv == NULL && incoming > 0)
        return mics_fail(MICS_ERR_INVALID, "%s: no buffer for %zu bytes", what, incoming);
    if (sends && receives && overlap(exchange->send, exchange->bytes, exchange->recv, incoming))
        return mics_fail(MICS_ERR_INVALID, "%s: the buffers sent and received overlap", what);
    return MICS_OK;
}

mics_status mics_comm_exchange(mics_comm *comm, const mics_exchange *exchange)
{
    MICS_TRY(check_exchange(comm, exchange));
    COMM_FIND(comm, exchange);
    return comm->ops->exchange(comm->ctx, exchange);
}

mics_status mics_comm_set_timeout(mics_comm *comm, double seconds)
{
    if (!(seconds > 0))
        return mics_fail(MICS_ERR_INVALID, "cannot wait %g s for other ranks", seconds);
    COMM_FIND(comm, set_timeout);
    comm->ops->set_timeout(comm->ctx, seconds);
    return MICS_OK;
}

// The largest value of all members. Dissemination: after round k every member knows that of the
// 2^(k+1) members up to itself. A maximum may count a member twice, so any number of them will do.
static mics_status find_largest(mics_comm *comm, const mics_comm_group *over, int32_t mine,
                                int32_t *largest_out)
{
    const mics_group *group = &over->group;
    int32_t largest = mine;
    COMM_FIND(comm, exchange);
    for (int64_t hop = 1; hop < group->size; hop *= 2) {
        const int32_t to = (int32_t)((group->index + hop) % group->size);
        const int32_t from = (int32_t)((group->index + group->size - hop) % group->size);
        int32_t theirs = 0;
        const mics_exchange exchange = {.to = mics_group_rank(*group, to),
                                        .from = mics_group_rank(*group, from),
                                        .send = &largest,
                                        .recv = &theirs,
                                        .bytes = sizeof largest,
                                        .reduce = MICS_REDUCE_COPY,
                                        .channel = over->channel,
                                        .what = over->what};
        MICS_TRY(comm->ops->exchange(comm->ctx, &exchange));
        if (theirs > largest)
            largest = theirs;
    }
    *largest_out = largest;
    return MICS_OK;
}

mics_status comm_agree(mics_comm *comm, const mics_comm_group *over, mics_status mine)
{
    int32_t worst = MICS_OK;
    const mics_status status = find_largest(comm, over, (int32_t)mine, &worst);
    if (mine != MICS_OK)
        return mine;
    MICS_TRY(status);
    return worst == MICS_OK ? MICS_OK : MICS_ERR_PEER;
}

static mics_comm_group world_of(const mics_comm *comm, const char *what)
{
    return (mics_comm_group){
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank}, .what = what};
}

mics_status mics_comm_agree(mics_comm *comm, mics_status mine)
{
    const mics_comm_group world = world_of(comm, "agreement of all ranks");
    return comm_agree(comm, &world, mine);
}

mics_status mics_comm_any(mics_comm *comm, bool mine, bool *any_out)
{
    const mics_comm_group world = world_of(comm, "question to all ranks");
    int32_t largest = 0;
    MICS_TRY(find_largest(comm, &world, mine, &largest));
    *any_out = largest != 0;
    return MICS_OK;
}

// The ranks form a chain that starts at root. While a rank passes piece i on it receives piece
// i + 1.
mics_status mics_comm_broadcast(mics_comm *comm, int32_t root, void *buffer, size_t bytes)
{
    if (root < 0 || root >= comm->ranks)
        return mics_fail(MICS_ERR_INVALID, "broadcast: rank %d is not one of the %d ranks",
                         (int)root, (int)comm->ranks);
    if (bytes > 0 && buffer == NULL)
        return mics_fail(MICS_ERR_INVALID, "broadcast: no buffer for %zu bytes", bytes);
    int32_t place = (comm->rank - root + comm->ranks) % comm->ranks;
    bool receives = place > 0, sends = place < comm->ranks - 1;
    int32_t next = (int32_t)(((int64_t)comm->rank + 1) % comm->ranks);
    int32_t previous = (int32_t)(((int64_t)comm->rank + comm->ranks - 1) % comm->ranks);
    char *data = buffer;
    size_t got = receives ? 0 : bytes, passed = sends ? 0 : bytes;
    COMM_FIND(comm, exchange);
    while (got < bytes || passed < bytes) {
        // Both ends of a link cut the same pieces: a rank passes on all that it has of one piece.
        size_t in = bytes - got < BROADCAST_PIECE_BYTES ? bytes - got : BROADCAST_PIECE_BYTES;
        size_t out = got - passed < BROADCAST_PIECE_BYTES ? got - passed : BROADCAST_PIECE_BYTES;
        if (!sends)
            out = 0;
        // Only the last piece is shorter; then the two directions go one after the other.
        bool pass = out > 0, take = in > 0 && (!pass || in == out);
        mics_exchange exchange = {.to = pass ? next : MICS_RANK_NONE,
                                  .from = take ? previous : MICS_RANK_NONE,
                                  .send = data + passed,
                                  .recv = data + got,
                                  .bytes = pass ? out : in,
                                  .reduce = MICS_REDUCE_COPY,
                                  .what = "broadcast"};
        MICS_TRY(comm->ops->exchange(comm->ctx, &exchange));
        passed += pass ? out : 0;
        got += take ? in : 0;
    }
    return MICS_OK;
}

void mics_comm_heartbeat_post(mics_comm *comm, const mics_heartbeat *heartbeat)
{
    COMM_FIND(comm, post);
    comm->ops->post(comm->ctx, heartbeat);
}

bool mics_comm_heartbeat_read(mics_comm *comm, int32_t rank, mics_heartbeat *heartbeat_out,
                              double *age_s_out)
{
    if (rank < 0 || rank >= comm->ranks)
        return false;
    COMM_FIND(comm, read);
    return comm->ops->read(comm->ctx, rank, heartbeat_out, age_s_out);
}

void mics_comm_set_timeout_handler(mics_comm *comm, mics_timeout_handler handler, void *handler_ctx)
{
    COMM_FIND(comm, set_timeout_handler);
    comm->ops->set_timeout_handler(comm->ctx, handler, handler_ctx);
}

void mics_comm_abort(mics_comm *comm, const char *why)
{
    if (why != NULL)
        mics_log(MICS_LOG_ERROR, "%s", why);
    COMM_FIND(comm, abort);
    comm->ops->abort(comm->ctx);
}

void mics_comm_close(mics_comm *comm)
{
    if (comm != NULL)
        comm->ops->close(comm->ctx);
}
