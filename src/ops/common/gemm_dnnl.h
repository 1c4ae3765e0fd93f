// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// oneDNN's matmul of bf16 numbers, whose interface differs between its versions 2 and 3.
#pragma once

#include "ops/common/gemm.h"

/* Whether oneDNN found AVX512_BF16 here, and not AMX, and was not limited to less.
 *
 * Threads: any.
 */
bool mics_gemm_has_pairs(void);

/* mics_gemm_bf16() by oneDNN. What it prepares for a shape, and for the calling thread's number of
 * threads, is kept.
 *
 * Returns: false where the library cannot (a CPU without the instructions, want of memory); C is
 *          then untouched, or, where it is added to, as it was.
 * Threads: any, at the same time.
 */
bool mics_gemm_dnnl(const mics_exec *at, const mics_gemm_spec *gemm);
