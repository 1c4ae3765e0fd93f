// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Computation and traffic at once, as in training: GEMMs on the rank's thread, collectives on
// another.
//
// Messages. Who sends and receives sleeps while it waits, and beside computation gets a core only
// when the system next turns to it: a message takes longer, and the more so the more threads
// compute on each core. So messages are timed beside computation, a small one and a large one; what
// they take longer than alone is a figure for each message and one for its bytes. Where ranks share
// cores this is done with 1, 2, 4 ... nodes that compute while the others sleep, which gives both
// as curves over the threads a core.
//
// Computation. Where each rank has its cores, its slowdown is that by the clock on the wall: all
// that traffic takes from it. Where ranks share cores, a simulator divides them, with what a
// collective works as its wish; then the slowdown is what is left: how much more processor time the
// same GEMMs take beside traffic (caches, memory, and interrupts that the system books on whoever
// computes).
#include "base/clock.h"
#include "measure/internal.h"
#include "mics/log.h"
#include "ops/kernels.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

// A GEMM of a few hundred microseconds, whose operands do not fit into a first-level cache.
enum { ROWS = 64, COLUMNS = 512 };
enum { SMALL_BYTES = 64, MAX_LEVELS = 16 };
enum { MIN_SIDE = 64, MAX_SIDE = 4096 };

static const size_t TELLING_BYTES = (size_t)1 << 16;

// What a cluster file takes; beyond, the machine was busy with something else.
static const double MAX_LATE_US = 1e6, MAX_LATE_US_PER_BYTE = 1;

// Of the time, what goes to GEMMs alone.
static const double ALONE_SHARE = 0.1;

typedef struct beside {
    measure_session *session;
    void *buffer;
    float *operands; // of the GEMM: a (ROWS, COLUMNS), b (COLUMNS, COLUMNS), c (ROWS, COLUMNS)
    int64_t side;    // of square ones on a GPU, in bf16
    void *workspace; // of a GPU's
    size_t workspace_bytes;
    double gemm_us; // of one, alone
    measure_traffic traffic;
    int32_t repeats;
    atomic_bool done;
    mics_status status;
    double us; // of one collective
} beside;

static void *run_traffic(void *arg)
{
    beside *self = arg;
    const mics_comm *comm = self->session->rank->comm;
    mics_log_set_rank(comm->ranks > 1 ? comm->rank : -1);
    // Once, so that all are here: beside computation threads begin milliseconds apart.
    self->status = measure_traffic_once(self->session, &self->traffic, self->buffer);
    if (self->status == MICS_OK)
        self->status = measure_traffic_wait(self->session, &self->traffic);
    const double begin_us = mics_clock_us();
    for (int32_t i = 0; i < self->repeats && self->status == MICS_OK; i++)
        self->status = measure_traffic_once(self->session, &self->traffic, self->buffer);
    if (self->status == MICS_OK)
        self->status = measure_traffic_wait(self->session, &self->traffic);
    self->us = (mics_clock_us() - begin_us) / self->repeats;
    atomic_store(&self->done, true);
    return NULL;
}

static mics_status multiply_on_gpu(const beside *self)
{
    char *operands = (char *)self->operands;
    const size_t bytes = (size_t)(self->side * self->side) * mics_dtype_bytes(MICS_DTYPE_BF16);
    const measure_gemm gemm = {.m = self->side,
                               .n = self->side,
                               .k = self->side,
                               .a = operands,
                               .b = operands + bytes,
                               .c = operands + 2 * bytes};
    const mics_exec at = {.device = self->session->rank->device,
                          .dtype = MICS_DTYPE_BF16,
                          .threads = 1,
                          .workspace = self->workspace,
                          .workspace_bytes = self->workspace_bytes};
    measure_gemm_enqueue(&gemm, &at);
    return measure_wait(self->session, 0);
}

static mics_status multiply(const beside *self)
{
    if (self->session->place.gpu)
        return multiply_on_gpu(self);
    const float *a = self->operands, *b = a + ROWS * COLUMNS;
    float *c = self->operands + ROWS * COLUMNS + COLUMNS * COLUMNS;
    mics_gemm(false, false, ROWS, COLUMNS, COLUMNS, 1, a, COLUMNS, b, COLUMNS, 0, c, COLUMNS);
    return MICS_OK;
}

// Time of one GEMM, until `end_us` has come or the traffic is done.
static mics_status compute(beside *self, double end_us, double *us_out)
{
    int64_t gemms = 0;
    mics_status status = MICS_OK;
    const double begin_us = measure_work_us(self->session);
    do {
        status = multiply(self);
        gemms++;
    } while (status == MICS_OK && !atomic_load(&self->done) && mics_clock_us() < end_us);
    *us_out = (measure_work_us(self->session) - begin_us) / (double)gemms;
    return status;
}

static mics_status time_alone(beside *self, double seconds)
{
    double mine = 0;
    for (int round = 0; round < 2; round++) { // the first warms up
        MICS_TRY(measure_share(self->session, &mine, 1));
        MICS_TRY(compute(self, mics_clock_us() + seconds / 2 * 1e6, &mine));
    }
    MICS_TRY(measure_share(self->session, &mine, 1));
    self->gemm_us = measure_mean(self->session, 0);
    return MICS_OK;
}

enum { GEMM, TRAFFIC, FIGURES };

// So many collectives beside computation. Who takes no part sleeps for `asleep_us`, since waiting
// would be load.
static mics_status together(beside *self, int32_t repeats, double asleep_us, double *gemm_us_out,
                            double *us_out)
{
    pthread_t thread;
    double mine[FIGURES] = {-1, -1};
    MICS_TRY(measure_share(self->session, mine, 1)); // all begin
    self->repeats = repeats;
    atomic_store(&self->done, false);
    if (self->traffic.active) {
        if (pthread_create(&thread, NULL, run_traffic, self) != 0)
            return mics_fail(MICS_ERR_MEMORY, "the system starts no more threads (traffic)");
        const mics_status status = compute(self, 1e300, &mine[GEMM]);
        pthread_join(thread, NULL);
        MICS_TRY(status);
        MICS_TRY(self->status);
        mine[TRAFFIC] = self->us;
    } else {
        measure_sleep_us(asleep_us);
    }
    MICS_TRY(measure_share(self->session, mine, FIGURES));
    *gemm_us_out = measure_mean(self->session, GEMM);
    *us_out = measure_max(self->session, TRAFFIC);
    return MICS_OK;
}

// What one message of the traffic takes beside computation, measured for about `seconds`, and a
// GEMM beside it. Which threads share a core, and so how late they are, is settled anew in each
// trial.
static mics_status time_message(beside *self, size_t bytes, double seconds, double *gemm_us_out,
                                double *message_us_out)
{
    measure_trials trials = {.budget_us = seconds * 1e6};
    double us = 0, gemm_us = 0, sum_gemm_us = 0;
    int32_t repeats = 0;
    self->traffic.block_bytes = bytes;
    MICS_TRY(together(self, 1, 0, &gemm_us, &us)); // opens connections
    while ((repeats = measure_trials_next(&trials)) > 0) {
        MICS_TRY(together(self, repeats, repeats * measure_trials_us(&trials), &gemm_us, &us));
        measure_trials_add(&trials, repeats, us);
        sum_gemm_us += repeats * us * gemm_us;
    }
    *gemm_us_out = sum_gemm_us / fmax(trials.spent_us, 1e-3);
    *message_us_out = measure_trials_us(&trials) / (self->traffic.group.size - 1);
    return MICS_OK;
}

// With `nodes` nodes that compute.
static mics_status time_level(beside *self, const measure_beside_spec *spec, int32_t nodes,
                              double seconds, measure_tier *tier)
{
    const measure_place *place = &self->session->place;
    const double threads = (double)nodes * place->per_node * place->threads;
    const double crowd = place->shared ? threads / place->cores : 1;
    double gemm_us = 0, small_us = 0, large_us = 0;
    self->traffic = measure_traffic_among(
        self->session, spec->inter ? MEASURE_INTER : MEASURE_INTRA, spec->inter ? nodes : 1);
    self->traffic.active = self->session->rank->comm->rank / place->per_node < nodes;
    MICS_TRY(time_message(self, SMALL_BYTES, seconds / 2, &gemm_us, &small_us));
    MICS_TRY(time_message(self, spec->large_bytes, seconds / 2, &gemm_us, &large_us));
    const double late_us = fmax(small_us - tier->latency_us, 0);
    const double large_late_us = fmax(large_us - spec->large_us, 0);
    // Of short messages, where there is no time for long ones, bytes say nothing.
    const bool tells = spec->large_bytes >= TELLING_BYTES;
    const double late_us_per_byte = fmax(large_late_us - late_us, 0) / (double)spec->large_bytes;
    measure_add_point(&tier->beside_us, crowd, fmin(fmin(late_us, large_late_us), MAX_LATE_US));
    measure_add_point(&tier->beside_us_per_byte, crowd,
                      tells ? fmin(late_us_per_byte, MAX_LATE_US_PER_BYTE) : 0);
    tier->slowdown = fmax(gemm_us / self->gemm_us - 1, 0);
    return MICS_OK;
}

static mics_status time_levels(beside *self, const measure_beside_spec *spec, measure_tier *tier)
{
    const measure_place *place = &self->session->place;
    const int32_t fewest = spec->inter ? 2 : 1;
    int32_t levels[MAX_LEVELS], count = 0;
    for (int32_t nodes = place->nodes; nodes >= fewest && count < MAX_LEVELS; nodes /= 2) {
        levels[count++] = nodes;
        if (!place->shared)
            break;
    }
    const double seconds = spec->seconds * (1 - ALONE_SHARE) / count;
    tier->beside_us.count = tier->beside_us_per_byte.count = 0;
    MICS_TRY(time_alone(self, spec->seconds * ALONE_SHARE));
    while (count-- > 0) // fewest first: curves ascend, and the slowdown is that with all
        MICS_TRY(time_level(self, spec, levels[count], seconds, tier));
    return MICS_OK;
}

static mics_status open_on_cpu(beside *self)
{
    const size_t elems = 2 * ROWS * COLUMNS + COLUMNS * COLUMNS;
    void *block = NULL;
    mics_op_set_threads(self->session->place.threads);
    MICS_TRY(measure_buffer_open(self->session, elems * sizeof(float), &block));
    self->operands = block;
    for (size_t i = 0; i < elems; i++)
        self->operands[i] = (float)(i % 7) / 8;
    return MICS_OK;
}

// GEMMs of a fraction of a millisecond: the smallest of those sizes that take as long, and are
// quick beside it to launch.
static mics_status open_on_gpu(beside *self)
{
    static const double ENOUGH_US = 200;
    const size_t budget = self->session->place.buffer_bytes;
    void *block = NULL;
    for (self->side = MIN_SIDE;; self->side *= 2) {
        const measure_gemm gemm = {.m = self->side, .n = self->side, .k = self->side};
        mics_op op;
        const mics_op_shape shape = measure_gemm_shape(&gemm, MICS_DTYPE_BF16, &op);
        const mics_op_cost cost = mics_op_def_get(op.kind)->cost(&shape);
        measure_buffer_close(self->session, self->operands);
        measure_buffer_close(self->session, self->workspace);
        self->operands = NULL;
        self->workspace = NULL;
        MICS_TRY(measure_buffer_open(
            self->session,
            3 * (size_t)(self->side * self->side) * mics_dtype_bytes(MICS_DTYPE_BF16), &block));
        self->operands = block;
        self->workspace_bytes = (size_t)cost.workspace_forward * sizeof(float);
        MICS_TRY(measure_buffer_open(self->session, self->workspace_bytes, &block));
        self->workspace = block;
        MICS_TRY(multiply(self)); // loads the kernel
        const double begin_us = mics_clock_us();
        MICS_TRY(multiply(self));
        if (mics_clock_us() - begin_us > ENOUGH_US || self->side == MAX_SIDE ||
            (size_t)(24 * self->side * self->side) > budget)
            return MICS_OK;
    }
}

mics_status measure_beside_run(measure_session *self, const measure_beside_spec *spec, void *buffer,
                               measure_tier *tier)
{
    beside b = {.session = self, .buffer = buffer};
    mics_status status = self->place.gpu ? open_on_gpu(&b) : open_on_cpu(&b);
    MICS_TRY_OUT(run_rank_agree(self->rank, status));
    MICS_TRY_OUT(time_levels(&b, spec, tier));
out:
    measure_buffer_close(self, b.operands);
    measure_buffer_close(self, b.workspace);
    return status;
}
