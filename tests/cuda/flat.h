// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What tests of kernels over flat arrays share: sizes, where buffers begin, and arguments.
#pragma once

#include "cuda_op.h"

static const int64_t SIZES[] = {1, 2, 3, 7, 8, 9, 31, 64, 65, 257, 1000, 4096, 4099};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES, MAX_OFFSET = 8 };

// Every size at some offsets of each buffer: the same, which packs can follow, or not.
typedef struct shape {
    mics_dtype dtype;
    int64_t elems, offset[5];
} shape;

typedef void (*shape_fn)(const shape *s);

static inline void over_shapes(shape_fn test)
{
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
        for (int i = 0; i < SIZE_COUNT; ++i)
            for (int kind = 0; kind < 4; ++kind) {
                shape s = {.dtype = (mics_dtype)dtype, .elems = SIZES[i]};
                for (int b = 0; b < 5; ++b)
                    s.offset[b] = kind == 0   ? 0
                                  : kind == 1 ? 3
                                  : kind == 2 ? (i + b) % MAX_OFFSET
                                              : i % MAX_OFFSET;
                test(&s);
            }
}

// What an entry may take.
typedef struct flat_args {
    void *y;
    const void *a, *b, *own;
    int64_t elems, stride;
    int32_t count;
    bool add, exact;
    double *sum;
    float *masters, *moment1, *moment2;
    op_adamw adamw;
} flat_args;

static inline const mics_kernels *table(void)
{
    cu_device();
    const mics_kernels *found = mics_kernels_cuda();
    if (!found)
        fail_msg("the plugin has no kernels");
    return found;
}
