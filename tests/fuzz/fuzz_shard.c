// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A token shard, whole and with a stranger's tokens.
#include "fuzz.h"
#include "io/data/data.h"
#include <stdlib.h>

enum { VOCAB = 300 };

static void look_at(const mics_corpus *corpus)
{
    const int64_t count = mics_corpus_tokens(corpus);
    int32_t *tokens = malloc((size_t)count * sizeof *tokens);
    fuzz_check(count >= 1 && tokens != NULL, "an empty corpus");
    fuzz_check(fuzz_good(mics_corpus_read(corpus, 0, count, tokens)), "tokens that cannot be read");
    for (int64_t i = 0; i < count; i++)
        fuzz_check(tokens[i] >= 0 && tokens[i] < VOCAB, "a token's range");
    (void)mics_corpus_hash(corpus);
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_corpus *corpus = NULL;
    fuzz_write("tokens.bin", data, bytes);
    const char *path = fuzz_path("tokens.bin");
    const mics_corpus_spec spec = {.patterns = &path, .pattern_count = 1, .vocab = VOCAB};
    if (fuzz_good(mics_corpus_open(memory, &spec, &corpus)))
        look_at(corpus);
    mics_corpus_close(corpus);
    fuzz_end(memory);
    return 0;
}
