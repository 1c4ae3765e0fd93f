// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of many experts in one launch. Which rows are an expert's is known on the device alone: a
// block finds its tile's expert in what mics_cuda_experts_route made, and the grid has as many
// tiles of rows as there can be, ceil(rows / 128) + experts. Tiles behind those of experts clear
// what is dropped, for which they are always enough; those too many end at once.
//
// Two kernels, of any of the ways to multiply below:
//   rows:    C (rows, N) = A B, B being (K, N) of the row's expert, stored (N, K) or (K, N)
//   weights: C (M, N) of each expert (+)= A^T B over the expert's rows of A (., M) and B (., N)
// Rows of one operand may be those of tokens, in place of sorted ones. Rows that came from other
// ranks lie in blocks: an expert has a run in each, and its weights add up runs in their order.
//
// A block of 8 warps makes 128 x 128 numbers, 64 x 32 a warp, from slices of K that are 64 bytes
// deep: two are on their way to shared memory while one is multiplied. A number is summed in the
// order of K, in fp32, whatever stands beside it. Floor: 2 flops a product at the rate of mma.sync,
// which on sm_90 is some 60 % of what cuBLASLt's kernels reach there.
//
// Legend: "along": an operand's numbers along K lie together, so that its slice is (128, K part);
// else (K part, 128). Of lane l, g = l / 4 and t = l % 4, as in common/mma.cuh.
#pragma once

#include "ops/common/launch.cuh"
#include "ops/common/mma.cuh"
#include "ops/common/numbers.cuh"
#include "ops/experts/experts_cuda.h"

namespace
{

constexpr int TILE = MICS_CUDA_EXPERTS_TILE, THREADS = 256, STAGES = 3;
constexpr int WARP_ROWS = 64, WARP_COLUMNS = 32, WARPS_BESIDE = TILE / WARP_COLUMNS;
constexpr int ROW_TILES = WARP_ROWS / 16, COLUMN_TILES = WARP_COLUMNS / 8;
constexpr int BESIDE = 8; // tiles of columns whose blocks run next to each other

typedef float warp_sums[ROW_TILES][COLUMN_TILES][4];

// ---- slices in shared memory ----

// Rows are longer than their numbers, so that what a warp reads at once lies in different banks.
template <typename T, bool ALONG> struct slice {
    static constexpr int PACK = 16 / sizeof(T), DEPTH = 64 / sizeof(T);
    static constexpr int ROWS = ALONG ? TILE : DEPTH, WIDTH = ALONG ? DEPTH : TILE;
    static constexpr int STRIDE = ALONG ? DEPTH + PACK : TILE + 8, ELEMS = ROWS * STRIDE;
    static constexpr int PACKS = WIDTH / PACK, TURNS = ROWS * PACKS / THREADS; // of a thread
};

// What a tile needs of an operand: row i lies at row rows[i] of `from`, or at i.
template <typename T> struct operand {
    const T *from;
    int64_t stride;
    const int32_t *rows; // NULL: sorted ones
    int64_t count;       // that exist: of rows, or of columns where K goes down
};

// Copies a thread's part of an operand's slices.
template <typename T, bool ALONG> struct loader {
    typedef slice<T, ALONG> part;
    operand<T> of;
    int64_t K;
    bool vectors;
    const T *at[part::TURNS]; // ALONG: where each row begins; NULL: there is none

    __device__ __forceinline__ static int row_of(int turn)
    {
        return ((int)threadIdx.x + turn * THREADS) / part::PACKS;
    }
    __device__ __forceinline__ static int column_of(int turn)
    {
        return ((int)threadIdx.x + turn * THREADS) % part::PACKS * part::PACK;
    }
    __device__ __forceinline__ const T *row_at(int64_t row) const
    {
        return of.from + (of.rows != nullptr ? of.rows[row] : row) * of.stride;
    }
    __device__ __forceinline__ loader(const operand<T> &of_, int64_t K_, bool vectors_)
        : of(of_), K(K_), vectors(vectors_)
    {
#pragma unroll
        for (int turn = 0; turn < part::TURNS; ++turn)
            at[turn] = ALONG && row_of(turn) < of.count ? row_at(row_of(turn)) : nullptr;
    }
    // The slice from `k` on, with 0 for what does not exist.
    __device__ __forceinline__ void fetch(T *to, int64_t k) const
    {
#pragma unroll
        for (int turn = 0; turn < part::TURNS; ++turn) {
            const int row = row_of(turn), column = column_of(turn);
            const T *from = of.from;
            int64_t left = 0;
            if (ALONG && at[turn] != nullptr) {
                from = at[turn] + k + column;
                left = K - k - column;
            } else if (!ALONG && k + row < K) {
                from = row_at(k + row) + column;
                left = of.count - column;
            }
            copy(to + row * part::STRIDE + column, from, left);
        }
    }
    __device__ __forceinline__ void copy(T *to, const T *from, int64_t left) const
    {
        if (vectors) {
            copy_begin(to, left > 0 ? from : of.from, left > 0);
            return;
        }
        for (int i = 0; i < part::PACK; ++i)
            to[i] = i < left ? from[i] : T(0.0F);
    }
};

// ---- products of a warp, of one slice each ----

__device__ __forceinline__ int warp_row()
{
    return (int)threadIdx.x / 32 / WARPS_BESIDE * WARP_ROWS;
}
__device__ __forceinline__ int warp_column()
{
    return (int)threadIdx.x / 32 % WARPS_BESIDE * WARP_COLUMNS;
}

// bf16 or fp16 on tensor cores. BLOCKS: of a multiprocessor, for which its registers are enough.
template <typename Number> struct half_math {
    typedef Number T;
    static constexpr int BLOCKS = 2;
    template <bool A_ALONG, bool B_ALONG>
    static __device__ __forceinline__ void multiply(warp_sums &sum, const T *a, const T *b)
    {
        constexpr int SA = slice<T, A_ALONG>::STRIDE, SB = slice<T, B_ALONG>::STRIDE;
        const int lane = (int)threadIdx.x % 32, low = lane % 16, high = lane / 16 * 8;
        const int eight = lane / 8 % 2 * 8, within = lane % 8 + high;
        a += A_ALONG ? (warp_row() + low) * SA + high : within * SA + warp_row() + eight;
        b += B_ALONG ? (warp_column() + within) * SB + eight : low * SB + warp_column() + high;
#pragma unroll
        for (int k = 0; k < slice<T, true>::DEPTH; k += 16) {
            uint32_t a_of[ROW_TILES][4];
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m)
                if constexpr (A_ALONG)
                    load_matrices(a_of[m], a + m * 16 * SA + k);
                else
                    load_matrices_transposed(a_of[m], a + k * SA + m * 16);
#pragma unroll
            for (int n = 0; n < COLUMN_TILES; n += 2) {
                uint32_t b_of[4];
                if constexpr (B_ALONG)
                    load_matrices(b_of, b + n * 8 * SB + k);
                else
                    load_matrices_transposed(b_of, b + k * SB + n * 8);
#pragma unroll
                for (int m = 0; m < ROW_TILES; ++m) {
                    multiply_add(sum[m][n], a_of[m], b_of[0], b_of[1], T());
                    multiply_add(sum[m][n + 1], a_of[m], b_of[2], b_of[3], T());
                }
            }
        }
    }
};

// fp32 rounded to TF32, on tensor cores.
struct tf32_math {
    typedef float T;
    static constexpr int BLOCKS = 2;
    template <bool A_ALONG>
    static __device__ __forceinline__ void load_a(uint32_t (&to)[4], const float *a, int m, int k)
    {
        constexpr int S = slice<T, A_ALONG>::STRIDE;
        const int lane = (int)threadIdx.x % 32, row = warp_row() + m * 16;
        if constexpr (A_ALONG)
            load_matrices(to, a + (row + lane % 16) * S + k + lane / 16 * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            to[i] =
                to_tf32(A_ALONG ? __uint_as_float(to[i])
                                : a[(k + lane % 4 + i / 2 * 4) * S + row + lane / 4 + i % 2 * 8]);
    }
    // Of two tiles of columns.
    template <bool B_ALONG>
    static __device__ __forceinline__ void load_b(uint32_t (&to)[4], const float *b, int n, int k)
    {
        constexpr int S = slice<T, B_ALONG>::STRIDE;
        const int lane = (int)threadIdx.x % 32, column = warp_column() + n * 8;
        if constexpr (B_ALONG)
            load_matrices(to, b + (column + lane % 8 + lane / 16 * 8) * S + k + lane / 8 % 2 * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            to[i] = to_tf32(
                B_ALONG ? __uint_as_float(to[i])
                        : b[(k + lane % 4 + i % 2 * 4) * S + column + lane / 4 + i / 2 * 8]);
    }
    template <bool A_ALONG, bool B_ALONG>
    static __device__ __forceinline__ void multiply(warp_sums &sum, const T *a, const T *b)
    {
#pragma unroll
        for (int k = 0; k < slice<T, true>::DEPTH; k += 8) {
            uint32_t a_of[4], b_of[COLUMN_TILES / 2][4];
#pragma unroll
            for (int n = 0; n < COLUMN_TILES; n += 2)
                load_b<B_ALONG>(b_of[n / 2], b, n, k);
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m) {
                load_a<A_ALONG>(a_of, a, m, k);
#pragma unroll
                for (int n = 0; n < COLUMN_TILES; n += 2) {
                    multiply_add_tf32(sum[m][n], a_of, b_of[n / 2][0], b_of[n / 2][1]);
                    multiply_add_tf32(sum[m][n + 1], a_of, b_of[n / 2][2], b_of[n / 2][3]);
                }
            }
        }
    }
};

// fp32 in plain arithmetic; a lane's sums are those that it has of tensor cores.
struct fp32_math {
    typedef float T;
    static constexpr int BLOCKS = 1;
    template <bool A_ALONG, bool B_ALONG>
    static __device__ __forceinline__ void multiply(warp_sums &sum, const T *a, const T *b)
    {
        constexpr int SA = slice<T, A_ALONG>::STRIDE, SB = slice<T, B_ALONG>::STRIDE;
        constexpr int A_ROW = A_ALONG ? SA : 1, A_K = A_ALONG ? 1 : SA;
        constexpr int B_COLUMN = B_ALONG ? SB : 1, B_K = B_ALONG ? 1 : SB;
        const int lane = (int)threadIdx.x % 32;
        a += (warp_row() + lane / 4) * A_ROW;
        b += (warp_column() + lane % 4 * 2) * B_COLUMN;
#pragma unroll 4
        for (int k = 0; k < slice<T, true>::DEPTH; ++k) {
            float a_of[2 * ROW_TILES], b_of[2 * COLUMN_TILES];
#pragma unroll
            for (int m = 0; m < 2 * ROW_TILES; ++m)
                a_of[m] = a[m * 8 * A_ROW + k * A_K];
#pragma unroll
            for (int n = 0; n < 2 * COLUMN_TILES; ++n)
                b_of[n] = b[(n / 2 * 8 + n % 2) * B_COLUMN + k * B_K];
#pragma unroll
            for (int m = 0; m < 2 * ROW_TILES; ++m)
#pragma unroll
                for (int n = 0; n < 2 * COLUMN_TILES; ++n) {
                    float &to = sum[m / 2][n / 2][m % 2 * 2 + n % 2];
                    to = fmaf(a_of[m], b_of[n], to);
                }
        }
    }
};

// ---- a block's tile ----

// What a stage has, and a block of all of them.
template <typename T, bool A_ALONG, bool B_ALONG> struct stage_of {
    static constexpr int ELEMS = slice<T, A_ALONG>::ELEMS + slice<T, B_ALONG>::ELEMS;
    static constexpr size_t BLOCK_BYTES = STAGES * ELEMS * sizeof(T);
};

__device__ __forceinline__ void clear(warp_sums &sum)
{
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                sum[m][n][i] = 0;
}

// Adds all products of two operands over K; a warp whose numbers do not exist leaves its out.
// Afterwards `space` is free.
template <typename Math, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void
add_products(warp_sums &sum, const loader<typename Math::T, A_ALONG> &a,
             const loader<typename Math::T, B_ALONG> &b, typename Math::T *space)
{
    typedef typename Math::T T;
    constexpr int DEPTH = slice<T, true>::DEPTH, A_ELEMS = slice<T, A_ALONG>::ELEMS;
    constexpr int STAGE = stage_of<T, A_ALONG, B_ALONG>::ELEMS;
    const bool busy = warp_row() < a.of.count && warp_column() < b.of.count;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage * DEPTH < a.K) {
            a.fetch(space + stage * STAGE, stage * DEPTH);
            b.fetch(space + stage * STAGE + A_ELEMS, stage * DEPTH);
        }
        copy_commit();
    }
    int reads = 0, writes = STAGES - 1;
    for (int64_t k = 0; k < a.K; k += DEPTH) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        const int64_t later = k + (STAGES - 1) * DEPTH;
        if (later < a.K) {
            a.fetch(space + writes * STAGE, later);
            b.fetch(space + writes * STAGE + A_ELEMS, later);
        }
        copy_commit();
        const T *from = space + reads * STAGE;
        if (busy)
            Math::template multiply<A_ALONG, B_ALONG>(sum, from, from + A_ELEMS);
        reads = reads + 1 < STAGES ? reads + 1 : 0;
        writes = writes + 1 < STAGES ? writes + 1 : 0;
    }
    copy_wait<0>();
    __syncthreads();
}

// Where a tile of C goes; `rows` and `columns` of it exist.
template <typename Out> struct target {
    Out *to;
    int64_t stride, rows, columns;
    bool add, vectors;
};

// Eight numbers of a row, of which `count` exist, rounded once.
template <typename Out>
__device__ __forceinline__ void put_eight(const target<Out> &c, Out *to, const float *from,
                                          int64_t count)
{
    constexpr int PACK = 16 / sizeof(Out);
    if (c.vectors) {
#pragma unroll
        for (int i = 0; i < 8; i += PACK) {
            if (i >= count)
                return;
            mics_pack<Out, PACK> pack = {};
            if (c.add)
                pack = load_pack<PACK>(static_cast<const Out *>(to) + i);
#pragma unroll
            for (int j = 0; j < PACK; ++j)
                pack.at[j] = from_float<Out>(from[i + j] + (c.add ? to_float(pack.at[j]) : 0.0F));
            store_pack<PACK>(to + i, pack);
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < 8 && i < count; ++i)
        to[i] = from_float<Out>(from[i] + (c.add ? to_float(to[i]) : 0.0F));
}

// Writes the warp's numbers by way of its part of shared memory, 16 rows at a time.
template <typename Out>
__device__ __forceinline__ void put_sums(const target<Out> &c, const warp_sums &sum, float *space)
{
    constexpr int STRIDE = WARP_COLUMNS + 4;
    const int lane = (int)threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
    space += (int)threadIdx.x / 32 * 16 * STRIDE;
    if (warp_row() >= c.rows || warp_column() >= c.columns)
        return; // the whole warp
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                space[(row + i / 2 * 8) * STRIDE + n * 8 + column + i % 2] = sum[m][n][i];
        __syncwarp();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t to_row = warp_row() + m * 16 + half * 8 + row;
            const int64_t to_column = warp_column() + lane % 4 * 8;
            if (to_row < c.rows && to_column < c.columns)
                put_eight(c, c.to + to_row * c.stride + to_column,
                          space + (half * 8 + row) * STRIDE + lane % 4 * 8, c.columns - to_column);
        }
        __syncwarp();
    }
}

// ---- kernels ----

// C = A B of rows in runs, or where `tiles` is NULL, of `rows` rows and one matrix.
template <typename T, typename Out> struct rows_problem {
    const T *a, *b;
    Out *c;
    const int32_t *tokens, *first, *tiles; // tokens: a's rows are theirs; NULL: those of runs
    int32_t runs, block_runs;              // of a block
    int64_t a_gap, c_gap;                  // elements between the rows of two blocks
    int64_t rows, N, K, expert_elems, ldc, row_tiles, column_tiles;
    bool vectors, c_vectors;
};

// The last run whose first tile is not behind `tile`.
__device__ __forceinline__ int32_t run_of_tile(const int32_t *tiles, int32_t runs, int64_t tile)
{
    int32_t low = 0, high = runs;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (tiles[middle] <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename Math, bool B_ALONG, typename Out>
__global__ void __launch_bounds__(THREADS, Math::BLOCKS)
    grouped_rows(rows_problem<typename Math::T, Out> p)
{
    typedef typename Math::T T;
    MICS_DYNAMIC_SHARED(T, space);
    __shared__ Out *to[1]; // where the tile goes: registers are all in use meanwhile
    const int64_t band = static_cast<int64_t>(blockIdx.x) / (p.row_tiles * BESIDE) * BESIDE;
    const int64_t within = blockIdx.x - band * p.row_tiles, left = p.column_tiles - band;
    const int64_t beside = left < BESIDE ? left : BESIDE;
    const int64_t tile = within / beside, column = (band + within % beside) * TILE;
    int64_t first = tile * TILE, end = p.rows, expert = 0, block = 0, K = p.K;
    if (p.tiles != nullptr && tile >= p.tiles[p.runs]) {
        first = p.first[p.runs] + (tile - p.tiles[p.runs]) * TILE;
        K = 0;
        if (first >= end)
            return;
    } else if (p.tiles != nullptr) {
        const int32_t run = run_of_tile(p.tiles, p.runs, tile);
        expert = run % p.block_runs;
        block = run / p.block_runs;
        first = p.first[run] + (tile - p.tiles[run]) * TILE;
        end = p.first[run + 1];
    }
    const int64_t rows = end - first < TILE ? end - first : TILE;
    const int64_t columns = p.N - column < TILE ? p.N - column : TILE;
    const T *b = p.b + expert * p.expert_elems + (B_ALONG ? column * p.K : column);
    const operand<T> a_of = {p.tokens != nullptr ? p.a : p.a + first * p.K + block * p.a_gap, p.K,
                             p.tokens != nullptr ? p.tokens + first : nullptr, rows};
    const operand<T> b_of = {b, B_ALONG ? p.K : p.N, nullptr, columns};
    const loader<T, true> a(a_of, K, p.vectors);
    const loader<T, B_ALONG> b_slices(b_of, K, p.vectors);
    if (threadIdx.x == 0)
        to[0] = p.c + first * p.ldc + block * p.c_gap + column;
    warp_sums sum;
    clear(sum);
    add_products<Math, true, B_ALONG>(sum, a, b_slices, space);
    const target<Out> c = {to[0], p.ldc, rows, columns, false, p.c_vectors};
    put_sums(c, sum, reinterpret_cast<float *>(space));
}

// C = A^T B over the rows of each expert.
template <typename T> struct weights_problem {
    const T *a, *b;
    T *c;
    const int32_t *tokens, *first; // tokens: b's rows are theirs; NULL: those of runs
    int32_t blocks, block_runs;
    int64_t b_gap; // elements between the rows of two blocks
    int64_t M, N, expert_elems, row_tiles, column_tiles;
    bool add, vectors;
};

template <typename Math>
__global__ void __launch_bounds__(THREADS, Math::BLOCKS)
    grouped_weights(weights_problem<typename Math::T> p)
{
    typedef typename Math::T T;
    MICS_DYNAMIC_SHARED(T, space);
    const int64_t tiles = p.row_tiles * p.column_tiles, expert = blockIdx.x / tiles;
    const int64_t row = blockIdx.x % tiles / p.column_tiles * TILE;
    const int64_t column = blockIdx.x % p.column_tiles * TILE;
    const int64_t rows = p.M - row < TILE ? p.M - row : TILE;
    const int64_t columns = p.N - column < TILE ? p.N - column : TILE;
    bool any = false;
    warp_sums sum;
    clear(sum);
#pragma unroll 1
    for (int32_t block = 0; block < p.blocks; ++block) {
        const int64_t run = block * p.block_runs + expert;
        const int64_t first = p.first[run], K = p.first[run + 1] - first;
        if (K == 0)
            continue;
        const operand<T> a_of = {p.a + first * p.M + row, p.M, nullptr, rows};
        const operand<T> b_of = {p.b + (p.tokens != nullptr ? 0 : first * p.N + block * p.b_gap) +
                                     column,
                                 p.N, p.tokens != nullptr ? p.tokens + first : nullptr, columns};
        const loader<T, false> a(a_of, K, p.vectors), b(b_of, K, p.vectors);
        add_products<Math, false, false>(sum, a, b, space);
        any = true;
    }
    if (!any && p.add)
        return;
    T *to = p.c + expert * p.expert_elems + row * p.N + column;
    put_sums(target<T>{to, p.N, rows, columns, p.add, p.vectors}, sum,
             reinterpret_cast<float *>(space));
}

// ---- launches ----

inline bool on_sixteen(const void *a, const void *b, const void *c)
{
    return (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
            reinterpret_cast<uintptr_t>(c)) %
               16 ==
           0;
}

// Runs of a block: of sorted rows, which are one, an expert each.
inline int32_t block_runs_of(const mics_cuda_experts_gemm *g)
{
    return g->blocks > 0 ? g->experts + 1 : g->experts;
}

template <typename Math, bool B_ALONG, typename Out>
void launch_rows(const mics_cuda_experts_gemm *g, const mics_cuda_experts_rows *r)
{
    typedef typename Math::T T;
    constexpr int PACK = 16 / sizeof(T);
    constexpr size_t BYTES = stage_of<T, true, B_ALONG>::BLOCK_BYTES;
    const mics_cuda_routes *routes = g->routes;
    rows_problem<T, Out> p = {};
    p.a = static_cast<const T *>(r->a);
    p.b = static_cast<const T *>(g->weight);
    p.c = static_cast<Out *>(r->c);
    p.tokens = r->by_token ? routes->tokens : nullptr;
    p.first = routes != nullptr ? routes->first : nullptr;
    p.tiles = routes != nullptr ? routes->tiles : nullptr;
    p.block_runs = block_runs_of(g);
    p.runs = p.block_runs * (g->blocks > 0 ? g->blocks : 1);
    p.a_gap = B_ALONG ? g->x_gap : 0;
    p.c_gap = B_ALONG ? 0 : g->x_gap;
    p.rows = g->rows;
    p.N = B_ALONG ? g->O : g->I;
    p.K = B_ALONG ? g->I : g->O;
    p.expert_elems = g->expert_elems;
    p.ldc = r->stride > 0 ? r->stride : p.N;
    p.row_tiles = ceil_div(p.rows, TILE) + (routes != nullptr ? p.runs : 0);
    p.column_tiles = ceil_div(p.N, TILE);
    p.vectors = on_sixteen(p.a, p.b, nullptr) && p.K % PACK == 0 && p.expert_elems % PACK == 0 &&
                p.a_gap % PACK == 0 && (B_ALONG || p.N % PACK == 0);
    p.c_vectors = on_sixteen(p.c, nullptr, nullptr) && p.N % (16 / sizeof(Out)) == 0 &&
                  p.ldc % (16 / sizeof(Out)) == 0 && p.c_gap % (16 / sizeof(Out)) == 0;
    const cudaStream_t stream = stream_of(g->at);
    if (MICS_ALLOW_SHARED((grouped_rows<Math, B_ALONG, Out>), BYTES))
        MICS_LAUNCH((grouped_rows<Math, B_ALONG, Out>),
                    static_cast<unsigned>(p.row_tiles * p.column_tiles), THREADS, BYTES, stream, p);
}

template <typename Math>
void launch_weights(const mics_cuda_experts_gemm *g, const mics_cuda_experts_weights *w)
{
    typedef typename Math::T T;
    constexpr int PACK = 16 / sizeof(T);
    constexpr size_t BYTES = stage_of<T, false, false>::BLOCK_BYTES;
    weights_problem<T> p = {};
    p.a = static_cast<const T *>(w->dy);
    p.b = static_cast<const T *>(w->x);
    p.c = static_cast<T *>(w->dweight);
    p.tokens = w->by_token ? g->routes->tokens : nullptr;
    p.first = g->routes->first;
    p.blocks = g->blocks > 0 ? g->blocks : 1;
    p.block_runs = block_runs_of(g);
    p.b_gap = g->x_gap;
    p.M = g->O;
    p.N = g->I;
    p.expert_elems = g->expert_elems;
    p.row_tiles = ceil_div(p.M, TILE);
    p.column_tiles = ceil_div(p.N, TILE);
    p.add = w->add;
    p.vectors = on_sixteen(p.a, p.b, p.c) && p.M % PACK == 0 && p.N % PACK == 0 &&
                p.expert_elems % PACK == 0 && p.b_gap % PACK == 0;
    const cudaStream_t stream = stream_of(g->at);
    if (MICS_ALLOW_SHARED((grouped_weights<Math>), BYTES))
        MICS_LAUNCH((grouped_weights<Math>),
                    static_cast<unsigned>(g->experts * p.row_tiles * p.column_tiles), THREADS,
                    BYTES, stream, p);
}

} // namespace
