// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The CUDA op table, and what workspace its entries need.
#include "ops/common/cuda_ops.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t workspace_bytes(mics_dtype dtype, int64_t N, int64_t T, int64_t widest, int64_t H,
                              int64_t D, int64_t V, int64_t chunk_rows, int32_t threads)
{
    (void)threads;
    size_t bytes = mics_cuda_layernorm_workspace_bytes(N, widest);
    bytes = larger(bytes, mics_cuda_linear_workspace_bytes(dtype, N, widest));
    bytes = larger(bytes, mics_cuda_attention_workspace_bytes(dtype, N, T, H, D));
    bytes = larger(bytes, mics_cuda_lm_head_workspace_bytes(dtype, N, widest, V, chunk_rows));
    return larger(bytes, mics_cuda_sum_workspace_bytes());
}

// In the order of the structure: C++17 has no names here.
static const mics_op_table table = {
    "cuda",
    workspace_bytes,
    mics_cuda_embedding_forward,
    mics_cuda_embedding_backward,
    mics_cuda_layernorm_forward,
    mics_cuda_layernorm_backward,
    mics_cuda_linear_forward,
    mics_cuda_linear_backward,
    mics_cuda_linear_gelu_forward,
    mics_cuda_linear_gelu_backward,
    mics_cuda_gelu_forward,
    mics_cuda_gelu_backward,
    mics_cuda_attention_forward,
    mics_cuda_attention_backward,
    mics_cuda_add,
    mics_cuda_accumulate,
    mics_cuda_lm_head_forward,
    mics_cuda_lm_head_backward,
    mics_cuda_sum_losses,
    mics_cuda_sum_squares,
    mics_cuda_adamw_update,
    mics_cuda_sum_blocks,
    mics_cuda_sum_blocks_rounded,
    mics_cuda_round,
    mics_cuda_widen,
};

const mics_op_table *mics_cuda_op_table(void)
{
    return &table;
}
