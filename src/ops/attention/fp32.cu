// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Self-attention in plain fp32 arithmetic: what the tensor cores' kernels are compared with,
// and what fp32 runs and head dimensions past 256 use. Tiles as in tiles.cuh, 64 rows by
// 64 columns, with every product a loop of fused multiply-adds in a fixed order. Any type is read
// and written, any D.
//
// Floors: as in tiles.cuh, at the rate of fp32 arithmetic (66 TFLOP/s on an H200); columns of D
// past 256 are done by further blocks, which compute the scores anew.
//
// Legend: 256 threads. For a tile of scores thread i has rows 4 (i / 16) to + 3 and columns 4 (i %
// 16) to + 3; for sums over columns of D, row i / 4, and of each chunk of 32 columns those from 8
// (i % 4) to + 7.
#include "ops/attention/problem.cuh"

namespace
{

constexpr int TILE = 64, CHUNK = 32, THREADS = 256;

// Rows of D numbers of one head, `stride` elements apart, of which `rows` exist.
template <typename T> struct rows_of {
    const T *at;
    int64_t stride, rows;
};

struct spaces {
    float a[TILE][CHUNK + 1], b[TILE][CHUNK + 1];
    float s[TILE][TILE + 1];
    float lse[TILE], delta[TILE];
    narrowing narrowing_in;
};

// Rows from `first` on of what begins at `part`.
template <typename T>
__device__ rows_of<T> rows_from(const problem<T> &p, const T *part, int64_t first)
{
    return {part + first * p.row, p.row, p.T_ - first};
}

template <typename T>
__device__ rows_of<T> gradient_of(const problem<T> &p, int64_t b, int64_t h, int64_t first)
{
    return {p.dy + ((b * p.T_ + first) * p.H + h) * p.D, p.H * p.D, p.T_ - first};
}

// 64 rows, columns d to d + 31; 0 for what does not exist.
template <typename T>
__device__ void fetch(float (&tile)[TILE][CHUNK + 1], const rows_of<T> &from, int64_t d, int64_t D)
{
    for (int i = (int)threadIdx.x; i < TILE * CHUNK; i += THREADS) {
        const int row = i / CHUNK, column = i % CHUNK;
        const bool valid = row < from.rows && d + column < D;
        tile[row][column] = valid ? float(from.at[row * from.stride + d + column]) : 0.0F;
    }
}

// s = A B^T over D.
template <typename T>
__device__ void scores(float (&s)[4][4], const rows_of<T> &a, const rows_of<T> &b, int64_t D,
                       spaces &at)
{
    const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    for (int i = 0; i < 16; ++i)
        s[i / 4][i % 4] = 0;
    for (int64_t d = 0; d < D; d += CHUNK) {
        __syncthreads();
        fetch(at.a, a, d, D);
        fetch(at.b, b, d, D);
        __syncthreads();
        for (int k = 0; k < CHUNK; ++k)
#pragma unroll
            for (int i = 0; i < 16; ++i)
                s[i / 4][i % 4] =
                    fmaf(at.a[row + i / 4][k], at.b[column + i % 4][k], s[i / 4][i % 4]);
    }
}

// Puts a thread's 4 x 4 scores where all see them.
__device__ void share(spaces &at, const float (&s)[4][4])
{
    const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    __syncthreads();
    for (int i = 0; i < 16; ++i)
        at.s[row + i / 4][column + i % 4] = s[i / 4][i % 4];
    __syncthreads();
}

// sum += S B for columns from `d` on, S as shared.
template <typename T, int CHUNKS>
__device__ void add_product(float (&sum)[CHUNKS][8], const rows_of<T> &b, int64_t d, int64_t D,
                            spaces &at)
{
    const int row = (int)threadIdx.x / 4, column = (int)threadIdx.x % 4 * 8;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        __syncthreads();
        fetch(at.b, b, d + chunk * CHUNK, D);
        __syncthreads();
        for (int k = 0; k < TILE; ++k)
#pragma unroll
            for (int j = 0; j < 8; ++j)
                sum[chunk][j] = fmaf(at.s[row][k], at.b[k][column + j], sum[chunk][j]);
    }
}

// Writes this thread's row, times `factor`.
template <typename T, int CHUNKS>
__device__ void write_row(T *to, const float (&sum)[CHUNKS][8], float factor, int64_t d, int64_t D)
{
    const int column = (int)threadIdx.x % 4 * 8;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk)
#pragma unroll
        for (int j = 0; j < 8; ++j)
            if (d + chunk * CHUNK + column + j < D)
                to[d + chunk * CHUNK + column + j] = T(sum[chunk][j] * factor);
}

struct task {
    int64_t b, h, first;
};
template <typename T> __device__ task task_of(const problem<T> &p, int64_t heads)
{
    const int64_t index = blockIdx.x, head = index / p.row_tiles;
    return {head / heads, head % heads, (p.row_tiles - 1 - index % p.row_tiles) * TILE};
}

// Whether a key does not exist or is of another segment.
template <typename T>
__device__ __forceinline__ bool is_other(const problem<T> &p, int64_t b, int64_t query, int64_t key)
{
    if (key >= p.T_)
        return true;
    const int32_t *segments = p.segments + b * p.T_;
    return p.segments != nullptr && query < p.T_ && segments[query] != segments[key];
}

// Of a thread's 4 x 4 scores, of which the first is of `query` and `key`: bit 4 i + j is whether
// that of row i and column j is kept. Keys are in columns, or where TURNED in rows. A thread's keys
// are in one block.
template <bool TURNED>
__device__ uint32_t keep_scores(const mics_mask &mask, int64_t query, int64_t key)
{
    uint32_t keep = 0;
    for (int q = 0; q < 4; ++q) {
        const uint32_t bits = keep_bits(mask, key / 8, query + q) >> key % 8 & 15U;
        for (int k = 0; k < 4; ++k)
            keep |= (bits >> k & 1U) << (TURNED ? 4 * k + q : 4 * q + k);
    }
    return keep;
}

// Clears what is dropped of this thread's 16 shared scores: of row threadIdx.x / 4, which is
// `query`, from column 16 (threadIdx.x % 4) on; column 0 is `key`.
__device__ void drop_shared(spaces &at, const mics_mask &mask, int64_t query, int64_t key)
{
    const int column = (int)threadIdx.x % 4 * 16;
    float *s = at.s[threadIdx.x / 4] + column;
    const uint32_t keep = keep_bits(mask, (key + column) / 8, query) |
                          keep_bits(mask, (key + column) / 8 + 1, query) << 8;
    for (int k = 0; k < 16; ++k)
        s[k] = (keep >> k & 1U) != 0 ? s[k] : 0.0F;
}

// Shared scores of row threadIdx.x / 4 to e^(score - maximum); returns by how much what was summed
// so far shrinks.
__device__ float softmax_step(spaces &at, float *maximum, float *sum)
{
    float *s = at.s[threadIdx.x / 4] + threadIdx.x % 4 * 16;
    float highest = *maximum, added = 0;
    for (int k = 0; k < 16; ++k)
        highest = fmaxf(highest, s[k]);
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffU, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffU, highest, 2));
    for (int k = 0; k < 16; ++k) {
        s[k] = expf(s[k] - highest);
        added += s[k];
    }
    const float rescale = expf(*maximum - highest);
    *maximum = highest;
    *sum = *sum * rescale + added;
    return rescale;
}

template <typename T, int CHUNKS, bool DROPS>
__global__ void __launch_bounds__(THREADS) attention_fp32_forward(problem<T> p, mics_masks masks)
{
    __shared__ spaces at;
    const task t = task_of(p, p.H);
    const int64_t d = (int64_t)blockIdx.y * CHUNKS * CHUNK;
    const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    const rows_of<T> q = rows_from(p, queries_of(p, t.b, t.h), t.first);
    const T *keys = keys_of(p, t.b, t.h / p.shared), *values = values_of(p, t.b, t.h / p.shared);
    float y[CHUNKS][8] = {}, maximum = LOWEST, sum = 0;
    const token_range range = keys_seen(p, at.narrowing_in, t.b, t.first, TILE, TILE);
    for (int64_t key = range.begin; key < range.end; key += TILE) {
        float s[4][4];
        scores(s, q, rows_from(p, keys, key), p.D, at);
        const int distance = (int)(t.first - key) + row - column;
        for (int i = 0; i < 16; ++i)
            s[i / 4][i % 4] = is_hidden(p, distance + i / 4 - i % 4) ||
                                      is_other(p, t.b, t.first + row + i / 4, key + column + i % 4)
                                  ? -INFINITY
                                  : s[i / 4][i % 4] * p.scale;
        share(at, s);
        const float rescale = softmax_step(at, &maximum, &sum);
        if constexpr (DROPS)
            drop_shared(at, mask_at(masks, t.b, t.h), t.first + threadIdx.x / 4, key);
        for (int i = 0; i < CHUNKS * 8; ++i)
            y[i / 8][i % 8] *= rescale;
        add_product<T, CHUNKS>(y, rows_from(p, values, key), d, p.D, at);
    }
    sum += __shfl_xor_sync(0xffffffffU, sum, 1);
    sum += __shfl_xor_sync(0xffffffffU, sum, 2);
    const int64_t query = t.first + threadIdx.x / 4, index = (t.b * p.T_ + query) * p.H + t.h;
    if (query >= p.T_)
        return;
    write_row<T, CHUNKS>(p.y_out + index * p.D, y, (DROPS ? masks.scale : 1.0F) / sum, d, p.D);
    if (threadIdx.x % 4 == 0 && blockIdx.y == 0)
        p.lse[index] = maximum + logf(sum);
}

// delta = sum over D of dy * y, a warp a row of a head, and a barrier for none.
template <typename T> __global__ void attention_fp32_delta(problem<T> p, int64_t rows)
{
    const int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows)
        return;
    float sum = 0;
    for (int64_t d = threadIdx.x % 32; d < p.D; d += 32)
        sum = fmaf(float(p.y[row * p.D + d]), float(p.dy[row * p.D + d]), sum);
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffU, sum, lanes);
    if (threadIdx.x % 32 == 0)
        p.delta[row] = sum;
}

// lse and delta of 64 queries; a query that does not exist has a sum of infinity, so its e^... is
// 0.
template <typename T>
__device__ void fetch_sums(const problem<T> &p, int64_t b, int64_t h, int64_t query, spaces &at)
{
    __syncthreads();
    for (int i = (int)threadIdx.x; i < TILE; i += THREADS) {
        const int64_t index = (b * p.T_ + query + i) * p.H + h;
        at.lse[i] = query + i < p.T_ ? p.lse[index] : INFINITY;
        at.delta[i] = query + i < p.T_ ? p.delta[index] : 0.0F;
    }
    __syncthreads();
}

// What bit i of `keep` makes of a number.
template <bool DROPS>
__device__ __forceinline__ float kept_factor(const mics_masks &masks, uint32_t keep, int i)
{
    if constexpr (DROPS)
        return (keep >> i & 1U) != 0 ? masks.scale : 0.0F;
    else
        return 1.0F;
}

template <typename T, int CHUNKS, bool DROPS>
__global__ void __launch_bounds__(THREADS) attention_fp32_backward_q(problem<T> p, mics_masks masks)
{
    __shared__ spaces at;
    const task t = task_of(p, p.H);
    const int64_t d = (int64_t)blockIdx.y * CHUNKS * CHUNK;
    const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    const rows_of<T> q = rows_from(p, queries_of(p, t.b, t.h), t.first);
    const rows_of<T> dy = gradient_of(p, t.b, t.h, t.first);
    const T *keys = keys_of(p, t.b, t.h / p.shared), *values = values_of(p, t.b, t.h / p.shared);
    float dq[CHUNKS][8] = {};
    fetch_sums(p, t.b, t.h, t.first, at);
    const token_range range = keys_seen(p, at.narrowing_in, t.b, t.first, TILE, TILE);
    for (int64_t key = range.begin; key < range.end; key += TILE) {
        float s[4][4], dp[4][4];
        scores(s, q, rows_from(p, keys, key), p.D, at);
        scores(dp, dy, rows_from(p, values, key), p.D, at);
        const int distance = (int)(t.first - key) + row - column;
        uint32_t keep = 0;
        if constexpr (DROPS)
            keep = keep_scores<false>(mask_at(masks, t.b, t.h), t.first + row, key + column);
        for (int i = 0; i < 16; ++i) {
            const int r = row + i / 4;
            const bool hidden = is_hidden(p, distance + i / 4 - i % 4) ||
                                is_other(p, t.b, t.first + r, key + column + i % 4);
            const float e = hidden ? 0.0F : expf(s[i / 4][i % 4] * p.scale - at.lse[r]);
            const float kept = kept_factor<DROPS>(masks, keep, i);
            s[i / 4][i % 4] = e * (dp[i / 4][i % 4] * kept - at.delta[r]);
        }
        share(at, s);
        add_product<T, CHUNKS>(dq, rows_from(p, keys, key), d, p.D, at);
    }
    const int64_t query = t.first + threadIdx.x / 4;
    if (query < p.T_)
        write_row<T, CHUNKS>(p.dqkv + (t.b * p.T_ + query) * p.row + t.h * p.D, dq, p.scale, d,
                             p.D);
}

// dk += ds q and dv += p dy, over the queries of one head.
template <typename T, int CHUNKS, bool DROPS>
__device__ void add_queries(const problem<T> &p, const mics_masks &masks, const task &t, int64_t h,
                            int64_t d, float (&dk)[CHUNKS][8], float (&dv)[CHUNKS][8], spaces &at)
{
    const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    const rows_of<T> k = rows_from(p, keys_of(p, t.b, t.h), t.first);
    const rows_of<T> v = rows_from(p, values_of(p, t.b, t.h), t.first);
    const token_range range = queries_seeing(p, at.narrowing_in, t.b, t.first, TILE, TILE);
    for (int64_t query = range.begin; query < range.end; query += TILE) {
        const rows_of<T> q = rows_from(p, queries_of(p, t.b, h), query);
        const rows_of<T> dy = gradient_of(p, t.b, h, query);
        float s[4][4], dp[4][4];
        fetch_sums(p, t.b, h, query, at);
        scores(s, k, q, p.D, at);
        scores(dp, v, dy, p.D, at);
        const int distance = (int)(query - t.first) + column - row;
        uint32_t keep = 0;
        if constexpr (DROPS)
            keep = keep_scores<true>(mask_at(masks, t.b, h), query + column, t.first + row);
        for (int i = 0; i < 16; ++i) {
            const int c = column + i % 4;
            const bool hidden = is_hidden(p, distance + i % 4 - i / 4) ||
                                is_other(p, t.b, query + c, t.first + row + i / 4);
            const float e = hidden ? 0.0F : expf(s[i / 4][i % 4] * p.scale - at.lse[c]);
            const float kept = kept_factor<DROPS>(masks, keep, i);
            s[i / 4][i % 4] = e * kept;
            dp[i / 4][i % 4] = e * (dp[i / 4][i % 4] * kept - at.delta[c]);
        }
        share(at, s);
        add_product<T, CHUNKS>(dv, dy, d, p.D, at);
        share(at, dp);
        add_product<T, CHUNKS>(dk, q, d, p.D, at);
    }
}

template <typename T, int CHUNKS, bool DROPS>
__global__ void __launch_bounds__(THREADS)
    attention_fp32_backward_kv(problem<T> p, mics_masks masks)
{
    __shared__ spaces at;
    const task t = task_of(p, p.K); // of a key-value head
    const int64_t d = (int64_t)blockIdx.y * CHUNKS * CHUNK;
    float dk[CHUNKS][8] = {}, dv[CHUNKS][8] = {};
    for (int64_t h = t.h * p.shared; h < (t.h + 1) * p.shared; ++h)
        add_queries<T, CHUNKS, DROPS>(p, masks, t, h, d, dk, dv, at);
    const int64_t key = t.first + threadIdx.x / 4;
    if (key >= p.T_)
        return;
    T *to = p.dqkv + (t.b * p.T_ + key) * p.row + (p.H + t.h) * p.D;
    write_row<T, CHUNKS>(to, dk, p.scale, d, p.D);
    write_row<T, CHUNKS>(to + p.K * p.D, dv, 1.0F, d, p.D);
}

// ---- launches ----

template <typename T, int CHUNKS>
dim3 grid(const problem<T> &p, const mics_cuda_attention *a, int64_t heads)
{
    return dim3(blocks_of(p, a, heads), (unsigned)ceil_div(p.D, CHUNKS * CHUNK));
}

template <typename T, int CHUNKS, bool DROPS>
void forward_by(const mics_exec *at, const mics_cuda_attention *a)
{
    const problem<T> p = problem_of<T>(at, a, TILE);
    MICS_LAUNCH((attention_fp32_forward<T, CHUNKS, DROPS>), (grid<T, CHUNKS>(p, a, p.H)), THREADS,
                0, stream_of(at), p, mics_masks_of(a->call));
}

template <typename T, int CHUNKS> void forward(const mics_exec *at, const mics_cuda_attention *a)
{
    if (mics_masks_of(a->call).draw != nullptr)
        forward_by<T, CHUNKS, true>(at, a);
    else
        forward_by<T, CHUNKS, false>(at, a);
}

template <typename T, int CHUNKS, bool DROPS>
void backward_by(const mics_exec *at, const mics_cuda_attention *a)
{
    const problem<T> p = problem_of<T>(at, a, TILE);
    const int64_t rows = a->B * a->T * p.H;
    MICS_LAUNCH((attention_fp32_delta<T>), (unsigned)((rows + 7) / 8), THREADS, 0, stream_of(at), p,
                rows);
    MICS_LAUNCH((attention_fp32_backward_kv<T, CHUNKS, DROPS>), (grid<T, CHUNKS>(p, a, p.K)),
                THREADS, 0, stream_of(at), p, mics_masks_of(a->call));
    MICS_LAUNCH((attention_fp32_backward_q<T, CHUNKS, DROPS>), (grid<T, CHUNKS>(p, a, p.H)),
                THREADS, 0, stream_of(at), p, mics_masks_of(a->call));
}

template <typename T, int CHUNKS> void backward(const mics_exec *at, const mics_cuda_attention *a)
{
    if (mics_masks_of(a->call).draw != nullptr)
        backward_by<T, CHUNKS, true>(at, a);
    else
        backward_by<T, CHUNKS, false>(at, a);
}

template <typename T> void forward_any(const mics_exec *at, const mics_cuda_attention *a)
{
    if (a->heads.dim <= 64)
        forward<T, 2>(at, a);
    else if (a->heads.dim <= 128)
        forward<T, 4>(at, a);
    else
        forward<T, 8>(at, a);
}

// Two sums a thread, so half the columns of forward's widest.
template <typename T> void backward_any(const mics_exec *at, const mics_cuda_attention *a)
{
    if (a->heads.dim <= 64)
        backward<T, 2>(at, a);
    else
        backward<T, 4>(at, a);
}

} // namespace

void mics_cuda_attention_plain_forward(const mics_exec *at, const mics_cuda_attention *a)
{
    MICS_BY_DTYPE(at->dtype, forward_any, at, a);
}

void mics_cuda_attention_plain_backward(const mics_exec *at, const mics_cuda_attention *a)
{
    MICS_BY_DTYPE(at->dtype, backward_any, at, a);
}
