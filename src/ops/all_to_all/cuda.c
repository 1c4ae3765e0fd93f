// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// No kernel: the engine runs it as a collective.
#include "ops/common/cuda_ops.h"

const mics_op_kernels mics_cuda_all_to_all_kernels = {.forward = NULL};
