// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// No kernel: the engine runs it as a collective.
#include "ops/common/kernels_isa.h"

const mics_op_kernels MICS_OP(all_to_all_kernels) = {.forward = NULL};
