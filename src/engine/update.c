// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The optimizer: calls of it over a unit's parameters, matrices and states in fewer bits.
#include "engine/update.h"
#include "base/rng.h"
#include "engine/matrices.h"
#include "engine/scrub.h"
#include "engine/state.h"
#include "schedule/rules.h"

void add_squares(const mics_engine *engine, int32_t unit, int32_t degree, double *sum)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const void *grads = grads_at(engine, unit, degree, 0);
    const int64_t elems = engine->schedule->padded_elems[unit] / degree;
    if (mics_schedule_rounds_sums(&engine->schedule->spec))
        engine->ops->sum_squares_rounded(&at, sum, grads, elems);
    else
        engine->ops->sum_squares(&at, sum, grads, elems);
}

// Of the whole call's flips those of its part.
static void cut_flips(mics_optimizer_update *call)
{
    int32_t kept = 0;
    for (int32_t f = 0; f < call->flip_count; f++) {
        const int64_t at = call->flips[f] - call->begin;
        if (at <= 0)
            call->decays = !call->decays;
        else if (at < call->elems)
            call->flips[kept++] = at;
    }
    call->flip_count = kept;
}

// The numbers of a unit that an optimizer is called for at once: call->rows of a parameter that
// begin at element `first` of the unit. The part of them that is held, if there is one; the direction
// is that of all that is held.
static void call_optimizer(mics_engine *engine, const optimizer_shard *held, int64_t first,
                           mics_optimizer_update *call)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const int64_t last = first + call->rows * call->columns;
    const int64_t begin = first > held->range.begin ? first : held->range.begin;
    const int64_t end = last < held->range.end ? last : held->range.end;
    if (begin >= end)
        return;
    const int64_t from = begin - held->range.begin;
    call->begin = begin - first;
    call->elems = end - begin;
    cut_flips(call);
    call->params = held->params == NULL ? NULL : elem_at(engine, held->params, from);
    call->masters = held->masters + from;
    call->grads = held->grads == NULL ? NULL : held->grads + from;
    if (held->rounded_grads != NULL)
        call->rounded_grads = elem_at(engine, held->rounded_grads, from);
    for (int s = 0; s < MICS_OPTIMIZER_STATES; s++)
        call->states[s] = held->states[s] == NULL ? NULL : held->states[s] + from;
    call->direction = call->direction == NULL ? NULL : call->direction + from;
    engine->ops->update[engine->spec.optimizer.kind](&at, call);
}

static mics_optimizer_update begin_call(const mics_engine *engine, const mics_param *param)
{
    return (mics_optimizer_update){.optimizer = &engine->spec.optimizer,
                                   .lr = engine->pending.lr,
                                   .grad_scale = engine->pending.grad_scale,
                                   .step = engine->pending.step,
                                   .decays = param->decay};
}

// The rank's part of each matrix that is made orthogonal.
static void update_matrices(mics_engine *engine, int32_t unit, const optimizer_shard *held,
                            mics_update_phase phase)
{
    const mics_schedule *schedule = engine->schedule;
    const int64_t base = mics_schedule_unit_block(schedule, unit, engine->rank).begin;
    const int64_t params = mics_schedule_unit_params(schedule, unit, engine->rank).begin;
    for (int32_t m = schedule->matrix_at[unit]; m < schedule->matrix_at[unit + 1]; m++) {
        const mics_matrix *matrix = &schedule->matrices[m];
        const int32_t owner =
            phase == MICS_UPDATE_APPLY ? matrix->owner : schedule->rounds[unit].index;
        mics_optimizer_update call =
            begin_call(engine, &schedule->spec.model->units[unit].params[params + matrix->param]);
        call.phase = phase;
        call.rows = matrix->rows;
        call.columns = matrix->columns;
        call.direction = momentum_for(engine, unit, owner);
        call_optimizer(engine, held, base + matrix->first, &call);
    }
}

// Joins what follows a call's first parameter, gaps between them included, whose numbers are 0 and
// stay so: up to a matrix that is made orthogonal, or where there are more flips than a call takes.
// Returns the first parameter that has not joined.
static int64_t join_params(const mics_unit *unit, mics_range params, bool matrices,
                           mics_optimizer_update *call)
{
    const mics_param *first = &unit->params[params.begin];
    int64_t p = params.begin;
    for (; p < params.end && !(matrices && unit->params[p].hidden); p++) {
        const mics_param *param = &unit->params[p];
        if (p > params.begin && param->decay != param[-1].decay) {
            if (call->flip_count == MICS_UPDATE_FLIPS)
                break;
            call->flips[call->flip_count++] = param->offset - first->offset;
        }
        call->columns = param->offset + param->elems - first->offset;
    }
    return p;
}

// Tensors differ in weight decay alone, so neighbours with the same decay are updated in one call.
static void update_params(mics_engine *engine, int32_t unit_index, const optimizer_shard *held)
{
    const mics_unit *unit = &engine->schedule->spec.model->units[unit_index];
    const bool matrices = engine->schedule->rounds[unit_index].count > 0;
    const mics_range params = mics_schedule_unit_params(engine->schedule, unit_index, engine->rank);
    for (int64_t p = params.begin; p < params.end;) {
        const mics_param *param = &unit->params[p];
        if (matrices && param->hidden) {
            p++;
            continue;
        }
        mics_optimizer_update call = begin_call(engine, param);
        call.rows = 1;
        if (engine->spec.other_rate > 0)
            call.lr = (float)((double)call.lr * engine->spec.other_rate);
        p = join_params(unit, (mics_range){p, params.end}, matrices, &call);
        call_optimizer(engine, held, param->offset, &call);
    }
    update_matrices(engine, unit_index, held, MICS_UPDATE_APPLY);
}

// ---- states that are held in fewer bits ----

// Random streams of a run's seed that belong to rounding, one a unit; see dropout_stream of
// compute_steps.c.
static const uint64_t rounding_stream = (uint64_t)0x5C << 56;

// What a state of a shard is rounded with from element `begin` on: the same on every replica, and
// whatever O.
static mics_state_draw draw_of(const mics_engine *engine, int32_t unit, int32_t state,
                               int64_t begin)
{
    const int32_t degree = engine->schedule->sharding[unit].optimizer;
    return (mics_state_draw){.key =
                                 mics_rng_bits(engine->spec.seed, rounding_stream + (uint64_t)unit,
                                               (uint64_t)engine->pending.step),
                             .first = unit_range(engine, unit, degree).begin + begin,
                             .state = (uint32_t)state};
}

// `elems` of a shard from element `begin` on, with their states in the workspace.
static optimizer_shard part_of(const mics_engine *engine, const optimizer_shard *held,
                               int64_t begin, int64_t elems)
{
    const int32_t states = mics_optimizer_def_get(engine->spec.optimizer.kind)->states;
    optimizer_shard part = *held;
    part.range.begin += begin;
    part.range.end = part.range.begin + elems;
    part.masters += begin;
    if (held->grads != NULL)
        part.grads += begin;
    if (held->rounded_grads != NULL)
        part.rounded_grads = elem_at(engine, held->rounded_grads, begin);
    part.params = held->params == NULL ? NULL : elem_at(engine, held->params, begin);
    for (int32_t s = 0; s < states; s++)
        part.states[s] = engine->workspace + s * state_part_elems(engine);
    return part;
}

// Part by part: states are made fp32, updated, and rounded again.
static void update_packed(mics_engine *engine, int32_t unit, const optimizer_shard *held)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const int32_t states = mics_optimizer_def_get(engine->spec.optimizer.kind)->states;
    const int64_t elems = held->range.end - held->range.begin, most = state_part_elems(engine);
    for (int64_t begin = 0; begin < elems; begin += most) {
        const int64_t count = elems - begin < most ? elems - begin : most;
        const optimizer_shard part = part_of(engine, held, begin, count);
        for (int32_t s = 0; s < states; s++) {
            const mics_state_part state = state_part(engine, unit, s, begin, count);
            engine->ops->unpack_state(&at, part.states[s], &state);
        }
        update_params(engine, unit, &part);
        for (int32_t s = 0; s < states; s++) {
            const mics_state_part state = state_part(engine, unit, s, begin, count);
            const mics_state_draw draw = draw_of(engine, unit, s, begin);
            engine->ops->pack_state(&at, &state, part.states[s], &draw);
        }
    }
}

static void update_shard(mics_engine *engine, int32_t unit)
{
    optimizer_shard held = optimizer_shard_of(engine, unit);
    if (mics_schedule_codes(engine->schedule, unit)) // parameter sync needs what they were
        held.params = NULL;
    if (engine->schedule->spec.state_dtype == MICS_STATE_FP32)
        update_params(engine, unit, &held);
    else
        update_packed(engine, unit, &held);
}

// Replicas of a deferred update are compared in the agreement of the step that runs it.
static void sum_updated(mics_engine *engine, int32_t unit)
{
    const int32_t degree = engine->schedule->sharding[unit].optimizer;
    if (mics_schedule_defers(engine->schedule) && !engine->completing)
        add_squares(engine, unit, degree, &engine->sums->updated_squares);
}

void call_before_update(mics_engine *engine)
{
    if (!engine->changes && engine->spec.before_update != NULL)
        engine->spec.before_update(engine->spec.before_update_ctx);
    engine->changes = true;
}

void run_momentum(mics_engine *engine, int32_t unit)
{
    if (engine->pending.left == 0)
        return;
    const optimizer_shard held = optimizer_shard_of(engine, unit);
    call_before_update(engine);
    scrub_check(engine, unit);
    update_matrices(engine, unit, &held, MICS_UPDATE_MOMENTUM);
    copy_to_owners(engine, unit);
}

void run_update(mics_engine *engine, int32_t unit)
{
    pending_update *pending = &engine->pending;
    if (pending->left == 0)
        return;
    call_before_update(engine);
    sum_updated(engine, unit);
    scrub_check(engine, unit);
    update_shard(engine, unit);
    scrub_store(engine, unit);
    pthread_mutex_lock(&engine->mutex);
    pending->left--;
    pthread_mutex_unlock(&engine->mutex);
}
