// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A text file as a corpus: tokenized into a shard of a cache, and read back; of some, a second time
// from the cache.
#include "base/utf8.h"
#include "fuzz.h"
#include "io/data/data.h"
#include <stdlib.h>
#include <string.h>

static mics_memory *kept; // of the tokenizer
static mics_tokenizer *tokenizer;

static void close_tokenizer(void)
{
    mics_tokenizer_close(tokenizer);
    mics_memory_close(kept);
}

static void set_up(void)
{
    fuzz_check(mics_memory_open(&kept) == MICS_OK, "no allocator");
    fuzz_check(mics_tokenizer_open(kept, MICS_TEST_DATA "/tokenizer/gpt2.json", &tokenizer) ==
                   MICS_OK,
               "the tokenizer");
    fuzz_check(atexit(close_tokenizer) == 0, "no atexit");
    fuzz_make_dir("cache");
}

static void compare(const mics_corpus *corpus, const char *text, size_t bytes)
{
    const int64_t count = mics_corpus_tokens(corpus);
    int32_t *tokens = malloc((size_t)count * sizeof *tokens);
    char *back = NULL;
    size_t back_bytes = 0;
    fuzz_check(count >= 1 && tokens != NULL, "an empty corpus");
    fuzz_check(fuzz_good(mics_corpus_read(corpus, 0, count, tokens)), "tokens that cannot be read");
    fuzz_check(tokens[0] == mics_tokenizer_separator(tokenizer), "the separator");
    fuzz_check(
        fuzz_good(mics_tokenizer_decode(tokenizer, tokens + 1, count - 1, &back, &back_bytes)),
        "tokens that cannot be decoded");
    fuzz_check(back_bytes == bytes && memcmp(back, text, bytes) == 0, "another text comes back");
    mics_free(kept, back);
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (kept == NULL)
        set_up();
    mics_memory *memory = fuzz_begin();
    const char *path = fuzz_memory_file(data, bytes), *cache = fuzz_path("cache");
    uint64_t hash = 0;
    for (int turn = 0; turn < (bytes % 4 == 0 ? 2 : 1); turn++) {
        mics_corpus *corpus = NULL;
        const mics_corpus_spec spec = {.patterns = &path,
                                       .pattern_count = 1,
                                       .vocab = mics_tokenizer_vocab(tokenizer),
                                       .tokenizer = tokenizer,
                                       .cache_dir = cache};
        const mics_status status = mics_corpus_open(memory, &spec, &corpus);
        const bool opened = fuzz_good(status);
        // No mark of a file that is no text begins with a small letter, or is all in so few bytes.
        const bool text = bytes > 0 && bytes < 256 && data[0] >= 'a' && data[0] <= 'z';
        const bool utf8 = mics_utf8_valid((const char *)data, bytes) == bytes;
        fuzz_check(opened                      ? utf8 && bytes > 0
                   : status == MICS_ERR_FORMAT ? !utf8
                                               : !text && status == MICS_ERR_INVALID,
                   "a text, one that is not UTF-8, an empty one, or another file");
        if (corpus != NULL) {
            compare(corpus, (const char *)data, bytes);
            fuzz_check(turn == 0 || hash == mics_corpus_hash(corpus), "the hash is another one");
            hash = mics_corpus_hash(corpus);
        }
        mics_corpus_close(corpus);
    }
    fuzz_clear("cache");
    fuzz_end(memory);
    return 0;
}
