// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Linears with the op behind or before them, what runs beside GEMMs, and the table of plans. Linears
// alone are in ops/linear/cases.h.
#include "gpu_case.h"
#include "ops/common/bias_cuda.h"
#include "ops/common/matmul_cuda.h"
#include "ops/gelu/cases.h"
#include "ops/linear/cases.h"
#include <stdlib.h>
#include <string.h>

typedef void (*count_fn)(mics_device *device, int64_t *plans, int64_t *measured);
typedef void (*time_fn)(mics_device *device, double seconds);
typedef size_t (*save_fn)(mics_device *device, void *bytes, size_t capacity);
typedef mics_status (*load_fn)(mics_device *device, const void *bytes, size_t size);
typedef bool (*matmul_fn)(const mics_exec *at, const mics_cuda_gemm *gemm, void *workspace,
                          size_t workspace_bytes);

// A linear's numbers, forward and backward.
static mics_case_values linear_of(gpu_case *c, const mics_op_case *of)
{
    const int64_t N = of->shape.N, I = of->shape.in[0], O = of->shape.out;
    const int64_t bias = of->shape.params[1][0];
    mics_case_values v = {.of = of, .dtype = c->at.dtype, .gpu = true};
    v.in[0] = (mics_case_numbers){.at = gpu_random(c, N * I, 1.0), .elems = N * I};
    v.params[0] = (mics_case_numbers){.at = gpu_random(c, I * O, 1.0), .elems = I * O};
    v.params[1].at = bias > 0 ? gpu_random(c, O, 1.0) : NULL;
    v.dout.at = gpu_random(c, N * O, 1.0);
    v.out = (mics_case_numbers){gpu_doubles(c, N * O), gpu_doubles(c, N * O), 0, N * O};
    v.din[0] = (mics_case_numbers){gpu_doubles(c, N * I), gpu_doubles(c, N * I), 0, N * I};
    v.dparams[0] = (mics_case_numbers){gpu_doubles(c, I * O), gpu_doubles(c, I * O), 0, I * O};
    v.dparams[1] = (mics_case_numbers){gpu_doubles(c, O), gpu_doubles(c, O), 0, O};
    linear_forward(&v);
    linear_backward(&v);
    return v;
}

static const size_t WORKSPACE = LINEAR_GPU_WORKSPACE;
static const double EXACT = 2e-6; // of fp32 sums, in absolute terms

static mics_weight_order order_of(const mics_op_case *of)
{
    return of->op.weight_out_in ? MICS_WEIGHT_OUT_IN : MICS_WEIGHT_IN_OUT;
}

static void begin(gpu_case *c, mics_dtype dtype, const char *name, const mics_op_case *of)
{
    gpu_begin(c, dtype, WORKSPACE, "%s N=%d I=%d O=%d out_in %d bias %d", name, (int)of->shape.N,
              (int)of->shape.in[0], (int)of->shape.out, of->op.weight_out_in,
              of->shape.params[1][0] > 0);
}

// Inputs on the device.
typedef struct operands {
    void *x, *w, *bias;
} operands;

static operands operands_of(gpu_case *c, const mics_case_values *v)
{
    const mics_case_numbers *w = &v->params[0];
    return (operands){gpu_numbers(c, v->in[0].at, v->in[0].elems), gpu_numbers(c, w->at, w->elems),
                      v->params[1].at ? gpu_numbers(c, v->params[1].at, v->of->shape.out) : NULL};
}

static void gelu_forward_case(mics_dtype dtype, const mics_op_case *of, bool exact)
{
    gpu_case c;
    begin(&c, dtype, exact ? "linear_gelu_forward exact" : "linear_gelu_forward", of);
    const mics_case_values v = linear_of(&c, of);
    const operands in = operands_of(&c, &v);
    const int64_t elems = v.out.elems;
    double *want = gpu_doubles(&c, elems);
    for (int64_t i = 0; i < elems; ++i)
        want[i] = gelu_at(v.out.at[i], exact);
    void *y = gpu_poisoned(&c, gpu_size(&c, elems)), *pre = gpu_poisoned(&c, gpu_size(&c, elems));
    op_linear_gelu_forward(mics_kernels_cuda(), &c.at, y, pre, in.x, in.w, in.bias, order_of(of),
                           of->shape.N, of->shape.in[0], of->shape.out, exact);
    gpu_expect(&c, "pre", pre, dtype, elems, v.out.at, v.out.sum, 1.01, v.out.tolerance);
    // The slope of GELU is at most 1.13; without an epilogue it is taken of the rounded sum.
    gpu_expect(&c, "y", y, dtype, elems, want, v.out.sum, 1.01,
               1.13 * (v.out.tolerance + gpu_unit(dtype)));
    gpu_end(&c);
}

// The sum goes to a place of its own, or to that of the residual.
static void add_forward_case(mics_dtype dtype, const mics_op_case *of, bool in_place)
{
    gpu_case c;
    begin(&c, dtype, in_place ? "linear_add_forward in place" : "linear_add_forward", of);
    const mics_case_values v = linear_of(&c, of);
    const operands in = operands_of(&c, &v);
    const int64_t elems = v.out.elems;
    double *old = gpu_random(&c, elems, 2.0);
    for (int64_t i = 0; i < elems; ++i)
        mics_case_add(&v.out, i, old[i]);
    void *residual = gpu_numbers(&c, old, elems), *between = gpu_poisoned(&c, gpu_size(&c, elems));
    void *y = in_place ? residual : gpu_poisoned(&c, gpu_size(&c, elems));
    op_linear_add_forward(mics_kernels_cuda(), &c.at, y, between, residual, in.x, in.w, in.bias,
                          order_of(of), of->shape.N, of->shape.in[0], of->shape.out);
    gpu_expect(&c, "y", y, dtype, elems, v.out.at, v.out.sum, 1.01, v.out.tolerance);
    gpu_end(&c);
}

// As one call and as two, to the bit.
static void lora_forward_case(mics_dtype dtype, const mics_op_case *of)
{
    gpu_case c;
    begin(&c, dtype, "linear_lora_forward", of);
    const mics_case_values v = linear_of(&c, of);
    const operands in = operands_of(&c, &v);
    const int64_t elems = v.out.elems, rank = 8;
    const size_t bytes = gpu_size(&c, elems);
    op_adapted adapted = {.x = in.x,
                          .weight = in.w,
                          .bias = in.bias,
                          .N = of->shape.N,
                          .I = of->shape.in[0],
                          .O = of->shape.out,
                          .rank = rank};
    adapted.a = gpu_numbers(&c, gpu_random(&c, rank * adapted.I, 1.0), rank * adapted.I);
    adapted.b = gpu_numbers(&c, gpu_random(&c, adapted.O * rank, 1.0), adapted.O * rank);
    const void *got[2];
    for (int pair = 0; pair < 2; ++pair) {
        adapted.pair = pair == 1;
        adapted.y = gpu_poisoned(&c, bytes);
        adapted.between = pair == 1 ? NULL : gpu_poisoned(&c, bytes);
        op_linear_lora_forward(mics_kernels_cuda(), &c.at, &adapted);
        got[pair] = gpu_bytes(&c, adapted.y, bytes);
    }
    assert_memory_equal(got[0], got[1], bytes);
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
    bool bias, add_params, exact;
} backward_options;

static void gelu_backward_case(mics_dtype dtype, const mics_op_case *of, backward_options o)
{
    gpu_case c;
    begin(&c, dtype, o.exact ? "linear_gelu_backward exact" : "linear_gelu_backward", of);
    const mics_case_values v = linear_of(&c, of);
    const operands in = operands_of(&c, &v);
    const mics_case_numbers *dx = &v.din[0], *dw = &v.dparams[0], *db = &v.dparams[1];
    double *pre = gpu_random(&c, dx->elems, 3.0);
    for (int64_t i = 0; i < dx->elems; ++i) {
        dx->at[i] *= gelu_slope(pre[i], o.exact);
        dx->sum[i] *= 1.13;
    }
    void *to_x = gpu_poisoned(&c, gpu_size(&c, dx->elems));
    void *to_w = destination(&c, o.add_params, dw->elems, dw->at, dw->sum);
    void *to_b = o.bias ? destination(&c, o.add_params, db->elems, db->at, db->sum) : NULL;
    op_linear_gelu_backward(mics_kernels_cuda(), &c.at, to_x, to_w, to_b,
                            gpu_numbers(&c, v.dout.at, v.out.elems), in.x,
                            gpu_numbers(&c, pre, dx->elems), in.w, order_of(of), of->shape.N,
                            of->shape.in[0], of->shape.out, o.exact, o.add_params);
    gpu_expect(&c, "dx", to_x, dtype, dx->elems, dx->at, dx->sum, 1.01, EXACT + gpu_unit(dtype));
    gpu_expect(&c, "dweight", to_w, dtype, dw->elems, dw->at, dw->sum, 1.01, EXACT);
    if (to_b)
        gpu_expect(&c, "dbias", to_b, dtype, db->elems, db->at, db->sum, 1.01, EXACT);
    gpu_end(&c);
}

static void pairs_match(void **state)
{
    (void)state;
    static const backward_options OPTIONS[] = {{true, false, false},
                                               {true, true, false},
                                               {false, false, false},
                                               {true, true, true},
                                               {false, false, true}};
    for (int i = 0; i < MICS_DTYPES * LINEAR_GPU_COUNT; ++i)
        for (int k = 0; k < 4; ++k) {
            const mics_dtype dtype = (mics_dtype)(i % MICS_DTYPES);
            const mics_op_case of = linear_case(LINEAR_GPU[i / MICS_DTYPES], k / 2, k % 2);
            for (int flag = 0; flag < 2; ++flag) {
                gelu_forward_case(dtype, &of, flag);
                add_forward_case(dtype, &of, flag);
            }
            if (of.op.weight_out_in)
                lora_forward_case(dtype, &of);
            for (int o = 0; k % 2 && o < 5; ++o)
                gelu_backward_case(dtype, &of, OPTIONS[o]);
        }
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
        cmocka_unit_test(pairs_match),
        cmocka_unit_test(bias_kernels_match),
        cmocka_unit_test(plans_are_made_once),
        cmocka_unit_test(measured_plans_are_saved),
    };
    const int missing = gpu_missing();
    return missing ? missing : cmocka_run_group_tests(tests, gpu_open, gpu_close);
}
