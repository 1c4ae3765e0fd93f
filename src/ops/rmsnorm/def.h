// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptor and the kernels agree on.
#ifndef MICS_OPS_RMSNORM_DEF_H
#define MICS_OPS_RMSNORM_DEF_H

// Rows of the weight's gradient are summed in at most this many fixed blocks, on the CPU and on an accelerator.
enum { MICS_RMSNORM_BLOCKS = 16, MICS_RMSNORM_ACCELERATOR_BLOCKS = 256 };

#endif
