// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Matrix products; what is the library's of them and what is not.
#include "base/capture.h"
#include "base/rng.h"
#include "op_harness.h"
#include "ops/common/gemm.h"
#include "ops/gemm/def.h"
#include "ops/linear/def.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void gemm_case(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, float beta)
{
    op_case c;
    op_begin(&c, "gemm %d%d M=%d N=%d K=%d", ta, tb, (int)M, (int)N, (int)K);
    const int64_t a_rows = ta ? K : M, b_rows = tb ? N : K;
    const int64_t lda = (ta ? M : K) + 3, ldb = (tb ? K : N) + 1, ldc = N + 5;
    const float *a = op_input(&c, "a", a_rows * lda, 1.0),
                *b = op_input(&c, "b", b_rows * ldb, 1.0);
    float *got = op_input(&c, "got", M * ldc, 1.0), *want = op_input(&c, "want", M * ldc, 1.0);
    for (int64_t i = 0; i < M * ldc; ++i)
        got[i] = want[i] = beta != 0.0F ? want[i] : NAN; // beta = 0 must overwrite anything
    mics_gemm(ta, tb, M, N, K, alpha, a, lda, b, ldb, beta, got, ldc);
    mics_gemm_plain(ta, tb, M, N, K, alpha, a, lda, b, ldb, beta, want, ldc);
    for (int64_t i = 0; i < M * ldc; ++i) {
        const double room = 1e-6 * ((double)K + 2);
        if (i % ldc >= N && beta == 0.0F)
            assert_true(isnan(got[i])); // between the rows nothing is written
        else if (!(fabs((double)got[i] - (double)want[i]) <= room))
            fail_msg("%s: [%d] is %.9g, expected %.9g", c.name, (int)i, (double)got[i],
                     (double)want[i]);
    }
    op_end(&c);
}

static void gemm_matches_plain_loops(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 17, 65};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < SIZES * SIZES * SIZES; ++i)
        for (int t = 0; t < 4; ++t) {
            const int64_t M = sizes[i % SIZES], N = sizes[i / SIZES % SIZES];
            const int64_t K = sizes[i / SIZES / SIZES];
            gemm_case(t & 1, t & 2, M, N, K, 1.0F, 0.0F);
            gemm_case(t & 1, t & 2, M, N, K, -0.5F, 1.0F);
        }
    gemm_case(false, true, 300, 500, 700, 1.0F, 0.0F);
    gemm_case(true, false, 7, 1, 0, 1.0F, 0.0F); // an empty sum is 0
}

// The plain loops are what the library is compared with, so they are checked by hand.
static void plain_loops_are_right(void **state)
{
    (void)state;
    const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {7, 8, 9, 10, 11, 12};
    float c[] = {1, 1, 1, 1};
    mics_gemm_plain(false, false, 2, 2, 3, 1.0F, a, 3, b, 2, 1.0F, c, 2);
    const float sum[] = {59, 65, 140, 155}; // (2, 3) (3, 2) + 1
    assert_memory_equal(c, sum, sizeof c);
    float d[] = {NAN, NAN, NAN, NAN};
    mics_gemm_plain(true, true, 2, 2, 3, 2.0F, a, 2, b, 3, 0.0F, d, 2);
    // a^T: (1 3 5; 2 4 6), b^T: (7 10; 8 11; 9 12)
    const float product[] = {152, 206, 200, 272};
    assert_memory_equal(d, product, sizeof d);
}

// The library refuses rows that lie too close: the loops do it, and one line tells.
static void gemm_tells_once_that_it_is_slow(void **state)
{
    (void)state;
    if (op_bf16()) // it has told already
        return;
    const float a[] = {1, 2}, b[] = {10, 20};
    float c = 0.0F;
    capture seen;
    capture_begin(&seen);
    for (int i = 0; i < 3; i++)
        mics_gemm(false, false, 1, 1, 2, 1.0F, a, 2, b, 1, 0.0F, &c, 1);
    assert_int_equal(seen.warnings, 0);
    for (int i = 0; i < 3; i++)
        mics_gemm(false, false, 1, 1, 2, 1.0F, a, 2, b, 0, 0.0F, &c, 1);
    capture_end();
    assert_true(c == 30.0F); // both factors of b are its first
    assert_int_equal(seen.warnings, 1);
    assert_int_equal(seen.errors, 0);
}

static void gemm_leaves_empty_results_alone(void **state)
{
    (void)state;
    float one = 1, c = 5;
    mics_gemm(false, false, 0, 1, 1, 1.0F, &one, 1, &one, 1, 0.0F, &c, 1);
    mics_gemm(false, false, 1, 0, 1, 1.0F, &one, 1, &one, 1, 0.0F, &c, 1);
    assert_true(c == 5.0F);
}

typedef struct linear {
    float *y, *dx, *dweight, *dbias, *workspace;
    const float *x, *weight, *bias, *dy;
    mics_weight_order order;
    int64_t N, I, O;
    bool add_dx, add_params;
} linear;

// Floats, of either pass and order.
static int64_t workspace_of(int64_t N, int64_t I, int64_t O)
{
    const int64_t of[] = {O * MICS_LINEAR_BLOCKS, mics_gemm_floats_bf16(N, O, I),
                          mics_gemm_floats_bf16(N, I, O), mics_gemm_floats_bf16(I, O, N),
                          mics_gemm_floats_bf16(O, I, N)};
    int64_t most = 0;
    for (int i = 0; i < (op_bf16() ? 5 : 1); ++i)
        most = of[i] > most ? of[i] : most;
    return most;
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const linear *l = args;
    const mics_exec at = op_exec(threads, l->workspace);
    op_linear_backward(k, &at, l->dx, l->dweight, l->dbias, l->dy, l->x, l->weight, l->order, l->N,
                       l->I, l->O, l->add_dx, l->add_params);
}

// The bias gradient alone is not the library's: it must not depend on the number of threads.
static void bias_gradient_ignores_threads(void **state)
{
    (void)state;
    op_case c;
    op_begin(&c, "linear_backward bias");
    linear l = {.N = 130, .I = 1, .O = 257, .order = MICS_WEIGHT_IN_OUT};
    l.x = op_input(&c, "x", l.N * l.I, 1.0);
    l.weight = op_input(&c, "weight", l.I * l.O, 1.0);
    l.dy = op_input(&c, "dy", l.N * l.O, 1.0);
    l.dweight = op_space(&c, "dweight", l.I * l.O);
    l.dbias = op_output(&c, "dbias", l.O, false);
    l.workspace = op_space(&c, "workspace", workspace_of(l.N, l.I, l.O));
    op_run(&c, run_backward, &l);
    op_end(&c);
}

static double number(const void *of, int64_t at)
{
    const uint32_t bits = op_bf16() ? (uint32_t)((const uint16_t *)of)[at] << 16 : 0;
    float value = op_bf16() ? 0 : ((const float *)of)[at];
    if (op_bf16())
        memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void run_adapted(const mics_kernels *k, int32_t threads, const void *args)
{
    const op_adapted *of = args;
    op_adapted pair = *of, apart = *of;
    const size_t bytes = (size_t)(of->N * of->O) * (op_bf16() ? 2 : 4);
    const mics_exec at = op_exec(threads, calloc(1 << 16, sizeof(float)));
    pair.pair = true;
    pair.between = NULL;
    apart.y = calloc(1, bytes);
    assert_true(at.workspace != NULL && apart.y != NULL);
    op_linear_lora_forward(k, &at, &pair);
    op_linear_lora_forward(k, &at, &apart);
    for (int64_t i = 0; apart.y != NULL && i < of->N * of->O; ++i) {
        const double y = number(pair.y, i), want = number(apart.y, i);
        const double magnitude = fabs(want) + fabs(number(apart.between, i));
        if (!(fabs(y - want) <= (op_bf16() ? 0x1p-7 * magnitude : 0)))
            fail_msg("[%d] is %.9g, of two calls %.9g", (int)i, y, want);
    }
    free(at.workspace);
    free(apart.y);
}

// One call for a linear and its adapter gives what two give, in bf16 without the rounding between
// them, and does not touch what lies there.
static void adapters_are_added_in_place(void **state)
{
    (void)state;
    op_case c;
    op_begin(&c, "linear and lora");
    op_adapted of = {.N = 18, .I = 40, .O = 50, .rank = 4};
    of.x = op_input(&c, "x", of.N * of.I, 1.0);
    of.weight = op_input(&c, "weight", of.I * of.O, 1.0);
    of.bias = op_input(&c, "bias", of.O, 1.0);
    of.a = op_input(&c, "a", of.rank * of.I, 1.0);
    of.b = op_input(&c, "b", of.O * of.rank, 1.0);
    of.between = op_space(&c, "between", of.N * of.O);
    of.y = op_output(&c, "y", of.N * of.O, false);
    c.depends_on_threads = true;
    op_run(&c, run_adapted, &of);
    op_end(&c);
}

// ---- the same bits again ----

enum { RANKS = 4, REPEATS = 3 };

// One rank's products: their threads, factors and result.
typedef struct repeated {
    int32_t threads;
    int64_t M, N, K;
    const float *a, *b;
    float *c;
} repeated;

static void *multiply(void *ctx)
{
    const repeated *r = ctx;
    mics_op_set_threads(r->threads);
    mics_gemm(true, false, r->M, r->N, r->K, 1.0F, r->a, r->M, r->b, r->N, 0.0F, r->c, r->N);
    return NULL;
}

static void repeat_case(int64_t M, int64_t N, int64_t K, int32_t threads)
{
    op_case c;
    op_begin(&c, "repeated M=%d N=%d K=%d threads=%d", (int)M, (int)N, (int)K, (int)threads);
    const float *a = op_input(&c, "a", K * M, 1.0), *b = op_input(&c, "b", K * N, 1.0);
    repeated first = {threads, M, N, K, a, b, op_space(&c, "c", M * N)}, again[RANKS];
    multiply(&first);
    for (int rank = 0; rank < RANKS; ++rank) {
        again[rank] = first;
        again[rank].c = op_space(&c, "again", M * N);
    }
    for (int repeat = 0; repeat < REPEATS; ++repeat) {
        pthread_t ranks[RANKS];
        for (int rank = 0; rank < RANKS; ++rank)
            assert_int_equal(pthread_create(&ranks[rank], NULL, multiply, &again[rank]), 0);
        for (int rank = 0; rank < RANKS; ++rank)
            assert_int_equal(pthread_join(ranks[rank], NULL), 0);
        for (int rank = 0; rank < RANKS; ++rank)
            if (memcmp(again[rank].c, first.c, (size_t)(M * N) * sizeof(float)) != 0)
                fail_msg("%s: rank %d got other bits", c.name, rank);
    }
    op_end(&c);
}

// Resuming and replicas rely on it: with one number of threads, a product has one result, whoever
// else computes at the same time.
static void products_repeat_bit_by_bit(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= OP_MAX_THREADS; ++threads) {
        repeat_case(64, 64, 4096, threads);
        repeat_case(96, 288, 128, threads);
        repeat_case(1, 130, 1000, threads);
        repeat_case(257, 33, 65, threads);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_loops_are_right),
        cmocka_unit_test(gemm_matches_plain_loops),
        cmocka_unit_test(gemm_tells_once_that_it_is_slow),
        cmocka_unit_test(gemm_leaves_empty_results_alone),
        cmocka_unit_test(bias_gradient_ignores_threads),
        cmocka_unit_test(adapters_are_added_in_place),
        cmocka_unit_test(products_repeat_bit_by_bit),
    };
    return op_run_tests(tests);
}
