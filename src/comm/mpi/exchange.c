// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Point-to-point exchanges over MPI. Intra-node exchanges avoid MPI where they can (intra.c).
//
// Between processes an exchange is a header with its number of bytes and a hash of its `what`, by
// which crossed collectives are found. A small one carries its data behind the header, in one
// message; a larger one follows in chunks straight from the sender's buffer, and straight into the
// receiver's, or into staging when it is to be added. The chunks of a message depend on who
// exchanges it, and not on what its receiver does with it. Each channel has its own tags and
// staging.
#include "comm/mpi/exchange.h"
#include "base/clock.h"
#include "base/hash.h"
#include "comm/mpi/intra.h"
#include "comm/mpi/wait.h"
#include "mics/core/comm.h"
#include "mics/log.h"
#include <string.h>

// Tags of channel 0; those of channel c are 2 * c further on. That of heartbeats is 0.
enum {
    TAG_HEADER = 1,
    TAG_CHUNK = 2,
    TAGS_CHANNEL = 2,
    HEADER_BYTES = 16, // u64 bytes, u64 hash
};

enum {
    // Who waits for MPI sleeps between polls (nap_of): a poll costs several us, and more where
    // ranks share cores.
    NAP_MIN_US = 50,
    NAP_MAX_US = 2000,
    POLL_US = 20,        // how long a wait polls before it sleeps
    LOOK_US = 50 * 1000, // how often who waits for a rank of the node looks at its deadline
};

// One direction of an exchange. Chunk i uses request i % window.
typedef struct lane {
    size_t bytes;
    bool intra;  // without MPI
    bool by_mpi; // not intra-node memory, and there is somebody on the other side
    size_t chunk_bytes, window;
    size_t chunks; // 0: small, all in the header's message
    size_t done;
    double begun_us; // when the first was done: a peer that comes late is no slow link
    MPI_Request requests[COMM_INTER_WINDOW];
} lane;

typedef struct transfer {
    const mics_exchange *exchange;
    uint64_t hash; // of `what`
    lane in, out;
    MPI_Request header_in;
    MPI_Request header_out;
    // Directions without MPI.
    bool waits_in, waits_out; // not taken yet
    bool gone;                // the sender's process
} transfer;

static lane lane_with(const comm_mpi *self, int32_t peer, size_t bytes)
{
    const int32_t per_node = self->base.ranks_per_node;
    const bool inter = peer / per_node != self->base.rank / per_node;
    const bool intra = comm_intra_reaches(self, peer);
    lane way = {.bytes = bytes,
                .intra = intra,
                .by_mpi = !intra && peer != MICS_RANK_NONE,
                .chunk_bytes = inter ? COMM_INTER_CHUNK_BYTES : COMM_CHUNK_BYTES,
                .window = inter ? COMM_INTER_WINDOW : COMM_WINDOW};
    if (way.by_mpi && bytes > COMM_SMALL_BYTES - HEADER_BYTES)
        way.chunks = (bytes - 1) / way.chunk_bytes + 1;
    for (size_t slot = 0; slot < COMM_INTER_WINDOW; slot++)
        way.requests[slot] = MPI_REQUEST_NULL;
    return way;
}

static size_t chunk_at(const lane *way, size_t chunk)
{
    return chunk * way->chunk_bytes;
}

static size_t chunk_bytes(const lane *way, size_t chunk)
{
    size_t left = way->bytes - chunk_at(way, chunk);
    return left < way->chunk_bytes ? left : way->chunk_bytes;
}

static int tag_of(const transfer *moving, int tag)
{
    return tag + (int)moving->exchange->channel * TAGS_CHANNEL;
}

// The piece of the channel's staging for a chunk in this slot.
static char *staging_of(const comm_mpi *self, const transfer *moving, size_t slot)
{
    return self->staging + (size_t)moving->exchange->channel * COMM_CHANNEL_BYTES +
           slot * moving->in.chunk_bytes;
}

static char *small_in(const comm_mpi *self, const transfer *moving)
{
    return self->staging + (size_t)moving->exchange->channel * COMM_CHANNEL_BYTES +
           COMM_WINDOW * COMM_CHUNK_BYTES;
}

static char *small_out(const comm_mpi *self, const transfer *moving)
{
    return small_in(self, moving) + COMM_SMALL_BYTES;
}

static mics_status post_receive(comm_mpi *self, transfer *moving, size_t chunk)
{
    const mics_exchange *exchange = moving->exchange;
    lane *in = &moving->in;
    size_t slot = chunk % in->window;
    char *to = exchange->reduce == MICS_REDUCE_COPY ? (char *)exchange->recv + chunk_at(in, chunk)
                                                    : staging_of(self, moving, slot);
    return comm_mpi_check(MPI_Irecv(to, (int)chunk_bytes(in, chunk), MPI_BYTE, exchange->from,
                                    tag_of(moving, TAG_CHUNK), self->world, &in->requests[slot]),
                          exchange->what);
}

static mics_status post_send(comm_mpi *self, transfer *moving, size_t chunk)
{
    const mics_exchange *exchange = moving->exchange;
    lane *out = &moving->out;
    return comm_mpi_check(MPI_Isend((const char *)exchange->send + chunk_at(out, chunk),
                                    (int)chunk_bytes(out, chunk), MPI_BYTE, exchange->to,
                                    tag_of(moving, TAG_CHUNK), self->world,
                                    &out->requests[chunk % out->window]),
                          exchange->what);
}

// Receives are posted before sends, so that data finds its place.
static mics_status start(comm_mpi *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    if (moving->in.by_mpi)
        MICS_TRY(comm_mpi_check(MPI_Irecv(small_in(self, moving), COMM_SMALL_BYTES, MPI_BYTE,
                                          exchange->from, tag_of(moving, TAG_HEADER), self->world,
                                          &moving->header_in),
                                exchange->what));
    for (size_t chunk = 0; chunk < moving->in.chunks && chunk < moving->in.window; chunk++)
        MICS_TRY(post_receive(self, moving, chunk));
    if (!moving->out.by_mpi)
        return MICS_OK;
    uint64_t header[2] = {exchange->bytes, moving->hash};
    size_t behind = moving->out.chunks == 0 ? exchange->bytes : 0;
    memcpy(small_out(self, moving), header, HEADER_BYTES);
    if (behind > 0)
        memcpy(small_out(self, moving) + HEADER_BYTES, exchange->send, behind);
    MICS_TRY(comm_mpi_check(MPI_Isend(small_out(self, moving), (int)(HEADER_BYTES + behind),
                                      MPI_BYTE, exchange->to, tag_of(moving, TAG_HEADER),
                                      self->world, &moving->header_out),
                            exchange->what));
    for (size_t chunk = 0; chunk < moving->out.chunks && chunk < moving->out.window; chunk++)
        MICS_TRY(post_send(self, moving, chunk));
    return MICS_OK;
}

// Moves data that arrived behind a header, or in a chunk of staging, to the receiver's buffer.
static void deliver(const mics_exchange *exchange, size_t offset, const char *from, size_t bytes)
{
    if (exchange->reduce == MICS_REDUCE_SUM_F32)
        comm_add_f32(exchange, offset / sizeof(float), (const float *)(const void *)from,
                     bytes / sizeof(float));
    else
        memcpy((char *)exchange->recv + offset, from, bytes);
}

// Whether what is sent is what is expected.
static mics_status check_header(const comm_mpi *self, const transfer *moving, uint64_t bytes,
                                uint64_t hash)
{
    const mics_exchange *exchange = moving->exchange;
    const bool same = hash == moving->hash;
    if (bytes == moving->in.bytes && same)
        return MICS_OK;
    return mics_fail(MICS_ERR_COMM,
                     "%s: rank %d expects %zu bytes from rank %d, which sends %llu%s",
                     exchange->what, (int)self->base.rank, moving->in.bytes, (int)exchange->from,
                     (unsigned long long)bytes,
                     same ? "" : " of something else: their collectives differ in order");
}

static mics_status take_header(comm_mpi *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    uint64_t header[2] = {0};
    memcpy(header, small_in(self, moving), HEADER_BYTES);
    MICS_TRY(check_header(self, moving, header[0], header[1]));
    if (moving->in.chunks == 0 && moving->in.bytes > 0)
        deliver(exchange, 0, small_in(self, moving) + HEADER_BYTES, moving->in.bytes);
    return MICS_OK;
}

static void count_chunk(lane *way)
{
    if (way->done++ == 0)
        way->begun_us = mics_clock_us();
}

// Adds outside of the turn, so that the other channel goes on.
static mics_status take_chunk(comm_mpi *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    lane *in = &moving->in;
    size_t chunk = in->done;
    if (exchange->reduce == MICS_REDUCE_SUM_F32) {
        comm_turn_leave(&self->turn);
        deliver(exchange, chunk_at(in, chunk), staging_of(self, moving, chunk % in->window),
                chunk_bytes(in, chunk));
        comm_turn_enter(&self->turn);
        if (self->broken)
            return MICS_ERR_COMM;
    }
    count_chunk(in);
    if (chunk + in->window < in->chunks)
        return post_receive(self, moving, chunk + in->window);
    return MICS_OK;
}

static mics_status chunk_sent(comm_mpi *self, transfer *moving)
{
    lane *out = &moving->out;
    const size_t chunk = out->done;
    count_chunk(out);
    if (chunk + out->window < out->chunks)
        return post_send(self, moving, chunk + out->window);
    return MICS_OK;
}

static MPI_Request *next_request(lane *way)
{
    return &way->requests[way->done % way->window];
}

// Does what can be done by MPI without waiting; *moved_out tells whether that was anything.
static mics_status advance_mpi(comm_mpi *self, transfer *moving, bool *moved_out)
{
    const char *what = moving->exchange->what;
    bool header_in = false, in = false, header_out = false, out = false;
    MICS_TRY(comm_mpi_test(&moving->header_in, what, &header_in));
    if (header_in)
        MICS_TRY(take_header(self, moving));
    if (moving->in.done < moving->in.chunks)
        MICS_TRY(comm_mpi_test(next_request(&moving->in), what, &in));
    if (in)
        MICS_TRY(take_chunk(self, moving));
    MICS_TRY(comm_mpi_test(&moving->header_out, what, &header_out));
    if (moving->out.done < moving->out.chunks)
        MICS_TRY(comm_mpi_test(next_request(&moving->out), what, &out));
    if (out)
        MICS_TRY(chunk_sent(self, moving));
    *moved_out = header_in || in || header_out || out;
    return MICS_OK;
}

// Likewise without MPI; not in a turn, so that the other channel goes on.
static mics_status advance_intra(comm_mpi *self, transfer *moving, bool *moved_out)
{
    const mics_exchange *exchange = moving->exchange;
    uint64_t bytes = 0, hash = 0;
    if (moving->waits_out && comm_intra_is_taken(self, exchange->channel)) {
        moving->waits_out = false;
        *moved_out = true;
    }
    if (!moving->waits_in || moving->gone ||
        !comm_intra_is_offered(self, exchange->from, exchange->channel, &bytes, &hash))
        return MICS_OK;
    bool there = false;
    MICS_TRY(check_header(self, moving, bytes, hash));
    MICS_TRY(comm_intra_take(self, exchange, &there));
    moving->gone = !there;
    moving->waits_in = !there;
    *moved_out = true;
    return MICS_OK;
}

static bool is_received_by_mpi(const transfer *moving)
{
    return moving->header_in == MPI_REQUEST_NULL && moving->in.done == moving->in.chunks;
}

static bool is_sent_by_mpi(const transfer *moving)
{
    return moving->header_out == MPI_REQUEST_NULL && moving->out.done == moving->out.chunks;
}

static bool is_received(const transfer *moving)
{
    return is_received_by_mpi(moving) && !moving->waits_in;
}

// In a turn.
static mics_status fail_timeout(comm_mpi *self, const transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    bool sending = is_received(moving);
    const mics_timeout timeout = {.what = exchange->what,
                                  .rank = self->base.rank,
                                  .peer = sending ? exchange->to : exchange->from,
                                  .sending = sending,
                                  .waited_s = self->timeout_s};
    if (self->timeout_handler != NULL)
        return comm_mpi_report_timeout(self, &timeout);
    return mics_fail(MICS_ERR_TIMEOUT,
                     "%s: rank %d waited %g s for rank %d to %s; see what that rank does, or "
                     "raise run.comm_timeout_s",
                     timeout.what, (int)timeout.rank, timeout.waited_s, (int)timeout.peer,
                     sending ? "receive" : "send");
}

// In what time a direction that is under way has done half of what is left, but no more than a
// quarter of its window, at its rate so far.
static double nap_of_lane(const lane *way, double now_us)
{
    const double left = (double)(way->chunks - way->done) / 2, window = (double)way->window / 4;
    return (now_us - way->begun_us) / (double)way->done * (left < window ? left : window);
}

static bool is_under_way(const lane *way)
{
    return way->done > 0 && way->done < way->chunks;
}

// How long to sleep when nothing moves. At the end of a message naps are short, on slow links those
// before are long. Where nothing has come yet it is an eighth of the time since something moved.
static double nap_of(const transfer *moving, double now_us, double still_us)
{
    double nap_us = still_us / 8;
    const bool in = is_under_way(&moving->in), out = is_under_way(&moving->out);
    if (in)
        nap_us = nap_of_lane(&moving->in, now_us);
    if (out && (!in || nap_of_lane(&moving->out, now_us) < nap_us))
        nap_us = nap_of_lane(&moving->out, now_us);
    return nap_us < NAP_MIN_US ? NAP_MIN_US : nap_us < NAP_MAX_US ? nap_us : NAP_MAX_US;
}

// Sleeps outside of the turn, unless there is news of a rank of this node since `heard`.
static void nap(comm_mpi *self, const transfer *moving, uint32_t heard, double nap_us)
{
    comm_turn_leave(&self->turn);
    comm_intra_sleep(self, moving->exchange->channel, heard, nap_us);
    comm_turn_enter(&self->turn);
}

static mics_status advance_both(comm_mpi *self, transfer *moving, bool *moved_out)
{
    mics_status status = MICS_OK;
    if (moving->waits_in || moving->waits_out) {
        comm_turn_leave(&self->turn);
        status = advance_intra(self, moving, moved_out);
        comm_turn_enter(&self->turn);
    }
    if (status == MICS_OK && self->broken)
        status = MICS_ERR_COMM; // logged when it broke
    return status == MICS_OK ? advance_mpi(self, moving, moved_out) : status;
}

// In a turn, until MPI has done its part.
static mics_status drive_mpi(comm_mpi *self, transfer *moving)
{
    mics_patience patience = mics_patience_begin(self->timeout_s);
    double moved_us = patience.looked_us;
    while (!is_received_by_mpi(moving) || !is_sent_by_mpi(moving)) {
        bool moved = false;
        const uint32_t heard = comm_intra_listen(self, moving->exchange->channel);
        if (self->broken)
            return MICS_ERR_COMM;
        MICS_TRY(advance_both(self, moving, &moved));
        if (moved) {
            patience = mics_patience_begin(self->timeout_s);
            moved_us = patience.looked_us;
            comm_turn_hand_over(&self->turn);
            continue;
        }
        if (mics_patience_ends(&patience))
            return fail_timeout(self, moving);
        const double now_us = patience.looked_us;
        if (now_us - moved_us < POLL_US)
            comm_turn_hand_over(&self->turn);
        else
            nap(self, moving, heard, nap_of(moving, now_us, now_us - moved_us));
    }
    return MICS_OK;
}

// Not in a turn, until all is done; what is left does not need MPI.
static mics_status drive_intra(comm_mpi *self, transfer *moving)
{
    mics_patience patience = mics_patience_begin(self->timeout_s);
    while (moving->waits_in || moving->waits_out) {
        bool moved = false;
        const uint32_t heard = comm_intra_listen(self, moving->exchange->channel);
        if (self->broken)
            return MICS_ERR_COMM;
        MICS_TRY(advance_intra(self, moving, &moved));
        if (moved) {
            patience = mics_patience_begin(self->timeout_s);
        } else if (mics_patience_ends(&patience)) {
            comm_turn_enter(&self->turn);
            mics_status status = self->broken ? MICS_ERR_COMM : fail_timeout(self, moving);
            self->broken = true; // in the same turn, so that one channel alone reports the time-out
            comm_turn_leave(&self->turn);
            return status;
        } else if (!comm_intra_poll(self, moving->exchange->channel, heard)) {
            comm_intra_sleep(self, moving->exchange->channel, heard, LOOK_US);
        }
    }
    return MICS_OK;
}

// After a failure: MPI forgets the requests. Sends cannot be taken back; see invariant 3.
static void forget_request(MPI_Request *request, bool receives)
{
    if (*request == MPI_REQUEST_NULL)
        return;
    if (receives)
        MPI_Cancel(request);
    MPI_Request_free(request);
}

static void forget(transfer *moving)
{
    forget_request(&moving->header_in, true);
    forget_request(&moving->header_out, false);
    for (size_t slot = 0; slot < COMM_INTER_WINDOW; slot++) {
        forget_request(&moving->in.requests[slot], true);
        forget_request(&moving->out.requests[slot], false);
    }
}

static mics_status run_by_mpi(comm_mpi *self, transfer *moving)
{
    comm_turn_enter(&self->turn);
    mics_status status = self->broken ? MICS_ERR_COMM : start(self, moving);
    if (status == MICS_OK)
        status = drive_mpi(self, moving);
    if (status != MICS_OK && !self->broken) {
        forget(moving);
        self->broken = true;
    }
    comm_turn_leave(&self->turn);
    return status;
}

mics_status comm_mpi_exchange(void *ctx, const mics_exchange *exchange)
{
    comm_mpi *self = ctx;
    mics_status status = MICS_OK;
    // A direction that is not used has nothing to do.
    transfer moving = {.exchange = exchange,
                       .hash = mics_fnv1a(MICS_FNV1A_BEGIN, exchange->what, strlen(exchange->what)),
                       .in = lane_with(self, exchange->from, mics_exchange_incoming(exchange)),
                       .out = lane_with(self, exchange->to, exchange->bytes),
                       .header_in = MPI_REQUEST_NULL,
                       .header_out = MPI_REQUEST_NULL};
    moving.waits_in = moving.in.intra;
    moving.waits_out = moving.out.intra;
    if (moving.out.intra)
        comm_intra_offer(self, exchange, moving.hash);
    if (moving.in.by_mpi || moving.out.by_mpi)
        status = run_by_mpi(self, &moving);
    if (status == MICS_OK)
        status = drive_intra(self, &moving);
    if (status != MICS_OK) {
        comm_intra_withdraw(self);
        self->broken = true;
    }
    return status;
}
