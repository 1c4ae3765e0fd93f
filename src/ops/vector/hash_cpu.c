// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A hash of numbers by their bits (XXH3, 64 bits). Blocks of a fixed size are hashed side by side,
// and then their hashes, in order: the same value with any number of threads.
#include "ops/common/kernels_isa.h"
#include <xxhash.h>

enum {
    BLOCK_BYTES =
        256 * 1024,      // so long that threads are worth waking, so short that a batch has many
    BATCH_BLOCKS = 1024, // whose hashes fit on the stack
};

static uint64_t hash_batch(const char *x, size_t bytes, uint64_t seed)
{
    uint64_t hashes[BATCH_BLOCKS];
    const int64_t blocks = (int64_t)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
#pragma omp parallel for if (blocks > 1)
    for (int64_t block = 0; block < blocks; ++block) {
        const size_t begin = (size_t)block * BLOCK_BYTES;
        const size_t size = bytes - begin < BLOCK_BYTES ? bytes - begin : BLOCK_BYTES;
        hashes[block] = XXH3_64bits(x + begin, size);
    }
    return XXH3_64bits_withSeed(hashes, (size_t)blocks * sizeof hashes[0], seed);
}

void MICS_ISA_OP(hash)(const mics_exec *at, uint64_t *hash_out, const void *x, size_t bytes)
{
    (void)at;
    const size_t batch = (size_t)BATCH_BLOCKS * BLOCK_BYTES;
    uint64_t hash = bytes;
    for (size_t begin = 0; begin < bytes; begin += batch)
        hash = hash_batch((const char *)x + begin, bytes - begin < batch ? bytes - begin : batch,
                          hash);
    *hash_out = hash;
}
