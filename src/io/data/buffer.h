// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Bytes that are appended at one end and taken from the other.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stddef.h>

// Zeroed but for `memory` it is empty; mics_buffer_fini ends it.
typedef struct mics_buffer {
    mics_memory *memory;
    char *data;
    size_t bytes, capacity;
} mics_buffer;

/* Makes space for `more` bytes behind those that are there. */
mics_status mics_buffer_reserve(mics_buffer *buffer, size_t more);

/* Appends bytes, which must not be the buffer's own. */
mics_status mics_buffer_append(mics_buffer *buffer, const char *data, size_t bytes);

/* Takes `bytes` of those that are there from the front. */
void mics_buffer_drop(mics_buffer *buffer, size_t bytes);

void mics_buffer_fini(mics_buffer *buffer);
