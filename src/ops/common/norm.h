// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the norms' descriptors and kernels agree on.
#ifndef MICS_OPS_COMMON_NORM_H
#define MICS_OPS_COMMON_NORM_H

// Rows of the parameters' gradients are summed in at most so many fixed blocks, whatever the number
// of threads: on the CPU, and on an accelerator.
enum { MICS_NORM_BLOCKS = 16, MICS_NORM_ACCELERATOR_BLOCKS = 512 };

#endif
