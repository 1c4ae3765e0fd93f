// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From the model's ops to calls of the op table: one row a kind, forward and backward. Here pointers are
// found; kernels know no model.
#include "engine/engine_internal.h"
#include "mics/log.h"
#include "mics/size.h"
#include <stddef.h>

// One op with every pointer it may need; NULL where it has none.
typedef struct op_frame {
    const mics_op_table *ops;
    mics_op_place at;
    const mics_op *op;
    mics_op_cost cost;
    int64_t B, T, N; // sequences, length, tokens
    int64_t in_width, out_width;
    void *in[MICS_OP_INPUTS], *out;
    float *stats;
    void *params[MICS_OP_PARAMS], *grads[MICS_OP_PARAMS];
    const mics_param *shapes[MICS_OP_PARAMS];
    const int32_t *inputs, *targets, *order;
    float *losses;
    float loss_scale; // of each token's loss in what is differentiated
    // backward
    void *dout, *din;
    bool add_din, add_params[MICS_OP_PARAMS];
} op_frame;

// ---- forward ----

static void forward_embedding(const op_frame *f)
{
    f->ops->embedding_forward(&f->at, f->out, f->inputs, f->params[0], f->params[1], f->N, f->T,
                              f->out_width);
}

static void forward_layernorm(const op_frame *f)
{
    f->ops->layernorm_forward(&f->at, f->out, f->stats, f->in[0], f->params[0], f->params[1],
                              f->op->eps, f->N, f->in_width);
}

static mics_weight_order order_of(const op_frame *f)
{
    return f->op->weight_out_in ? MICS_WEIGHT_OUT_IN : MICS_WEIGHT_IN_OUT;
}

static void forward_linear(const op_frame *f)
{
    f->ops->linear_forward(&f->at, f->out, f->in[0], f->params[0], f->params[1], order_of(f), f->N,
                           f->in_width, f->out_width);
}

static void forward_gelu(const op_frame *f)
{
    f->ops->gelu_forward(&f->at, f->out, f->in[0], f->N * f->in_width);
}

static void forward_attention(const op_frame *f)
{
    const int64_t heads = f->op->heads;
    f->ops->attention_forward(&f->at, f->out, f->stats, f->in[0], f->B, f->T, heads,
                              f->out_width / heads);
}

static void forward_add(const op_frame *f)
{
    f->ops->add(&f->at, f->out, f->in[0], f->in[1], f->N * f->out_width);
}

static void forward_lm_head(const op_frame *f)
{
    f->ops->lm_head_forward(&f->at, f->losses, f->in[0], f->params[0], f->targets, f->N,
                            f->in_width, f->shapes[0]->shape[0], f->cost.chunk_rows);
}

// ---- backward ----

static void backward_embedding(const op_frame *f)
{
    const int64_t positions = f->shapes[1] != NULL ? f->shapes[1]->shape[0] : 0;
    f->ops->embedding_backward(&f->at, f->grads[0], f->grads[1], f->dout, f->inputs, f->order, f->N,
                               f->T, f->out_width, f->shapes[0]->shape[0], positions,
                               f->add_params[0], f->add_params[1]);
}

static void backward_layernorm(const op_frame *f)
{
    f->ops->layernorm_backward(&f->at, f->din, f->grads[0], f->grads[1], f->dout, f->in[0],
                               f->stats, f->params[0], f->N, f->in_width, f->add_din,
                               f->add_params[0]);
}

static void backward_linear(const op_frame *f)
{
    f->ops->linear_backward(&f->at, f->din, f->grads[0], f->grads[1], f->dout, f->in[0],
                            f->params[0], order_of(f), f->N, f->in_width, f->out_width, f->add_din,
                            f->add_params[0]);
}

static void backward_gelu(const op_frame *f)
{
    f->ops->gelu_backward(&f->at, f->din, f->dout, f->in[0], f->N * f->in_width, f->add_din);
}

static void backward_attention(const op_frame *f)
{
    const int64_t heads = f->op->heads;
    f->ops->attention_backward(&f->at, f->din, f->dout, f->out, f->stats, f->in[0], f->B, f->T,
                               heads, f->out_width / heads);
}

static void backward_lm_head(const op_frame *f)
{
    f->ops->lm_head_backward(&f->at, f->losses, f->din, f->grads[0], f->in[0], f->params[0],
                             f->targets, f->loss_scale, f->N, f->in_width, f->shapes[0]->shape[0],
                             f->add_params[0], f->cost.chunk_rows);
}

typedef struct op_runner {
    void (*forward)(const op_frame *f);
    void (*backward)(
        const op_frame *f); // (optional) absent: the schedule turns it into copies and additions
} op_runner;

static const op_runner runners[MICS_OP_KINDS] = {
    [MICS_OP_EMBEDDING] = {forward_embedding, backward_embedding},
    [MICS_OP_LAYERNORM] = {forward_layernorm, backward_layernorm},
    [MICS_OP_LINEAR] = {forward_linear, backward_linear},
    [MICS_OP_GELU] = {forward_gelu, backward_gelu},
    [MICS_OP_ATTENTION] = {forward_attention, backward_attention},
    [MICS_OP_ADD] = {forward_add, NULL},
    [MICS_OP_LM_HEAD] = {forward_lm_head, backward_lm_head},
};

// ---- frames ----

static void *activation(const mics_engine *engine, const mics_step *step, int64_t at)
{
    if (at < 0)
        return NULL;
    return elem_at(engine, engine->activations,
                   mics_schedule_lane_at(engine->schedule, at, step->lane));
}

static void *tensor(const mics_engine *engine, const mics_step *step, int32_t index)
{
    if (index < 0)
        return NULL;
    return activation(engine, step, engine->schedule->units[step->unit].tensor_at[index]);
}

static op_frame frame_of(const mics_engine *engine, const mics_step *step, int32_t op_index)
{
    const mics_schedule_spec *spec = &engine->schedule->spec;
    const mics_unit *unit = &spec->model->units[step->unit];
    const mics_op *op = &unit->ops[op_index];
    op_frame f = {
        .ops = engine->ops,
        .at = place_on(engine, MICS_STREAM_COMPUTE),
        .op = op,
        .cost = mics_op_cost_get(spec->model, unit, op, spec->batch),
        .B = spec->batch.sequences,
        .T = spec->batch.length,
        .N = spec->batch.sequences * spec->batch.length,
        .in_width = op->in[0] >= 0 ? unit->tensors[op->in[0]].width : 0,
        .out_width = op->out >= 0 ? unit->tensors[op->out].width : 0,
        .in = {tensor(engine, step, op->in[0]), tensor(engine, step, op->in[1])},
        .out = tensor(engine, step, op->out),
        .stats = tensor(engine, step, op->stats),
        .losses = engine->losses,
    };
    f.inputs = lane_tokens(engine, step->lane);
    f.targets = f.inputs + f.N;
    f.order = engine->async ? f.targets + f.N : NULL;
    f.loss_scale =
        (float)(engine->loss_scale / ((double)f.N * spec->micro_steps * spec->mesh.ranks));
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        const mics_param_ref ref = op->params[p];
        if (ref.unit < 0)
            continue;
        f.shapes[p] = mics_model_param(spec->model, ref);
        void *params = used_params(engine, step, ref.unit),
             *grads = used_grads(engine, step, ref.unit);
        f.params[p] = params == NULL ? NULL : elem_at(engine, params, f.shapes[p]->offset);
        f.grads[p] = grads == NULL ? NULL : elem_at(engine, grads, f.shapes[p]->offset);
    }
    return f;
}

void run_op_forward(mics_engine *engine, const mics_step *step, int32_t op)
{
    const op_frame f = frame_of(engine, step, op);
    runners[f.op->kind].forward(&f);
}

// Most kernels add to both of an op's gradients or to none. Where one is the first of this micro-step and
// another is not (a weight that ops share, with a bias each), the first one is added to 0.
static void unite_flags(const mics_engine *engine, op_frame *f)
{
    if (f->grads[0] == NULL || f->grads[1] == NULL || f->add_params[0] == f->add_params[1])
        return;
    const int first = f->add_params[0] ? 1 : 0;
    engine->device->ops->zero(engine->device->ctx, MICS_STREAM_COMPUTE, f->grads[first],
                              (size_t)f->shapes[first]->elems * engine->elem_bytes);
    f->add_params[first] = true;
}

static op_frame grad_frame_of(const mics_engine *engine, const mics_step *step,
                              const mics_grad_call *call)
{
    op_frame f = frame_of(engine, step, call->op);
    f.dout = activation(engine, step, call->dout);
    f.din = activation(engine, step, call->din);
    f.add_din = call->add_din;
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        const mics_step_use *use = step_use(step, f.op->params[p].unit);
        f.add_params[p] = call->add_params[p] || (use != NULL && use->accumulate && !use->fold);
    }
    unite_flags(engine, &f);
    return f;
}

void run_grad_call(mics_engine *engine, const mics_step *step, const mics_grad_call *call)
{
    void *dout = activation(engine, step, call->dout), *din = activation(engine, step, call->din);
    if (call->kind == MICS_GRAD_COPY) {
        engine->device->ops->copy(engine->device->ctx, MICS_STREAM_COMPUTE, din, dout,
                                  (size_t)call->elems * engine->elem_bytes);
        return;
    }
    if (call->kind == MICS_GRAD_ADD) {
        const mics_op_place at = place_on(engine, MICS_STREAM_COMPUTE);
        engine->ops->accumulate(&at, din, dout, call->elems);
        return;
    }
    const op_frame f = grad_frame_of(engine, step, call);
    runners[f.op->kind].backward(&f);
}

// ---- two ops in one call ----

void run_fused_forward(mics_engine *engine, const mics_step *step, int32_t op)
{
    const op_frame linear = frame_of(engine, step, op), gelu = frame_of(engine, step, op + 1);
    linear.ops->linear_gelu_forward(&linear.at, gelu.out, linear.out, linear.in[0],
                                    linear.params[0], linear.params[1], order_of(&linear), linear.N,
                                    linear.in_width, linear.out_width);
}

void run_fused_backward(mics_engine *engine, const mics_step *step, int32_t at)
{
    const mics_grad_call *calls = &engine->schedule->units[step->unit].grads[at];
    const op_frame linear = grad_frame_of(engine, step, &calls[0]),
                   gelu = grad_frame_of(engine, step, &calls[1]);
    linear.ops->linear_gelu_backward(&linear.at, gelu.din, linear.grads[0], linear.grads[1],
                                     linear.dout, linear.in[0], gelu.in[0], linear.params[0],
                                     order_of(&linear), linear.N, linear.in_width, linear.out_width,
                                     linear.add_params[0]);
}

// ---- logits ----

// The workspace: logits of the engine's numbers, then the same in fp32, where the product has worked
// before.
mics_status mics_engine_logits(mics_engine *engine, int64_t first, int64_t count, float *logits_out)
{
    const mics_schedule *schedule = engine->schedule;
    const mics_model *model = schedule->spec.model;
    const int32_t head = model->unit_count - 1;
    const mics_unit *unit = &model->units[head];
    const mics_op *op = &unit->ops[unit->op_count - 1]; // the LM head
    const int64_t tokens = schedule->spec.batch.sequences * schedule->spec.batch.length;
    const int64_t elems = count * model->vocab, width = unit->tensors[op->in[0]].width;
    const int64_t part = mics_size_round_up(elems * (int64_t)engine->elem_bytes, 256);
    const int64_t room = schedule->workspace_losses * (int64_t)sizeof(float) - part;
    const bool wide = engine->dtype == MICS_DTYPE_FP32;
    if (engine->phase != MICS_PHASE_EVAL || engine->list == NULL)
        return mics_fail(MICS_ERR_INVALID, "logits are those of an evaluation, and the newest call "
                                           "was none; call mics_engine_eval first");
    if (schedule->sharding[op->params[0].unit].params != 1)
        return mics_fail(
            MICS_ERR_INVALID,
            "logits need the whole of %s, which is cut over %d ranks; shard parameters "
            "over 1",
            model->units[op->params[0].unit].name,
            (int)schedule->sharding[op->params[0].unit].params);
    if (first < 0 || count < 1 || count > tokens - first ||
        room < (wide ? 0 : elems * (int64_t)sizeof(float)))
        return mics_fail(
            MICS_ERR_INVALID,
            "logits of rows %lld to %lld of %lld: there are no such rows, or there is no "
            "workspace for so many at once; ask for fewer",
            (long long)first, (long long)(first + count), (long long)tokens);
    mics_op_place at = place_on(engine, MICS_STREAM_COMPUTE);
    void *logits = at.workspace, *rest = (char *)at.workspace + part;
    const int64_t x_at = schedule->units[head].tensor_at[op->in[0]]; // an evaluation has one lane
    const void *x = elem_at(engine, engine->activations, x_at + first * width);
    const void *table = elem_at(engine, shard_at(engine, op->params[0].unit),
                                mics_model_param(model, op->params[0])->offset);
    at.workspace = rest;
    at.workspace_bytes = (size_t)room;
    engine->ops->linear_forward(&at, logits, x, table, NULL, MICS_WEIGHT_OUT_IN, count, width,
                                model->vocab);
    if (!wide)
        engine->ops->widen(&at, rest, logits, elems);
    engine->device->ops->copy(engine->device->ctx, MICS_STREAM_COMPUTE, logits_out,
                              wide ? logits : rest, (size_t)elems * sizeof(float));
    return engine->device->ops->synchronize(engine->device->ctx, MICS_STREAM_COMPUTE);
}
