// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Activations in host memory: as few as fit, as each further unit is copied for nothing.
#include "plan/search/bound.h"
#include "plan/search/choice.h"
#include "plan/search/planner.h"
#include "plan/search/search.h"
#include "schedule/layered.h"

// Of a node's memory, what activations may take beside the system, data and copies of the state. A
// rank has as much of it as its accelerator has, where the cluster does not say (both assumed).
static const double host_share = 0.75;

// Sets the least offload_units with which a choice fits into a rank's memory, and into its part of
// the node's; whether any does. The ledger alone knows of `more` bytes.
static mics_status choose_units(mics_planner *planner, double more, mics_plan_choice *choice,
                                bool *fits_out)
{
    const mics_accelerator *device = &planner->request.cluster.accelerator;
    const double host_bytes =
        host_share *
        (device->host_memory_bytes > 0 ? device->host_memory_bytes : device->memory_bytes);
    const double elem_bytes =
        (double)mics_precision_bytes(planner->request.precision, MICS_MEM_ACTIVATIONS) *
        mics_schedule_layered_micro_steps(choice->micro_steps, choice->layered_micro_steps);
    const batch_probe *batch = NULL;
    double bytes = 0;
    choice->offload_units = 0;
    MICS_TRY(planner_of(planner, choice->experts, choice->sequence, &planner));
    MICS_TRY(choice_memory(planner, choice, &bytes));
    bytes += more;
    MICS_TRY(probe_batch(planner, choice, &batch));
    *fits_out = bytes <= planner->available_bytes;
    while (!*fits_out && choice->offload_units < batch->schedule->offload_max) {
        const mics_offload o = mics_schedule_offload(batch->schedule, ++choice->offload_units);
        if (elem_bytes * (double)o.host_elems > host_bytes)
            break;
        *fits_out = bytes - elem_bytes * (double)o.spared_elems <= planner->available_bytes;
    }
    return MICS_OK;
}

// A choice, and with the next larger micro-batch, by what is recomputed.
static mics_status list_around(mics_planner *planner, const mics_plan_space *space,
                               mics_plan_choice way, mics_plan_choice *ways, int32_t *count)
{
    mics_plan_entry entry;
    double known = 0;
    static const mics_recompute forms[] = {
        {0}, {.mlp = true}, {.attention = true, .mlp = true}, {.units = MICS_RECOMPUTE_ALL}};
    MICS_TRY(mics_planner_evaluate(planner, &way, &entry));
    MICS_TRY(planner_of(planner, way.experts, way.sequence, &planner));
    MICS_TRY(choice_memory(planner, &way, &known));
    const int32_t first = batch_index(planner, way.micro_batch);
    for (int32_t i = 0; i < 8; i++) {
        bool fits = false;
        if (first + i / 4 >= planner->micro_batch_count || (space->micro_batch > 0 && i >= 4))
            break;
        way.micro_batch = planner->micro_batches[first + i / 4];
        way.micro_steps = (int32_t)micro_steps_of(planner, way.micro_batch);
        way.recompute = forms[i % 4];
        if (!space->recompute_given || mics_recompute_is(space->recompute, way.recompute))
            MICS_TRY(choose_units(planner, (double)entry.memory.total - known, &way, &fits));
        if (fits && way.offload_units > 0)
            ways[(*count)++] = way;
    }
    return MICS_OK;
}

mics_status list_offload(mics_planner *planner, const mics_plan_space *space,
                         mics_plan_choice ways_io[MAX_OFFLOAD_WAYS], int32_t *count_io)
{
    mics_plan_choice bases[MAX_OFFLOAD_BASES];
    const int32_t fitting = *count_io, count = fitting > 0 ? fitting : MAX_OFFLOAD_BASES;
    for (int32_t i = 0; i < count; i++)
        bases[i] = ways_io[fitting > 0 ? i : 0];
    *count_io = 0;
    for (int32_t i = 0; i < count; i++) {
        if (fitting == 0 && !space->prefetch_given)
            bases[i].prefetch = i;
        if (!space->offload_given && planner->request.accelerator &&
            (fitting == 0 || mics_recomputes(bases[i].recompute)))
            MICS_TRY(list_around(planner, space, bases[i], ways_io, count_io));
    }
    return MICS_OK;
}
