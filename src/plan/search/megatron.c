// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The best cut of a model into tensor-parallel ranks, stages and replicas; megatron.h says what is
// modelled.
#include "plan/search/megatron.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_CHUNKS = 16 };

// Passes of all stages together: longer pipelines take too long to run, and none is worth it.
static const double max_passes = 4e6;

typedef struct cuts {
    mics_planner *planner;
    const mics_plan_space *space;
    cut *items;
    int32_t count, capacity;
    cut smallest;
    bool any;
} cuts;

// ---- memory ----

static void sum_memory(const mics_planner *planner, const cut *c, const stage_times *times,
                       mics_memory_ledger *ledger)
{
    const mics_model *model = planner->request.model;
    const mics_precision precision = planner->request.precision;
    const int32_t units = model->unit_count, layers = units - 2;
    const double t = c->p.tensor;
    const int32_t of_a_stage = layers / c->p.stages;
    const double own = of_a_stage * (double)model->units[1].elems / t;
    // The first stage has the tables and most micro-batches under way; the last a copy of the token
    // table.
    const double elems = own + (double)model->units[0].elems / t;
    const double held = pipeline_layers_held(c, layers);
    const unit_time *layer = &times->layer;
    const double activations =
        c->recompute ? held * layer->input_bytes + layer->saved_bytes : held * layer->saved_bytes;
    const double tokens = (double)(c->micro_batch * planner->request.length);
    const double logits = c->p.stages == 1 ? tokens * (double)model->vocab / t : 0;
    size_t *bytes = ledger->bytes;
    *ledger = (mics_memory_ledger){0};
    bytes[MICS_MEM_PARAMS] =
        (size_t)(elems * (double)mics_precision_bytes(precision, MICS_MEM_PARAMS));
    bytes[MICS_MEM_GRADS] =
        (size_t)(elems * (double)mics_precision_bytes(precision, MICS_MEM_GRADS));
    bytes[MICS_MEM_OPTIMIZER] = (size_t)(elems * (double)kept_bytes(&planner->request));
    // One gradient of activations beside what is kept; logits and their gradients in fp32.
    bytes[MICS_MEM_ACTIVATIONS] = (size_t)(activations + 2 * layer->input_bytes);
    bytes[MICS_MEM_WORKSPACE] = (size_t)(2 * sizeof(float) * logits);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++)
        ledger->total += bytes[tag];
}

// ---- what follows the passes ----

// The boundary: gradients summed over replicas, and of the tied table over first and last stage;
// norm; update.
typedef struct boundary {
    double reduce_us, update_us;
} boundary;

static boundary boundary_of(const mics_planner *planner, const cut *c,
                            const mics_memory_ledger *ledger)
{
    const mics_plan_request *request = &planner->request;
    const mics_cluster *cluster = &request->cluster;
    const bool mixed = request->precision == MICS_PRECISION_MIXED;
    const double bytes = (double)ledger->bytes[MICS_MEM_PARAMS]; // gradients travel as these
    const double elems = bytes / (mixed ? 2 : sizeof(float));
    mics_collective sum = {.kind = MICS_COLLECTIVE_ALL_REDUCE,
                           .group = {.first = 0, .stride = c->p.tensor, .size = c->p.data},
                           .block_bytes = bytes / c->p.data};
    boundary b = {.reduce_us = mics_cost_collective(cluster, planner->ranks, &sum).us};
    sum.kind = MICS_COLLECTIVE_ALL_REDUCE_TREE;
    const double tree_us = mics_cost_collective(cluster, planner->ranks, &sum).us;
    if (planner->simulate.trees && tree_us < b.reduce_us)
        b.reduce_us = tree_us;
    if (c->p.stages > 1 && request->model->tied) {
        const mics_collective table = {
            .kind = MICS_COLLECTIVE_SEND,
            .group = {.first = 0, .stride = c->p.tensor * c->p.data, .size = c->p.stages},
            .block_bytes =
                (double)request->model->units[0].elems * (mixed ? 2 : sizeof(float)) / c->p.tensor};
        b.reduce_us += mics_cost_collective(cluster, planner->ranks, &table).us;
    }
    const mics_cost_op update = {.kind = MICS_COST_UPDATE,
                                 .math = MICS_MATH_FP32,
                                 .bytes =
                                     mics_optimizer_moved_bytes(request->optimizer, mixed) * elems};
    const mics_cost_op norm = {
        .kind = MICS_COST_ELEMENTWISE, .math = MICS_MATH_FP32, .bytes = sizeof(float) * elems};
    b.update_us = tensor_crowd(planner) *
                  (mics_cost_op_us(cluster, &update, NULL) + mics_cost_op_us(cluster, &norm, NULL));
    return b;
}

// ---- the space ----

static mics_status keep_cut(cuts *all, const cut *c)
{
    if (all->count == all->capacity) {
        void *block = all->items;
        const int32_t capacity = all->capacity == 0 ? 64 : 2 * all->capacity;
        MICS_TRY(mics_realloc(all->planner->memory, MICS_MEM_HOST, (size_t)capacity * sizeof(cut),
                              &block));
        all->items = block;
        all->capacity = capacity;
    }
    all->items[all->count++] = *c;
    return MICS_OK;
}

static mics_status list_cut(cuts *all, cut c)
{
    const mics_planner *planner = all->planner;
    stage_times times;
    mics_memory_ledger ledger;
    tensor_stage_times(planner, &c, &times);
    sum_memory(planner, &c, &times, &ledger);
    const boundary b = boundary_of(planner, &c, &ledger);
    c.memory_bytes = (double)ledger.total;
    c.bound_us = pipeline_busy(&c, &times).us + b.reduce_us + b.update_us +
                 planner->request.cluster.step_overhead_us;
    if (!all->any || c.memory_bytes < all->smallest.memory_bytes)
        all->smallest = c;
    all->any = true;
    return c.memory_bytes <= planner->available_bytes ? keep_cut(all, &c) : MICS_OK;
}

static mics_status list_batches(cuts *all, cut c)
{
    const mics_plan_space *space = all->space;
    const int64_t batch = all->planner->request.global_batch, share = batch / c.p.data;
    if (batch % c.p.data != 0)
        return MICS_OK;
    for (c.micro_batch = 1; c.micro_batch <= share; c.micro_batch *= 2) {
        const int64_t steps = share / c.micro_batch;
        const bool given = space->micro_batch > 0 && space->micro_batch != c.micro_batch;
        if (share % c.micro_batch != 0 || given ||
            (double)steps * c.p.chunks * c.p.stages > max_passes ||
            (c.p.chunks > 1 && steps % c.p.stages != 0))
            continue;
        c.micro_steps = (int32_t)steps;
        for (int recompute = 0; recompute < 2; recompute++) {
            c.recompute = recompute;
            if (!space->recompute_given || space->recompute == c.recompute)
                MICS_TRY(list_cut(all, c));
        }
    }
    return MICS_OK;
}

static bool is_given(int32_t wanted, int32_t value)
{
    return wanted <= 0 || wanted == value;
}

static bool in_space(const mics_plan_space *space, const cut *c)
{
    return is_given(space->pipeline.tensor, c->p.tensor) &&
           is_given(space->pipeline.stages, c->p.stages) &&
           is_given(space->pipeline.chunks, c->p.chunks);
}

static mics_status list_cuts(cuts *all)
{
    const mics_planner *planner = all->planner;
    const mics_model *model = planner->request.model;
    const int32_t layers = model->unit_count - 2, heads = layers > 0 ? tensor_heads(model) : 0;
    for (int32_t t = 1; t <= planner->ranks_per_node; t++) {
        if (planner->ranks_per_node % t != 0 || heads % t != 0)
            continue;
        for (int32_t p = 1; p <= layers && p * t <= planner->ranks; p++) {
            if (layers % p != 0 || planner->ranks % (p * t) != 0)
                continue;
            for (int32_t v = 1; v <= (p > 1 ? MAX_CHUNKS : 1); v++) {
                const cut c = {
                    .p = {.tensor = t, .stages = p, .data = planner->ranks / (p * t), .chunks = v}};
                if (layers % (p * v) == 0 && in_space(all->space, &c))
                    MICS_TRY(list_batches(all, c));
            }
        }
    }
    return MICS_OK;
}

static int compare_cuts(const void *left, const void *right)
{
    const cut *a = left, *b = right;
    const double keys[][2] = {
        {a->bound_us, b->bound_us},  {a->memory_bytes, b->memory_bytes},
        {a->p.tensor, b->p.tensor},  {a->p.stages, b->p.stages},
        {a->p.chunks, b->p.chunks},  {(double)b->micro_batch, (double)a->micro_batch},
        {a->recompute, b->recompute}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    }
    return 0;
}

// ---- entries ----

static void fill_flops(const mics_planner *planner, const cut *c, const stage_times *times,
                       mics_plan_entry *entry)
{
    const unit_time *units[] = {&times->embed, &times->layer, &times->head};
    const double counts[] = {1, times->layers, 1};
    double flops = 0;
    for (int i = 0; i < 3; i++)
        flops += counts[i] * (units[i]->flops_forward + units[i]->flops_backward);
    entry->hardware_flops = flops * c->micro_steps * c->p.data / planner->ranks;
}

static mics_status evaluate_cut(mics_planner *planner, const cut *c, mics_plan_entry *entry_out)
{
    stage_times times;
    pipeline_time passes = {0};
    mics_plan_entry entry = {.pipeline = c->p,
                             .choice = {.sharding = {1, 1, 1},
                                        .micro_batch = c->micro_batch,
                                        .micro_steps = c->micro_steps,
                                        .recompute = c->recompute}};
    tensor_stage_times(planner, c, &times);
    MICS_TRY(pipeline_run(planner->memory, c, &times, &passes));
    sum_memory(planner, c, &times, &entry.memory);
    const boundary b = boundary_of(planner, c, &entry.memory);
    // Sums of the same times in another order: what is left of them where there is no bubble is
    // rounding.
    const double idle_us = passes.us - passes.compute_us - passes.sum_us - passes.send_us;
    entry.pipeline.bubble_us = c->p.stages > 1 ? fmax(idle_us, 0) : 0;
    entry.compute_us = passes.compute_us;
    entry.update_us = b.update_us;
    entry.exposed_second_hop_us = b.reduce_us;
    entry.exposed_other_us = fmax(passes.us - passes.compute_us, 0);
    entry.exposed_us = entry.exposed_other_us + b.reduce_us;
    entry.overhead_us = planner->request.cluster.step_overhead_us;
    entry.step_us = passes.us + b.update_us + b.reduce_us + entry.overhead_us;
    entry.limit = MICS_STEP_BACKWARD;
    entry.limit_us = entry.compute_us;
    entry.limit_tier = -1;
    snprintf(entry.name, sizeof entry.name, "megatron t%d p%d d%d v%d", (int)c->p.tensor,
             (int)c->p.stages, (int)c->p.data, (int)c->p.chunks);
    fill_flops(planner, c, &times, &entry);
    fill_rates(planner, &entry);
    *entry_out = entry;
    return MICS_OK;
}

mics_status plan_megatron(mics_planner *planner, const mics_plan_space *space,
                          mics_plan_entry *entry_out)
{
    cuts all = {.planner = planner, .space = space};
    mics_plan_entry best = {0}, entry = {0};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(list_cuts(&all));
    if (all.count > 0)
        qsort(all.items, (size_t)all.count, sizeof(cut), compare_cuts);
    for (int32_t i = 0; i < all.count; i++) {
        if (best.step_us > 0 && all.items[i].bound_us > best.step_us)
            break;
        MICS_TRY_OUT(evaluate_cut(planner, &all.items[i], &entry));
        if (best.step_us == 0 || entry.step_us < best.step_us)
            best = entry;
    }
    if (all.count == 0 && all.any)
        MICS_TRY_OUT(evaluate_cut(planner, &all.smallest, &best));
    if (!all.any) // nothing repeats that could be cut
        snprintf(best.name, sizeof best.name, "megatron");
    *entry_out = best;
out:
    mics_free(planner->memory, all.items);
    return status;
}
