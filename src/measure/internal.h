// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files of mics bench share.
#pragma once

#include "measure/measure.h"
#include "mics/core/schedule.h"
#include "ops/kernels.h"
#include "run/ranks/world.h"

// ---- one rank's session (session.c) ----

enum { MEASURE_FIGURES = 8 };

typedef struct measure_session {
    run_rank *rank;
    measure_place place;
    double *all; // (ranks, MEASURE_FIGURES): what every rank said last
    bool quiet;  // measure_say says nothing
} measure_session;

/* Opens a session: finds out which ranks share machines. `threads` 0: an equal share of the
 * machine's cores.
 *
 * Owns: close with measure_session_close, also after a failure.   Collective: yes.
 */
mics_status measure_session_open(measure_session *self, run_rank *rank, int32_t threads, bool gpu);
void measure_session_close(measure_session *self);

/* Tells all ranks `count` <= MEASURE_FIGURES figures; then the readers below give the same
 * everywhere. Who has nothing to say gives negative figures, which the readers leave out (mean and
 * maximum of none: 0).
 * Collective: yes. */
mics_status measure_share(measure_session *self, const double *mine, int32_t count);
double measure_mean(const measure_session *self, int32_t figure);
double measure_max(const measure_session *self, int32_t figure);

/* Time at which rank 0 is, in us, the same on all ranks: for decisions.   Collective: yes. */
mics_status measure_now_us(measure_session *self, double *now_us_out);

/* A clock for computation of this thread, us: its processor time where ranks share cores, so that
 * it does not count while others compute; else the time of day. */
double measure_work_us(const measure_session *self);
/* Processor time of the calling thread, us. */
double measure_thread_us(void);

/* The median; sorts the values. 0 for none. */
double measure_median(double *values, int32_t count);

/* Adds a point behind the others. */
void measure_add_point(mics_curve *curve, double size, double value);

/* Nodes that inter-node messages are measured between: 2, but on GPUs all of an odd number, as each rank is in
 * a group there. */
int32_t measure_pair(const measure_place *place);

/* Says on standard error what is being measured: rank 0 alone. */
void measure_say(const measure_session *self, const char *format, ...) MICS_PRINTF(2, 3);

// ---- GPUs (gpu.c); on the CPU buffers are the host's, and nothing is waited for ----

/* Whether GPUs are measured, the same everywhere.
 *
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED, logged: CUDA was asked for, and a process has none.
 * Collective: over processes.
 */
mics_status measure_gpu_choose(run_world *world, mics_run_device asked, bool *used_out);

/* Bytes of a GPU that one rank may take. */
size_t measure_gpu_budget(const run_world *world);

/* Which GPU of this process is a rank's. */
int32_t measure_gpu_index(const run_rank *rank);

/* Opens the rank's GPU, and NCCL; the world closes them.   Collective: world. */
mics_status measure_gpu_open(measure_session *self);

// ---- where a rank computes (stream.c) ----

// Of a GPU: one a stream, and one between streams.
enum { MEASURE_EVENTS = MICS_DEVICE_STREAMS + 1 };

/* Memory where the rank computes. */
mics_status measure_buffer_open(const measure_session *self, size_t bytes, void **buffer_out);
void measure_buffer_close(const measure_session *self, void *buffer);

/* Waits for all that is on a stream. One thread a stream. */
mics_status measure_wait(const measure_session *self, int32_t stream);

/* What comes on stream `to` waits for what is on `from` now. */
void measure_follow(const measure_session *self, int32_t from, int32_t to);

/* Copies from all GPUs to their hosts.   Collective: world. */
mics_status measure_copies_run(measure_session *self, double *bytes_per_s_out);

// C (m, n) = A (m, k) B (k, n), with A or B transposed.
typedef struct measure_gemm {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    void *a, *b, *c;
} measure_gemm;

/* The same as an op; its descriptor says what workspace it needs. */
mics_op_shape measure_gemm_shape(const measure_gemm *gemm, mics_dtype dtype, mics_op *op);
void measure_gemm_enqueue(const measure_gemm *gemm, const mics_exec *at);

// ---- timing of calls (timing.c) ----

// Where operands of a call lie: those it reads, and those it writes. All zeros: nowhere, they are
// counted.
typedef struct measure_layout {
    char *base[2];
    size_t bytes[2]; // taken
} measure_layout;

/* The next operand, on 64 bytes. */
void *measure_take(measure_layout *layout, bool writes, int64_t bytes);

/* Lays out what both passes of an op read and write, but for tokens and routes. Needs `at`, and the
 * shape with its op. */
mics_status measure_op_lay(measure_layout *layout, mics_op_call *call);

enum { MEASURE_MAX_SAMPLES = 64 };

typedef struct measure_timer {
    mics_status (*call)(void *ctx, int32_t call);                 // enqueues it; they count from 0
    mics_status (*mark)(void *ctx, int32_t mark);                 // behind all calls before
    mics_status (*read)(void *ctx, int32_t mark, double *us_out); // waits for it
    void *ctx;
    int32_t warm_ups; // twice as many calls come first; 0: none, and a sample is one call
    double sample_us; // that a sample takes at least, with `max_repeats` at most
    int32_t max_repeats;
    double allowed_us; // for all; 0: as long as `min_samples` take
    int32_t min_samples;
    int32_t calls, repeats;              // found: in all, and of a sample
    double median_us, least_us, most_us; // of one call
} measure_timer;

/* Where calls take too long for what is allowed, min_samples becomes 1.   Returns: what `ctx` says. */
mics_status measure_timer_run(measure_timer *self);

// ---- trials of unequal length (trials.c) ----

enum { MEASURE_MAX_TRIALS = 32 };

// All zeros but for the budget: no trial yet.
typedef struct measure_trials {
    double budget_us;
    double spent_us;
    int32_t count;
    int32_t repeats[MEASURE_MAX_TRIALS];
    double us[MEASURE_MAX_TRIALS]; // of one repeat, the mean of the trial; ascending
} measure_trials;

/* Repeats of the next trial; 0: enough. */
int32_t measure_trials_next(const measure_trials *self);
/* Needs what `measure_trials_next` said. */
void measure_trials_add(measure_trials *self, int32_t repeats, double us);

/* Of one repeat; 0 before the first trial. */
double measure_trials_us(const measure_trials *self);

// ---- traffic (traffic.c) ----

// Which ranks a collective is among.
typedef enum measure_scope {
    MEASURE_INTRA, // the ranks of a node
    MEASURE_INTER, // equal local ranks of so many neighbouring nodes
    MEASURE_ALL    // all ranks of so many neighbouring nodes, in a ring: one link leaves each node
} measure_scope;

// A collective in one kind of group, again and again.
typedef struct measure_traffic measure_traffic;
struct measure_traffic {
    const char *what; // in error lines
    mics_group group;
    bool active;  // this rank takes part; the others sleep
    bool reduces; // reduce-scatter; else all-gather
    int32_t channel;
    size_t block_bytes;
    const measure_traffic *then; // (optional) another one behind it, in the same buffer
};

typedef struct measure_traffic_time {
    double us;      // of one collective, on the slowest rank; the median
    double mean_us; // the same, the mean
    double core_us; // that a rank's thread works in it, on average
} measure_traffic_time;

/* In groups over `nodes` nodes each (INTRA: 1), all of them at once. */
measure_traffic measure_traffic_among(const measure_session *self, measure_scope scope,
                                      int32_t nodes);

/* The same, in as many of the groups as keep a core to each rank, where nodes share cores; at least
 * one. */
measure_traffic measure_traffic_apart(const measure_session *self, measure_scope scope,
                                      int32_t nodes);

mics_status measure_traffic_once(const measure_session *self, const measure_traffic *traffic,
                                 void *buffer);

/* Waits until it is done; on the CPU it is. */
mics_status measure_traffic_wait(const measure_session *self, const measure_traffic *traffic);

/* Runs it to warm up, then for about `allowed_us`, at least once.   Collective: world. */
mics_status measure_traffic_run(measure_session *self, const measure_traffic *traffic, void *buffer,
                                double allowed_us, measure_traffic_time *time_out);

/* Sleeps, which is no load. */
void measure_sleep_us(double us);

// ---- links (links.c, contention.c) ----

/* Links, in about `seconds`.   Collective: world. */
mics_status measure_links_run(measure_session *self, double seconds, measure_links *links_out);

typedef struct measure_beside_spec {
    bool inter;         // between nodes; else inside them
    size_t large_bytes; // of a large message, and what it takes alone
    double large_us;
    double seconds;
} measure_beside_spec;

/* Computation and traffic at once: what messages take longer beside computation, and computation
 * (by processor time where ranks share cores) beside messages. Needs the tier's latency; fills
 * beside_us, beside_us_per_byte and slowdown.
 * Collective: world. */
mics_status measure_beside_run(measure_session *self, const measure_beside_spec *spec, void *buffer,
                               measure_tier *tier);

// ---- the model (subject.c) ----

// The model to measure, cut to a few layers where it is large.
typedef struct measure_subject {
    mics_json *config;
    mics_model *model;
    mics_batch batch;
    bool gpu; // trained on one, in bf16
} measure_subject;

/* The device that the spec asks for: its own, or the run's, or AUTO.   Returns: as mics_run_load. */
mics_status measure_subject_device(mics_memory *memory, const measure_spec *spec,
                                   mics_run_device *device_out);

/* Opens the model of a run file, a configuration, or GPT-2, cut to as many layers as every rank of
 * this machine can train for itself. The batch's threads are 0 where neither run nor caller says.
 *
 * Returns: MICS_OK; what was wrong, logged; MICS_ERR_MEMORY (one layer is too much).
 * Owns:    measure_subject_close, also after a failure; NULL members are allowed.
 */
mics_status measure_subject_open(mics_memory *memory, const measure_spec *spec,
                                 const run_world *world, bool gpu, measure_subject *subject);
void measure_subject_close(measure_subject *subject);

/* The schedule of its training on one rank by itself. Returns and owns: as mics_schedule_open. */
mics_status measure_schedule_open(mics_memory *memory, const measure_subject *subject,
                                  mics_dtype dtype, int32_t micro_steps,
                                  mics_schedule **schedule_out);

// ---- computation (ops.c, training.c) ----

/* Computation, in about `seconds`.   Collective: world. */
mics_status measure_compute_run(measure_session *self, const measure_subject *subject,
                                double seconds, measure_compute *compute_out);

// Calls by size, summed up; sizes ascend.
typedef struct measure_rates {
    int32_t count;
    struct {
        double size, flops, us;
    } points[MICS_CURVE_POINTS];
} measure_rates;

// Ops alone, as far as they were timed.
typedef struct measure_ops {
    measure_session *session;
    const mics_kernels *kernels;
    int32_t threads;
    mics_dtype dtype;
    size_t elem_bytes; // of it
    char *arena;       // operands: the first half is read, the second written
    int64_t arena_elems, at[2];
    void *workspace;
    size_t workspace_bytes;
    int32_t calls_made; // by the newest timing
    measure_rates gemms, attention;
    double peak;                      // FLOP/s
    int64_t cube;                     // the largest that was timed
    double flops_by_math[MICS_MATHS]; // of a GPU, beside bf16
    double elementwise_bytes, elementwise_us;
    double stream_bytes_per_s, update_bytes_per_s, launch_us;
} measure_ops;

typedef enum measure_call_kind {
    MEASURE_GEMM,   // (m, k) x (k, n)
    MEASURE_OP,     // forward and backward of an op
    MEASURE_UPDATE, // of m parameters
    MEASURE_CALL_KINDS
} measure_call_kind;

typedef struct measure_call {
    measure_call_kind kind;
    int64_t m, n, k;
    mics_op_shape shape; // MEASURE_OP
    bool transpose_a, transpose_b;
    double weight; // how often it counts among those of its size
} measure_call;

/* A call on all ranks at once, in about `allowed_us`; their mean, 0 where the arena is too small for it.
 * Collective: world. */
mics_status measure_call_run(measure_ops *self, const measure_call *call, double allowed_us,
                             double *us_out);

/* Trains the model on each rank for itself, and gives *compute the ops' rates, corrected by what
 * that took.
 * Collective: world. */
mics_status measure_training_run(measure_ops *self, const measure_subject *subject, double seconds,
                                 measure_compute *compute);

/* A step once more, and what the figures make of it.   Collective: world. */
mics_status measure_training_check(measure_session *self, const measure_subject *subject,
                                   double seconds, measure_compute *compute);

/* Whether they are within a factor of two. `load`: the machine's load average.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT, logged with both, and what may have disturbed them; `force` makes it
 *          a warning. Pure.
 */
mics_status measure_training_judge(const measure_compute *compute, double load, int32_t cores,
                                   bool force);

// ---- the cluster file (file.c) ----

/* Checks that spec->out can be written, and begins what becomes of it: the offer, where there is one;
 * else the file that is there; else a cluster without figures. Its nodes must be as those of `place`,
 * of which `gpu`, `nodes` and `per_node` are read.
 *
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_FORMAT, MICS_ERR_INVALID, logged with what to do.
 */
mics_status measure_file_open(mics_memory *memory, const measure_spec *spec,
                              const measure_place *place, bool *there_out,
                              mics_cluster *cluster_out);

/* A cluster without figures, of nodes of `per_node` ranks. */
void measure_file_begin(int32_t per_node, const char *path, mics_cluster *cluster_out);

/* Take what was measured in; other figures stay. */
void measure_file_take_links(const measure_place *place, const measure_links *links,
                             mics_cluster *cluster);
void measure_file_take_compute(const measure_place *place, const measure_compute *compute,
                               mics_cluster *cluster);

/* Says in the note what was measured when: `section` is "links" or "computation", whose older words
 * give way. */
void measure_file_note(mics_cluster *cluster, const char *section, const char *words);

mics_status measure_file_write(mics_memory *memory, const char *path, const mics_cluster *cluster);
