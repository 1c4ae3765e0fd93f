// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Several blocks of one allocator, given back at once.
#pragma once

#include "mics/memory.h"

/* mics_free of each block, in the order given: MICS_FREE_ALL(self->memory, self->names, self). */
#define MICS_FREE_ALL(memory, ...)                                                                 \
    mics_free_all((memory), (void *const[]){__VA_ARGS__},                                          \
                  sizeof((void *const[]){__VA_ARGS__}) / sizeof(void *))

static inline void mics_free_all(mics_memory *memory, void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mics_free(memory, blocks[i]);
}
