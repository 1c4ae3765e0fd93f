// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// An engine of one rank that holds a whole saved model, for its forward pass.
#pragma once

#include "mics/core/comm.h"
#include "mics/core/engine.h"
#include "mics/core/transport.h"
#include "saved.h"

typedef struct run_saved_engine {
    mics_schedule *schedule;
    mics_thread_world *world;
    mics_comm *comm;
    mics_engine *engine;
} run_saved_engine;

/* Opens it for batches of (sequences, length), with the parameters filled in.
 *
 * processes: that do the same on this machine, and share its cores and memory.
 * threads: 0: as many as this process' share of the cores.
 * what: what it is for, for errors.
 * Returns: MICS_OK; MICS_ERR_MEMORY, as run_saved_check_fits; as run_saved_fill.
 * Owns:    run_saved_engine_close, also after a failure; a zeroed one is closed too.
 */
mics_status run_saved_engine_open(const mics_saved *saved, int64_t sequences, int64_t length,
                                  int32_t processes, int32_t threads, const char *what,
                                  run_saved_engine *self);
void run_saved_engine_close(run_saved_engine *self);
