// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "exchange.h"
#include "base/file.h"
#include <unistd.h>

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

mics_status run_exchange_files(run_exchange *self, int64_t bytes)
{
    const run_exchange_end *out = &self->out, *in = &self->in;
    self->exchange.send = self->pieces;
    self->exchange.recv = (char *)self->pieces + RUN_EXCHANGE_PIECE_BYTES;
    for (int64_t at = self->begin; at < bytes; at += RUN_EXCHANGE_PIECE_BYTES) {
        const int64_t end = min_of(bytes, at + RUN_EXCHANGE_PIECE_BYTES);
        const int64_t sent = min_of(end, out->bytes) - at, kept = min_of(end, in->bytes) - at;
        if (self->local == MICS_OK && sent > 0)
            self->local = mics_file_read_at(out->fd, out->path, self->pieces, (size_t)sent, at);
        self->exchange.bytes = (size_t)(end - at);
        MICS_TRY(mics_comm_exchange(self->comm, &self->exchange));
        if (self->local == MICS_OK && kept > 0)
            self->local =
                mics_file_write_at(in->fd, in->path, self->exchange.recv, (size_t)kept, at);
    }
    return MICS_OK;
}

static void close_end(mics_memory *memory, run_exchange_end *end)
{
    if (end->fd >= 0)
        close(end->fd);
    mics_free(memory, end->path);
    *end = (run_exchange_end){.fd = -1};
}

void run_exchange_close_ends(mics_memory *memory, run_exchange *self)
{
    close_end(memory, &self->out);
    close_end(memory, &self->in);
}
