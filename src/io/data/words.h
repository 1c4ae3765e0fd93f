// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Texts that differ, each with a count and a number of its own, from 0 in the order of coming.
#pragma once

#include "io/data/buffer.h"

typedef struct mics_word {
    size_t begin; // in `text`
    uint32_t bytes, hash;
    int64_t count;
    int32_t tag; // the caller's, 0 at first
} mics_word;

// Zeroed but for `text.memory` it is empty; mics_words_fini ends it.
typedef struct mics_words {
    mics_buffer text;
    mics_word *items; // (count)
    int64_t count, capacity;
    int32_t *slots; // (2 * capacity) open addressing: a number and 1, or 0
} mics_words;

/* Adds to the count of a text, which may be a new one. *word_out is valid until the next call.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY, also for more than 2^30 of them.
 */
mics_status mics_words_add(mics_words *words, const char *text, size_t bytes, int64_t count,
                           mics_word **word_out);

void mics_words_fini(mics_words *words);
