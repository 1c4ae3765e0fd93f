// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where activations and their gradients lie. The arena, in floats:
//
//   for each micro-batch in flight: blocks of units | boundary gradient
//   shared | scratch
//
// A unit's block (blocks.c) is its input and its saved tensors.
// `boundary gradient` is the gradient that passes from unit to unit. `shared` holds what backward
// needs and makes again (recomputation, and the loss): of one unit at a time.
// `scratch` holds what lives inside one step.
//
// Gradients of a unit. Backward walks the ops in reverse. A tensor's first gradient is written,
// later ones are added. ADD moves no data: both operands take the output's storage, counted, and a
// storage that is still read under another name is copied before it is added to.
#include "schedule/activations.h"
#include "base/free.h"
#include "base/size.h"
#include "schedule/rules.h"
#include <string.h>

enum { ALIGNED_FLOATS = MICS_ALIGNMENT / 4 };

// ---- space: first fit in a growing region ----

typedef struct extent {
    int64_t begin, end;
} extent;

typedef struct space {
    extent *used; // ascending
    int32_t count;
    int64_t high; // largest end so far
} space;

static int64_t space_take(space *s, int64_t elems)
{
    const int64_t need = mics_size_round_up(elems, ALIGNED_FLOATS);
    int64_t begin = 0;
    int32_t at = 0;
    while (at < s->count && s->used[at].begin - begin < need)
        begin = s->used[at++].end;
    memmove(&s->used[at + 1], &s->used[at], (size_t)(s->count - at) * sizeof(extent));
    s->used[at] = (extent){begin, begin + need};
    s->count++;
    if (begin + need > s->high)
        s->high = begin + need;
    return begin;
}

static void space_give(space *s, int64_t begin)
{
    for (int32_t at = 0; at < s->count; at++) {
        if (s->used[at].begin == begin) {
            memmove(&s->used[at], &s->used[at + 1], (size_t)(s->count - at - 1) * sizeof(extent));
            s->count--;
            return;
        }
    }
}

// ---- one unit ----

// A storage of a gradient: a place, and how many tensors' gradients lie there that are still to be
// read.
typedef struct storage {
    int64_t at;
    int64_t elems;
    int32_t readers;
    bool wide;     // numbers are fp32
    bool boundary; // the gradient between units: never given back to the space
} storage;

typedef struct unit_work {
    const mics_unit *unit;
    mics_unit_plan *plan;
    const mics_schedule_spec *spec;
    int64_t boundary_at, shared_at, scratch_at;
    lifetime *lives; // by tensor
    space space;
    storage *storages; // at most one a tensor, and copies
    int32_t storage_count;
    int32_t *storage_of; // by tensor; -1: no gradient yet
} unit_work;

// Last op that reads a tensor in forward; the op that makes it when none does.
static int32_t last_reader(const mics_unit *unit, int32_t tensor)
{
    int32_t last = -1;
    for (int32_t o = 0; o < unit->op_count; o++) {
        const mics_op *op = &unit->ops[o];
        if (op->in[0] == tensor || op->in[1] == tensor || op->routes == tensor || op->out == tensor)
            last = o;
    }
    return last;
}

static int64_t tensor_elems(const unit_work *work, int32_t tensor)
{
    return mics_schedule_tensor_elems(work->spec, &work->unit->tensors[tensor]);
}

// Saved tensors, statistics among them, go behind what the unit keeps, those that are made again to
// places of their own; the others live in scratch from the op that makes them to their last reader.
static void place_forward(unit_work *work)
{
    const mics_unit *unit = work->unit;
    mics_unit_plan *plan = work->plan;
    plan->shared_elems = 0;
    for (int32_t o = 0; o < unit->op_count; o++) {
        const int32_t made[] = {unit->ops[o].out, unit->ops[o].stats};
        for (int i = 0; i < 2; i++) {
            int32_t tensor = made[i];
            if (tensor < 0 || tensor == unit->out)
                continue;
            const int64_t elems = made_elems(work->spec, unit, tensor, i == 1);
            int64_t *end =
                work->lives[tensor] == LIFETIME_SAVED ? &plan->kept_elems : &plan->shared_elems;
            if (work->lives[tensor] == LIFETIME_STEP) {
                plan->tensor_at[tensor] = space_take(&work->space, elems);
            } else {
                plan->tensor_at[tensor] = *end;
                *end += mics_size_round_up(elems, ALIGNED_FLOATS);
            }
        }
        for (int32_t tensor = 1; tensor < unit->tensor_count; tensor++) {
            if (tensor != unit->out && work->lives[tensor] == LIFETIME_STEP &&
                last_reader(unit, tensor) == o)
                space_give(&work->space, plan->tensor_at[tensor]);
        }
    }
    plan->scratch_elems = work->space.high;
}

// Offsets were relative while the starts of their regions were unknown.
static void shift_forward(unit_work *work)
{
    const mics_unit *unit = work->unit;
    const int64_t starts[] = {[LIFETIME_STEP] = work->scratch_at,
                              [LIFETIME_SAVED] = work->plan->kept_at,
                              [LIFETIME_AGAIN] = work->shared_at};
    for (int32_t tensor = 1; tensor < unit->tensor_count; tensor++) {
        if (tensor != unit->out)
            work->plan->tensor_at[tensor] += starts[work->lives[tensor]];
    }
}

static mics_grad_call *add_call(unit_work *work, mics_grad_kind kind)
{
    mics_grad_call *call = &work->plan->grads[work->plan->grad_count++];
    *call = (mics_grad_call){.kind = kind, .op = -1, .dout = -1, .din = -1, .din_second = -1};
    return call;
}

// The boundary holds a tensor's gradient.
static void take_boundary(unit_work *work, int32_t tensor)
{
    storage *boundary = &work->storages[0];
    boundary->elems = tensor_elems(work, tensor);
    boundary->wide = work->unit->tensors[tensor].wide;
    boundary->readers = 1;
}

// A place of its own for a gradient like a tensor's.
static int32_t take_place(unit_work *work, int32_t tensor)
{
    const int64_t elems = tensor_elems(work, tensor);
    const int32_t index = work->storage_count++;
    work->storages[index] = (storage){.at = space_take(&work->space, elems),
                                      .elems = elems,
                                      .readers = 1,
                                      .wide = work->unit->tensors[tensor].wide};
    return index;
}

// A place of its own for a tensor's gradient; the unit's input takes the boundary as soon as that
// is free.
static int32_t new_storage(unit_work *work, int32_t tensor)
{
    if (tensor != 0 || work->storages[0].readers > 0)
        return take_place(work, tensor);
    take_boundary(work, tensor);
    return 0;
}

// One reader less; the last one gives the place back.
static void drop_reader(unit_work *work, int32_t index)
{
    storage *s = &work->storages[index];
    if (--s->readers == 0 && !s->boundary)
        space_give(&work->space, s->at);
}

// The place of a storage in the arena.
static int64_t place_of(const unit_work *work, int32_t index)
{
    const storage *s = &work->storages[index];
    return s->boundary ? work->boundary_at : work->scratch_at + s->at;
}

static void move_data(unit_work *work, mics_grad_kind kind, int32_t from, int32_t to)
{
    mics_grad_call *call = add_call(work, kind);
    call->dout = place_of(work, from);
    call->din = place_of(work, to);
    call->elems = work->storages[from].elems;
    call->wide = work->storages[from].wide;
}

// Before something is added to a tensor's gradient: it must be alone in its storage.
static void make_sole_reader(unit_work *work, int32_t tensor)
{
    int32_t shared = work->storage_of[tensor];
    if (work->storages[shared].readers == 1)
        return;
    int32_t own = new_storage(work, tensor);
    move_data(work, MICS_GRAD_COPY, shared, own);
    work->storages[shared].readers--;
    work->storage_of[tensor] = own;
}

static bool wants_gradient(const unit_work *work, int32_t tensor)
{
    const mics_tensor *tensors = work->unit->tensors;
    return tensor >= 0 && tensors[tensor].width > 0 && !tensors[tensor].fixed;
}

static void backward_add(unit_work *work, const mics_op *op)
{
    int32_t source = work->storage_of[op->out];
    for (int i = 0; i < MICS_OP_INPUTS; i++) {
        int32_t tensor = op->in[i];
        if (!wants_gradient(work, tensor))
            continue;
        if (work->storage_of[tensor] < 0) {
            work->storage_of[tensor] = source;
            work->storages[source].readers++;
        } else {
            make_sole_reader(work, tensor);
            move_data(work, MICS_GRAD_ADD, source, work->storage_of[tensor]);
        }
    }
}

// Adds what lies aside to a tensor's gradient, or makes it that.
static void settle_aside(unit_work *work, int32_t tensor, int32_t aside)
{
    if (work->storage_of[tensor] < 0) {
        work->storage_of[tensor] = aside;
        return;
    }
    make_sole_reader(work, tensor);
    move_data(work, MICS_GRAD_ADD, aside, work->storage_of[tensor]);
    drop_reader(work, aside);
}

static void backward_op(unit_work *work, int32_t index)
{
    const mics_op *op = &work->unit->ops[index];
    const int32_t tensor = op->in[0];
    const int32_t source = op->out >= 0 ? work->storage_of[op->out] : -1;
    bool add = false;
    if (wants_gradient(work, tensor)) {
        add = work->storage_of[tensor] >= 0;
        bool boundary_free = tensor == 0 && work->storages[0].readers == 0;
        bool in_place = !add && !boundary_free && source >= 0 &&
                        mics_op_def_get(op->kind)->backward_in_place &&
                        work->storages[source].readers == 1 &&
                        work->storages[source].elems == tensor_elems(work, tensor);
        if (add) {
            make_sole_reader(work, tensor);
        } else if (in_place) {
            work->storage_of[tensor] = source;
            work->storages[source].readers++;
        } else {
            work->storage_of[tensor] = new_storage(work, tensor);
        }
    }
    // A kernel that only overwrites gets a place of its own, which is added then.
    const bool aside = add && !mics_op_def_get(op->kind)->backward_adds;
    int32_t target = wants_gradient(work, tensor) ? work->storage_of[tensor] : -1;
    if (aside)
        target = take_place(work, tensor);
    const bool two = mics_op_def_get(op->kind)->backward_second && wants_gradient(work, op->in[1]);
    const int32_t second = two ? take_place(work, op->in[1]) : -1;
    mics_grad_call *call = add_call(work, MICS_GRAD_OP);
    call->op = index;
    call->dout = source >= 0 ? place_of(work, source) : -1;
    call->din = target >= 0 ? place_of(work, target) : -1;
    call->din_second = second >= 0 ? place_of(work, second) : -1;
    call->add_din = add && !aside;
    if (aside)
        settle_aside(work, tensor, target);
    if (second >= 0)
        settle_aside(work, op->in[1], second);
}

// The gradient of the unit's input must end where the unit before looks for its output's.
static void settle_input(unit_work *work)
{
    int32_t index = work->storage_of[0];
    if (!wants_gradient(work, 0) || index < 0 || work->storages[index].boundary)
        return;
    mics_grad_call *call = add_call(work, MICS_GRAD_COPY);
    call->dout = place_of(work, index);
    call->din = work->boundary_at;
    call->elems = tensor_elems(work, 0);
}

static void place_backward(unit_work *work)
{
    const mics_unit *unit = work->unit;
    work->plan->grad_count = 0;
    work->storage_count = 0;
    work->space.count = 0;
    for (int32_t tensor = 0; tensor < unit->tensor_count; tensor++)
        work->storage_of[tensor] = -1;
    work->storages[work->storage_count++] = (storage){.boundary = true};
    if (unit->out >= 0) {
        take_boundary(work, unit->out);
        work->storage_of[unit->out] = 0;
    }
    for (int32_t o = unit->op_count - 1; o >= 0; o--) {
        const mics_op *op = &unit->ops[o];
        if (!has_backward(unit, op) || (op->out >= 0 && work->storage_of[op->out] < 0))
            continue; // nothing downstream depends on it, or nothing trained leads to it
        if (mics_op_def_get(op->kind)->backward_passes)
            backward_add(work, op);
        else
            backward_op(work, o);
        if (op->out >= 0)
            drop_reader(work, work->storage_of[op->out]);
    }
    settle_input(work);
}

// ---- the model ----

static mics_status open_plan(mics_schedule *schedule, int32_t u)
{
    const mics_unit *unit = &schedule->spec.model->units[u];
    mics_unit_plan *plan = &schedule->units[u];
    if (!mics_unit_computes(unit))
        return MICS_OK;
    MICS_TRY(MICS_NEW(schedule->memory, unit->tensor_count, &plan->tensor_at));
    // An op makes one call, at most one copy or add for each input, and one call settles the input.
    size_t calls = (size_t)unit->op_count * (1 + 2 * MICS_OP_INPUTS) + 1;
    MICS_TRY(MICS_NEW(schedule->memory, calls, &plan->grads));
    plan->loss = mics_op_def_get(unit->ops[unit->op_count - 1].kind)->loss;
    MICS_TRY(MICS_NEW(schedule->memory, unit->op_count, &plan->again));
    return MICS_OK;
}

// Elements of the largest input of a unit.
static int64_t largest_boundary(const mics_schedule_spec *spec)
{
    int64_t largest = 0;
    for (int32_t u = 1; u < spec->model->unit_count; u++) {
        const mics_unit *unit = &spec->model->units[u];
        const int64_t elems =
            mics_unit_computes(unit) ? mics_schedule_tensor_elems(spec, &unit->tensors[0]) : 0;
        if (elems > largest)
            largest = elems;
    }
    return largest;
}

// Marks, in the order backward runs, which gradients an earlier op of the same micro-step has
// already written.
static void mark_second_writers(mics_schedule *schedule, bool *written, const int32_t *first_param)
{
    const mics_model *model = schedule->spec.model;
    for (int32_t u = model->unit_count - 1; u >= 0; u--) {
        mics_unit_plan *plan = &schedule->units[u];
        for (int32_t c = 0; c < plan->grad_count; c++) {
            mics_grad_call *call = &plan->grads[c];
            for (int p = 0; call->kind == MICS_GRAD_OP && p < MICS_OP_PARAMS; p++) {
                mics_param_ref ref = model->units[u].ops[call->op].params[p];
                if (ref.unit < 0 || mics_model_param(model, ref)->frozen)
                    continue;
                bool *seen = &written[first_param[ref.unit] + ref.param];
                call->add_params[p] = *seen;
                *seen = true;
            }
        }
    }
}

static mics_status mark_accumulation(mics_schedule *schedule)
{
    const mics_model *model = schedule->spec.model;
    void *first_param = NULL, *written = NULL;
    mics_status status = MICS_OK;
    size_t params = 0;
    MICS_TRY_OUT(mics_alloc(schedule->memory, MICS_MEM_HOST,
                            (size_t)model->unit_count * sizeof(int32_t), &first_param));
    for (int32_t u = 0; u < model->unit_count; u++) {
        ((int32_t *)first_param)[u] = (int32_t)params;
        params += (size_t)model->units[u].param_count;
    }
    MICS_TRY_OUT(mics_alloc(schedule->memory, MICS_MEM_HOST, params * sizeof(bool), &written));
    mark_second_writers(schedule, written, first_param);
out:
    mics_free(schedule->memory, first_param);
    mics_free(schedule->memory, written);
    return status;
}

// Scratch arrays for the unit with the most tensors.
static mics_status open_work(mics_schedule *schedule, unit_work *work)
{
    const mics_model *model = schedule->spec.model;
    int32_t most = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        if (model->units[u].tensor_count > most)
            most = model->units[u].tensor_count;
    }
    const size_t storages = (size_t)most * (1 + MICS_OP_INPUTS) + 1;
    MICS_TRY(MICS_NEW(schedule->memory, (storages + 1), &work->space.used));
    MICS_TRY(MICS_NEW(schedule->memory, storages, &work->storages));
    MICS_TRY(MICS_NEW(schedule->memory, most, &work->storage_of));
    MICS_TRY(MICS_NEW(schedule->memory, most, &work->lives));
    return MICS_OK;
}

// Returns: whether it computes.
static bool begin_unit(const mics_schedule *schedule, unit_work *work, int32_t u)
{
    work->unit = &schedule->spec.model->units[u];
    work->plan = &schedule->units[u];
    work->space.count = 0;
    work->space.high = 0;
    return mics_unit_computes(work->unit);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Forward places of all units, then backward places, once the regions before scratch are known.
static mics_status place_units(mics_schedule *schedule, unit_work *work)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const int32_t units = spec->model->unit_count;
    int64_t shared_elems = 0, scratch_elems = 0;
    for (int32_t u = 0; u < units; u++) {
        if (!begin_unit(schedule, work, u))
            continue;
        if (u > 0)
            work->plan->kept_elems = mics_size_round_up(tensor_elems(work, 0), ALIGNED_FLOATS);
        choose_again(spec, u, work->plan, work->lives);
        find_lifetimes(spec, u, work->plan->again, work->lives);
        place_forward(work);
        shared_elems = larger(shared_elems, work->plan->shared_elems);
    }
    MICS_TRY(place_blocks(schedule, &work->boundary_at));
    schedule->in_flight_elems =
        work->boundary_at + mics_size_round_up(largest_boundary(spec), ALIGNED_FLOATS);
    work->shared_at = spec->layered_micro_steps * schedule->in_flight_elems;
    work->scratch_at = work->shared_at + shared_elems;
    for (int32_t u = 0; u < units; u++) {
        if (!begin_unit(schedule, work, u))
            continue;
        find_lifetimes(spec, u, work->plan->again, work->lives);
        shift_forward(work);
        place_backward(work);
        work->plan->scratch_elems = larger(work->plan->scratch_elems, work->space.high);
        scratch_elems = larger(scratch_elems, work->plan->scratch_elems);
    }
    schedule->activation_elems = work->scratch_at + scratch_elems;
    return MICS_OK;
}

// ---- taken over from another schedule ----

// Buffers behind those of the micro-batches in flight move back when more micro-batches are in
// flight.
static int64_t moved(const mics_schedule *like, int64_t at, int64_t by)
{
    return at >= like->in_flight_elems ? at + by : at;
}

static mics_status copy_plan(mics_schedule *schedule, int32_t u, int64_t by)
{
    const mics_schedule *like = schedule->spec.like;
    const mics_unit_plan *from = &like->units[u];
    const int32_t tensors = schedule->spec.model->units[u].tensor_count;
    mics_unit_plan *plan = &schedule->units[u];
    *plan = *from;
    plan->tensor_at = NULL;
    plan->grads = NULL;
    plan->again = NULL;
    MICS_TRY(MICS_NEW(schedule->memory, tensors, &plan->tensor_at));
    MICS_TRY(MICS_NEW(schedule->memory, schedule->spec.model->units[u].op_count, &plan->again));
    MICS_TRY(MICS_NEW(schedule->memory, plan->grad_count, &plan->grads));
    for (int32_t t = 0; t < tensors; t++)
        plan->tensor_at[t] = moved(like, from->tensor_at[t], by);
    for (int32_t o = 0; o < schedule->spec.model->units[u].op_count; o++)
        plan->again[o] = from->again[o];
    for (int32_t c = 0; c < plan->grad_count; c++) {
        plan->grads[c] = from->grads[c];
        plan->grads[c].dout = moved(like, from->grads[c].dout, by);
        plan->grads[c].din = moved(like, from->grads[c].din, by);
        plan->grads[c].din_second = moved(like, from->grads[c].din_second, by);
    }
    return MICS_OK;
}

static mics_status copy_activations(mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const mics_schedule *like = spec->like;
    const int64_t by =
        (spec->layered_micro_steps - like->spec.layered_micro_steps) * like->in_flight_elems;
    MICS_TRY(MICS_NEW(schedule->memory, spec->model->unit_count, &schedule->units));
    for (int32_t u = 0; u < spec->model->unit_count; u++)
        MICS_TRY(copy_plan(schedule, u, by));
    schedule->in_flight_elems = like->in_flight_elems;
    schedule->offload_elems = like->offload_elems;
    schedule->offload_max = like->offload_max;
    schedule->activation_elems = like->activation_elems + by;
    return MICS_OK;
}

mics_status place_activations(mics_schedule *schedule)
{
    if (schedule->spec.like != NULL)
        return copy_activations(schedule);
    const mics_model *model = schedule->spec.model;
    unit_work work = {.spec = &schedule->spec};
    mics_status status = MICS_OK;
    void *block = NULL;
    MICS_TRY_OUT(mics_alloc(schedule->memory, MICS_MEM_HOST,
                            (size_t)model->unit_count * sizeof(mics_unit_plan), &block));
    schedule->units = block;
    for (int32_t u = 0; u < model->unit_count; u++)
        MICS_TRY_OUT(open_plan(schedule, u));
    MICS_TRY_OUT(open_work(schedule, &work));
    MICS_TRY_OUT(place_units(schedule, &work));
    MICS_TRY_OUT(mark_accumulation(schedule));
out:
    MICS_FREE_ALL(schedule->memory, work.space.used, work.storages, work.storage_of, work.lives);
    return status;
}
