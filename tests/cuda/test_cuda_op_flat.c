// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Kernels over flat arrays and shards: gelu, sums, conversions, AdamW. Shards begin and end
// anywhere.
#include "cuda_op.h"
#include "ops/common/cuda_ops.h"
#include <math.h>
#include <string.h>

static const int64_t SIZES[] = {1, 2, 3, 7, 8, 9, 31, 64, 65, 257, 1000, 4096, 4099};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES, MOST_OFFSET = 8 };

// Every size at some offsets of each buffer: the same, which packs can follow, or not.
typedef struct shape {
    mics_dtype dtype;
    int64_t elems, offset[5];
} shape;

typedef void (*shape_fn)(const shape *s);

static void over_shapes(shape_fn test)
{
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
        for (int i = 0; i < SIZE_COUNT; ++i)
            for (int kind = 0; kind < 4; ++kind) {
                shape s = {.dtype = (mics_dtype)dtype, .elems = SIZES[i]};
                for (int b = 0; b < 5; ++b)
                    s.offset[b] = kind == 0   ? 0
                                  : kind == 1 ? 3
                                  : kind == 2 ? (i + b) % MOST_OFFSET
                                              : i % MOST_OFFSET;
                test(&s);
            }
}

// ---- the entries, by what they take ----

typedef struct flat_args {
    void *y;
    const void *a, *b, *own;
    int64_t elems, stride;
    int32_t count;
    bool add, exact;
    double *sum;
    float *masters, *moment1, *moment2;
    op_adamw adamw;
} flat_args;

static const mics_kernels *table(void)
{
    cu_device();
    const mics_kernels *found = mics_kernels_cuda();
    if (!found)
        fail_msg("the plugin has no kernels");
    return found;
}

static void run_add(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    op_add(table(), at, f->y, f->a, f->b, f->elems);
}

static void run_accumulate(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->accumulate(at, f->y, f->a, f->elems);
}

static void run_round(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->round(at, f->y, f->a, f->elems);
}

static void run_widen(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->widen(at, f->y, f->a, f->elems);
}

static void run_gelu_forward(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    op_gelu_forward(table(), at, f->y, f->a, f->elems, f->exact);
}

static void run_gelu_backward(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    op_gelu_backward(table(), at, f->y, f->a, f->b, f->elems, f->exact, f->add);
}

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

static void run_adamw(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    op_adamw_update(table(), at, f->y, f->masters, f->moment1, f->moment2, f->a, f->elems,
                    &f->adamw);
}

// ---- sums of two ----

// alias: 0 none, 1 y is a, 2 y is b.
static void add_case(const shape *s, int alias)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "add %lld at %lld %lld %lld alias %d", (long long)s->elems,
             (long long)s->offset[0], (long long)s->offset[1], (long long)s->offset[2], alias);
    cu_buffer *a = cu_input(&c, "a", (int)s->dtype, s->elems, s->offset[1], 1.0);
    cu_buffer *b = cu_input(&c, "b", (int)s->dtype, s->elems, s->offset[2], 3.0);
    cu_buffer *y = alias == 1   ? a
                   : alias == 2 ? b
                                : cu_output(&c, "y", (int)s->dtype, s->elems, s->offset[0]);
    y->role = alias ? CU_INOUT : CU_OUTPUT;
    double *want = cu_doubles(&c, s->elems), *magnitude = cu_doubles(&c, s->elems);
    for (int64_t i = 0; i < s->elems; ++i) {
        want[i] = a->values[i] + b->values[i];
        magnitude[i] = fabs(a->values[i]) + fabs(b->values[i]);
    }
    cu_expect(y, want, magnitude, CU_TOLERANCE);
    const flat_args f = {.y = y->data, .a = a->data, .b = b->data, .elems = s->elems};
    cu_run(&c, run_add, &f);
    cu_end(&c);
}

static void accumulate_case(const shape *s)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "accumulate %lld", (long long)s->elems);
    cu_buffer *y = cu_inout(&c, "y", (int)s->dtype, s->elems, s->offset[0], true);
    cu_buffer *x = cu_input(&c, "x", (int)s->dtype, s->elems, s->offset[1], 1.0);
    double *want = cu_doubles(&c, s->elems), *magnitude = cu_doubles(&c, s->elems);
    for (int64_t i = 0; i < s->elems; ++i) {
        want[i] = y->values[i] + x->values[i];
        magnitude[i] = fabs(y->values[i]) + fabs(x->values[i]);
    }
    cu_expect(y, want, magnitude, CU_TOLERANCE);
    const flat_args f = {.y = y->data, .a = x->data, .elems = s->elems};
    cu_run(&c, run_accumulate, &f);
    cu_end(&c);
}

static void test_add(const shape *s)
{
    add_case(s, 0);
    add_case(s, 1 + (int)(s->elems % 2));
    accumulate_case(s);
}

static void sums_of_two(void **state)
{
    (void)state;
    over_shapes(test_add);
}

// ---- conversions ----

// Values where rounding is delicate: ties, what overflows, what is tiny, and what is no number.
static void delicate(cu_buffer *x, int type)
{
    const double ulp = type == MICS_DTYPE_FP16 ? ldexp(1, -10) : ldexp(1, -7);
    const double values[] = {0.0,
                             -0.0,
                             1.0 + ulp / 2,
                             1.0 + 3 * ulp / 2,
                             -1.0 - ulp / 2,
                             1.0 + ulp / 2 + ldexp(1, -23),
                             65504.0,
                             65519.9,
                             65520.0,
                             -65536.0,
                             3.38e38,
                             3.3961e38,
                             -3.4e38,
                             6.1e-5,
                             5.9e-8,
                             2.98e-8,
                             2.9802322387695312e-8,
                             -4.47e-8,
                             1.2e-38,
                             1e-40,
                             (double)INFINITY,
                             -(double)INFINITY,
                             (double)NAN};
    for (int64_t i = 0; i < x->elems && i < (int64_t)(sizeof values / sizeof *values); ++i)
        x->values[i] = values[i];
    cu_changed(x);
}

static void round_case(const shape *s)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "round %lld", (long long)s->elems);
    cu_buffer *x = cu_input(&c, "x", MICS_DTYPE_FP32, s->elems, s->offset[1], 1.0);
    delicate(x, (int)s->dtype);
    cu_buffer *out = cu_output(&c, "out", (int)s->dtype, s->elems, s->offset[0]);
    const flat_args f = {.y = out->data, .a = x->data, .elems = s->elems};
    cu_run(&c, run_round, &f);
    for (int64_t i = 0; i < s->elems; ++i) {
        const double want = cu_rounded((int)s->dtype, x->values[i]), got = out->values[i];
        if (!(isnan(want) && isnan(got)) && got != want)
            fail_msg("%s: %.9g became %.9g, not %.9g", c.name, x->values[i], got, want);
    }
    cu_end(&c);
}

static void widen_case(const shape *s)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "widen %lld", (long long)s->elems);
    cu_buffer *x = cu_input(&c, "x", (int)s->dtype, s->elems, s->offset[1], 1.0);
    delicate(x, (int)s->dtype);
    cu_buffer *out = cu_output(&c, "out", MICS_DTYPE_FP32, s->elems, s->offset[0]);
    const flat_args f = {.y = out->data, .a = x->data, .elems = s->elems};
    cu_run(&c, run_widen, &f);
    for (int64_t i = 0; i < s->elems; ++i)
        if (!(isnan(x->values[i]) && isnan(out->values[i])) && out->values[i] != x->values[i])
            fail_msg("%s: %.9g became %.9g", c.name, x->values[i], out->values[i]);
    cu_end(&c);
}

static void conversions(void **state)
{
    (void)state;
    over_shapes(round_case);
    over_shapes(widen_case);
}

// ---- gelu ----

static double gelu_inner(double x)
{
    return sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
}

static double gelu(double x, bool exact)
{
    if (exact)
        return isinf(x) ? (x > 0 ? x : 0) : 0.5 * x * erfc(-x / sqrt(2.0));
    return isinf(x) ? (x > 0 ? x : 0) : 0.5 * x * (1 + tanh(gelu_inner(x)));
}

static double gelu_slope(double x, bool exact)
{
    if (isinf(x))
        return x > 0 ? 1 : 0;
    if (exact)
        return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
    const double t = tanh(gelu_inner(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
}

// Beside random numbers, what lies far out.
static void far_out(cu_buffer *x)
{
    const double values[] = {0.0, 10.5, -10.5, 30000.0, -30000.0, 5.5, -5.5, 11.5, -12.0};
    for (int64_t i = 0; i < x->elems && i < (int64_t)(sizeof values / sizeof *values); ++i)
        x->values[i] = values[i];
    if (x->elems > 30) {
        x->values[30] = (double)NAN;
        x->values[29] = (double)INFINITY;
    }
    cu_changed(x);
}

static double quick(mics_dtype dtype)
{
    return dtype == MICS_DTYPE_FP32 ? CU_TOLERANCE : CU_QUICK;
}

static void gelu_forward_case(const shape *s, bool exact)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "gelu_forward %lld exact %d", (long long)s->elems, exact);
    cu_buffer *x = cu_input(&c, "x", (int)s->dtype, s->elems, s->offset[1], 2.0);
    far_out(x);
    cu_buffer *y = cu_output(&c, "y", (int)s->dtype, s->elems, s->offset[0]);
    double *want = cu_doubles(&c, s->elems), *magnitude = cu_doubles(&c, s->elems);
    for (int64_t i = 0; i < s->elems; ++i) {
        want[i] = gelu(x->values[i], exact);
        magnitude[i] = fabs(x->values[i]);
    }
    cu_expect(y, want, magnitude, quick(s->dtype));
    const flat_args f = {.y = y->data, .a = x->data, .elems = s->elems, .exact = exact};
    cu_run(&c, run_gelu_forward, &f);
    cu_end(&c);
}

static void gelu_backward_case(const shape *s, bool exact, bool add, bool alias)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "gelu_backward %lld exact %d add %d alias %d", (long long)s->elems,
             exact, add, alias);
    cu_buffer *x = cu_input(&c, "x", (int)s->dtype, s->elems, s->offset[1], 2.0);
    far_out(x);
    cu_buffer *dy = cu_input(&c, "dy", (int)s->dtype, s->elems, s->offset[2], 1.0);
    cu_buffer *dx = alias ? dy : cu_inout(&c, "dx", (int)s->dtype, s->elems, s->offset[0], add);
    dx->role = alias ? CU_INOUT : dx->role;
    double *want = cu_doubles(&c, s->elems), *magnitude = cu_doubles(&c, s->elems);
    for (int64_t i = 0; i < s->elems; ++i) {
        const double before = add ? dx->values[i] : 0, in = x->values[i];
        want[i] = before + dy->values[i] * gelu_slope(in, exact);
        magnitude[i] = fabs(before) + fabs(dy->values[i]) * (isfinite(in) ? 1.2 + fabs(in) : 1);
        if (fabs(in) > 20 && isfinite(in)) // no terms cancel out there
            magnitude[i] = fabs(before) + fabs(dy->values[i]);
    }
    cu_expect(dx, want, magnitude, quick(s->dtype));
    const flat_args f = {
        .y = dx->data, .a = dy->data, .b = x->data, .elems = s->elems, .add = add, .exact = exact};
    cu_run(&c, run_gelu_backward, &f);
    cu_end(&c);
}

static void test_gelu(const shape *s)
{
    for (int exact = 0; exact < 2; ++exact) {
        gelu_forward_case(s, exact);
        gelu_backward_case(s, exact, false, false);
        gelu_backward_case(s, exact, true, false);
        gelu_backward_case(s, exact, s->elems % 2, true);
    }
}

static void gelu_and_gradient(void **state)
{
    (void)state;
    over_shapes(test_gelu);
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

// ---- AdamW ----

static void adamw_case(const shape *s, bool with_params, bool at_zero)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "adamw %lld at %lld %lld params %d zero %d", (long long)s->elems,
             (long long)s->offset[0], (long long)s->offset[1], with_params, at_zero);
    const int64_t elems = s->elems;
    const op_adamw by = {.lr = 3e-3F,
                         .beta1 = 0.9F,
                         .beta2 = 0.95F,
                         .eps = 1e-6F,
                         .weight_decay = 0.1F,
                         .step = at_zero ? 1 : 3,
                         .grad_scale = 0.37F};
    const double bias1 = 1 - pow((double)by.beta1, (double)by.step);
    const double bias2 = 1 - pow((double)by.beta2, (double)by.step);
    cu_buffer *p = cu_inout(&c, "masters", MICS_DTYPE_FP32, elems, s->offset[1], true);
    cu_buffer *m = cu_inout(&c, "moment1", MICS_DTYPE_FP32, elems, s->offset[2], true);
    cu_buffer *v = cu_inout(&c, "moment2", MICS_DTYPE_FP32, elems, s->offset[3], true);
    cu_buffer *g = cu_input(&c, "grads", MICS_DTYPE_FP32, elems, s->offset[4], 2.0);
    for (int64_t i = 0; i < elems; ++i) {
        m->values[i] = at_zero ? 0 : m->values[i];
        v->values[i] = at_zero ? 0 : fabs(v->values[i]);
        if (at_zero && i % 3 == 0)
            g->values[i] = 0;
    }
    cu_changed(m);
    cu_changed(v);
    cu_changed(g);
    cu_buffer *params =
        with_params ? cu_output(&c, "params", (int)s->dtype, elems, s->offset[0]) : NULL;
    double *want[3], *magnitude[3];
    for (int k = 0; k < 3; ++k) {
        want[k] = cu_doubles(&c, elems);
        magnitude[k] = cu_doubles(&c, elems);
    }
    for (int64_t i = 0; i < elems; ++i) {
        const double grad = g->values[i] * (double)by.grad_scale;
        const double keep1 = (double)(1.0F - by.beta1), keep2 = (double)(1.0F - by.beta2);
        want[1][i] = (double)by.beta1 * m->values[i] + keep1 * grad;
        magnitude[1][i] = fabs((double)by.beta1 * m->values[i]) + fabs(keep1 * grad);
        want[2][i] = (double)by.beta2 * v->values[i] + keep2 * grad * grad;
        magnitude[2][i] = want[2][i];
        const double root = sqrt(want[2][i] / bias2) + (double)by.eps;
        const double step = (double)by.lr / bias1 / root;
        const double decay = (double)by.lr * (double)by.weight_decay * p->values[i];
        want[0][i] = p->values[i] - step * want[1][i] - decay;
        magnitude[0][i] = fabs(p->values[i]) + step * magnitude[1][i] + fabs(decay);
    }
    cu_expect(p, want[0], magnitude[0], CU_TOLERANCE);
    cu_expect(m, want[1], magnitude[1], CU_TOLERANCE);
    cu_expect(v, want[2], magnitude[2], CU_TOLERANCE);
    const flat_args f = {.y = params ? params->data : NULL,
                         .a = g->data,
                         .masters = p->data,
                         .moment1 = m->data,
                         .moment2 = v->data,
                         .elems = elems,
                         .adamw = by};
    cu_run(&c, run_adamw, &f);
    for (int64_t i = 0; params && i < elems; ++i)
        if (params->values[i] != cu_rounded((int)s->dtype, p->values[i]))
            fail_msg("%s: parameter %lld is %.9g, its master %.9g", c.name, (long long)i,
                     params->values[i], p->values[i]);
    cu_end(&c);
}

static void test_adamw(const shape *s)
{
    adamw_case(s, true, false);
    adamw_case(s, s->elems % 2, true);
    if (s->dtype == MICS_DTYPE_BF16)
        adamw_case(s, false, false);
}

static void adamw_on_shards(void **state)
{
    (void)state;
    over_shapes(test_adamw);
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
        cmocka_unit_test(sums_of_two),          cmocka_unit_test(conversions),
        cmocka_unit_test(gelu_and_gradient),    cmocka_unit_test(sums_of_squares),
        cmocka_unit_test(squares_of_no_number), cmocka_unit_test(sums_of_losses),
        cmocka_unit_test(sums_of_blocks),       cmocka_unit_test(blocks_add_in_order),
        cmocka_unit_test(adamw_on_shards),      cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
