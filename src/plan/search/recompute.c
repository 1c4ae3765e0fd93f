// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A choice's memory depends on what is recomputed by its activations alone: of those one layer after
// the other is taken off. Collectives do not depend on it, so the least computation is the fastest,
// or near it.
#include "plan/search/bound.h"
#include "plan/search/planner.h"
#include "schedule/layered.h"
#include <math.h>

static const double tie_share = 0.002;

// The fewest layers that fit with what else of `at` is made again, from one end on. What is not
// activations takes `others`.
static bool add_fewest(const mics_planner *planner, const batch_probe *all, double others,
                       size_t in_flight, batch_probe *at)
{
    const mics_model *model = planner->request.model;
    const int32_t units = model->unit_count;
    for (int32_t i = 0; i < units - 1; i++) {
        const int32_t u = at->recompute.last ? units - 1 - i : i;
        if (i > 0 && mics_unit_computes(&model->units[u])) {
            add_whole(planner, all, u, at);
            at->recompute.units++;
        }
        if (others + (double)counted(activation_bytes(at, in_flight)) <= limit_of(planner))
            return true;
    }
    return false;
}

mics_status fitting_forms(mics_planner *planner, const mics_plan_choice *choice, double bytes,
                          mics_recompute forms_out[MAX_FORMS], int32_t *count_out)
{
    const size_t in_flight =
        (size_t)mics_schedule_layered_micro_steps(choice->micro_steps, choice->layered_micro_steps);
    mics_plan_choice form = *choice;
    const batch_probe *all = NULL, *kept = NULL;
    double us[MAX_FORMS], least_us = INFINITY;
    int32_t found = 0;
    *count_out = 0;
    MICS_TRY(probe_batch(planner, &form, &kept));
    const double others = bytes - (double)counted(activation_bytes(kept, in_flight));
    form.recompute = mics_recompute_all(true);
    MICS_TRY(probe_batch(planner, &form, &all));
    if (others + (double)counted(activation_bytes(all, in_flight)) > limit_of(planner))
        return MICS_OK;
    for (int way = 0; way < MAX_FORMS; way++) {
        form.recompute = (mics_recompute){0, false, way % 2 == 1, way / 2 % 2 == 1};
        MICS_TRY(probe_batch(planner, &form, &kept));
        batch_probe at = *kept;
        at.recompute.last = way / 4 == 1;
        if (!add_fewest(planner, all, others, in_flight, &at) ||
            (at.recompute.units == 0 && at.recompute.last))
            continue;
        us[found] = at.forward_us + at.backward_us;
        least_us = fmin(least_us, us[found]);
        forms_out[found++] = at.recompute;
    }
    for (int32_t i = 0; i < found; i++) {
        if (us[i] <= (1 + tie_share) * least_us)
            forms_out[(*count_out)++] = forms_out[i];
    }
    return MICS_OK;
}

mics_status smaller_forms(mics_planner *planner, const mics_plan_choice *choice, double bytes,
                          mics_recompute forms_out[MAX_FORMS], int32_t *count_out)
{
    mics_plan_choice plain = *choice;
    double known = 0, kept = 0;
    *count_out = 0;
    if (choice->offload_units > 0)
        return MICS_OK;
    plain.recompute = mics_recompute_all(false);
    MICS_TRY(planner_of(planner, choice->experts, choice->sequence, &planner));
    MICS_TRY(choice_memory(planner, choice, &known));
    MICS_TRY(choice_memory(planner, &plain, &kept));
    return fitting_forms(planner, &plain, kept + bytes - known, forms_out, count_out);
}
