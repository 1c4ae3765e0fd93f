// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Growing bytes.
#include "io/data/buffer.h"
#include "mics/log.h"
#include <stdint.h>
#include <string.h>

mics_status mics_buffer_reserve(mics_buffer *buffer, size_t more)
{
    enum { FEWEST = 256 };
    if (more <= buffer->capacity - buffer->bytes)
        return MICS_OK;
    if (more > SIZE_MAX / 4 - buffer->bytes)
        return mics_fail(MICS_ERR_MEMORY, "a text of %zu bytes more is beyond all memory", more);
    size_t capacity = buffer->capacity < FEWEST ? FEWEST : buffer->capacity;
    while (capacity < buffer->bytes + more)
        capacity *= 2;
    void *block = buffer->data;
    MICS_TRY(mics_realloc(buffer->memory, MICS_MEM_HOST, capacity, &block));
    buffer->data = block;
    buffer->capacity = capacity;
    return MICS_OK;
}

mics_status mics_buffer_append(mics_buffer *buffer, const char *data, size_t bytes)
{
    MICS_TRY(mics_buffer_reserve(buffer, bytes));
    if (bytes > 0)
        memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    return MICS_OK;
}

void mics_buffer_drop(mics_buffer *buffer, size_t bytes)
{
    if (bytes > 0)
        memmove(buffer->data, buffer->data + bytes, buffer->bytes - bytes);
    buffer->bytes -= bytes;
}

void mics_buffer_fini(mics_buffer *buffer)
{
    mics_free(buffer->memory, buffer->data);
    *buffer = (mics_buffer){.memory = buffer->memory};
}
