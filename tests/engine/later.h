// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A device with memory of its own that is the processor's: each call is done at once, and counted. Its op table
// computes in fp32 by the processor's kernels on numbers that are widened before and rounded after, so it
// is the reference for tables in two bytes. It says nothing about streams: the emulated plugin does.
#ifndef MICS_TEST_LATER_H
#define MICS_TEST_LATER_H

#include "fixture.h"
#include "mics/clock.h"
#include "mics/device.h"
#include "mics/op_table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the device ----

enum { LATER_ALIGN = 256 };

typedef struct later {
    mics_device base;
    mics_device *host;
    size_t bytes, most; // of blocks now, and at most
    double *event_us;
    int32_t events;
} later;

static void later_require(bool condition)
{
    if (!condition)
        abort();
}

// Its size and where it begins for the C library stand before a block.
typedef struct later_block {
    void *whole;
    size_t bytes;
} later_block;

// Zeros that nobody writes: of the 32 MiB that products may take on a GPU hardly any are touched.
static mics_status later_alloc(void *ctx, size_t bytes, void **block_out)
{
    later *self = (later *)ctx;
    void *whole = calloc(1, bytes + 2 * LATER_ALIGN);
    if (whole == NULL)
        return mics_fail(MICS_ERR_MEMORY, "no %zu bytes for a device", bytes);
    char *block = (char *)(((uintptr_t)whole / LATER_ALIGN + 2) * LATER_ALIGN);
    memcpy(block - sizeof(later_block), &(later_block){whole, bytes}, sizeof(later_block));
    self->bytes += bytes;
    self->most = self->bytes > self->most ? self->bytes : self->most;
    *block_out = block;
    return MICS_OK;
}

static void later_free(void *ctx, void *block)
{
    later *self = (later *)ctx;
    later_block of;
    if (block == NULL)
        return;
    memcpy(&of, (char *)block - sizeof of, sizeof of);
    self->bytes -= of.bytes;
    free(of.whole);
}

static mics_status later_alloc_host(void *ctx, size_t bytes, void **block_out)
{
    later *self = (later *)ctx;
    return self->host->ops->alloc(self->host->ctx, bytes, block_out);
}

static void later_free_host(void *ctx, void *block)
{
    later *self = (later *)ctx;
    self->host->ops->free(self->host->ctx, block);
}

static void later_copy(void *ctx, int32_t stream, void *to, const void *from, size_t bytes)
{
    (void)ctx, (void)stream;
    memcpy(to, from, bytes);
}

static void later_zero(void *ctx, int32_t stream, void *to, size_t bytes)
{
    (void)ctx, (void)stream;
    memset(to, 0, bytes);
}

static void later_record(void *ctx, int32_t stream, int32_t event)
{
    later *self = (later *)ctx;
    (void)stream;
    later_require(event >= 0 && event < self->events);
    self->event_us[event] = mics_clock_us();
}

static void later_wait(void *ctx, int32_t stream, int32_t event)
{
    later *self = (later *)ctx;
    (void)stream;
    later_require(event >= 0 && event < self->events);
}

static mics_status later_poll(void *ctx, int32_t event, bool *done_out)
{
    later_wait(ctx, 0, event);
    *done_out = true;
    return MICS_OK;
}

static double later_event_us(void *ctx, int32_t event)
{
    return ((later *)ctx)->event_us[event];
}

static mics_status later_synchronize(void *ctx, int32_t stream)
{
    (void)ctx, (void)stream;
    return MICS_OK;
}

static mics_status later_check(void *ctx)
{
    (void)ctx;
    return MICS_OK;
}

static void later_range_begin(void *ctx, const char *name)
{
    (void)ctx, (void)name;
}

static void later_range_end(void *ctx)
{
    (void)ctx;
}

static void later_close(void *ctx)
{
    later *self = (later *)ctx;
    later_require(self->bytes == 0);
    mics_device_close(self->host);
    free(self->event_us);
    free(self);
}

static const mics_device_ops later_ops = {
    .name = "later",
    .alloc = later_alloc,
    .free = later_free,
    .alloc_host = later_alloc_host,
    .free_host = later_free_host,
    .copy = later_copy,
    .zero = later_zero,
    .record = later_record,
    .wait = later_wait,
    .poll = later_poll,
    .event_us = later_event_us,
    .synchronize = later_synchronize,
    .check = later_check,
    .range_begin = later_range_begin,
    .range_end = later_range_end,
    .close = later_close,
};

static inline mics_status later_open(int32_t events, mics_device **device_out)
{
    later *self = (later *)calloc(1, sizeof *self);
    later_require(self != NULL);
    self->event_us = (double *)calloc((size_t)events, sizeof(double));
    later_require(self->event_us != NULL);
    self->events = events;
    self->base = (mics_device){.ops = &later_ops, .ctx = self};
    MICS_TRY(mics_device_cpu_open(0, &self->host));
    *device_out = &self->base;
    return MICS_OK;
}

// ---- numbers of two bytes ----

static inline float later_from_fp16(uint16_t number)
{
    const int exponent = number >> 10 & 31, steps = number & 1023;
    double magnitude = exponent == 0 ? ldexp(steps, -24) : ldexp(1024 + steps, exponent - 25);
    if (exponent == 31)
        magnitude = steps == 0 ? INFINITY : NAN;
    return (float)((number & 0x8000) != 0 ? -magnitude : magnitude);
}

static void later_narrow(const mics_op_place *at, void *out, const float *x, int64_t elems)
{
    if (at->dtype == MICS_DTYPE_FP32)
        memmove(out, x, (size_t)elems * sizeof(float));
    else if (at->dtype == MICS_DTYPE_BF16)
        at->kernels->pack_bf16((uint16_t *)out, x, elems);
    for (int64_t i = 0; at->dtype == MICS_DTYPE_FP16 && i < elems; i++)
        ((uint16_t *)out)[i] = fixture_fp16(x[i]);
}

static void later_widen(const mics_op_place *at, float *out, const void *x, int64_t elems)
{
    if (at->dtype == MICS_DTYPE_FP32)
        memmove(out, x, (size_t)elems * sizeof(float));
    else if (at->dtype == MICS_DTYPE_BF16)
        at->kernels->unpack_bf16(out, (const uint16_t *)x, elems);
    for (int64_t i = 0; at->dtype == MICS_DTYPE_FP16 && i < elems; i++)
        out[i] = later_from_fp16(((const uint16_t *)x)[i]);
}

// The same numbers in fp32; the caller frees. NULL for NULL.
static float *later_in(const mics_op_place *at, const void *x, int64_t elems)
{
    if (x == NULL)
        return NULL;
    float *wide = (float *)aligned_alloc(64, ((size_t)elems * sizeof(float) / 64 + 1) * 64);
    later_require(wide != NULL);
    later_widen(at, wide, x, elems);
    return wide;
}

static void later_out(const mics_op_place *at, void *out, float *wide, int64_t elems)
{
    if (out != NULL)
        later_narrow(at, out, wide, elems);
    free(wide);
}

// ---- the op table ----

static size_t later_workspace_bytes(mics_dtype dtype, int64_t N, int64_t T, int64_t widest,
                                    int64_t H, int64_t D, int64_t V, int64_t chunk_rows,
                                    int32_t threads)
{
    return mics_op_table_cpu()->workspace_bytes(dtype, N, T, widest, H, D, V, chunk_rows, threads);
}

static void later_embedding_forward(const mics_op_place *at, void *y_NC, const int32_t *tokens_N,
                                    const void *wte_VC, const void *wpe_PC, int64_t N, int64_t T,
                                    int64_t C)
{
    int64_t V = 1;
    for (int64_t n = 0; n < N; n++)
        V = tokens_N[n] >= V ? tokens_N[n] + 1 : V;
    float *y = later_in(at, y_NC, N * C), *wte = later_in(at, wte_VC, V * C),
          *wpe = later_in(at, wpe_PC, T * C);
    at->kernels->embedding_forward(y, tokens_N, wte, wpe, N, T, C);
    later_out(at, y_NC, y, N * C);
    free(wte);
    free(wpe);
}

static void later_embedding_backward(const mics_op_place *at, void *dwte_VC, void *dwpe_PC,
                                     const void *dy_NC, const int32_t *tokens_N,
                                     const int32_t *order_N, int64_t N, int64_t T, int64_t C,
                                     int64_t V, int64_t P, bool add_dwte, bool add_dwpe)
{
    for (int64_t n = 0; n < N; n++) { // it is the order that kernels rely on
        later_require(order_N[n] >= 0 && order_N[n] < N);
        later_require(
            n == 0 || tokens_N[order_N[n - 1]] < tokens_N[order_N[n]] ||
            (tokens_N[order_N[n - 1]] == tokens_N[order_N[n]] && order_N[n - 1] < order_N[n]));
    }
    float *dwte = later_in(at, dwte_VC, V * C), *dwpe = later_in(at, dwpe_PC, P * C),
          *dy = later_in(at, dy_NC, N * C);
    at->kernels->embedding_backward(dwte, dwpe, dy, tokens_N, N, T, C, V, P, add_dwte, add_dwpe);
    later_out(at, dwte_VC, dwte, V * C);
    later_out(at, dwpe_PC, dwpe, P * C);
    free(dy);
}

static void later_layernorm_forward(const mics_op_place *at, void *y_NC, float *stats_N2,
                                    const void *x_NC, const void *weight_C, const void *bias_C,
                                    float eps, int64_t N, int64_t C)
{
    float *y = later_in(at, y_NC, N * C), *x = later_in(at, x_NC, N * C),
          *weight = later_in(at, weight_C, C), *bias = later_in(at, bias_C, C);
    at->kernels->layernorm_forward(y, stats_N2, x, weight, bias, eps, N, C);
    later_out(at, y_NC, y, N * C);
    free(x);
    free(weight);
    free(bias);
}

static void later_layernorm_backward(const mics_op_place *at, void *dx_NC, void *dweight_C,
                                     void *dbias_C, const void *dy_NC, const void *x_NC,
                                     const float *stats_N2, const void *weight_C, int64_t N,
                                     int64_t C, bool add_dx, bool add_params)
{
    float *dx = later_in(at, dx_NC, N * C), *dweight = later_in(at, dweight_C, C),
          *dbias = later_in(at, dbias_C, C), *dy = later_in(at, dy_NC, N * C),
          *x = later_in(at, x_NC, N * C), *weight = later_in(at, weight_C, C);
    at->kernels->layernorm_backward(dx, dweight, dbias, dy, x, stats_N2, weight, N, C, add_dx,
                                    add_params, (float *)at->workspace);
    later_out(at, dx_NC, dx, N * C);
    later_out(at, dweight_C, dweight, C);
    later_out(at, dbias_C, dbias, C);
    free(dy);
    free(x);
    free(weight);
}

static void later_linear_forward(const mics_op_place *at, void *y_NO, const void *x_NI,
                                 const void *weight_IO, const void *bias_O, mics_weight_order order,
                                 int64_t N, int64_t I, int64_t O)
{
    float *y = later_in(at, y_NO, N * O), *x = later_in(at, x_NI, N * I),
          *weight = later_in(at, weight_IO, I * O), *bias = later_in(at, bias_O, O);
    at->kernels->linear_forward(y, x, weight, bias, order, N, I, O);
    later_out(at, y_NO, y, N * O);
    free(x);
    free(weight);
    free(bias);
}

static void later_linear_backward(const mics_op_place *at, void *dx_NI, void *dweight_IO,
                                  void *dbias_O, const void *dy_NO, const void *x_NI,
                                  const void *weight_IO, mics_weight_order order, int64_t N,
                                  int64_t I, int64_t O, bool add_dx, bool add_params)
{
    float *dx = later_in(at, dx_NI, N * I), *dweight = later_in(at, dweight_IO, I * O),
          *dbias = later_in(at, dbias_O, O), *dy = later_in(at, dy_NO, N * O),
          *x = later_in(at, x_NI, N * I), *weight = later_in(at, weight_IO, I * O);
    at->kernels->linear_backward(dx, dweight, dbias, dy, x, weight, order, N, I, O, add_dx,
                                 add_params, (float *)at->workspace);
    later_out(at, dx_NI, dx, N * I);
    later_out(at, dweight_IO, dweight, I * O);
    later_out(at, dbias_O, dbias, O);
    free(dy);
    free(x);
    free(weight);
}

static void later_gelu_forward(const mics_op_place *at, void *y, const void *x, int64_t elems)
{
    float *wide_y = later_in(at, y, elems), *wide_x = later_in(at, x, elems);
    at->kernels->gelu_forward(wide_y, wide_x, elems);
    later_out(at, y, wide_y, elems);
    free(wide_x);
}

static void later_gelu_backward(const mics_op_place *at, void *dx, const void *dy, const void *x,
                                int64_t elems, bool add_dx)
{
    float *wide_dx = later_in(at, dx, elems), *wide_dy = later_in(at, dy, elems),
          *wide_x = later_in(at, x, elems);
    at->kernels->gelu_backward(wide_dx, wide_dy, wide_x, elems, add_dx);
    later_out(at, dx, wide_dx, elems);
    free(wide_dy);
    free(wide_x);
}

// Two in one, as a GPU has them: what lies between is not rounded.
static void later_linear_gelu_forward(const mics_op_place *at, void *y_NO, void *pre_NO,
                                      const void *x_NI, const void *weight_IO, const void *bias_O,
                                      mics_weight_order order, int64_t N, int64_t I, int64_t O)
{
    later_linear_forward(at, pre_NO, x_NI, weight_IO, bias_O, order, N, I, O);
    later_gelu_forward(at, y_NO, pre_NO, N * O);
}

static void later_linear_gelu_backward(const mics_op_place *at, void *dpre_NI, void *dweight_IO,
                                       void *dbias_O, const void *dy_NO, const void *x_NI,
                                       const void *pre_NI, const void *weight_IO,
                                       mics_weight_order order, int64_t N, int64_t I, int64_t O,
                                       bool add_params)
{
    later_linear_backward(at, dpre_NI, dweight_IO, dbias_O, dy_NO, x_NI, weight_IO, order, N, I, O,
                          false, add_params);
    later_gelu_backward(at, dpre_NI, dpre_NI, pre_NI, N * I, false);
}

static void later_attention_forward(const mics_op_place *at, void *y_NC, float *lse_NH,
                                    const void *qkv_N3C, int64_t B, int64_t T, int64_t H, int64_t D)
{
    const int64_t C = H * D, N = B * T;
    float *y = later_in(at, y_NC, N * C), *qkv = later_in(at, qkv_N3C, 3 * N * C);
    at->kernels->attention_forward(y, lse_NH, qkv, B, T, H, D, at->threads, (float *)at->workspace);
    later_out(at, y_NC, y, N * C);
    free(qkv);
}

static void later_attention_backward(const mics_op_place *at, void *dqkv_N3C, const void *dy_NC,
                                     const void *y_NC, const float *lse_NH, const void *qkv_N3C,
                                     int64_t B, int64_t T, int64_t H, int64_t D)
{
    const int64_t C = H * D, N = B * T;
    float *dqkv = later_in(at, dqkv_N3C, 3 * N * C), *dy = later_in(at, dy_NC, N * C),
          *y = later_in(at, y_NC, N * C), *qkv = later_in(at, qkv_N3C, 3 * N * C);
    at->kernels->attention_backward(dqkv, dy, y, lse_NH, qkv, B, T, H, D, at->threads,
                                    (float *)at->workspace);
    later_out(at, dqkv_N3C, dqkv, 3 * N * C);
    free(dy);
    free(y);
    free(qkv);
}

static void later_add(const mics_op_place *at, void *y, const void *a, const void *b, int64_t elems)
{
    float *wide_y = later_in(at, y, elems), *wide_a = later_in(at, a, elems),
          *wide_b = later_in(at, b, elems);
    at->kernels->add(wide_y, wide_a, wide_b, elems);
    later_out(at, y, wide_y, elems);
    free(wide_a);
    free(wide_b);
}

static void later_accumulate(const mics_op_place *at, void *y, const void *x, int64_t elems)
{
    later_add(at, y, y, x, elems);
}

static void later_classifier_forward(const mics_op_place *at, float *loss_N, const void *x_NC,
                                     const void *weight_VC, const int32_t *targets_N, int64_t N,
                                     int64_t C, int64_t V, int64_t chunk_rows)
{
    float *x = later_in(at, x_NC, N * C), *weight = later_in(at, weight_VC, V * C);
    at->kernels->classifier_forward(loss_N, x, weight, targets_N, N, C, V, chunk_rows,
                                    (float *)at->workspace);
    free(x);
    free(weight);
}

static void later_classifier_backward(const mics_op_place *at, float *loss_N, void *dx_NC,
                                      void *dweight_VC, const void *x_NC, const void *weight_VC,
                                      const int32_t *targets_N, float scale, int64_t N, int64_t C,
                                      int64_t V, bool add_dweight, int64_t chunk_rows)
{
    float *dx = later_in(at, dx_NC, N * C), *dweight = later_in(at, dweight_VC, V * C),
          *x = later_in(at, x_NC, N * C), *weight = later_in(at, weight_VC, V * C);
    at->kernels->classifier_backward(loss_N, dx, dweight, x, weight, targets_N, scale, N, C, V,
                                     add_dweight, chunk_rows, (float *)at->workspace);
    later_out(at, dx_NC, dx, N * C);
    later_out(at, dweight_VC, dweight, V * C);
    free(x);
    free(weight);
}

static void later_sum_losses(const mics_op_place *at, double *sum, const float *loss_N, int64_t N)
{
    mics_op_table_cpu()->sum_losses(at, sum, loss_N, N);
}

static void later_sum_squares(const mics_op_place *at, double *sum, const float *x, int64_t elems)
{
    mics_op_table_cpu()->sum_squares(at, sum, x, elems);
}

static void later_adamw_update(const mics_op_place *at, void *params, float *masters,
                               float *moment1, float *moment2, const float *grads, int64_t elems,
                               const mics_adamw *adamw)
{
    at->kernels->adamw_update(masters, moment1, moment2, grads, elems, adamw);
    if (params != NULL)
        later_narrow(at, params, masters, elems);
}

static void later_sum_blocks(const mics_op_place *at, float *sum, const void *own,
                             const void *blocks, int32_t count, int64_t stride, int64_t elems,
                             bool add)
{
    float *wide = later_in(at, own, elems);
    const size_t bytes = (size_t)stride * mics_dtype_bytes(at->dtype);
    for (int32_t block = 0; block < count; block++) {
        float *other = later_in(at, (const char *)blocks + (size_t)block * bytes, elems);
        at->kernels->accumulate(wide, other, elems);
        free(other);
    }
    for (int64_t i = 0; i < elems; i++)
        sum[i] = add ? sum[i] + wide[i] : wide[i];
    free(wide);
}

static void later_sum_blocks_rounded(const mics_op_place *at, void *out, const void *own,
                                     const void *blocks, int32_t count, int64_t stride,
                                     int64_t elems)
{
    float *wide = later_in(at, own, elems);
    later_sum_blocks(at, wide, own, blocks, count, stride, elems, false);
    later_out(at, out, wide, elems);
}

static const mics_op_table later_table = {
    .name = "later",
    .workspace_bytes = later_workspace_bytes,
    .embedding_forward = later_embedding_forward,
    .embedding_backward = later_embedding_backward,
    .layernorm_forward = later_layernorm_forward,
    .layernorm_backward = later_layernorm_backward,
    .linear_forward = later_linear_forward,
    .linear_backward = later_linear_backward,
    .linear_gelu_forward = later_linear_gelu_forward,
    .linear_gelu_backward = later_linear_gelu_backward,
    .gelu_forward = later_gelu_forward,
    .gelu_backward = later_gelu_backward,
    .attention_forward = later_attention_forward,
    .attention_backward = later_attention_backward,
    .add = later_add,
    .accumulate = later_accumulate,
    .classifier_forward = later_classifier_forward,
    .classifier_backward = later_classifier_backward,
    .sum_losses = later_sum_losses,
    .sum_squares = later_sum_squares,
    .adamw_update = later_adamw_update,
    .sum_blocks = later_sum_blocks,
    .sum_blocks_rounded = later_sum_blocks_rounded,
    .round = later_narrow,
    .widen = later_widen,
};

#endif
