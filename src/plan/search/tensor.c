// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What units take when their GEMMs are cut over tensor-parallel ranks.
//
// Of a unit's linear ops every other one is cut by columns (its output is), and the one that
// follows by rows (its input is). What lies between them, attention and activation, is cut too;
// norms and additions are not, but by tokens where there is sequence parallelism. megatron.h says
// what context- and expert-parallel ranks do.
#include "plan/search/megatron.h"
#include "schedule/rules.h"
#include <math.h>

typedef struct walk {
    const mics_planner *planner;
    const mics_unit *unit;
    const cut *c;
    mics_batch batch; // whole sequences
    mics_batch mine;  // what of them a context-parallel rank has
    int32_t elem_bytes;
    double us;
    double gemm_us; // of it
    double wait_us; // for keys and values, beyond what attention hides
} walk;

static mics_op_cut cut_of(const mics_op *op)
{
    return mics_op_def_get(op->kind)->cut;
}

// Sequence parallelism.
static bool cuts_tokens(const cut *c)
{
    return c->p.tensor > 1 && c->p.era != MICS_MEGATRON_2021;
}

static mics_op_pass pass_of(const walk *w, bool backward)
{
    return (mics_op_pass){
        .backward = backward,
        .input_gradient = true,
        .keeps_logits = true,
        .separate = mics_kernels_are(&w->planner->request.cluster.accelerator, "separate"),
        .elem_bytes = w->elem_bytes};
}

static double work_us(const walk *w, const mics_op_work *work, const mics_cost_op *cost)
{
    const int64_t times = work->times > 1 ? work->times : 1;
    return (double)times * mics_cost_op_us(&w->planner->request.cluster, cost, NULL);
}

// What a rank has of an op: of experts that are spread, whole ones, for its part of the tokens and
// as many of others; else its part of the weight, for all of its tokens.
static mics_op_shape shape_of(const walk *w, const mics_op *op, mics_batch batch, bool by_columns,
                              mics_op *local)
{
    const mics_model *model = w->planner->request.model;
    *local = *op;
    if (op->routes < 0 || w->c->p.expert == 1) {
        const mics_op_shape whole = mics_op_shape_get(model, w->unit, local, batch);
        return mics_op_shape_cut(&whole, w->c->p.tensor, by_columns);
    }
    local->expert_ranks = w->c->p.expert;
    mics_op_shape shape = mics_op_shape_get(model, w->unit, local, batch);
    shape.N = shape.N > w->c->p.tensor ? shape.N / w->c->p.tensor : 1;
    return shape;
}

// Attention in a ring: as many steps as ranks, each on one block of queries and one of keys, of
// which half are masked. While one computes, the next block comes; backward gradients of keys and
// values travel too.
static void add_ring(walk *w, const mics_op_shape *shape, bool backward)
{
    const mics_op_pass pass = pass_of(w, backward);
    const int32_t ranks = w->c->p.context;
    const double numbers =
        2.0 * (double)(shape->heads.key_value * shape->heads.dim) * cut_tokens(w->planner, w->c);
    const double block = numbers * w->elem_bytes * (backward ? 2 : 1);
    mics_op_work works[MICS_OP_WORKS];
    const int32_t count = mics_op_works(shape, &pass, works);
    double step_us = 0;
    for (int32_t i = 0; i < count; i++) {
        mics_cost_op cost = mics_cost_of_work(&works[i], w->elem_bytes, w->planner->request.math);
        cost.flops /= (double)ranks * ranks;
        cost.bytes /= ranks;
        cost.m = cost.m > ranks ? cost.m / ranks : 1;
        step_us += work_us(w, &works[i], &cost);
    }
    const double late_us =
        exchange_ring_us(w->planner, w->c, block) - step_us * tensor_crowd(w->planner);
    w->us += ranks * step_us;
    w->wait_us += (ranks - 1) * fmax(late_us, 0);
}

static bool attends(const mics_op_work *works, int32_t count)
{
    return count > 0 && works[0].kind == MICS_WORK_ATTENTION;
}

static void add_op(walk *w, const mics_op *op, bool by_columns, bool backward)
{
    const mics_op_pass pass = pass_of(w, backward);
    mics_op local;
    if (backward && mics_op_def_get(op->kind)->backward_passes)
        return; // its gradient is its inputs'
    const mics_op_shape shape = shape_of(w, op, w->mine, by_columns, &local);
    mics_op_work works[MICS_OP_WORKS];
    const int32_t count = mics_op_works(&shape, &pass, works);
    if (w->c->p.context > 1 && attends(works, count)) {
        const mics_op_shape whole = shape_of(w, op, w->batch, by_columns, &local);
        add_ring(w, &whole, backward);
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        mics_cost_op cost = mics_cost_of_work(&works[i], w->elem_bytes, w->planner->request.math);
        if (cuts_tokens(w->c) && cut_of(op) == MICS_CUT_NONE) {
            cost.flops /= w->c->p.tensor;
            cost.bytes /= w->c->p.tensor;
        }
        const bool gemm_of_experts = op->routes >= 0 && works[i].kind == MICS_WORK_GEMM;
        const double us = work_us(w, &works[i], &cost) *
                          (gemm_of_experts ? rival_software(w->planner)->imbalance : 1);
        w->us += us;
        w->gemm_us += works[i].kind == MICS_WORK_GEMM ? us : 0;
    }
}

// Ranks that share cores compute in turns, as the family's do. Where stages wait for each other
// that is the most it can be.
double tensor_crowd(const mics_planner *planner)
{
    const mics_plan_request *request = &planner->request;
    if (request->cluster.cores <= 0)
        return 1;
    return fmax((double)planner->ranks * request->threads / request->cluster.cores, 1);
}

static double walk_ops(walk *w, bool backward, double *wait_us_out)
{
    int32_t weights = 0;
    w->us = w->gemm_us = w->wait_us = 0;
    for (int32_t o = 0; o < w->unit->op_count; o++) {
        add_op(w, &w->unit->ops[o], weights % 2 == 0, backward);
        weights += cut_of(&w->unit->ops[o]) == MICS_CUT_WEIGHT;
    }
    *wait_us_out = w->wait_us;
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

// What backward reads of a tensor, as a share of its numbers' bytes: GEMMs in 8 bits keep their own
// copies of that size (Transformer Engine). All parameters train (not_modelled_text).
static double saved_share(const walk *w, int32_t tensor)
{
    const mics_unit *unit = w->unit;
    double share = 0;
    for (int32_t o = 0; o < unit->op_count; o++) {
        const mics_op *op = &unit->ops[o];
        const mics_op_def *info = mics_op_def_get(op->kind);
        if ((info->backward_reads_in[0] && op->in[0] == tensor) ||
            (info->backward_reads_in[1] && op->in[1] == tensor) ||
            (info->backward_reads_out && op->out == tensor))
            share = fmax(share,
                         w->planner->request.math == MICS_MATH_FP8 && cut_of(op) == MICS_CUT_WEIGHT
                             ? 0.5
                             : 1);
    }
    return share;
}

// Experts that get tokens of other ranks keep those.
static double routed_width(const walk *w)
{
    for (int32_t o = 0; o < w->unit->op_count; o++) {
        const mics_op *op = &w->unit->ops[o];
        if (w->c->p.expert > 1 && op->routes >= 0)
            return (double)op->experts.chosen * (double)w->planner->request.model->hidden /
                   w->c->p.tensor;
    }
    return 0;
}

static void sum_saved(const walk *w, unit_time *time)
{
    const double scale = cut_tokens(w->planner, w->c) * w->elem_bytes;
    const int32_t parts = w->c->p.tensor;
    time->whole_bytes = scale * (double)w->unit->tensors[0].width;
    time->input_bytes = time->whole_bytes / (cuts_tokens(w->c) ? parts : 1);
    time->saved_bytes = scale * routed_width(w);
    for (int32_t t = 0; t < w->unit->tensor_count; t++) {
        const double width = (double)w->unit->tensors[t].width;
        time->saved_bytes += saved_share(w, t) * scale * width /
                             (cuts_tokens(w->c) || is_cut(w->unit, t) ? parts : 1);
    }
}

// ---- units ----

static void sum_flops(const walk *w, unit_time *time)
{
    for (int32_t o = 0; o < w->unit->op_count; o++) {
        const mics_op *op = &w->unit->ops[o];
        const mics_op_cost cost =
            mics_op_cost_get(w->planner->request.model, w->unit, op, w->batch);
        const bool logits = mics_op_def_get(op->kind)->loss; // its backward holds forward's too
        time->flops_forward += cost.flops_forward;
        time->flops_backward += cost.flops_backward - (logits ? cost.flops_forward : 0);
    }
}

// What of the collectives of a pass is waited for: the last of as many chunks as ranks, and what
// takes longer than the GEMMs. Computation beside them is slower.
static double beside_gemms(const walk *w, double sums_us, double *compute_us)
{
    if (w->c->p.era != MICS_MEGATRON_NOW || w->c->p.tensor == 1)
        return sums_us;
    const double last_us = sums_us / w->c->p.tensor;
    const double hidden_us = fmin(sums_us - last_us, w->gemm_us * tensor_crowd(w->planner));
    *compute_us += hidden_us * exchange_slowdown(w->planner, w->c);
    return sums_us - hidden_us;
}

// Collectives of one pass: each pair of GEMMs ends in a sum. Where experts are spread, tokens go to
// them and come back; without sequence parallelism each rank gathers those of the other
// tensor-parallel ranks then.
static double collectives_us(const walk *w, bool ends, double *compute_us)
{
    int32_t products = 0, spread = 0, chosen = 0;
    for (int32_t o = 0; o < w->unit->op_count; o++) {
        const mics_op *op = &w->unit->ops[o];
        const bool routed = w->c->p.expert > 1 && op->routes >= 0;
        chosen = routed ? op->experts.chosen : chosen;
        spread += routed;
        products += !routed && cut_of(op) == MICS_CUT_WEIGHT;
    }
    const double once = exchange_sum_us(w->planner, w->c);
    if (products + spread == 0)
        return ends ? once : 0;
    const double gather_us = cuts_tokens(w->c) ? 0 : exchange_gather_us(w->planner, w->c);
    const double exchange_us =
        spread > 0 ? 2 * exchange_experts_us(w->planner, w->c, chosen) + gather_us : 0;
    const mics_software *software = rival_software(w->planner);
    const bool beside = !software->interleaved_alone || (w->c->p.stages > 1 && w->c->p.chunks > 1);
    const double hidden = beside ? software->exchange_hidden : 0;
    const double routing = exchange_us - fmin(hidden * exchange_us, *compute_us);
    *compute_us += spread > 0 ? software->routing_us : 0;
    const int32_t pairs = (products + 1) / 2;
    return beside_gemms(w, once * pairs, compute_us) + routing;
}

unit_time tensor_unit(const mics_planner *planner, int32_t unit, const cut *c)
{
    const mics_plan_request *request = &planner->request;
    const mics_batch batch = {.sequences = c->micro_batch, .length = request->length, .threads = 1};
    walk w = {.planner = planner,
              .unit = &request->model->units[unit],
              .c = c,
              .batch = batch,
              .mine = batch,
              .elem_bytes =
                  (int32_t)mics_precision_bytes(request->precision, MICS_MEM_ACTIVATIONS)};
    unit_time time = {0};
    w.mine.length /= c->p.context;
    time.forward_us = walk_ops(&w, false, &time.forward_sum_us);
    time.forward_sum_us += collectives_us(&w, unit == 0, &time.forward_us);
    time.backward_us = walk_ops(&w, true, &time.backward_sum_us);
    time.backward_sum_us += collectives_us(&w, unit > 0, &time.backward_us);
    sum_flops(&w, &time);
    sum_saved(&w, &time);
    return time;
}

// ---- layers ----

static const mics_op *first_experts(const mics_unit *unit)
{
    for (int32_t o = 0; o < unit->op_count; o++) {
        if (unit->ops[o].routes >= 0)
            return &unit->ops[o];
    }
    return NULL;
}

static int64_t window_of(const mics_unit *unit)
{
    for (int32_t o = 0; o < unit->op_count; o++) {
        if (unit->ops[o].heads.key_value > 0 && unit->ops[o].window > 0)
            return unit->ops[o].window;
    }
    return 0;
}

static bool is_alike(const mics_unit *a, const mics_unit *b)
{
    return a->elems == b->elems && a->op_count == b->op_count && window_of(a) == window_of(b) &&
           (first_experts(a) == NULL) == (first_experts(b) == NULL);
}

static void add_share(unit_time *sum, const unit_time *time, double share)
{
    sum->forward_us += share * time->forward_us;
    sum->backward_us += share * time->backward_us;
    sum->forward_sum_us += share * time->forward_sum_us;
    sum->backward_sum_us += share * time->backward_sum_us;
    sum->flops_forward += share * time->flops_forward;
    sum->flops_backward += share * time->flops_backward;
    sum->saved_bytes += share * time->saved_bytes;
    sum->input_bytes += share * time->input_bytes;
    sum->whole_bytes += share * time->whole_bytes;
}

// The mean of all layers; of those that are alike one is looked at.
static unit_time mean_layer(const mics_planner *planner, const cut *c)
{
    enum { KINDS = 4 };
    const mics_model *model = planner->request.model;
    const int32_t last = model->unit_count - 2, layers = mics_model_computing_units(model) - 2;
    int32_t kinds[KINDS], counts[KINDS] = {0}, kind_count = 0;
    unit_time mean = {0};
    for (int32_t u = 1; u <= last; u++) {
        int32_t k = 0;
        if (!mics_unit_computes(&model->units[u]))
            continue;
        while (k < kind_count && !is_alike(&model->units[kinds[k]], &model->units[u]))
            k++;
        if (k == kind_count && kind_count < KINDS)
            kinds[kind_count++] = u;
        counts[k < KINDS ? k : KINDS - 1]++;
    }
    for (int32_t k = 0; k < kind_count; k++) {
        const unit_time time = tensor_unit(planner, kinds[k], c);
        add_share(&mean, &time, (double)counts[k] / layers);
    }
    return mean;
}

void tensor_units(const mics_planner *planner, const cut *c, stage_times *times_out)
{
    const int32_t units = planner->request.model->unit_count;
    *times_out = (stage_times){.embed = tensor_unit(planner, 0, c),
                               .layer = mean_layer(planner, c),
                               .head = tensor_unit(planner, units - 1, c),
                               .layers = mics_model_computing_units(planner->request.model) - 2};
}

void tensor_finish(const mics_planner *planner, const cut *c, stage_times *times)
{
    unit_time *layer = &times->layer;
    times->send_us = exchange_send_us(planner, c);
    // What backward begins with.
    layer->backward_us += c->recomputed * layer->forward_us;
    layer->backward_sum_us += c->recomputed * layer->forward_sum_us;
    layer->flops_backward += c->recomputed * layer->flops_forward;
}
