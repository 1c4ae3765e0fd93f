// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What asks a run to stop, and what it is busy with then: written by ranks and their savers, read by
// any thread of the process.
#pragma once

#include "mics/run.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct mics_job mics_job;

typedef enum run_stop_reason {
    RUN_STOP_NONE,
    RUN_STOP_PROGRAM, // mics_job_stop
    RUN_STOP_FILE,    // OUT/stop
    RUN_STOP_HOURS    // run.max_hours
} run_stop_reason;

typedef struct run_stop {
    double opened_us; // the job was; run.max_hours counts from here
    atomic_int reason;
    _Atomic double asked_us;       // since when
    atomic_int writing;            // ranks of this process that write, or wait for each other to
    _Atomic double step_s, save_s; // that the newest step, and the newest save, took
} run_stop;

/* Asks to stop; the first reason counts. */
void run_stop_ask(run_stop *stop, run_stop_reason reason);
bool run_stop_is_asked(const run_stop *stop);

/* A rank begins, or ends, to write. */
void run_stop_writes(run_stop *stop, bool begins);

/* On rank 0: looks, a few times a second, whether the run's clock or OUT/stop ask to stop. looked_us:
 * when it last did. */
void run_stop_look(mics_job *job, double *looked_us);
