// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Bounds of a choice's memory and time.
#pragma once

#include "plan/search/probe.h"

// By class: what repeats with layered groups, and what a step has once.
typedef struct class_cost {
    comm_cost gather, reduce;
    comm_cost head; // once a step: what forward passes wait for, replica gathers and parameter sync
    comm_cost tail; // once a step: what the last gradients are sent with
} class_cost;

/* Prices the collectives of a sharding; `classes` holds all. */
mics_status price_sharding(const mics_planner *planner, const mics_plan_choice *choice,
                           class_cost *classes);

/* The same, and whether its boundary is one that helps: where the space leaves it open, a ring that takes less
 * than two stages. */
mics_status price_collectives(const mics_planner *planner, const mics_plan_space *space,
                              const mics_plan_choice *choice, class_cost *classes, bool *helps_out);

/* Parameters, accumulators and optimizer of a rank. */
size_t choice_state_bytes(const mics_planner *planner, const mics_plan_choice *choice);

mics_status choice_memory(mics_planner *planner, const mics_plan_choice *choice, double *bytes_out);

/* What an arena of so many bytes is counted as. */
static inline size_t counted(size_t bytes)
{
    return bytes > 0 ? mics_memory_block_bytes(bytes) : 0;
}

/* With the sharding's collectives priced. */
mics_status choice_bound(mics_planner *planner, const mics_plan_choice *choice,
                         const class_cost *classes, double *us_out);

enum { MAX_FORMS = 8 };

/* Forms of recomputation that just fit: at either end of the layers, and for each of what layers can
 * make again in parts, the fewest layers that are recomputed whole; of them those with the least
 * computation.
 *
 * Needs:   choice without recomputation, which takes `bytes`.
 * Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status fitting_forms(mics_planner *planner, const mics_plan_choice *choice, double bytes,
                          mics_recompute forms_out[MAX_FORMS], int32_t *count_out);

/* The same in place of a choice whose ledger says `bytes`, which do not fit. None of one with
 * activations in host memory. */
mics_status smaller_forms(mics_planner *planner, const mics_plan_choice *choice, double bytes,
                          mics_recompute forms_out[MAX_FORMS], int32_t *count_out);
