// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of copies in node memory that ranks send one another.
#pragma once

#include "mics/core/comm.h"
#include "mics/memory.h"

enum { RUN_EXCHANGE_PIECE_BYTES = 4 << 20 }; // of a file, that travels at a time

// One end: a file, that travels up to byte `bytes`. fd -1 and 0 bytes: none.
typedef struct run_exchange_end {
    int fd;
    char *path;
    int64_t bytes;
} run_exchange_end;

typedef struct run_exchange {
    mics_comm *comm;
    mics_exchange exchange; // to, from, what
    int64_t begin;          // what stands before that in the files does not travel
    run_exchange_end out, in;
    void *pieces; // two: one to send, one to receive
    mics_status
        local; // the first failure to read or write here, which ends no exchange: others wait
} run_exchange;

/* Sends one file and receives another, up to byte `bytes` of each: the same on both sides.
 * Returns: as mics_comm_exchange.  Collective: over the two. */
mics_status run_exchange_files(run_exchange *self, int64_t bytes);

/* Closes and frees both ends. */
void run_exchange_close_ends(mics_memory *memory, run_exchange *self);
