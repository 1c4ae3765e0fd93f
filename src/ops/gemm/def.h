// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How the GEMM of bf16 numbers is cut into blocks, which decides what workspace it needs
// (common/gemm_avx512_bf16.c).
#pragma once

#include "base/size.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    // The part of C that stays in registers: 6 rows of 4 vectors leave 8 of 32 free.
    MICS_GEMM_TILE_ROWS = 6,
    MICS_GEMM_TILE_COLUMNS = 64,
    // What is packed at a time (of A, where it is transposed: rows x depth; of B: depth x columns),
    // for the L3 cache.
    MICS_GEMM_ROWS = 1536,
    MICS_GEMM_COLUMNS = 1536,
    // Sums of several depths are stored and read again, so that K is cut late: GEMMs of K = 1280 to
    // 4096 took 4 to 8 % less than with depths up to 1024 (Zen 4, 2026-11-30). A panel of B, at most
    // 512 KiB, still fits the L2 cache.
    MICS_GEMM_WHOLE_DEPTH = 4096, // K that is not cut
    MICS_GEMM_DEPTH = 1024,       // of a longer one, as large blocks take workspace
};

typedef struct mics_gemm_blocks {
    int64_t rows, columns, depth; // of a block, in whole tiles and pairs
    int64_t a, b, c;              // floats of packed A, of packed B, and of sums of several depths
} mics_gemm_blocks;

static inline mics_gemm_blocks mics_gemm_blocks_of(int64_t M, int64_t N, int64_t K)
{
    const int64_t depths =
        K <= MICS_GEMM_WHOLE_DEPTH ? 1 : (K + MICS_GEMM_DEPTH - 1) / MICS_GEMM_DEPTH;
    mics_gemm_blocks blocks;
    blocks.rows = mics_size_round_up(M < MICS_GEMM_ROWS ? M : MICS_GEMM_ROWS, MICS_GEMM_TILE_ROWS);
    blocks.columns =
        mics_size_round_up(N < MICS_GEMM_COLUMNS ? N : MICS_GEMM_COLUMNS, MICS_GEMM_TILE_COLUMNS);
    blocks.depth = mics_size_round_up((K + depths - 1) / depths, 2);
    blocks.a = mics_size_round_up(blocks.rows * blocks.depth / 2, 16);
    blocks.b = blocks.columns * blocks.depth / 2;
    blocks.c = depths > 1 ? blocks.rows * blocks.columns : 0;
    return blocks;
}

/* Floats of workspace that a GEMM needs, whatever it transposes. */
static inline int64_t mics_gemm_floats_bf16(int64_t M, int64_t N, int64_t K)
{
    const mics_gemm_blocks blocks = mics_gemm_blocks_of(M, N, K);
    return blocks.a + blocks.b + blocks.c + 16; // to begin on a cache line
}

/* The same for any K up to this one: a block's depth is largest where it is not cut. */
static inline int64_t mics_gemm_floats_any_bf16(int64_t M, int64_t N, int64_t K)
{
    const bool cut = K > MICS_GEMM_WHOLE_DEPTH;
    const mics_gemm_blocks blocks = mics_gemm_blocks_of(M, N, cut ? MICS_GEMM_WHOLE_DEPTH : K);
    return blocks.a + blocks.b + 16 + (cut ? blocks.rows * blocks.columns : 0);
}

/* More floats, for terms of this rank that are added to C (mics_gemm_spec.tails). */
static inline int64_t mics_gemm_tail_floats(int64_t N, int64_t rank)
{
    return mics_gemm_blocks_of(1, N, 1).columns * ((rank + 1) / 2);
}
