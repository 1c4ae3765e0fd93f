// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// RMSNorm on a GPU.
#include "ops/common/norm.cuh"

const mics_op_kernels mics_cuda_rmsnorm_kernels = {norm<false>::run_forward,
                                                   norm<false>::run_backward, nullptr, nullptr};
