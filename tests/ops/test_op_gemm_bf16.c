// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of bf16 numbers: each way of computing them, against fp64. Operands end at a page that may
// not be touched.
#include "base/rng.h"
#include "op_harness.h"
#include "ops/common/gemm_dnnl.h"
#include "ops/common/gemm_packed.h"
#include "ops/gemm/def.h"
#include <math.h>
#include <string.h>

typedef bool (*gemm_fn)(const mics_exec *at, const mics_gemm_spec *gemm);

static bool widened(const mics_exec *at, const mics_gemm_spec *gemm)
{
    mics_gemm_bf16_widened(at, gemm);
    return true;
}

static bool packed(const mics_exec *at, const mics_gemm_spec *gemm)
{
    return mics_gemm_has_pairs() && mics_gemm_packed(at, gemm);
}

static float value(uint16_t elem)
{
    const uint32_t bits = (uint32_t)elem << 16;
    float of;
    memcpy(&of, &bits, sizeof of);
    return of;
}

// Of magnitude 1/2 to 2, and any sign.
static uint16_t *numbers(op_case *c, const char *name, int64_t elems)
{
    const int64_t floats = (elems + 1) / 2;
    uint16_t *data = (uint16_t *)(void *)(op_space(c, name, floats) + floats) - elems;
    for (int64_t i = 0; i < elems; ++i) {
        const uint64_t bits = mics_rng_bits(7, c->stream + (uint64_t)c->buffers, (uint64_t)i);
        data[i] = (uint16_t)(0x3f00 + (bits & 0x80ff));
    }
    return data;
}

typedef struct gemm_case {
    int64_t M, N, K;
    int32_t threads;
    bool transpose_a, transpose_b, add, wide, bias;
    int64_t rank; // of what is added to some columns; 0: nothing
} gemm_case;

static void add_term(double *sum, double *magnitude, double term)
{
    *sum += term;
    *magnitude += fabs(term);
}

static void add_tails(const mics_gemm_spec *g, int64_t m, int64_t n, double *sum, double *magnitude)
{
    for (int32_t i = 0; i < g->tail_count; ++i) {
        const mics_gemm_tail *t = &g->tails[i];
        const uint16_t *a = t->a, *b = t->b;
        const bool seen = n >= t->first && n < t->first + t->columns;
        for (int64_t r = 0; seen && r < t->rank; ++r)
            add_term(sum, magnitude,
                     (double)value(a[m * t->lda + r]) *
                         (double)value(b[(n - t->first) * t->rank + r]));
    }
}

static double expected(const mics_gemm_spec *g, const float *before, int64_t m, int64_t n,
                       double *magnitude_out)
{
    const uint16_t *a = g->a, *b = g->b, *bias = g->bias;
    double sum = g->add ? (double)*before : 0;
    sum += bias ? (double)value(bias[n]) : 0;
    *magnitude_out = fabs(sum);
    for (int64_t k = 0; k < g->K; ++k) {
        const double term = (double)value(g->transpose_a ? a[k * g->lda + m] : a[m * g->lda + k]) *
                            (double)value(g->transpose_b ? b[n * g->ldb + k] : b[k * g->ldb + n]);
        add_term(&sum, magnitude_out, term);
    }
    add_tails(g, m, n, &sum, magnitude_out);
    return sum;
}

static float result(const mics_gemm_spec *g, const void *c, int64_t at)
{
    return g->wide ? ((const float *)c)[at] : value(((const uint16_t *)c)[at]);
}

// To the first 64 columns and to those from 128 on.
static void make_tails(op_case *c, mics_gemm_spec *g, int64_t rank)
{
    const int64_t lda = 2 * rank + 1;
    const uint16_t *a = numbers(c, "low", g->M * lda);
    g->tail_count = rank == 0 ? 0 : g->N > 128 ? 2 : 1;
    for (int32_t i = 0; i < g->tail_count; ++i) {
        const int64_t first = 128 * i, columns = i == 0 && g->N > 64 ? 64 : g->N - first;
        g->tails[i] = (mics_gemm_tail){.a = a + i * rank,
                                       .b = numbers(c, "up", columns * rank),
                                       .lda = lda,
                                       .rank = rank,
                                       .first = first,
                                       .columns = columns};
    }
}

// Returns: false where this way is not for this CPU.
static bool check(gemm_fn multiply, const char *way, const gemm_case *of)
{
    op_case c;
    op_begin(&c, "%s M=%d N=%d K=%d transposed %d%d add %d wide %d bias %d, %d threads", way,
             (int)of->M, (int)of->N, (int)of->K, of->transpose_a, of->transpose_b, of->add,
             of->wide, of->bias, (int)of->threads);
    const int64_t a_rows = of->transpose_a ? of->K : of->M,
                  b_rows = of->transpose_b ? of->N : of->K;
    mics_gemm_spec g = {.M = of->M, .N = of->N, .K = of->K, .add = of->add, .wide = of->wide};
    g.transpose_a = of->transpose_a;
    g.transpose_b = of->transpose_b;
    g.lda = (of->transpose_a ? of->M : of->K) + of->M % 3;
    g.ldb = (of->transpose_b ? of->K : of->N) + of->N % 2;
    g.ldc = of->N + of->K % 4;
    const int64_t elems = of->M * g.ldc;
    g.a = numbers(&c, "a", a_rows * g.lda);
    g.b = numbers(&c, "b", b_rows * g.ldb);
    g.bias = of->bias ? numbers(&c, "bias", of->N) : NULL;
    g.c = numbers(&c, "c", of->wide ? 2 * elems : elems);
    g.space = op_space(&c, "space",
                       mics_gemm_floats_bf16(of->M, of->N, of->K) +
                           mics_gemm_tail_floats(of->N, of->rank));
    if (of->rank > 0)
        make_tails(&c, &g, of->rank);
    void *before = op_doubles(&c, elems);
    memcpy(before, g.c, (size_t)elems * (of->wide ? sizeof(float) : sizeof(uint16_t)));
    const mics_exec at = op_exec(of->threads, NULL);
    mics_op_set_threads(of->threads);
    const bool done = multiply(&at, &g);
    for (int64_t i = 0; done && i < elems; ++i) {
        const float old = result(&g, before, i);
        double magnitude = 0, want = (double)old, room = 0;
        if (i % g.ldc < of->N) {
            want = expected(&g, &old, i / g.ldc, i % g.ldc, &magnitude);
            room = 1e-6 * magnitude + (of->wide ? 0 : 0x1p-8 * fabs(want));
        }
        if (!(fabs((double)result(&g, g.c, i) - want) <= room))
            fail_msg("%s: [%d] is %.9g, expected %.9g", c.name, (int)i, (double)result(&g, g.c, i),
                     want);
    }
    op_end(&c);
    return done;
}

// Sizes around tiles, panels and blocks.
static void all_match_fp64(gemm_fn multiply, const char *way)
{
    static const int64_t sizes[] = {1, 2, 5, 6, 7, 13, 16, 17, 33, 48, 63, 64, 65, 97};
    enum { SIZES = sizeof sizes / sizeof *sizes, CASES = 400 };
    static const int64_t large[][3] = {{3, 5, 4101}, {1550, 3, 5}, {7, 1601, 3}, {7, 66, 4099}};
    for (uint64_t i = 0; i < CASES; ++i) {
        const uint64_t bits = mics_rng_bits(8, 1, i);
        gemm_case of = {sizes[bits % SIZES],
                        sizes[(bits >> 8) % SIZES],
                        sizes[(bits >> 16) % SIZES],
                        1 + (int32_t)(i % OP_MAX_THREADS),
                        bits >> 24 & 1,
                        bits >> 25 & 1,
                        bits >> 26 & 1,
                        bits >> 27 & 1,
                        false,
                        0};
        of.bias = !of.add && !of.wide && (bits >> 28 & 1);
        if (i % 8 == 0) {
            of.M = large[i / 8 % 4][0];
            of.N = large[i / 8 % 4][1];
            of.K = large[i / 8 % 4][2];
        }
        if (!check(multiply, way, &of)) {
            print_message("%s: not on this CPU\n", way);
            skip();
        }
    }
}

static void widened_blocks_match_fp64(void **state)
{
    (void)state;
    all_match_fp64(widened, "widened");
}

static void packed_tiles_match_fp64(void **state)
{
    (void)state;
    all_match_fp64(packed, "packed");
}

// Into the same sum, which is rounded once.
static void packed_tiles_add_low_ranks(void **state)
{
    (void)state;
    static const int64_t rows[] = {2, 4, 8, 22, 30}, columns[] = {5, 64, 100, 192, 200},
                         depths[] = {2, 40, 64, 4100}, ranks[] = {2, 16, 34};
    if (!mics_gemm_has_pairs())
        skip();
    for (uint64_t i = 0; i < 100; ++i) {
        const uint64_t bits = mics_rng_bits(9, 1, i);
        gemm_case of = {.M = rows[bits % 5],
                        .N = columns[(bits >> 8) % 5],
                        .K = depths[(bits >> 16) % 4],
                        .rank = ranks[(bits >> 24) % 3],
                        .threads = 1 + (int32_t)(i % OP_MAX_THREADS),
                        .transpose_b = bits >> 32 & 1,
                        .add = bits >> 33 & 1,
                        .wide = bits >> 34 & 1};
        of.bias = !of.add && !of.wide && (bits >> 35 & 1);
        assert_true(check(packed, "packed", &of));
    }
}

// In panels of B, which have one of them, and in pairs.
static void some_low_ranks_are_refused(void **state)
{
    (void)state;
    mics_gemm_spec g = {
        .M = 4, .K = 8, .N = 192, .tails = {{.rank = 4, .first = 64, .columns = 64}}};
    g.tail_count = 1;
    if (!mics_gemm_has_pairs()) {
        assert_false(mics_gemm_takes_tails(&g));
        skip();
    }
    assert_true(mics_gemm_takes_tails(&g));
    g.tails[0].rank = 5;
    assert_false(mics_gemm_takes_tails(&g));
    g.tails[0].rank = 4;
    g.tails[0].first = 32;
    assert_false(mics_gemm_takes_tails(&g));
    g.tails[0].first = 64;
    g.tails[0].columns = 65;
    assert_false(mics_gemm_takes_tails(&g));
    g.tails[0].columns = 64;
    g.M = 5;
    assert_false(mics_gemm_takes_tails(&g));
}

static void the_library_matches_fp64(void **state)
{
    (void)state;
    all_match_fp64(mics_gemm_dnnl, "library");
}

// What is not a number stays so, and does not reach other rows or columns: padding is 0 times 0.
static void not_a_number_stays_in_its_row(void **state)
{
    (void)state;
    enum { M = 7, N = 65, K = 3 };
    uint16_t a[M * K], b[K * N], out[M * N];
    float space[4096];
    for (int i = 0; i < M * K; ++i)
        a[i] = i / K == 6 ? 0x7fc1 : 0x3f80;
    for (int i = 0; i < K * N; ++i)
        b[i] = i % N == 64 ? 0x7f80 : 0x3f80;
    assert_true(mics_gemm_floats_bf16(M, N, K) <= 4096);
    const mics_gemm_spec g = {.M = M,
                              .N = N,
                              .K = K,
                              .lda = K,
                              .ldb = N,
                              .ldc = N,
                              .a = a,
                              .b = b,
                              .c = out,
                              .space = space};
    const mics_exec at = op_exec(1, NULL);
    mics_gemm_bf16(&at, &g);
    for (int i = 0; i < M * N; ++i) {
        const float got = value(out[i]);
        if (i / N == 6)
            assert_true(isnan(got));
        else
            assert_true(i % N == 64 ? isinf(got) : got == 3.0F);
    }
}

// More threads, other replicas: the same bits.
static void packed_bits_ignore_threads(void **state)
{
    (void)state;
    enum { M = 200, N = 130, K = 4200, MAX = 3 };
    if (!mics_gemm_has_pairs())
        skip();
    op_case c;
    op_begin(&c, "threads");
    mics_gemm_spec g = {.M = M, .N = N, .K = K, .lda = M, .ldb = N, .ldc = N, .transpose_a = true};
    g.a = numbers(&c, "a", K * M);
    g.b = numbers(&c, "b", K * N);
    g.space = op_space(&c, "space", mics_gemm_floats_bf16(M, N, K));
    uint16_t *first = numbers(&c, "first", M * N), *again = numbers(&c, "again", M * N);
    for (int32_t threads = 1; threads <= MAX; ++threads) {
        const mics_exec at = op_exec(threads, NULL);
        g.c = threads == 1 ? first : again;
        assert_true(mics_gemm_packed(&at, &g));
        if (threads > 1)
            assert_memory_equal(first, again, M * N * sizeof *first);
    }
    op_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widened_blocks_match_fp64),
        cmocka_unit_test(packed_tiles_match_fp64),
        cmocka_unit_test(packed_tiles_add_low_ranks),
        cmocka_unit_test(some_low_ranks_are_refused),
        cmocka_unit_test(the_library_matches_fp64),
        cmocka_unit_test(not_a_number_stays_in_its_row),
        cmocka_unit_test(packed_bits_ignore_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
