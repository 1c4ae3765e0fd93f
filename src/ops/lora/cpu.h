// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a linear's kernels use.
#pragma once

#include "ops/common/kernels_isa.h"

/* Adds the products of low rank to call->out, which holds what the linear made. */
void MICS_OP(lora_add)(const mics_op_call *call);
