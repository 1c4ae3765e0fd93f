// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The first hop: gradients are summed over the ranks that share a gradient.
//
// Two stages. A reduction's inter-node stage needs its intra-node stage. That runs behind the
// intra-node stage of a gather, which needs the gather's inter-node stage. Were both inter-node
// stages listed one behind the other, the network would be idle for two intra-node stages a unit.
// So the reduction's is listed behind the next gathers, which run meanwhile. It is listed before
// the next pass, which takes gradient slots, so they are held no longer.
#include "schedule/reductions.h"
#include "schedule/boundary.h"
#include "schedule/collectives.h"
#include "schedule/listing.h"

void mark_slots(builder *b, const mics_step *step, int32_t index)
{
    for (int32_t i = 0; i < step->use_count; i++) {
        if (step->uses[i].param_slot >= 0)
            b->params.slots[step->uses[i].param_slot].last[step->stream] = index;
        if (step->uses[i].grad_slot >= 0)
            b->grads.slots[step->uses[i].grad_slot].last[step->stream] = index;
    }
}

// A stage of a reduction, behind another step.
static mics_status list_stage(builder *b, late_reduction *r, mics_step_stage stage)
{
    mics_step step = comm_step(b, MICS_STEP_REDUCE, stage, &r->unit, 1, r->of.micro_step);
    step.uses[0].grad_slot = b->grads.slot_of[grad_key(b, r->unit, r->of.in_flight)];
    step.uses[0].accumulate = stage != MICS_STAGE_INTRA && b->last_reduced[r->unit] >= 0;
    wait_on(b, &step, r->before);
    MICS_TRY(add_step(b, step, &r->before));
    mark_slots(b, &step, r->before);
    return MICS_OK;
}

static mics_status end_reduction(builder *b, const late_reduction *r)
{
    b->last_reduced[r->unit] = r->before;
    return r->of.micro_step == b->schedule->spec.micro_steps - 1 ? list_second_hop(b, r->unit)
                                                                 : MICS_OK;
}

mics_status list_late_reductions(builder *b)
{
    for (int32_t i = 0; i < b->late_count; i++) {
        MICS_TRY(list_stage(b, &b->late[i], MICS_STAGE_INTER));
        MICS_TRY(end_reduction(b, &b->late[i]));
    }
    b->late_count = 0;
    return MICS_OK;
}

mics_status list_reduction(builder *b, int32_t unit, pass p)
{
    late_reduction r = {.unit = unit, .before = b->last_writer[unit], .of = p};
    const stage_list stages = stages_of(b, MICS_STEP_REDUCE, unit);
    MICS_TRY(list_stage(b, &r, stages.at[0]));
    if (stages.count > 1) {
        b->late[b->late_count++] = r;
        return b->schedule->spec.prefetch > 0 ? MICS_OK : list_late_reductions(b);
    }
    return end_reduction(b, &r);
}
