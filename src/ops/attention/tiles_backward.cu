// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores, backward: three kernels, without atomic sums, so that the same bits
// come out every time: delta = sum(dy * y) of each row; dk and dv of a tile of keys over all
// queries that see them, of one query head after the other where several share the keys; dq of a
// tile of queries over all keys that they see. The scores are computed twice, which makes 7
// products of 5 (section 3.1.2 of the paper adds dq atomically instead).
#include "ops/attention/tiles.cuh"

namespace
{

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

template <typename T, int W, int MT, int WARPS, int BN, bool DROPS>
__global__ void __launch_bounds__(32 * WARPS) attention_backward_q(problem<T> p, mics_masks masks)
{
    constexpr int ROWS = 16 * MT * WARPS, THREADS = 32 * WARPS, STRIDE = row_of<W>::STRIDE;
    constexpr int KEYS = BN * STRIDE;
    MICS_DYNAMIC_SHARED(T, space);
    T *q = space, *dy = q + ROWS * STRIDE, *kv = dy + ROWS * STRIDE;
    const task at = row_task(p, ROWS);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const token_range range = keys_seen(p, narrowing_in(space), at.b, at.first, ROWS, BN);
    const int64_t C = p.H * p.D, stride = p.row, begin = range.begin, end = range.end;
    const T *k_from = keys_of(p, at.b, at.h / p.shared);
    const T *v_from = values_of(p, at.b, at.h / p.shared);
    fetch<T, W, ROWS, THREADS>(q, queries_of(p, at.b, at.h) + at.first * stride, stride,
                               p.T_ - at.first, p);
    fetch<T, W, ROWS, THREADS>(dy, p.dy + (at.b * p.T_ + at.first) * C + at.h * p.D, C,
                               p.T_ - at.first, p);
    fetch<T, W, BN, THREADS>(kv, k_from + begin * stride, stride, p.T_ - begin, p);
    fetch<T, W, BN, THREADS>(kv + KEYS, v_from + begin * stride, stride, p.T_ - begin, p);
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
    for (int64_t key = begin, tile = 0; key < end; key += BN, ++tile) {
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
        if (hides(p, at.first + warp * 16 * MT, 16 * MT, key, BN))
            hide<T, MT, BN>(s, static_cast<int>(row - key) - lane % 4 * 2, p);
        if (has_others(p, key, BN))
            hide_others<T, MT, BN>(s, p, at.b, row, key + lane % 4 * 2);
        scores<T, W, MT, BN>(dp, dy + warp_rows, k + KEYS);
        if constexpr (DROPS)
            drop_rows<MT, BN>(
                dp, keep_rows<MT, BN>(mask_at(masks, at.b, at.h), at.first + warp * 16 * MT, key),
                masks.scale);
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
__device__ __forceinline__ void fetch_sums(float *sums, const problem<T> &p, int64_t b, int64_t h,
                                           int64_t query)
{
    for (int i = (int)threadIdx.x; i < BN; i += (int)blockDim.x) {
        const int64_t t = query + i, index = (b * p.T_ + t) * p.H + h;
        sums[i] = t < p.T_ ? p.lse[index] * LOG2_E : INFINITY;
        sums[BN + i] = t < p.T_ ? p.delta[index] : 0;
    }
}

// As softmax_gradient_rows, with keys in rows and queries in columns. `distance`: from the row of
// s[0][0][0] of this thread to its column; partly: some keys are hidden.
template <typename T, int MT, int BN>
__device__ __forceinline__ void
softmax_gradient_columns(float (&s)[MT][BN / 8][4], float (&dp)[MT][BN / 8][4], const float *sums,
                         int distance, bool partly, const problem<T> &p)
{
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < BN / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = n * 8 + 2 * t + i % 2;
                const bool hidden =
                    partly && is_hidden(p, distance + n * 8 + i % 2 - m * 16 - i / 2 * 8);
                const float e =
                    hidden ? 0.0F : exp2_near(s[m][n][i] * (p.scale * LOG2_E) - sums[at]);
                s[m][n][i] = e;
                dp[m][n][i] = e * (dp[m][n][i] - sums[BN + at]);
            }
}

// COLS columns of dk and dv, from blockIdx.y * COLS on: with W = 256 all of them do not fit into
// registers, so two blocks have a half each, and both compute the scores.
template <typename T, int W, int MT, int WARPS, int BN, int COLS, bool DROPS>
__global__ void __launch_bounds__(32 * WARPS) attention_backward_kv(problem<T> p, mics_masks masks)
{
    constexpr int ROWS = 16 * MT * WARPS, THREADS = 32 * WARPS, STRIDE = row_of<W>::STRIDE;
    constexpr int QUERIES = BN * STRIDE;
    MICS_DYNAMIC_SHARED(T, space);
    T *k = space, *v = k + ROWS * STRIDE, *qdy = v + ROWS * STRIDE;
    float *sums = reinterpret_cast<float *>(qdy + 4 * QUERIES); // two tiles: BN log sums, BN deltas
    const int64_t index = blockIdx.x, head = index / p.row_tiles;
    const task at = {head / p.K, head % p.K, index % p.row_tiles * ROWS}; // a key-value head's
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const token_range range = queries_seeing(p, narrowing_in(space), at.b, at.first, ROWS, BN);
    const int64_t C = p.H * p.D, stride = p.row, begin = range.begin, end = range.end;
    const int64_t first_head = at.h * p.shared;
    const T *q_from = queries_of(p, at.b, first_head);
    const T *dy_from = p.dy + at.b * p.T_ * C + first_head * p.D;
    fetch<T, W, ROWS, THREADS>(k, keys_of(p, at.b, at.h) + at.first * stride, stride,
                               p.T_ - at.first, p);
    fetch<T, W, ROWS, THREADS>(v, values_of(p, at.b, at.h) + at.first * stride, stride,
                               p.T_ - at.first, p);
    fetch<T, W, BN, THREADS>(qdy, q_from + begin * stride, stride, p.T_ - begin, p);
    fetch<T, W, BN, THREADS>(qdy + QUERIES, dy_from + begin * C, C, p.T_ - begin, p);
    copy_commit();
    fetch_sums<T, BN>(sums, p, at.b, first_head, begin);
    float dk[MT][COLS / 8][4], dv[MT][COLS / 8][4];
    clear(dk);
    clear(dv);
    const int warp_rows = warp * 16 * MT * STRIDE, from_column = (int)blockIdx.y * COLS;
    const int64_t row = at.first + warp * 16 * MT + lane / 4;
    // The query heads' tiles are one sequence of tiles.
    int64_t next_query = begin, next_h = 0;
    for (int64_t h = 0, query = begin, tile = 0; h < p.shared;
         h = next_h, query = next_query, ++tile) {
        const T *q = qdy + tile % 2 * 2 * QUERIES;
        const float *sums_now = sums + tile % 2 * 2 * BN;
        next_h = query + BN < end ? h : h + 1;
        next_query = query + BN < end ? query + BN : begin;
        if (next_h < p.shared) {
            T *next = qdy + (tile + 1) % 2 * 2 * QUERIES;
            const int64_t from = next_query, beside = next_h * p.D;
            fetch<T, W, BN, THREADS>(next, q_from + beside + from * stride, stride, p.T_ - from, p);
            fetch<T, W, BN, THREADS>(next + QUERIES, dy_from + beside + from * C, C, p.T_ - from,
                                     p);
            fetch_sums<T, BN>(sums + (tile + 1) % 2 * 2 * BN, p, at.b, first_head + next_h, from);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        float s[MT][BN / 8][4], dp[MT][BN / 8][4];
        scores<T, W, MT, BN>(s, k + warp_rows, q);
        if (p.segments != nullptr)
            hide_others<T, MT, BN>(s, p, at.b, row, query + lane % 4 * 2);
        scores<T, W, MT, BN>(dp, v + warp_rows, q + QUERIES);
        uint32_t keep = 0;
        if constexpr (DROPS) {
            keep = keep_columns<MT, BN>(mask_at(masks, at.b, first_head + h),
                                        at.first + warp * 16 * MT, query);
            drop_columns<MT, BN>(dp, keep, masks.scale);
        }
        softmax_gradient_columns<T, MT, BN>(
            s, dp, sums_now, static_cast<int>(query - row) + lane % 4 * 2,
            hides(p, query, BN, at.first + warp * 16 * MT, 16 * MT), p);
        if constexpr (DROPS)
            drop_columns<MT, BN>(s, keep, 1.0F);
        add_product<T, W, MT, BN, COLS>(dv, s, q + QUERIES + from_column);
        add_product<T, W, MT, BN, COLS>(dk, dp, q + from_column);
        __syncthreads();
    }
    const int64_t first = at.first + warp * 16 * MT;
    if (first >= p.T_)
        return;
    float factor[MT][2], kept[MT][2];
#pragma unroll
    for (int m = 0; m < MT; ++m) {
        factor[m][0] = factor[m][1] = p.scale;
        kept[m][0] = kept[m][1] = DROPS ? masks.scale : 1.0F;
    }
    T *to = p.dqkv + (at.b * p.T_ + first) * stride + (p.H + at.h) * p.D + from_column;
    write_rows<T, MT, COLS, STRIDE>(to, stride, p.T_ - first, p.D - from_column, dk, factor,
                                    k + warp_rows, p.vectors);
    write_rows<T, MT, COLS, STRIDE>(to + p.K * p.D, stride, p.T_ - first, p.D - from_column, dv,
                                    kept, v + warp_rows, p.vectors);
}

// ---- launches ----

// What a block takes of shared memory: the rows of two matrices, and two pairs of tiles; in dk dv
// their sums too.
template <typename T, int W, int MT, int WARPS, int BN> constexpr size_t backward_q_bytes()
{
    return (2 * 16 * MT * WARPS + 4 * BN) * row_of<W>::STRIDE * sizeof(T);
}
template <typename T, int W, int MT, int WARPS, int BN> constexpr size_t backward_kv_bytes()
{
    return backward_q_bytes<T, W, MT, WARPS, BN>() + 4 * BN * sizeof(float);
}

template <typename T, int W, int MT, int WARPS, int BN, bool DROPS>
void launch_backward_q_by(const mics_exec *at, const mics_cuda_attention *a)
{
    constexpr size_t BYTES = backward_q_bytes<T, W, MT, WARPS, BN>();
    const problem<T> p = problem_of<T>(at, a, 16 * MT * WARPS);
    if (fits(at, a, BYTES) &&
        MICS_ALLOW_SHARED((attention_backward_q<T, W, MT, WARPS, BN, DROPS>), BYTES))
        MICS_LAUNCH((attention_backward_q<T, W, MT, WARPS, BN, DROPS>), blocks_of(p, a, p.H),
                    32 * WARPS, BYTES, stream_of(at), p, mics_masks_of(a->call));
}

template <typename T, int W, int MT, int WARPS, int BN>
void launch_backward_q(const mics_exec *at, const mics_cuda_attention *a)
{
    if (mics_masks_of(a->call).draw != nullptr)
        launch_backward_q_by<T, W, MT, WARPS, BN, true>(at, a);
    else
        launch_backward_q_by<T, W, MT, WARPS, BN, false>(at, a);
}

template <typename T, int W, int MT, int WARPS, int BN, int COLS, bool DROPS>
void launch_backward_kv_by(const mics_exec *at, const mics_cuda_attention *a)
{
    constexpr size_t BYTES = backward_kv_bytes<T, W, MT, WARPS, BN>();
    const problem<T> p = problem_of<T>(at, a, 16 * MT * WARPS);
    const dim3 blocks(blocks_of(p, a, p.K), (unsigned)ceil_div(a->heads.dim, COLS));
    if (fits(at, a, BYTES) &&
        MICS_ALLOW_SHARED((attention_backward_kv<T, W, MT, WARPS, BN, COLS, DROPS>), BYTES))
        MICS_LAUNCH((attention_backward_kv<T, W, MT, WARPS, BN, COLS, DROPS>), blocks, 32 * WARPS,
                    BYTES, stream_of(at), p, mics_masks_of(a->call));
}

template <typename T, int W, int MT, int WARPS, int BN, int COLS>
void launch_backward_kv(const mics_exec *at, const mics_cuda_attention *a)
{
    if (mics_masks_of(a->call).draw != nullptr)
        launch_backward_kv_by<T, W, MT, WARPS, BN, COLS, true>(at, a);
    else
        launch_backward_kv_by<T, W, MT, WARPS, BN, COLS, false>(at, a);
}

template <typename T, int LANES>
void launch_delta_by(const mics_exec *at, const problem<T> &p, int64_t rows)
{
    constexpr int THREADS = 256;
    MICS_LAUNCH((attention_delta<T, LANES>), (unsigned)ceil_div(rows * LANES, THREADS), THREADS, 0,
                stream_of(at), p, rows);
}

// The fewest lanes, from 4 on, that hold a row with 16 bytes each. How many there are does not
// change the sum: the others would add zeros.
template <typename T> void launch_delta(const mics_exec *at, const mics_cuda_attention *a)
{
    const problem<T> p = problem_of<T>(at, a, 1);
    const int64_t rows = a->B * a->T * p.H;
    if (!p.vectors || a->heads.dim > 128)
        launch_delta_by<T, 32>(at, p, rows);
    else if (a->heads.dim > 64)
        launch_delta_by<T, 16>(at, p, rows);
    else if (a->heads.dim > 32)
        launch_delta_by<T, 8>(at, p, rows);
    else
        launch_delta_by<T, 4>(at, p, rows);
}

template <typename T> void backward(const mics_exec *at, const mics_cuda_attention *a)
{
    const size_t limit = shared_limit(at);
    launch_delta<T>(at, a);
    if (a->heads.dim <= 64) {
        launch_backward_kv<T, 64, 2, 4, 32, 64>(at, a);
        launch_backward_q<T, 64, 2, 4, 32>(at, a);
    } else if (a->heads.dim <= 96) {
        launch_backward_kv<T, 96, 1, 8, 32, 96>(at, a);
        launch_backward_q<T, 96, 2, 4, 32>(at, a);
    } else if (a->heads.dim <= 128 && limit >= backward_kv_bytes<T, 128, 1, 8, 32>()) {
        launch_backward_kv<T, 128, 1, 8, 32, 128>(at, a);
        launch_backward_q<T, 128, 1, 8, 32>(at, a);
    } else if (a->heads.dim <= 128) {
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

void mics_cuda_attention_tiles_backward(const mics_exec *at, const mics_cuda_attention *a)
{
    if (at->dtype == MICS_DTYPE_BF16)
        backward<__nv_bfloat16>(at, a);
    else
        backward<__half>(at, a);
}
