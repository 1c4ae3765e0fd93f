// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// LayerNorm on a GPU.
#include "ops/common/norm.cuh"

const mics_op_kernels mics_cuda_layernorm_kernels = {norm<true>::run_forward,
                                                     norm<true>::run_backward, nullptr, nullptr};
