// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From the model's ops to calls of kernels: here pointers are found; kernels know no model, and
// nothing here knows a kind of op.
#include "engine/run_op.h"
#include "base/size.h"
#include "engine/state.h"
#include "mics/log.h"
#include "schedule/rules.h"

// ---- calls ----

static void *activation(const mics_engine *engine, const mics_step *step, int64_t at)
{
    if (at < 0)
        return NULL;
    return elem_at(engine, engine->activations,
                   mics_schedule_in_flight_at(engine->schedule, at, step->in_flight));
}

static void *tensor(const mics_engine *engine, const mics_step *step, int32_t index)
{
    if (index < 0)
        return NULL;
    return activation(engine, step, engine->schedule->units[step->unit].tensor_at[index]);
}

// NULL where nothing is random: in a model without masks, and in evaluations.
static const mics_dropout_draw *draw_of(const mics_engine *engine, const int32_t *tokens)
{
    const mics_schedule *schedule = engine->schedule;
    if (schedule->data_elems == schedule->data_draw || engine->phase != MICS_PHASE_TRAIN)
        return NULL;
    return (const mics_dropout_draw *)(const void *)(tokens + schedule->data_draw);
}

static mics_op_call call_of(const mics_engine *engine, const mics_exec *at, const mics_step *step,
                            int32_t op_index)
{
    const mics_schedule_spec *spec = &engine->schedule->spec;
    const mics_unit *unit = &spec->model->units[step->unit];
    const mics_op *op = &unit->ops[op_index];
    const int32_t *tokens = in_flight_tokens(engine, step->in_flight);
    mics_op_call call = {.at = at,
                         .shape = mics_op_shape_get(spec->model, unit, op, spec->batch),
                         .out = tensor(engine, step, op->out),
                         .stats = tensor(engine, step, op->stats),
                         .routes = tensor(engine, step, op->routes),
                         .tokens = tokens,
                         .losses = engine->losses};
    const mics_op_def *def = mics_op_def_get(op->kind);
    const int64_t N = spec->batch.sequences * spec->batch.length;
    const bool whole = def->whole_sequences && op->sequence_ranks > 0;
    call.position = whole ? 0 : sequence_member(engine) * spec->batch.length;
    call.first_head = whole ? sequence_member(engine) * op->heads.query : 0;
    call.targets = tokens + N;
    call.order = spec->accelerator ? call.targets + N : NULL;
    // None is known yet where GEMMs are tuned.
    if (spec->accelerator && engine->micro_step_read[step->in_flight] >= 0) {
        call.counted = call.order + N;
        call.counted_rows = engine->counted_rows[step->in_flight];
    }
    call.segments =
        op->segments ? tokens + engine->schedule->data_segments + (whole ? N : 0) : NULL;
    call.draw = draw_of(engine, tokens);
    call.training = engine->phase == MICS_PHASE_TRAIN;
    call.loss_scale = (float)(engine->loss_scale /
                              ((double)batch_items(engine) * spec->micro_steps * spec->mesh.ranks));
    call.pairs = has_pairs(engine);
    call.row_scales = call.pairs ? engine->losses + N : NULL;
    call.chunk_rows = def->loss ? def->cost(&call.shape).chunk_rows : 0;
    for (int i = 0; i < MICS_OP_INPUTS; i++)
        call.in[i] = tensor(engine, step, op->in[i]);
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        const mics_param_ref ref = op->params[p];
        if (ref.unit < 0)
            continue;
        const int64_t offset = mics_model_param(spec->model, ref)->offset;
        void *params = used_params(engine, step, ref.unit),
             *grads = used_grads(engine, step, ref.unit);
        call.params[p] = params == NULL ? NULL : elem_at(engine, params, offset);
        call.dparams[p] = grads == NULL ? NULL : elem_at(engine, grads, offset);
    }
    return call;
}

static const mics_op_kernels *kernels_of(const mics_engine *engine, const mics_op_call *call)
{
    return engine->ops->ops[call->shape.op->kind];
}

void run_op_forward(mics_engine *engine, const mics_step *step, int32_t op)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_op_call call = call_of(engine, &at, step, op);
    kernels_of(engine, &call)->forward(&call);
}

// Most kernels add to all of an op's gradients or to none. Where one is the first of this
// micro-step and another is not (a weight that ops share, with a bias each), the first one is added
// to 0.
static void unite_flags(const mics_engine *engine, mics_op_call *call)
{
    bool add = false;
    for (int p = 0; p < MICS_OP_PARAMS; p++)
        add = add || (call->dparams[p] != NULL && call->add_params[p]);
    for (int p = 0; add && p < MICS_OP_PARAMS; p++) {
        if (call->dparams[p] == NULL || call->add_params[p])
            continue;
        const mics_param *param =
            mics_model_param(engine->schedule->spec.model, call->shape.op->params[p]);
        engine->device->ops->zero(engine->device->ctx, MICS_STREAM_COMPUTE, call->dparams[p],
                                  (size_t)param->elems * engine->elem_bytes);
        call->add_params[p] = true;
    }
}

static mics_op_call grad_call_of(const mics_engine *engine, const mics_exec *at,
                                 const mics_step *step, const mics_grad_call *grad)
{
    mics_op_call call = call_of(engine, at, step, grad->op);
    call.dout = activation(engine, step, grad->dout);
    call.din = activation(engine, step, grad->din);
    call.din_second = activation(engine, step, grad->din_second);
    call.add_din = grad->add_din;
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        const mics_step_use *use = step_use(step, call.shape.op->params[p].unit);
        call.add_params[p] = grad->add_params[p] || (use != NULL && use->accumulate && !use->fold);
    }
    unite_flags(engine, &call);
    return call;
}

static void add_gradient(const mics_engine *engine, const mics_grad_call *call, void *sum,
                         const void *gradient)
{
    mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    if (!call->wide) {
        engine->ops->accumulate(&at, sum, gradient, call->elems);
        return;
    }
    at.dtype = MICS_DTYPE_FP32;
    engine->spec.kernels->accumulate(
        &at, sum, gradient, call->elems * (int64_t)engine->elem_bytes / (int64_t)sizeof(float));
}

void run_grad_call(mics_engine *engine, const mics_step *step, const mics_grad_call *call)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    void *dout = activation(engine, step, call->dout), *din = activation(engine, step, call->din);
    if (call->kind == MICS_GRAD_COPY) {
        engine->device->ops->copy(engine->device->ctx, MICS_STREAM_COMPUTE, din, dout,
                                  (size_t)call->elems * engine->elem_bytes);
        return;
    }
    if (call->kind == MICS_GRAD_ADD) {
        add_gradient(engine, call, din, dout);
        return;
    }
    mics_op_call of = grad_call_of(engine, &at, step, call);
    of.router_sums = sequence_member(engine) == 0 ? engine->sums->router : NULL; // once a sequence
    kernels_of(engine, &of)->backward(&of);
}

// ---- two ops in one call ----

void run_fused_forward(mics_engine *engine, const mics_step *step, int32_t op,
                       const mics_op_pair *pair)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_op_call first = call_of(engine, &at, step, op),
                       next = call_of(engine, &at, step, op + 1);
    pair->forward(&first, &next);
}

void run_fused_backward(mics_engine *engine, const mics_step *step, int32_t at_call,
                        const mics_op_pair *pair)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_grad_call *calls = &engine->schedule->units[step->unit].grads[at_call];
    const mics_op_call first = grad_call_of(engine, &at, step, &calls[0]),
                       next = grad_call_of(engine, &at, step, &calls[1]);
    pair->backward(&first, &next);
}

// ---- logits ----

// Refuses parameters of the head of which the rank has a part.
static mics_status check_whole(const mics_schedule *schedule, const mics_op *head)
{
    for (int p = 0; p < MICS_OP_PARAMS && head->params[p].unit >= 0; p++) {
        const int32_t unit = head->params[p].unit, ranks = schedule->sharding[unit].params;
        if (ranks != 1)
            return mics_fail(MICS_ERR_INVALID,
                             "logits need the whole of %s, which is cut over %d ranks; shard "
                             "parameters over 1",
                             schedule->spec.model->units[unit].name, (int)ranks);
    }
    return MICS_OK;
}

// The workspace: logits of the engine's numbers, then the same in fp32, where the product has
// worked before.
mics_status mics_engine_logits(mics_engine *engine, int64_t first, int64_t count, float *logits_out)
{
    const mics_schedule *schedule = engine->schedule;
    const mics_model *model = schedule->spec.model;
    const int32_t head = model->unit_count - 1;
    const mics_unit *unit = &model->units[head];
    const mics_op *op = &unit->ops[unit->op_count - 1]; // the loss
    const int64_t tokens = schedule->spec.batch.sequences * schedule->spec.batch.length;
    const int64_t elems = count * model->vocab, width = unit->tensors[op->in[0]].width;
    const int64_t part = mics_size_round_up(elems * (int64_t)engine->elem_bytes, 256);
    const int64_t capacity = schedule->workspace_losses * (int64_t)sizeof(float) - part;
    const bool wide = engine->dtype == MICS_DTYPE_FP32;
    if (engine->phase != MICS_PHASE_EVAL || engine->list == NULL)
        return mics_fail(MICS_ERR_INVALID, "logits are those of an evaluation, and the newest call "
                                           "was none; call mics_engine_eval first");
    MICS_TRY(check_whole(schedule, op));
    if (first < 0 || count < 1 || count > tokens - first ||
        capacity < (wide ? 0 : elems * (int64_t)sizeof(float)))
        return mics_fail(
            MICS_ERR_INVALID,
            "logits of rows %lld to %lld of %lld: there are no such rows, or there is no "
            "workspace for so many at once; ask for fewer",
            (long long)first, (long long)first + (long long)count, (long long)tokens);
    mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    void *logits = at.workspace, *rest = (char *)at.workspace + part;
    const int64_t x_at =
        schedule->units[head].tensor_at[op->in[0]]; // an evaluation has one in flight
    const void *x = elem_at(engine, engine->activations, x_at + first * width);
    at.workspace = rest;
    at.workspace_bytes = (size_t)capacity;
    mics_op_call call = {.at = &at,
                         .shape = mics_op_shape_get(model, unit, op, schedule->spec.batch),
                         .in = {x},
                         .logits = logits};
    call.shape.N = count;
    for (int p = 0; p < MICS_OP_PARAMS && op->params[p].unit >= 0; p++)
        call.params[p] = elem_at(engine, shard_at(engine, op->params[p].unit),
                                 mics_model_param(model, op->params[p])->offset);
    engine->ops->ops[op->kind]->logits(&call);
    if (!wide)
        engine->ops->widen(&at, rest, logits, elems);
    engine->device->ops->copy(engine->device->ctx, MICS_STREAM_COMPUTE, logits_out,
                              wide ? logits : rest, (size_t)elems * sizeof(float));
    return engine->device->ops->synchronize(engine->device->ctx, MICS_STREAM_COMPUTE);
}
