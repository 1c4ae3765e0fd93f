// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// All CUDA kernels.
#include "ops/common/cuda_ops.h"

// In the order of the structure: C++17 has no names here.
#define MICS_CUDA_ROW_(NAME, op) &mics_cuda_##op##_kernels,
#define MICS_CUDA_UPDATE_(NAME, optimizer) mics_cuda_##optimizer##_update,
static const mics_kernels kernels = {
    "cuda",
    nullptr, // these know all dtypes
    {MICS_OPS(MICS_CUDA_ROW_)},
    mics_cuda_accumulate,
    mics_cuda_sum_losses,
    mics_cuda_preference,
    mics_cuda_sum_squares,
    mics_cuda_sum_squares_rounded,
    {MICS_OPTIMIZERS(MICS_CUDA_UPDATE_)},
    mics_cuda_pack_state,
    mics_cuda_unpack_state,
    mics_cuda_sum_blocks,
    mics_cuda_sum_blocks_rounded,
    mics_cuda_round,
    mics_cuda_widen,
    mics_cuda_hash,
    mics_cuda_meet_change,
    mics_cuda_meet_step,
    mics_cuda_meet_adopt,
    mics_cuda_meet_round,
    nullptr, // communication dtypes and initial weights are the CPU's
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

const mics_kernels *mics_cuda_kernels(void)
{
    return &kernels;
}
