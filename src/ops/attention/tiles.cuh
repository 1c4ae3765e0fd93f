// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Self-attention on tensor cores, bf16 and fp16 with fp32 sums, as FlashAttention-2 (Dao,
// 2023, arXiv:2307.08691): what forward (tiles_forward.cu) and backward (tiles_backward.cu) share.
// Tiles of queries and keys, no T x T matrix in memory; qkv is read in place: query heads that
// share a key-value head read the same rows. Tiles that lie outside of a window, or before the
// first and behind the last key of a segment that some query is of, are left out.
//
// Floors, with causal halves left out: forward 2 B H T^2 D flops, backward 5 B H T^2 D (these
// kernels: 7). Bytes, where no heads are shared: forward reads qkv and writes y and lse, 8 B T C +
// 4 B T H; backward reads qkv, y, dy, lse and writes dqkv, 16 B T C and some. With T >= 512 flops
// decide.
//
// Legend: a block has WARPS warps; each owns 16 * MT rows of the block's tile ("rows": queries, in
// dk dv keys), and walks over tiles of BN columns (keys, in dk dv queries), which are fetched one
// ahead. W: D rounded up to what a kernel is made for; what lies between is 0.
//
// Tile sizes. Rows a warp and columns a tile are the largest that fit into registers: every row
// more a warp halves what is read of shared memory for a product, which is what limits these
// kernels. Shared memory: 54 to 135 KiB a block where a GPU grants 163 (compute capability 8.0) or
// 227 (9.0, 10.0). Where it grants 99 (8.6, 8.9, 12.x), heads of more than 96 have smaller tiles.
// The GPU alone decides, so a run's bits are the same on all GPUs of a kind. ptxas of CUDA 13.0,
// for 8.0 and 9.0: 128 to 255 registers; forward at 128 with the larger tiles spills (bytes stored
// and loaded: 136 and 80), and some kernels with dropout do (tools/lint/spills.txt). Not yet tuned
// on a chip.
//
// Dropout is a variant of each kernel (DROPS), so that what drops nothing has the registers that it
// had.
#pragma once

#include "ops/attention/problem.cuh"
#include "ops/common/mma.cuh"
#include <stdio.h>

namespace
{

constexpr float LOG2_E = 1.4426950408889634F;

// ---- tiles in shared memory ----

// Rows are 16 bytes longer than W numbers, so that 8 consecutive ones lie in different banks.
template <int W> struct row_of {
    static constexpr int STRIDE = W + 8;
};

// Of a kernel's space, before its first tile is fetched. A static __shared__ would be added to what
// a block asks for, and with heads of 256 that is all there is.
template <typename T> __device__ __forceinline__ narrowing &narrowing_in(T *space)
{
    return *reinterpret_cast<narrowing *>(space);
}

// Begins to copy ROWS rows of D numbers, of which `rows` exist, with 0 in the place of the others
// and behind D.
template <typename T, int W, int ROWS, int THREADS>
__device__ __forceinline__ void fetch(T *tile, const T *from, int64_t stride, int64_t rows,
                                      const problem<T> &p)
{
    constexpr int CHUNKS = W / 8;
    for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, d = i % CHUNKS * 8;
        T *to = tile + row * row_of<W>::STRIDE + d;
        if (p.vectors) {
            const bool valid = row < rows && d < p.D;
            copy_begin(to, valid ? from + row * stride + d : from, valid);
            continue;
        }
        for (int j = 0; j < 8; ++j)
            to[j] = row < rows && d + j < p.D ? from[row * stride + d + j] : T(0.0F);
    }
}

// ---- products of a warp: 16 MT rows by BN columns, or by COLS columns of D ----

// s = A B^T over W, A the warp's rows in shared memory, B (BN, W).
template <typename T, int W, int MT, int BN>
__device__ __forceinline__ void scores(float (&s)[MT][BN / 8][4], const T *a, const T *b)
{
    constexpr int STRIDE = row_of<W>::STRIDE;
    const int lane = (int)threadIdx.x % 32;
    const T *a_at = a + lane % 16 * STRIDE + lane / 16 * 8;
    const T *b_at = b + (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < BN / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                s[m][n][i] = 0;
#pragma unroll
    for (int k = 0; k < W; k += 16) {
        uint32_t a_of[MT][4];
#pragma unroll
        for (int m = 0; m < MT; ++m)
            load_matrices(a_of[m], a_at + m * 16 * STRIDE + k);
#pragma unroll
        for (int n = 0; n < BN; n += 16) {
            uint32_t b_of[4];
            load_matrices(b_of, b_at + n * STRIDE + k);
#pragma unroll
            for (int m = 0; m < MT; ++m) {
                multiply_add(s[m][n / 8], a_of[m], b_of[0], b_of[1], T());
                multiply_add(s[m][n / 8 + 1], a_of[m], b_of[2], b_of[3], T());
            }
        }
    }
}

// sum += S B, S (rows, BN) rounded to T, B (BN, COLS of W).
template <typename T, int W, int MT, int BN, int COLS>
__device__ __forceinline__ void add_product(float (&sum)[MT][COLS / 8][4],
                                            const float (&s)[MT][BN / 8][4], const T *b)
{
    constexpr int STRIDE = row_of<W>::STRIDE;
    const int lane = (int)threadIdx.x % 32;
    const T *b_at = b + lane % 16 * STRIDE + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < BN; k += 16) {
        uint32_t a_of[MT][4];
#pragma unroll
        for (int m = 0; m < MT; ++m) {
            const float(&low)[4] = s[m][k / 8], (&high)[4] = s[m][k / 8 + 1];
            a_of[m][0] = pack_pair(low[0], low[1], T());
            a_of[m][1] = pack_pair(low[2], low[3], T());
            a_of[m][2] = pack_pair(high[0], high[1], T());
            a_of[m][3] = pack_pair(high[2], high[3], T());
        }
#pragma unroll
        for (int n = 0; n < COLS; n += 16) {
            uint32_t b_of[4];
            load_matrices_transposed(b_of, b_at + k * STRIDE + n);
#pragma unroll
            for (int m = 0; m < MT; ++m) {
                multiply_add(sum[m][n / 8], a_of[m], b_of[0], b_of[1], T());
                multiply_add(sum[m][n / 8 + 1], a_of[m], b_of[2], b_of[3], T());
            }
        }
    }
}

template <int MT, int N> __device__ __forceinline__ void clear(float (&sum)[MT][N][4])
{
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                sum[m][n][i] = 0;
}

// Writes the warp's rows of COLS columns, times a factor a row, through shared memory that nobody
// else uses: `rows` of them exist, and `columns`.
template <typename T, int MT, int COLS, int STRIDE>
__device__ __forceinline__ void write_rows(T *to, int64_t stride, int64_t rows, int64_t columns,
                                           const float (&sum)[MT][COLS / 8][4],
                                           const float (&factor)[MT][2], T *space, bool vectors)
{
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < COLS / 8; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t pair = pack_pair(sum[m][n][2 * half] * factor[m][half],
                                                sum[m][n][2 * half + 1] * factor[m][half], T());
                memcpy(space + (m * 16 + half * 8 + g) * STRIDE + n * 8 + 2 * t, &pair,
                       sizeof pair);
            }
    __syncwarp();
    for (int i = lane; i < MT * 16 * (COLS / 8); i += 32) {
        const int row = i / (COLS / 8), d = i % (COLS / 8) * 8;
        const T *from = space + row * STRIDE + d;
        if (row >= rows)
            break;
        if (vectors && d < columns) {
            store_words(to + row * stride + d, load_words<uint4>(from));
            continue;
        }
        for (int j = 0; j < 8 && d + j < columns; ++j)
            to[row * stride + d + j] = from[j];
    }
}

// ---- a block's work ----

// The last tiles of a head have the most to do, so they begin first.
struct task {
    int64_t b, h, first; // first row of the tile
};
template <typename T> __device__ __forceinline__ task row_task(const problem<T> &p, int rows)
{
    const int64_t index = blockIdx.x, head = index / p.row_tiles;
    return {head / p.H, head % p.H, (p.row_tiles - 1 - index % p.row_tiles) * rows};
}

// -inf, which makes e^... 0, for scores of keys (columns) that a query (row) does not see;
// `distance`: from the column of s[0][0][0] of this thread to its row.
template <typename T, int MT, int BN>
__device__ __forceinline__ void hide(float (&s)[MT][BN / 8][4], int distance, const problem<T> &p)
{
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < BN / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (is_hidden(p, distance + m * 16 + i / 2 * 8 - n * 8 - i % 2))
                    s[m][n][i] = -INFINITY;
}

// Whether some of `rows` queries from `first` on do not see some of `columns` keys from `key` on.
template <typename T>
__device__ __forceinline__ bool hides(const problem<T> &p, int64_t first, int rows, int64_t key,
                                      int columns)
{
    return key + columns > first + p.after ||
           is_hidden(p, static_cast<int>(first + rows - 1 - key));
}

// The same for columns that do not exist or are of another segment than the row; `row` and `column`
// of s[0][0][0] of this thread.
template <typename T, int MT, int BN>
__device__ __forceinline__ void hide_others(float (&s)[MT][BN / 8][4], const problem<T> &p,
                                            int64_t b, int64_t row, int64_t column)
{
    const int32_t *segments = p.segments == nullptr ? nullptr : p.segments + b * p.T_;
    int32_t own[MT][2] = {};
#pragma unroll
    for (int i = 0; i < 2 * MT; ++i)
        if (segments != nullptr && row + i * 8 < p.T_)
            own[i / 2][i % 2] = segments[row + i * 8];
#pragma unroll
    for (int n = 0; n < BN / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int64_t at = column + n * 8 + i;
            const bool exists = at < p.T_;
            const int32_t segment = segments != nullptr && exists ? segments[at] : 0;
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    if (!exists || segment != own[m][half])
                        s[m][n][2 * half + i] = -INFINITY;
        }
}

// Whether that may be of columns from `key` on. Where no key is seen that lies behind the query,
// none is that does not exist.
template <typename T>
__device__ __forceinline__ bool has_others(const problem<T> &p, int64_t key, int columns)
{
    return p.segments != nullptr || (p.after > 0 && key + columns > p.T_);
}

// ---- dropout ----

// What of a warp's ROWS rows of queries by BN columns of keys is kept: a lane makes the bits of one
// row, or of a part of it, 8 keys at a time, and the others get them from it.
template <int MT, int BN> struct kept_rows {
    static constexpr int ROWS = 16 * MT, PARTS = 32 / ROWS, BLOCKS = BN / 8 / PARTS;
    uint32_t words[(BLOCKS + 3) / 4];
};

// `row`: the warp's first, of its sequence; `key`: the first column's.
template <int MT, int BN>
__device__ __forceinline__ kept_rows<MT, BN> keep_rows(const mics_mask &mask, int64_t row,
                                                       int64_t key)
{
    typedef kept_rows<MT, BN> kept;
    const int lane = (int)threadIdx.x % 32;
    const int64_t first = key / 8 + lane / kept::ROWS * kept::BLOCKS;
    kept keep = {};
#pragma unroll
    for (int block = 0; block < kept::BLOCKS; ++block)
        keep.words[block / 4] |= keep_bits(mask, first + block, row + lane % kept::ROWS)
                                 << block % 4 * 8;
    return keep;
}

// Multiplies what is kept, and clears the rest.
template <int MT, int BN>
__device__ __forceinline__ void drop_rows(float (&s)[MT][BN / 8][4], const kept_rows<MT, BN> &keep,
                                          float factor)
{
    typedef kept_rows<MT, BN> kept;
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int n = 0; n < BN / 8; ++n) {
                const int from = m * 16 + half * 8 + lane / 4 + n / kept::BLOCKS * kept::ROWS;
                const int block = n % kept::BLOCKS;
                const uint32_t word = __shfl_sync(0xffffffffU, keep.words[block / 4], from);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float &at = s[m][n][2 * half + i];
                    at = (word >> (block % 4 * 8 + lane % 4 * 2 + i) & 1U) != 0 ? at * factor : 0;
                }
            }
}

// The same with keys in rows and queries in columns: a lane makes the bits of one query. `row`: the
// warp's first key.
template <int MT, int BN>
__device__ __forceinline__ uint32_t keep_columns(const mics_mask &mask, int64_t row, int64_t query)
{
    const int lane = (int)threadIdx.x % 32;
    uint32_t keep = 0;
#pragma unroll
    for (int block = 0; block < 2 * MT; ++block)
        keep |= keep_bits(mask, row / 8 + block, query + lane % BN) << block * 8;
    return keep;
}

template <int MT, int BN>
__device__ __forceinline__ void drop_columns(float (&s)[MT][BN / 8][4], uint32_t keep, float factor)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < BN / 8; ++n)
#pragma unroll
        for (int column = 0; column < 2; ++column) {
            const uint32_t word =
                __shfl_sync(0xffffffffU, keep, n * 8 + lane % 4 * 2 + column) >> lane / 4;
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float &at = s[m][n][2 * half + column];
                    at = (word >> (m * 16 + half * 8) & 1U) != 0 ? at * factor : 0;
                }
        }
}

// ---- launches ----

// How much a block may have. Asking for the stream sets the thread's device.
inline size_t shared_limit(const mics_exec *at)
{
    stream_of(at);
    return mics_cuda_shared_limit();
}

// Whether a block may have so much; else the device fails, with what would work.
inline bool fits(const mics_exec *at, const mics_cuda_attention *a, size_t bytes)
{
    const size_t limit = shared_limit(at);
    if (bytes <= limit)
        return true;
    char what[80], why[200];
    snprintf(what, sizeof what, "attention in %s with head dimension %lld",
             mics_dtype_text(at->dtype), (long long)a->heads.dim);
    snprintf(why, sizeof why,
             "its kernel needs %zu bytes of shared memory a block, and this GPU has %zu; "
             "run.precision \"tf32\" or \"fp32\" would work",
             bytes, limit);
    mics_cuda_refused(what, why);
    return false;
}

} // namespace
