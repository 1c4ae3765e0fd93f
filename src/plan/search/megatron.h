// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tensor and pipeline parallelism as Megatron-LM has it, for comparison: Narayanan et al., SC21,
// arXiv:2104.04473. What its files share.
//
// Layers are cut over `tensor` ranks of a node: the first of two GEMMs by columns, the second by
// rows, so that each pair ends in one all-reduce forward and one backward. Layers in a row are a
// chunk; each of the stages has `chunks` of them. Collectives run between computations, never
// beside: so did Megatron-LM's of that year.
#ifndef MICS_PLAN_MEGATRON_H
#define MICS_PLAN_MEGATRON_H

#include "plan/search/internal.h"

// One way to cut.
typedef struct cut {
    mics_plan_pipeline p;
    int64_t micro_batch;
    int32_t micro_steps; // micro-batches of one pipeline
    bool recompute;
    double bound_us;
    double memory_bytes;
} cut;

// What one unit of the model takes for one micro-batch on one of the tensor-parallel ranks.
typedef struct unit_time {
    double forward_us, backward_us;         // computation
    double forward_sum_us, backward_sum_us; // all-reduces over the tensor-parallel ranks
    double flops_forward, flops_backward;   // of the whole unit
    double saved_bytes;                     // that backward reads
    double input_bytes;                     // of it, the unit's input
} unit_time;

// Of one cut: what chunks consist of.
typedef struct stage_times {
    unit_time embed, layer, head;
    int32_t layers; // of the model
    double send_us; // activations from one stage to the next
} stage_times;

/* ---- tensor.c ---- */
/* By how much ranks that share cores slow each other; 1: each has its own. */
double tensor_crowd(const mics_planner *planner);
unit_time tensor_unit(const mics_planner *planner, int32_t unit, const cut *c);
void tensor_stage_times(const mics_planner *planner, const cut *c, stage_times *times_out);
int32_t tensor_heads(const mics_model *model);

/* ---- pipeline.c ---- */

// How long the passes take, and what the busiest stage does in that time.
typedef struct pipeline_time {
    double us;
    double compute_us, sum_us, send_us; // of the busiest stage; the rest is its bubble
} pipeline_time;

/* The work of the busiest stage for all micro-batches. */
pipeline_time pipeline_busy(const cut *c, const stage_times *times);

/* Runs 1F1B, or the interleaved schedule where chunks > 1.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status pipeline_run(mics_memory *memory, const cut *c, const stage_times *times,
                         pipeline_time *time_out);

/* Layers whose activations a stage holds at once. */
double pipeline_layers_held(const cut *c, int32_t layers);

#endif
