// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Calls of one op's kernels.
#pragma once

#include "engine/internal.h"

void run_op_forward(mics_engine *engine, const mics_step *step, int32_t op);
void run_grad_call(mics_engine *engine, const mics_step *step, const mics_grad_call *call);

/* Op `op` and the next one in one call; call `at` of the unit's and the next one likewise. */
void run_fused_forward(mics_engine *engine, const mics_step *step, int32_t op,
                       const mics_op_pair *pair);
void run_fused_backward(mics_engine *engine, const mics_step *step, int32_t at_call,
                        const mics_op_pair *pair);
