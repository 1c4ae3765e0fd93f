// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Causal self-attention on tensor cores, bf16 and fp16 with fp32 sums, as FlashAttention-2 (Dao,
// 2023, arXiv:2307.08691): tiles of queries and keys, a running maximum and sum, no T x T matrix in
// memory. qkv is read in place, rows of 3 C numbers.
//
// Backward is three kernels, without atomic sums, so that the same bits come out every time: delta
// = sum(dy * y) of each row; dk and dv of a tile of keys over all queries that see them; dq of a
// tile of queries over all keys that they see. The scores are computed twice, which makes 7
// products of 5 (section 3.1.2 of the paper adds dq atomically instead).
//
// Floors, with causal halves left out: forward 2 B H T^2 D flops, backward 5 B H T^2 D (these
// kernels: 7). Bytes: forward reads qkv and writes y and lse, 8 B T C + 4 B T H; backward reads
// qkv, y, dy, lse and writes dqkv, 16 B T C and some. With T >= 512 flops decide.
//
// Legend: a block has WARPS warps; each owns 16 * MT rows of the block's tile ("rows": queries, in
// dk dv keys), and walks over tiles of BN columns (keys, in dk dv queries), which are fetched one
// ahead. W: D rounded up to what a kernel is made for; what lies between is 0.
#include "ops/attention/attention_cuda.h"
#include "ops/attention/mma.cuh"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include <math.h>
#include <stdio.h>

namespace
{

constexpr float LOG2_E = 1.4426950408889634F;

// One attention as kernels see it. Strides in elements, of a token's row.
template <typename T> struct problem {
    const T *qkv, *y, *dy;
    T *y_out, *dqkv;
    float *lse, *delta;
    int64_t T_, H, D;
    int64_t row_tiles; // of one head
    float scale;       // 1 / sqrt(D)
    bool vectors;      // rows of heads begin on 16 bytes and are whole 16 bytes long
};

// Where a head of a sequence begins: part 0 query, 1 key, 2 value.
template <typename T>
__device__ __forceinline__ const T *part_of(const problem<T> &p, int64_t b, int64_t h, int part)
{
    return p.qkv + (b * p.T_ * 3 + part) * p.H * p.D + h * p.D;
}

// ---- tiles in shared memory ----

// Rows are 16 bytes longer than W numbers, so that 8 consecutive ones lie in different banks.
template <int W> struct row_of {
    static constexpr int STRIDE = W + 8;
};

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

// ---- forward ----

// The last tiles of a head have the most to do, so they begin first.
struct task {
    int64_t b, h, first; // first row of the tile
};
template <typename T> __device__ __forceinline__ task forward_task(const problem<T> &p, int rows)
{
    const int64_t index = blockIdx.x, head = index / p.row_tiles;
    return {head / p.H, head % p.H, (p.row_tiles - 1 - index % p.row_tiles) * rows};
}

// Scores of one tile to e^(score - maximum), with maximum and sum brought up to date and y
// rescaled.
template <int MT, int BN, int WN>
__device__ __forceinline__ void softmax_step(float (&s)[MT][BN / 8][4], float (&y)[MT][WN][4],
                                             float (&maximum)[MT][2], float (&sum)[MT][2],
                                             float scale_log2)
{
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float highest = maximum[m][half];
#pragma unroll
            for (int n = 0; n < BN / 8; ++n)
                highest = fmaxf(highest, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            highest = fmaxf(highest, __shfl_xor_sync(0xffffffffU, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(0xffffffffU, highest, 2));
            const float rescale = exp2_near((maximum[m][half] - highest) * scale_log2);
            const float offset = highest * scale_log2;
            maximum[m][half] = highest;
            float added = 0;
#pragma unroll
            for (int n = 0; n < BN / 8; ++n)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    s[m][n][i] = exp2_near(s[m][n][i] * scale_log2 - offset);
                    added += s[m][n][i];
                }
            sum[m][half] = sum[m][half] * rescale + added;
#pragma unroll
            for (int n = 0; n < WN; ++n) {
                y[m][n][2 * half] *= rescale;
                y[m][n][2 * half + 1] *= rescale;
            }
        }
}

// s where the column is past the row becomes `value`; column and row of s[0][0][0] of this thread.
template <int MT, int BN>
__device__ __forceinline__ void hide_above(float (&s)[MT][BN / 8][4], int64_t row, int64_t column,
                                           float value)
{
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < BN / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (column + n * 8 + i % 2 > row + m * 16 + i / 2 * 8)
                    s[m][n][i] = value;
}

template <typename T, int W, int MT, int WARPS, int BN>
__global__ void __launch_bounds__(32 * WARPS) attention_forward(problem<T> p)
{
    constexpr int ROWS = 16 * MT * WARPS, THREADS = 32 * WARPS, STRIDE = row_of<W>::STRIDE;
    constexpr int KEYS = BN * STRIDE; // of a tile of keys, or of values
    MICS_DYNAMIC_SHARED(T, space);
    T *q = space, *kv = space + ROWS * STRIDE;
    const task at = forward_task(p, ROWS);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t stride = 3 * p.H * p.D, end = at.first + ROWS < p.T_ ? at.first + ROWS : p.T_;
    const T *k_from = part_of(p, at.b, at.h, 1), *v_from = part_of(p, at.b, at.h, 2);
    fetch<T, W, ROWS, THREADS>(q, part_of(p, at.b, at.h, 0) + at.first * stride, stride,
                               p.T_ - at.first, p);
    fetch<T, W, BN, THREADS>(kv, k_from, stride, p.T_, p);
    fetch<T, W, BN, THREADS>(kv + KEYS, v_from, stride, p.T_, p);
    copy_commit();
    float y[MT][W / 8][4], maximum[MT][2], sum[MT][2];
    clear(y);
#pragma unroll
    for (int m = 0; m < MT; ++m)
        for (int half = 0; half < 2; ++half) {
            maximum[m][half] = -INFINITY;
            sum[m][half] = 0;
        }
    const T *q_warp = q + warp * 16 * MT * STRIDE;
    const int64_t row = at.first + warp * 16 * MT + lane / 4;
    for (int64_t key = 0, tile = 0; key < end; key += BN, ++tile) {
        const T *k = kv + tile % 2 * 2 * KEYS;
        if (key + BN < end) {
            T *next = kv + (tile + 1) % 2 * 2 * KEYS;
            const int64_t from = key + BN;
            fetch<T, W, BN, THREADS>(next, k_from + from * stride, stride, p.T_ - from, p);
            fetch<T, W, BN, THREADS>(next + KEYS, v_from + from * stride, stride, p.T_ - from, p);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        float s[MT][BN / 8][4];
        scores<T, W, MT, BN>(s, q_warp, k);
        if (key + BN > at.first + warp * 16 * MT)
            hide_above<MT, BN>(s, row, key + lane % 4 * 2, -INFINITY);
        softmax_step<MT, BN, W / 8>(s, y, maximum, sum, p.scale * LOG2_E);
        add_product<T, W, MT, BN, W>(y, s, k + KEYS);
        __syncthreads();
    }
    const int64_t first = at.first + warp * 16 * MT;
    float factor[MT][2];
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float total = sum[m][half];
            total += __shfl_xor_sync(0xffffffffU, total, 1);
            total += __shfl_xor_sync(0xffffffffU, total, 2);
            factor[m][half] = 1.0F / total;
            const int64_t t = row + m * 16 + half * 8;
            if (lane % 4 == 0 && t < p.T_)
                p.lse[(at.b * p.T_ + t) * p.H + at.h] = maximum[m][half] * p.scale + logf(total);
        }
    if (first < p.T_)
        write_rows<T, MT, W, STRIDE>(p.y_out + ((at.b * p.T_ + first) * p.H + at.h) * p.D,
                                     p.H * p.D, p.T_ - first, p.D, y, factor,
                                     q + warp * 16 * MT * STRIDE, p.vectors);
}

// ---- backward ----

// delta = sum over D of dy * y: LANES threads a row of a head, 16 bytes of each at a time. Rows of
// all heads follow each other in memory, so a warp reads 32 / LANES of them as one stretch. Floor:
// 4 B T C + 4 B T H bytes.
template <typename T, int LANES> __global__ void attention_delta(problem<T> p, int64_t rows)
{
    const int64_t row = grid_thread() / LANES;
    const int64_t end = row < rows ? p.D : 0; // all lanes come to the shuffles
    const int lane = (int)threadIdx.x % LANES;
    const T *y = p.y + row * p.D, *dy = p.dy + row * p.D;
    float sum = 0;
    if (p.vectors) {
        for (int64_t d = lane * 8; d < end; d += LANES * 8) {
            const mics_pack<T, 8> y8 = load_pack<8>(y + d), dy8 = load_pack<8>(dy + d);
#pragma unroll
            for (int j = 0; j < 8; ++j)
                sum += float(y8.at[j]) * float(dy8.at[j]);
        }
    } else {
        for (int64_t d = lane; d < end; d += LANES)
            sum += float(y[d]) * float(dy[d]);
    }
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffU, sum, lanes);
    if (lane == 0 && row < rows)
        p.delta[row] = sum;
}

// s (rows of queries) = e^(score - lse), and dp = dy . v, to s = p and dp = p (dp - delta).
template <int MT, int BN>
__device__ __forceinline__ void
softmax_gradient_rows(float (&s)[MT][BN / 8][4], float (&dp)[MT][BN / 8][4],
                      const float (&lse_log2)[MT][2], const float (&delta)[MT][2], float scale_log2)
{
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < BN / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float e = exp2_near(s[m][n][i] * scale_log2 - lse_log2[m][i / 2]);
                s[m][n][i] = e;
                dp[m][n][i] = e * (dp[m][n][i] - delta[m][i / 2]);
            }
}

template <typename T, int W, int MT, int WARPS, int BN>
__global__ void __launch_bounds__(32 * WARPS) attention_backward_q(problem<T> p)
{
    constexpr int ROWS = 16 * MT * WARPS, THREADS = 32 * WARPS, STRIDE = row_of<W>::STRIDE;
    constexpr int KEYS = BN * STRIDE;
    MICS_DYNAMIC_SHARED(T, space);
    T *q = space, *dy = q + ROWS * STRIDE, *kv = dy + ROWS * STRIDE;
    const task at = forward_task(p, ROWS);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t C = p.H * p.D, stride = 3 * C;
    const int64_t end = at.first + ROWS < p.T_ ? at.first + ROWS : p.T_;
    const T *k_from = part_of(p, at.b, at.h, 1), *v_from = part_of(p, at.b, at.h, 2);
    fetch<T, W, ROWS, THREADS>(q, part_of(p, at.b, at.h, 0) + at.first * stride, stride,
                               p.T_ - at.first, p);
    fetch<T, W, ROWS, THREADS>(dy, p.dy + (at.b * p.T_ + at.first) * C + at.h * p.D, C,
                               p.T_ - at.first, p);
    fetch<T, W, BN, THREADS>(kv, k_from, stride, p.T_, p);
    fetch<T, W, BN, THREADS>(kv + KEYS, v_from, stride, p.T_, p);
    copy_commit();
    const int64_t row = at.first + warp * 16 * MT + lane / 4;
    float dq[MT][W / 8][4], lse_log2[MT][2], delta[MT][2], factor[MT][2];
    clear(dq);
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t t = row + m * 16 + half * 8, index = (at.b * p.T_ + t) * p.H + at.h;
            lse_log2[m][half] = t < p.T_ ? p.lse[index] * LOG2_E : INFINITY;
            delta[m][half] = t < p.T_ ? p.delta[index] : 0;
            factor[m][half] = p.scale;
        }
    const int warp_rows = warp * 16 * MT * STRIDE;
    for (int64_t key = 0, tile = 0; key < end; key += BN, ++tile) {
        const T *k = kv + tile % 2 * 2 * KEYS;
        if (key + BN < end) {
            T *next = kv + (tile + 1) % 2 * 2 * KEYS;
            const int64_t from = key + BN;
            fetch<T, W, BN, THREADS>(next, k_from + from * stride, stride, p.T_ - from, p);
            fetch<T, W, BN, THREADS>(next + KEYS, v_from + from * stride, stride, p.T_ - from, p);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        float s[MT][BN / 8][4], dp[MT][BN / 8][4];
        scores<T, W, MT, BN>(s, q + warp_rows, k);
        if (key + BN > at.first + warp * 16 * MT)
            hide_above<MT, BN>(s, row, key + lane % 4 * 2, -INFINITY);
        scores<T, W, MT, BN>(dp, dy + warp_rows, k + KEYS);
        softmax_gradient_rows<MT, BN>(s, dp, lse_log2, delta, p.scale * LOG2_E);
        add_product<T, W, MT, BN, W>(dq, dp, k);
        __syncthreads();
    }
    const int64_t first = at.first + warp * 16 * MT;
    if (first < p.T_)
        write_rows<T, MT, W, STRIDE>(p.dqkv + (at.b * p.T_ + first) * stride + at.h * p.D, stride,
                                     p.T_ - first, p.D, dq, factor, q + warp_rows, p.vectors);
}

// Queries' log sums and deltas of one tile; a query that does not exist has a sum of infinity, so
// its e^... is 0.
template <typename T, int BN>
__device__ __forceinline__ void fetch_sums(float *sums, const problem<T> &p, const task &at,
                                           int64_t query)
{
    for (int i = (int)threadIdx.x; i < BN; i += (int)blockDim.x) {
        const int64_t t = query + i, index = (at.b * p.T_ + t) * p.H + at.h;
        sums[i] = t < p.T_ ? p.lse[index] * LOG2_E : INFINITY;
        sums[BN + i] = t < p.T_ ? p.delta[index] : 0;
    }
}

// As softmax_gradient_rows, with queries in columns. Keys past a query are hidden: those whose row
// is past the column.
template <int MT, int BN>
__device__ __forceinline__ void
softmax_gradient_columns(float (&s)[MT][BN / 8][4], float (&dp)[MT][BN / 8][4], const float *sums,
                         int64_t row, int64_t column, bool hide, float scale_log2)
{
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < BN / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = n * 8 + 2 * t + i % 2;
                const bool hidden = hide && row + m * 16 + i / 2 * 8 > column + n * 8 + i % 2;
                const float e = hidden ? 0.0F : exp2_near(s[m][n][i] * scale_log2 - sums[at]);
                s[m][n][i] = e;
                dp[m][n][i] = e * (dp[m][n][i] - sums[BN + at]);
            }
}

// COLS columns of dk and dv, from blockIdx.y * COLS on: with W = 256 all of them do not fit into
// registers, so two blocks have a half each, and both compute the scores.
template <typename T, int W, int MT, int WARPS, int BN, int COLS>
__global__ void __launch_bounds__(32 * WARPS) attention_backward_kv(problem<T> p)
{
    constexpr int ROWS = 16 * MT * WARPS, THREADS = 32 * WARPS, STRIDE = row_of<W>::STRIDE;
    constexpr int QUERIES = BN * STRIDE;
    MICS_DYNAMIC_SHARED(T, space);
    T *k = space, *v = k + ROWS * STRIDE, *qdy = v + ROWS * STRIDE;
    float *sums = reinterpret_cast<float *>(qdy + 4 * QUERIES); // two tiles: BN log sums, BN deltas
    const int64_t index = blockIdx.x, head = index / p.row_tiles;
    const task at = {head / p.H, head % p.H, index % p.row_tiles * ROWS};
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t C = p.H * p.D, stride = 3 * C, begin = at.first / BN * BN;
    const T *q_from = part_of(p, at.b, at.h, 0), *dy_from = p.dy + at.b * p.T_ * C + at.h * p.D;
    fetch<T, W, ROWS, THREADS>(k, part_of(p, at.b, at.h, 1) + at.first * stride, stride,
                               p.T_ - at.first, p);
    fetch<T, W, ROWS, THREADS>(v, part_of(p, at.b, at.h, 2) + at.first * stride, stride,
                               p.T_ - at.first, p);
    fetch<T, W, BN, THREADS>(qdy, q_from + begin * stride, stride, p.T_ - begin, p);
    fetch<T, W, BN, THREADS>(qdy + QUERIES, dy_from + begin * C, C, p.T_ - begin, p);
    copy_commit();
    fetch_sums<T, BN>(sums, p, at, begin);
    float dk[MT][COLS / 8][4], dv[MT][COLS / 8][4];
    clear(dk);
    clear(dv);
    const int warp_rows = warp * 16 * MT * STRIDE, from_column = (int)blockIdx.y * COLS;
    const int64_t row = at.first + warp * 16 * MT + lane / 4;
    for (int64_t query = begin, tile = 0; query < p.T_; query += BN, ++tile) {
        const T *q = qdy + tile % 2 * 2 * QUERIES;
        const float *sums_now = sums + tile % 2 * 2 * BN;
        if (query + BN < p.T_) {
            T *next = qdy + (tile + 1) % 2 * 2 * QUERIES;
            const int64_t from = query + BN;
            fetch<T, W, BN, THREADS>(next, q_from + from * stride, stride, p.T_ - from, p);
            fetch<T, W, BN, THREADS>(next + QUERIES, dy_from + from * C, C, p.T_ - from, p);
            fetch_sums<T, BN>(sums + (tile + 1) % 2 * 2 * BN, p, at, from);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        float s[MT][BN / 8][4], dp[MT][BN / 8][4];
        scores<T, W, MT, BN>(s, k + warp_rows, q);
        scores<T, W, MT, BN>(dp, v + warp_rows, q + QUERIES);
        softmax_gradient_columns<MT, BN>(s, dp, sums_now, row, query + lane % 4 * 2,
                                         query < at.first + (warp + 1) * 16 * MT, p.scale * LOG2_E);
        add_product<T, W, MT, BN, COLS>(dv, s, q + QUERIES + from_column);
        add_product<T, W, MT, BN, COLS>(dk, dp, q + from_column);
        __syncthreads();
    }
    const int64_t first = at.first + warp * 16 * MT;
    if (first >= p.T_)
        return;
    float factor[MT][2], one[MT][2];
#pragma unroll
    for (int m = 0; m < MT; ++m) {
        factor[m][0] = factor[m][1] = p.scale;
        one[m][0] = one[m][1] = 1.0F;
    }
    T *to = p.dqkv + ((at.b * p.T_ + first) * 3 + 1) * C + at.h * p.D + from_column;
    write_rows<T, MT, COLS, STRIDE>(to, stride, p.T_ - first, p.D - from_column, dk, factor,
                                    k + warp_rows, p.vectors);
    write_rows<T, MT, COLS, STRIDE>(to + C, stride, p.T_ - first, p.D - from_column, dv, one,
                                    v + warp_rows, p.vectors);
}

// ---- launches ----

template <typename T> problem<T> problem_of(const mics_op_place *at, const mics_cuda_attention *a)
{
    problem<T> p = {};
    p.qkv = static_cast<const T *>(a->qkv_N3C);
    p.y = static_cast<const T *>(a->y_NC);
    p.dy = static_cast<const T *>(a->dy_NC);
    p.y_out = static_cast<T *>(a->y_NC);
    p.dqkv = static_cast<T *>(a->dqkv_N3C);
    p.lse = a->lse_NH;
    p.delta = static_cast<float *>(at->workspace);
    p.T_ = a->T;
    p.H = a->H;
    p.D = a->D;
    p.scale = 1.0F / sqrtf((float)a->D);
    const uintptr_t addresses =
        (uintptr_t)a->qkv_N3C | (uintptr_t)a->y_NC | (uintptr_t)a->dy_NC | (uintptr_t)a->dqkv_N3C;
    p.vectors = a->D % 8 == 0 && addresses % 16 == 0;
    return p;
}

// Blocks of a kernel, and the tiles of a head set.
template <typename T> unsigned blocks_for(problem<T> *p, const mics_cuda_attention *a, int64_t rows)
{
    p->row_tiles = (a->T + rows - 1) / rows;
    return (unsigned)(p->row_tiles * a->B * a->H);
}

// What a block of each kernel takes of shared memory: its rows (of two matrices in backward), and
// two pairs of tiles; in dk dv their sums too.
template <typename T, int W, int MT, int WARPS, int BN> constexpr size_t forward_bytes()
{
    return (16 * MT * WARPS + 4 * BN) * row_of<W>::STRIDE * sizeof(T);
}
template <typename T, int W, int MT, int WARPS, int BN> constexpr size_t backward_q_bytes()
{
    return (2 * 16 * MT * WARPS + 4 * BN) * row_of<W>::STRIDE * sizeof(T);
}
template <typename T, int W, int MT, int WARPS, int BN> constexpr size_t backward_kv_bytes()
{
    return backward_q_bytes<T, W, MT, WARPS, BN>() + 4 * BN * sizeof(float);
}

// How much a block may have. Asking for the stream sets the thread's device.
size_t shared_limit(const mics_op_place *at)
{
    stream_of(at);
    return mics_cuda_shared_limit();
}

// Whether a block may have so much; else the device fails, with what would work.
bool fits(const mics_op_place *at, const mics_cuda_attention *a, size_t bytes)
{
    const size_t limit = shared_limit(at);
    if (bytes <= limit)
        return true;
    char what[80], why[200];
    snprintf(what, sizeof what, "attention in %s with head dimension %lld",
             mics_dtype_text(at->dtype), (long long)a->D);
    snprintf(why, sizeof why,
             "its kernel needs %zu bytes of shared memory a block, and this GPU has %zu; "
             "run.precision \"tf32\" or \"fp32\" would work",
             bytes, limit);
    mics_cuda_refused(what, why);
    return false;
}

template <typename T, int W, int MT, int WARPS, int BN>
void launch_forward(const mics_op_place *at, const mics_cuda_attention *a)
{
    constexpr size_t BYTES = forward_bytes<T, W, MT, WARPS, BN>();
    problem<T> p = problem_of<T>(at, a);
    const unsigned blocks = blocks_for(&p, a, 16 * MT * WARPS);
    const cudaStream_t stream = stream_of(at);
    if (fits(at, a, BYTES) && MICS_ALLOW_SHARED((attention_forward<T, W, MT, WARPS, BN>), BYTES))
        MICS_LAUNCH((attention_forward<T, W, MT, WARPS, BN>), blocks, 32 * WARPS, BYTES, stream, p);
}

template <typename T, int W, int MT, int WARPS, int BN>
void launch_backward_q(const mics_op_place *at, const mics_cuda_attention *a)
{
    constexpr size_t BYTES = backward_q_bytes<T, W, MT, WARPS, BN>();
    problem<T> p = problem_of<T>(at, a);
    const unsigned blocks = blocks_for(&p, a, 16 * MT * WARPS);
    const cudaStream_t stream = stream_of(at);
    if (fits(at, a, BYTES) && MICS_ALLOW_SHARED((attention_backward_q<T, W, MT, WARPS, BN>), BYTES))
        MICS_LAUNCH((attention_backward_q<T, W, MT, WARPS, BN>), blocks, 32 * WARPS, BYTES, stream,
                    p);
}

template <typename T, int W, int MT, int WARPS, int BN, int COLS>
void launch_backward_kv(const mics_op_place *at, const mics_cuda_attention *a)
{
    constexpr size_t BYTES = backward_kv_bytes<T, W, MT, WARPS, BN>();
    problem<T> p = problem_of<T>(at, a);
    const dim3 blocks(blocks_for(&p, a, 16 * MT * WARPS), (unsigned)ceil_div(a->D, COLS));
    const cudaStream_t stream = stream_of(at);
    if (fits(at, a, BYTES) &&
        MICS_ALLOW_SHARED((attention_backward_kv<T, W, MT, WARPS, BN, COLS>), BYTES))
        MICS_LAUNCH((attention_backward_kv<T, W, MT, WARPS, BN, COLS>), blocks, 32 * WARPS, BYTES,
                    stream, p);
}

template <typename T, int LANES>
void launch_delta_by(const mics_op_place *at, const problem<T> &p, int64_t rows)
{
    constexpr int THREADS = 256;
    MICS_LAUNCH((attention_delta<T, LANES>), (unsigned)ceil_div(rows * LANES, THREADS), THREADS, 0,
                stream_of(at), p, rows);
}

// The fewest lanes, from 4 on, that hold a row with 16 bytes each. How many there are does not
// change the sum: the others would add zeros.
template <typename T> void launch_delta(const mics_op_place *at, const mics_cuda_attention *a)
{
    const problem<T> p = problem_of<T>(at, a);
    const int64_t rows = a->B * a->T * a->H;
    if (!p.vectors || a->D > 128)
        launch_delta_by<T, 32>(at, p, rows);
    else if (a->D > 64)
        launch_delta_by<T, 16>(at, p, rows);
    else if (a->D > 32)
        launch_delta_by<T, 8>(at, p, rows);
    else
        launch_delta_by<T, 4>(at, p, rows);
}

// Rows a warp and columns a tile are the largest that fit into registers: every row more a warp
// halves what is read of shared memory for a product, which is what limits these kernels.
//
// Shared memory: 54 to 135 KiB a block where a GPU grants 163 (compute capability 8.0) or 227 (9.0,
// 10.0). Where it grants 99 (8.6, 8.9, 12.x), heads of more than 96 have smaller tiles. The GPU
// alone decides, so a run's bits are the same on all GPUs of a kind.
//
// ptxas of CUDA 13.0, for 8.0, 8.6, 8.9 and 9.0: 128 to 255 registers; forward at 128 with the
// larger tiles spills 36 to 48 bytes, dk dv at 64 spills 16 to 28, nothing else. Not yet tuned on a
// chip.
template <typename T> void forward(const mics_op_place *at, const mics_cuda_attention *a)
{
    if (a->D <= 64)
        launch_forward<T, 64, 2, 4, 64>(at, a);
    else if (a->D <= 96)
        launch_forward<T, 96, 2, 4, 64>(at, a);
    else if (a->D > 128)
        launch_forward<T, 256, 1, 4, 32>(at, a); // 99 KiB, to the byte
    else if (shared_limit(at) >= forward_bytes<T, 128, 2, 4, 64>())
        launch_forward<T, 128, 2, 4, 64>(at, a);
    else
        launch_forward<T, 128, 2, 4, 32>(at, a);
}

template <typename T> void backward(const mics_op_place *at, const mics_cuda_attention *a)
{
    const size_t limit = shared_limit(at);
    launch_delta<T>(at, a);
    if (a->D <= 64) {
        launch_backward_kv<T, 64, 2, 4, 32, 64>(at, a);
        launch_backward_q<T, 64, 2, 4, 32>(at, a);
    } else if (a->D <= 96) {
        launch_backward_kv<T, 96, 1, 8, 32, 96>(at, a);
        launch_backward_q<T, 96, 2, 4, 32>(at, a);
    } else if (a->D <= 128 && limit >= backward_kv_bytes<T, 128, 1, 8, 32>()) {
        launch_backward_kv<T, 128, 1, 8, 32, 128>(at, a);
        launch_backward_q<T, 128, 1, 8, 32>(at, a);
    } else if (a->D <= 128) {
        launch_backward_kv<T, 128, 1, 6, 32, 128>(at, a);
        launch_backward_q<T, 128, 1, 6, 32>(at, a);
    } else if (limit >= backward_kv_bytes<T, 256, 1, 4, 32>()) {
        launch_backward_kv<T, 256, 1, 4, 32, 128>(at, a);
        launch_backward_q<T, 256, 1, 4, 32>(at, a);
    } else {
        launch_backward_kv<T, 256, 1, 3, 16, 128>(at, a);
        launch_backward_q<T, 256, 1, 4, 16>(at, a);
    }
}

} // namespace

void mics_cuda_attention_tiles_forward(const mics_op_place *at, const mics_cuda_attention *a)
{
    if (at->dtype == MICS_DTYPE_BF16)
        forward<__nv_bfloat16>(at, a);
    else
        forward<__half>(at, a);
}

void mics_cuda_attention_tiles_backward(const mics_op_place *at, const mics_cuda_attention *a)
{
    if (at->dtype == MICS_DTYPE_BF16)
        backward<__nv_bfloat16>(at, a);
    else
        backward<__half>(at, a);
}
