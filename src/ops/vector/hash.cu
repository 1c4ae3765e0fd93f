// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A hash of numbers by their bits: the sum, modulo 2^64, of each word of 4 bytes mixed with its
// place. Such sums are the same in any order. The mix is one-to-one, so one word that changes
// always changes the sum. Reads each byte once: some ten integer operations a word, less than
// memory takes to bring it.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"

enum { HASH_THREADS = 256, HASH_UNROLL = 8, HASH_FINAL_THREADS = 1024 };

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): what it draws at `place`, moved on by the word.
static __device__ __forceinline__ unsigned long long mixed(uint32_t word, int64_t place)
{
    unsigned long long z = static_cast<unsigned long long>(word) +
                           static_cast<unsigned long long>(place + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

// partial[block] = the sum of the words that are this block's.
__global__ void __launch_bounds__(HASH_THREADS)
    hash_kernel(unsigned long long *partial, const uint32_t *x, int64_t words)
{
    __shared__ unsigned long long shared[MAX_WARPS];
    const int64_t thread = grid_thread(), threads = grid_threads();
    unsigned long long sum = 0;
    for (int64_t first = thread; first < words; first += threads * HASH_UNROLL) {
        uint32_t in[HASH_UNROLL];
#pragma unroll
        for (int u = 0; u < HASH_UNROLL; ++u)
            if (first + u * threads < words)
                in[u] = x[first + u * threads];
#pragma unroll
        for (int u = 0; u < HASH_UNROLL; ++u)
            if (first + u * threads < words)
                sum += mixed(in[u], first + u * threads);
    }
    sum = team_sum<HASH_THREADS>(sum, shared);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

// *hash = the partial sums and what is behind the last whole word, by one block.
__global__ void __launch_bounds__(HASH_FINAL_THREADS)
    hash_final_kernel(uint64_t *hash, const unsigned long long *partial, int64_t count,
                      const uint16_t *rest, int64_t words)
{
    __shared__ unsigned long long shared[MAX_WARPS];
    unsigned long long mine = 0;
    for (int64_t i = threadIdx.x; i < count; i += HASH_FINAL_THREADS)
        mine += partial[i];
    mine = team_sum<HASH_FINAL_THREADS>(mine, shared);
    if (threadIdx.x == 0)
        *hash = mine + (rest != nullptr ? mixed(*rest, words) : 0);
}

void mics_cuda_hash(const mics_exec *at, uint64_t *hash_out, const void *x, size_t bytes)
{
    const cudaStream_t stream = stream_of(at);
    const uint32_t *words_of = static_cast<const uint32_t *>(x);
    unsigned long long *partial = static_cast<unsigned long long *>(at->workspace);
    const int64_t words = static_cast<int64_t>(bytes / sizeof(uint32_t));
    const int64_t most = ceil_div(words, HASH_THREADS * HASH_UNROLL);
    const int64_t blocks = most < MICS_CUDA_SUM_BLOCKS ? most : int64_t{MICS_CUDA_SUM_BLOCKS};
    const uint16_t *rest = bytes % sizeof(uint32_t) != 0
                               ? reinterpret_cast<const uint16_t *>(words_of + words)
                               : nullptr;
    if (blocks > 0)
        MICS_LAUNCH(hash_kernel, static_cast<unsigned>(blocks), HASH_THREADS, 0, stream, partial,
                    words_of, words);
    MICS_LAUNCH(hash_final_kernel, 1, HASH_FINAL_THREADS, 0, stream, hash_out,
                static_cast<const unsigned long long *>(partial), blocks, rest, words);
}
