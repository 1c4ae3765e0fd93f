// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Kernels that add up a shard, or blocks of other ranks, and hashes of shards. Shards begin and end anywhere.
#include "flat.h"
#include <math.h>
#include <string.h>

// ---- the entries ----

static void run_sum_squares(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->sum_squares(at, f->sum, f->a, f->elems);
}

static void run_sum_losses(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->sum_losses(at, f->sum, f->a, f->elems);
}

static void run_sum_blocks(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->sum_blocks(at, f->y, f->own, f->a, f->count, f->stride, f->elems, f->add);
}

static void run_sum_blocks_rounded(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->sum_blocks_rounded(at, f->y, f->own, f->a, f->count, f->stride, f->elems);
}

// ---- sums of shards ----

static double squares_case(int64_t elems, int64_t offset, double scale)
{
    cu_case c;
    cu_begin(&c, MICS_DTYPE_BF16, MICS_CUDA_SUM_BYTES, "sum_squares %lld", (long long)elems);
    cu_buffer *x = cu_input(&c, "x", MICS_DTYPE_FP32, elems, offset, scale);
    cu_buffer *sum = cu_inout(&c, "sum", CU_FP64, 1, 0, true);
    long double squares = 0;
    for (int64_t i = 0; i < elems; ++i)
        squares += (long double)x->values[i] * (long double)x->values[i];
    const double want = (double)(squares + (long double)sum->values[0]);
    const double magnitude = (double)squares + fabs(sum->values[0]);
    cu_expect(sum, &want, &magnitude, 1e-14);
    const flat_args f = {.a = x->data, .sum = sum->data, .elems = elems};
    cu_run(&c, run_sum_squares, &f);
    const double got = sum->values[0];
    cu_end(&c);
    return got;
}

// The sum must not depend on where the shard begins, to the last bit.
static void sums_of_squares(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 3, 4, 5, 1023, 1024, 1025, 4097, 70001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        const double sum = squares_case(sizes[i], 0, 1.0);
        for (int64_t offset = 1; offset < 4; ++offset)
            if (squares_case(sizes[i], offset, 1.0) != sum)
                fail_msg("%lld squares add up otherwise at offset %lld", (long long)sizes[i],
                         (long long)offset);
    }
    squares_case(0, 0, 1.0);
    squares_case(100, 0, 1e30);    // beyond fp32
    squares_case(4200003, 1, 1.0); // more than one turn of each block
}

static void squares_of_no_number(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; ++kind) {
        cu_case c;
        cu_begin(&c, MICS_DTYPE_FP32, MICS_CUDA_SUM_BYTES, "sum_squares of %s",
                 kind ? "infinity" : "NaN");
        cu_buffer *x = cu_input(&c, "x", MICS_DTYPE_FP32, 5000, 0, 1.0);
        x->values[4321] = kind ? -(double)INFINITY : (double)NAN;
        cu_changed(x);
        cu_buffer *sum = cu_inout(&c, "sum", CU_FP64, 1, 0, true);
        const flat_args f = {.a = x->data, .sum = sum->data, .elems = 5000};
        cu_run(&c, run_sum_squares, &f);
        assert_true(!isfinite(sum->values[0]));
        cu_end(&c);
    }
}

static void losses_case(int64_t N)
{
    cu_case c;
    cu_begin(&c, MICS_DTYPE_BF16, 0, "sum_losses %lld", (long long)N);
    cu_buffer *x = cu_input(&c, "loss", MICS_DTYPE_FP32, N, N % 3, 5.0);
    cu_buffer *sum = cu_inout(&c, "sum", CU_FP64, 1, 0, true);
    long double losses = 0;
    double magnitude = fabs(sum->values[0]);
    for (int64_t i = 0; i < N; ++i) {
        losses += (long double)x->values[i];
        magnitude += fabs(x->values[i]);
    }
    const double want = (double)(losses + (long double)sum->values[0]);
    cu_expect(sum, &want, &magnitude, 1e-14);
    const flat_args f = {.a = x->data, .sum = sum->data, .elems = N};
    cu_run(&c, run_sum_losses, &f);
    cu_end(&c);
}

static void sums_of_losses(void **state)
{
    (void)state;
    for (int i = 0; i < SIZE_COUNT; ++i)
        losses_case(SIZES[i]);
}

// ---- blocks of other ranks ----

static void blocks_case(const shape *s, int32_t count, bool rounded, bool add, bool alias)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "sum_blocks%s %lld of %d at %lld %lld add %d alias %d",
             rounded ? "_rounded" : "", (long long)s->elems, (int)count, (long long)s->offset[0],
             (long long)s->offset[1], add, alias);
    const int64_t elems = s->elems, stride = elems + (elems % 3 ? 0 : 5);
    cu_buffer *own = cu_input(&c, "own", (int)s->dtype, elems, s->offset[1], 1.0);
    cu_buffer *blocks =
        cu_input(&c, "blocks", (int)s->dtype, count * stride + 1, s->offset[2], 1.0);
    cu_buffer *out = alias ? own
                           : cu_inout(&c, "out", rounded ? (int)s->dtype : MICS_DTYPE_FP32, elems,
                                      s->offset[0], add);
    out->role = alias ? CU_INOUT : out->role;
    double *want = cu_doubles(&c, elems), *magnitude = cu_doubles(&c, elems);
    for (int64_t i = 0; i < elems; ++i) {
        want[i] = own->values[i] + (add ? out->values[i] : 0);
        magnitude[i] = fabs(own->values[i]) + (add ? fabs(out->values[i]) : 0);
        for (int64_t block = 0; block < count; ++block) {
            want[i] += blocks->values[block * stride + i];
            magnitude[i] += fabs(blocks->values[block * stride + i]);
        }
    }
    cu_expect(out, want, magnitude, CU_TOLERANCE);
    const flat_args f = {.y = out->data,
                         .a = blocks->data,
                         .own = own->data,
                         .elems = elems,
                         .stride = stride,
                         .count = count,
                         .add = add};
    cu_run(&c, rounded ? run_sum_blocks_rounded : run_sum_blocks, &f);
    cu_end(&c);
}

static void test_blocks(const shape *s)
{
    const int32_t count = (int32_t)(s->elems % 5);
    blocks_case(s, count, false, false, false);
    blocks_case(s, count + 1, false, true, false);
    blocks_case(s, count, true, false, false);
    blocks_case(s, count + 2, true, false, true);
}

static void sums_of_blocks(void **state)
{
    (void)state;
    over_shapes(test_blocks);
}

// The order of fp32 sums, which decides the bits: own first, then block after block; what was there
// before last.
static void blocks_add_in_order(void **state)
{
    (void)state;
    cu_case c;
    cu_begin(&c, MICS_DTYPE_FP32, 0, "sum_blocks in order");
    const int64_t elems = 1000;
    cu_buffer *own = cu_input(&c, "own", MICS_DTYPE_FP32, elems, 0, 1.0);
    cu_buffer *blocks = cu_input(&c, "blocks", MICS_DTYPE_FP32, 5 * elems, 0, 1.0);
    cu_buffer *out = cu_inout(&c, "out", MICS_DTYPE_FP32, elems, 0, true);
    double *before = cu_doubles(&c, elems);
    memcpy(before, out->values, (size_t)elems * sizeof *before);
    const flat_args f = {.y = out->data,
                         .a = blocks->data,
                         .own = own->data,
                         .elems = elems,
                         .stride = elems,
                         .count = 5,
                         .add = true};
    cu_run(&c, run_sum_blocks, &f);
    for (int64_t i = 0; i < elems; ++i) {
        volatile float sum = (float)own->values[i];
        for (int64_t block = 0; block < 5; ++block)
            sum = sum + (float)blocks->values[block * elems + i];
        sum = (float)before[i] + sum;
        assert_true(out->values[i] == (double)sum);
    }
    cu_end(&c);
}

// ---- hashes ----

static void run_hash(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    uint64_t *hash = (uint64_t *)(void *)f->sum;
    table()->hash(at, hash, f->a, (size_t)f->elems * mics_dtype_bytes(at->dtype));
}

// Of numbers that count, from `offset` on, the one at `changed` another (-1: none).
static uint64_t hash_case(mics_dtype dtype, int64_t elems, int64_t offset, int64_t changed)
{
    cu_case c;
    uint64_t bits = 0;
    cu_begin(&c, dtype, MICS_CUDA_SUM_BYTES, "hash of %lld at %lld", (long long)elems,
             (long long)offset);
    cu_buffer *x = cu_input(&c, "x", (int)dtype, elems, offset, 1.0);
    cu_buffer *hash = cu_output(&c, "hash", CU_FP64, 1, 0);
    for (int64_t i = 0; i < elems; ++i)
        x->values[i] = (double)(i % 61) - 30 + (i == changed ? 1 : 0);
    cu_changed(x);
    const flat_args f = {.sum = hash->data, .a = x->data, .elems = elems};
    cu_run(&c, run_hash, &f);
    memcpy(&bits, hash->values, sizeof bits);
    cu_end(&c);
    return bits;
}

static void hashes(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 255, 4099, 600001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        const mics_dtype dtype = i % 2 == 0 ? MICS_DTYPE_FP32 : MICS_DTYPE_BF16;
        const int64_t elems = sizes[i];
        const uint64_t want = hash_case(dtype, elems, 0, -1);
        assert_true(hash_case(dtype, elems, 2, -1) == want);
        for (int64_t at = 0; at < elems; at += 1 + elems / 3)
            assert_true(hash_case(dtype, elems, 0, at) != want);
        if (elems > 0)
            assert_true(hash_case(dtype, elems, 0, elems - 1) != want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_squares),     cmocka_unit_test(squares_of_no_number),
        cmocka_unit_test(sums_of_losses),      cmocka_unit_test(sums_of_blocks),
        cmocka_unit_test(blocks_add_in_order), cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
