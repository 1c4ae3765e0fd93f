// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics bench: what its parts share. Every rank measures; rank 0 has the results, and its process merges
// them into a cluster file.
#ifndef MICS_CLI_BENCH_H
#define MICS_CLI_BENCH_H

#include "mics/cluster.h"
#include "mics/cost.h"
#include "mics/schedule.h"
#include "run/world.h"
#include <stdio.h>

// Where it is measured; alike on all ranks.
typedef struct bench_place {
    int32_t ranks, nodes, per_node;
    int32_t threads;       // of a rank, that compute
    int32_t cores;         // that ranks have together on the machine with the fewest
    int32_t machine_ranks; // that run on one machine; nodes may be of one machine (emulation)
    bool shared;           // one machine stands for all, and has fewer cores than ranks' threads
    size_t buffer_bytes;   // that a rank may allocate
    bool mpi;
} bench_place;

// ---- results ----

// Links of one tier. No points in the ramp: not measured.
typedef struct bench_tier {
    double latency_us;
    mics_curve ramp;         // message bytes -> bytes/s of one rank, in gathers
    mics_curve reduce_ramp;  // the same in reductions, with the adding
    double link_bytes_per_s; // of one child's link: all ranks that share it at once
    double core_us_per_byte; // that a rank's thread works
    double slowdown;         // of computation beside it; see bench_beside.c
    // What messages take longer beside computation, by the threads a core that compute.
    mics_curve beside_us, beside_us_per_byte;
} bench_tier;

enum { BENCH_ROWS = 32 };

// One collective, and what the cluster that was measured predicts for it.
typedef struct bench_row {
    const char *name;
    mics_collective collective;
    bool staged; // in two stages
    double us;
} bench_row;

typedef struct bench_links {
    bench_tier near, far;
    double reduce_bytes_per_s;
    bench_row rows[BENCH_ROWS];
    int32_t row_count;
    double took_s;
} bench_links;

// What one rank computes with. Rates are those at which the model trains.
typedef struct bench_compute {
    char cpu_name[MICS_CLUSTER_NAME_BYTES];
    double memory_bytes;
    double flops_per_s;              // the largest rate of a product
    mics_curve matmul_efficiency;    // share of that, by the smallest dimension
    mics_curve attention_efficiency; // by the length of the sequence
    double stream_bytes_per_s;       // of additions that no cache holds
    double elementwise_bytes_per_s;  // of the model's ops that move memory
    double update_bytes_per_s;
    double launch_us;
    double step_overhead_us;
    double training_factor; // what a pass of the model takes, to the sum of its ops alone
    double pass_us;         // forward and backward of one micro-step in training
    double took_s;
} bench_compute;

// ---- one rank's session (bench.c) ----

enum { BENCH_FIGURES = 8 };

typedef struct bench {
    run_rank *rank;
    bench_place place;
    double *all; // (ranks, BENCH_FIGURES): what every rank said last
} bench;

/* Opens a session: finds out which ranks share machines.
 *
 * `threads` 0: an equal share of the machine's cores.
 * Owns: close with bench_close, also after a failure.   Collective: yes.
 */
mics_status bench_open(bench *self, run_rank *rank, int32_t threads);
void bench_close(bench *self);

/* Tells all ranks `count` <= BENCH_FIGURES figures; then the readers below give the same everywhere.
 * Who has nothing to say gives negative figures, which the readers leave out (mean and most of none: 0).
 * Collective: yes. */
mics_status bench_share(bench *self, const double *mine, int32_t count);
double bench_mean(const bench *self, int32_t figure);
double bench_most(const bench *self, int32_t figure);

/* Time at which rank 0 is, in us, the same on all ranks: for decisions.   Collective: yes. */
mics_status bench_now_us(bench *self, double *now_us_out);

/* A clock for computation of this thread, us: its processor time where ranks share cores, so that it does
 * not count while others compute; else the time of day. */
double bench_work_us(const bench *self);
/* Processor time of the calling thread, us. */
double bench_thread_us(void);

/* The median; sorts the values. 0 for none. */
double bench_median(double *values, int32_t count);

/* Says on standard error what is being measured: rank 0 alone. */
void bench_say(const bench *self, const char *format, ...) MICS_PRINTF(2, 3);

// ---- traffic (bench_traffic.c) ----

// A collective in one kind of group, again and again.
typedef struct bench_traffic bench_traffic;
struct bench_traffic {
    const char *what;
    mics_group group;
    bool active;  // this rank takes part; the others sleep
    bool reduces; // reduce-scatter; else all-gather
    int32_t channel;
    size_t block_bytes;
    const bench_traffic *then; // (optional) another one behind it, in the same buffer
};

typedef struct bench_traffic_time {
    double us;      // of one collective, on the slowest rank; the median
    double mean_us; // the same, the mean
    double core_us; // that a rank's thread works in it, on average
} bench_traffic_time;

mics_status bench_traffic_once(const bench *self, const bench_traffic *traffic, void *buffer);

/* Runs it to warm up, then for about `allowed_us`, at least once.   Collective: world. */
mics_status bench_traffic_run(bench *self, const bench_traffic *traffic, void *buffer,
                              double allowed_us, bench_traffic_time *time_out);

/* The groups that are measured. NEAR: the ranks of a node. FAR: equal local ranks of two neighbouring
 * nodes. RING: all ranks of two neighbouring nodes, so that one leaves each node. Where nodes share cores, of as many nodes as keep a core to each rank (at least one, or a pair). */
bench_traffic bench_traffic_near(const bench *self);
bench_traffic bench_traffic_far(const bench *self);
bench_traffic bench_traffic_ring(const bench *self);

/* Of the first `nodes` nodes: the ranks of each, or equal local ranks of all of them (nodes >= 2). */
bench_traffic bench_traffic_crowd(const bench *self, bool far, int32_t nodes);

/* Sleeps, which is no load. */
void bench_sleep_us(double us);

// ---- measuring ----

/* Links, in about `seconds`.   Collective: world. */
mics_status bench_links_measure(bench *self, double seconds, bench_links *links_out);

typedef struct bench_beside_spec {
    bool far;           // between nodes; else inside them
    size_t large_bytes; // of a large message, and what it takes alone
    double large_us;
    double seconds;
} bench_beside_spec;

/* Computation and traffic at once: what messages take longer beside computation, and computation (by processor
 * time where ranks share cores) beside messages. Needs the tier's latency; fills beside_us,
 * beside_us_per_byte and slowdown.
 * Collective: world. */
mics_status bench_beside_measure(bench *self, const bench_beside_spec *spec, void *buffer,
                                 bench_tier *tier);

// The model to measure, cut to a few layers where it is large.
typedef struct bench_subject {
    mics_json *config;
    mics_model *model;
    mics_batch batch;
} bench_subject;

/* Computation, in about `seconds`.   Collective: world. */
mics_status bench_compute_measure(bench *self, const bench_subject *subject, double seconds,
                                  bench_compute *compute_out);

// ---- the cluster file (bench_file.c) ----

/* Reads PATH where it exists, and checks that a file can be written there.
 *
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_FORMAT, MICS_ERR_INVALID, logged with what to do.
 */
mics_status bench_file_read(mics_memory *memory, const char *path, bool *there_out,
                            mics_cluster *cluster_out);

/* A cluster without figures for this place, named as the file. */
void bench_file_begin(const bench_place *place, const char *path, mics_cluster *cluster_out);

/* Refuses a file of nodes with other ranks than these. */
mics_status bench_file_check(const char *path, const mics_cluster *cluster, int32_t per_node);

/* Take what was measured in; other figures stay. */
void bench_file_take_links(const bench_place *place, const bench_links *links,
                           mics_cluster *cluster);
void bench_file_take_compute(const bench_place *place, const bench_compute *compute,
                             mics_cluster *cluster);

/* Says in the note what was measured when: `section` is "links" or "computation", whose older words
 * give way. */
void bench_file_note(mics_cluster *cluster, const char *section, const char *words);

mics_status bench_file_write(mics_memory *memory, const char *path, const mics_cluster *cluster);

// ---- tables (bench_print.c) ----

void bench_print_links(const bench_place *place, const bench_links *links,
                       const mics_cluster *cluster, FILE *out);
void bench_print_compute(const bench_place *place, const bench_compute *compute, FILE *out);
void bench_json_links(const bench_place *place, const bench_links *links,
                      const mics_cluster *cluster, FILE *out);
void bench_json_compute(const bench_compute *compute, FILE *out);

#endif
