// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The computing steps of a schedule: units forward and backward, the norm, clipping and the
// optimizer.
#include "engine/compute_steps.h"
#include "base/rng.h"
#include "engine/ballot.h"
#include "engine/fusion.h"
#include "engine/graphs.h"
#include "engine/matrices.h"
#include "engine/run_op.h"
#include "engine/state.h"
#include "engine/status.h"
#include "mics/log.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static int64_t batch_tokens(const mics_engine *engine)
{
    return engine->schedule->spec.batch.sequences * engine->schedule->spec.batch.length;
}

// Tokens of a micro-step go to a device through host memory of its own, which nobody touches until
// the step's agreement has waited for all that was enqueued.
static void upload_tokens(mics_engine *engine, const mics_step *step, int32_t *staged)
{
    const mics_device *device = engine->device;
    const int64_t tokens = batch_tokens(engine), vocab = engine->schedule->spec.model->vocab;
    mics_op_sort_tokens(staged + 2 * tokens, staged, tokens, vocab, engine->counts);
    device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, in_flight_tokens(engine, step->in_flight),
                      staged, (size_t)engine->schedule->data_elems * sizeof(int32_t));
}

// Random streams of a run's seed that belong to dropout, one a step, as data/sample.c has those of
// the order of samples.
static const uint64_t dropout_stream = (uint64_t)0x5B << 56;

// What the micro-batch's masks are drawn from: a rank's sequences of a micro-step follow those of
// the ranks before it, and those of the micro-steps before.
static void place_draw(const mics_engine *engine, int32_t micro_step, int32_t *data)
{
    const mics_schedule *schedule = engine->schedule;
    const mics_schedule_spec *spec = &schedule->spec;
    if (schedule->data_elems == schedule->data_draw)
        return;
    const uint64_t key = mics_rng_bits(engine->spec.seed, dropout_stream, (uint64_t)engine->step);
    const int64_t place = (int64_t)micro_step * spec->mesh.ranks + engine->rank;
    const mics_dropout_draw draw = {.key = {(uint32_t)key, (uint32_t)(key >> 32)},
                                    .sequence = (uint32_t)(place * spec->batch.sequences)};
    memcpy(data + schedule->data_draw, &draw, sizeof draw);
}

static int64_t count_targets(const int32_t *targets, int64_t tokens)
{
    int64_t counted = 0;
    for (int64_t t = 0; t < tokens; t++)
        counted += targets[t] >= 0;
    return counted;
}

static mics_status read_segments(const mics_engine *engine, int32_t micro_step, int32_t *data)
{
    int32_t *segments = data + engine->schedule->data_segments;
    const mics_batch_source *source = engine->source;
    if (engine->schedule->data_segments == engine->schedule->data_draw)
        return MICS_OK;
    if (source->read_segments != NULL)
        return source->read_segments(source->ctx, micro_step, data, segments);
    memset(segments, 0, (size_t)batch_tokens(engine) * sizeof *segments);
    return MICS_OK;
}

// The first unit of a micro-step needs its tokens.
static mics_status read_tokens(mics_engine *engine, const mics_step *step)
{
    if (engine->micro_step_read[step->in_flight] == step->micro_step)
        return MICS_OK;
    const int64_t tokens = batch_tokens(engine);
    int32_t *staged = engine->staged_tokens; // NULL: they are read where they are used
    int32_t *inputs = staged != NULL ? staged + engine->schedule->data_elems * step->micro_step
                                     : in_flight_tokens(engine, step->in_flight);
    MICS_TRY(engine->source->read(engine->source->ctx, step->micro_step, inputs, inputs + tokens));
    MICS_TRY(read_segments(engine, step->micro_step, inputs));
    engine->agreements[engine->rank].counted += count_targets(inputs + tokens, tokens);
    place_draw(engine, step->micro_step, inputs);
    if (staged != NULL)
        upload_tokens(engine, step, inputs);
    engine->micro_step_read[step->in_flight] = step->micro_step;
    return MICS_OK;
}

// Adds up the losses that the LM head left.
static void collect_losses(mics_engine *engine)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    engine->ops->sum_losses(&at, &engine->sums->loss, engine->losses, batch_tokens(engine));
}

// Sends a device's sums to where the agreement waits for them.
static void send_sums(mics_engine *engine)
{
    const mics_device *device = engine->device;
    if (engine->host_sums != engine->sums)
        device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, engine->host_sums, engine->sums,
                          sizeof *engine->sums);
}

// The loss and how many tokens of the list's batch it is the mean of, of all ranks.
static void settle_loss(mics_engine *engine)
{
    mics_step_result *result = &engine->result;
    double sum = 0;
    for (int32_t rank = 0; rank < engine->schedule->spec.mesh.ranks; rank++) {
        sum += engine->agreements[rank].loss;
        result->counted += engine->agreements[rank].counted;
    }
    result->loss = result->counted > 0 ? sum / (double)result->counted : NAN;
}

// Gradients are of the sum of losses over all tokens of the step; those that count may be fewer,
// and no rank knows how many before the agreement. 1 where all count.
static double count_factor(const mics_engine *engine)
{
    const mics_schedule_spec *spec = &engine->schedule->spec;
    const double tokens = (double)batch_tokens(engine) * spec->micro_steps * spec->mesh.ranks;
    return engine->result.counted > 0 ? tokens / (double)engine->result.counted : 1;
}

// The step's ops of its unit. In training the loss is of the backward.
static void forward(mics_engine *engine, const mics_step *step)
{
    const int32_t end = step->part.op_end;
    for (int32_t op = step->part.op; op < end; op++) {
        const mics_op_pair *pair = op + 1 < end ? fused_forward(engine, step->unit, op) : NULL;
        if (pair != NULL)
            run_fused_forward(engine, step, op++, pair);
        else
            run_op_forward(engine, step, op);
    }
    if (engine->phase == MICS_PHASE_EVAL && engine->schedule->units[step->unit].loss &&
        mics_schedule_ends_pass(engine->schedule, step)) {
        collect_losses(engine);
        send_sums(engine);
    }
}

// Alignment gaps between tensors, and the padding behind the last one, take part in reductions and
// norms: they are 0.
static void zero_gaps(const mics_engine *engine, int32_t unit_index, void *grads)
{
    const mics_device *device = engine->device;
    const mics_unit *unit = &engine->schedule->spec.model->units[unit_index];
    const mics_range params = mics_schedule_unit_params(engine->schedule, unit_index, engine->rank);
    const int64_t base = mics_schedule_unit_block(engine->schedule, unit_index, engine->rank).begin;
    for (int64_t p = params.begin; p < params.end; p++) {
        int64_t end = unit->params[p].offset + unit->params[p].elems - base;
        int64_t next = p + 1 < params.end ? unit->params[p + 1].offset - base
                                          : engine->schedule->padded_elems[unit_index];
        if (end < next)
            device->ops->zero(device->ctx, MICS_STREAM_COMPUTE, elem_at(engine, grads, end),
                              (size_t)(next - end) * engine->elem_bytes);
    }
}

// Gradients of a micro-step that nobody reduces are added to their accumulator.
static void fold_grads(mics_engine *engine, const mics_step *step)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    for (int32_t i = 0; i < step->use_count; i++) {
        const mics_step_use *use = &step->uses[i];
        if (use->fold)
            engine->ops->sum_blocks(&at, engine->grads + engine->map.grads[use->unit],
                                    used_grads(engine, step, use->unit), NULL, 0, 0,
                                    engine->schedule->padded_elems[use->unit], use->accumulate);
    }
}

static void backward(mics_engine *engine, const mics_step *step)
{
    const mics_unit_plan *plan = &engine->schedule->units[step->unit];
    forward(engine, step);
    for (int32_t i = 0; i < step->use_count; i++) {
        void *grads = used_grads(engine, step, step->uses[i].unit);
        if (grads != NULL)
            zero_gaps(engine, step->uses[i].unit, grads);
    }
    for (int32_t i = step->part.call; i < step->part.call_end; i++) {
        const mics_op_pair *pair = fused_backward(engine, step->unit, i);
        if (pair != NULL)
            run_fused_backward(engine, step, i++, pair);
        else
            run_grad_call(engine, step, &plan->grads[i]);
    }
    fold_grads(engine, step);
    if (plan->loss && mics_schedule_ends_pass(engine->schedule, step))
        collect_losses(engine);
}

// Squares of what the rank has of a unit's gradients at a degree.
static void add_squares(const mics_engine *engine, int32_t unit, int32_t degree, double *sum)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const void *grads = grads_at(engine, unit, degree, 0);
    const int64_t elems = engine->schedule->padded_elems[unit] / degree;
    if (mics_schedule_rounds_sums(&engine->schedule->spec))
        engine->ops->sum_squares_rounded(&at, sum, grads, elems);
    else
        engine->ops->sum_squares(&at, sum, grads, elems);
}

// Over all ranks each element of the model is counted once.
static void norm(mics_engine *engine)
{
    for (int32_t unit = 0; unit < engine->schedule->spec.model->unit_count; unit++) {
        const int32_t ranks = mics_schedule_unit_ranks(engine->schedule, unit);
        add_squares(engine, unit, ranks, &engine->sums->sum_squares);
    }
    engine->agreements[engine->rank].told = cast_ballot(engine);
    send_sums(engine);
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

// What differs by tensor is decay alone, so that neighbours are updated at once.
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

// Random streams of a run's seed that belong to rounding, one a unit; see dropout_stream.
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
    const optimizer_shard held = optimizer_shard_of(engine, unit);
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

// Once, before the first number of the state changes.
static void tell_update(mics_engine *engine)
{
    if (!engine->pending.begun && engine->spec.before_update != NULL)
        engine->spec.before_update(engine->spec.before_update_ctx);
    engine->pending.begun = true;
}

static void momentum(mics_engine *engine, int32_t unit)
{
    if (engine->pending.left == 0)
        return;
    const optimizer_shard held = optimizer_shard_of(engine, unit);
    tell_update(engine);
    update_matrices(engine, unit, &held, MICS_UPDATE_MOMENTUM);
    copy_to_owners(engine, unit);
}

static void update(mics_engine *engine, int32_t unit)
{
    pending_update *pending = &engine->pending;
    if (pending->left == 0)
        return;
    tell_update(engine);
    sum_updated(engine, unit);
    update_shard(engine, unit);
    pthread_mutex_lock(&engine->mutex);
    pending->left--;
    pthread_mutex_unlock(&engine->mutex);
}

// ---- what the ranks agreed on ----

// A sum of cross-entropies may be below 0 by what fp32 rounds; and no model is that much worse than
// a guess, as every token would have to be all but ruled out.
static bool is_cross_entropy(const mics_engine *engine, double loss)
{
    static const double ROUNDING = -1e-6;
    const double guess = log((double)engine->schedule->spec.model->vocab);
    return loss >= ROUNDING && loss <= guess + MICS_MAX_LOSS_ABOVE_GUESS;
}

static mics_verdict verdict_of(const mics_engine *engine)
{
    const double loss = engine->result.loss, norm_all = engine->result.grad_norm;
    if ((engine->result.told & TOLD_HOLD) != 0) // whatever its numbers are, nobody uses them
        return MICS_VERDICT_HELD;
    if (mics_engine_compare_grads(engine).found)
        return MICS_VERDICT_DIVERGED;
    if (engine->result.counted == 0)
        return MICS_VERDICT_EMPTY;
    if (!isfinite(norm_all) && isfinite(loss) && engine->dtype == MICS_DTYPE_FP16)
        return MICS_VERDICT_OVERFLOW;
    if (!isfinite(norm_all) || !isfinite(loss))
        return MICS_VERDICT_NOT_FINITE;
    if (!is_cross_entropy(engine, loss))
        return MICS_VERDICT_IMPOSSIBLE;
    return loss > engine->limits.max_loss ? MICS_VERDICT_SPIKE : MICS_VERDICT_UPDATED;
}

// A step that leaves the parameters alone for another reason than an overflow is none of the
// scaler's.
static mics_status follow_verdict(mics_engine *engine)
{
    const mics_loss_scaling *scaling = &engine->spec.loss_scaling;
    const mics_verdict verdict = engine->result.verdict;
    const bool overflow = verdict == MICS_VERDICT_OVERFLOW;
    engine->result.skipped = overflow;
    if (verdict == MICS_VERDICT_NOT_FINITE || verdict == MICS_VERDICT_IMPOSSIBLE ||
        (overflow && mics_scaler_is_exhausted(scaling, &engine->scaler))) {
        engine->all_know = true;
        return MICS_ERR_NUMERIC;
    }
    if (overflow || verdict == MICS_VERDICT_UPDATED)
        mics_scaler_update(scaling, overflow, &engine->scaler);
    return MICS_OK;
}

static void begin_update(mics_engine *engine, double factor)
{
    pthread_mutex_lock(&engine->mutex);
    engine->pending = (pending_update){.left = engine->schedule->spec.model->unit_count,
                                       .step = engine->step - engine->scaler.skipped,
                                       .lr = engine->lr,
                                       .grad_scale = (float)(factor / engine->loss_scale)};
    pthread_mutex_unlock(&engine->mutex);
}

// What steps report and nothing depends on.
static void settle_report(mics_engine *engine)
{
    mics_step_result *result = &engine->result;
    for (int32_t rank = 0; rank < engine->schedule->spec.mesh.ranks; rank++) {
        const mics_agreement *of = &engine->agreements[rank];
        if (of->memory_peak_bytes > result->memory_peak_bytes)
            result->memory_peak_bytes = of->memory_peak_bytes;
        for (int sum = 0; sum < MICS_ROUTER_SUMS; sum++)
            result->router_sums[sum] += of->router_sums[sum];
    }
}

// Every rank has every rank's sums and draws the same conclusions from them, so nobody is left
// waiting.
mics_status settle_step(mics_engine *engine)
{
    const mics_mesh *mesh = &engine->schedule->spec.mesh;
    double sum = 0;
    for (int32_t rank = 0; rank < mesh->ranks; rank++)
        sum += engine->agreements[rank].sum_squares;
    settle_loss(engine);
    settle_report(engine);
    const double counts = count_factor(engine), clip = engine->spec.clip;
    const double norm_all = sqrt(sum) / engine->loss_scale * counts;
    engine->result.grad_norm = norm_all;
    engine->result.loss_scale = engine->loss_scale;
    for (int32_t rank = 0; rank < mesh->ranks; rank++)
        engine->result.told |= (uint32_t)engine->agreements[rank].told;
    // As torch.nn.utils.clip_grad_norm_ has it.
    const double factor = clip > 0 && clip < norm_all + 1e-6 ? clip / (norm_all + 1e-6) : 1;
    engine->result.verdict = verdict_of(engine);
    if (engine->result.verdict == MICS_VERDICT_UPDATED)
        begin_update(engine, factor * counts);
    return follow_verdict(engine);
}

mics_status settle_evaluation(mics_engine *engine)
{
    settle_loss(engine);
    const double loss = engine->result.loss;
    if (engine->result.counted == 0 || (isfinite(loss) && is_cross_entropy(engine, loss)))
        return MICS_OK;
    engine->all_know = true;
    if (engine->rank != 0)
        return MICS_ERR_NUMERIC;
    return mics_fail(MICS_ERR_NUMERIC,
                     "evaluation: the loss is %g, %s: the parameters are not those of a trained "
                     "model",
                     loss, isfinite(loss) ? "which no cross-entropy is" : "not finite");
}

static void explain_divergence(const mics_engine *engine, char *text, size_t capacity)
{
    const mics_divergence found = mics_engine_compare_grads(engine);
    if (found.other < 0)
        snprintf(text, capacity,
                 "step %lld: rank %d has other gradients after the second hop than the %d ranks "
                 "that own the same",
                 (long long)engine->step - 1, (int)found.rank, (int)found.replicas - 1);
    else
        snprintf(text, capacity,
                 "step %lld: ranks %d and %d own the same and have different gradients of it after "
                 "the second hop",
                 (long long)engine->step - 1, (int)found.rank, (int)found.other);
}

char *mics_engine_explain(const mics_engine *engine, char *text, size_t capacity)
{
    const mics_step_result *result = &engine->result;
    const long long step = (long long)engine->step;
    const double guess = log((double)engine->schedule->spec.model->vocab);
    snprintf(text, capacity, "%s", "");
    switch (result->verdict) {
    case MICS_VERDICT_UPDATED:
    case MICS_VERDICT_HELD:
        break;
    case MICS_VERDICT_OVERFLOW:
        snprintf(text, capacity,
                 "step %lld: gradients overflow fp16 at a loss scale of %g, which may not become "
                 "smaller; parameters are as after the step before; try bf16, or a smaller "
                 "learning rate",
                 step, result->loss_scale);
        break;
    case MICS_VERDICT_SPIKE:
        snprintf(text, capacity, "step %lld: loss %g, above %g", step, result->loss,
                 engine->limits.max_loss);
        break;
    case MICS_VERDICT_EMPTY:
        snprintf(text, capacity, "step %lld: no token of the global batch counts", step);
        break;
    case MICS_VERDICT_DIVERGED:
        explain_divergence(engine, text, capacity);
        break;
    case MICS_VERDICT_NOT_FINITE:
        snprintf(text, capacity,
                 "step %lld: loss %g, gradient norm %g: not finite; parameters are as after the "
                 "step before; try a smaller learning rate or gradient_clipping",
                 step, result->loss, result->grad_norm);
        break;
    case MICS_VERDICT_IMPOSSIBLE:
        snprintf(text, capacity,
                 "step %lld: loss %g, which no cross-entropy is: it is at least 0, and %g for a "
                 "guess among %lld tokens, plus %d at most; parameters are as after the step "
                 "before; try a smaller learning rate, and look at the machine and the data",
                 step, result->loss, guess, (long long)engine->schedule->spec.model->vocab,
                 MICS_MAX_LOSS_ABOVE_GUESS);
        break;
    }
    return text;
}

mics_status fail_verdict(const mics_engine *engine)
{
    char text[512];
    if (engine->rank != 0 || engine->limits.silent)
        return MICS_ERR_NUMERIC;
    return mics_fail(MICS_ERR_NUMERIC, "%s", mics_engine_explain(engine, text, sizeof text));
}

// The first step behind the agreement, where updates are not deferred.
static bool begins_updates(const mics_engine *engine, const mics_step *step)
{
    const bool first = step->kind == MICS_STEP_MOMENTUM || engine->schedule->rounds[0].count == 0;
    return first && step->unit == 0 && !mics_schedule_defers(engine->schedule);
}

mics_status run_compute_step(mics_engine *engine, const mics_step *step)
{
    const bool graphs = engine->graphs[engine->phase] != NULL;
    switch (step->kind) {
    case MICS_STEP_FORWARD:
        MICS_TRY(read_tokens(engine, step));
        if (graphs)
            graphs_run(engine, step, forward);
        else
            forward(engine, step);
        return MICS_OK;
    case MICS_STEP_BACKWARD:
        if (graphs)
            graphs_run(engine, step, backward);
        else
            backward(engine, step);
        return MICS_OK;
    case MICS_STEP_NORM:
        norm(engine);
        return MICS_OK;
    case MICS_STEP_ORTHOGONALISE:
        if (engine->pending.left > 0)
            orthogonalise(engine, step->unit);
        return MICS_OK;
    default: // MOMENTUM, UPDATE
        if (begins_updates(engine, step))
            MICS_TRY(settle_step(engine));
        if (step->kind == MICS_STEP_MOMENTUM)
            momentum(engine, step->unit);
        else
            update(engine, step->unit);
        return MICS_OK;
    }
}

// ---- autotuning ----

// What a library computes. Experts have kernels of their own, and no routes here.
static bool is_librarys(const mics_engine *engine, const mics_unit *unit, int32_t op)
{
    const mics_op_def *def = mics_op_def_get(unit->ops[op].kind);
    const bool asked = engine->schedule->spec.batch.library && def->library_lacks != NULL;
    return (def->multiplies && unit->ops[op].routes < 0) || asked;
}

static void autotune_forward(mics_engine *engine, const mics_step *step)
{
    const mics_unit *unit = &engine->schedule->spec.model->units[step->unit];
    const int32_t end = step->part.op_end;
    for (int32_t op = step->part.op; op < end; op++) {
        const mics_op_pair *pair = op + 1 < end ? fused_forward(engine, step->unit, op) : NULL;
        if (pair != NULL)
            run_fused_forward(engine, step, op++, pair);
        else if (is_librarys(engine, unit, op))
            run_op_forward(engine, step, op);
    }
}

static void autotune_backward(mics_engine *engine, const mics_step *step)
{
    const mics_unit *unit = &engine->schedule->spec.model->units[step->unit];
    const mics_unit_plan *plan = &engine->schedule->units[step->unit];
    autotune_forward(engine, step);
    for (int32_t i = step->part.call; i < step->part.call_end; i++) {
        const mics_grad_call *call = &plan->grads[i];
        const mics_op_pair *pair = fused_backward(engine, step->unit, i);
        if (pair != NULL)
            run_fused_backward(engine, step, i++, pair);
        else if (call->kind == MICS_GRAD_OP && is_librarys(engine, unit, call->op))
            run_grad_call(engine, step, call);
    }
}

void autotune_gemms(mics_engine *engine)
{
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        const mics_step_list *list = &engine->schedule->lists[phase];
        for (int32_t i = 0; i < list->count; i++) {
            const mics_step *step = &list->steps[i];
            if (step->micro_step > 1) // as the second
                continue;
            if (step->kind == MICS_STEP_FORWARD)
                autotune_forward(engine, step);
            else if (step->kind == MICS_STEP_BACKWARD)
                autotune_backward(engine, step);
        }
    }
}
