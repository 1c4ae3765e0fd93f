// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The best cut of a model into tensor-parallel ranks, stages and replicas; megatron.h says what is
// modelled.
#include "plan/search/megatron.h"
#include "base/text.h"
#include "plan/search/evaluate.h"
#include "plan/search/planner.h"
#include "schedule/rules.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// Searched context degrees leave a rank as many tokens of a sequence; below, the ring is all latency.
static const int64_t min_context_tokens = 1024;

// Passes of all stages together: longer pipelines take too long to run, and none is worth it.
static const double max_passes = 4e6;

typedef struct cuts {
    mics_planner *planner;
    const mics_plan_space *space;
    cut_sizes sizes;
    layer_elems elems;
    cut *items;
    int32_t count, capacity;
    cut smallest;
    bool any;
} cuts;

// ---- memory ----

// Parameters of a rank of a stage. The first one has the tables too.
typedef struct rank_elems {
    double dense, experts;
} rank_elems;

static rank_elems elems_of(const cuts *all, const cut *c, int32_t stage)
{
    const mics_model *model = all->planner->request.model;
    const int32_t of_a_stage = stage_layers(c, all->sizes.layers, stage);
    const int32_t expert = c->p.expert > 1 ? c->p.expert : c->p.tensor;
    const double tables = stage == 0 ? (double)model->units[0].elems : 0;
    return (rank_elems){.dense = (of_a_stage * all->elems.dense + tables) / c->p.tensor,
                        .experts = of_a_stage * all->elems.experts / expert};
}

// Ranks that share out a parameter's masters and moments, those of experts too.
static double owners_of(const cut *c, bool experts)
{
    if (c->p.era == MICS_MEGATRON_2021)
        return 1;
    const int32_t replicas = c->p.context * c->p.data;
    return experts && c->p.expert > 1 ? (double)c->p.tensor * replicas / c->p.expert : replicas;
}

static double owned_elems(const cut *c, const rank_elems *own)
{
    return own->dense / owners_of(c, false) + own->experts / owners_of(c, true);
}

// The first stage has the tables and most micro-batches under way, the second may have a layer
// more.
static void sum_stage(const cuts *all, const cut *c, const stage_times *times, int32_t stage,
                      mics_memory_ledger *ledger)
{
    const mics_planner *planner = all->planner;
    const mics_model *model = planner->request.model;
    const mics_precision precision = planner->request.precision;
    const rank_elems own = elems_of(all, c, stage);
    const mics_software *software = rival_software(all->planner);
    // FSDP's shards, and two layers gathered.
    const double elems = software->shards_params
                             ? owned_elems(c, &own) + 2 * (own.dense + own.experts) /
                                                          stage_layers(c, all->sizes.layers, stage)
                             : own.dense + own.experts;
    const double grad_bytes =
        software->half_grads ? 2 : (double)mics_precision_bytes(precision, MICS_MEM_GRADS);
    const double held = pipeline_layers_held(c, all->sizes.layers, stage);
    const unit_time *layer = &times->layer;
    const double activations =
        held * (layer->saved_bytes - c->recomputed * (layer->saved_bytes - layer->input_bytes)) +
        (c->recomputed > 0 ? layer->saved_bytes : 0);
    const double logits =
        c->p.stages == 1 ? cut_tokens(planner, c) * (double)model->vocab / c->p.tensor : 0;
    *ledger = (mics_memory_ledger){0};
    size_t *bytes = ledger->bytes;
    bytes[MICS_MEM_PARAMS] =
        (size_t)(elems * (double)mics_precision_bytes(precision, MICS_MEM_PARAMS));
    bytes[MICS_MEM_GRADS] = (size_t)(elems * grad_bytes);
    bytes[MICS_MEM_OPTIMIZER] = kept_bytes(&planner->request, (int64_t)owned_elems(c, &own));
    // One gradient of activations beside what is kept; logits and their gradients in fp32.
    bytes[MICS_MEM_ACTIVATIONS] = (size_t)(activations + 2 * layer->whole_bytes);
    bytes[MICS_MEM_WORKSPACE] = (size_t)(2 * sizeof(float) * logits);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++)
        ledger->total += bytes[tag];
}

static void sum_memory(const cuts *all, const cut *c, const stage_times *times,
                       mics_memory_ledger *ledger)
{
    mics_memory_ledger second;
    sum_stage(all, c, times, 0, ledger);
    if (all->sizes.layers % (c->p.stages * c->p.chunks) == 0)
        return;
    sum_stage(all, c, times, 1, &second);
    if (second.total > ledger->total)
        *ledger = second;
}

// ---- what follows the passes ----

// The boundary: gradients summed over replicas, and of the tied table over first and last stage;
// norm; update; parameters gathered, where masters are sharded. Each alone.
typedef struct boundary {
    double reduce_us, gather_us, table_us, update_us;
    double slowdown;  // of computation beside the first two
    int32_t messages; // in which they are sent
    bool overlaps;
    bool each_step; // in each micro-step, and gathered for backward too: FSDP
} boundary;

// Layers share messages of at least so many parameters, or so many times the replicas (Megatron
// Core, distributed_data_parallel.py: bucket_size; read 2026-11).
static const double bucket_elems = 40e6, bucket_elems_each = 1e6;

static int32_t messages_of(const cuts *all, const cut *c, double elems)
{
    const double bucket = fmax(bucket_elems, bucket_elems_each * c->p.context * c->p.data);
    const double most = stage_layers(c, all->sizes.layers, 0);
    return (int32_t)fmax(fmin(elems / bucket, most), 1);
}

// `bytes` that every stride-th rank of a stage has.
static void add_replicas(const cuts *all, const cut *c, int32_t stride, double bytes, boundary *b)
{
    const mics_planner *planner = all->planner;
    if (!b->overlaps) {
        b->reduce_us += exchange_gradients_us(planner, c, stride, bytes);
        return;
    }
    const double part = bytes / b->messages;
    const mics_cost_use reduce =
        exchange_shards(planner, c, stride, MICS_COLLECTIVE_REDUCE_SCATTER, part);
    b->reduce_us += b->messages * reduce.us;
    b->gather_us +=
        b->messages * exchange_shards(planner, c, stride, MICS_COLLECTIVE_ALL_GATHER, part).us;
    b->slowdown = fmax(b->slowdown, reduce.slowdown);
}

static boundary boundary_of(const cuts *all, const cut *c)
{
    const mics_planner *planner = all->planner;
    const mics_plan_request *request = &planner->request;
    const mics_cluster *cluster = &request->cluster;
    const bool mixed = request->precision == MICS_PRECISION_MIXED;
    const double elem_bytes = mixed ? 2 : sizeof(float); // gradients travel as parameters
    const rank_elems own = elems_of(all, c, 0);
    const bool spread = c->p.expert > 1;
    const bool each_step = rival_software(all->planner)->shards_params;
    boundary b = {.overlaps = c->p.era != MICS_MEGATRON_2021,
                  .each_step = each_step,
                  .messages = each_step ? stage_layers(c, all->sizes.layers, 0)
                                        : messages_of(all, c, own.dense + own.experts)};
    add_replicas(all, c, c->p.tensor, elem_bytes * (own.dense + (spread ? 0 : own.experts)), &b);
    if (spread)
        add_replicas(all, c, c->p.expert, elem_bytes * own.experts, &b);
    if (c->p.stages > 1 && request->model->tied)
        b.table_us = exchange_table_us(
            planner, c, (double)request->model->units[0].elems * elem_bytes / c->p.tensor);
    const double elems = owned_elems(c, &own);
    const mics_cost_op update = {.kind = MICS_COST_UPDATE,
                                 .math = MICS_MATH_FP32,
                                 .bytes = mics_optimizer_moved_bytes(request->optimizer,
                                                                     request->state_dtype, mixed,
                                                                     sizeof(float)) *
                                          elems};
    const mics_cost_op norm = {
        .kind = MICS_COST_ELEMENTWISE, .math = MICS_MATH_FP32, .bytes = sizeof(float) * elems};
    b.update_us = tensor_crowd(planner) *
                  (mics_cost_op_us(cluster, &update, NULL) + mics_cost_op_us(cluster, &norm, NULL));
    return b;
}

// What of the boundary's collectives is waited for, and what those that are not cost computation.
typedef struct waiting {
    double us, slow_us;
} waiting;

// Layers send as soon as those of a message are differentiated, and are gathered one message after
// the other: one is waited for, and what takes longer than the pass.
static waiting wait_beside(double us, double pass_us, int32_t messages, double slowdown)
{
    const double hidden_us = fmin(us * (messages - 1) / messages, pass_us);
    return (waiting){.us = us - hidden_us, .slow_us = hidden_us * slowdown};
}

static waiting wait_for(const cuts *all, const cut *c, const boundary *b, const stage_times *times)
{
    const int32_t layers = stage_layers(c, all->sizes.layers, 0);
    if (!b->overlaps)
        return (waiting){.us = b->reduce_us + b->table_us};
    const double again_us = b->each_step ? b->gather_us : 0;
    const int32_t times_a_step = b->each_step ? c->micro_steps : 1;
    const waiting reduce = wait_beside(b->reduce_us + again_us, layers * times->layer.backward_us,
                                       b->messages, b->slowdown);
    const waiting gather =
        wait_beside(b->gather_us, layers * times->layer.forward_us, b->messages, b->slowdown);
    return (waiting){.us = times_a_step * (reduce.us + gather.us) + b->table_us,
                     .slow_us = times_a_step * (reduce.slow_us + gather.slow_us)};
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

// What its stage with most takes.
static double memory_of(const cuts *all, const cut *c, const stage_times *units)
{
    mics_memory_ledger ledger;
    sum_memory(all, c, units, &ledger);
    return (double)ledger.total;
}

// With the times of its units.
static mics_status list_cut(cuts *all, cut c, const stage_times *units, const boundary *b)
{
    const mics_planner *planner = all->planner;
    stage_times times = *units;
    tensor_finish(planner, &c, &times);
    c.memory_bytes = memory_of(all, &c, &times);
    if (!all->any || c.memory_bytes < all->smallest.memory_bytes)
        all->smallest = c;
    all->any = true;
    if (c.memory_bytes > limit_of(planner))
        return MICS_OK;
    const waiting waits = wait_for(all, &c, b, &times);
    c.bound_us = pipeline_busy(&c, &times).us + waits.us + waits.slow_us + b->update_us +
                 planner->request.cluster.step_overhead_us;
    return keep_cut(all, &c);
}

static bool is_given(int32_t wanted, int32_t value)
{
    return wanted <= 0 || wanted == value;
}

// As few layers of each stage as fit (Megatron's recompute_method "block").
static double least_recomputed(const cuts *all, cut c, const stage_times *units)
{
    const double there = limit_of(all->planner);
    const double layers = stage_layers(&c, all->sizes.layers, c.p.stages > 1 ? 1 : 0);
    c.recomputed = 0;
    const double none = memory_of(all, &c, units);
    c.recomputed = 1;
    const double most = memory_of(all, &c, units);
    const double usual = rival_software(all->planner)->recomputed;
    if (none <= there || most >= there)
        return none > there ? 1 : usual;
    // One layer is made again at a time, whichever that are.
    const double first = none + units->layer.saved_bytes;
    return fmax(fmin(ceil(layers * (first - there) / (first - most)) / layers, 1), usual);
}

// All that differ in chunks alone.
static mics_status list_chunks(cuts *all, cut c, const stage_times *units)
{
    const mics_plan_space *space = all->space;
    const int64_t share = all->planner->request.global_batch / c.p.data;
    const int64_t steps = share / c.micro_batch;
    const boundary b = boundary_of(all, &c);
    c.micro_steps = (int32_t)steps;
    const int32_t most = space->pipeline.chunks > 0 ? space->pipeline.chunks : MAX_CHUNKS;
    for (c.p.chunks = 1; c.p.chunks <= (c.p.stages > 1 ? most : 1); c.p.chunks++) {
        if (!is_given(space->pipeline.chunks, c.p.chunks) || !cut_is_possible(&all->sizes, &c.p) ||
            (double)steps * c.p.chunks * c.p.stages > max_passes ||
            (c.p.chunks > 1 && steps % c.p.stages != 0))
            continue;
        c.recomputed = space->recompute_given ? mics_recomputes(space->recompute)
                                              : least_recomputed(all, c, units);
        MICS_TRY(list_cut(all, c, units, &b));
    }
    return MICS_OK;
}

// Ranks that each have a whole model are ZeRO-1, or ddp where the optimizer is not sharded: their
// row is that one's, by its schedule.
static bool is_whole(const mics_plan_pipeline *p)
{
    return p->tensor == 1 && p->context == 1 && p->stages == 1 && p->expert == 1;
}

// All with one tensor, context and expert degree and one micro-batch, whose units take the same.
static mics_status list_stages(cuts *all, cut c)
{
    const cut_sizes *sizes = &all->sizes;
    const int64_t batch = all->planner->request.global_batch;
    const int32_t together = c.p.tensor * c.p.context;
    stage_times units;
    bool known = false;
    c.p.chunks = 1;
    for (int32_t p = 1; p <= sizes->layers && (int64_t)p * together <= sizes->ranks; p++) {
        c.p.stages = p;
        c.p.data = sizes->ranks / (p * together);
        if (is_whole(&c.p) || !is_given(all->space->pipeline.stages, p) ||
            !cut_is_possible(sizes, &c.p) || batch % c.p.data != 0 ||
            batch / c.p.data % c.micro_batch != 0)
            continue;
        if (!known)
            tensor_units(all->planner, &c, &units);
        known = true;
        MICS_TRY(list_chunks(all, c, &units));
    }
    return MICS_OK;
}

static mics_status list_batches(cuts *all, cut c)
{
    const mics_planner *planner = all->planner;
    const int64_t given = all->space->micro_batch;
    for (c.micro_batch = given > 0 ? given : 1; c.micro_batch <= planner->request.global_batch;
         c.micro_batch = given > 0 ? INT64_MAX : 2 * c.micro_batch)
        MICS_TRY(list_stages(all, c));
    return MICS_OK;
}

// Those that are asked for; else powers of two, or of experts all.
static bool is_searched_context(const cuts *all, int32_t c)
{
    const int32_t given = all->space->pipeline.context;
    if (given > 0)
        return given == c;
    return c == 1 || ((c & (c - 1)) == 0 && all->sizes.length / c >= min_context_tokens);
}

static mics_status list_experts(cuts *all, cut c)
{
    const cut_sizes *sizes = &all->sizes;
    const int32_t most = sizes->experts > 1 ? sizes->experts : 1;
    for (c.p.expert = 1; c.p.expert <= most && c.p.expert <= sizes->ranks; c.p.expert++) {
        if (is_given(all->space->pipeline.expert, c.p.expert) &&
            (c.p.expert == 1 || sizes->experts % c.p.expert == 0))
            MICS_TRY(list_batches(all, c));
    }
    return MICS_OK;
}

static mics_status list_cuts(cuts *all)
{
    const cut_sizes *sizes = &all->sizes;
    cut c = {.p = {.chunks = 1, .era = all->space->pipeline.era}};
    if (sizes->layers == 0 || sizes->heads == 0)
        return MICS_OK;
    for (c.p.tensor = 1; c.p.tensor <= sizes->per_node; c.p.tensor++) {
        if (!is_given(all->space->pipeline.tensor, c.p.tensor) ||
            sizes->per_node % c.p.tensor != 0 || sizes->heads % c.p.tensor != 0)
            continue;
        for (c.p.context = 1; c.p.context <= sizes->ranks; c.p.context++) {
            if (is_searched_context(all, c.p.context) &&
                sizes->ranks % (c.p.tensor * c.p.context) == 0 &&
                (c.p.context == 1 || sizes->length % (2 * (int64_t)c.p.context) == 0))
                MICS_TRY(list_experts(all, c));
        }
    }
    return MICS_OK;
}

static int compare_cuts(const void *left, const void *right)
{
    const cut *a = left, *b = right;
    const double keys[][2] = {
        {a->bound_us, b->bound_us},     {a->memory_bytes, b->memory_bytes},
        {a->p.tensor, b->p.tensor},     {a->p.stages, b->p.stages},
        {a->p.chunks, b->p.chunks},     {(double)b->micro_batch, (double)a->micro_batch},
        {a->recomputed, b->recomputed}, {a->p.context, b->p.context},
        {a->p.expert, b->p.expert}};
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

// "megatron t8 p16 d4 v2"; context and expert degrees above 1 beside tensor and data: "t8c2 p16 d4e8".
static void write_name(const mics_plan_pipeline *p, char name[MICS_PLAN_NAME_BYTES])
{
    char context[16] = "", expert[16] = "", chunks[16] = "";
    if (p->context > 1)
        snprintf(context, sizeof context, "c%d", (int)p->context);
    if (p->expert > 1)
        snprintf(expert, sizeof expert, "e%d", (int)p->expert);
    if (p->chunks > 1 || (p->context == 1 && p->expert == 1))
        snprintf(chunks, sizeof chunks, " v%d", (int)p->chunks);
    // It fits, as there are at most 2^24 ranks; compilers cannot know that.
    mics_text_format(name, MICS_PLAN_NAME_BYTES, "megatron t%d%s p%d d%d%s%s", (int)p->tensor,
                     context, (int)p->stages, (int)p->data, expert, chunks);
}

static mics_recompute recompute_of(const cut *c, int32_t layers)
{
    const mics_recompute some = {.units = (int32_t)ceil(c->recomputed * layers - 1e-6)};
    return c->recomputed > 0 && c->recomputed < 1 ? some : mics_recompute_all(c->recomputed > 0);
}

static mics_status evaluate_cut(const cuts *all, const cut *c, mics_plan_entry *entry_out)
{
    const mics_planner *planner = all->planner;
    stage_times times;
    pipeline_time passes = {0};
    mics_plan_entry entry = {.pipeline = c->p,
                             .choice = {.sharding = {1, 1, 1},
                                        .micro_batch = c->micro_batch,
                                        .micro_steps = c->micro_steps,
                                        .recompute = recompute_of(c, all->sizes.layers)}};
    tensor_units(planner, c, &times);
    tensor_finish(planner, c, &times);
    MICS_TRY(pipeline_run(planner->memory, c, &times, &passes));
    sum_memory(all, c, &times, &entry.memory);
    const boundary b = boundary_of(all, c);
    const waiting waits = wait_for(all, c, &b, &times);
    // Sums of the same times in another order: what is left of them where there is no bubble is
    // rounding.
    const double idle_us = passes.us - passes.compute_us - passes.sum_us - passes.send_us;
    entry.pipeline.bubble_us = c->p.stages > 1 ? fmax(idle_us, 0) : 0;
    entry.compute_us = passes.compute_us + waits.slow_us;
    entry.update_us = b.update_us;
    entry.exposed_second_hop_us = waits.us;
    entry.exposed_other_us = fmax(passes.us - passes.compute_us, 0);
    entry.exposed_us = entry.exposed_other_us + waits.us;
    entry.overhead_us = planner->request.cluster.step_overhead_us;
    entry.step_us = passes.us + waits.slow_us + b.update_us + waits.us + entry.overhead_us;
    entry.limit = MICS_STEP_BACKWARD;
    entry.limit_us = entry.compute_us;
    entry.limit_tier = -1;
    write_name(&c->p, entry.name);
    fill_flops(planner, c, &times, &entry);
    fill_rates(planner, &entry);
    *entry_out = entry;
    return MICS_OK;
}

static mics_plan_entry name_whole(const mics_planner *planner, mics_megatron_era era,
                                  const mics_plan_entry *whole)
{
    mics_plan_entry entry = *whole;
    entry.pipeline = (mics_plan_pipeline){.tensor = 1,
                                          .context = 1,
                                          .stages = 1,
                                          .data = planner->ranks,
                                          .chunks = 1,
                                          .expert = 1,
                                          .era = era};
    entry.runs = false;
    entry.choice.sharding = (mics_sharding){1, 1, 1};
    write_name(&entry.pipeline, entry.name);
    return entry;
}

bool plan_megatron_may_be_whole(const mics_planner *planner, const mics_plan_pipeline *given)
{
    return cut_sizes_of(planner).layers > 0 &&
           planner->request.global_batch % planner->ranks == 0 && is_given(given->tensor, 1) &&
           is_given(given->context, 1) && is_given(given->stages, 1) &&
           is_given(given->chunks, 1) && is_given(given->expert, 1);
}

// The better one: of those that fit the faster, else what takes less memory.
static bool is_better(const mics_plan_entry *entry, const mics_plan_entry *best)
{
    if (best->step_us == 0 || entry->fits != best->fits)
        return best->step_us == 0 || entry->fits;
    if (entry->tight != best->tight)
        return best->tight;
    return entry->fits ? entry->step_us < best->step_us : entry->memory.total < best->memory.total;
}

mics_status plan_megatron(mics_planner *planner, const mics_plan_space *space,
                          const mics_plan_entry *whole, mics_plan_entry *entry_out)
{
    cuts all = {.planner = planner, .space = space, .sizes = cut_sizes_of(planner)};
    mics_plan_entry best = {0}, entry = {0};
    mics_status status = MICS_OK;
    if (all.sizes.layers > 0)
        all.elems = cut_layer_elems(planner->request.model);
    planner->limit_bytes = planner->available_bytes - planner->request.margin_bytes;
    MICS_TRY_OUT(list_cuts(&all));
    if (all.count == 0 && planner->request.margin_bytes > 0) {
        planner->limit_bytes = planner->available_bytes;
        MICS_TRY_OUT(list_cuts(&all));
    }
    if (all.count > 0)
        qsort(all.items, (size_t)all.count, sizeof(cut), compare_cuts);
    for (int32_t i = 0; i < all.count; i++) {
        if (best.step_us > 0 && all.items[i].bound_us > best.step_us)
            break;
        MICS_TRY_OUT(evaluate_cut(&all, &all.items[i], &entry));
        if (best.step_us == 0 || entry.step_us < best.step_us)
            best = entry;
    }
    if (all.count == 0 && all.any)
        MICS_TRY_OUT(evaluate_cut(&all, &all.smallest, &best));
    if (whole != NULL) {
        entry = name_whole(planner, space->pipeline.era, whole);
        if (is_better(&entry, &best))
            best = entry;
        all.any = true;
    }
    if (!all.any) // nothing repeats that could be cut
        snprintf(best.name, sizeof best.name, "megatron");
    *entry_out = best;
out:
    mics_free(planner->memory, all.items);
    return status;
}
