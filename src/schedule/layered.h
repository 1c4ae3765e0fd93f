// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How many micro-batches are in flight where nobody says it.
#pragma once

#include "mics/core/schedule.h"

/* A step's layered groups of at most `layered_micro_steps` micro-steps, as even as can be. Pure.
 *
 * Needs:   micro_steps >= 1, layered_micro_steps >= 0; 0 counts as 1.
 */
static inline int32_t mics_schedule_layered_groups(int32_t micro_steps, int32_t layered_micro_steps)
{
    return layered_micro_steps > 1
               ? micro_steps / layered_micro_steps + (micro_steps % layered_micro_steps != 0)
               : micro_steps;
}

/* How many micro-steps the fullest of those groups has. Pure.
 *
 * Needs:   as mics_schedule_layered_groups.
 */
static inline int32_t mics_schedule_layered_micro_steps(int32_t micro_steps,
                                                        int32_t layered_micro_steps)
{
    const int32_t groups = mics_schedule_layered_groups(micro_steps, layered_micro_steps);
    return micro_steps / groups + (micro_steps % groups != 0);
}

enum { MICS_LAYERED_MAX = 1024 }; // micro-batches in flight that are chosen, at most

// Facts that the default number of micro-batches in flight depends on: model, batch and mesh, but
// no property of the machine.
typedef struct mics_layered_need {
    int32_t micro_steps; // a step
    bool crosses_nodes;  // gathers, reductions or the second hop
    bool rounds;         // gradients are added up in slots of 2-byte numbers
    size_t state_bytes;  // of a rank: parameters, accumulators, optimizer
    size_t each_bytes;   // that each further micro-batch in flight takes
} mics_layered_need;

/* Whether several units write a unit's gradient, as with a tied embedding. If G = 1 and MIXED, each
 * micro-batch in flight then has a slot for it between the first backward and the last. Pure.
 *
 * Needs:   0 <= unit < units of the model.
 */
bool mics_layered_holds(const mics_model *model, int32_t unit);

/* That of a schedule, whatever its layered_micro_steps are. Pure. */
mics_layered_need mics_schedule_layered_need(const mics_schedule *schedule);

/* The most micro-batches in flight that take no more additional memory than a rank's state and one
 * of them, in groups as even as can be: so layered accumulation at most doubles what a rank holds.
 * 1 where nothing crosses nodes; with `rounds` at most 8. Pure.
 *
 * Owns:    `why_out` is static, "auto: ...".
 * Needs:   micro_steps >= 1.
 * Returns: mics_schedule_spec.layered_micro_steps.
 */
int32_t mics_layered_auto(const mics_layered_need *need, const char **why_out);
