// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptor and the kernels agree on.
#ifndef MICS_OPS_LINEAR_DEF_H
#define MICS_OPS_LINEAR_DEF_H

// Rows of the bias's gradient are summed in this many fixed blocks on the CPU; on an accelerator in
// at most so many, of at least so many rows.
enum { MICS_LINEAR_BLOCKS = 16, MICS_LINEAR_ACCELERATOR_BLOCKS = 64 };

#endif
