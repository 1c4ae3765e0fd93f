// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Computation and traffic at once, as in training: matrix products on the rank's thread, collectives on
// another.
//
// Messages. Who sends and receives sleeps while it waits, and beside computation gets a core only when the system
// next turns to it: a message takes longer, and the more so the more threads compute on each core. So messages are timed
// beside computation, a small one and a large one; what they take longer than alone is a figure for each
// message and one for its bytes. Where ranks share cores this is done with 1, 2, 4 ... nodes that compute while
// the others sleep, which gives both as curves over the threads a core.
//
// Computation. Where each rank has its cores, its slowdown is that by the clock on the wall: all that
// traffic takes from it. Where ranks share cores, a simulator divides them, with what a collective works as its
// wish; then the slowdown is what is left: how much more processor time the same products take beside
// traffic (caches, memory, and interrupts that the system books on whoever computes).
#include "bench.h"
#include "bench_trials.h"
#include "mics/clock.h"
#include "mics/kernels.h"
#include "mics/log.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

// A product of a few hundred microseconds, whose operands do not fit into a first-level cache.
enum { ROWS = 64, WIDTH = 512 };
enum { SMALL_BYTES = 64, LEVELS_MAX = 16 };

static const size_t TELLING_BYTES = (size_t)1 << 16;

// What a cluster file takes; beyond, the machine was busy with something else.
static const double MOST_LATE_US = 1e6, MOST_LATE_US_PER_BYTE = 1;

// Of the time, what goes to products alone.
static const double ALONE_SHARE = 0.1;

typedef struct beside {
    bench *bench;
    void *buffer;
    float *operands;   // of the product: a (ROWS, WIDTH), b (WIDTH, WIDTH), c (ROWS, WIDTH)
    double product_us; // of one, alone
    bench_traffic traffic;
    int32_t repeats;
    atomic_bool done;
    mics_status status;
    double us; // of one collective
} beside;

static void *run_traffic(void *arg)
{
    beside *self = arg;
    const mics_comm *comm = self->bench->rank->comm;
    mics_log_set_rank(comm->ranks > 1 ? comm->rank : -1);
    // Once, so that all are here: beside computation threads begin milliseconds apart.
    self->status = bench_traffic_once(self->bench, &self->traffic, self->buffer);
    const double begin_us = mics_clock_us();
    for (int32_t i = 0; i < self->repeats && self->status == MICS_OK; i++)
        self->status = bench_traffic_once(self->bench, &self->traffic, self->buffer);
    self->us = (mics_clock_us() - begin_us) / self->repeats;
    atomic_store(&self->done, true);
    return NULL;
}

static void multiply(const beside *self)
{
    const float *a = self->operands, *b = a + ROWS * WIDTH;
    float *c = self->operands + ROWS * WIDTH + WIDTH * WIDTH;
    mics_gemm(false, false, ROWS, WIDTH, WIDTH, 1, a, WIDTH, b, WIDTH, 0, c, WIDTH);
}

// Time of one product, until `end_us` has come or the traffic is done.
static double compute(beside *self, double end_us)
{
    int64_t products = 0;
    const double begin_us = bench_work_us(self->bench);
    do {
        multiply(self);
        products++;
    } while (!atomic_load(&self->done) && mics_clock_us() < end_us);
    return (bench_work_us(self->bench) - begin_us) / (double)products;
}

static mics_status measure_alone(beside *self, double seconds)
{
    double mine = 0;
    for (int round = 0; round < 2; round++) { // the first warms up
        MICS_TRY(bench_share(self->bench, &mine, 1));
        mine = compute(self, mics_clock_us() + seconds / 2 * 1e6);
    }
    MICS_TRY(bench_share(self->bench, &mine, 1));
    self->product_us = bench_mean(self->bench, 0);
    return MICS_OK;
}

enum { PRODUCT, TRAFFIC, FIGURES };

// So many collectives beside computation. Who takes no part sleeps for `asleep_us`, since waiting would be load.
static mics_status together(beside *self, int32_t repeats, double asleep_us, double *product_us_out,
                            double *us_out)
{
    pthread_t thread;
    double mine[FIGURES] = {-1, -1};
    MICS_TRY(bench_share(self->bench, mine, 1)); // all begin
    self->repeats = repeats;
    atomic_store(&self->done, false);
    if (self->traffic.active) {
        if (pthread_create(&thread, NULL, run_traffic, self) != 0)
            return mics_fail(MICS_ERR_MEMORY, "the system starts no more threads (traffic)");
        mine[PRODUCT] = compute(self, 1e300);
        pthread_join(thread, NULL);
        MICS_TRY(self->status);
        mine[TRAFFIC] = self->us;
    } else {
        bench_sleep_us(asleep_us);
    }
    MICS_TRY(bench_share(self->bench, mine, FIGURES));
    *product_us_out = bench_mean(self->bench, PRODUCT);
    *us_out = bench_most(self->bench, TRAFFIC);
    return MICS_OK;
}

// What one message of the traffic takes beside computation, measured for about `seconds`, and a product beside it.
// Which threads share a core, and so how late they are, is settled anew in each trial.
static mics_status measure_message(beside *self, size_t bytes, double seconds,
                                   double *product_us_out, double *message_us_out)
{
    bench_trials trials = {.budget_us = seconds * 1e6};
    double us = 0, product_us = 0, sum_product_us = 0;
    int32_t repeats = 0;
    self->traffic.block_bytes = bytes;
    MICS_TRY(together(self, 1, 0, &product_us, &us)); // opens connections
    while ((repeats = bench_trials_next(&trials)) > 0) {
        MICS_TRY(together(self, repeats, repeats * bench_trials_us(&trials), &product_us, &us));
        bench_trials_add(&trials, repeats, us);
        sum_product_us += repeats * us * product_us;
    }
    *product_us_out = sum_product_us / fmax(trials.spent_us, 1e-3);
    *message_us_out = bench_trials_us(&trials) / (self->traffic.group.size - 1);
    return MICS_OK;
}

static void add_point(mics_curve *curve, double size, double value)
{
    curve->size[curve->count] = size;
    curve->value[curve->count++] = value;
}

// With `nodes` nodes that compute.
static mics_status measure_level(beside *self, const bench_beside_spec *spec, int32_t nodes,
                                 double seconds, bench_tier *tier)
{
    const bench_place *place = &self->bench->place;
    const double threads = (double)nodes * place->per_node * place->threads;
    const double crowd = place->shared ? threads / place->cores : 1;
    double product_us = 0, small_us = 0, large_us = 0;
    self->traffic = bench_traffic_crowd(self->bench, spec->far, nodes);
    MICS_TRY(measure_message(self, SMALL_BYTES, seconds / 2, &product_us, &small_us));
    MICS_TRY(measure_message(self, spec->large_bytes, seconds / 2, &product_us, &large_us));
    const double late_us = fmax(small_us - tier->latency_us, 0);
    const double large_late_us = fmax(large_us - spec->large_us, 0);
    // Of short messages, where there is no time for long ones, bytes say nothing.
    const bool tells = spec->large_bytes >= TELLING_BYTES;
    const double late_us_per_byte = fmax(large_late_us - late_us, 0) / (double)spec->large_bytes;
    add_point(&tier->beside_us, crowd, fmin(fmin(late_us, large_late_us), MOST_LATE_US));
    add_point(&tier->beside_us_per_byte, crowd,
              tells ? fmin(late_us_per_byte, MOST_LATE_US_PER_BYTE) : 0);
    tier->slowdown = fmax(product_us / self->product_us - 1, 0);
    return MICS_OK;
}

static mics_status measure_levels(beside *self, const bench_beside_spec *spec, bench_tier *tier)
{
    const bench_place *place = &self->bench->place;
    const int32_t fewest = spec->far ? 2 : 1;
    int32_t levels[LEVELS_MAX], count = 0;
    for (int32_t nodes = place->nodes; nodes >= fewest && count < LEVELS_MAX; nodes /= 2) {
        levels[count++] = nodes;
        if (!place->shared)
            break;
    }
    const double seconds = spec->seconds * (1 - ALONE_SHARE) / count;
    tier->beside_us.count = tier->beside_us_per_byte.count = 0;
    MICS_TRY(measure_alone(self, spec->seconds * ALONE_SHARE));
    while (count-- > 0) // fewest first: curves ascend, and the slowdown is that with all
        MICS_TRY(measure_level(self, spec, levels[count], seconds, tier));
    return MICS_OK;
}

mics_status bench_beside_measure(bench *self, const bench_beside_spec *spec, void *buffer,
                                 bench_tier *tier)
{
    beside b = {.bench = self, .buffer = buffer};
    const size_t elems = 2 * ROWS * WIDTH + WIDTH * WIDTH;
    void *block = NULL;
    mics_op_set_threads(self->place.threads);
    mics_status status =
        mics_alloc(self->rank->memory, MICS_MEM_WORKSPACE, elems * sizeof(float), &block);
    MICS_TRY_OUT(run_rank_agree(self->rank, status));
    b.operands = block;
    for (size_t i = 0; i < elems; i++)
        b.operands[i] = (float)(i % 7) / 8;
    MICS_TRY_OUT(measure_levels(&b, spec, tier));
out:
    mics_free(self->rank->memory, block);
    return status;
}
