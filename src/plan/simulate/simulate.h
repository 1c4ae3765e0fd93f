// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs a schedule's training list on clocks: how long a step takes on a cluster, what computation
// waits for, and which chain of steps is the longest.
//
// A discrete simulation. A rank has the streams of the engine, each in list order. A step begins
// when its stream is free and all steps that it names are done. Alone it takes what cost says. The
// list begins with what the step before left (updates, with replica gathers unless these are early,
// or the parameter sync of what it updated), so one run of it is a step of a steady state.
//
// What runs at once shares (a fluid: shares are divided anew whenever something begins or ends):
//   links       Collectives go at full speed while their shares of each tier's links add up to at
//               most 1, and slower in proportion where they do not (cost.h). A node stands for the
//               links of all tiers above its ranks; what its ranks send is averaged over them.
//   computation takes 1 + slowdown times beside a collective, the slowdowns of two added up.
//   messages    take longer while members compute, by the cluster's figures (beside_us), as who
//               sends and receives then waits for a core.
//   cores       Where the cluster has a number of cores that all ranks run on, they are divided as
//               a fair scheduler divides them (max-min): nobody gets more than it can use, and who
//               is content with less than an equal share gets all of that. A computation uses
//               batch.threads cores; a collective on each member core_us / us of one, less where
//               links slow it.
//
// Ranks do the same in the same order, so one stands for all.
//
// With local steps the list has steps of meetings, which run in some of its training steps. One
// simulation is of one training step; a period is the mean of all that it has (period.c).
#pragma once

#include "mics/core/schedule.h"
#include "mics/memory.h"
#include "mics/status.h"
#include "plan/cost/cluster.h"
#include "plan/cost/cost.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// All zeros: fp32, rings as the engine runs them.
typedef struct mics_simulate_options {
    mics_math math; // that GEMMs and attention compute in
    // All-reduces (where the schedule says so of the second hop) take the faster of a ring and a
    // pair of trees, as NCCL's do; else a ring. Reduce-scatters and all-gathers have rings alone.
    // What is counted as sent stays the schedule's.
    bool trees;
    // (optional) What passes take alone, us: forwards by unit, and behind them backwards; below 0
    // is not known, and filled in. For schedules of the same model, batch, precision and recompute
    // that have the same units' gradients sharded.
    double *pass_us;
    int64_t number; // of the training step, whose meetings run; 0: one in which nothing meets
} mics_simulate_options;

// What the steps of a kind belong to.
typedef enum mics_part {
    MICS_PART_COMPUTATION, // forward, backward
    MICS_PART_GATHER,      // both stages
    MICS_PART_REDUCE,      // inside the gradient group, both stages
    MICS_PART_SECOND_HOP,  // scatter, replica scatter and replica gather
    MICS_PART_ALL_TO_ALL,  // of rows to experts, and back
    MICS_PART_COPY,        // of activations to host memory, and back
    MICS_PART_PARAM_SYNC,  // and what is sent of momentum
    MICS_PART_UPDATE,      // norm, agreement, update
    MICS_PART_MEETING,     // of islands, with what they tell each other of each step
    MICS_PARTS
} mics_part;

// The steps of one kind and stage.
typedef struct mics_simulated_kind {
    int32_t steps;
    double alone_us;    // had each the machine to itself
    double busy_us;     // from begin to end: with contention, without waiting for other ranks
    double exposed_us;  // computation waited for them, as the engine counts it
    double critical_us; // their part of the longest chain
    int32_t
        tier; // that sets the pace of the longest of them, and by what; -1: computation, or none
    mics_cost_limit limit;
} mics_simulated_kind;

// Times in us, of each rank.
typedef struct mics_simulation {
    double step_us;    // = compute_us + exposed_us + overhead_us; = the critical_us and overhead_us
    double compute_us; // busy_us of the computing kinds
    double exposed_us; // computation waited, for whatever kind
    double overhead_us;             // the cluster's step_overhead_us
    double stream_us[MICS_STREAMS]; // that each stream is busy
    mics_simulated_kind kinds[MICS_STEP_KINDS][MICS_STAGES];

    double flops;    // of one rank, recomputation included
    mics_bytes sent; // by all ranks; equals mics_schedule_all_bytes
    mics_bytes met;  // in the meetings of a period; equals mics_schedule_meeting_bytes
    double tier_bytes[MICS_CLUSTER_TIERS]; // through the busiest link of each tier, one way

    int32_t steps;         // of the list
    mics_step_time *times; // by step; the list begins at 0; zeros of those that do not run
    mics_memory *memory;
} mics_simulation;

/* What a FORWARD or BACKWARD takes alone, which may be a part of its unit's pass.
 *
 * Units:   us. */
double mics_simulate_part_us(const mics_schedule *schedule, const mics_cluster *cluster,
                             mics_math math, const mics_step *step);

/* Simulates the training list.
 *
 * Takes time and memory linear in steps.
 * Needs:   a finished cluster whose nodes have as many ranks as the mesh's and that holds its
 *          nodes; a schedule with a training list. `options` NULL: all zeros.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged (a need, or steps that wait for each other);
 *          MICS_ERR_MEMORY (simulation_out untouched).
 * Owns:    close with mics_simulation_close; borrows nothing afterwards.
 * Threads: any.
 */
mics_status mics_simulate(mics_memory *memory, const mics_schedule *schedule,
                          const mics_cluster *cluster, const mics_simulate_options *options,
                          mics_simulation **simulation_out);
void mics_simulation_close(mics_simulation *simulation);

/* The mean of a period of local steps: simulates a training step in which nothing meets, and each one
 * that differs. Without local steps it is mics_simulate.
 *
 * Of the mean `times` is NULL, and 0 what is not a sum: steps, tiers and limits. `options->number` does
 * not count.
 * Needs:   as mics_simulate.
 * Returns: as mics_simulate.
 * Owns:    as mics_simulate.
 */
mics_status mics_simulate_period(mics_memory *memory, const mics_schedule *schedule,
                                 const mics_cluster *cluster, const mics_simulate_options *options,
                                 mics_simulation **mean_out);

/* The part that a kind of step belongs to.   Needs: a valid kind. */
mics_part mics_part_of(mics_step_kind kind);

/* What a copy of so many bytes to host memory, or back, takes alone.   Needs: bytes >= 0. Pure. */
double mics_simulate_copy_us(const mics_cluster *cluster, double bytes);

/* Bytes that so many bf16 numbers are taken to need in a parameter sync that sends changes
 * (mics_schedule_spec.delta_sync). Pure.
 *
 * Needs:   elems >= 0.
 */
double mics_simulate_delta_bytes(int64_t elems);
