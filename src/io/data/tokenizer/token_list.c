// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Growing arrays of tokens, and of pieces.
#include "base/size.h"
#include "io/data/tokenizer/tokenizer.h"
#include "mics/log.h"
#include <string.h>

mics_status mics_token_list_append(mics_token_list *list, const int32_t *tokens, int64_t count)
{
    if (count > list->capacity - list->count) {
        int64_t capacity = list->capacity < 256 ? 256 : list->capacity;
        while (capacity - list->count < count)
            MICS_TRY(mics_size_mul(capacity, 2, &capacity));
        size_t bytes = 0;
        MICS_TRY(mics_size_bytes(capacity, sizeof *tokens, &bytes));
        void *block = list->tokens;
        MICS_TRY(mics_realloc(list->memory, MICS_MEM_HOST, bytes, &block));
        list->tokens = block;
        list->capacity = capacity;
    }
    if (count > 0)
        memcpy(list->tokens + list->count, tokens, (size_t)count * sizeof *tokens);
    list->count += count;
    return MICS_OK;
}

void mics_token_list_fini(mics_token_list *list)
{
    mics_free(list->memory, list->tokens);
    list->tokens = NULL;
    list->count = list->capacity = 0;
}

mics_status mics_pieces_add(mics_pieces *pieces, const char *piece, size_t bytes)
{
    if (bytes > INT32_MAX)
        return mics_fail(MICS_ERR_INVALID,
                         "%zu bytes without a place to cut are more than a tokenizer merges",
                         bytes);
    const int32_t part = (int32_t)bytes;
    MICS_TRY(mics_buffer_append(&pieces->text, piece, bytes));
    return mics_token_list_append(&pieces->parts, &part, 1);
}

void mics_pieces_fini(mics_pieces *pieces)
{
    mics_buffer_fini(&pieces->text);
    mics_token_list_fini(&pieces->parts);
}
