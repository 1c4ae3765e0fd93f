// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Typed allocation. C alone.
#ifndef MICS_BASE_NEW_H
#define MICS_BASE_NEW_H

#include "mics/memory.h"
#include "mics/status.h"

// Makes `pointer` point to `count` zeroed things of its type, as mics_alloc; a failure returns from
// the function, as MICS_TRY, and leaves `pointer` as it was. The things may be pointers themselves.
#define MICS_TRY_NEW(memory, tag, count, pointer)                                                  \
    do {                                                                                           \
        void *new_block_ = NULL;                                                                   \
        const size_t new_bytes_ =                                                                  \
            (size_t)(count) * sizeof *(pointer); /* NOLINT(bugprone-sizeof-expression) */          \
        MICS_TRY(mics_alloc(memory, tag, new_bytes_, &new_block_));                                \
        (pointer) = new_block_;                                                                    \
    } while (0)

#endif
