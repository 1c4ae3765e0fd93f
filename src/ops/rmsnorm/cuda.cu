// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// RMSNorm on a GPU.
#include "ops/common/norm.cuh"

const mics_op_kernels mics_cuda_rmsnorm_kernels = {norm_passes<false>::run_forward,
                                                   norm_passes<false>::run_backward,
                                                   nullptr,
                                                   nullptr,
                                                   nullptr,
                                                   nullptr,
                                                   nullptr,
                                                   false};
