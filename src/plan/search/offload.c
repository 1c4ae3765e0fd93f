// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Activations in host memory: as few as fit, as each further unit is copied for nothing.
#include "mics/core/ledger.h"
#include "plan/search/bound.h"
#include "plan/search/choice.h"
#include "plan/search/planner.h"
#include "plan/search/search.h"
#include "schedule/layered.h"
#include "schedule/rules.h"
#include <math.h>

// Of a node's memory, what activations may take beside the system, data and copies of the state. A
// rank has as much of it as its accelerator has, where the cluster does not say (both assumed).
static const double host_share = 0.75;

// Copies all go there beside a group's forward passes, as the last of these wait for places, and come
// back beside the backward ones. The boundary follows.
static mics_status least_us(mics_planner *planner, const mics_plan_choice *c,
                            const batch_probe *batch, double host_bytes, double *us_out)
{
    const mics_cluster *cluster = &planner->request.cluster;
    const double units = c->offload_units, steps = c->micro_steps;
    double boundary_us = 0, update_us = 0;
    MICS_TRY(
        probe_boundary(planner, c->sharding.optimizer, c->all_reduces, &boundary_us, &update_us));
    const double copies_us =
        units > 0 ? units * mics_simulate_copy_us(cluster, host_bytes / units) : 0;
    const double passes_us =
        fmax(batch->forward_us, copies_us) + fmax(batch->backward_us, copies_us);
    *us_out =
        fmax(steps * passes_us, steps * (batch->forward_us + batch->backward_us) + update_us) +
        boundary_us + cluster->step_overhead_us;
    return MICS_OK;
}

mics_status choose_offload(mics_planner *planner, candidate *c, double *us_out, bool *fits_out)
{
    const mics_accelerator *device = &planner->request.cluster.accelerator;
    const double host_bytes =
        host_share *
        (device->host_memory_bytes > 0 ? device->host_memory_bytes : device->memory_bytes);
    const double elem_bytes =
        (double)mics_precision_bytes(planner->request.precision, MICS_MEM_ACTIVATIONS);
    const double in_flight =
        mics_schedule_layered_micro_steps(c->choice.micro_steps, c->choice.layered_micro_steps);
    const batch_probe *batch = NULL;
    int32_t units = 0;
    c->choice.offload_units = 0;
    MICS_TRY(planner_of(planner, c->choice.experts, c->choice.sequence, &planner));
    MICS_TRY(probe_offloads(planner, &c->choice, &batch));
    MICS_TRY(choice_memory(planner, &c->choice, &c->memory_bytes));
    const double all = c->memory_bytes + c->unseen_bytes;
    const mics_offload *o = batch->offloads;
    for (; units <= batch->schedule->offload_max; units++) {
        c->memory_bytes = all - in_flight * elem_bytes * (double)o[units].spared_elems;
        if (c->memory_bytes <= limit_of(planner))
            break;
    }
    *fits_out = units <= batch->schedule->offload_max &&
                in_flight * elem_bytes * (double)o[units].host_elems <= host_bytes;
    if (!*fits_out)
        return MICS_OK;
    c->choice.offload_units = units;
    return least_us(planner, &c->choice, batch, elem_bytes * (double)o[units].host_elems, us_out);
}

// A choice in the forms of recomputation that are open.
static mics_status list_forms(search *s, const candidate *base, double worth)
{
    static const mics_recompute forms[] = {
        {0}, {.mlp = true}, {.attention = true, .mlp = true}, {.units = MICS_RECOMPUTE_ALL}};
    const bool open = !s->space->recompute_given && !mics_recomputes(base->choice.recompute);
    for (int32_t i = 0; i < (open ? 4 : 1); i++) {
        candidate c = *base;
        bool fits = false;
        double us = 0;
        if (open)
            c.choice.recompute = forms[i];
        MICS_TRY(choose_offload(s->planner, &c, &us, &fits));
        c.bound_us = fmax(base->bound_us, us);
        if (!fits || c.choice.offload_units == 0 || is_cut(s, &c.choice, c.bound_us, worth))
            continue;
        s->listed++;
        s->fitting++;
        MICS_TRY(keep_candidate(s, &c));
    }
    return MICS_OK;
}

mics_status list_offload_around(search *s)
{
    for (int32_t i = 0; may_offload(s) && i < 2 * OFFLOAD_BASES && i / 2 < s->found_count; i++) {
        candidate base = {.choice = s->found[i / 2].choice};
        mics_planner *of = NULL;
        MICS_TRY(planner_of(s->planner, base.choice.experts, base.choice.sequence, &of));
        const int32_t at = batch_index(of, base.choice.micro_batch) + i % 2;
        if (!mics_recomputes(base.choice.recompute) || at >= of->micro_batch_count ||
            (i % 2 == 1 && s->space->micro_batch > 0))
            continue;
        base.choice.micro_batch = of->micro_batches[at];
        base.choice.micro_steps = (int32_t)micro_steps_of(of, base.choice.micro_batch);
        if (!s->space->recompute_given)
            base.choice.recompute = mics_recompute_all(false);
        MICS_TRY(list_forms(s, &base, 1));
    }
    return MICS_OK;
}

mics_status list_offload(search *s, int32_t listed)
{
    const bool alone = s->space->recompute_given || s->space->layered_by_rule;
    for (int32_t i = 0; may_offload(s) && i < listed; i++) {
        const candidate base = s->candidates[i];
        if (!search_fits(s, base.memory_bytes) &&
            (alone || !mics_recomputes(base.choice.recompute)) &&
            !is_cut(s, &base.choice, base.bound_us, WORTH_OFFLOAD))
            MICS_TRY(list_forms(s, &base, WORTH_OFFLOAD));
    }
    return MICS_OK;
}
