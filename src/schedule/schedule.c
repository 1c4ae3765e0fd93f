// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Builds the two lists of a schedule: a training step, and an evaluation of one micro-batch.
//
// A list is made from `passes`: the order in which units are computed, one visit of a unit after
// the other, in each a pass for every micro-batch in flight. Before a pass of visit v is listed,
// the gathers of visits v .. v + prefetch are, so they run beside the passes before them; where they
// begin with updates, those of v and v + 1. A unit stays gathered when it is needed again within
// that window (the last layer, between its forward and its backward).
#include "base/free.h"
#include "mics/builder.h"
#include "schedule/activations.h"
#include "schedule/boundary.h"
#include "schedule/check.h"
#include "schedule/collectives.h"
#include "schedule/gathers.h"
#include "schedule/layered.h"
#include "schedule/ledger.h"
#include "schedule/listing.h"
#include "schedule/meeting_steps.h"
#include "schedule/meetings.h"
#include "schedule/owners.h"
#include "schedule/parts.h"
#include "schedule/reductions.h"
#include "schedule/rules.h"

// ---- what a pass touches ----

static bool pass_reads(const builder *b, pass p, int32_t unit)
{
    const unit_set *reads = units_read(b, p);
    for (int32_t i = 0; i < reads->count; i++) {
        if (reads->units[i] == unit)
            return true;
    }
    return false;
}

// ---- passes, one after the other ----

// Whether a pass is of the visit of another one, or of the `visits` behind it.
static bool is_ahead(const builder *b, int32_t index, int32_t of, int32_t visits)
{
    return index < b->pass_count && b->passes[index].visit - b->passes[of].visit <= visits;
}

// Whether it is of the `prefetch` visits behind it.
static bool is_in_window(const builder *b, int32_t index, int32_t of)
{
    return is_ahead(b, index, of, b->schedule->spec.prefetch);
}

// Visits between the update of a unit and the pass that reads the unit, where the updated
// parameters are sent to other ranks in between. Computation waits for the replica gathers of the
// update, so the distance is at most one visit; and one visit only before the list's last pass, or
// where the inter-node transfer takes a whole visit. Where those were early, there is no such wait.
static int32_t updates_ahead(const builder *b, pass p)
{
    if (b->schedule->spec.early_gathers)
        return b->schedule->spec.prefetch;
    return b->schedule->spec.prefetch > 0 && (p.last || sends_far(b));
}

// Whether the next pass whose gathers are not listed may have them before pass `of`: all in their
// order, so none overtakes those of units that are to be updated first.
static bool may_gather(const builder *b, int32_t of)
{
    const int32_t next = b->gathered;
    return is_in_window(b, next, of) && (is_ahead(b, next, of, updates_ahead(b, b->passes[of])) ||
                                         !sends_updated(b, b->passes[next]));
}

// Where both go between nodes, the replica gathers of the next visit come before what sends this
// one's units, which waits for their updates, and no others do.
static mics_status list_next_gathers(builder *b)
{
    const int32_t next = b->gathered++;
    for (; sends_far(b) && is_ahead(b, b->brought, next, 1); b->brought++)
        MICS_TRY(list_replica_gathers(b, b->passes[b->brought]));
    return list_gathers(b, b->passes[next]);
}

// Gives up the slots of parameters that no pass of the coming window reads.
static void release_params(builder *b, int32_t index)
{
    const int32_t coming = index + 1;
    if (!b->passes[index].last)
        return;
    for (int32_t at = b->params.held_count - 1; at >= 0; at--) {
        const int32_t unit = b->params.held[at];
        bool needed = false;
        for (int32_t next = coming; !needed && is_in_window(b, next, coming); next++)
            needed = pass_reads(b, b->passes[next], unit);
        if (!needed)
            slots_give(&b->params, unit);
    }
}

// Whether gradients of a micro-step lie elsewhere than in the accumulator.
static bool has_grad_slot(const builder *b, int32_t unit)
{
    const mics_schedule_spec *spec = &b->schedule->spec;
    return sharding_of(b, unit)->grads > 1 ||
           (spec->precision == MICS_PRECISION_MIXED && !mics_schedule_rounds_sums(spec));
}

// Slots for the gradients that a backward begins to write.
static mics_status take_grad_slots(builder *b, pass p, mics_step *step)
{
    const unit_set *writes = units_written(b, p);
    for (int32_t i = 0; i < writes->count; i++) {
        const int32_t unit = writes->units[i];
        if (!has_grad_slot(b, unit))
            continue;
        const int32_t key = grad_key(b, unit, p.in_flight);
        if (b->grads.slot_of[key] >= 0 && !b->grads.retiring[key])
            continue; // written before, and not reduced yet
        MICS_TRY(slots_take(&b->grads, key, b->schedule->padded_elems[unit]));
        wait_on_all(b, step, b->grads.slots[b->grads.slot_of[key]].last);
    }
    slots_settle(&b->grads); // what retired before is free from the next pass on
    return MICS_OK;
}

// Whether a backward adds to what is there of a unit's gradient: in the accumulator, behind the
// first micro-step; in a slot that is reduced, behind the first micro-batch in flight.
static bool adds_to_gradient(const builder *b, pass p, int32_t unit, bool fold)
{
    if (!p.backward)
        return false;
    if (sharding_of(b, unit)->grads > 1)
        return p.in_flight > 0;
    return p.micro_step > 0 && (fold || !has_grad_slot(b, unit));
}

// Whether no later part of the pass writes a unit's gradient.
static bool is_last_writer(const builder *b, pass p, int32_t part, int32_t unit)
{
    const unit_facts *facts = &b->facts[p.unit];
    for (int32_t i = part + 1; i < facts->part_count[p.backward]; i++) {
        const unit_set *writes = &facts->parts[p.backward][i].writes;
        for (int32_t w = 0; w < writes->count; w++) {
            if (writes->units[w] == unit)
                return false;
        }
    }
    return true;
}

static void name_uses(builder *b, pass p, int32_t part, mics_step *step)
{
    const unit_set *writes = &b->facts[p.unit].parts[p.backward][part].writes;
    const unit_set *reads = &b->facts[p.unit].parts[p.backward][part].reads;
    unit_set all = {.count = 0}; // first those whose values are read
    for (int32_t i = 0; i < reads->count; i++)
        add_unit(reads->units[i], &all);
    const int32_t read = all.count;
    for (int32_t i = 0; i < writes->count; i++)
        add_unit(writes->units[i], &all);
    for (int32_t i = 0; i < all.count; i++) {
        const int32_t unit = all.units[i];
        const bool fold = p.backward && sharding_of(b, unit)->grads == 1 &&
                          has_grad_slot(b, unit) && b->ends_with[unit] == p.unit &&
                          is_last_writer(b, p, part, unit);
        step->uses[i] = (mics_step_use){
            .unit = unit,
            .param_slot = i < read ? b->params.slot_of[unit] : -1,
            .grad_slot = p.backward ? b->grads.slot_of[grad_key(b, unit, p.in_flight)] : -1,
            .accumulate = adds_to_gradient(b, p, unit, fold),
            .fold = fold};
        if (i < read)
            wait_on(b, step, b->ready[unit]);
    }
    step->use_count = all.count;
}

// The all-to-all behind a part, which is step `before`.
static mics_status list_all_to_all(builder *b, pass p, const pass_part *part, int32_t *before_io)
{
    const mics_unit *unit = unit_of(b, p.unit);
    const mics_unit_plan *plan = &b->schedule->units[p.unit];
    const mics_op *op = &unit->ops[part->op];
    const mics_schedule_spec *spec = &b->schedule->spec;
    const int64_t elems = mics_schedule_tensor_elems(spec, &unit->tensors[op->out]);
    // Of a longer input its end.
    const int64_t end = mics_schedule_tensor_elems(spec, &unit->tensors[op->in[0]]);
    const bool backward = part->call >= 0;
    mics_step step = all_to_all_step(
        b, p, op,
        backward ? plan->grads[part->call].dout : plan->tensor_at[op->in[0]] + end - elems,
        backward ? plan->grads[part->call].din : plan->tensor_at[op->out], elems);
    wait_on(b, &step, *before_io);
    return add_step(b, step, before_io);
}

static mics_status list_part(builder *b, pass p, int32_t number, mics_step step, int32_t *before_io)
{
    const unit_facts *facts = &b->facts[p.unit];
    const pass_part *part = &facts->parts[p.backward][number];
    step.part = part->range;
    step.flops = facts->part_count[p.backward] > 1 ? part->flops
                                                   : b->schedule->units[p.unit].flops[p.backward];
    name_uses(b, p, number, &step);
    wait_on(b, &step, *before_io);
    MICS_TRY(add_step(b, step, before_io));
    mark_slots(b, &step, *before_io);
    for (int32_t i = 0; p.backward && i < step.use_count; i++)
        b->last_writer[step.uses[i].unit] = *before_io;
    return part->op >= 0 ? list_all_to_all(b, p, part, before_io) : MICS_OK;
}

static mics_status list_pass(builder *b, pass p)
{
    mics_step step =
        blank_step(p.backward ? MICS_STEP_BACKWARD : MICS_STEP_FORWARD, p.unit, p.micro_step);
    int32_t before = -1;
    step.in_flight = p.in_flight;
    if (p.backward)
        MICS_TRY(take_grad_slots(b, p, &step));
    wait_for_copies(b, p, &step);
    for (int32_t part = 0; part < b->facts[p.unit].part_count[p.backward]; part++) {
        MICS_TRY(list_part(b, p, part, step, &before));
        for (int stream = 0; stream < MICS_STREAMS; stream++)
            step.wait[stream] = -1;
    }
    return list_copy(b, p);
}

// After a backward: reduces the gradients that nothing will write any more in this layered group.
static mics_status list_reductions(builder *b, pass p)
{
    const unit_set *writes = units_written(b, p);
    for (int32_t i = 0; i < writes->count; i++) {
        const int32_t unit = writes->units[i];
        const int32_t key = grad_key(b, unit, p.in_flight);
        if (b->ends_with[unit] != p.unit)
            continue;
        if (sharding_of(b, unit)->grads > 1) {
            if (!p.last)
                continue;
            MICS_TRY(list_reduction(b, unit, p));
            if (b->schedule->spec.prefetch > 0)
                slots_retire(&b->grads, key);
            else
                slots_give(&b->grads, key);
            continue;
        }
        if (has_grad_slot(b, unit))
            slots_give(&b->grads, key);
        if (p.micro_step == b->schedule->spec.micro_steps - 1)
            MICS_TRY(list_second_hop(b, unit));
    }
    return MICS_OK;
}

static mics_status list_passes(builder *b)
{
    for (int32_t i = 0; i < b->pass_count; i++) {
        MICS_TRY(list_late_updates(b, b->passes[i]));
        while (may_gather(b, i))
            MICS_TRY(list_next_gathers(b));
        MICS_TRY(list_late_reductions(b));
        MICS_TRY(list_meetings_beside(b, i));
        MICS_TRY(list_pass(b, b->passes[i]));
        MICS_TRY(list_reductions(b, b->passes[i]));
        release_params(b, i);
    }
    MICS_TRY(list_late_reductions(b));
    slots_settle(&b->grads);
    return MICS_OK;
}

// ---- passes ----

// One unit for micro-steps [begin, end).
static void fill_visit(builder *b, int32_t unit, bool backward, int32_t begin, int32_t end)
{
    const int32_t visit = b->pass_count > 0 ? b->passes[b->pass_count - 1].visit + 1 : 0;
    for (int32_t micro = begin; micro < end; micro++) {
        b->passes[b->pass_count++] = (pass){.unit = unit,
                                            .micro_step = micro,
                                            .in_flight = micro - begin,
                                            .visit = visit,
                                            .backward = backward,
                                            .last = micro == end - 1,
                                            .flops = b->flops};
        b->flops += b->schedule->units[unit].flops[backward];
    }
}

// Micro-steps run in layered groups, all of about as many.
static void fill_passes(builder *b, mics_phase phase)
{
    const mics_schedule *schedule = b->schedule;
    const bool training = phase == MICS_PHASE_TRAIN;
    const int32_t units = schedule->spec.model->unit_count;
    const int32_t micro_steps = training ? schedule->spec.micro_steps : 1;
    const int32_t groups =
        training ? mics_schedule_layered_groups(micro_steps, schedule->spec.layered_micro_steps)
                 : 1;
    b->pass_count = 0;
    b->flops = 0;
    for (int64_t group = 0; group < groups; group++) {
        const int32_t begin = (int32_t)(group * micro_steps / groups);
        const int32_t end = (int32_t)((group + 1) * micro_steps / groups);
        for (int32_t u = 0; u < units; u++) {
            // The loss has no forward in training: its backward does that work.
            if (mics_unit_computes(unit_of(b, u)) && !(training && schedule->units[u].loss))
                fill_visit(b, u, false, begin, end);
        }
        for (int32_t u = units - 1; training && u >= 0; u--) {
            if (mics_schedule_has_backward(schedule, u))
                fill_visit(b, u, true, begin, end);
        }
    }
}

static mics_status open_builder(builder *b)
{
    mics_memory *memory = b->schedule->memory;
    const int32_t units = b->schedule->spec.model->unit_count;
    const size_t passes = 2 * (size_t)units * (size_t)b->schedule->spec.micro_steps;
    int32_t **const by_unit[] = {&b->ready,
                                 &b->synced,
                                 &b->brought_back,
                                 &b->updated,
                                 &b->last_writer,
                                 &b->last_reduced,
                                 &b->ends_with,
                                 &b->coalescing[0].units,
                                 &b->coalescing[1].units,
                                 &b->coalescing[2].units,
                                 &b->coalescing[3].units};
    MICS_TRY(slots_open(memory, units, &b->params));
    MICS_TRY(slots_open(memory, units * b->schedule->spec.layered_micro_steps, &b->grads));
    MICS_TRY(MICS_NEW(memory, units * b->schedule->spec.layered_micro_steps, &b->copied));
    MICS_TRY(MICS_NEW(memory, passes, &b->passes));
    MICS_TRY(MICS_NEW(memory, units, &b->facts));
    MICS_TRY(MICS_NEW(memory, units, &b->meetings));
    MICS_TRY(MICS_NEW(memory, units, &b->windows));
    MICS_TRY(MICS_NEW(memory, 4 * (size_t)units, &b->schedule->members));
    for (size_t i = 0; i < sizeof by_unit / sizeof by_unit[0]; i++) {
        MICS_TRY(MICS_NEW(memory, units, &*by_unit[i]));
    }
    return MICS_OK;
}

static void find_facts(builder *b)
{
    for (int axis = 0; axis < MICS_AXES; axis++) {
        for (int scope = 0; scope < MICS_SCOPES; scope++)
            b->spans_nodes[axis][scope] = mics_mesh_spans_nodes(
                &b->schedule->spec.mesh, (mics_group_axis)axis, (mics_group_scope)scope);
    }
    for (int32_t u = 0; u < b->schedule->spec.model->unit_count; u++) {
        unit_facts *facts = &b->facts[u];
        for (int backward = 0; backward < 2; backward++) {
            find_parts(b, u, backward == 1);
            if (b->schedule->spec.like == NULL)
                b->schedule->units[u].flops[backward] = sum_flops(facts, backward == 1);
        }
        find_stages(b, u, facts->stages);
    }
}

// Backward runs from the last unit to the first, so the lowest unit that uses a parameter writes
// its gradient last.
static void find_last_writers(builder *b)
{
    for (int32_t u = b->schedule->spec.model->unit_count - 1; u >= 0; u--) {
        const unit_set *writes = &b->facts[u].writes;
        for (int32_t i = 0; i < writes->count; i++)
            b->ends_with[writes->units[i]] = u;
    }
}

static void close_builder(builder *b)
{
    mics_memory *memory = b->schedule->memory;
    slots_close(&b->params);
    slots_close(&b->grads);
    MICS_FREE_ALL(memory, b->copied, b->passes, b->facts, b->meetings, b->windows, b->ready,
                  b->synced, b->brought_back, b->updated, b->last_writer, b->last_reduced,
                  b->ends_with);
    for (size_t i = 0; i < sizeof b->coalescing / sizeof b->coalescing[0]; i++)
        mics_free(memory, b->coalescing[i].units);
}

static void idle_slots(slot_pool *pool)
{
    for (int32_t i = 0; i < pool->count; i++) {
        for (int stream = 0; stream < MICS_STREAMS; stream++)
            pool->slots[i].last[stream] = -1;
    }
}

// Room for a list: each pass with its gather, each visit with its reduction, each unit with what
// happens to it once a step.
// Units that are gathered more often make it grow.
static mics_status open_list(builder *b, mics_phase phase)
{
    const mics_mesh *mesh = &b->schedule->spec.mesh;
    const int32_t units = b->schedule->spec.model->unit_count;
    int64_t steps = 1; // agreement
    for (int32_t i = 0; i < b->pass_count; i++) {
        const unit_facts *facts = &b->facts[b->passes[i].unit];
        steps += 1 + (mesh->sharding.params > 1 ? 1 + facts->stages[MICS_STEP_GATHER] : 0);
        if (b->passes[i].backward && b->passes[i].last && mesh->sharding.grads > 1)
            steps += 1 + facts->stages[MICS_STEP_REDUCE];
    }
    if (phase == MICS_PHASE_TRAIN)       // parameter sync, second hop, update; the norm
        steps += 4 * (int64_t)units + 1; // stages make it grow
    MICS_TRY(MICS_NEW(b->schedule->memory, steps, &b->list->steps));
    b->capacity = (int32_t)steps;
    return MICS_OK;
}

// Every list begins with nothing gathered and all slots idle: the engine joins its streams between
// lists.
static mics_status build_list(builder *b, mics_phase phase)
{
    b->list = &b->schedule->lists[phase];
    b->gathered = b->brought = 0;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        b->newest[stream] = -1;
    idle_slots(&b->params);
    idle_slots(&b->grads);
    for (int32_t u = 0; u < b->schedule->spec.model->unit_count; u++)
        b->ready[u] = b->synced[u] = b->brought_back[u] = b->updated[u] = b->last_writer[u] =
            b->last_reduced[u] = -1;
    for (int32_t i = 0;
         i < b->schedule->spec.model->unit_count * b->schedule->spec.layered_micro_steps; i++)
        b->copied[i] = -1;
    fill_passes(b, phase);
    reset_meetings(b);
    MICS_TRY(open_list(b, phase));
    if (phase == MICS_PHASE_TRAIN && !mics_schedule_defers(b->schedule))
        MICS_TRY(list_meetings(b, NULL, b->schedule->spec.model->unit_count));
    MICS_TRY(list_passes(b));
    int32_t index = 0;
    return phase == MICS_PHASE_TRAIN ? list_boundary(b) : list_agreement(b, &index);
}

static mics_status copy_slots(mics_schedule *schedule, const slot_pool *pool, int64_t **slots_out,
                              int32_t *count_out)
{
    MICS_TRY(MICS_NEW(schedule->memory, pool->count, &*slots_out));
    *count_out = pool->count;
    for (int32_t i = 0; i < pool->count; i++)
        (*slots_out)[i] = pool->slots[i].elems;
    return MICS_OK;
}

static mics_status build(mics_schedule *schedule)
{
    builder b = {.schedule = schedule};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(open_builder(&b));
    MICS_TRY_OUT(find_owners(schedule));
    find_facts(&b);
    find_last_writers(&b);
    if (!schedule->spec.evaluation_only)
        MICS_TRY_OUT(build_list(&b, MICS_PHASE_TRAIN));
    MICS_TRY_OUT(build_list(&b, MICS_PHASE_EVAL));
    MICS_TRY_OUT(
        copy_slots(schedule, &b.params, &schedule->param_slots, &schedule->param_slot_count));
    MICS_TRY_OUT(copy_slots(schedule, &b.grads, &schedule->grad_slots, &schedule->grad_slot_count));
out:
    close_builder(&b);
    return status;
}

// Lengths with padding, and which units stay whole.
static mics_status lay_out_units(mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const size_t units = (size_t)spec->model->unit_count;
    MICS_TRY(MICS_NEW(schedule->memory, units, &schedule->padded_elems));
    MICS_TRY(MICS_NEW(schedule->memory, units, &schedule->sharding));
    MICS_TRY(MICS_NEW(schedule->memory, units, &schedule->experts));
    for (size_t u = 0; u < units; u++) {
        const mics_unit *unit = &spec->model->units[u];
        const int32_t experts = unit->experts > 0 ? spec->mesh.experts : 1;
        mics_mesh held = spec->mesh; // by those that keep the same experts
        mics_sharding *s = &schedule->sharding[u];
        held.ranks /= experts;
        schedule->experts[u] = experts;
        schedule->padded_elems[u] = mics_mesh_padded(&held, unit->elems / experts);
        *s = spec->mesh.sharding;
        s->params /= experts, s->grads /= experts, s->optimizer /= experts;
        if (unit->elems < spec->param_persistence_threshold)
            s->params = s->grads = 1;
        if (unit->frozen)
            s->grads = s->optimizer = s->params;
    }
    return MICS_OK;
}

// Ranks that keep different experts, or share sequences, run another model.
static mics_status spread_model(mics_schedule *schedule)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    if (mesh->experts == 1 && mesh->sequence == 1)
        return MICS_OK;
    MICS_TRY(mics_model_spread(schedule->spec.model, mesh->experts, mesh->sequence,
                               schedule->spec.batch, &schedule->spread));
    schedule->spec.model = schedule->spread;
    return MICS_OK;
}

static bool can_share(const mics_schedule_spec *spec)
{
    const mics_mesh *mesh = &spec->mesh;
    const bool rounds =
        spec->precision == MICS_PRECISION_FP32 && spec->params_dtype.intra != MICS_COMM_FP32;
    return spec->share_params && !spec->accelerator && !rounds && mesh->sharding.params > 1 &&
           mesh->sharding.params <= mesh->ranks_per_node;
}

mics_status mics_schedule_open(mics_memory *memory, const mics_schedule_spec *spec,
                               mics_schedule **schedule_out)
{
    MICS_TRY(check_schedule_spec(spec));
    mics_schedule *schedule = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &schedule));
    schedule->memory = memory;
    schedule->spec = *spec;
    schedule->spec.batch.accelerator_bytes =
        spec->accelerator ? (int32_t)mics_precision_bytes(spec->precision, MICS_MEM_ACTIVATIONS)
                          : 0;
    schedule->spec.batch.cpu_bf16 = !spec->accelerator && spec->precision == MICS_PRECISION_MIXED;
    if (spec->precision == MICS_PRECISION_MIXED)
        schedule->spec.params_dtype = schedule->spec.grads_dtype =
            mics_comm_dtypes_both(MICS_COMM_BF16);
    schedule->spec.share_params = can_share(spec);
    schedule->spec.delta_sync = spec->delta_sync && spec->precision == MICS_PRECISION_MIXED;
    if (spec->evaluation_only)
        schedule->spec.offload_units = 0;
    schedule->spec.layered_micro_steps =
        spec->evaluation_only
            ? 1
            : mics_schedule_layered_micro_steps(spec->micro_steps, spec->layered_micro_steps);
    mics_status status = MICS_OK;
    MICS_TRY_OUT(spread_model(schedule));
    MICS_TRY_OUT(lay_out_units(schedule));
    MICS_TRY_OUT(place_meetings(schedule));
    MICS_TRY_OUT(place_activations(schedule));
    MICS_TRY_OUT(build(schedule));
    MICS_TRY_OUT(fill_ledger(schedule));
    schedule->spec.like = NULL;
    *schedule_out = schedule;
    return MICS_OK;
out:
    mics_schedule_close(schedule);
    return status;
}

void mics_schedule_close(mics_schedule *schedule)
{
    if (schedule == NULL)
        return;
    mics_memory *memory = schedule->memory;
    for (int32_t u = 0; schedule->units != NULL && u < schedule->spec.model->unit_count; u++) {
        mics_free(memory, schedule->units[u].tensor_at);
        mics_free(memory, schedule->units[u].again);
        mics_free(memory, schedule->units[u].grads);
    }
    for (int phase = 0; phase < MICS_PHASES; phase++)
        mics_free(memory, schedule->lists[phase].steps);
    MICS_FREE_ALL(memory, schedule->units, schedule->padded_elems, schedule->sharding,
                  schedule->experts, schedule->residual_at, schedule->members, schedule->rounds,
                  schedule->matrices, schedule->matrix_at, schedule->param_slots,
                  schedule->grad_slots, schedule->meetings);
    mics_model_close(schedule->spread);
    mics_free(memory, schedule);
}
