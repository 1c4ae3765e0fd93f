// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of bf16 numbers by code of our own. The build picks gemm_avx512_bf16.c or
// gemm_packed_none.c.
#pragma once

#include "ops/common/gemm.h"

/* mics_gemm_bf16() for CPUs with AVX512_BF16.
 *
 * Needs:   a CPU that has it.
 * Returns: false where this build has no such code.
 */
bool mics_gemm_packed(const mics_exec *at, const mics_gemm_spec *gemm);

/* Whether mics_gemm_packed() adds the terms of low rank that the GEMM names.
 *
 * Returns: false also where this build or CPU has no such code. */
bool mics_gemm_takes_tails(const mics_gemm_spec *gemm);
