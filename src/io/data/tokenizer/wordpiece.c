// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// WordPiece: the longest token first.
#include "base/utf8.h"
#include "io/data/tokenizer/bpe.h"
#include <string.h>

// Of a word's end: a token with the prefix before it, where the word does not begin.
size_t mics_wordpiece_space(const mics_bpe *bpe)
{
    return strlen(bpe->wordpiece.prefix) + bpe->longest_word;
}

// More than `most` counts as `most` + 1.
static int64_t count_chars(const char *word, size_t bytes, int64_t most)
{
    int64_t chars = 0;
    for (size_t at = 0; at < bytes && chars <= most; chars++) {
        const int32_t length = mics_utf8_char(word + at, bytes - at);
        at += length > 0 ? (size_t)length : 1;
    }
    return chars;
}

// The longest token that stands at a place of a word, and how many of the word's bytes it takes.
static int32_t longest_at(const mics_bpe *bpe, const char *word, size_t bytes, size_t at,
                          char *space, size_t *taken_out)
{
    const size_t prefix = at > 0 ? strlen(bpe->wordpiece.prefix) : 0;
    if (prefix >= bpe->longest_word)
        return -1;
    size_t taken = bytes - at;
    if (taken > bpe->longest_word - prefix)
        taken = bpe->longest_word - prefix;
    memcpy(space, bpe->wordpiece.prefix, prefix);
    memcpy(space + prefix, word + at, taken);
    for (; taken > 0; taken--) {                // half a character is no token
        if (!bpe->word_lengths[prefix + taken]) // hashes of long texts take their time
            continue;
        const int32_t token = mics_bpe_find_word(bpe, space, prefix + taken);
        if (token >= 0) {
            *taken_out = taken;
            return token;
        }
    }
    return -1;
}

mics_status mics_wordpiece_cut(const mics_bpe *bpe, const char *word, size_t bytes, char *space,
                               mics_token_list *list)
{
    const int64_t before = list->count, most = bpe->wordpiece.max_chars;
    bool known = count_chars(word, bytes, most) <= most;
    size_t taken = 0;
    for (size_t at = 0; at < bytes && known; at += taken) {
        const int32_t token = longest_at(bpe, word, bytes, at, space, &taken);
        known = token >= 0;
        if (known)
            MICS_TRY(mics_token_list_append(list, &token, 1));
    }
    if (known)
        return MICS_OK;
    list->count = before;
    return mics_token_list_append(list, &bpe->unknown, 1);
}
