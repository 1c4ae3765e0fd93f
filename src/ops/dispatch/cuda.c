// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Not on GPUs yet: the engine refuses models with such ops there.
#include "ops/common/cuda_ops.h"

const mics_op_kernels mics_cuda_dispatch_kernels = {.forward = NULL};
