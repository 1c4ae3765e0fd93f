// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A choice of the planner's: its mesh, batch and schedule.
#pragma once

#include "plan/search/probe.h"

/* Sequences of the global batch that a rank computes at most, with those that share them. */
static inline int64_t rank_share(const mics_planner *planner)
{
    return (planner->request.global_batch - 1) / (planner->world / planner->sequence) + 1;
}

/* Tokens that a rank has of each, with padding. */
static inline int64_t rank_length(const mics_planner *planner)
{
    return (planner->request.length - 1) / planner->sequence + 1;
}

/* Sequences that batches count as one. */
static inline int64_t sequences_each(const mics_planner *planner)
{
    return planner->request.preference.kind != MICS_PREFERENCE_NONE ? 2 : 1;
}

/* Micro-steps of so many sequences a rank; of the last some rows may count nothing. */
static inline int64_t micro_steps_of(const mics_planner *planner, int64_t micro_batch)
{
    return (rank_share(planner) - 1) / micro_batch + 1;
}

/* The mesh of a choice's sharding, with this planner's E and S. */
mics_status choice_mesh(const mics_planner *planner, mics_sharding sharding, mics_mesh *mesh_out);

/* Whether a choice is one of the planner's: a sharding that the mesh allows, a batch that gives the
 * global batch.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged. */
mics_status check_choice(const mics_planner *planner, const mics_plan_choice *choice);

/* Where a micro-batch stands in the planner's list; the last place where it does not. */
int32_t batch_index(const mics_planner *planner, int64_t micro_batch);

/* The schedule of a choice with `micro_steps` in place of its own; of one that `probes`, whatever
 * rounding sends (mics_schedule_spec.any_rounding). */
mics_status open_schedule(mics_planner *planner, const mics_plan_choice *choice,
                          int32_t micro_steps, bool probes, mics_schedule **schedule_out);

/* Whether anything is sent as fewer bits than it is held in. Mixed precision sends parameters, and
 * gradients of a micro-step, as they are held. */
bool request_rounds(const mics_plan_request *request);

/* Whether first-hop reductions send each block to its owner directly, and so in two stages wherever
 * their groups have them. */
bool sums_directly(const mics_planner *planner, const mics_plan_choice *choice);

/* Whether partition groups of so many ranks share their parameters
 * (mics_schedule_spec.share_params). */
bool degree_shares(const mics_planner *planner, int32_t degree);

/* Whether the groups that gather or reduce span nodes and have several ranks in each. */
bool degree_has_stages(const mics_planner *planner, int32_t degree);

/* The order of choices that are equally good: below 0, 0 or above 0. */
int compare_real(double a, double b);
int compare_choices(const mics_plan_choice *a, const mics_plan_choice *b);

/* Copies of every state that are asked for. Baselines are what they are. */
int64_t least_replicas(const mics_planner *planner, const mics_plan_space *space);

/* Whether a sharding is of a space's family, with its P. */
bool in_space(const mics_planner *planner, const mics_plan_space *space, mics_sharding sharding);

/* Whether the boundary may go in one ring, by the sharding's ranks and what else is in rings. */
bool may_ring_boundary(const mics_planner *planner, const mics_plan_space *space,
                       const mics_plan_choice *choice);

/* Whether a run file can say a choice, and mics run it: run.collectives stands for gathers, reductions
 * and the boundary together. */
bool choice_runs(const mics_planner *planner, const mics_plan_choice *choice);

/* Whether a space can be searched for `top` plans.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged. */
mics_status check_space(const mics_planner *planner, const mics_plan_space *space, int32_t top);
