// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Computation and traffic at once, as in training: matrix products on the rank's thread, collectives on
// another.
//
// Where each rank has its cores, the slowdown is that of the computation by the clock on the wall: all that
// traffic takes from it. Where ranks share cores, a simulator divides them, with what a collective works as its
// wish; then the slowdown is what is left: how much more processor time the same products take beside
// traffic (caches, memory, and interrupts that the system books on whoever computes).
#include "bench.h"
#include "mics/clock.h"
#include "mics/log.h"
#include "mics/op.h"
#include <pthread.h>
#include <stdatomic.h>

// A product of a few hundred microseconds, whose operands do not fit into a first-level cache.
enum { ROWS = 64, WIDTH = 512, MOST_REPEATS = 1 << 20 };

typedef struct beside {
    bench *bench;
    const bench_traffic *traffic;
    void *buffer;
    float *operands; // of the product: a (ROWS, WIDTH), b (WIDTH, WIDTH), c (ROWS, WIDTH)
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
    const double begin_us = mics_clock_us();
    for (int32_t i = 0; i < self->repeats && self->status == MICS_OK; i++)
        self->status = bench_traffic_once(self->bench, self->traffic, self->buffer);
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

static mics_status alone(beside *self, double seconds, double *us_out)
{
    double mine = 0;
    MICS_TRY(bench_share(self->bench, &mine, 1)); // all begin
    mine = compute(self, mics_clock_us() + seconds * 1e6);
    MICS_TRY(bench_share(self->bench, &mine, 1));
    *us_out = bench_mean(self->bench, 0);
    return MICS_OK;
}

enum { PRODUCT, TRAFFIC, FIGURES };

static mics_status together(beside *self, double alone_us, bench_tier *tier)
{
    pthread_t thread;
    double mine[FIGURES] = {-1, -1};
    MICS_TRY(bench_share(self->bench, mine, 1));
    if (self->traffic->active) {
        if (pthread_create(&thread, NULL, run_traffic, self) != 0)
            return mics_fail(MICS_ERR_MEMORY, "the system starts no more threads (traffic)");
        mine[PRODUCT] = compute(self, 1e300);
        pthread_join(thread, NULL);
        MICS_TRY(self->status);
        mine[TRAFFIC] = self->us;
    }
    MICS_TRY(bench_share(self->bench, mine, FIGURES));
    const double slowdown = bench_mean(self->bench, PRODUCT) / alone_us - 1;
    tier->slowdown = slowdown > 0 ? slowdown : 0;
    tier->traffic_slowdown = bench_most(self->bench, TRAFFIC);
    return MICS_OK;
}

mics_status bench_beside_measure(bench *self, const bench_traffic *traffic, void *buffer,
                                 double seconds, double alone_us, bench_tier *tier)
{
    beside b = {.bench = self, .traffic = traffic, .buffer = buffer};
    const size_t elems = 2 * ROWS * WIDTH + WIDTH * WIDTH;
    const double repeats = seconds / 2 * 1e6 / (alone_us > 1 ? alone_us : 1);
    double product_us = 0;
    void *block = NULL;
    mics_op_set_threads(self->place.threads);
    mics_status status =
        mics_alloc(self->rank->memory, MICS_MEM_WORKSPACE, elems * sizeof(float), &block);
    MICS_TRY_OUT(cli_rank_agree(self->rank, status));
    b.operands = block;
    for (size_t i = 0; i < elems; i++)
        b.operands[i] = (float)(i % 7) / 8;
    b.repeats = repeats < 1 ? 1 : (repeats > MOST_REPEATS ? MOST_REPEATS : (int32_t)repeats);
    MICS_TRY_OUT(alone(&b, seconds / 4, &product_us)); // warms up
    MICS_TRY_OUT(alone(&b, seconds / 4, &product_us));
    MICS_TRY_OUT(together(&b, product_us, tier));
    tier->traffic_slowdown = tier->traffic_slowdown / alone_us - 1;
out:
    mics_free(self->rank->memory, block);
    return status;
}
