// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores, forward: a running maximum and sum over tiles of keys.
#include "ops/attention/tiles.cuh"

namespace
{

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

template <typename T, int W, int MT, int WARPS, int BN, bool DROPS>
__global__ void __launch_bounds__(32 * WARPS) attention_forward(problem<T> p, mics_masks masks)
{
    constexpr int ROWS = 16 * MT * WARPS, THREADS = 32 * WARPS, STRIDE = row_of<W>::STRIDE;
    constexpr int KEYS = BN * STRIDE; // of a tile of keys, or of values
    MICS_DYNAMIC_SHARED(T, space);
    T *q = space, *kv = space + ROWS * STRIDE;
    const task at = row_task(p, ROWS);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const token_range range = keys_seen(p, narrowing_in(space), at.b, at.first, ROWS, BN);
    const int64_t stride = p.row, begin = range.begin, end = range.end;
    const T *k_from = keys_of(p, at.b, at.h / p.shared);
    const T *v_from = values_of(p, at.b, at.h / p.shared);
    fetch<T, W, ROWS, THREADS>(q, queries_of(p, at.b, at.h) + at.first * stride, stride,
                               p.T_ - at.first, p);
    fetch<T, W, BN, THREADS>(kv, k_from + begin * stride, stride, p.T_ - begin, p);
    fetch<T, W, BN, THREADS>(kv + KEYS, v_from + begin * stride, stride, p.T_ - begin, p);
    copy_commit();
    float y[MT][W / 8][4], maximum[MT][2], sum[MT][2];
    clear(y);
#pragma unroll
    for (int m = 0; m < MT; ++m)
        for (int half = 0; half < 2; ++half) {
            maximum[m][half] = LOWEST;
            sum[m][half] = 0;
        }
    const T *q_warp = q + warp * 16 * MT * STRIDE;
    const int64_t row = at.first + warp * 16 * MT + lane / 4;
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
        float s[MT][BN / 8][4];
        scores<T, W, MT, BN>(s, q_warp, k);
        if (hides(p, at.first + warp * 16 * MT, 16 * MT, key, BN))
            hide<T, MT, BN>(s, static_cast<int>(row - key) - lane % 4 * 2, p);
        if (has_others(p, key, BN))
            hide_others<T, MT, BN>(s, p, at.b, row, key + lane % 4 * 2);
        softmax_step<MT, BN, W / 8>(s, y, maximum, sum, p.scale * LOG2_E);
        if constexpr (DROPS)
            drop_rows<MT, BN>(
                s, keep_rows<MT, BN>(mask_at(masks, at.b, at.h), at.first + warp * 16 * MT, key),
                1.0F);
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
            factor[m][half] = (DROPS ? masks.scale : 1.0F) / total;
            const int64_t t = row + m * 16 + half * 8;
            if (lane % 4 == 0 && t < p.T_)
                p.lse[(at.b * p.T_ + t) * p.H + at.h] = maximum[m][half] * p.scale + logf(total);
        }
    if (first < p.T_)
        write_rows<T, MT, W, STRIDE>(p.y_out + ((at.b * p.T_ + first) * p.H + at.h) * p.D,
                                     p.H * p.D, p.T_ - first, p.D, y, factor,
                                     q + warp * 16 * MT * STRIDE, p.vectors);
}

// ---- launches ----

// What a block takes of shared memory: its rows, and two pairs of tiles.
template <typename T, int W, int MT, int WARPS, int BN> constexpr size_t forward_bytes()
{
    return (16 * MT * WARPS + 4 * BN) * row_of<W>::STRIDE * sizeof(T);
}
template <typename T, int W, int MT, int WARPS, int BN, bool DROPS>
void launch_forward_by(const mics_exec *at, const mics_cuda_attention *a)
{
    constexpr size_t BYTES = forward_bytes<T, W, MT, WARPS, BN>();
    const problem<T> p = problem_of<T>(at, a, 16 * MT * WARPS);
    if (fits(at, a, BYTES) &&
        MICS_ALLOW_SHARED((attention_forward<T, W, MT, WARPS, BN, DROPS>), BYTES))
        MICS_LAUNCH((attention_forward<T, W, MT, WARPS, BN, DROPS>), blocks_of(p, a, p.H),
                    32 * WARPS, BYTES, stream_of(at), p, mics_masks_of(a->call));
}

template <typename T, int W, int MT, int WARPS, int BN>
void launch_forward(const mics_exec *at, const mics_cuda_attention *a)
{
    if (mics_masks_of(a->call).draw != nullptr)
        launch_forward_by<T, W, MT, WARPS, BN, true>(at, a);
    else
        launch_forward_by<T, W, MT, WARPS, BN, false>(at, a);
}

template <typename T> void forward(const mics_exec *at, const mics_cuda_attention *a)
{
    if (a->heads.dim <= 64)
        launch_forward<T, 64, 2, 4, 64>(at, a);
    else if (a->heads.dim <= 96)
        launch_forward<T, 96, 2, 4, 64>(at, a);
    else if (a->heads.dim > 128)
        launch_forward<T, 256, 1, 4, 32>(at, a); // 99 KiB, to the byte
    else if (shared_limit(at) >= forward_bytes<T, 128, 2, 4, 64>())
        launch_forward<T, 128, 2, 4, 64>(at, a);
    else
        launch_forward<T, 128, 2, 4, 32>(at, a);
}

} // namespace

void mics_cuda_attention_tiles_forward(const mics_exec *at, const mics_cuda_attention *a)
{
    if (at->dtype == MICS_DTYPE_BF16)
        forward<__nv_bfloat16>(at, a);
    else
        forward<__half>(at, a);
}
