// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The LM head on a GPU against an fp64 reference of the rounded inputs: all types, vocabularies
// that are not whole vectors, one chunk and several, adding, with and without room for an fp32 sum
// of the weight's gradient.
#include "gpu_case.h"
#include "ops/common/def.h"
#include <math.h>
#include <string.h>

typedef struct lm_head {
    int64_t N, C, V;
    double scale, *x, *w, *loss, *loss_sum, *dx, *dx_sum, *dw, *dw_sum;
    int32_t targets[256];
} lm_head;

// One row: softmax of its logits, then gradients.
static void reference_row(lm_head *r, int64_t n, double *p_V)
{
    const double *x = r->x + n * r->C;
    double highest = -INFINITY, sum = 0, terms = 0;
    if (r->targets[n] < 0) // it does not count
        return;
    for (int64_t v = 0; v < r->V; ++v) {
        double logit = 0, logit_terms = 0;
        for (int64_t c = 0; c < r->C; ++c) {
            logit += x[c] * r->w[v * r->C + c];
            logit_terms += fabs(x[c] * r->w[v * r->C + c]);
        }
        p_V[v] = logit;
        highest = fmax(highest, logit);
        terms = fmax(terms, logit_terms);
    }
    for (int64_t v = 0; v < r->V; ++v)
        sum += exp(p_V[v] - highest);
    r->loss[n] = highest + log(sum) - p_V[r->targets[n]];
    r->loss_sum[n] = terms + 1;
    for (int64_t v = 0; v < r->V; ++v) {
        const double p = exp(p_V[v] - highest) / sum, d = (p - (v == r->targets[n])) * r->scale;
        const double doubt = (p * (1 + terms) + (v == r->targets[n])) * fabs(r->scale);
        for (int64_t c = 0; c < r->C; ++c) {
            r->dx[n * r->C + c] += d * r->w[v * r->C + c];
            r->dx_sum[n * r->C + c] += doubt * fabs(r->w[v * r->C + c]);
            r->dw[v * r->C + c] += d * x[c];
            r->dw_sum[v * r->C + c] += doubt * fabs(x[c]);
        }
    }
}

// What rows count.
typedef enum counted { ALL, SOME, NONE } counted;

static lm_head reference_of(gpu_case *c, int64_t N, int64_t C, int64_t V, counted which)
{
    lm_head r = {.N = N, .C = C, .V = V, .scale = 0.75};
    r.x = gpu_random(c, N * C, 1.0);
    r.w = gpu_random(c, V * C, 1.0);
    r.loss = gpu_doubles(c, N);
    r.loss_sum = gpu_doubles(c, N);
    r.dx = gpu_doubles(c, N * C);
    r.dx_sum = gpu_doubles(c, N * C);
    r.dw = gpu_doubles(c, V * C);
    r.dw_sum = gpu_doubles(c, V * C);
    double *p_V = gpu_doubles(c, V);
    for (int64_t n = 0; n < N; ++n) {
        r.targets[n] = (int32_t)(n * 7919 % V);
        if (which == NONE || (which == SOME && n % 3 != 1))
            r.targets[n] = n % 2 ? -1 : -100;
        reference_row(&r, n, p_V);
    }
    return r;
}

static void lm_head_case(mics_dtype dtype, const int64_t shape[4], bool add, bool room,
                         counted which)
{
    const int64_t N = shape[0], C = shape[1], V = shape[2], chunk = shape[3];
    const bool summed = dtype != MICS_DTYPE_FP32 && chunk < N;
    const size_t sum = summed ? ((size_t)(V * C) * sizeof(float) + 255) / 256 * 256 : 0;
    const size_t elem = mics_dtype_bytes(dtype), row = ((size_t)V * elem + 15) / 16 * 16;
    const size_t logits = (row * (size_t)(chunk < N ? chunk : N) + 255) / 256 * 256;
    gpu_case c;
    // Without room for that sum, GEMMs do with less than they would like.
    gpu_begin(&c, dtype, room ? logits + sum + MICS_GEMM_BYTES : logits + 4096,
              "lm_head N=%d C=%d V=%d chunk %d add %d room %d counted %d", (int)N, (int)C, (int)V,
              (int)chunk, add, room, (int)which);
    lm_head r = reference_of(&c, N, C, V, which);
    void *x = gpu_numbers(&c, r.x, N * C), *w = gpu_numbers(&c, r.w, V * C);
    int32_t *targets = gpu_integers(&c, r.targets, N);
    float *loss = gpu_poisoned(&c, (size_t)N * sizeof(float));
    // Logits are rounded to the type, which is an absolute error of the loss.
    const double unit = dtype == MICS_DTYPE_FP32 ? 0 : gpu_unit(dtype), exact = 4e-6;
    op_lm_head_forward(mics_kernels_cuda(), &c.at, loss, x, w, targets, N, C, V, chunk);
    gpu_expect(&c, "loss", loss, MICS_DTYPE_FP32, N, r.loss, r.loss_sum, 4, 2 * unit + exact);
    gpu_poison(&c, loss, (size_t)N * sizeof(float));
    gpu_poison(&c, c.at.workspace, c.at.workspace_bytes);

    double *old = add ? gpu_random(&c, V * C, 1.0) : gpu_doubles(&c, V * C);
    for (int64_t i = 0; i < V * C; ++i) {
        r.dw[i] += old[i];
        r.dw_sum[i] += fabs(old[i]);
    }
    void *dw = add ? gpu_numbers(&c, old, V * C) : gpu_poisoned(&c, gpu_size(&c, V * C));
    void *dx = gpu_poisoned(&c, gpu_size(&c, N * C));
    op_lm_head_backward(mics_kernels_cuda(), &c.at, loss, dx, dw, x, w, targets, (float)r.scale, N,
                        C, V, add, chunk);
    gpu_expect(&c, "loss", loss, MICS_DTYPE_FP32, N, r.loss, r.loss_sum, 4, 2 * unit + exact);
    gpu_expect(&c, "dx", dx, dtype, N * C, r.dx, r.dx_sum, 1.01, 3 * unit + exact);
    // Rounded once a chunk where there is no room.
    const double roundings = room || chunk >= N ? 0 : (double)((N + chunk - 1) / chunk) * unit;
    gpu_expect(&c, "dweight", dw, dtype, V * C, r.dw, r.dw_sum, 1.01, 3 * unit + exact + roundings);
    gpu_end(&c);
}

// N, C, V, rows of a chunk.
static const int64_t SHAPES[][4] = {{1, 1, 1, 1},      {5, 8, 17, 2},     {33, 16, 50, 7},
                                    {64, 40, 257, 64}, {64, 24, 96, 100}, {20, 33, 301, 8}};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

static void lm_head_matches(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
        for (int i = 0; i < SHAPE_COUNT; ++i)
            for (int k = 0; k < 4; ++k)
                if (k < 2 || (dtype != MICS_DTYPE_FP32 && i % 2 == 1))
                    lm_head_case((mics_dtype)dtype, SHAPES[i], k % 2, k / 2, ALL);
}

static void rows_that_do_not_count(void **state)
{
    (void)state;
    static const int64_t long_rows[] = {7, 8, 1500, 3}; // a block a row
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
        for (int i = 0; i < SHAPE_COUNT; ++i)
            lm_head_case((mics_dtype)dtype, SHAPES[i], i % 2, true, i % 3 == 2 ? NONE : SOME);
        lm_head_case((mics_dtype)dtype, long_rows, false, true, SOME);
    }
}

// Each row adds what a sum in 2 bytes would soon lose.
static void bias_is_rounded_once(void **state)
{
    (void)state;
    enum { N = 600, C = 8, V = 16 };
    const mics_op_shape shape = {.N = N, .in = {C}, .params = {{V, C}, {V}}, .vocab = V};
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
        gpu_case c;
        gpu_begin(&c, (mics_dtype)dtype,
                  op_workspace_bytes((mics_dtype)dtype, MICS_OP_LM_HEAD, shape),
                  "lm_head bias's gradient");
        double *zeros = gpu_doubles(&c, N * C), *want = gpu_doubles(&c, V);
        double *terms = gpu_doubles(&c, V);
        static const int32_t targets[N];
        for (int v = 0; v < V; ++v) {
            want[v] = 1 + N * (1.0 / V - (v == 0)); // it adds
            terms[v] = 1 + fabs(want[v]);
        }
        double *ones = gpu_doubles(&c, V);
        for (int v = 0; v < V; ++v)
            ones[v] = 1;
        void *dbias = gpu_numbers(&c, ones, V);
        op_backward(
            mics_kernels_cuda(), (mics_op){.kind = MICS_OP_LM_HEAD},
            (mics_op_call){.at = &c.at,
                           .shape = shape,
                           .in = {gpu_numbers(&c, zeros, N * C)},
                           .params = {gpu_numbers(&c, zeros, V * C), gpu_numbers(&c, zeros, V)},
                           .targets = gpu_integers(&c, targets, N),
                           .losses = gpu_poisoned(&c, N * sizeof(float)),
                           .din = gpu_poisoned(&c, gpu_size(&c, N * C)),
                           .dparams = {gpu_poisoned(&c, gpu_size(&c, V * C)), dbias},
                           .add_params = {false, true},
                           .loss_scale = 1,
                           .chunk_rows = 1});
        gpu_expect(&c, "dbias", dbias, (mics_dtype)dtype, V, want, terms, 1.01, 1e-6);
        gpu_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lm_head_matches),
                                       cmocka_unit_test(rows_that_do_not_count),
                                       cmocka_unit_test(bias_is_rounded_once)};
    const int missing = gpu_missing();
    return missing ? missing : cmocka_run_group_tests(tests, gpu_open, gpu_close);
}
