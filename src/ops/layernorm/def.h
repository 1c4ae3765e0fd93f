// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptor and the kernels agree on.
#ifndef MICS_OPS_LAYERNORM_DEF_H
#define MICS_OPS_LAYERNORM_DEF_H

// Rows are summed in this many fixed blocks on the CPU, whatever the number of threads, and in at most so many on an
// accelerator.
enum { MICS_LAYERNORM_BLOCKS = 16, MICS_LAYERNORM_ACCELERATOR_BLOCKS = 512 };

#endif
