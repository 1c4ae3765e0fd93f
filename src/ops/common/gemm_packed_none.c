// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// On CPUs other than x86.
#include "ops/common/gemm_packed.h"

bool mics_gemm_packed(const mics_exec *at, const mics_gemm_spec *gemm)
{
    (void)at;
    (void)gemm;
    return false;
}

bool mics_gemm_takes_tails(const mics_gemm_spec *gemm)
{
    (void)gemm;
    return false;
}
