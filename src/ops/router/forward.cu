// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A router's forward: scores by the GEMM of experts, with fp32 sums that depend on the token alone;
// a warp a token chooses; then rows are placed by counting, in the order of tokens. Bytes: x once,
// and each row of stats (E + 2 + 2 k floats) twice; with few experts most of a tile of scores is
// not there, so its GEMM takes as long as one of 128.
//
// Shapes: N tokens, E experts, k chosen.
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"
#include "ops/experts/experts_cuda.h"
#include "ops/router/def.h"
#include "ops/router/router_cuda.h"
#include <math.h>

namespace
{

constexpr int CHOOSE_THREADS = 256, PLACE_THREADS = 256;

// A row of stats.
struct router_rows {
    float *stats;
    int64_t stride;
    int32_t count, chosen;

    __device__ __forceinline__ float *probabilities(int64_t n) const
    {
        return stats + n * stride;
    }
    // int32, written as floats of the same bits
    __device__ __forceinline__ float *experts(int64_t n) const
    {
        return stats + n * stride + count + 2;
    }
};

// ---- choosing: a warp a token ----

struct candidate {
    float score;
    int32_t expert; // -1: none
};

__device__ __forceinline__ bool is_better(const candidate &a, const candidate &b)
{
    return a.expert >= 0 &&
           (b.expert < 0 || a.score > b.score || (a.score == b.score && a.expert < b.expert));
}

__device__ __forceinline__ bool is_taken(const float *experts, int32_t taken, int32_t expert)
{
    for (int32_t j = 0; j < taken; ++j)
        if (__float_as_int(experts[j]) == expert)
            return true;
    return false;
}

// The experts of a token by its scores, best first; of equal ones the first. NaN counts as the
// lowest, so that experts are always some. All lanes of the warp call it.
__device__ __forceinline__ void choose_experts(const float *scores, float *experts, int32_t count,
                                               int32_t chosen)
{
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % WARP;
    for (int32_t j = 0; j < chosen; ++j) {
        candidate best = {0, -1};
        for (int32_t i = lane; i < count; i += WARP) {
            const candidate at = {scores[i] >= -INFINITY ? scores[i] : -INFINITY, i};
            if (is_better(at, best) && !is_taken(experts, j, i))
                best = at;
        }
#pragma unroll
        for (int distance = WARP / 2; distance > 0; distance /= 2) {
            const candidate other = {__shfl_xor_sync(0xffffffffU, best.score, distance),
                                     __shfl_xor_sync(0xffffffffU, best.expert, distance)};
            if (is_better(other, best))
                best = other;
        }
        if (lane == 0)
            experts[j] = __int_as_float(best.expert);
        __syncwarp();
    }
}

// Makes a row's scores probabilities, with what stands behind them.
__device__ __forceinline__ void weigh_experts(float *row, const float *experts, int32_t count)
{
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % WARP;
    const float largest = row[__float_as_int(experts[0])];
    float sum = 0, weighed = 0;
    __syncwarp(); // all have read it
    for (int32_t i = lane; i < count; i += WARP) {
        const float below = row[i] - largest, e = expf(below);
        row[i] = e;
        sum += e;
        weighed += e * below;
    }
    sum = warp_sum(sum);
    weighed = warp_sum(weighed);
    for (int32_t i = lane; i < count; i += WARP)
        row[i] /= sum;
    const float log_sum = sum > 0 ? logf(sum) : 0.0F; // the largest alone gives 1
    if (lane == 0) {
        row[count] = largest + log_sum;
        row[count + 1] = log_sum - weighed / sum;
    }
    __syncwarp();
}

template <typename T>
__global__ void __launch_bounds__(CHOOSE_THREADS)
    router_choose(T *out, router_rows rows, int64_t N, bool normalised)
{
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % WARP;
    for (int64_t n = grid_thread() / WARP; n < N; n += grid_threads() / WARP) {
        float *row = rows.probabilities(n), *experts = rows.experts(n);
        choose_experts(row, experts, rows.count, rows.chosen);
        weigh_experts(row, experts, rows.count);
        float sum = normalised ? 0.0F : 1.0F;
        for (int32_t j = 0; normalised && j < rows.chosen; ++j)
            sum += row[__float_as_int(experts[j])];
        for (int32_t j = lane; j < rows.chosen; j += WARP)
            out[n * rows.chosen + j] = from_float<T>(row[__float_as_int(experts[j])] / sum);
    }
}

// ---- placing ----

// A block's tokens, and for each expert which of them chose it: bit t % 32 of word t / 32.
struct place_problem {
    router_rows rows;
    int64_t N;
    int words;
    int32_t *counts; // (blocks, E): how many of a block's tokens chose it
};

// All threads of the block call together.
__device__ void mark_tokens(const place_problem &p, uint32_t *marks)
{
    const int32_t words = p.rows.count * p.words;
    for (int32_t i = threadIdx.x; i < words; i += PLACE_THREADS)
        marks[i] = 0;
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    const int64_t n = static_cast<int64_t>(blockIdx.x) * 32 * p.words + t;
    for (int32_t j = 0; t < 32 * p.words && n < p.N && j < p.rows.chosen; ++j)
        atomicOr(&marks[__float_as_int(p.rows.experts(n)[j]) * p.words + t / 32], 1U << t % 32);
    __syncthreads();
}

__global__ void __launch_bounds__(PLACE_THREADS) router_count(place_problem p)
{
    MICS_DYNAMIC_SHARED(uint32_t, marks);
    mark_tokens(p, marks);
    for (int32_t e = threadIdx.x; e < p.rows.count; e += PLACE_THREADS) {
        int32_t count = 0;
        for (int word = 0; word < p.words; ++word)
            count += __popc(marks[e * p.words + word]);
        p.counts[static_cast<int64_t>(blockIdx.x) * p.rows.count + e] = count;
    }
}

// Where the rows of this block's tokens begin, of each expert.
__device__ void find_begins(const place_problem &p, int32_t *begins, int *shared)
{
    const int32_t count = p.rows.count;
    int32_t before_all = 0;
    for (int32_t base = 0; base < count; base += PLACE_THREADS) {
        const int32_t e = base + static_cast<int32_t>(threadIdx.x);
        int32_t own = 0, before = 0;
#pragma unroll 8
        for (int64_t block = 0; e < count && block < gridDim.x; ++block) {
            const int32_t tokens = p.counts[block * count + e];
            own += tokens;
            before += block < blockIdx.x ? tokens : 0;
        }
        int total = 0;
        const int lower = block_sum_before<PLACE_THREADS>(own, shared, &total);
        if (e < count)
            begins[e] = before_all + lower + before;
        before_all += total;
    }
    __syncthreads();
}

__global__ void __launch_bounds__(PLACE_THREADS) router_place(place_problem p)
{
    __shared__ int shared[MAX_WARPS];
    MICS_DYNAMIC_SHARED(uint32_t, marks);
    int32_t *begins = reinterpret_cast<int32_t *>(marks + p.rows.count * p.words);
    mark_tokens(p, marks);
    find_begins(p, begins, shared);
    const int t = static_cast<int>(threadIdx.x);
    const int64_t n = static_cast<int64_t>(blockIdx.x) * 32 * p.words + t;
    if (t >= 32 * p.words || n >= p.N)
        return;
    float *experts = p.rows.experts(n);
    for (int32_t j = 0; j < p.rows.chosen; ++j) {
        const int32_t e = __float_as_int(experts[j]);
        const uint32_t *of = marks + e * p.words;
        int32_t row = begins[e] + __popc(of[t / 32] & ((1U << t % 32) - 1U));
        for (int word = 0; word < t / 32; ++word)
            row += __popc(of[word]);
        experts[p.rows.chosen + j] = __int_as_float(row);
    }
}

// ---- launches ----

router_rows rows_of(const mics_op_call *call)
{
    const mics_experts e = call->shape.op->experts;
    return {call->stats, mics_route_floats(e), e.count, e.chosen};
}

void scores(const mics_op_call *call)
{
    const mics_op_shape *s = &call->shape;
    const mics_experts e = s->op->experts;
    const mics_cuda_experts_gemm gemm = {call->at, nullptr,        1, s->N, s->in[0],
                                         e.count,  call->params[0]};
    const mics_cuda_experts_rows rows = {call->in[0], false, call->stats, mics_route_floats(e)};
    mics_cuda_experts_scores(&gemm, &rows);
}

template <typename T> void choose(const mics_op_call *call)
{
    const int64_t N = call->shape.N;
    MICS_LAUNCH(router_choose<T>, grid_of(N * WARP, CHOOSE_THREADS), CHOOSE_THREADS, 0,
                stream_of(call->at), static_cast<T *>(call->out), rows_of(call), N,
                call->shape.op->router.normalised);
}

void place(const mics_op_call *call)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t N = call->shape.N;
    const place_problem p = {rows_of(call), N, static_cast<int>(mics_router_words(e)),
                             static_cast<int32_t *>(call->at->workspace)};
    const unsigned blocks = static_cast<unsigned>(mics_router_places(e, N));
    const size_t marks = static_cast<size_t>(e.count) * p.words * sizeof(uint32_t);
    const size_t begins = static_cast<size_t>(e.count) * sizeof(int32_t);
    const cudaStream_t stream = stream_of(call->at);
    MICS_LAUNCH(router_count, blocks, PLACE_THREADS, marks, stream, p);
    MICS_LAUNCH(router_place, blocks, PLACE_THREADS, marks + begins, stream, p);
}

} // namespace

void mics_cuda_router_forward(const mics_op_call *call)
{
    scores(call);
    MICS_BY_DTYPE(call->at->dtype, choose, call);
    place(call);
}
