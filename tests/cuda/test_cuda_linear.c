// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Linears on a GPU against fp64 references of the rounded inputs: all types, both orders of
// weights, with and without bias, GELU and adding; shapes for which the library has epilogues and
// others. Then the table of plans.
#include "gpu_case.h"
#include "ops/common/bias_cuda.h"
#include "ops/common/matmul_cuda.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef void (*count_fn)(mics_device *device, int64_t *plans, int64_t *measured);
typedef void (*time_fn)(mics_device *device, double seconds);
typedef size_t (*save_fn)(mics_device *device, void *bytes, size_t capacity);
typedef mics_status (*load_fn)(mics_device *device, const void *bytes, size_t size);
typedef bool (*matmul_fn)(const mics_exec *at, const mics_cuda_gemm *gemm, void *workspace,
                          size_t workspace_bytes);

static double gelu(double x, bool exact)
{
    if (exact)
        return 0.5 * x * erfc(-x / sqrt(2.0));
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x, bool exact)
{
    const double c = sqrt(2 / acos(-1.0)), t = tanh(c * (x + 0.044715 * x * x * x));
    if (exact)
        return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1.0));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

typedef struct linear {
    int64_t N, I, O;
    mics_weight_order order;
    double *x, *w, *bias, *dy;
} linear;

static double weight_at(const linear *l, int64_t i, int64_t o)
{
    return l->order == MICS_WEIGHT_IN_OUT ? l->w[i * l->O + o] : l->w[o * l->I + i];
}

static linear linear_of(gpu_case *c, const int64_t shape[3], mics_weight_order order)
{
    linear l = {.N = shape[0], .I = shape[1], .O = shape[2], .order = order};
    l.x = gpu_random(c, l.N * l.I, 1.0);
    l.w = gpu_random(c, l.I * l.O, 1.0);
    l.bias = gpu_random(c, l.O, 1.0);
    l.dy = gpu_random(c, l.N * l.O, 1.0);
    return l;
}

// Adds x W + bias to y, and the absolute terms to y_sum.
static void add_forward(const linear *l, bool bias, double *y, double *y_sum)
{
    for (int64_t n = 0; n < l->N; ++n)
        for (int64_t o = 0; o < l->O; ++o) {
            double sum = bias ? l->bias[o] : 0, terms = fabs(sum);
            for (int64_t i = 0; i < l->I; ++i) {
                const double term = l->x[n * l->I + i] * weight_at(l, i, o);
                sum += term;
                terms += fabs(term);
            }
            y[n * l->O + o] += sum;
            y_sum[n * l->O + o] += terms;
        }
}

// Adds to dx (may be NULL), dw and dbias, and absolute terms to the arrays behind them.
static void add_backward(const linear *l, double *const dx[2], double *const dw[2],
                         double *const dbias[2])
{
    for (int64_t n = 0; n < l->N; ++n)
        for (int64_t o = 0; o < l->O; ++o) {
            const double dy = l->dy[n * l->O + o];
            dbias[0][o] += dy;
            dbias[1][o] += fabs(dy);
            for (int64_t i = 0; i < l->I; ++i) {
                const double to_x = dy * weight_at(l, i, o), to_w = dy * l->x[n * l->I + i];
                const int64_t w_at = l->order == MICS_WEIGHT_IN_OUT ? i * l->O + o : o * l->I + i;
                dx[0][n * l->I + i] += to_x;
                dx[1][n * l->I + i] += fabs(to_x);
                dw[0][w_at] += to_w;
                dw[1][w_at] += fabs(to_w);
            }
        }
}

// Less than GEMMs would like, and more than sums of rows need here.
static const size_t WORKSPACE = 1 << 16;

static const double EXACT = 2e-6; // of fp32 sums, in absolute terms

static void forward_case(mics_dtype dtype, const int64_t shape[3], mics_weight_order order,
                         bool bias)
{
    gpu_case c;
    gpu_begin(&c, dtype, WORKSPACE, "linear_forward N=%d I=%d O=%d order %d bias %d", (int)shape[0],
              (int)shape[1], (int)shape[2], order, bias);
    const linear l = linear_of(&c, shape, order);
    const int64_t elems = l.N * l.O;
    double *want = gpu_doubles(&c, elems), *sum = gpu_doubles(&c, elems);
    add_forward(&l, bias, want, sum);
    void *y = gpu_poisoned(&c, gpu_size(&c, elems)), *x = gpu_numbers(&c, l.x, l.N * l.I);
    void *w = gpu_numbers(&c, l.w, l.I * l.O), *b = bias ? gpu_numbers(&c, l.bias, l.O) : NULL;
    op_linear_forward(mics_kernels_cuda(), &c.at, y, x, w, b, order, l.N, l.I, l.O);
    // Where the bias is added by a kernel of its own, the GEMM has been rounded before.
    gpu_expect(&c, "y", y, dtype, elems, want, sum, 1.01, EXACT + (bias ? gpu_unit(dtype) : 0));
    void *first = gpu_bytes(&c, y, gpu_size(&c, elems));
    gpu_poison(&c, y, gpu_size(&c, elems));
    op_linear_forward(mics_kernels_cuda(), &c.at, y, x, w, b, order, l.N, l.I, l.O);
    assert_memory_equal(first, gpu_bytes(&c, y, gpu_size(&c, elems)), gpu_size(&c, elems));
    gpu_end(&c);
}

static void gelu_forward_case(mics_dtype dtype, const int64_t shape[3], mics_weight_order order,
                              bool bias, bool exact)
{
    gpu_case c;
    gpu_begin(&c, dtype, WORKSPACE, "linear_gelu_forward N=%d I=%d O=%d order %d bias %d exact %d",
              (int)shape[0], (int)shape[1], (int)shape[2], order, bias, exact);
    const linear l = linear_of(&c, shape, order);
    const int64_t elems = l.N * l.O;
    double *pre_want = gpu_doubles(&c, elems), *sum = gpu_doubles(&c, elems);
    double *want = gpu_doubles(&c, elems);
    add_forward(&l, bias, pre_want, sum);
    for (int64_t i = 0; i < elems; ++i)
        want[i] = gelu(pre_want[i], exact);
    void *y = gpu_poisoned(&c, gpu_size(&c, elems)), *pre = gpu_poisoned(&c, gpu_size(&c, elems));
    op_linear_gelu_forward(mics_kernels_cuda(), &c.at, y, pre, gpu_numbers(&c, l.x, l.N * l.I),
                           gpu_numbers(&c, l.w, l.I * l.O),
                           bias ? gpu_numbers(&c, l.bias, l.O) : NULL, order, l.N, l.I, l.O, exact);
    const double tolerance = EXACT + (bias ? gpu_unit(dtype) : 0);
    gpu_expect(&c, "pre", pre, dtype, elems, pre_want, sum, 1.01, tolerance);
    // The slope of GELU is at most 1.13; without an epilogue it is taken of the rounded sum.
    gpu_expect(&c, "y", y, dtype, elems, want, sum, 1.01, 1.13 * (tolerance + gpu_unit(dtype)));
    gpu_end(&c);
}

// The sum goes to a place of its own, or to that of the residual.
static void add_forward_case(mics_dtype dtype, const int64_t shape[3], mics_weight_order order,
                             bool bias, bool in_place)
{
    gpu_case c;
    gpu_begin(&c, dtype, WORKSPACE,
              "linear_add_forward N=%d I=%d O=%d order %d bias %d in place %d", (int)shape[0],
              (int)shape[1], (int)shape[2], order, bias, in_place);
    const linear l = linear_of(&c, shape, order);
    const int64_t elems = l.N * l.O;
    double *want = gpu_doubles(&c, elems), *sum = gpu_doubles(&c, elems);
    double *old = gpu_random(&c, elems, 2.0);
    add_forward(&l, bias, want, sum);
    for (int64_t i = 0; i < elems; ++i) {
        want[i] += old[i];
        sum[i] += fabs(old[i]);
    }
    void *residual = gpu_numbers(&c, old, elems), *between = gpu_poisoned(&c, gpu_size(&c, elems));
    void *y = in_place ? residual : gpu_poisoned(&c, gpu_size(&c, elems));
    op_linear_add_forward(mics_kernels_cuda(), &c.at, y, between, residual,
                          gpu_numbers(&c, l.x, l.N * l.I), gpu_numbers(&c, l.w, l.I * l.O),
                          bias ? gpu_numbers(&c, l.bias, l.O) : NULL, order, l.N, l.I, l.O);
    gpu_expect(&c, "y", y, dtype, elems, want, sum, 1.01, EXACT + (bias ? gpu_unit(dtype) : 0));
    gpu_end(&c);
}

// What is added to lies in `old`; its rounding is the same as that of what is expected.
static void *destination(gpu_case *c, bool add, int64_t elems, double *want, double *sum)
{
    if (!add)
        return gpu_poisoned(c, gpu_size(c, elems));
    double *old = gpu_random(c, elems, 2.0);
    for (int64_t i = 0; i < elems; ++i) {
        want[i] += old[i];
        sum[i] += fabs(old[i]);
    }
    return gpu_numbers(c, old, elems);
}

typedef struct backward_options {
    bool dx, bias, add_dx, add_params, gelu, exact;
} backward_options;

static void backward_case(mics_dtype dtype, const int64_t shape[3], mics_weight_order order,
                          backward_options o)
{
    gpu_case c;
    gpu_begin(&c, dtype, WORKSPACE,
              "linear_backward N=%d I=%d O=%d order %d dx %d bias %d add %d %d gelu %d "
              "exact %d",
              (int)shape[0], (int)shape[1], (int)shape[2], order, o.dx, o.bias, o.add_dx,
              o.add_params, o.gelu, o.exact);
    const linear l = linear_of(&c, shape, order);
    const int64_t N = l.N, I = l.I, O = l.O;
    double *dx[2] = {gpu_doubles(&c, N * I), gpu_doubles(&c, N * I)};
    double *dw[2] = {gpu_doubles(&c, I * O), gpu_doubles(&c, I * O)};
    double *db[2] = {gpu_doubles(&c, O), gpu_doubles(&c, O)}, *pre = gpu_random(&c, N * I, 3.0);
    add_backward(&l, dx, dw, db);
    for (int64_t i = 0; o.gelu && i < N * I; ++i) {
        dx[0][i] *= gelu_slope(pre[i], o.exact);
        dx[1][i] *= 1.13;
    }
    void *to_x = o.dx ? destination(&c, o.add_dx, N * I, dx[0], dx[1]) : NULL;
    void *to_w = destination(&c, o.add_params, I * O, dw[0], dw[1]);
    void *to_b = o.bias ? destination(&c, o.add_params, O, db[0], db[1]) : NULL;
    void *dy = gpu_numbers(&c, l.dy, N * O), *x = gpu_numbers(&c, l.x, N * I);
    void *w = gpu_numbers(&c, l.w, I * O);
    if (o.gelu)
        op_linear_gelu_backward(mics_kernels_cuda(), &c.at, to_x, to_w, to_b, dy, x,
                                gpu_numbers(&c, pre, N * I), w, order, N, I, O, o.exact,
                                o.add_params);
    else
        op_linear_backward(mics_kernels_cuda(), &c.at, to_x, to_w, to_b, dy, x, w, order, N, I, O,
                           o.add_dx, o.add_params);
    if (to_x)
        gpu_expect(&c, "dx", to_x, dtype, N * I, dx[0], dx[1], 1.01,
                   EXACT + (o.gelu ? gpu_unit(dtype) : 0));
    gpu_expect(&c, "dweight", to_w, dtype, I * O, dw[0], dw[1], 1.01, EXACT);
    if (to_b)
        gpu_expect(&c, "dbias", to_b, dtype, O, db[0], db[1], 1.01, EXACT);
    gpu_end(&c);
}

// N, I, O: multiples of 8, for which there are all epilogues, and others.
static const int64_t SHAPES[][3] = {{1, 1, 1},    {3, 5, 7},  {16, 64, 48},
                                    {65, 40, 33}, {5, 8, 24}, {64, 72, 80},
                                    {130, 9, 16}, {7, 33, 8}, {600, 16, 24}};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

static void forward_matches(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
        for (int i = 0; i < SHAPE_COUNT; ++i)
            for (int k = 0; k < 4; ++k) {
                const mics_weight_order order = (mics_weight_order)(k / 2);
                forward_case((mics_dtype)dtype, SHAPES[i], order, k % 2);
                gelu_forward_case((mics_dtype)dtype, SHAPES[i], order, k % 2, false);
                gelu_forward_case((mics_dtype)dtype, SHAPES[i], order, k % 2, true);
                add_forward_case((mics_dtype)dtype, SHAPES[i], order, k % 2, false);
                add_forward_case((mics_dtype)dtype, SHAPES[i], order, k % 2, true);
            }
}

static void backward_matches(void **state)
{
    (void)state;
    static const backward_options OPTIONS[] = {
        {true, true, false, false, false, false}, {true, true, true, true, false, false},
        {true, true, true, false, false, false},  {false, true, false, false, false, false},
        {true, false, false, true, false, false}, {true, true, false, false, true, false},
        {true, true, false, true, true, false},   {true, false, false, false, true, false},
        {true, true, false, true, true, true},    {true, false, false, false, true, true}};
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
        for (int i = 0; i < SHAPE_COUNT; ++i)
            for (int k = 0; k < 10; ++k)
                for (int order = 0; order < 2; ++order)
                    backward_case((mics_dtype)dtype, SHAPES[i], (mics_weight_order)order,
                                  OPTIONS[k]);
}

// ---- what runs beside GEMMs ----

typedef void (*bias_add_fn)(const mics_exec *at, void *y, const void *bias, int64_t N, int64_t O,
                            int64_t stride);
typedef void (*bias_backward_fn)(const mics_exec *at, void *dbias, const void *dy, int64_t N,
                                 int64_t O, int64_t stride, bool add, void *workspace);
typedef void (*round_add_fn)(const mics_exec *at, void *out, const float *sum, int64_t elems,
                             bool add);

// `shift` elements into the block, so that packs fit only without it.
static void *shifted(const gpu_case *c, void *block, int64_t shift)
{
    return (char *)block + gpu_size(c, shift);
}

static void bias_case(mics_dtype dtype, int64_t N, int64_t O, int64_t shift, bool add)
{
    GPU_FUNCTION(bias_add_fn, bias_add);
    GPU_FUNCTION(bias_backward_fn, bias_backward);
    GPU_FUNCTION(round_add_fn, round_add);
    const int64_t elems = N * O;
    gpu_case c;
    gpu_begin(&c, dtype, WORKSPACE, "bias N=%d O=%d shift %d add %d", (int)N, (int)O, (int)shift,
              add);
    double *y = gpu_random(&c, shift + elems, 1.0) + shift;
    double *bias = gpu_random(&c, O, 1.0), *sums[2] = {gpu_doubles(&c, O), gpu_doubles(&c, O)};
    double *want = gpu_doubles(&c, elems), *none = gpu_doubles(&c, elems);
    for (int64_t i = 0; i < elems; ++i) {
        want[i] = y[i] + bias[i % O];
        sums[0][i % O] += y[i];
        sums[1][i % O] += fabs(y[i]);
    }
    void *rows = shifted(&c, gpu_numbers(&c, y - shift, shift + elems), shift);
    void *dbias = destination(&c, add, O, sums[0], sums[1]);
    bias_backward(&c.at, dbias, rows, N, O, O, add, c.at.workspace);
    gpu_expect(&c, "dbias", dbias, dtype, O, sums[0], sums[1], 1.01, EXACT);
    bias_add(&c.at, rows, gpu_numbers(&c, bias, O), N, O, O);
    gpu_expect(&c, "y", rows, dtype, elems, want, none, 1.01, 0);
    double *sum = gpu_random(&c, elems, 1.0), *rounded = gpu_doubles(&c, elems);
    memcpy(rounded, sum, (size_t)elems * sizeof *sum);
    void *out = destination(&c, add, elems, rounded, none);
    round_add(&c.at, out, gpu_floats(&c, sum, elems), elems, add);
    gpu_expect(&c, "out", out, dtype, elems, rounded, none, 1.01, 0);
    gpu_end(&c);
}

// Rows of whole packs and others, in less than a block and in several.
static void bias_kernels_match(void **state)
{
    (void)state;
    static const int64_t ROWS[] = {1, 7, 150}, COLUMNS[] = {1, 8, 33, 264, 520};
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
        for (int n = 0; n < 3; ++n)
            for (int o = 0; o < 5; ++o)
                for (int k = 0; k < 4; ++k)
                    bias_case((mics_dtype)dtype, ROWS[n], COLUMNS[o], k / 2, k % 2);
}

// ---- plans ----

static mics_cuda_gemm gemm_of(gpu_case *c, int64_t M, int64_t N, int64_t K)
{
    mics_cuda_gemm p = {.M = M, .N = N, .K = K, .lda = K, .ldb = N, .ldc = N};
    p.a = gpu_numbers(c, gpu_random(c, M * K, 1.0), M * K);
    p.b = gpu_numbers(c, gpu_random(c, K * N, 1.0), K * N);
    p.c = gpu_poisoned(c, gpu_size(c, M * N));
    return p;
}

// The same call finds its plan again; another shape has one of its own.
static void plans_are_made_once(void **state)
{
    (void)state;
    GPU_FUNCTION(matmul_fn, matmul);
    GPU_FUNCTION(count_fn, matmul_count);
    gpu_case c;
    gpu_begin(&c, MICS_DTYPE_BF16, 1 << 20, "plans");
    int64_t before, plans, measured;
    mics_cuda_gemm p = gemm_of(&c, 11, 16, 24);
    matmul_count(gpu_device(), &before, &measured);
    for (int i = 0; i < 3; ++i)
        assert_true(matmul(&c.at, &p, c.at.workspace, c.at.workspace_bytes));
    matmul_count(gpu_device(), &plans, &measured);
    assert_int_equal(plans, before + 1);
    for (p.M = 1; p.M < 11; ++p.M)
        assert_true(matmul(&c.at, &p, c.at.workspace, c.at.workspace_bytes));
    matmul_count(gpu_device(), &plans, &measured);
    assert_int_equal(plans, before + 11);
    gpu_end(&c);
}

// A measured choice is saved, and taken by another device that loads it; other bytes are refused.
static void measured_plans_are_saved(void **state)
{
    (void)state;
    GPU_FUNCTION(matmul_fn, matmul);
    GPU_FUNCTION(time_fn, matmul_time);
    GPU_FUNCTION(save_fn, matmul_save);
    GPU_FUNCTION(load_fn, matmul_load);
    GPU_FUNCTION(count_fn, matmul_count);
    gpu_case c;
    gpu_begin(&c, MICS_DTYPE_FP16, 1 << 20, "measured plans");
    mics_cuda_gemm p = gemm_of(&c, 31, 32, 40);
    matmul_time(gpu_device(), 60);
    assert_true(matmul(&c.at, &p, c.at.workspace, c.at.workspace_bytes));
    matmul_time(gpu_device(), 0);
    const size_t size = matmul_save(gpu_device(), NULL, 0);
    char *bytes = malloc(size + 1);
    assert_non_null(bytes);
    assert_int_equal(matmul_save(gpu_device(), bytes, size), size);

    mics_device *other = NULL;
    ASSERT_OK(mics_device_cuda_open(0, 1, &other));
    ASSERT_OK(matmul_load(other, bytes, size));
    ASSERT_STATUS(MICS_ERR_FORMAT, matmul_load(other, bytes, size - 1));
    ASSERT_STATUS(MICS_ERR_FORMAT, matmul_load(other, bytes, 7));
    bytes[3] ^= 1;
    ASSERT_STATUS(MICS_ERR_FORMAT, matmul_load(other, bytes, size));
    mics_exec there = c.at;
    there.device = other;
    assert_true(matmul(&there, &p, c.at.workspace, c.at.workspace_bytes));
    ASSERT_OK(other->ops->synchronize(other->ctx, 0));
    int64_t plans, measured;
    matmul_count(other, &plans, &measured);
    assert_int_equal(plans, 1);
    assert_int_equal(measured, 1);
    mics_device_close(other);
    free(bytes);
    gpu_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_matches),          cmocka_unit_test(backward_matches),
        cmocka_unit_test(bias_kernels_match),       cmocka_unit_test(plans_are_made_once),
        cmocka_unit_test(measured_plans_are_saved),
    };
    const int missing = gpu_missing();
    return missing ? missing : cmocka_run_group_tests(tests, gpu_open, gpu_close);
}
