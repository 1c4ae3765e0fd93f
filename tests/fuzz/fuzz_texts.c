// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of several texts and packed ones as corpora: the first byte chooses the name's ending. What
// is good is good a second time, with the same tokens.
#include "fuzz.h"
#include "io/data/data.h"
#include <stdio.h>
#include <stdlib.h>

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
    fuzz_check(mics_tokenizer_open(kept, "bytes", &tokenizer) == MICS_OK, "the tokenizer");
    fuzz_check(atexit(close_tokenizer) == 0, "no atexit");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const endings[] = {".jsonl",    ".txt.gz",     ".txt.zst",
                                          ".jsonl.gz", ".ndjson.zst", ".json",
                                          ".csv",      ".tsv",        ".txt"};
    char name[32];
    if (bytes == 0)
        return 0;
    if (kept == NULL)
        set_up();
    mics_memory *memory = fuzz_begin();
    fuzz_make_dir("cache");
    snprintf(name, sizeof name, "texts%s", endings[data[0] % 9]);
    fuzz_write(name, data + 1, bytes - 1);
    const char *path = fuzz_path(name);
    const mics_corpus_spec spec = {.patterns = &path,
                                   .pattern_count = 1,
                                   .vocab = mics_tokenizer_vocab(tokenizer),
                                   .tokenizer = tokenizer,
                                   .cache_dir = fuzz_path("cache")};
    uint64_t hash = 0;
    bool good = false;
    for (int turn = 0; turn < 2; turn++) {
        mics_corpus *corpus = NULL;
        const bool opened = fuzz_good(mics_corpus_open(memory, &spec, &corpus));
        fuzz_check(turn == 0 || opened == good, "good once");
        good = opened;
        if (corpus != NULL) {
            int32_t first = -1;
            fuzz_check(mics_corpus_tokens(corpus) >= 2, "a corpus without text");
            fuzz_check(fuzz_good(mics_corpus_read(corpus, 0, 1, &first)) && first == 0,
                       "the separator");
            fuzz_check(turn == 0 || hash == mics_corpus_hash(corpus), "the hash is another one");
            hash = mics_corpus_hash(corpus);
        }
        mics_corpus_close(corpus);
    }
    fuzz_clear("cache");
    fuzz_end(memory);
    return 0;
}
