// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What islands know of each other (mics_outer), and which meetings are due.
#pragma once

#include "engine/internal.h"

/* What islands need beside the arena of meetings; nothing where there is one. */
mics_status islands_open(mics_engine *engine);
void islands_close(mics_engine *engine);

/* Before a run of the streams: meetings of the list of training step `number` are to be done, unless
 * they are; 0: none. */
void islands_begin(mics_engine *engine, int64_t number);

/* Behind it: they are done, unless islands_held. */
void islands_end(mics_engine *engine);

/* Whether meetings run beside a step that is held. AGREE_WORLD is done. */
bool islands_held(const mics_engine *engine);

/* The next training step. One that was held is taken again. */
int64_t islands_next_step(const mics_engine *engine);

/* Whether a step of a meeting runs. */
bool meeting_runs(const mics_engine *engine, const mics_step *step);

/* Notes what became of a training step, for the others; `loss` is the sum of its island. */
void islands_note(mics_engine *engine, double loss);

/* What nobody else has heard of yet is of a state that there is no more. */
void islands_forget(mics_engine *engine);

/* AGREE_WORLD. */
mics_status agree_world(mics_engine *engine, const mics_comm_group *over, size_t block_bytes);

/* Sum of all islands' weights in the meeting of a unit. AGREE_WORLD is done. */
float islands_weights(const mics_engine *engine, int32_t unit);
