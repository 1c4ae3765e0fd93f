// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What plans are compared with: other systems, and local steps; and why one is better.
#pragma once

#include "plan/search/plan.h"

// What plans are compared with.
typedef enum mics_plan_baseline {
    MICS_PLAN_DDP,
    MICS_PLAN_ZERO1,
    MICS_PLAN_ZERO2,
    MICS_PLAN_ZERO3,
    // The paper's: smallest P = G = O that fits with a unit gathered ahead; gathers in two stages.
    MICS_PLAN_MICS,
    MICS_PLAN_MICS_PLUS, // P = G, optimizer over all; P the best
    MICS_PLAN_HPZ,       // gradients and optimizer over all; P the best
    MICS_PLAN_MEGATRON,  // tensor, context, pipeline and expert parallelism
    MICS_PLAN_BASELINES
} mics_plan_baseline;

/* "ddp", "zero1", ... "mics+", "hpz", "megatron"; never NULL. */
const char *mics_plan_baseline_text(mics_plan_baseline baseline);

/* A baseline at its best micro-batch, accumulation, recomputation and prefetch within `space`
 * (whose shardings and collectives do not count); where it does not fit, at those with the least
 * memory. ZeRO's and hpz's collectives are rings, and all but mics+ have one micro-step after the
 * other, as in the systems of those names.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 */
mics_status mics_planner_baseline(mics_planner *planner, const mics_plan_space *space,
                                  mics_plan_baseline baseline, mics_plan_entry *entry_out);

/* Why MEGATRON has no cut with what of `degrees` is above 0, and which would work; "" where the model
 * and the ranks have one. The batch, and memory, are not looked at.
 *
 * Needs:   bytes >= 1.     Pure.
 */
void mics_planner_no_cut(const mics_planner *planner, const mics_plan_pipeline *degrees, char *text,
                         size_t bytes);

enum { MICS_PLAN_PERIODS = 3 };

// Local steps on the smallest islands of whole nodes that hold the state.
typedef struct mics_plan_local {
    bool asked;
    int32_t count;                              // MICS_PLAN_PERIODS; 0: there are no such islands
    mics_plan_entry entries[MICS_PLAN_PERIODS]; // that meet every 10, 30 and 100 steps
    int32_t take;      // the first whose meetings add at most 3 % to a step; else the last
    double gbit_per_s; // of a node, up to which that is 5 % faster than synchronous plans; 0: never
} mics_plan_local;

/* Local steps with the E and S of a synchronous plan, at the best plan of an island. Meetings overlap,
 * and are rounded, as little as hides them. It searches for plans on other networks too.
 *
 * Returns: as mics_planner_search; MICS_ERR_UNSUPPORTED, logged: no such training has local steps.
 */
mics_status mics_planner_local(const mics_planner *planner, const mics_plan_choice *like,
                               mics_plan_local *local_out);

/* Writes `why` of each: of the first what it wins by and what limits it, of the others where they
 * lose time to it, or what they lack. `best` NULL: nothing fits. Pure. */
void mics_plan_explain(const mics_planner *planner, const mics_plan_entry *best,
                       mics_plan_entry *entry);
