// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/common/cuda_ops.h"
#include "ops/router/router_cuda.h"

const mics_op_kernels mics_cuda_router_kernels = {.forward = mics_cuda_router_forward,
                                                  .backward = mics_cuda_router_backward};
