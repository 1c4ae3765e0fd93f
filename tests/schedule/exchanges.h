// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How many exchanges (messages to another rank) a rank makes in one run of a list.
#ifndef MICS_TEST_EXCHANGES_H
#define MICS_TEST_EXCHANGES_H

#include "mics/schedule.h"

static inline int64_t exchanges_of(const mics_schedule *schedule, mics_phase phase, int32_t rank)
{
    int64_t exchanges = 0;
    for (int32_t i = 0; i < schedule->lists[phase].count; i++) {
        const mics_step *step = &schedule->lists[phase].steps[i];
        const mics_group group =
            mics_mesh_group(&schedule->spec.mesh, step->axis, mics_step_scope(step), rank);
        const int32_t rounds = mics_step_sums_to_all(step) ? 2 : 1; // its halves
        exchanges += mics_step_is_comm(step) ? rounds * (int64_t)(group.size - 1) : 0;
    }
    return exchanges;
}

#endif
