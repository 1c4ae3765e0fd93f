// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A router's passes on a GPU.
#pragma once

#include "ops/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

void mics_cuda_router_forward(const mics_op_call *call);
void mics_cuda_router_backward(const mics_op_call *call);

/* What a rank's tokens add to the sums of sequences that ranks share, behind the stats. */
void mics_cuda_router_send(const mics_op_call *call);

#ifdef __cplusplus
}
#endif
