// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How many exchanges (messages to another rank) a rank makes in one run of a list, and in a step.
#pragma once

#include "mics/core/ledger.h"
#include "mics/core/schedule.h"
#include "schedule/rules.h"

static inline int64_t chunks_of(const mics_schedule *schedule, const mics_step *step)
{
    const int64_t elems = step->block_elems;
    const bool direct = step->algorithm == MICS_ALGORITHM_DIRECT && mics_step_sums(step) &&
                        step->dtype.sent == step->dtype.held;
    const int64_t chunk = mics_schedule_sum_chunk(&schedule->spec, elems);
    return direct && chunk < elems ? (elems - 1) / chunk + 1 : 1;
}

static inline int64_t step_exchanges(const mics_schedule *schedule, const mics_step *step,
                                     int32_t rank)
{
    const mics_group group =
        mics_mesh_group(&schedule->spec.mesh, step->axis, mics_step_scope(step), rank);
    if (!mics_step_is_comm(step))
        return 0;
    if (step->algorithm != MICS_ALGORITHM_DOUBLING && step->algorithm != MICS_ALGORITHM_SHARED)
        return (group.size - 1) * chunks_of(schedule, step);
    const int32_t local = mics_group_on_node(group, schedule->spec.mesh.ranks_per_node);
    int64_t rounds = 0;
    for (int32_t have = 1; have < group.size / local; have *= 2)
        rounds++;
    for (int32_t have = 1; have < local; have *= 2)
        rounds++;
    return rounds;
}

static inline int64_t exchanges_of(const mics_schedule *schedule, mics_phase phase, int32_t rank)
{
    int64_t exchanges = 0;
    for (int32_t i = 0; i < schedule->lists[phase].count; i++)
        exchanges += step_exchanges(schedule, &schedule->lists[phase].steps[i], rank);
    return exchanges;
}

/* The same of a training step, and its bytes: `completes` the one before, or has nothing to complete. */
static inline int64_t step_exchanges_of(const mics_schedule *schedule, int32_t rank, bool completes)
{
    int64_t exchanges = exchanges_of(schedule, MICS_PHASE_TRAIN, rank);
    for (int32_t i = 0; !completes && i < schedule->lists[MICS_PHASE_TRAIN].count; i++) {
        const mics_step *step = &schedule->lists[MICS_PHASE_TRAIN].steps[i];
        if (mics_schedule_is_left_over(schedule, step->kind))
            exchanges -= step_exchanges(schedule, step, rank);
    }
    return exchanges;
}

static inline mics_bytes step_bytes_of(const mics_schedule *schedule, int32_t rank, bool completes)
{
    mics_bytes bytes = mics_schedule_rank_bytes(schedule, MICS_PHASE_TRAIN, rank);
    for (int32_t i = 0; !completes && i < schedule->lists[MICS_PHASE_TRAIN].count; i++) {
        const mics_step *step = &schedule->lists[MICS_PHASE_TRAIN].steps[i];
        if (!mics_schedule_is_left_over(schedule, step->kind))
            continue;
        const mics_bytes gathered = mics_schedule_step_bytes(schedule, step, rank);
        bytes.intra -= gathered.intra;
        bytes.inter -= gathered.inter;
    }
    return bytes;
}
