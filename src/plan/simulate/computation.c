// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What computing steps take: the model's ops one by one, run as the engine runs them.
//
// Shapes: N tokens of a micro-batch; I inputs, O outputs, V vocabulary, C width, R rows of logits at a
// time. Matrix products are priced by shape; a bias is added where its product is written; what else there is
// moves memory. In mixed precision activations and parameters have 2 bytes; logits are fp32 but on
// accelerators, which hold them as activations.
#include "plan/simulate/internal.h"

typedef struct pass {
    const mics_schedule *schedule;
    const mics_cluster *cluster;
    mics_math math;
    const mics_unit *unit;
    int32_t elem_bytes; // of activations and parameters
    double us, flops;
} pass;

static pass pass_begin(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                       int32_t unit)
{
    return (pass){.schedule = schedule,
                  .cluster = cluster,
                  .math = math,
                  .unit = &schedule->spec.model->units[unit],
                  .elem_bytes = (int32_t)mics_precision_bytes(schedule->spec.precision,
                                                              MICS_MEM_ACTIVATIONS)};
}

static void add_op(pass *p, const mics_cost_op *op)
{
    p->us += mics_cost_op_us(p->cluster, op, NULL);
    p->flops += op->flops;
}

static void add_product(pass *p, int64_t m, int64_t n, int64_t k)
{
    const mics_cost_op op = mics_cost_matmul(m, n, k, p->elem_bytes, p->math);
    add_op(p, &op);
}

static void add_elementwise(pass *p, double flops, double bytes)
{
    const mics_cost_op op = {
        .kind = MICS_COST_ELEMENTWISE, .math = MICS_MATH_FP32, .flops = flops, .bytes = bytes};
    add_op(p, &op);
}

static int64_t tokens_of(const pass *p)
{
    return p->schedule->spec.batch.sequences * p->schedule->spec.batch.length;
}

static void add_attention(pass *p, const mics_op *op, double flops, double bytes)
{
    const mics_cost_op cost = {.kind = MICS_COST_ATTENTION,
                               .math = p->math,
                               .flops = flops,
                               .bytes = bytes,
                               .m = p->schedule->spec.batch.length,
                               .n = p->unit->tensors[op->out].width / op->heads,
                               .k = p->unit->tensors[op->out].width / op->heads};
    add_op(p, &cost);
}

// Logits of R rows: made, read twice and written once as they become losses (or gradients), and in
// backward multiplied with the table and with the inputs.
static void add_logits(pass *p, const mics_op *op, int64_t rows, bool backward)
{
    const mics_param *table = mics_model_param(p->schedule->spec.model, op->params[0]);
    const int64_t V = table->shape[0], C = table->shape[1];
    add_product(p, rows, V, C);
    const double bytes = p->schedule->spec.accelerator ? p->elem_bytes : (double)sizeof(float);
    add_elementwise(p, 0, 3 * bytes * (double)rows * (double)V);
    if (!backward)
        return;
    add_product(p, rows, C, V);
    add_product(p, V, C, rows);
}

static void add_classifier(pass *p, const mics_op *op, int64_t rows, bool backward)
{
    const int64_t tokens = tokens_of(p);
    const int64_t chunks = tokens / rows;
    const pass before = *p;
    add_logits(p, op, rows, backward);
    p->us = before.us + (double)chunks * (p->us - before.us);
    p->flops = before.flops + (double)chunks * (p->flops - before.flops);
    if (tokens % rows > 0)
        add_logits(p, op, tokens % rows, backward);
}

static void add_forward(pass *p, const mics_op *op)
{
    const mics_schedule_spec *spec = &p->schedule->spec;
    const mics_op_cost cost = mics_op_cost_get(spec->model, p->unit, op, spec->batch);
    const double bytes = cost.bytes_forward * p->elem_bytes / (double)sizeof(float);
    switch (op->kind) {
    case MICS_OP_LINEAR:
        add_product(p, tokens_of(p), p->unit->tensors[op->out].width,
                    p->unit->tensors[op->in[0]].width);
        break;
    case MICS_OP_ATTENTION:
        add_attention(p, op, cost.flops_forward, bytes);
        break;
    case MICS_OP_CLASSIFIER:
        add_classifier(p, op, cost.classifier_rows, false);
        break;
    default:
        add_elementwise(p, cost.flops_forward, bytes);
        break;
    }
}

// The tables' gradients begin as zeros, unless another op has written them before. Without a slot they
// are added to from the second micro-step on.
static double zeroed_bytes(const pass *p, const mics_op *op, const mics_grad_call *call)
{
    double bytes = 0;
    for (int i = 0; i < MICS_OP_PARAMS; i++) {
        const mics_param_ref ref = op->params[i];
        if (ref.unit >= 0 && !call->add_params[i] && p->schedule->sharding[ref.unit].grads > 1)
            bytes += (double)mics_model_param(p->schedule->spec.model, ref)->elems * p->elem_bytes;
    }
    return bytes;
}

static void add_linear_backward(pass *p, const mics_op *op, const mics_grad_call *call)
{
    const int64_t N = tokens_of(p), I = p->unit->tensors[op->in[0]].width;
    const int64_t O = p->unit->tensors[op->out].width;
    if (call->din >= 0)
        add_product(p, N, I, O);
    add_product(p, I, O, N);
    if (op->params[1].unit >= 0) // the bias's gradient: a sum over rows
        add_elementwise(p, 0, (double)N * (double)O * p->elem_bytes);
}

static void add_backward(pass *p, const mics_grad_call *call)
{
    const mics_schedule_spec *spec = &p->schedule->spec;
    const mics_op *op = &p->unit->ops[call->op];
    const mics_op_cost cost = mics_op_cost_get(spec->model, p->unit, op, spec->batch);
    const double bytes = cost.bytes_backward * p->elem_bytes / (double)sizeof(float);
    switch (op->kind) {
    case MICS_OP_LINEAR:
        add_linear_backward(p, op, call);
        break;
    case MICS_OP_ATTENTION:
        add_attention(p, op, cost.flops_backward, bytes);
        break;
    case MICS_OP_CLASSIFIER:
        add_classifier(p, op, cost.classifier_rows, true);
        break;
    case MICS_OP_EMBEDDING:
        add_elementwise(p, cost.flops_backward, bytes + zeroed_bytes(p, op, call));
        break;
    default:
        add_elementwise(p, cost.flops_backward, bytes);
        break;
    }
}

static double pass_end(const pass *p, double *flops_out)
{
    if (flops_out != NULL)
        *flops_out = p->flops;
    return p->us;
}

double unit_forward_us(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                       int32_t unit, double *flops_out)
{
    pass p = pass_begin(schedule, cluster, math, unit);
    for (int32_t op = 0; op < p.unit->op_count; op++)
        add_forward(&p, &p.unit->ops[op]);
    return pass_end(&p, flops_out);
}

double unit_backward_us(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                        int32_t unit, double *flops_out)
{
    const mics_unit_plan *plan = &schedule->units[unit];
    pass p = pass_begin(schedule, cluster, math, unit);
    // The loss's backward makes the logits itself; what comes before it is run again.
    for (int32_t op = 0; op < plan->forward_again; op++)
        add_forward(&p, &p.unit->ops[op]);
    for (int32_t i = 0; i < plan->grad_count; i++) {
        const mics_grad_call *call = &plan->grads[i];
        if (call->kind == MICS_GRAD_OP)
            add_backward(&p, call);
        else // read one and write one, or read two
            add_elementwise(&p, 0,
                            (call->kind == MICS_GRAD_ADD ? 3.0 : 2.0) * (double)call->elems *
                                p.elem_bytes);
    }
    return pass_end(&p, flops_out);
}

// Elements of a unit that a rank owns.
static int64_t owned_elems(const mics_schedule *schedule, int32_t unit)
{
    return schedule->padded_elems[unit] / schedule->sharding[unit].optimizer;
}

double norm_us(const mics_schedule *schedule, const mics_cluster *cluster)
{
    const int32_t units = schedule->spec.model->unit_count;
    double elems = 0;
    for (int32_t u = 0; u < units; u++)
        elems += (double)owned_elems(schedule, u);
    const mics_cost_op op = {.kind = MICS_COST_ELEMENTWISE,
                             .math = MICS_MATH_FP32,
                             .flops = 2 * elems,
                             .bytes = sizeof(float) * elems,
                             .kernels = units};
    return mics_cost_op_us(cluster, &op, NULL);
}

// Reads and writes values and both moments, reads the gradient; in mixed precision the values are the
// masters, and what forward reads is written beside them.
double update_us(const mics_schedule *schedule, const mics_cluster *cluster, int32_t unit)
{
    const double elems = (double)owned_elems(schedule, unit);
    const bool mixed = schedule->spec.precision == MICS_PRECISION_MIXED;
    const mics_cost_op op = {
        .kind = MICS_COST_UPDATE, .math = MICS_MATH_FP32, .bytes = (mixed ? 30 : 28) * elems};
    return mics_cost_op_us(cluster, &op, NULL);
}
