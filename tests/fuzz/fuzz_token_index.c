// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A Megatron index beside a .bin of 32 bytes.
#include "fuzz.h"
#include "io/data/data.h"

enum { VOCAB = 300 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint8_t tokens[32] = {10, 0, 0, 0, 11, 0, 0, 0, 12, 0, 0, 0, 13};
    mics_memory *memory = fuzz_begin();
    mics_corpus *corpus = NULL;
    fuzz_write("tokens.bin", tokens, sizeof tokens);
    fuzz_write("tokens.idx", data, bytes);
    const char *path = fuzz_path("tokens.bin");
    const mics_corpus_spec spec = {.patterns = &path, .pattern_count = 1, .vocab = VOCAB};
    if (fuzz_good(mics_corpus_open(memory, &spec, &corpus))) {
        int32_t read[32];
        const int64_t count = mics_corpus_tokens(corpus);
        fuzz_check(count >= 4 && count <= 32, "a number of tokens");
        fuzz_check(fuzz_good(mics_corpus_read(corpus, 0, count, read)), "tokens cannot be read");
        for (int64_t i = 0; i < count; i++)
            fuzz_check(read[i] >= 0 && read[i] < VOCAB, "a token's range");
    }
    mics_corpus_close(corpus);
    fuzz_end(memory);
    return 0;
}
