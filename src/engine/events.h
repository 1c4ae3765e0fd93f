// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Event 2 i is where step i of the training list began on its stream, 2 i + 1 where it ended. Those
// of the evaluation's list come behind; the last ones tell, by stream, where a list ended.
#pragma once

#include "engine/internal.h"

/* Before the first step of a list of a thread's streams: lets them wait for all that the streams
 * did before; and behind the last one. */
void device_begin_streams(mics_engine *engine, mics_stream thread);
void device_end_streams(mics_engine *engine, mics_stream thread);

/* Around the calls of one step: waits for other streams' steps, events, a range in the profiler. */
void device_begin_step(mics_engine *engine, int32_t index);
void device_end_step(mics_engine *engine, int32_t index);

/* In place of both for a step that does not run: it takes no time. */
void device_pass_step(mics_engine *engine, int32_t index);

/* Waits until all streams have reached what step `index` of the list waits for. The device, the
 * comm and the time-out are looked after meanwhile.
 *
 * Returns: MICS_OK; MICS_ERR_TIMEOUT, MICS_ERR_COMM, MICS_ERR_DEVICE, logged. */
mics_status device_wait_step(mics_engine *engine, int32_t index);

/* Waits for the ends of all streams' newest lists in the same way. */
mics_status device_drain(mics_engine *engine);

/* What computation waited for in the list that has run, into the result. */
void device_read_exposed(mics_engine *engine);

/* Times of all steps of the newest training list; waits for the last of them. */
void device_read_times(const mics_engine *engine);
