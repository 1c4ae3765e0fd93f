// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the ops of experts share on a GPU: rows sorted by expert, or those that came from other ranks
// where they lie, and GEMMs of them, each row at its expert. Nothing here waits for the device: how
// many rows an expert has, the host never knows.
// Shapes: N tokens, k chosen experts, R = N * k rows; see ops/experts/def.h.
#pragma once

#include "ops/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MICS_CUDA_EXPERTS_TILE = 128 }; // rows of an expert that a block multiplies

// Where rows come from, in a call's workspace. Runs are rows of one expert that lie together: one an
// expert where rows are sorted; of rows that came, one an expert in each block, and behind them the
// rows of the block that are of no use.
typedef struct mics_cuda_routes {
    int32_t *tokens;  // (R): whose row it is; NULL of rows that came
    int32_t *experts; // (R), which do not fall; their count of rows that are dropped; or NULL
    int32_t *first;   // (runs + 1): each run's first row, and the first that is dropped
    int32_t *tiles;   // (runs + 1): its first tile, and how many there are
    void *rows;       // (R, width) of the call's dtype, behind them; or NULL
} mics_cuda_routes;

/* Lays out the workspace of a call and enqueues what fills it, but for `rows`.
 *
 * Needs:   call->routes of a router's forward, and a workspace by mics_experts_cost.
 */
mics_cuda_routes mics_cuda_experts_route(const mics_op_call *call);

/* The same of rows that came, which call->routes are.
 *
 * Needs:   a workspace by mics_experts_came_floats.
 */
mics_cuda_routes mics_cuda_experts_came(const mics_op_call *call);

// GEMMs of weights (O, I), one an expert, which lie `expert_elems` apart.
typedef struct mics_cuda_experts_gemm {
    const mics_exec *at;
    const mics_cuda_routes *routes; // NULL: one expert has all rows, in their order
    int32_t experts;
    int64_t rows, I, O;
    int64_t expert_elems;
    const void *weight;
    int32_t blocks; // of rows that came; 0: rows are sorted
    int64_t x_gap;  // elements between the rows of two blocks of x, and of its gradient
} mics_cuda_experts_gemm;

typedef struct mics_cuda_experts_rows {
    const void *a;
    bool by_token; // a's rows are those of tokens (N), not sorted ones (R)
    void *c;
    int64_t stride; // elements between c's rows; 0: they lie together
} mics_cuda_experts_rows;

typedef struct mics_cuda_experts_weights {
    const void *dy, *x; // (R, O); (R, I), or by token (N, I)
    bool by_token;
    void *dweight; // as the weights
    bool add;
} mics_cuda_experts_weights;

/* c (R, O) = a W^T; 0 of rows that are dropped, here and in the next. */
void mics_cuda_experts_forward(const mics_cuda_experts_gemm *gemm,
                               const mics_cuda_experts_rows *rows);
/* c (R, I) = a W */
void mics_cuda_experts_input_gradient(const mics_cuda_experts_gemm *gemm,
                                      const mics_cuda_experts_rows *rows);
/* dweight (+)= dy^T x; 0 of an expert without rows. */
void mics_cuda_experts_weight_gradient(const mics_cuda_experts_gemm *gemm,
                                       const mics_cuda_experts_weights *weights);
/* c (rows, O) = a W^T in fp32, whatever the call's dtype, and never with inputs rounded to TF32: a
 * router's scores.
 *
 * Needs:   no routes.
 */
void mics_cuda_experts_scores(const mics_cuda_experts_gemm *gemm,
                              const mics_cuda_experts_rows *rows);

// y (N, width) (+)= the sum of each token's rows, times `weights` (N, k) where there are some; best
// expert first.
typedef struct mics_cuda_experts_sum {
    void *y;
    const void *rows, *weights;
    int64_t width;
    bool add;
    const mics_cuda_routes *routes; // of rows that lie in blocks; NULL: they are sorted
    int64_t tensor_width;           // and of the tensor of blocks
} mics_cuda_experts_sum;

void mics_cuda_experts_add_up(const mics_op_call *call, const mics_cuda_experts_sum *sum);

#ifdef __cplusplus
}
#endif
