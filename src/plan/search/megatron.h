// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tensor, context, pipeline and expert parallelism as Megatron has them, for comparison. What its
// files share.
//
// Tensor and pipeline: Narayanan et al., SC21, arXiv:2104.04473. Layers are cut over `tensor` ranks
// of a node: the first of two GEMMs by columns, the second by rows, so that each pair ends in one
// all-reduce forward and one backward. Layers in a row are a chunk; each of the stages has `chunks`
// of them.
//
// What later versions added (Korthikanti et al., 2022, arXiv:2205.05198, section 4.2; Megatron
// Core's documentation, "Distributed Optimizer" and "Communication overlap", read 2026-11):
// - sequence parallelism: what is not cut over tensor-parallel ranks is cut by tokens, so a rank
//   keeps 1 / tensor of all activations. Each all-reduce becomes a reduce-scatter and a gather;
// - masters and moments are sharded over the replicas. Gradients are reduce-scattered beside the
//   last backward, parameters gathered beside the first forward;
// - tensor parallelism's collectives run beside the GEMMs they belong to, in as many chunks as
//   ranks, of which one is waited for; sends of interleaved stages run beside computation.
// All-to-alls of experts are waited for.
//
// Context (Megatron Core's documentation, "context_parallel package", read 2026-11; Liu et al.,
// Ring Attention, arXiv:2310.01889): each of `context` ranks has two of 2 x context blocks of every
// sequence, one from its head and one from its tail, so that all attend to as many tokens. Keys and
// values go around a ring, one step while attention computes on what the step before brought.
//
// Expert (Megatron Core's documentation, "Mixture of Experts package"; Liu et al., MoE Parallel
// Folding, arXiv:2504.14960): `expert` neighbouring ranks of a stage keep whole experts, each others.
// A rank sends its 1 / tensor of the tokens to their experts by an all-to-all, and gets them back by
// another. Experts get equally many tokens. With `expert` 1 each expert is cut like other GEMMs.
//
// Ranks are numbered tensor first, then context, data, stages.
#pragma once

#include "plan/search/planner.h"

// One way to cut.
typedef struct cut {
    mics_plan_pipeline p;
    int64_t micro_batch;
    int32_t micro_steps; // micro-batches of one pipeline
    double recomputed;   // share of the layers
    double bound_us;
    double memory_bytes;
} cut;

// What one unit of the model takes for one micro-batch on one of the tensor-parallel ranks.
typedef struct unit_time {
    double forward_us, backward_us;         // computation
    double forward_sum_us, backward_sum_us; // collectives that it waits for
    double flops_forward, flops_backward;   // of the whole unit
    double saved_bytes;                     // that backward reads
    double input_bytes;                     // of it, the unit's input
    double whole_bytes;                     // that input, gathered
} unit_time;

// Of one cut: what chunks consist of. Layers of several kinds count by their mean.
typedef struct stage_times {
    unit_time embed, layer, head;
    int32_t layers; // of the model
    double send_us; // activations from one stage to the next
} stage_times;

// A layer's parameters, the mean of all layers.
typedef struct layer_elems {
    double dense, experts;
} layer_elems;

/* What the request's software does; without one, what Megatron Core does. */
static inline const mics_software *rival_software(const mics_planner *planner)
{
    static const mics_software core = {.imbalance = 1};
    return planner->request.software != NULL ? planner->request.software : &core;
}

/* ---- exchange.c: what ranks send each other for one micro-batch, us ---- */
/* Tokens of one rank. */
double cut_tokens(const mics_planner *planner, const cut *c);
/* The tokens' vectors, summed over the ranks that a GEMM was cut over, or gathered from them. */
double exchange_sum_us(const mics_planner *planner, const cut *c);
double exchange_gather_us(const mics_planner *planner, const cut *c);
/* Tokens to their experts, `chosen` each; or back. */
double exchange_experts_us(const mics_planner *planner, const cut *c, int32_t chosen);
/* One step of the ring of context-parallel ranks. */
double exchange_ring_us(const mics_planner *planner, const cut *c, double bytes);
/* Activations to the next stage. */
double exchange_send_us(const mics_planner *planner, const cut *c);
/* `bytes` of gradients, which every stride-th rank of a stage has: summed for all of them, by rings
 * or trees. */
double exchange_gradients_us(const mics_planner *planner, const cut *c, int32_t stride,
                             double bytes);
/* The same to their owners, or as many bytes of parameters from them. */
mics_cost_use exchange_shards(const mics_planner *planner, const cut *c, int32_t stride,
                              mics_collective_kind kind, double bytes);
/* By how much the node's traffic slows computation beside it. */
double exchange_slowdown(const mics_planner *planner, const cut *c);
/* Those of a table that the first and the last stage have. */
double exchange_table_us(const mics_planner *planner, const cut *c, double bytes);

/* ---- tensor.c ---- */
/* By how much ranks that share cores slow each other; 1: each has its own. */
double tensor_crowd(const mics_planner *planner);
unit_time tensor_unit(const mics_planner *planner, int32_t unit, const cut *c);
/* Without recomputation and sends. */
void tensor_units(const mics_planner *planner, const cut *c, stage_times *times_out);
/* Adds them, as the cut says. */
void tensor_finish(const mics_planner *planner, const cut *c, stage_times *times);

/* ---- cuts.c: which cuts there are ---- */

// That are searched; more are evaluated. Of interleaved chunks the first and the last may have a table
// alone.
enum { MAX_CHUNKS = 16, TABLES = 2 };

// Sizes that degrees have to divide, but for the layers.
typedef struct cut_sizes {
    int32_t ranks, per_node, layers, heads, experts; // heads: of keys and values
    int64_t length;
} cut_sizes;

cut_sizes cut_sizes_of(const mics_planner *planner);
layer_elems cut_layer_elems(const mics_model *model);

/* Whether ranks and model can be cut so; of the degrees all are above 0, `data` does not count. */
bool cut_is_possible(const cut_sizes *sizes, const mics_plan_pipeline *p);

/* ---- pipeline.c ---- */

// How long the passes take, and what the busiest stage does in that time.
typedef struct pipeline_time {
    double us;
    double compute_us, sum_us, send_us; // of the busiest stage; the rest is its bubble
} pipeline_time;

/* Layers of a stage's chunk, and of all its chunks. Where they are not equally many, the first
 * chunk, which has the embedding, has fewer. */
int32_t chunk_layers(const cut *c, int32_t layers, int32_t stage, int32_t chunk);
int32_t stage_layers(const cut *c, int32_t layers, int32_t stage);

/* The work of the busiest stage for all micro-batches. */
pipeline_time pipeline_busy(const cut *c, const stage_times *times);

/* Runs 1F1B, or the interleaved schedule where chunks > 1.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status pipeline_run(mics_memory *memory, const cut *c, const stage_times *times,
                         pipeline_time *time_out);

/* Layers whose activations a stage holds at once. */
double pipeline_layers_held(const cut *c, int32_t layers, int32_t stage);

/* Whether layers may stay whole: t1 p1, which is ddp or zero1 by another name. */
bool plan_megatron_may_be_whole(const mics_planner *planner, const mics_plan_pipeline *given);

/* `whole`: that row, or NULL where layers are cut in any case. */
mics_status plan_megatron(mics_planner *planner, const mics_plan_space *space,
                          const mics_plan_entry *whole, mics_plan_entry *entry_out);
