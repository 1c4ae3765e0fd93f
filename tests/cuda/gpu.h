// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Whether a test of GPUs can run.
#pragma once

#include "mics/core/device.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What main returns when there is no GPU: 77, skipped; 1 where a plugin was asked for, which must
// then work. 0: there is one.
static inline int gpu_missing(void)
{
    const mics_cuda_findings *findings = mics_cuda_find();
    if (findings->devices > 0)
        return 0;
    printf("no GPU: %s\n", findings->why_not);
    return getenv("MICS_CUDA_PLUGIN") != NULL ? 1 : 77;
}

// Whether NCCL lets ranks share a GPU here.
static inline bool gpu_is_shared_by_nccl(void)
{
    const char *enabled = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    int major = 0, minor = 0;
    return enabled != NULL && strcmp(enabled, "1") == 0 &&
           sscanf(mics_cuda_find()->nccl, "%d.%d", &major, &minor) == 2 &&
           100 * major + minor >= 230;
}
