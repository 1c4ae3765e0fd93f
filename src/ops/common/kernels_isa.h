// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Every kernel file is compiled once an instruction set, with MICS_ISA (avx512, avx2, generic) and
// MICS_LANES (floats in a vector register) given by the build. Names get the set as a suffix.
#ifndef MICS_OP_KERNELS_ISA_H
#define MICS_OP_KERNELS_ISA_H

#include "mics/kernels.h"

#define MICS_OP_JOIN_(name, isa) mics_##name##_##isa
#define MICS_OP_JOIN(name, isa) MICS_OP_JOIN_(name, isa)
#define MICS_OP(name) MICS_OP_JOIN(name, MICS_ISA)

enum {
    // Loops over flat arrays are cut into blocks of so many elements, each computed by one thread.
    // The cuts are fixed, so that an element's place in its vector, and with it the last bit of its
    // result, does not depend on the number of threads.
    MICS_OP_BLOCK = 4096,
    // Below this many elements waking threads costs more than it saves (about 5 us, measured on a
    // Xeon of 2023 with libgomp).
    MICS_OP_PARALLEL = 4 * MICS_OP_BLOCK,
};

void MICS_OP(embedding_forward)(float *y_NC, const int32_t *tokens_N, const float *wte_VC,
                                const float *wpe_PC, int64_t N, int64_t T, int64_t C);
void MICS_OP(embedding_backward)(float *dwte_VC, float *dwpe_PC, const float *dy_NC,
                                 const int32_t *tokens_N, int64_t N, int64_t T, int64_t C,
                                 int64_t V, int64_t P, bool add_dwte, bool add_dwpe);
void MICS_OP(layernorm_forward)(float *y_NC, float *stats_N2, const float *x_NC,
                                const float *weight_C, const float *bias_C, float eps, int64_t N,
                                int64_t C);
void MICS_OP(layernorm_backward)(float *dx_NC, float *dweight_C, float *dbias_C, const float *dy_NC,
                                 const float *x_NC, const float *stats_N2, const float *weight_C,
                                 int64_t N, int64_t C, bool add_dx, bool add_params,
                                 float *workspace);
void MICS_OP(linear_forward)(float *y_NO, const float *x_NI, const float *weight,
                             const float *bias_O, mics_weight_order order, int64_t N, int64_t I,
                             int64_t O);
void MICS_OP(linear_backward)(float *dx_NI, float *dweight, float *dbias_O, const float *dy_NO,
                              const float *x_NI, const float *weight, mics_weight_order order,
                              int64_t N, int64_t I, int64_t O, bool add_dx, bool add_params,
                              float *workspace);
void MICS_OP(gelu_forward)(float *y, const float *x, int64_t elems);
void MICS_OP(gelu_backward)(float *dx, const float *dy, const float *x, int64_t elems, bool add_dx);
void MICS_OP(attention_forward)(float *y_NC, float *lse_NH, const float *qkv_N3C, int64_t B,
                                int64_t T, int64_t H, int64_t D, int32_t threads, float *workspace);
void MICS_OP(attention_backward)(float *dqkv_N3C, const float *dy_NC, const float *y_NC,
                                 const float *lse_NH, const float *qkv_N3C, int64_t B, int64_t T,
                                 int64_t H, int64_t D, int32_t threads, float *workspace);
void MICS_OP(attention_decode)(float *y_C, const float *q_C, const float *keys_LC,
                               const float *values_LC, int64_t length, int64_t H, int64_t D,
                               float *workspace);
void MICS_OP(add)(float *y, const float *a, const float *b, int64_t elems);
void MICS_OP(lm_head_forward)(float *loss_N, const float *x_NC, const float *weight_VC,
                              const int32_t *targets_N, int64_t N, int64_t C, int64_t V,
                              int64_t workspace_rows, float *workspace);
void MICS_OP(lm_head_backward)(float *loss_N, float *dx_NC, float *dweight_VC, const float *x_NC,
                               const float *weight_VC, const int32_t *targets_N, float scale,
                               int64_t N, int64_t C, int64_t V, bool add_dweight,
                               int64_t workspace_rows, float *workspace);
void MICS_OP(adamw_update)(float *params, float *moment1, float *moment2, const float *grads,
                           int64_t elems, const mics_adamw *adamw);
double MICS_OP(sum_squares)(const float *x, int64_t elems);
void MICS_OP(accumulate)(float *y, const float *x, int64_t elems);
void MICS_OP(pack_bf16)(uint16_t *packed, const float *values, int64_t elems);
void MICS_OP(unpack_bf16)(float *values, const uint16_t *packed, int64_t elems);
void MICS_OP(add_bf16)(float *sum, const uint16_t *packed, int64_t elems);
void MICS_OP(pack_int8)(void *packed, const float *values, float *residual, int64_t elems);
void MICS_OP(unpack_int8)(float *values, const void *packed, int64_t elems);
void MICS_OP(add_int8)(float *sum, const void *packed, int64_t elems);

/* dst_C (+)= the column sums of rows_RC (R >= 1), in an order that depends on R alone: four rows are
 * added in pairs, then to the sum. One thread; shared by kernels
 * that reduce over fixed blocks. */
void MICS_OP(sum_rows)(float *dst_C, const float *rows_RC, int64_t R, int64_t C, int64_t row_stride,
                       bool add);

/* C (+)= A B by the calling thread, for the small tiles of attention: c (M, N), A (M, K) with any
 * strides, b (K, N). N and ldb are multiples of MICS_LANES; c has room for whole vectors. */
void MICS_OP(tile_product)(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_column,
                           const float *b, int64_t ldb, int64_t M, int64_t N, int64_t K, bool add);

#endif
