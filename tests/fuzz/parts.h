// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A text that comes in parts must have the tokens of the whole.
#pragma once

#include "fuzz.h"
#include "io/data/tokenizer/tokenizer.h"
#include <stdlib.h>
#include <string.h>

// Feeds a text in parts of `step` bytes; false when the encoder gives up.
static inline bool fuzz_feed(mics_encoder *encoder, const char *text, size_t bytes, size_t step,
                             mics_token_list *list)
{
    size_t begin = 0, end = 0;
    do {
        size_t consumed = 0;
        end = bytes - end > step ? end + step : bytes;
        char *known = malloc(end - begin + 1); // so that a sanitizer sees a step too far
        fuzz_check(known != NULL, "no memory for a part");
        memcpy(known, text + begin, end - begin);
        const mics_status status =
            mics_encoder_feed(encoder, known, end - begin, end < bytes, list, &consumed);
        free(known);
        if (!fuzz_good(status))
            return false;
        fuzz_check(consumed <= end - begin, "more is consumed than there is");
        begin += consumed;
    } while (end < bytes);
    fuzz_check(begin == bytes, "a rest of the text");
    return true;
}

static inline void fuzz_parts(mics_memory *memory, const mics_tokenizer *tokenizer,
                              const char *text, size_t bytes, bool specials, const int32_t *tokens,
                              int64_t count)
{
    mics_encoder encoder = {0};
    mics_token_list list = {.memory = memory};
    if (!fuzz_good(mics_encoder_open(tokenizer, specials, &encoder)))
        return;
    if (fuzz_feed(&encoder, text, bytes, 1 + bytes / 5, &list))
        fuzz_check(
            list.count == count &&
                (count == 0 || memcmp(list.tokens, tokens, (size_t)count * sizeof *tokens) == 0),
            "other tokens in parts");
    mics_encoder_fini(&encoder);
    mics_token_list_fini(&list);
}
