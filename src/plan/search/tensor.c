// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What units take when their GEMMs are cut over tensor-parallel ranks.
//
// Of a unit's linear ops every other one is cut by columns (its output is), and the one that
// follows by rows (its input is). What lies between them, attention and activation, is cut too;
// norms and additions are not.
#include "base/size.h"
#include "plan/search/megatron.h"
#include <math.h>

typedef struct walk {
    const mics_planner *planner;
    const mics_unit *unit;
    mics_batch batch;
    int32_t tensor;
    int32_t elem_bytes;
    double us;
} walk;

static int64_t tokens_of(const walk *w)
{
    return w->batch.sequences * w->batch.length;
}

static mics_op_cut cut_of(const mics_op *op)
{
    return mics_op_def_get(op->kind)->cut;
}

static void add_op(walk *w, const mics_op *op, bool by_columns, bool backward)
{
    const mics_plan_request *request = &w->planner->request;
    const mics_op_shape whole = mics_op_shape_get(request->model, w->unit, op, w->batch);
    const mics_op_shape shape = mics_op_shape_cut(&whole, w->tensor, by_columns);
    const mics_op_pass pass = {.backward = backward,
                               .input_gradient = true,
                               .keeps_logits = true,
                               .elem_bytes = w->elem_bytes};
    mics_op_work works[MICS_OP_WORKS];
    const int32_t count = mics_op_works(&shape, &pass, works);
    for (int32_t i = 0; i < count; i++) {
        const mics_cost_op cost = mics_cost_of_work(&works[i], w->elem_bytes, request->math);
        w->us += mics_cost_op_us(&request->cluster, &cost, NULL);
    }
}

// Ranks that share cores compute in turns, as the family's do. Where stages wait for each other that
// is the most it can be.
double tensor_crowd(const mics_planner *planner)
{
    const mics_plan_request *request = &planner->request;
    if (request->cluster.cores <= 0)
        return 1;
    return fmax((double)planner->ranks * request->threads / request->cluster.cores, 1);
}

static double walk_ops(walk *w, bool backward)
{
    int32_t weights = 0;
    w->us = 0;
    for (int32_t o = 0; o < w->unit->op_count; o++) {
        add_op(w, &w->unit->ops[o], weights % 2 == 0, backward);
        weights += cut_of(&w->unit->ops[o]) == MICS_CUT_WEIGHT;
    }
    return w->us * tensor_crowd(w->planner);
}

// ---- memory ----

// Whether a tensor lies cut on the ranks: it is made by the first GEMM of a pair, or from such a
// one.
static bool is_cut(const mics_unit *unit, int32_t tensor)
{
    int32_t weights = 0;
    for (int32_t o = 0; o < unit->op_count; o++) {
        const mics_op_cut way = cut_of(&unit->ops[o]);
        if (unit->ops[o].out == tensor)
            return way == MICS_CUT_WIDTH || (way == MICS_CUT_WEIGHT && weights % 2 == 0);
        weights += way == MICS_CUT_WEIGHT;
    }
    return false;
}

static bool is_saved(const mics_unit *unit, int32_t tensor)
{
    for (int32_t o = 0; o < unit->op_count; o++) {
        const mics_op *op = &unit->ops[o];
        const mics_op_def *info = mics_op_def_get(op->kind);
        if ((info->backward_reads_in && (op->in[0] == tensor || op->in[1] == tensor)) ||
            (info->backward_reads_out && op->out == tensor))
            return true;
    }
    return false;
}

static void sum_saved(const walk *w, unit_time *time)
{
    const double scale = (double)tokens_of(w) * w->elem_bytes;
    time->input_bytes = scale * (double)w->unit->tensors[0].width;
    for (int32_t t = 0; t < w->unit->tensor_count; t++) {
        const double width = (double)w->unit->tensors[t].width;
        if (is_saved(w->unit, t))
            time->saved_bytes += scale * width / (is_cut(w->unit, t) ? w->tensor : 1);
    }
}

// ---- units ----

// Sum of the tokens' vectors over the ranks that a GEMM was cut over.
static double sum_us(const walk *w)
{
    const mics_planner *planner = w->planner;
    const mics_collective sum = {.kind = MICS_COLLECTIVE_ALL_REDUCE,
                                 .group = {.first = 0, .stride = 1, .size = w->tensor},
                                 .block_bytes = (double)tokens_of(w) *
                                                (double)planner->request.model->hidden *
                                                w->elem_bytes / w->tensor};
    return mics_cost_collective(&planner->request.cluster, planner->ranks, &sum).us;
}

unit_time tensor_unit(const mics_planner *planner, int32_t unit, const cut *c)
{
    const mics_plan_request *request = &planner->request;
    walk w = {.planner = planner,
              .unit = &request->model->units[unit],
              .batch = {.sequences = c->micro_batch, .length = request->length, .threads = 1},
              .tensor = c->p.tensor,
              .elem_bytes =
                  (int32_t)mics_precision_bytes(request->precision, MICS_MEM_ACTIVATIONS)};
    unit_time time = {.forward_us = walk_ops(&w, false), .backward_us = walk_ops(&w, true)};
    int32_t products = 0;
    for (int32_t o = 0; o < w.unit->op_count; o++) {
        const mics_op *op = &w.unit->ops[o];
        const mics_op_cost cost = mics_op_cost_get(request->model, w.unit, op, w.batch);
        const bool logits = mics_op_def_get(op->kind)->loss; // its backward holds forward's too
        time.flops_forward += cost.flops_forward;
        time.flops_backward += cost.flops_backward - (logits ? cost.flops_forward : 0);
        products += cut_of(op) == MICS_CUT_WEIGHT;
    }
    const double once = sum_us(&w);
    const bool layer = products > 0;
    time.forward_sum_us = once * (layer ? (products + 1) / 2 : unit == 0);
    time.backward_sum_us = once * (layer ? (products + 1) / 2 : unit > 0);
    sum_saved(&w, &time);
    return time;
}

// Each tensor-parallel rank sends its part of the activations, and the next stage gathers them in
// the node.
static double send_us(const mics_planner *planner, const cut *c)
{
    const mics_plan_request *request = &planner->request;
    const int32_t t = c->p.tensor;
    const double bytes = (double)(c->micro_batch * request->length * request->model->hidden) *
                         (double)mics_precision_bytes(request->precision, MICS_MEM_ACTIVATIONS) / t;
    const mics_collective send = {
        .kind = MICS_COLLECTIVE_SEND,
        .group = {.first = 0, .stride = t * c->p.data, .size = c->p.stages},
        .block_bytes = bytes};
    const mics_collective gather = {.kind = MICS_COLLECTIVE_ALL_GATHER,
                                    .group = {.first = 0, .stride = 1, .size = t},
                                    .block_bytes = bytes};
    if (c->p.stages == 1)
        return 0;
    return mics_cost_collective(&request->cluster, planner->ranks, &send).us +
           mics_cost_collective(&request->cluster, planner->ranks, &gather).us;
}

void tensor_stage_times(const mics_planner *planner, const cut *c, stage_times *times_out)
{
    const int32_t units = planner->request.model->unit_count;
    *times_out = (stage_times){.embed = tensor_unit(planner, 0, c),
                               .layer = tensor_unit(planner, 1, c),
                               .head = tensor_unit(planner, units - 1, c),
                               .layers = units - 2,
                               .send_us = send_us(planner, c)};
    if (c->recompute) { // what backward begins with
        times_out->layer.backward_us += times_out->layer.forward_us;
        times_out->layer.backward_sum_us += times_out->layer.forward_sum_us;
        times_out->layer.flops_backward += times_out->layer.flops_forward;
    }
}

int32_t tensor_heads(const mics_model *model)
{
    const mics_unit *layer = &model->units[1];
    for (int32_t o = 0; o < layer->op_count; o++) {
        if (layer->ops[o].heads.key_value > 0)
            return (int32_t)layer->ops[o].heads.key_value;
    }
    return 0;
}
