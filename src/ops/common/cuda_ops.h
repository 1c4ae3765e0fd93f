// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files of CUDA kernels define for each other and for kernels_cuda.cu: each op's folder
// mics_cuda_<op>_kernels, and functions that are also used apart from ops. All of it is part of the
// plugin.
#pragma once

#include "ops/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the plugin exports: its kernels. Never NULL; static. */
const mics_kernels *mics_cuda_kernels(void);

#define MICS_CUDA_DECLARE_(NAME, op) extern const mics_op_kernels mics_cuda_##op##_kernels;
MICS_OPS(MICS_CUDA_DECLARE_)
#undef MICS_CUDA_DECLARE_

// ---- gelu/cuda.cu ----

// Also a linear's, where the GEMM library has no epilogue for it. Backward finds the output's
// gradient in din.

void mics_cuda_gelu_forward(const mics_op_call *gelu);
void mics_cuda_gelu_backward_in_place(const mics_op_call *gelu);

// ---- lora/cuda.c ----

/* Adds the adapter to lora->out, which holds what the linear made. */
void mics_cuda_lora_add(const mics_op_call *lora);

// ---- lm_head/ ----

// Softmax and cross-entropy of R rows of V logits; rows lie `stride` elements apart, stride >= V.
// Rows that begin on 16 bytes (stride a multiple of 8) are read several times faster than others.
typedef struct mics_cuda_logits {
    const void *logits; // (R, stride) of logits_dtype
    mics_dtype logits_dtype;
    // (optional) (R, stride) of the call's dtype: scale * (softmax - [v = target]). May be
    // `logits` where both are of one dtype. What lies behind V in a row is neither read nor
    // written.
    void *gradients;
    const int32_t *rows;     // (R): whose logits they are; NULL: those of rows 0 ... R - 1
    const int32_t *targets;  // of each row, below V; below 0: the row's loss and gradients are 0
    float *loss;             // of each row, unscaled
    const float *row_scales; // of each row; NULL: 1
    float scale;
    int64_t R, V, stride;
} mics_cuda_logits;

void mics_cuda_cross_entropy(const mics_exec *at, const mics_cuda_logits *logits);

/* Row r of `to` is row rows[r] of `from`, or, to scatter, row rows[r] of `to` is row r of `from`: R
 * rows of C numbers of the call's dtype. */
void mics_cuda_move_rows(const mics_exec *at, void *to, const void *from, const int32_t *rows,
                         int64_t R, int64_t C, bool scatter);

// ---- vector/: entries of mics_kernels; add is accumulate into another array ----

void mics_cuda_add(const mics_exec *at, void *y, const void *a, const void *b, int64_t elems);
void mics_cuda_accumulate(const mics_exec *at, void *y, const void *x, int64_t elems);
void mics_cuda_round(const mics_exec *at, void *out, const float *x, int64_t elems);
void mics_cuda_widen(const mics_exec *at, float *out, const void *x, int64_t elems);
void mics_cuda_sum_losses(const mics_exec *at, double *sum, const float *loss_N, int64_t N);
void mics_cuda_preference(const mics_exec *at, const mics_preference_pairs *pairs);
void mics_cuda_sum_squares(const mics_exec *at, double *sum, const float *x, int64_t elems);
void mics_cuda_sum_squares_rounded(const mics_exec *at, double *sum, const void *x, int64_t elems);
void mics_cuda_pack_state(const mics_exec *at, const mics_state_part *part, const float *values,
                          const mics_state_draw *draw);
void mics_cuda_unpack_state(const mics_exec *at, float *values, const mics_state_part *part);
void mics_cuda_sum_blocks(const mics_exec *at, float *sum, const void *own, const void *blocks,
                          int32_t count, int64_t stride, int64_t elems, bool add);
void mics_cuda_sum_blocks_rounded(const mics_exec *at, void *out, const void *own,
                                  const void *blocks, int32_t count, int64_t stride, int64_t elems);
void mics_cuda_hash(const mics_exec *at, uint64_t *hash_out, const void *x, size_t bytes);
void mics_cuda_meet_change(const mics_exec *at, float *message, const float *anchor,
                           const float *held, float weight, int64_t elems);
void mics_cuda_meet_step(const mics_exec *at, const mics_outer_step *step);
void mics_cuda_meet_adopt(const mics_exec *at, float *held, float *anchor, const float *message,
                          int64_t elems);
void mics_cuda_meet_round(const mics_exec *at, uint16_t *packed, const float *values,
                          float *residual, int64_t elems);

// What sum_squares and hash take of a call's workspace; every GEMM has more.
enum { MICS_CUDA_SUM_BLOCKS = 1024, MICS_CUDA_SUM_BYTES = 8 * MICS_CUDA_SUM_BLOCKS };

// ---- optim/: entries of mics_kernels.update ----

#define MICS_CUDA_DECLARE_(NAME, optimizer)                                                        \
    void mics_cuda_##optimizer##_update(const mics_exec *at, const mics_optimizer_update *update);
MICS_OPTIMIZERS(MICS_CUDA_DECLARE_)
#undef MICS_CUDA_DECLARE_

#ifdef __cplusplus
}
#endif
