// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Choice of a kernel table at run time.
#include "ops/common/kernels_list.h"
#include <string.h>

int32_t mics_kernels_count(void)
{
    return mics_kernels_list_count;
}

const mics_kernels *mics_kernels_at(int32_t index)
{
    if (index < 0 || index >= mics_kernels_list_count)
        return NULL;
    const mics_kernels_entry *entry = &mics_kernels_list[index];
    return entry->runs_here() ? entry->kernels : NULL;
}

const mics_kernels *mics_kernels_get(const char *isa)
{
    for (int32_t index = 0; index < mics_kernels_list_count; ++index) {
        const mics_kernels *kernels = mics_kernels_at(index);
        if (kernels && (!isa || strcmp(isa, kernels->name) == 0))
            return kernels;
    }
    return NULL;
}
