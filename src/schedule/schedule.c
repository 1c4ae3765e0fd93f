// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Builds the two lists of a schedule: a training step, and an evaluation of one micro-batch.
//
// A list is made from `passes`: the order in which units are computed. Before pass i is listed, the
// gathers of passes i .. i + prefetch are, so they run beside the passes before them. A unit stays
// gathered when it is needed again within that window (the last layer, between its forward and its
// backward).
#include "mics/schedule.h"
#include "schedule/activations.h"
#include "schedule/check.h"
#include "schedule/ledger.h"
#include "schedule/slots.h"

// One computation of one unit.
typedef struct pass {
    int32_t unit;
    int32_t micro_step;
    bool backward;
} pass;

typedef struct builder {
    mics_schedule *schedule;
    mics_step_list *list;
    slot_pool params, grads;
    pass *passes;
    int32_t pass_count;
    int32_t gathered;     // passes whose gathers are listed
    int32_t *last_gather; // by unit: the step that filled its slot
    int32_t *last_writer; // by unit: newest backward that wrote its gradient
    int32_t *
        ends_with; // by unit: the unit whose backward is the last of a micro-step to write its gradient
    int32_t prefetch; // of the spec, at most the number of passes
    int32_t newest[MICS_STREAMS];
} builder;

static const mics_unit *unit_of(const builder *b, int32_t unit)
{
    return &b->schedule->spec.model->units[unit];
}

static const mics_sharding *sharding_of(const builder *b)
{
    return &b->schedule->spec.mesh.sharding;
}

// ---- what a pass touches ----

static void add_unit(int32_t unit, int32_t *units, int32_t *count)
{
    for (int32_t i = 0; i < *count; i++) {
        if (units[i] == unit)
            return;
    }
    if (*count < MICS_STEP_USES)
        units[(*count)++] = unit;
}

// Units whose parameters' values the pass reads.
static int32_t units_read(const builder *b, pass p, int32_t units[MICS_STEP_USES])
{
    const mics_unit *unit = unit_of(b, p.unit);
    const int32_t forward_ops =
        p.backward ? b->schedule->units[p.unit].forward_again : unit->op_count;
    int32_t count = 0;
    for (int32_t o = 0; o < unit->op_count; o++) {
        const mics_op *op = &unit->ops[o];
        if (o >= forward_ops && !mics_op_info_get(op->kind)->backward_reads_params)
            continue;
        for (int i = 0; i < MICS_OP_PARAMS; i++) {
            if (op->params[i].unit >= 0)
                add_unit(op->params[i].unit, units, &count);
        }
    }
    return count;
}

// Units whose gradients the pass writes.
static int32_t units_written(const builder *b, pass p, int32_t units[MICS_STEP_USES])
{
    const mics_unit *unit = unit_of(b, p.unit);
    int32_t count = 0;
    for (int32_t o = 0; p.backward && o < unit->op_count; o++) {
        for (int i = 0; i < MICS_OP_PARAMS; i++) {
            if (unit->ops[o].params[i].unit >= 0)
                add_unit(unit->ops[o].params[i].unit, units, &count);
        }
    }
    return count;
}

static bool contains(const int32_t *units, int32_t count, int32_t unit)
{
    for (int32_t i = 0; i < count; i++) {
        if (units[i] == unit)
            return true;
    }
    return false;
}

static bool pass_reads(const builder *b, pass p, int32_t unit)
{
    int32_t units[MICS_STEP_USES];
    int32_t count = units_read(b, p, units);
    return contains(units, count, unit);
}

// ---- listing steps ----

static mics_status add_step(builder *b, mics_step step, int32_t *index_out)
{
    mics_step_list *list = b->list;
    bool full = (list->count & (list->count - 1)) == 0;
    if (full) {
        void *steps = list->steps;
        size_t capacity = list->count == 0 ? 1 : 2 * (size_t)list->count;
        MICS_TRY(
            mics_realloc(b->schedule->memory, MICS_MEM_HOST, capacity * sizeof(mics_step), &steps));
        list->steps = steps;
    }
    b->newest[step.stream] = list->count;
    *index_out = list->count;
    list->steps[list->count++] = step;
    return MICS_OK;
}

static void wait_for(mics_step *step, mics_stream stream, int32_t index)
{
    if (index > step->wait[stream])
        step->wait[stream] = index;
}

static mics_step blank_step(mics_step_kind kind, mics_stream stream, int32_t unit,
                            int32_t micro_step)
{
    return (mics_step){
        .kind = kind, .stream = stream, .unit = unit, .micro_step = micro_step, .wait = {-1, -1}};
}

// Whether a collective over `degree` ranks runs in two stages.
static bool two_stages(const builder *b, int32_t degree)
{
    const int32_t per_node = b->schedule->spec.mesh.ranks_per_node;
    return b->schedule->spec.hierarchical && per_node > 1 && degree > per_node;
}

static mics_step comm_step(const builder *b, mics_step_kind kind, int32_t unit, int32_t micro_step)
{
    mics_step step = blank_step(kind, MICS_STREAM_COMM, unit, micro_step);
    const mics_sharding *s = sharding_of(b);
    const size_t bytes = unit >= 0 ? (size_t)b->schedule->padded_elems[unit] * sizeof(float) : 0;
    const int32_t per_node = b->schedule->spec.mesh.ranks_per_node;
    switch (kind) {
    case MICS_STEP_GATHER_ACROSS:
        step.group = MICS_GROUP_PARAMS_ACROSS;
        step.block_bytes = bytes / (size_t)s->params;
        break;
    case MICS_STEP_GATHER:
        step.group = two_stages(b, s->params) ? MICS_GROUP_NODE : MICS_GROUP_PARAMS;
        step.block_bytes = bytes / (size_t)(two_stages(b, s->params) ? per_node : s->params);
        break;
    case MICS_STEP_REDUCE_INSIDE:
        step.group = MICS_GROUP_NODE;
        step.block_bytes = bytes / (size_t)per_node;
        break;
    case MICS_STEP_REDUCE:
        step.group = two_stages(b, s->grads) ? MICS_GROUP_GRADS_ACROSS : MICS_GROUP_GRADS;
        step.block_bytes = bytes / (size_t)s->grads;
        break;
    case MICS_STEP_SCATTER:
        step.group = MICS_GROUP_SCATTER;
        step.block_bytes = bytes / (size_t)s->optimizer;
        break;
    case MICS_STEP_ALL_REDUCE: // the owned piece, cut once more over the replicas
        step.group = MICS_GROUP_REPLICAS;
        step.block_bytes = bytes / (size_t)b->schedule->spec.mesh.ranks;
        break;
    case MICS_STEP_PUBLISH:
        step.group = MICS_GROUP_PUBLISH;
        step.block_bytes = bytes / (size_t)s->optimizer;
        break;
    default: // AGREE
        step.group = MICS_GROUP_WORLD;
        step.block_bytes = sizeof(mics_agreement);
        break;
    }
    step.uses[0] = (mics_step_use){.unit = unit, .param_slot = -1, .grad_slot = -1};
    step.use_count = unit >= 0;
    return step;
}

// Lists the gathers that a pass needs and that are not in a slot.
static mics_status list_gather(builder *b, int32_t unit, int32_t micro_step)
{
    MICS_TRY(slots_take(&b->params, unit, b->schedule->padded_elems[unit]));
    slot *taken = &b->params.slots[b->params.slot_of[unit]];
    mics_step_kind kinds[] = {MICS_STEP_GATHER_ACROSS, MICS_STEP_GATHER};
    for (int stage = two_stages(b, sharding_of(b)->params) ? 0 : 1; stage < 2; stage++) {
        mics_step step = comm_step(b, kinds[stage], unit, micro_step);
        step.uses[0].param_slot = b->params.slot_of[unit];
        wait_for(&step, MICS_STREAM_COMPUTE, taken->last[MICS_STREAM_COMPUTE]);
        MICS_TRY(add_step(b, step, &b->last_gather[unit]));
    }
    taken->last[MICS_STREAM_COMM] = b->last_gather[unit];
    return MICS_OK;
}

static mics_status list_gathers(builder *b, pass p)
{
    int32_t units[MICS_STEP_USES];
    int32_t count = sharding_of(b)->params > 1 ? units_read(b, p, units) : 0;
    for (int32_t i = 0; i < count; i++) {
        if (b->params.slot_of[units[i]] < 0)
            MICS_TRY(list_gather(b, units[i], p.micro_step));
    }
    return MICS_OK;
}

// Gives up the slots of parameters that no pass of the coming window reads.
static void release_params(builder *b, int32_t index)
{
    for (int32_t unit = 0; unit < b->params.units; unit++) {
        if (b->params.slot_of[unit] < 0)
            continue;
        bool needed = false;
        for (int32_t next = index + 1; next <= index + 1 + b->prefetch && next < b->pass_count;
             next++)
            needed = needed || pass_reads(b, b->passes[next], unit);
        if (!needed)
            slots_give(&b->params, unit);
    }
}

static double pass_flops(const builder *b, pass p)
{
    const mics_schedule *schedule = b->schedule;
    const mics_unit *unit = unit_of(b, p.unit);
    double flops = 0;
    for (int32_t o = 0; o < unit->op_count; o++) {
        mics_op_cost cost =
            mics_op_cost_get(schedule->spec.model, unit, &unit->ops[o], schedule->spec.batch);
        bool forward = !p.backward || o < schedule->units[p.unit].forward_again;
        flops += (forward ? cost.flops_forward : 0) + (p.backward ? cost.flops_backward : 0);
    }
    return flops;
}

// Slots for the gradients that a backward begins to write (G > 1).
static mics_status take_grad_slots(builder *b, pass p, mics_step *step)
{
    int32_t units[MICS_STEP_USES];
    int32_t count = units_written(b, p, units);
    for (int32_t i = 0; sharding_of(b)->grads > 1 && i < count; i++) {
        const int32_t unit = units[i];
        if (b->grads.slot_of[unit] >= 0 && !b->grads.retiring[unit])
            continue; // written before in this micro-step, and not reduced yet
        MICS_TRY(slots_take(&b->grads, unit, b->schedule->padded_elems[unit]));
        wait_for(step, MICS_STREAM_COMM,
                 b->grads.slots[b->grads.slot_of[unit]].last[MICS_STREAM_COMM]);
    }
    slots_settle(&b->grads); // what retired before is free from the next pass on
    return MICS_OK;
}

static void name_uses(builder *b, pass p, mics_step *step)
{
    int32_t touched[MICS_STEP_USES], written[MICS_STEP_USES];
    const int32_t read = units_read(b, p, touched), writes = units_written(b, p, written);
    int32_t all = read; // first those whose values are read
    for (int32_t i = 0; i < writes; i++)
        add_unit(written[i], touched, &all);
    for (int32_t i = 0; i < all; i++) {
        const int32_t unit = touched[i];
        const int32_t param_slot = i < read ? b->params.slot_of[unit] : -1;
        step->uses[i] = (mics_step_use){.unit = unit,
                                        .param_slot = param_slot,
                                        .grad_slot = p.backward ? b->grads.slot_of[unit] : -1};
        if (param_slot >= 0)
            wait_for(step, MICS_STREAM_COMM, b->last_gather[unit]);
    }
    step->use_count = all;
}

static void mark_slots(builder *b, const mics_step *step, int32_t index)
{
    for (int32_t i = 0; i < step->use_count; i++) {
        if (step->uses[i].param_slot >= 0)
            b->params.slots[step->uses[i].param_slot].last[step->stream] = index;
        if (step->uses[i].grad_slot >= 0)
            b->grads.slots[step->uses[i].grad_slot].last[step->stream] = index;
    }
}

static mics_status list_pass(builder *b, pass p)
{
    mics_step step = blank_step(p.backward ? MICS_STEP_BACKWARD : MICS_STEP_FORWARD,
                                MICS_STREAM_COMPUTE, p.unit, p.micro_step);
    if (p.backward)
        MICS_TRY(take_grad_slots(b, p, &step));
    name_uses(b, p, &step);
    step.flops = pass_flops(b, p);
    step.accumulate = p.backward && sharding_of(b)->grads == 1 && p.micro_step > 0;
    int32_t index = 0;
    MICS_TRY(add_step(b, step, &index));
    mark_slots(b, &step, index);
    for (int32_t i = 0; p.backward && i < step.use_count; i++)
        b->last_writer[step.uses[i].unit] = index;
    return MICS_OK;
}

// The second hop of one unit, as soon as its gradient is whole inside the gradient group.
static mics_status list_second_hop(builder *b, int32_t unit)
{
    const mics_mesh *mesh = &b->schedule->spec.mesh;
    int32_t index = 0;
    const mics_step_kind kinds[] = {MICS_STEP_SCATTER, MICS_STEP_ALL_REDUCE};
    const bool needed[] = {mesh->sharding.optimizer > mesh->sharding.grads,
                           mesh->ranks > mesh->sharding.optimizer};
    for (int i = 0; i < 2; i++) {
        if (!needed[i])
            continue;
        mics_step step = comm_step(b, kinds[i], unit, -1);
        wait_for(&step, MICS_STREAM_COMPUTE, b->last_writer[unit]);
        MICS_TRY(add_step(b, step, &index));
    }
    return MICS_OK;
}

// Sums one unit's gradient slot into the accumulator.
static mics_status list_reduction(builder *b, int32_t unit, int32_t micro_step)
{
    mics_step_kind kinds[] = {MICS_STEP_REDUCE_INSIDE, MICS_STEP_REDUCE};
    for (int stage = two_stages(b, sharding_of(b)->grads) ? 0 : 1; stage < 2; stage++) {
        mics_step step = comm_step(b, kinds[stage], unit, micro_step);
        step.uses[0].grad_slot = b->grads.slot_of[unit];
        step.accumulate = stage == 1 && micro_step > 0;
        wait_for(&step, MICS_STREAM_COMPUTE, b->last_writer[unit]);
        int32_t listed = 0;
        MICS_TRY(add_step(b, step, &listed));
        mark_slots(b, &step, listed);
    }
    return MICS_OK;
}

// After a backward: reduces the gradients that nothing will write any more in this micro-step.
static mics_status list_reductions(builder *b, pass p)
{
    int32_t units[MICS_STEP_USES];
    int32_t count = units_written(b, p, units);
    for (int32_t i = 0; i < count; i++) {
        if (b->ends_with[units[i]] != p.unit)
            continue;
        if (sharding_of(b)->grads > 1) {
            MICS_TRY(list_reduction(b, units[i], p.micro_step));
            if (b->prefetch > 0)
                slots_retire(&b->grads, units[i]);
            else
                slots_give(&b->grads, units[i]);
        }
        if (p.micro_step == b->schedule->spec.micro_steps - 1)
            MICS_TRY(list_second_hop(b, units[i]));
    }
    return MICS_OK;
}

static mics_status list_passes(builder *b)
{
    for (int32_t i = 0; i < b->pass_count; i++) {
        for (; b->gathered <= i + b->prefetch && b->gathered < b->pass_count; b->gathered++)
            MICS_TRY(list_gathers(b, b->passes[b->gathered]));
        MICS_TRY(list_pass(b, b->passes[i]));
        MICS_TRY(list_reductions(b, b->passes[i]));
        release_params(b, i);
    }
    slots_settle(&b->grads);
    return MICS_OK;
}

static mics_status list_agreement(builder *b, int32_t *agree_out)
{
    mics_step step = comm_step(b, MICS_STEP_AGREE, -1, -1);
    wait_for(&step, MICS_STREAM_COMPUTE, b->newest[MICS_STREAM_COMPUTE]);
    return add_step(b, step, agree_out);
}

// The accumulation boundary: norm, agreement, update and publication unit by unit.
static mics_status list_boundary(builder *b)
{
    int32_t agree = 0, index = 0;
    mics_step norm = blank_step(MICS_STEP_NORM, MICS_STREAM_COMPUTE, -1, -1);
    wait_for(&norm, MICS_STREAM_COMM, b->newest[MICS_STREAM_COMM]);
    MICS_TRY(add_step(b, norm, &index));
    MICS_TRY(list_agreement(b, &agree));
    for (int32_t unit = 0; unit < b->params.units; unit++) {
        mics_step update = blank_step(MICS_STEP_UPDATE, MICS_STREAM_COMPUTE, unit, -1);
        wait_for(&update, MICS_STREAM_COMM, agree);
        MICS_TRY(add_step(b, update, &index));
        if (sharding_of(b)->optimizer == sharding_of(b)->params)
            continue;
        mics_step publish = comm_step(b, MICS_STEP_PUBLISH, unit, -1);
        wait_for(&publish, MICS_STREAM_COMPUTE, index);
        MICS_TRY(add_step(b, publish, &index));
    }
    return MICS_OK;
}

// ---- passes ----

static void fill_passes(builder *b, mics_phase phase)
{
    const mics_schedule *schedule = b->schedule;
    const int32_t units = schedule->spec.model->unit_count;
    b->pass_count = 0;
    for (int32_t micro = 0; micro < (phase == MICS_PHASE_TRAIN ? schedule->spec.micro_steps : 1);
         micro++) {
        for (int32_t u = 0; u < units; u++) {
            // The loss has no forward in training: its backward does that work.
            if (phase != MICS_PHASE_TRAIN || !schedule->units[u].loss)
                b->passes[b->pass_count++] = (pass){.unit = u, .micro_step = micro};
        }
        for (int32_t u = units - 1; phase == MICS_PHASE_TRAIN && u >= 0; u--)
            b->passes[b->pass_count++] = (pass){.unit = u, .micro_step = micro, .backward = true};
    }
}

static mics_status open_builder(builder *b)
{
    mics_memory *memory = b->schedule->memory;
    const int32_t units = b->schedule->spec.model->unit_count;
    const size_t passes = 2 * (size_t)units * (size_t)b->schedule->spec.micro_steps;
    void *block = NULL;
    MICS_TRY(slots_open(memory, units, &b->params));
    MICS_TRY(slots_open(memory, units, &b->grads));
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, passes * sizeof(pass), &block));
    b->passes = block;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, (size_t)units * sizeof(int32_t), &block));
    b->last_gather = block;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, (size_t)units * sizeof(int32_t), &block));
    b->last_writer = block;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, (size_t)units * sizeof(int32_t), &block));
    b->ends_with = block;
    b->prefetch =
        b->schedule->spec.prefetch < (int32_t)passes ? b->schedule->spec.prefetch : (int32_t)passes;
    return MICS_OK;
}

// Backward runs from the last unit to the first, so the lowest unit that uses a parameter writes its gradient last.
static void find_last_writers(builder *b)
{
    for (int32_t u = b->schedule->spec.model->unit_count - 1; u >= 0; u--) {
        int32_t units[MICS_STEP_USES];
        int32_t count = units_written(b, (pass){.unit = u, .backward = true}, units);
        for (int32_t i = 0; i < count; i++)
            b->ends_with[units[i]] = u;
    }
}

static void close_builder(builder *b)
{
    mics_memory *memory = b->schedule->memory;
    slots_close(&b->params);
    slots_close(&b->grads);
    mics_free(memory, b->passes);
    mics_free(memory, b->last_gather);
    mics_free(memory, b->last_writer);
    mics_free(memory, b->ends_with);
}

// Every list begins with nothing gathered and all slots idle: the engine joins both streams between
// lists.
static mics_status build_list(builder *b, mics_phase phase)
{
    b->list = &b->schedule->lists[phase];
    b->gathered = 0;
    b->newest[MICS_STREAM_COMPUTE] = b->newest[MICS_STREAM_COMM] = -1;
    for (int32_t i = 0; i < b->params.count; i++)
        b->params.slots[i].last[0] = b->params.slots[i].last[1] = -1;
    for (int32_t i = 0; i < b->grads.count; i++)
        b->grads.slots[i].last[0] = b->grads.slots[i].last[1] = -1;
    for (int32_t u = 0; u < b->params.units; u++)
        b->last_gather[u] = b->last_writer[u] = -1;
    fill_passes(b, phase);
    MICS_TRY(list_passes(b));
    int32_t index = 0;
    return phase == MICS_PHASE_TRAIN ? list_boundary(b) : list_agreement(b, &index);
}

static mics_status copy_slots(mics_schedule *schedule, const slot_pool *pool, int64_t **slots_out,
                              int32_t *count_out)
{
    void *block = NULL;
    MICS_TRY(
        mics_alloc(schedule->memory, MICS_MEM_HOST, (size_t)pool->count * sizeof(int64_t), &block));
    *slots_out = block;
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

mics_status mics_schedule_open(mics_memory *memory, const mics_schedule_spec *spec,
                               mics_schedule **schedule_out)
{
    MICS_TRY(check_schedule_spec(spec));
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(mics_schedule), &block));
    mics_schedule *schedule = block;
    schedule->memory = memory;
    schedule->spec = *spec;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_HOST,
                            (size_t)spec->model->unit_count * sizeof(int64_t), &block));
    schedule->padded_elems = block;
    for (int32_t u = 0; u < spec->model->unit_count; u++)
        schedule->padded_elems[u] = mics_layout_padded(&spec->mesh, spec->model->units[u].elems);
    MICS_TRY_OUT(place_activations(schedule));
    MICS_TRY_OUT(build(schedule));
    fill_ledger(schedule);
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
        mics_free(memory, schedule->units[u].grads);
    }
    for (int phase = 0; phase < MICS_PHASES; phase++)
        mics_free(memory, schedule->lists[phase].steps);
    mics_free(memory, schedule->units);
    mics_free(memory, schedule->padded_elems);
    mics_free(memory, schedule->param_slots);
    mics_free(memory, schedule->grad_slots);
    mics_free(memory, schedule);
}
