// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The one table of kernels on CPUs other than x86, and of builds with MICS_NATIVE_KERNELS.
#include "ops/common/kernels_list.h"

extern const mics_kernels mics_kernels_generic;

static bool always(void)
{
    return true;
}

const mics_kernels_entry mics_kernels_list[] = {{&mics_kernels_generic, always}};
const int32_t mics_kernels_list_count = 1;
