// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The tables of kernels on x86: those compiled for AVX-512 and AVX2, and the one for any CPU.
#include "ops/common/kernels_list.h"

extern const mics_kernels mics_kernels_avx512, mics_kernels_avx2, mics_kernels_generic;

// __builtin_cpu_supports asks the operating system too (it must save the wide registers).
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma");
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool always(void)
{
    return true;
}

const mics_kernels_entry mics_kernels_list[] = {
    {&mics_kernels_avx512, has_avx512},
    {&mics_kernels_avx2, has_avx2},
    {&mics_kernels_generic, always},
};
const int32_t mics_kernels_list_count = 3;
