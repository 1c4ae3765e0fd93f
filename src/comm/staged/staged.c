// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives on a device's buffers through host memory: the rings of exchanges, where an exchange
// copies a piece to the host, exchanges it by the inner comm, and copies what came back. Slow, but
// good for any transport, and for several ranks on one GPU.
#include "comm/internal.h"

// A channel's two pieces of page-locked memory.
typedef struct staged_pieces {
    void *outgoing, *incoming;
} staged_pieces;

typedef struct staged_comm {
    mics_comm base;
    mics_comm on_device; // its exchanges take the device's buffers; `ctx` is this staged_comm too
    mics_memory *memory;
    mics_device *device;
    size_t piece_bytes;
    staged_pieces pieces[MICS_CHANNELS];
} staged_comm;

static int32_t stream_of(int32_t channel)
{
    return channel + 1;
}

// Exchanges one chunk through host memory: copies sent data, and data that is added to, off the
// device, and the result back.
static mics_status exchange_piece(staged_comm *self, const mics_exchange *piece)
{
    const mics_device_ops *ops = self->device->ops;
    void *ctx = self->device->ctx;
    const staged_pieces *host = &self->pieces[piece->channel];
    const int32_t stream = stream_of(piece->channel);
    const bool receives = piece->from != MICS_RANK_NONE;
    if (piece->to != MICS_RANK_NONE)
        ops->copy(ctx, stream, host->outgoing, piece->send, piece->bytes);
    if (receives && piece->reduce == MICS_REDUCE_SUM_F32)
        ops->copy(ctx, stream, host->incoming, piece->recv, piece->bytes);
    MICS_TRY(ops->synchronize(ctx, stream));
    mics_exchange between = *piece;
    between.send = host->outgoing;
    between.recv = host->incoming;
    MICS_TRY(mics_comm_exchange(self->base.inner, &between));
    if (receives)
        ops->copy(ctx, stream, piece->recv, host->incoming, piece->bytes);
    // The next piece overwrites what this one copies from.
    return ops->synchronize(ctx, stream);
}

static mics_status device_exchange(void *ctx, const mics_exchange *exchange)
{
    staged_comm *self = ctx;
    size_t at = 0;
    do { // once for an exchange of no bytes, which waits for its partner
        const size_t left = exchange->bytes - at;
        mics_exchange piece = *exchange;
        piece.bytes = left < self->piece_bytes ? left : self->piece_bytes;
        piece.send = exchange->send != NULL ? (const char *)exchange->send + at : NULL;
        piece.recv = exchange->recv != NULL ? (char *)exchange->recv + at : NULL;
        MICS_TRY(exchange_piece(self, &piece));
        at += piece.bytes;
    } while (at < exchange->bytes);
    return MICS_OK;
}

static mics_status staged_collective(void *ctx, const mics_comm_call *call)
{
    staged_comm *self = ctx;
    return comm_call_by_rings(&self->on_device, call);
}

static void free_pieces(staged_comm *self)
{
    for (int channel = 0; channel < MICS_CHANNELS; channel++) {
        self->device->ops->free_host(self->device->ctx, self->pieces[channel].outgoing);
        self->device->ops->free_host(self->device->ctx, self->pieces[channel].incoming);
    }
}

static void staged_close(void *ctx)
{
    staged_comm *self = ctx;
    free_pieces(self);
    mics_comm_close(self->base.inner);
    mics_free(self->memory, self);
}

static const mics_comm_ops staged_ops = {
    .name = "staged",
    .close = staged_close,
    .collective = staged_collective,
};

// Only rings use it.
static const mics_comm_ops device_ops = {.name = "staged", .exchange = device_exchange};

static mics_status take_pieces(staged_comm *self)
{
    for (int channel = 0; channel < MICS_CHANNELS; channel++) {
        staged_pieces *host = &self->pieces[channel];
        MICS_TRY(
            self->device->ops->alloc_host(self->device->ctx, self->piece_bytes, &host->outgoing));
        MICS_TRY(
            self->device->ops->alloc_host(self->device->ctx, self->piece_bytes, &host->incoming));
    }
    return MICS_OK;
}

mics_status comm_staged_open_take(mics_memory *memory, mics_comm *inner, mics_device *device,
                                  size_t piece_bytes, mics_comm **comm_out)
{
    staged_comm *self = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &self));
    self->memory = memory;
    self->device = device;
    self->piece_bytes = piece_bytes;
    self->base = *inner;
    self->base.inner = inner;
    self->base.ops = &staged_ops;
    self->base.ctx = self;
    self->base.ranks_sharing = 1;
    self->on_device = self->base;
    self->on_device.ops = &device_ops;
    const mics_status status = take_pieces(self);
    if (status != MICS_OK) {
        free_pieces(self);
        mics_free(memory, self);
        return status;
    }
    *comm_out = &self->base;
    return MICS_OK;
}
