// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files of this module share; nobody else includes it.
#pragma once

#include "plan/simulate/simulate.h"

// ---- work.c: what steps take alone ----

// A collective and what it occupies while it runs alone.
typedef struct collective {
    mics_cost_use use;
    double share[MICS_CLUSTER_TIERS]; // of each tier's links: busy_us / us
    double cores;                     // of one, on each member: core_us / us
    double late;                      // beside computation it takes 1 + late times
} collective;

// One step of the list.
typedef struct work {
    double us;
    int32_t collective; // index among the table's; -1: computation
} work;

typedef struct work_table {
    mics_memory *memory;
    work *steps;
    collective *collectives; // each different one once
    int32_t collective_count;
} work_table;

/* Fills a zeroed table; on failure too it is closed with work_close. */
mics_status work_open(mics_memory *memory, const mics_schedule *schedule,
                      const mics_cluster *cluster, const mics_simulate_options *options,
                      work_table *table);
void work_close(work_table *table);

// ---- computation.c, collective.c ----

/* What a unit's pass takes on one rank, in us; *flops_out (may be NULL) what the ops count. */
double unit_forward_us(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                       int32_t unit, double *flops_out);
double unit_backward_us(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                        int32_t unit, double *flops_out);

double norm_us(const mics_schedule *schedule, const mics_cluster *cluster);
double momentum_us(const mics_schedule *schedule, const mics_cluster *cluster, int32_t unit);
double orthogonalise_us(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                        int32_t unit);
double update_us(const mics_schedule *schedule, const mics_cluster *cluster, int32_t unit);
double meeting_us(const mics_schedule *schedule, const mics_cluster *cluster,
                  const mics_step *step);

/* What a collective of the schedule takes, with the packing and adding that its thread does. */
mics_cost_use collective_use(const mics_schedule *schedule, const mics_cluster *cluster,
                             const mics_simulate_options *options, const mics_step *step);

// ---- clock.c: events ----

// Something that is under way on a stream.
typedef struct job {
    int32_t step;
    int32_t collective; // -1: computation
    double left_us;     // of its work, alone
    double slack_us;    // less than that is nothing
    double link_rate;   // that the links allow
    double rate;        // work done in a us
    double cores;       // of one, that each thread of it wants before cores are shared
} job;

typedef struct simulator {
    mics_memory *memory;
    const mics_schedule *schedule;
    const mics_step_list *list;
    const mics_cluster *cluster;
    const mics_simulate_options *options;
    work_table table;
    int64_t number;                // of the training step: says which steps run
    int32_t *following, *previous; // by step that runs: neighbours on its stream; -1: none
    int32_t *runs; // by step: itself, or the newest before it on its stream that runs; -1: none
    int32_t next[MICS_STREAMS]; // step that the stream is in, or before; -1: at its end
    int32_t done[MICS_STREAMS]; // newest step done; -1: none
    bool busy[MICS_STREAMS];
    job jobs[MICS_STREAMS]; // under way; behind them those that have just ended
    int32_t job_count;
    bool links_changed;               // a collective has begun or ended
    double loads[MICS_CLUSTER_TIERS]; // what collectives want of the links, 1 for all of them
    double now_us;
    mics_step_time *times; // by step
} simulator;

/* Whether a step of the list runs. */
static inline bool step_runs(const simulator *sim, int32_t index)
{
    return sim->runs[index] == index;
}

/* The step on a stream that another waits for, of those that run; -1: none. */
static inline int32_t waited_step(const simulator *sim, int32_t index, int stream)
{
    const int32_t step = sim->list->steps[index].wait[stream];
    return step >= 0 ? sim->runs[step] : -1;
}

/* Runs the list; the simulator is filled but for jobs.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged. */
mics_status clock_run(simulator *sim);

// ---- share.c ----

/* Sets the rate of every job. */
void share_out(simulator *sim);

// ---- result.c ----

/* Everything that follows from times. */
void fill_result(const simulator *sim, mics_simulation *result);
