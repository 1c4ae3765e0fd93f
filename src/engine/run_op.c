// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From the model's ops to kernels: one row a kind, forward and backward. Here pointers are found;
// kernels know no model.
#include "engine/engine_internal.h"
#include <stddef.h>
#include <string.h>

// One op with every pointer it may need; NULL where it has none.
typedef struct op_frame {
    const mics_kernels *kernels;
    const mics_op *op;
    mics_op_cost cost;
    int64_t B, T, N; // sequences, length, tokens
    int64_t in_width, out_width;
    float *in[MICS_OP_INPUTS], *out, *stats;
    float *params[MICS_OP_PARAMS], *grads[MICS_OP_PARAMS];
    const mics_param *shapes[MICS_OP_PARAMS];
    const int32_t *inputs, *targets;
    float *workspace, *losses;
    float loss_scale; // 1 / tokens of the global batch
    int32_t threads;
    // backward
    float *dout, *din;
    bool add_din, add_params[MICS_OP_PARAMS];
} op_frame;

// ---- forward ----

static void forward_embedding(const op_frame *f)
{
    f->kernels->embedding_forward(f->out, f->inputs, f->params[0], f->params[1], f->N, f->T,
                                  f->out_width);
}

static void forward_layernorm(const op_frame *f)
{
    f->kernels->layernorm_forward(f->out, f->stats, f->in[0], f->params[0], f->params[1],
                                  f->op->eps, f->N, f->in_width);
}

static mics_weight_order order_of(const op_frame *f)
{
    return f->op->weight_out_in ? MICS_WEIGHT_OUT_IN : MICS_WEIGHT_IN_OUT;
}

static void forward_linear(const op_frame *f)
{
    f->kernels->linear_forward(f->out, f->in[0], f->params[0], f->params[1], order_of(f), f->N,
                               f->in_width, f->out_width);
}

static void forward_gelu(const op_frame *f)
{
    f->kernels->gelu_forward(f->out, f->in[0], f->N * f->in_width);
}

static void forward_attention(const op_frame *f)
{
    const int64_t heads = f->op->heads;
    f->kernels->attention_forward(f->out, f->stats, f->in[0], f->B, f->T, heads,
                                  f->out_width / heads, f->threads, f->workspace);
}

static void forward_add(const op_frame *f)
{
    f->kernels->add(f->out, f->in[0], f->in[1], f->N * f->out_width);
}

static void forward_classifier(const op_frame *f)
{
    f->kernels->classifier_forward(f->losses, f->in[0], f->params[0], f->targets, f->N, f->in_width,
                                   f->shapes[0]->shape[0], f->cost.classifier_rows, f->workspace);
}

// ---- backward ----

static void backward_embedding(const op_frame *f)
{
    const int64_t positions = f->shapes[1] != NULL ? f->shapes[1]->shape[0] : 0;
    f->kernels->embedding_backward(f->grads[0], f->grads[1], f->dout, f->inputs, f->N, f->T,
                                   f->out_width, f->shapes[0]->shape[0], positions,
                                   f->add_params[0], f->add_params[1]);
}

static void backward_layernorm(const op_frame *f)
{
    f->kernels->layernorm_backward(f->din, f->grads[0], f->grads[1], f->dout, f->in[0], f->stats,
                                   f->params[0], f->N, f->in_width, f->add_din, f->add_params[0],
                                   f->workspace);
}

static void backward_linear(const op_frame *f)
{
    f->kernels->linear_backward(f->din, f->grads[0], f->grads[1], f->dout, f->in[0], f->params[0],
                                order_of(f), f->N, f->in_width, f->out_width, f->add_din,
                                f->add_params[0], f->workspace);
}

static void backward_gelu(const op_frame *f)
{
    f->kernels->gelu_backward(f->din, f->dout, f->in[0], f->N * f->in_width, f->add_din);
}

static void backward_attention(const op_frame *f)
{
    const int64_t heads = f->op->heads;
    f->kernels->attention_backward(f->din, f->dout, f->out, f->stats, f->in[0], f->B, f->T, heads,
                                   f->out_width / heads, f->threads, f->workspace);
}

static void backward_classifier(const op_frame *f)
{
    f->kernels->classifier_backward(f->losses, f->din, f->grads[0], f->in[0], f->params[0],
                                    f->targets, f->loss_scale, f->N, f->in_width,
                                    f->shapes[0]->shape[0], f->add_params[0],
                                    f->cost.classifier_rows, f->workspace);
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
    [MICS_OP_CLASSIFIER] = {forward_classifier, backward_classifier},
};

// ---- frames ----

static float *activation(const mics_engine *engine, int64_t at)
{
    return at < 0 ? NULL : engine->activations + at;
}

static float *tensor(const mics_engine *engine, int32_t unit, int32_t index)
{
    return index < 0 ? NULL : activation(engine, engine->schedule->units[unit].tensor_at[index]);
}

static op_frame frame_of(const mics_engine *engine, const mics_step *step, int32_t op_index)
{
    const mics_schedule_spec *spec = &engine->schedule->spec;
    const mics_unit *unit = &spec->model->units[step->unit];
    const mics_op *op = &unit->ops[op_index];
    op_frame f = {
        .kernels = engine->spec.kernels,
        .op = op,
        .cost = mics_op_cost_get(spec->model, unit, op, spec->batch),
        .B = spec->batch.sequences,
        .T = spec->batch.length,
        .N = spec->batch.sequences * spec->batch.length,
        .in_width = op->in[0] >= 0 ? unit->tensors[op->in[0]].width : 0,
        .out_width = op->out >= 0 ? unit->tensors[op->out].width : 0,
        .in = {tensor(engine, step->unit, op->in[0]), tensor(engine, step->unit, op->in[1])},
        .out = tensor(engine, step->unit, op->out),
        .stats = tensor(engine, step->unit, op->stats),
        .inputs = engine->inputs,
        .targets = engine->targets,
        .workspace = engine->workspace,
        .losses = engine->workspace + engine->schedule->workspace_losses,
        .threads = spec->batch.threads,
    };
    f.loss_scale = (float)(1.0 / ((double)f.N * spec->micro_steps * spec->mesh.ranks));
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        const mics_param_ref ref = op->params[p];
        if (ref.unit < 0)
            continue;
        f.shapes[p] = mics_model_param(spec->model, ref);
        float *params = used_params(engine, step, ref.unit),
              *grads = used_grads(engine, step, ref.unit);
        f.params[p] = params == NULL ? NULL : params + f.shapes[p]->offset;
        f.grads[p] = grads == NULL ? NULL : grads + f.shapes[p]->offset;
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
static void unite_flags(op_frame *f)
{
    if (f->grads[0] == NULL || f->grads[1] == NULL || f->add_params[0] == f->add_params[1])
        return;
    const int first = f->add_params[0] ? 1 : 0;
    memset(f->grads[first], 0, (size_t)f->shapes[first]->elems * sizeof(float));
    f->add_params[first] = true;
}

void run_grad_call(mics_engine *engine, const mics_step *step, const mics_grad_call *call)
{
    float *dout = activation(engine, call->dout), *din = activation(engine, call->din);
    if (call->kind == MICS_GRAD_COPY) {
        memcpy(din, dout, (size_t)call->elems * sizeof(float));
        return;
    }
    if (call->kind == MICS_GRAD_ADD) {
        engine->spec.kernels->accumulate(din, dout, call->elems);
        return;
    }
    op_frame f = frame_of(engine, step, call->op);
    f.dout = dout;
    f.din = din;
    f.add_din = call->add_din;
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        const mics_step_use *use = step_use(step, f.op->params[p].unit);
        f.add_params[p] = call->add_params[p] || (use != NULL && use->accumulate);
    }
    unite_flags(&f);
    runners[f.op->kind].backward(&f);
}
