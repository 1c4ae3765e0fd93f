// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json, and behind a NUL a text for it: its regular expressions are as foreign.
#include "io/data/data.h"
#include "parts.h"

static void check_tokens(const mics_tokenizer *tokenizer, const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        fuzz_check(tokens[i] >= 0 && tokens[i] < mics_tokenizer_vocab(tokenizer),
                   "a token's range");
}

static void encode(mics_memory *memory, const mics_tokenizer *tokenizer, const char *text,
                   size_t bytes, int specials)
{
    int32_t *tokens = NULL;
    int64_t count = 0;
    char *back = NULL;
    size_t back_bytes = 0;
    if (fuzz_good(mics_tokenizer_encode(tokenizer, text, bytes, specials, &tokens, &count))) {
        check_tokens(tokenizer, tokens, count);
        fuzz_check(fuzz_good(mics_tokenizer_decode(tokenizer, tokens, count, &back, &back_bytes)),
                   "tokens that cannot be decoded");
        fuzz_parts(memory, tokenizer, text, bytes, specials != 0, tokens, count);
        mics_free(memory, tokens);
        mics_free(memory, back);
    }
    mics_token_frame frame;
    if (fuzz_good(mics_tokenizer_frame(tokenizer, &frame))) {
        check_tokens(tokenizer, frame.before, frame.before_count);
        check_tokens(tokenizer, frame.after, frame.after_count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_tokenizer *tokenizer = NULL;
    fuzz_part json = fuzz_take(&data, &bytes);
    char *text = malloc(bytes + 1);
    fuzz_check(text != NULL, "no memory for a text");
    memcpy(text, data, bytes);
    const char *path = fuzz_memory_file(json.text, json.bytes);
    if (fuzz_good(mics_tokenizer_open(memory, path, &tokenizer)))
        encode(memory, tokenizer, text, bytes, (int)(json.bytes % 2));
    mics_tokenizer_close(tokenizer);
    free(text);
    free(json.text);
    fuzz_end(memory);
    return 0;
}
