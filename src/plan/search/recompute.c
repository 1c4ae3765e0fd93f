// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A choice's memory depends on the layers that are recomputed by its activations alone: of those one
// layer after the other is taken off.
#include "plan/search/recompute.h"
#include "plan/search/bound.h"
#include "schedule/layered.h"

mics_status fewest_units(mics_planner *planner, const mics_plan_choice *choice, int32_t *units_out)
{
    const mics_model *model = planner->request.model;
    const int32_t units = model->unit_count;
    const batch_probe *all = NULL;
    mics_plan_choice form = *choice;
    batch_probe at;
    double bytes = 0;
    form.recompute = mics_recompute_all(true);
    MICS_TRY(probe_batch(planner, &form, &all));
    form.recompute = choice->recompute;
    form.recompute.units = form.recompute.last = 0;
    MICS_TRY(batch_of(planner, &form, &at));
    MICS_TRY(choice_memory(planner, &form, &bytes));
    const size_t in_flight =
        (size_t)mics_schedule_layered_micro_steps(choice->micro_steps, choice->layered_micro_steps);
    const double others = bytes - (double)counted(activation_bytes(&at, in_flight));
    *units_out = 0;
    for (int32_t i = 1; i < units - 1 && bytes > planner->available_bytes; i++) {
        const int32_t u = choice->recompute.last ? units - 1 - i : i;
        if (!mics_unit_computes(&model->units[u]))
            continue;
        add_whole(planner, all, u, &at);
        bytes = others + (double)counted(activation_bytes(&at, in_flight));
        ++*units_out;
    }
    if (bytes > planner->available_bytes)
        *units_out = -1;
    return MICS_OK;
}
