// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Kernels on a device: each call enqueues its work on a stream of the device and returns. They
// compute; they do not allocate, log, synchronise or fail (the device keeps a failure: see
// mics_device_ops.check). Everything they read and write is the device's memory.
//
// Shapes and flags as in op.h: N rows (= B * T tokens), C channels, H heads, D head dimension, I in, O
// out, V vocabulary, P positions; row-major; `add_*` adds to the destination. Any size >= 1. `void *`
// buffers hold numbers of `dtype`, which is that of the call's mics_op_place, and are aligned to 16 bytes where
// they are tensors' beginnings; `float *` ones are always fp32. Sums are fp32 or better inside, and results depend on
// nothing but the arguments, run after run. Where a destination of 2 bytes is added to, the sum is rounded once.
#ifndef MICS_OP_TABLE_H
#define MICS_OP_TABLE_H

#include "mics/device.h"
#include "mics/dtype.h"
#include "mics/kernels.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Where a call runs, and on what numbers.
typedef struct mics_op_place {
    mics_device *device;
    int32_t stream;
    mics_dtype dtype;
    int32_t threads; // of the processor; no meaning on GPUs
    void *workspace; // on 256 bytes; at least what mics_op_table.workspace_bytes says for the call
    size_t workspace_bytes;
    const mics_kernels *kernels; // the processor's table runs these; no meaning on GPUs
} mics_op_place;

// What an optimizer step needs of numbers that only the device may know.
typedef struct mics_op_scale {
    float factor;        // gradients are multiplied by it
    const float *device; // (optional) and by this one, read when the kernel runs
} mics_op_scale;

typedef struct mics_op_table {
    const char *name; // "cpu", "cuda"

    // Largest workspace of any call below for this model shape: bytes, from the sizes that matter. `chunk_rows`:
    // how many rows of logits classifier_* hold at once (>= 1), part of the result.
    size_t (*workspace_bytes)(mics_dtype dtype, int64_t N, int64_t T, int64_t widest, int64_t H,
                              int64_t D, int64_t V, int64_t chunk_rows, int32_t threads);

    void (*embedding_forward)(const mics_op_place *at, void *y_NC, const int32_t *tokens_N,
                              const void *wte_VC, const void *wpe_PC, int64_t N, int64_t T,
                              int64_t C);
    // order_N: 0 ... N - 1 sorted by token, equal tokens by position (mics_op_sort_tokens, on the host).
    void (*embedding_backward)(const mics_op_place *at, void *dwte_VC, void *dwpe_PC,
                               const void *dy_NC, const int32_t *tokens_N, const int32_t *order_N,
                               int64_t N, int64_t T, int64_t C, int64_t V, int64_t P, bool add_dwte,
                               bool add_dwpe);

    void (*layernorm_forward)(const mics_op_place *at, void *y_NC, float *stats_N2,
                              const void *x_NC, const void *weight_C, const void *bias_C, float eps,
                              int64_t N, int64_t C);
    void (*layernorm_backward)(const mics_op_place *at, void *dx_NC, void *dweight_C, void *dbias_C,
                               const void *dy_NC, const void *x_NC, const float *stats_N2,
                               const void *weight_C, int64_t N, int64_t C, bool add_dx,
                               bool add_params);

    // bias may be NULL.
    void (*linear_forward)(const mics_op_place *at, void *y_NO, const void *x_NI,
                           const void *weight, const void *bias_O, mics_weight_order order,
                           int64_t N, int64_t I, int64_t O);
    // dx, dbias may be NULL.
    void (*linear_backward)(const mics_op_place *at, void *dx_NI, void *dweight, void *dbias_O,
                            const void *dy_NO, const void *x_NI, const void *weight,
                            mics_weight_order order, int64_t N, int64_t I, int64_t O, bool add_dx,
                            bool add_params);
    // (optional) linear_forward into pre_NO and gelu_forward of that into y_NO, in one.
    void (*linear_gelu_forward)(const mics_op_place *at, void *y_NO, void *pre_NO, const void *x_NI,
                                const void *weight, const void *bias_O, mics_weight_order order,
                                int64_t N, int64_t I, int64_t O);
    // (optional) linear_backward of a linear whose input x is gelu(pre), and gelu_backward in one:
    // dpre_NI = dy W^T * gelu'(pre), overwritten.
    void (*linear_gelu_backward)(const mics_op_place *at, void *dpre_NI, void *dweight,
                                 void *dbias_O, const void *dy_NO, const void *x_NI,
                                 const void *pre_NI, const void *weight, mics_weight_order order,
                                 int64_t N, int64_t I, int64_t O, bool add_params);

    void (*gelu_forward)(const mics_op_place *at, void *y, const void *x, int64_t elems);
    void (*gelu_backward)(const mics_op_place *at, void *dx, const void *dy, const void *x,
                          int64_t elems, bool add_dx);

    void (*attention_forward)(const mics_op_place *at, void *y_NC, float *lse_NH,
                              const void *qkv_N3C, int64_t B, int64_t T, int64_t H, int64_t D);
    void (*attention_backward)(const mics_op_place *at, void *dqkv_N3C, const void *dy_NC,
                               const void *y_NC, const float *lse_NH, const void *qkv_N3C,
                               int64_t B, int64_t T, int64_t H, int64_t D);

    void (*add)(const mics_op_place *at, void *y, const void *a, const void *b, int64_t elems);
    void (*accumulate)(const mics_op_place *at, void *y, const void *x, int64_t elems);

    void (*lm_head_forward)(const mics_op_place *at, float *loss_N, const void *x_NC,
                            const void *weight_VC, const int32_t *targets_N, int64_t N, int64_t C,
                            int64_t V, int64_t chunk_rows);
    // scale: of every row's loss in the objective, loss scaling included. loss_N is unscaled.
    void (*lm_head_backward)(const mics_op_place *at, float *loss_N, void *dx_NC, void *dweight_VC,
                             const void *x_NC, const void *weight_VC, const int32_t *targets_N,
                             float scale, int64_t N, int64_t C, int64_t V, bool add_dweight,
                             int64_t chunk_rows);

    // ---- over shards ----

    // *sum += the N losses, in fp64, in an order that depends on N alone.
    void (*sum_losses)(const mics_op_place *at, double *sum, const float *loss_N, int64_t N);
    // *sum += squares of x, in fp64, in an order that depends on elems alone. Not finite where x is not.
    void (*sum_squares)(const mics_op_place *at, double *sum, const float *x, int64_t elems);
    // AdamW (op.h) on masters; params (of dtype) are the masters rounded, or NULL. grads * adamw->grad_scale first.
    // params may not be masters.
    void (*adamw_update)(const mics_op_place *at, void *params, float *masters, float *moment1,
                         float *moment2, const float *grads, int64_t elems,
                         const mics_adamw *adamw);
    // sum[i] (+)= own[i] + blocks[0][i] + ... + blocks[count - 1][i], in that order, in fp32. The blocks lie
    // `stride` elements apart and, as own, hold numbers of dtype. Overwrites unless `add`.
    void (*sum_blocks)(const mics_op_place *at, float *sum, const void *own, const void *blocks,
                       int32_t count, int64_t stride, int64_t elems, bool add);
    // The same into numbers of dtype (rounded once); own may be out.
    void (*sum_blocks_rounded)(const mics_op_place *at, void *out, const void *own,
                               const void *blocks, int32_t count, int64_t stride, int64_t elems);
    void (*round)(const mics_op_place *at, void *out, const float *x,
                  int64_t elems); // fp32 to dtype
    void (*widen)(const mics_op_place *at, float *out, const void *x,
                  int64_t elems); // dtype to fp32
} mics_op_table;

/* The processor's kernels as a table, those that each call's mics_op_place names: fp32 alone. Calls
 * are done when they return.     Owns: nothing; static. */
const mics_op_table *mics_op_table_cpu(void);

/* The plugin's kernels; NULL when there is no plugin. */
const mics_op_table *mics_op_table_cuda(void);

/* Positions 0 ... N - 1 sorted by token, equal tokens by position: a counting sort on the host.
 *
 * Needs:   tokens in [0, V); counts_V: V + 1 integers of scratch.
 */
void mics_op_sort_tokens(int32_t *order_N, const int32_t *tokens_N, int64_t N, int64_t V,
                         int32_t *counts_V);

#ifdef __cplusplus
}
#endif
#endif
