// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The entries of the CUDA op table, which several files define: mics_cuda_<entry> is entry <entry> of
// mics/op_table.h, and everything said there holds. Also what these files share among themselves. All of it is part of
// the plugin.
#ifndef MICS_OP_CUDA_OPS_H
#define MICS_OP_CUDA_OPS_H

#include "mics/op_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the plugin exports: the table. Never NULL; static. */
const mics_op_table *mics_cuda_op_table(void);

// ---- embedding.cu ----

void mics_cuda_embedding_forward(const mics_op_place *at, void *y_NC, const int32_t *tokens_N,
                                 const void *wte_VC, const void *wpe_PC, int64_t N, int64_t T,
                                 int64_t C);
void mics_cuda_embedding_backward(const mics_op_place *at, void *dwte_VC, void *dwpe_PC,
                                  const void *dy_NC, const int32_t *tokens_N,
                                  const int32_t *order_N, int64_t N, int64_t T, int64_t C,
                                  int64_t V, int64_t P, bool add_dwte, bool add_dwpe);

// ---- layernorm.cu ----

void mics_cuda_layernorm_forward(const mics_op_place *at, void *y_NC, float *stats_N2,
                                 const void *x_NC, const void *weight_C, const void *bias_C,
                                 float eps, int64_t N, int64_t C);
void mics_cuda_layernorm_backward(const mics_op_place *at, void *dx_NC, void *dweight_C,
                                  void *dbias_C, const void *dy_NC, const void *x_NC,
                                  const float *stats_N2, const void *weight_C, int64_t N, int64_t C,
                                  bool add_dx, bool add_params);
/* Workspace that layernorm_backward needs. */
size_t mics_cuda_layernorm_workspace_bytes(int64_t N, int64_t C);

// ---- linear_cuda.cu ----

void mics_cuda_linear_forward(const mics_op_place *at, void *y_NO, const void *x_NI,
                              const void *weight, const void *bias_O, mics_weight_order order,
                              int64_t N, int64_t I, int64_t O);
void mics_cuda_linear_backward(const mics_op_place *at, void *dx_NI, void *dweight, void *dbias_O,
                               const void *dy_NO, const void *x_NI, const void *weight,
                               mics_weight_order order, int64_t N, int64_t I, int64_t O,
                               bool add_dx, bool add_params);
void mics_cuda_linear_gelu_forward(const mics_op_place *at, void *y_NO, void *pre_NO,
                                   const void *x_NI, const void *weight, const void *bias_O,
                                   mics_weight_order order, int64_t N, int64_t I, int64_t O);
void mics_cuda_linear_gelu_backward(const mics_op_place *at, void *dpre_NI, void *dweight,
                                    void *dbias_O, const void *dy_NO, const void *x_NI,
                                    const void *pre_NI, const void *weight, mics_weight_order order,
                                    int64_t N, int64_t I, int64_t O, bool add_params);
/* Workspace that any of the linear entries needs, for up to `widest` inputs and outputs. */
size_t mics_cuda_linear_workspace_bytes(mics_dtype dtype, int64_t N, int64_t widest);

// ---- gelu.cu ----

void mics_cuda_gelu_forward(const mics_op_place *at, void *y, const void *x, int64_t elems);
void mics_cuda_gelu_backward(const mics_op_place *at, void *dx, const void *dy, const void *x,
                             int64_t elems, bool add_dx);

// ---- attention.cu ----

void mics_cuda_attention_forward(const mics_op_place *at, void *y_NC, float *lse_NH,
                                 const void *qkv_N3C, int64_t B, int64_t T, int64_t H, int64_t D);
void mics_cuda_attention_backward(const mics_op_place *at, void *dqkv_N3C, const void *dy_NC,
                                  const void *y_NC, const float *lse_NH, const void *qkv_N3C,
                                  int64_t B, int64_t T, int64_t H, int64_t D);
/* Workspace that either needs, for N = B * T. */
size_t mics_cuda_attention_workspace_bytes(mics_dtype dtype, int64_t N, int64_t T, int64_t H,
                                           int64_t D);

// ---- elementwise.cu ----

void mics_cuda_add(const mics_op_place *at, void *y, const void *a, const void *b, int64_t elems);
void mics_cuda_accumulate(const mics_op_place *at, void *y, const void *x, int64_t elems);
void mics_cuda_round(const mics_op_place *at, void *out, const float *x, int64_t elems);
void mics_cuda_widen(const mics_op_place *at, float *out, const void *x, int64_t elems);

// ---- lm_head_cuda.cu ----

void mics_cuda_lm_head_forward(const mics_op_place *at, float *loss_N, const void *x_NC,
                               const void *weight_VC, const int32_t *targets_N, int64_t N,
                               int64_t C, int64_t V, int64_t chunk_rows);
void mics_cuda_lm_head_backward(const mics_op_place *at, float *loss_N, void *dx_NC,
                                void *dweight_VC, const void *x_NC, const void *weight_VC,
                                const int32_t *targets_N, float scale, int64_t N, int64_t C,
                                int64_t V, bool add_dweight, int64_t chunk_rows);
/* Workspace that either needs, for up to `widest` inputs: the logits of a chunk, what the products
 * take, and in 2-byte types and several chunks the weight's gradient in fp32. */
size_t mics_cuda_lm_head_workspace_bytes(mics_dtype dtype, int64_t N, int64_t widest, int64_t V,
                                         int64_t chunk_rows);

// ---- cross_entropy.cu ----

// Softmax and cross-entropy of R rows of V logits; rows lie `stride` elements apart, stride >= V. Rows that begin on 16
// bytes (stride a multiple of 8) are read several times faster than others.
typedef struct mics_cuda_logits {
    const void *logits; // (R, stride) of logits_dtype
    mics_dtype logits_dtype;
    // (optional) (R, stride) of the place's dtype: scale * (softmax - [v = target]). May be `logits` where both are of one
    // dtype. What lies behind V in a row is neither read nor written.
    void *gradients;
    const int32_t *targets; // (R), in [0, V)
    float *loss;            // (R), unscaled
    float scale;
    int64_t R, V, stride;
} mics_cuda_logits;

void mics_cuda_cross_entropy(const mics_op_place *at, const mics_cuda_logits *logits);

// ---- sum.cu ----

void mics_cuda_sum_losses(const mics_op_place *at, double *sum, const float *loss_N, int64_t N);
void mics_cuda_sum_squares(const mics_op_place *at, double *sum, const float *x, int64_t elems);
void mics_cuda_sum_blocks(const mics_op_place *at, float *sum, const void *own, const void *blocks,
                          int32_t count, int64_t stride, int64_t elems, bool add);
void mics_cuda_sum_blocks_rounded(const mics_op_place *at, void *out, const void *own,
                                  const void *blocks, int32_t count, int64_t stride, int64_t elems);
/* Workspace that sum_squares needs. */
size_t mics_cuda_sum_workspace_bytes(void);

// ---- adamw.cu ----

void mics_cuda_adamw_update(const mics_op_place *at, void *params, float *masters, float *moment1,
                            float *moment2, const float *grads, int64_t elems,
                            const mics_adamw *adamw);

#ifdef __cplusplus
}
#endif
#endif
