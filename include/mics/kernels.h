// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Kernels on the CPU, fp32, one table an instruction set. They compute; they do not allocate, log
// or fail.
//
// Shapes: N rows (= B * T tokens), B sequences, T positions, C channels, H heads, D head dimension
// (C = H * D), I in, O out, V vocabulary, P positions the model knows. All row-major.
// Flags `add_*`: add to the destination instead of overwriting it. Buffers do not overlap unless
// said. Any size >= 1 is allowed, any head dimension and vocabulary; pointers need 4-byte alignment
// only. Parallel over OpenMP threads inside a kernel; results do not depend on the number of
// threads, save for matrix products, where the library may choose by it.
#ifndef MICS_KERNELS_H
#define MICS_KERNELS_H

#include "mics/wire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// How a linear weight lies in memory. IN_OUT: (I, O), GPT-2's Conv1D. OUT_IN: (O, I), torch's
// Linear.
typedef enum mics_weight_order { MICS_WEIGHT_IN_OUT, MICS_WEIGHT_OUT_IN } mics_weight_order;

typedef struct mics_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2; // 1 - beta1^t, 1 - beta2^t for step t = 1, 2, ...
    float grad_scale;   // gradients are multiplied by it first (clipping)
} mics_adamw;

typedef struct mics_kernels {
    const char *isa; // "avx512", "avx2", "generic"

    // y[n] = wte[tokens[n]] + wpe[n % T].   wpe may be NULL.
    void (*embedding_forward)(float *y_NC, const int32_t *tokens_N, const float *wte_VC,
                              const float *wpe_PC, int64_t N, int64_t T, int64_t C);
    // dwte and dwpe are overwritten whole (rows without a token with 0) unless add_*. dwpe may be
    // NULL.
    void (*embedding_backward)(float *dwte_VC, float *dwpe_PC, const float *dy_NC,
                               const int32_t *tokens_N, int64_t N, int64_t T, int64_t C, int64_t V,
                               int64_t P, bool add_dwte, bool add_dwpe);

    // stats holds mean and 1/sqrt(var + eps) of each row.
    void (*layernorm_forward)(float *y_NC, float *stats_N2, const float *x_NC,
                              const float *weight_C, const float *bias_C, float eps, int64_t N,
                              int64_t C);
    // workspace: 2 * C * MICS_LAYERNORM_BLOCKS floats. dx may be dy.
    void (*layernorm_backward)(float *dx_NC, float *dweight_C, float *dbias_C, const float *dy_NC,
                               const float *x_NC, const float *stats_N2, const float *weight_C,
                               int64_t N, int64_t C, bool add_dx, bool add_params,
                               float *workspace);

    // y = x W + bias; bias may be NULL.
    void (*linear_forward)(float *y_NO, const float *x_NI, const float *weight, const float *bias_O,
                           mics_weight_order order, int64_t N, int64_t I, int64_t O);
    // dx, dbias may be NULL. workspace: O * MICS_LINEAR_BLOCKS floats.
    void (*linear_backward)(float *dx_NI, float *dweight, float *dbias_O, const float *dy_NO,
                            const float *x_NI, const float *weight, mics_weight_order order,
                            int64_t N, int64_t I, int64_t O, bool add_dx, bool add_params,
                            float *workspace);

    // The tanh form (Hendrycks and Gimpel, 2016, arXiv:1606.08415), "gelu_new" in Hugging Face
    // configurations.
    void (*gelu_forward)(float *y, const float *x, int64_t elems);
    // dx may be dy.
    void (*gelu_backward)(float *dx, const float *dy, const float *x, int64_t elems, bool add_dx);

    // Causal self-attention, scale 1/sqrt(D), without a T x T matrix (tiles and a running maximum,
    // as FlashAttention, arXiv:2205.14135). qkv rows: q (H, D), k (H, D), v (H, D). lse: log of the
    // sum of exponentials, for backward. workspace: threads * mics_attention_workspace(D) floats.
    void (*attention_forward)(float *y_NC, float *lse_NH, const float *qkv_N3C, int64_t B,
                              int64_t T, int64_t H, int64_t D, int32_t threads, float *workspace);
    void (*attention_backward)(float *dqkv_N3C, const float *dy_NC, const float *y_NC,
                               const float *lse_NH, const float *qkv_N3C, int64_t B, int64_t T,
                               int64_t H, int64_t D, int32_t threads, float *workspace);
    // One new row against a cache, for generation: q (H, D) against keys and values (length, H, D).
    // workspace: H * length floats.
    void (*attention_decode)(float *y_C, const float *q_C, const float *keys_LC,
                             const float *values_LC, int64_t length, int64_t H, int64_t D,
                             float *workspace);

    // y = a + b; y may be a or b.
    void (*add)(float *y, const float *a, const float *b, int64_t elems);

    // Cross-entropy of x W^T against targets, W (V, C), by chunks of rows: never all logits at
    // once. loss_N: each row's loss. workspace: workspace_rows * V floats, workspace_rows >= 1.
    void (*lm_head_forward)(float *loss_N, const float *x_NC, const float *weight_VC,
                            const int32_t *targets_N, int64_t N, int64_t C, int64_t V,
                            int64_t workspace_rows, float *workspace);
    // Loss and its gradients in one pass. scale: factor of every row's loss in the objective.
    // loss_N is unscaled. dx is overwritten.
    void (*lm_head_backward)(float *loss_N, float *dx_NC, float *dweight_VC, const float *x_NC,
                             const float *weight_VC, const int32_t *targets_N, float scale,
                             int64_t N, int64_t C, int64_t V, bool add_dweight,
                             int64_t workspace_rows, float *workspace);

    // Decoupled weight decay (Loshchilov and Hutter, 2019, arXiv:1711.05101):
    // p -= lr * (m / bias1 / (sqrt(v / bias2) + eps) + weight_decay * p).
    void (*adamw_update)(float *params, float *moment1, float *moment2, const float *grads,
                         int64_t elems, const mics_adamw *adamw);

    // Sum of squares in fp64, over fixed blocks, so that it does not depend on the number of
    // threads.
    double (*sum_squares)(const float *x, int64_t elems);
    void (*accumulate)(float *y, const float *x, int64_t elems); // y += x

    // ---- numbers on the wire (wire.h): one thread, the same bits on every instruction set ----

    // Nearest, ties to even; beyond the largest bf16, infinity. NaN stays NaN. `packed` (aligned to
    // 2) may begin where `values` does, whose bytes from 2 * elems on then stay as they are, or lie
    // apart.
    void (*pack_bf16)(uint16_t *packed, const float *values, int64_t elems);
    // Exact. `packed` may be the second half of `values`, or lie apart. Of an odd number the second
    // half may begin at values + elems / 2, or 2 bytes later: the last 2 * elems bytes.
    void (*unpack_bf16)(float *values, const uint16_t *packed, int64_t elems);
    // sum[i] += packed[i]. The buffers lie apart.
    void (*add_bf16)(float *sum, const uint16_t *packed, int64_t elems);
    // packed: mics_wire_bytes(MICS_WIRE_INT8, elems), of any alignment; bytes that hold no number
    // are 0. Packs v = values + residual and leaves in residual what rounding lost, v less what
    // unpack_int8 gives (error feedback: Seide et al., Interspeech 2014; Karimireddy et al., 2019,
    // arXiv:1901.09847); residual may be NULL. A block with a v that is not finite unpacks to NaN,
    // and its residual becomes 0. The buffers lie apart.
    void (*pack_int8)(void *packed, const float *values, float *residual, int64_t elems);
    void (*unpack_int8)(float *values, const void *packed, int64_t elems);
    // sum[i] += what unpack_int8 gives.
    void (*add_int8)(float *sum, const void *packed, int64_t elems);
} mics_kernels;

/* The best table that this processor runs, or the one called `isa` when it is not NULL.
 *
 * Returns: NULL when `isa` is unknown or this processor lacks it.     Owns: nothing; static.
 */
const mics_kernels *mics_kernels_get(const char *isa);

/* Number of tables this build has, and the table number `index`, best first (NULL when this
 * processor cannot run it). */
int32_t mics_kernels_count(void);
const mics_kernels *mics_kernels_at(int32_t index);

/* Row-major C = alpha * op(A) op(B) + beta * C, by the matrix library; M x K times K x N.
 * lda, ldb, ldc: floats between rows as stored. When the library fails, plain loops give the
 * result, many times slower; the first time in a process is a warning in the log.
 */
void mics_gemm(bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
               int64_t ldc);

/* Name and version of the matrix library, and the instruction set that it chose: "oneDNN 2.6.3,
 * AVX-512". */
const char *mics_gemm_library(void);

/* Threads that kernels called from this thread use (OpenMP). Needs threads >= 1. */
void mics_op_set_threads(int32_t threads);

#ifdef __cplusplus
}
#endif
#endif
