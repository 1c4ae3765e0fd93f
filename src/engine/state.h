// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Arenas, and what lies where in them.
#pragma once

#include "engine/internal.h"

/* The group that a collective of the schedule runs over. */
static inline const engine_group *group_of(const mics_engine *engine, const mics_step *step)
{
    return &engine->groups[step->axis][mics_step_scope(step)];
}

/* Computes the maps and rings, and takes the arenas as the ledger says. On failure the caller
 * closes the engine. */
mics_status state_open(mics_engine *engine);

/* What state_open leaves out: the parameters, where the partition group shares them. Collective:
 * over that. */
mics_status state_share(mics_engine *engine);

/* Registers the arenas of a device that collectives use. Collective: over the world. */
mics_status state_register(mics_engine *engine);
void state_close(mics_engine *engine);

/* Tokens of a micro-batch in flight: inputs, targets, on a device their order; behind them segments
 * (mics_schedule.data_segments), references (data_references) and what the masks of dropout and
 * routers are drawn from (data_draw), where there are any. */
int32_t *in_flight_tokens(const mics_engine *engine, int32_t in_flight);

/* `range` of this rank's block of a unit, cut at the block's length, as elements of the unit. */
mics_range unit_elems_of(const mics_engine *engine, int32_t unit, mics_range range);

/* This rank's parameter shard, cut likewise. */
mics_range param_shard_of(const mics_engine *engine, int32_t unit);

/* This rank's elements of a unit, or of its block of one of experts, at a degree. */
mics_range unit_range(const mics_engine *engine, int32_t unit, int32_t degree);

/* Element `at` of what this rank has of a unit at a degree, in its accumulator: fp32, or numbers of
 * dtype (mics_schedule_rounds_sums). Degree G: all of it; O: the optimizer shard; ranks: what the
 * second hop leaves. */
void *grads_at(const mics_engine *engine, int32_t unit, int32_t degree, int64_t at);

/* Whether a unit meets, and its anchor. */
bool meets(const mics_engine *engine, int32_t unit);
float *anchor_of(const mics_engine *engine, int32_t unit);

/* The message of a unit's masters (state 0), or of state - 1 of the optimizer: what this rank has of it
 * at a degree. */
float *message_at(const mics_engine *engine, int32_t unit, int32_t state, int32_t degree);

/* Elements of a unit's momentum, padding included; 0: it does not meet. */
int64_t met_elems(const mics_engine *engine, int32_t unit);

/* How a step uses a unit; NULL when it does not. */
const mics_step_use *step_use(const mics_step *step, int32_t unit);

/* The whole flat buffers of a unit in a compute step: its slot, or its persistent buffer. NULL when
 * the step does not use the unit. */
void *used_params(const mics_engine *engine, const mics_step *step, int32_t unit);
void *used_grads(const mics_engine *engine, const mics_step *step, int32_t unit);

/* Element number `elems` of a buffer of numbers of engine->dtype. */
void *elem_at(const mics_engine *engine, void *base, int64_t elems);

/* A unit's parameter shard. */
void *shard_at(const mics_engine *engine, int32_t unit);

/* Where kernels run that belong to a stream; computation alone has a workspace. */
mics_exec exec_on(const mics_engine *engine, mics_stream stream);

// The optimizer shard of a unit, or a part of it, in the device's memory.
typedef struct optimizer_shard {
    mics_range range; // of the unit's elements (no padding), cut at its own length
    float *masters;
    float *states[MICS_OPTIMIZER_STATES]; // NULL: held in fewer bits (state_part)
    void *params;        // the same numbers of dtype; NULL: the masters are the parameters
    const float *grads;  // of an engine that trains
    void *rounded_grads; // in its place, of dtype (mics_schedule_rounds_sums)
} optimizer_shard;
optimizer_shard optimizer_shard_of(const mics_engine *engine, int32_t unit);

/* Elements of a unit's optimizer shard with padding, and where one of its states is. */
int64_t owned_elems(const mics_engine *engine, int32_t unit);
void *state_at(const mics_engine *engine, int32_t unit, int32_t state);

/* Elements whose states, as fp32, fill the workspace or the device's cache. */
int64_t state_part_elems(const mics_engine *engine);

/* So many elements of a state as it is held, from element `begin` of the shard on; those of padding
 * are neither written nor read.
 * Needs:   begin a multiple of MICS_STATE_BLOCK. */
mics_state_part state_part(const mics_engine *engine, int32_t unit, int32_t state, int64_t begin,
                           int64_t elems);
