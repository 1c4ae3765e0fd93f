// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Searches shardings and batches for a model on a cluster: makes their schedules, takes their
// memory from the ledger, runs them on clocks, and says why the best is the best.
//
// The space is the whole family P | G | O that the mesh allows (on CPUs with every E of a model with
// experts), times every micro-batch x accumulation that gives the global batch, recomputation,
// activations in host memory, units gathered ahead, layered micro-steps (some, all, or as many as
// fit), and collectives by one ring or in two stages. What does not fit is left out by memory, which is
// known without making the schedule; what cannot be among the best by a lower bound on its time
// (computation alone, bytes over links, passes that wait for them) that never exceeds what the
// simulation says. So the best is that of the whole space.
//
// Long accumulations are periodic. Once two layered groups in the middle of a simulated step take
// the same times in all their parts, every further one does, and the step is extended by so many of
// them.
#pragma once

#include "mics/core/schedule.h"
#include "mics/memory.h"
#include "mics/model.h"
#include "mics/status.h"
#include "plan/cost/cluster.h"
#include "plan/cost/software.h"
#include "plan/simulate/simulate.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    // That are searched; more are evaluated. Layered micro-steps: powers of two, and all where they
    // are few.
    MICS_PLAN_MAX_PREFETCH = 3,
    MICS_PLAN_MAX_LAYERED_MICRO_STEPS = 8,
    MICS_PLAN_MAX_ALL_LAYERED = 64,
    MICS_PLAN_WHY_BYTES = 320,
    MICS_PLAN_NAME_BYTES = 48
};

// What is to be trained, and where.
typedef struct mics_plan_request {
    const mics_model *model; // outlives the planner
    mics_cluster cluster;    // finished
    int32_t nodes;
    int64_t length;       // of a sequence
    int64_t global_batch; // sequences a step, or pairs
    int64_t micro_batch;  // that is tried also where it does not divide a rank's share; 0: none
    mics_preference preference; // as in mics_schedule_spec; of pairs batches count these
    mics_precision precision;
    mics_math math;                // that GEMMs compute in
    mics_optimizer_kind optimizer; // whose states are counted
    mics_state_dtype state_dtype;  // as in mics_schedule_spec
    bool rounded_sums;             // the same, on one rank; several are planned with fp32 sums
    bool accelerator; // ranks compute on devices with memory of their own (mics_schedule_spec)
    int64_t param_persistence_threshold;
    mics_comm_dtypes params_dtype, grads_dtype, boundary_dtype; // as in mics_schedule_spec
    int64_t coalesce_below;                                     // the same
    bool share_params, delta_sync;                              // the same
    size_t staging_bytes;                                       // of the transport, a rank
    bool node_memory; // copies of the state are kept in the memory of nodes (mics_schedule_spec)
    int32_t threads;  // of a rank; 0 counts as 1
    bool library;     // ops by a library's kernels where they can (mics_op_shape.library)
    const mics_software *software; // whose MEGATRON is; NULL: as Megatron Core is now
    int32_t min_replicas;          // copies of every state that searched shardings keep at least
    double memory_bytes;           // a rank may use; 0: the accelerator's without its reserve
    double margin_bytes;           // of them, that plans leave free unless nothing else fits
    // Local steps (every > 0): shardings are over an island's ranks, which divide all.
    mics_outer outer;
    int32_t outer_ranks;
} mics_plan_request;

// One way to run it.
typedef struct mics_plan_choice {
    mics_sharding sharding;
    int32_t experts;  // ranks that keep different experts (mics_mesh.experts); 0 counts as 1
    int32_t sequence; // ranks that share each sequence (mics_mesh.sequence); 0 counts as 1
    int64_t micro_batch;
    int32_t micro_steps; // the fewest with which all ranks' micro-batches hold the global batch
    int32_t prefetch;
    int32_t layered_micro_steps; // mics_schedule_spec.layered_micro_steps; 0 counts as 1
    mics_recompute recompute;
    int32_t offload_units; // mics_schedule_spec.offload_units
    // Where the group spans nodes. An accelerator sums bf16 and fp16 in two stages, unless it
    // is to sum by rings (mics_schedule_spec).
    bool gather_two_stage, reduce_two_stage, sums_by_ring;
    bool all_reduces;        // the second hop over replicas as other systems run it (the same)
    bool boundary_two_stage; // second hop and parameter sync, where their groups do
    bool early_gathers;      // mics_schedule_spec.early_gathers
} mics_plan_choice;

// Tensor, context, pipeline and expert parallelism; zeros in plans of the family.
typedef struct mics_plan_pipeline {
    int32_t tensor, context, stages, data; // the ranks are their product
    int32_t chunks;                        // of a stage: 1 is 1F1B, more is interleaved
    int32_t expert; // ranks of a stage that keep different experts; 1: each has a part of all
    mics_megatron_era era;
    double bubble_us; // that stages wait for each other
} mics_plan_pipeline;

// What a choice takes and reaches.
typedef struct mics_plan_entry {
    mics_plan_choice choice;
    mics_plan_pipeline pipeline;
    char
        name[MICS_PLAN_NAME_BYTES]; // "mics+(8)", "megatron t8 p16 d4 v2", "megatron t8c2 p4 d16e8"
    bool fits;
    bool tight;                // fits, but leaves less than the margin
    bool runs;                 // a run file can say it, and mics run it
    mics_memory_ledger memory; // of a rank
    double reserve_bytes;      // of the accelerator, not ours
    double spare_bytes;        // that are left; below 0: what is missing
    // Times in us. step = forward_backward + update + the exposed ones + overhead. With local steps
    // they are means over a period; what limits, and `sent`, are of a step in which nothing meets.
    double step_us;
    double compute_us; // forwards and backwards, slowed by what runs beside
    double update_us;  // norm and optimizer, the outer one too
    double exposed_param_sync_us, exposed_gather_us, exposed_reduce_us, exposed_second_hop_us;
    double exposed_all_to_all_us; // of rows to experts, and back
    double exposed_copy_us;       // of activations to host memory, and back
    double
        exposed_other_us; // agreement, meetings; MEGATRON: the bubble, and what its passes wait for
    double exposed_us;    // all of them
    double meeting_us;    // that meetings add to a step
    double overhead_us;
    mics_step_kind limit; // of the longest chain; forward and backward count together
    mics_step_stage limit_stage;
    double limit_us;
    int32_t limit_tier; // whose links set its pace; -1: computation
    mics_cost_limit limit_by;
    double tokens;                      // a step
    double model_flops, hardware_flops; // of one rank, a step; the second with recomputation
    double tokens_per_s;
    double tflops_per_gpu; // model_flops over the step
    double hardware_tflops_per_gpu;
    double mfu;            // of the accelerator's peak in this math
    double usd_per_gtoken; // 0: no price is known
    mics_bytes sent;       // a step, by all ranks
    mics_bytes met;        // in the meetings of a period
    mics_outer outer;      // every 0: no local steps
    int32_t outer_ranks;
    char why[MICS_PLAN_WHY_BYTES];
} mics_plan_entry;

// Which shardings; p is free in each.
typedef enum mics_plan_family {
    MICS_PLAN_FAMILY_ALL,
    MICS_PLAN_FAMILY_MICS,      // p | p | p
    MICS_PLAN_FAMILY_MICS_PLUS, // p | p | n
    MICS_PLAN_FAMILY_HPZ        // p | n | n, p > 1
} mics_plan_family;

// What the search may choose from. All zeros: everything.
typedef struct mics_plan_space {
    mics_sharding sharding; // params > 0: this one alone
    mics_plan_family family;
    int64_t micro_batch;         // > 0: this one alone
    mics_plan_pipeline pipeline; // MEGATRON: what of it is above 0 stands fixed
    int32_t experts;             // > 0: ranks that keep different experts, this number alone
    int32_t sequence; // > 0: ranks that share each sequence; else as few as leave activations whole
    int32_t params;   // > 0: shardings with this P alone
    int32_t min_replicas;        // > 0: in place of the request's
    int32_t prefetch;            // where given
    int32_t prefetch_least;      // units gathered ahead
    int32_t layered_micro_steps; // > 0: this one alone
    int32_t offload_units;       // where given
    mics_recompute recompute;    // where given
    bool layered_by_rule;        // else: as many as training takes by itself (mics_planner_layered)
    bool recompute_given;        // `recompute` alone
    bool recompute_open;         // (with it) of its units, at either end
    bool offload_given; // `offload_units` alone; else as few as fit, in place of recomputation
    bool prefetch_given;
    // Not given: gathers and reductions either way, the boundary in two stages.
    bool collectives_given, gather_two_stage, reduce_two_stage, boundary_two_stage;
    bool sums_by_ring, all_reduces;
    bool early_given, early_gathers; // where they may be
    bool fitting_only;               // nothing that does not fit is looked at: no `faster`
    bool fills_memory;               // leaves no margin, as trainings that choose by themselves
    bool exhaustive;                 // simulate everything that fits: for tests
} mics_plan_space;

// What a search found.
typedef struct mics_plan_result {
    mics_plan_entry *entries; // the best of each of the best shardings, best first
    int32_t count, capacity;
    // Lacks the least of what does not fit and would be more than 1 % faster than the winner; the
    // few that lack the least and could be by their bounds are looked at.
    mics_plan_entry faster;
    bool has_faster;
    mics_plan_entry nearest;           // where nothing fits: what lacks the least
    int64_t space, fitting, simulated; // choices, those that fit, those whose schedules were run
    mics_memory *memory;
} mics_plan_result;

typedef struct mics_planner mics_planner;

/* Opens a planner.
 *
 * Needs:   a finished cluster that holds `nodes`; length <= model->positions; global_batch >= 1.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: a need; MICS_ERR_MEMORY.
 * Owns:    close with mics_planner_close.      Threads: one at a time.
 */
mics_status mics_planner_open(mics_memory *memory, const mics_plan_request *request,
                              mics_planner **planner_out);
void mics_planner_close(mics_planner *planner);

/* Ranks of the request's cluster. */
int32_t mics_planner_ranks(const mics_planner *planner);

/* Bytes that a rank may use. */
double mics_planner_memory_bytes(const mics_planner *planner);

/* Whether a choice's replica gathers are early: `by_rule` where a training has them so by itself, else
 * where they may be. Of the choice only the sharding and all_reduces count. */
bool mics_planner_gathers_early(const mics_planner *planner, const mics_plan_choice *choice,
                                bool by_rule);

/* Makes the schedule of one choice and runs it on clocks. `why` stays empty.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: the choice is none, or a step sends more bytes
 *          than are counted (9e18); MICS_ERR_MEMORY.
 */
mics_status mics_planner_evaluate(mics_planner *planner, const mics_plan_choice *choice,
                                  mics_plan_entry *entry_out);

/* Searches.
 *
 * Ties are broken, in this order, by: time (whole ns), inter-node bytes, memory, smaller P, G, O, E, S,
 * larger micro-batch, no recomputation, smaller prefetch, smaller layered_micro_steps, rings, no
 * early gathers.
 * Needs:   top >= 1.
 * Returns: MICS_OK, also where nothing fits (count 0); MICS_ERR_INVALID, logged: the space is
 *          empty, or the global batch is no multiple of the ranks, with those that would work;
 *          MICS_ERR_MEMORY.
 * Owns:    close with mics_plan_result_close.
 */
mics_status mics_planner_search(mics_planner *planner, const mics_plan_space *space, int32_t top,
                                mics_plan_result **result_out);
void mics_plan_result_close(mics_plan_result *result);

/* Puts a row among a result's entries, where the planner's own request can be run so, and it is better
 * than what is there: so no row beats the first entry. Rows of another request are evaluated anew.
 *
 * Returns: as mics_planner_evaluate.
 */
mics_status mics_planner_merge(mics_planner *planner, const mics_plan_entry *row,
                               mics_plan_result *result);
