// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// LayerNorm on a GPU.
#include "ops/common/norm.cuh"

const mics_op_kernels mics_cuda_layernorm_kernels = {norm_passes<true>::run_forward,
                                                     norm_passes<true>::run_backward,
                                                     nullptr,
                                                     nullptr,
                                                     nullptr,
                                                     nullptr,
                                                     nullptr,
                                                     false};
