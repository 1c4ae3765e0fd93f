// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Writes a token shard of uniformly random tokens, on which speed is measured: every row of the
// embedding is read, and no two batches are alike.
//
//   gpu_random_tokens VOCABULARY TOKENS SHARD.bin
#include "base/rng.h"
#include "io/data/data.h"
#include <stdio.h>
#include <stdlib.h>

enum { SEED = 1, STREAM = 0, VOCABULARY_MAX = 1 << 30, TOKENS_MAX = 1 << 28 };

// The number that a text is, or 0 where it is none or is beyond `max`.
static int64_t number(const char *text, int64_t max)
{
    char *end = NULL;
    const long long value = strtoll(text, &end, 10);
    return *end == '\0' && value >= 1 && value <= max ? value : 0;
}

int main(int argc, char **argv)
{
    const int64_t vocabulary = argc == 4 ? number(argv[1], VOCABULARY_MAX) : 0;
    const int64_t count = argc == 4 ? number(argv[2], TOKENS_MAX) : 0;
    if (vocabulary == 0 || count == 0) {
        fprintf(stderr, "usage: gpu_random_tokens VOCABULARY TOKENS SHARD.bin; at most %d tokens\n",
                (int)TOKENS_MAX);
        return 2;
    }
    int32_t *tokens = malloc((size_t)count * sizeof *tokens);
    if (tokens == NULL) {
        fprintf(stderr, "gpu_random_tokens: no memory for %lld tokens\n", (long long)count);
        return 1;
    }
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)(mics_rng_uniform(SEED, STREAM, (uint64_t)i) * (double)vocabulary);
    const mics_status status = mics_shard_write(argv[3], tokens, count, (int32_t)vocabulary);
    free(tokens);
    return status == MICS_OK ? 0 : 1;
}
