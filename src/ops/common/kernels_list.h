// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The tables that this build has. The build picks kernels_x86.c or kernels_portable.c.
#pragma once

#include "ops/kernels.h"

typedef struct mics_kernels_entry {
    const mics_kernels *kernels;
    bool (*runs_here)(void); // does this CPU, under this system, have the instructions?
} mics_kernels_entry;

// Best first.
extern const mics_kernels_entry mics_kernels_list[];
extern const int32_t mics_kernels_list_count;
