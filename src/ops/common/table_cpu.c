// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The processor's kernels as an op table: fp32, done at return. Each entry hands its arguments to the kernel of
// its name; sums over shards that kernels lack are plain loops here.
#include "mics/op_table.h"
#include "ops/attention/def.h"
#include "ops/layernorm/def.h"
#include <string.h>

static float *workspace_of(const mics_op_place *at)
{
    return at->workspace;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static size_t workspace_bytes(mics_dtype dtype, int64_t N, int64_t T, int64_t widest, int64_t H,
                              int64_t D, int64_t V, int64_t chunk_rows, int32_t threads)
{
    (void)dtype, (void)N, (void)T, (void)H;
    int64_t floats = 2 * widest * MICS_LAYERNORM_BLOCKS; // linear_backward needs half of it
    floats = most(floats, threads * mics_attention_workspace(D));
    floats = most(floats, chunk_rows * V);
    return (size_t)floats * sizeof(float);
}

// ---- ops ----

static void embedding_forward(const mics_op_place *at, void *y_NC, const int32_t *tokens_N,
                              const void *wte_VC, const void *wpe_PC, int64_t N, int64_t T,
                              int64_t C)
{
    at->kernels->embedding_forward(y_NC, tokens_N, wte_VC, wpe_PC, N, T, C);
}

static void embedding_backward(const mics_op_place *at, void *dwte_VC, void *dwpe_PC,
                               const void *dy_NC, const int32_t *tokens_N, const int32_t *order_N,
                               int64_t N, int64_t T, int64_t C, int64_t V, int64_t P, bool add_dwte,
                               bool add_dwpe)
{
    (void)order_N;
    at->kernels->embedding_backward(dwte_VC, dwpe_PC, dy_NC, tokens_N, N, T, C, V, P, add_dwte,
                                    add_dwpe);
}

static void layernorm_forward(const mics_op_place *at, void *y_NC, float *stats_N2,
                              const void *x_NC, const void *weight_C, const void *bias_C, float eps,
                              int64_t N, int64_t C)
{
    at->kernels->layernorm_forward(y_NC, stats_N2, x_NC, weight_C, bias_C, eps, N, C);
}

static void layernorm_backward(const mics_op_place *at, void *dx_NC, void *dweight_C, void *dbias_C,
                               const void *dy_NC, const void *x_NC, const float *stats_N2,
                               const void *weight_C, int64_t N, int64_t C, bool add_dx,
                               bool add_params)
{
    at->kernels->layernorm_backward(dx_NC, dweight_C, dbias_C, dy_NC, x_NC, stats_N2, weight_C, N,
                                    C, add_dx, add_params, workspace_of(at));
}

static void linear_forward(const mics_op_place *at, void *y_NO, const void *x_NI,
                           const void *weight, const void *bias_O, mics_weight_order order,
                           int64_t N, int64_t I, int64_t O)
{
    at->kernels->linear_forward(y_NO, x_NI, weight, bias_O, order, N, I, O);
}

static void linear_backward(const mics_op_place *at, void *dx_NI, void *dweight, void *dbias_O,
                            const void *dy_NO, const void *x_NI, const void *weight,
                            mics_weight_order order, int64_t N, int64_t I, int64_t O, bool add_dx,
                            bool add_params)
{
    at->kernels->linear_backward(dx_NI, dweight, dbias_O, dy_NO, x_NI, weight, order, N, I, O,
                                 add_dx, add_params, workspace_of(at));
}

static void gelu_forward(const mics_op_place *at, void *y, const void *x, int64_t elems)
{
    at->kernels->gelu_forward(y, x, elems);
}

static void gelu_backward(const mics_op_place *at, void *dx, const void *dy, const void *x,
                          int64_t elems, bool add_dx)
{
    at->kernels->gelu_backward(dx, dy, x, elems, add_dx);
}

static void attention_forward(const mics_op_place *at, void *y_NC, float *lse_NH,
                              const void *qkv_N3C, int64_t B, int64_t T, int64_t H, int64_t D)
{
    at->kernels->attention_forward(y_NC, lse_NH, qkv_N3C, B, T, H, D, at->threads,
                                   workspace_of(at));
}

static void attention_backward(const mics_op_place *at, void *dqkv_N3C, const void *dy_NC,
                               const void *y_NC, const float *lse_NH, const void *qkv_N3C,
                               int64_t B, int64_t T, int64_t H, int64_t D)
{
    at->kernels->attention_backward(dqkv_N3C, dy_NC, y_NC, lse_NH, qkv_N3C, B, T, H, D, at->threads,
                                    workspace_of(at));
}

static void add(const mics_op_place *at, void *y, const void *a, const void *b, int64_t elems)
{
    at->kernels->add(y, a, b, elems);
}

static void accumulate(const mics_op_place *at, void *y, const void *x, int64_t elems)
{
    at->kernels->accumulate(y, x, elems);
}

static void lm_head_forward(const mics_op_place *at, float *loss_N, const void *x_NC,
                            const void *weight_VC, const int32_t *targets_N, int64_t N, int64_t C,
                            int64_t V, int64_t chunk_rows)
{
    at->kernels->lm_head_forward(loss_N, x_NC, weight_VC, targets_N, N, C, V, chunk_rows,
                                 workspace_of(at));
}

static void lm_head_backward(const mics_op_place *at, float *loss_N, void *dx_NC, void *dweight_VC,
                             const void *x_NC, const void *weight_VC, const int32_t *targets_N,
                             float scale, int64_t N, int64_t C, int64_t V, bool add_dweight,
                             int64_t chunk_rows)
{
    at->kernels->lm_head_backward(loss_N, dx_NC, dweight_VC, x_NC, weight_VC, targets_N, scale, N,
                                  C, V, add_dweight, chunk_rows, workspace_of(at));
}

// ---- over shards ----

// In token order, so the bits do not depend on threads.
static void sum_losses(const mics_op_place *at, double *sum, const float *loss_N, int64_t N)
{
    (void)at;
    double losses = 0;
    for (int64_t n = 0; n < N; n++)
        losses += (double)loss_N[n];
    *sum += losses;
}

static void sum_squares(const mics_op_place *at, double *sum, const float *x, int64_t elems)
{
    *sum += at->kernels->sum_squares(x, elems);
}

static void adamw_update(const mics_op_place *at, void *params, float *masters, float *moment1,
                         float *moment2, const float *grads, int64_t elems, const mics_adamw *adamw)
{
    at->kernels->adamw_update(masters, moment1, moment2, grads, elems, adamw);
    if (params != NULL)
        memcpy(params, masters, (size_t)elems * sizeof(float));
}

static void sum_blocks(const mics_op_place *at, float *sum, const void *own, const void *blocks,
                       int32_t count, int64_t stride, int64_t elems, bool add_sum)
{
    (void)at;
    const float *first = own, *others = blocks;
    for (int64_t i = 0; i < elems; i++) {
        float value = first[i];
        for (int32_t block = 0; block < count; block++)
            value += others[block * stride + i];
        sum[i] = add_sum ? sum[i] + value : value;
    }
}

static void sum_blocks_rounded(const mics_op_place *at, void *out, const void *own,
                               const void *blocks, int32_t count, int64_t stride, int64_t elems)
{
    sum_blocks(at, out, own, blocks, count, stride, elems, false);
}

static void round_fp32(const mics_op_place *at, void *out, const float *x, int64_t elems)
{
    (void)at;
    memcpy(out, x, (size_t)elems * sizeof(float));
}

static void widen_fp32(const mics_op_place *at, float *out, const void *x, int64_t elems)
{
    (void)at;
    memcpy(out, x, (size_t)elems * sizeof(float));
}

static const mics_op_table table = {
    .name = "cpu",
    .workspace_bytes = workspace_bytes,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .layernorm_forward = layernorm_forward,
    .layernorm_backward = layernorm_backward,
    .linear_forward = linear_forward,
    .linear_backward = linear_backward,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .add = add,
    .accumulate = accumulate,
    .lm_head_forward = lm_head_forward,
    .lm_head_backward = lm_head_backward,
    .sum_losses = sum_losses,
    .sum_squares = sum_squares,
    .adamw_update = adamw_update,
    .sum_blocks = sum_blocks,
    .sum_blocks_rounded = sum_blocks_rounded,
    .round = round_fp32,
    .widen = widen_fp32,
};

const mics_op_table *mics_op_table_cpu(void)
{
    return &table;
}
