// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptor and the kernels agree on.
#pragma once

// Rows of the bias's gradient are summed in this many fixed blocks on the CPU; on an accelerator in
// at most so many, of at least so many rows.
enum { MICS_LINEAR_BLOCKS = 16, MICS_LINEAR_ACCELERATOR_BLOCKS = 64 };

// A prompt's GEMM is divided into panels of so many outputs (whole register blocks of AVX-512's GEMM
// and enough of them for two threads at a hidden size of 768). A weight of bf16 is widened so many
// inputs of a panel at a time, which fits into a core's cache.
enum { MICS_LINEAR_PANEL = 192, MICS_LINEAR_PANEL_INPUTS = 512 };
