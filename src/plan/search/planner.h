// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The planner of a request.
#pragma once

#include "plan/search/probe.h"
#include "schedule/rules.h"

/* The planner of an E and S, which is opened when it is first asked for. `planner` may be of any.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: the mesh or the model has no such; MICS_ERR_MEMORY.
 */
mics_status planner_of(mics_planner *planner, int32_t experts, int32_t sequence,
                       mics_planner **of_out);

/* Whether runs can have that S. */
bool can_cut(const mics_planner *planner, int32_t sequence);

/* Whether runs can have that E, with the right P. */
bool can_spread(const mics_planner *planner, int32_t experts);

/* Whether accumulators hold 2 bytes a number. */
static inline bool rounds_sums(const mics_planner *planner, const mics_plan_choice *choice)
{
    const mics_plan_request *request = &planner->request;
    const mics_schedule_spec spec = {
        .precision = request->precision,
        .mesh = {.ranks = planner->ranks, .sharding = choice->sharding},
        .micro_steps = choice->micro_steps,
        .rounded_sums = request->rounded_sums && planner->ranks == 1,
        .optimizer = request->optimizer};
    return mics_schedule_rounds_sums(&spec);
}

/* Why MEGATRON has no row of such a training; NULL: it has one where the model can be cut. */
static inline const char *not_modelled_text(const mics_planner *planner)
{
    const mics_model *model = planner->request.model;
    if (planner->request.preference.kind != MICS_PREFERENCE_NONE)
        return "tensor and pipeline parallelism are not modelled with preference pairs";
    return mics_model_trained_count(model) < mics_model_param_count(model)
               ? "tensor and pipeline parallelism are not modelled with frozen parameters"
               : NULL;
}

/* Bytes that the optimizer keeps of a shard. */
static inline size_t kept_bytes(const mics_plan_request *request, int64_t elems)
{
    return mics_optimizer_kept_bytes(request->optimizer, request->state_dtype,
                                     request->precision == MICS_PRECISION_MIXED, elems);
}
