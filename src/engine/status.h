// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A rank's heartbeat, as other ranks read it.
#pragma once

#include "engine/islands.h"
#include "schedule/rules.h"

/* Begins a call of the engine, which every rank makes alike: a new number in the heartbeat. */
void status_call(mics_engine *engine, engine_call call);

/* Says in the heartbeat where a stream is. Called with the mutex. */
void status_step(mics_engine *engine, mics_stream stream, int32_t index, bool inside);

/* Says in it where the device is, in place of where the threads are that enqueue. */
void status_device(mics_engine *engine, const int32_t at[MICS_STREAMS], int32_t inside);

/* The first failure on any stream of the list. */
mics_status stream_failure(mics_engine *engine);

/* Whether the thread of one stream runs another's steps, or its own. */
bool stream_served(const mics_engine *engine, mics_stream thread, mics_stream stream);

/* Whether a step runs: of meetings what is due; of mics_engine_complete beside that only what completes
 * the newest step, and of mics_engine_meet nothing. */
static inline bool step_runs(const mics_engine *engine, const mics_step *step)
{
    const bool updates = step->kind == MICS_STEP_UPDATE || step->kind == MICS_STEP_MOMENTUM ||
                         step->kind == MICS_STEP_ORTHOGONALISE;
    if (mics_step_meets(step))
        return meeting_runs(engine, step);
    if (engine->islands != NULL && engine->islands->window >= 0)
        return false;
    return !engine->completing || step->kind == MICS_STEP_PARAM_SYNC ||
           step->kind == MICS_STEP_AGREE_WORLD || step->kind == MICS_STEP_SIZES ||
           mics_schedule_is_left_over(engine->schedule, step->kind) ||
           (updates && mics_schedule_defers(engine->schedule));
}

/* What both ends of an exchange must agree on, and what errors call it. */
enum { STEP_NAME_BYTES = 224 };
void name_step(const mics_engine *engine, const mics_step *step, char *text, size_t capacity);
