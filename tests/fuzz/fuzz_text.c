// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A text, by a tokenizer that its first byte chooses: in parts it has the same tokens, and of some
// tokenizers it comes back.
#include "io/data/data.h"
#include "parts.h"

enum { TOKENIZERS = 8, EXACT = 4 }; // the first give every text back

static mics_memory *kept; // of the tokenizers
static mics_tokenizer *tokenizers[TOKENIZERS];

static void close_tokenizers(void)
{
    for (int i = 0; i < TOKENIZERS; i++)
        mics_tokenizer_close(tokenizers[i]);
    mics_memory_close(kept);
}

static void open_tokenizers(void)
{
    static const char *const names[TOKENIZERS] = {"bytes",
                                                  MICS_TEST_DATA "/tokenizer/gpt2.json",
                                                  MICS_TEST_DATA "/tokenizer/llama3.json",
                                                  MICS_TEST_DATA "/tokenizer/digits.json",
                                                  MICS_TEST_DATA "/tokenizers/qwen2.json",
                                                  MICS_TEST_DATA "/tokenizers/llama2.json",
                                                  MICS_TEST_DATA "/tokenizers/mistral.json",
                                                  MICS_TEST_DATA "/tokenizers/flags.json"};
    fuzz_check(mics_memory_open(&kept) == MICS_OK, "no allocator");
    for (int i = 0; i < TOKENIZERS; i++)
        fuzz_check(mics_tokenizer_open(kept, names[i], &tokenizers[i]) == MICS_OK, names[i]);
    fuzz_check(atexit(close_tokenizers) == 0, "no atexit");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (kept == NULL)
        open_tokenizers();
    if (bytes == 0)
        return 0;
    mics_memory *memory = fuzz_begin();
    const mics_tokenizer *tokenizer = tokenizers[data[0] % TOKENIZERS];
    const char *text = (const char *)data + 1;
    int32_t *tokens = NULL;
    int64_t count = 0;
    char *back = NULL;
    size_t back_bytes = 0;
    bytes--;
    fuzz_check(fuzz_good(mics_tokenizer_encode(tokenizer, text, bytes, data[0] / TOKENIZERS % 2,
                                               &tokens, &count)),
               "a text that cannot be encoded");
    fuzz_check(fuzz_good(mics_tokenizer_decode(tokenizer, tokens, count, &back, &back_bytes)),
               "tokens that cannot be decoded");
    fuzz_check(data[0] % TOKENIZERS >= EXACT ||
                   (back_bytes == bytes && memcmp(back, text, bytes) == 0),
               "another text comes back");
    fuzz_parts(kept, tokenizer, text, bytes, data[0] / TOKENIZERS % 2 != 0, tokens, count);
    mics_free(kept, tokens); // a tokenizer allocates where it was opened
    mics_free(kept, back);
    fuzz_end(memory);
    return 0;
}
