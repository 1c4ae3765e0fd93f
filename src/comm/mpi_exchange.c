// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One exchange over MPI.
//
// On the wire an exchange is a header with its number of bytes and a hash of its `what`, by which
// crossed collectives are found. A small one carries its data behind the header, in one message; a
// larger one follows in chunks straight from the sender's buffer, and straight into the receiver's,
// or into staging when it is to be added. The chunks of a message do not depend on what its
// receiver does with it. Each channel has its own tags and staging.
#include "mics/clock.h"
#include "mics/comm.h"
#include "mics/log.h"
#include "mpi_internal.h"
#include <string.h>

// Tags of channel 0; those of channel c are 2 * c further on. The board's is 0.
enum {
    TAG_HEADER = 1,
    TAG_CHUNK = 2,
    TAGS_CHANNEL = 2,
    HEADER_BYTES = 16, // u64 bytes, u64 hash
};

// One exchange under way. Chunk i uses request i % COMM_WINDOW of its direction.
typedef struct transfer {
    const mics_exchange *exchange;
    size_t chunks; // 0: small, all in the header's message
    size_t received;
    size_t sent;
    MPI_Request header_in;
    MPI_Request header_out;
    MPI_Request in[COMM_WINDOW];
    MPI_Request out[COMM_WINDOW];
} transfer;

static size_t chunk_bytes(const transfer *moving, size_t chunk)
{
    size_t left = moving->exchange->bytes - chunk * COMM_CHUNK_BYTES;
    return left < COMM_CHUNK_BYTES ? left : COMM_CHUNK_BYTES;
}

static int tag_of(const transfer *moving, int tag)
{
    return tag + (int)moving->exchange->channel * TAGS_CHANNEL;
}

// The piece of the channel's staging for a chunk in this slot.
static char *staging_of(const comm_mpi *self, const transfer *moving, size_t slot)
{
    return self->staging + (size_t)moving->exchange->channel * COMM_CHANNEL_BYTES +
           slot * COMM_CHUNK_BYTES;
}

static char *small_in(const comm_mpi *self, const transfer *moving)
{
    return staging_of(self, moving, COMM_WINDOW);
}

static char *small_out(const comm_mpi *self, const transfer *moving)
{
    return small_in(self, moving) + COMM_SMALL_BYTES;
}

static mics_status post_receive(comm_mpi *self, transfer *moving, size_t chunk)
{
    const mics_exchange *exchange = moving->exchange;
    size_t slot = chunk % COMM_WINDOW;
    char *to = exchange->reduce == MICS_REDUCE_COPY
                   ? (char *)exchange->recv + chunk * COMM_CHUNK_BYTES
                   : staging_of(self, moving, slot);
    return comm_mpi_check(MPI_Irecv(to, (int)chunk_bytes(moving, chunk), MPI_BYTE, exchange->from,
                                    tag_of(moving, TAG_CHUNK), self->world, &moving->in[slot]),
                          exchange->what);
}

static mics_status post_send(comm_mpi *self, transfer *moving, size_t chunk)
{
    const mics_exchange *exchange = moving->exchange;
    return comm_mpi_check(MPI_Isend((const char *)exchange->send + chunk * COMM_CHUNK_BYTES,
                                    (int)chunk_bytes(moving, chunk), MPI_BYTE, exchange->to,
                                    tag_of(moving, TAG_CHUNK), self->world,
                                    &moving->out[chunk % COMM_WINDOW]),
                          exchange->what);
}

// FNV-1a.
static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

// Receives are posted before sends, so that data finds its place.
static mics_status start(comm_mpi *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    bool receives = exchange->from != MICS_RANK_NONE, sends = exchange->to != MICS_RANK_NONE;
    if (receives)
        MICS_TRY(comm_mpi_check(MPI_Irecv(small_in(self, moving), COMM_SMALL_BYTES, MPI_BYTE,
                                          exchange->from, tag_of(moving, TAG_HEADER), self->world,
                                          &moving->header_in),
                                exchange->what));
    size_t first = moving->chunks < COMM_WINDOW ? moving->chunks : COMM_WINDOW;
    for (size_t chunk = 0; receives && chunk < first; chunk++)
        MICS_TRY(post_receive(self, moving, chunk));
    if (!sends)
        return MICS_OK;
    uint64_t header[2] = {exchange->bytes, hash_text(exchange->what)};
    size_t behind = moving->chunks == 0 ? exchange->bytes : 0;
    memcpy(small_out(self, moving), header, HEADER_BYTES);
    if (behind > 0)
        memcpy(small_out(self, moving) + HEADER_BYTES, exchange->send, behind);
    MICS_TRY(comm_mpi_check(MPI_Isend(small_out(self, moving), (int)(HEADER_BYTES + behind),
                                      MPI_BYTE, exchange->to, tag_of(moving, TAG_HEADER),
                                      self->world, &moving->header_out),
                            exchange->what));
    for (size_t chunk = 0; chunk < first; chunk++)
        MICS_TRY(post_send(self, moving, chunk));
    return MICS_OK;
}

// What arrived behind a header, or in a chunk of staging, joins the receiver's buffer.
static void deliver(const mics_exchange *exchange, size_t offset, const char *from, size_t bytes)
{
    char *to = (char *)exchange->recv + offset;
    if (exchange->reduce == MICS_REDUCE_SUM_F32)
        comm_add_f32((float *)(void *)to, (const float *)(const void *)from, bytes / sizeof(float));
    else
        memcpy(to, from, bytes);
}

static mics_status take_header(comm_mpi *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    uint64_t header[2] = {0};
    memcpy(header, small_in(self, moving), HEADER_BYTES);
    bool same = header[1] == hash_text(exchange->what);
    if (header[0] != exchange->bytes || !same)
        return mics_fail(MICS_ERR_COMM,
                         "%s: rank %d expects %zu bytes from rank %d, which sends %llu%s",
                         exchange->what, (int)self->base.rank, exchange->bytes, (int)exchange->from,
                         (unsigned long long)header[0],
                         same ? "" : " of something else: their collectives differ in order");
    if (moving->chunks == 0 && exchange->bytes > 0)
        deliver(exchange, 0, small_in(self, moving) + HEADER_BYTES, exchange->bytes);
    return MICS_OK;
}

// Adds outside of the turn, so that the other channel goes on.
static mics_status take_chunk(comm_mpi *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    size_t chunk = moving->received;
    if (exchange->reduce == MICS_REDUCE_SUM_F32) {
        comm_turn_leave(&self->turn);
        deliver(exchange, chunk * COMM_CHUNK_BYTES, staging_of(self, moving, chunk % COMM_WINDOW),
                chunk_bytes(moving, chunk));
        comm_turn_enter(&self->turn);
        if (self->broken)
            return MICS_ERR_COMM;
    }
    moving->received++;
    if (chunk + COMM_WINDOW < moving->chunks)
        return post_receive(self, moving, chunk + COMM_WINDOW);
    return MICS_OK;
}

static mics_status chunk_sent(comm_mpi *self, transfer *moving)
{
    size_t chunk = moving->sent++;
    if (chunk + COMM_WINDOW < moving->chunks)
        return post_send(self, moving, chunk + COMM_WINDOW);
    return MICS_OK;
}

// Does what can be done without waiting; *moved_out tells whether that was anything.
static mics_status advance(comm_mpi *self, transfer *moving, bool *moved_out)
{
    const char *what = moving->exchange->what;
    bool header_in = false, in = false, header_out = false, out = false;
    MICS_TRY(comm_mpi_test(&moving->header_in, what, &header_in));
    if (header_in)
        MICS_TRY(take_header(self, moving));
    if (moving->received < moving->chunks)
        MICS_TRY(comm_mpi_test(&moving->in[moving->received % COMM_WINDOW], what, &in));
    if (in)
        MICS_TRY(take_chunk(self, moving));
    MICS_TRY(comm_mpi_test(&moving->header_out, what, &header_out));
    if (moving->sent < moving->chunks)
        MICS_TRY(comm_mpi_test(&moving->out[moving->sent % COMM_WINDOW], what, &out));
    if (out)
        MICS_TRY(chunk_sent(self, moving));
    *moved_out = header_in || in || header_out || out;
    return MICS_OK;
}

static bool is_received(const transfer *moving)
{
    return moving->header_in == MPI_REQUEST_NULL && moving->received == moving->chunks;
}

static bool is_sent(const transfer *moving)
{
    return moving->header_out == MPI_REQUEST_NULL && moving->sent == moving->chunks;
}

static mics_status fail_late(comm_mpi *self, const transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    bool sending = is_received(moving);
    const mics_lateness late = {.what = exchange->what,
                                .rank = self->base.rank,
                                .peer = sending ? exchange->to : exchange->from,
                                .sending = sending,
                                .waited_s = self->timeout_s};
    if (self->late_handler != NULL)
        return comm_mpi_tell_late(self, &late);
    return mics_fail(MICS_ERR_TIMEOUT,
                     "%s: rank %d waited %g s for rank %d to %s; see what that rank does, or "
                     "raise run.comm_timeout_s",
                     late.what, (int)late.rank, late.waited_s, (int)late.peer,
                     sending ? "receive" : "send");
}

static mics_status drive(comm_mpi *self, transfer *moving)
{
    double since_us = mics_clock_us();
    while (!self->broken) {
        bool moved = false;
        MICS_TRY(advance(self, moving, &moved));
        if (is_received(moving) && is_sent(moving))
            return MICS_OK;
        if (moved)
            since_us = mics_clock_us();
        else if (comm_mpi_is_late(since_us, self->timeout_s))
            return fail_late(self, moving);
        since_us += comm_mpi_give_way(self, since_us);
    }
    return MICS_ERR_COMM; // logged when it broke
}

// After a failure: MPI forgets the requests. Sends cannot be taken back; see invariant 3.
static void forget(transfer *moving)
{
    MPI_Request *requests[2 + 2 * COMM_WINDOW] = {&moving->header_in, &moving->header_out};
    for (size_t slot = 0; slot < COMM_WINDOW; slot++) {
        requests[2 + slot] = &moving->in[slot];
        requests[2 + COMM_WINDOW + slot] = &moving->out[slot];
    }
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        bool receives = i == 0 || (i >= 2 && i < 2 + COMM_WINDOW);
        if (*requests[i] == MPI_REQUEST_NULL)
            continue;
        if (receives)
            MPI_Cancel(requests[i]);
        MPI_Request_free(requests[i]);
    }
}

static mics_status run_transfer(comm_mpi *self, transfer *moving)
{
    if (!self->broken)
        MICS_TRY(start(self, moving));
    return drive(self, moving);
}

mics_status comm_mpi_exchange(void *ctx, const mics_exchange *exchange)
{
    comm_mpi *self = ctx;
    transfer moving = {
        .exchange = exchange, .header_in = MPI_REQUEST_NULL, .header_out = MPI_REQUEST_NULL};
    for (size_t slot = 0; slot < COMM_WINDOW; slot++)
        moving.in[slot] = moving.out[slot] = MPI_REQUEST_NULL;
    if (exchange->bytes > COMM_SMALL_BYTES - HEADER_BYTES)
        moving.chunks = (exchange->bytes - 1) / COMM_CHUNK_BYTES + 1;
    // A direction that is not used has nothing left to do.
    moving.received = exchange->from == MICS_RANK_NONE ? moving.chunks : 0;
    moving.sent = exchange->to == MICS_RANK_NONE ? moving.chunks : 0;
    comm_turn_enter(&self->turn);
    mics_status status = run_transfer(self, &moving);
    if (status != MICS_OK && !self->broken) {
        forget(&moving);
        self->broken = true;
    }
    comm_turn_leave(&self->turn);
    return status;
}
