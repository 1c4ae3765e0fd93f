// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Communication threads, and how a list's steps wait for each other.
#pragma once

#include "engine/internal.h"

/* Starts the communication threads that the schedule needs.   Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status worker_open(mics_engine *engine);
void worker_close(mics_engine *engine);

/* Gives a stream's communication thread a job; waits for it and returns its status (MICS_OK at once
 * where the stream has no thread). One job at a time. */
void worker_start(mics_engine *engine, mics_stream stream, worker_job job);
mics_status worker_join(mics_engine *engine, mics_stream stream);

// Runs a step, or enqueues the step's work on a device.
typedef mics_status step_job(mics_engine *engine, const mics_step *step);

/* Runs the steps of a thread's streams of engine->list; those of other threads that they must wait
 * for, it waits for. A failure makes every wait of this list fail; the first one stays. */
mics_status stream_run(mics_engine *engine, mics_stream thread, step_job *run);
