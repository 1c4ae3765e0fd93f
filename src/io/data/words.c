// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/data/words.h"
#include "mics/log.h"
#include <string.h>
#include <xxhash.h>

static uint64_t mask_of(const mics_words *words)
{
    return 2 * (uint64_t)words->capacity - 1;
}

static mics_status grow(mics_words *words)
{
    enum { FEWEST = 1024, MOST = 1 << 30 };
    const int64_t capacity = words->capacity == 0 ? FEWEST : 2 * words->capacity;
    int32_t *slots = NULL;
    void *items = words->items;
    if (capacity > MOST)
        return mics_fail(MICS_ERR_MEMORY, "more than %d texts that differ", MOST);
    MICS_TRY(mics_realloc(words->text.memory, MICS_MEM_HOST, (size_t)capacity * sizeof(mics_word),
                          &items));
    words->items = items;
    MICS_TRY(MICS_NEW(words->text.memory, 2 * capacity, &slots));
    mics_free(words->text.memory, words->slots);
    words->slots = slots;
    words->capacity = capacity;
    for (int64_t i = 0; i < words->count; i++) {
        uint64_t slot = words->items[i].hash & mask_of(words);
        while (slots[slot] != 0)
            slot = (slot + 1) & mask_of(words);
        slots[slot] = (int32_t)i + 1;
    }
    return MICS_OK;
}

static bool is_word(const mics_words *words, const mics_word *word, uint32_t hash, const char *text,
                    size_t bytes)
{
    return word->hash == hash && word->bytes == bytes &&
           memcmp(words->text.data + word->begin, text, bytes) == 0;
}

mics_status mics_words_add(mics_words *words, const char *text, size_t bytes, int64_t count,
                           mics_word **word_out)
{
    const uint32_t hash = (uint32_t)XXH3_64bits(text, bytes);
    if (words->count == words->capacity)
        MICS_TRY(grow(words));
    uint64_t slot = hash & mask_of(words);
    while (words->slots[slot] != 0 &&
           !is_word(words, &words->items[words->slots[slot] - 1], hash, text, bytes))
        slot = (slot + 1) & mask_of(words);
    if (words->slots[slot] == 0) {
        const size_t begin = words->text.bytes;
        MICS_TRY(mics_buffer_append(&words->text, text, bytes));
        words->items[words->count] =
            (mics_word){.begin = begin, .bytes = (uint32_t)bytes, .hash = hash};
        words->slots[slot] = (int32_t)++words->count;
    }
    *word_out = &words->items[words->slots[slot] - 1];
    (*word_out)->count += count;
    return MICS_OK;
}

void mics_words_fini(mics_words *words)
{
    mics_buffer_fini(&words->text);
    mics_free(words->text.memory, words->items);
    mics_free(words->text.memory, words->slots);
    *words = (mics_words){.text.memory = words->text.memory};
}
