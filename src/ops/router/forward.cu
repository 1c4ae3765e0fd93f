// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A router's forward: scores by the GEMM of experts, with fp32 sums that depend on the token alone;
// a warp a token chooses; what is beyond a capacity is dropped, by a block a sequence; then rows are
// placed by counting, in the order of tokens. Where the input has noise, the GEMM is one of fp32, of
// copies of the input and the weight. Bytes: x once,
// and each row of stats (E + 2 + 2 k floats) twice; with few experts most of a tile of scores is
// not there, so its GEMM takes as long as one of 128.
//
// Shapes: N tokens, E experts, k chosen.
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"
#include "ops/experts/experts_cuda.h"
#include "ops/experts/grouped_float.h"
#include "ops/router/def.h"
#include "ops/router/random.cuh"
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
    // int32, written as floats of the same bits; one that is dropped is its complement
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

// The input times its noise, by which scores are made.
template <typename T>
__global__ void __launch_bounds__(CHOOSE_THREADS)
    router_noise(float *to, const T *x, router_random random, int64_t N, int64_t C)
{
    for (int64_t i = grid_thread(); i < N * C; i += grid_threads()) {
        float noise[1] = {1};
        noise_at(noise, random, i / C, i % C);
        to[i] = to_float(x[i]) * noise[0];
    }
}

template <typename T>
__global__ void __launch_bounds__(CHOOSE_THREADS) router_widen(float *to, const T *x, int64_t elems)
{
    for (int64_t i = grid_thread(); i < elems; i += grid_threads())
        to[i] = to_float(x[i]);
}

template <typename T>
__global__ void __launch_bounds__(CHOOSE_THREADS)
    router_choose(T *out, router_rows rows, router_random random, const int32_t *segments,
                  int64_t N, bool normalised)
{
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % WARP;
    for (int64_t n = grid_thread() / WARP; n < N; n += grid_threads() / WARP) {
        float *row = rows.probabilities(n), *experts = rows.experts(n);
        choose_experts(row, experts, rows.count, rows.chosen);
        if (segments != nullptr && segments[n] < 0) { // of no segment: it goes to no expert
            for (int32_t i = lane; i < rows.count + 2; i += WARP)
                row[i] = 0;
            for (int32_t j = lane; j < rows.chosen; j += WARP) {
                experts[j] = __int_as_float(~__float_as_int(experts[j]));
                out[n * rows.chosen + j] = from_float<T>(0.0F);
            }
            __syncwarp();
            continue;
        }
        weigh_experts(row, experts, rows.count);
        float sum = normalised ? 0.0F : 1.0F;
        for (int32_t j = 0; normalised && j < rows.chosen; ++j)
            sum += row[__float_as_int(experts[j])];
        for (int32_t j = lane; j < rows.chosen; j += WARP)
            out[n * rows.chosen + j] = from_float<T>(row[__float_as_int(experts[j])] / sum);
        __syncwarp();
        if (lane == 0 && random.second) {
            const int32_t second = __float_as_int(experts[1]);
            const float share = row[second] / (row[__float_as_int(experts[0])] + row[second]);
            if (leaves_out_second(random, n, share)) {
                experts[1] = __int_as_float(~second);
                out[n * 2 + 1] = from_float<T>(0.0F);
            }
        }
        __syncwarp();
    }
}

// ---- placing ----

// A block's tokens, and for each expert which of them chose it: bit t % 32 of word t / 32.
struct place_problem {
    router_rows rows;
    int64_t N;
    int words;
    int32_t *counts; // (blocks, E + 1): how many of a block's tokens chose it; choices dropped
};

__device__ __forceinline__ void clear_marks(const place_problem &p, uint32_t *marks)
{
    for (int32_t i = threadIdx.x; i < p.rows.count * p.words; i += PLACE_THREADS)
        marks[i] = 0;
}

// Choices j to `end` of token n, which is number t of those of a block. How many are dropped.
__device__ __forceinline__ int32_t mark_choices(const place_problem &p, uint32_t *marks, int64_t n,
                                                int t, int32_t j, int32_t end)
{
    int32_t dropped = 0;
    for (; j < end; ++j) {
        const int32_t choice = __float_as_int(p.rows.experts(n)[j]);
        if (choice >= 0)
            atomicOr(&marks[choice * p.words + t / 32], 1U << t % 32);
        else
            ++dropped;
    }
    return dropped;
}

// How many of a block's tokens before number t chose an expert, and how many of all.
__device__ __forceinline__ int32_t tokens_before(const place_problem &p, const uint32_t *marks,
                                                 int32_t expert, int t)
{
    const uint32_t *of = marks + expert * p.words;
    int32_t tokens = __popc(of[t / 32] & ((1U << t % 32) - 1U));
    for (int word = 0; word < t / 32; ++word)
        tokens += __popc(of[word]);
    return tokens;
}
__device__ __forceinline__ int32_t tokens_of(const place_problem &p, const uint32_t *marks,
                                             int32_t expert)
{
    int32_t tokens = 0;
    for (int word = 0; word < p.words; ++word)
        tokens += __popc(marks[expert * p.words + word]);
    return tokens;
}

// Of the block's own tokens, of which thread t has number t. How many choices of the thread's are
// dropped. All threads of the block call together.
__device__ int32_t mark_tokens(const place_problem &p, uint32_t *marks)
{
    clear_marks(p, marks);
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    const int64_t n = static_cast<int64_t>(blockIdx.x) * 32 * p.words + t;
    const bool exists = t < 32 * p.words && n < p.N;
    const int32_t dropped = exists ? mark_choices(p, marks, n, t, 0, p.rows.chosen) : 0;
    __syncthreads();
    return dropped;
}

// Drops what is beyond the experts' capacity, a block a sequence: first choices of all its tokens
// come first, then second ones.
template <typename T>
__global__ void __launch_bounds__(PLACE_THREADS)
    router_drop(T *out, place_problem p, int64_t length, int32_t capacity)
{
    MICS_DYNAMIC_SHARED(uint32_t, marks);
    int32_t *taken = reinterpret_cast<int32_t *>(marks + p.rows.count * p.words);
    const int t = static_cast<int>(threadIdx.x);
    const int64_t step = 32 * p.words;
    for (int32_t e = t; e < p.rows.count; e += PLACE_THREADS)
        taken[e] = 0;
    for (int32_t j = 0; j < p.rows.chosen; ++j) {
        for (int64_t first = 0; first < length; first += step) {
            const int64_t n = blockIdx.x * length + first + t;
            const bool exists = t < step && first + t < length;
            clear_marks(p, marks);
            __syncthreads();
            if (exists)
                mark_choices(p, marks, n, t, j, j + 1);
            __syncthreads();
            float *choice = p.rows.experts(exists ? n : 0) + j;
            const int32_t e = exists ? __float_as_int(*choice) : -1;
            if (e >= 0 && taken[e] + tokens_before(p, marks, e, t) >= capacity) {
                *choice = __int_as_float(~e);
                out[n * p.rows.chosen + j] = from_float<T>(0.0F);
            }
            __syncthreads();
            for (int32_t i = t; i < p.rows.count; i += PLACE_THREADS)
                taken[i] += tokens_of(p, marks, i);
            __syncthreads();
        }
    }
}

__global__ void __launch_bounds__(PLACE_THREADS) router_count(place_problem p)
{
    __shared__ int shared[MAX_WARPS];
    MICS_DYNAMIC_SHARED(uint32_t, marks);
    int32_t *counts = p.counts + static_cast<int64_t>(blockIdx.x) * (p.rows.count + 1);
    int dropped = 0;
    block_sum_before<PLACE_THREADS>(mark_tokens(p, marks), shared, &dropped);
    if (threadIdx.x == 0)
        counts[p.rows.count] = dropped;
    for (int32_t e = threadIdx.x; e < p.rows.count; e += PLACE_THREADS)
        counts[e] = tokens_of(p, marks, e);
}

// Where the rows of this block's tokens begin, of each expert and dropped.
__device__ void find_begins(const place_problem &p, int32_t *begins, int *shared)
{
    const int32_t count = p.rows.count + 1;
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
    const int dropped = mark_tokens(p, marks);
    find_begins(p, begins, shared);
    int all_dropped = 0;
    const int dropped_before = block_sum_before<PLACE_THREADS>(dropped, shared, &all_dropped);
    const int t = static_cast<int>(threadIdx.x);
    const int64_t n = static_cast<int64_t>(blockIdx.x) * 32 * p.words + t;
    if (t >= 32 * p.words || n >= p.N)
        return;
    float *experts = p.rows.experts(n);
    int32_t next_dropped = begins[p.rows.count] + dropped_before;
    for (int32_t j = 0; j < p.rows.chosen; ++j) {
        const int32_t e = __float_as_int(experts[j]);
        const int32_t row = e < 0 ? next_dropped++ : begins[e] + tokens_before(p, marks, e, t);
        experts[p.rows.chosen + j] = __int_as_float(row);
    }
}

// ---- launches ----

router_rows rows_of(const mics_op_call *call)
{
    const mics_experts e = call->shape.op->experts;
    return {call->stats, mics_route_floats(e), e.count, e.chosen};
}

// Copies input, times noise, and weight in fp32 to the workspace.
template <typename T>
void widen(const mics_op_call *call, const router_random &random, float *x, float *weight)
{
    const int64_t N = call->shape.N, C = call->shape.in[0], E = call->shape.op->experts.count;
    const cudaStream_t stream = stream_of(call->at);
    MICS_LAUNCH(router_noise<T>, grid_of(N * C, CHOOSE_THREADS), CHOOSE_THREADS, 0, stream, x,
                static_cast<const T *>(call->in[0]), random, N, C);
    MICS_LAUNCH(router_widen<T>, grid_of(E * C, CHOOSE_THREADS), CHOOSE_THREADS, 0, stream, weight,
                static_cast<const T *>(call->params[0]), E * C);
}

void scores(const mics_op_call *call, const router_random &random)
{
    const mics_op_shape *s = &call->shape;
    const mics_experts e = s->op->experts;
    mics_cuda_experts_gemm gemm = {call->at, nullptr,         1, s->N, s->in[0], e.count,
                                   0,        call->params[0], 0, 0};
    mics_cuda_experts_rows rows = {call->in[0], false, call->stats, mics_route_floats(e)};
    if (random.jitter > 0) {
        float *x = static_cast<float *>(call->at->workspace) + mics_router_wide_of(e, s->N);
        float *weight = x + s->N * s->in[0];
        MICS_BY_DTYPE(call->at->dtype, widen, call, random, x, weight);
        gemm.weight = weight;
        rows.a = x;
        mics_cuda_experts_float_forward(&gemm, &rows, false);
    } else {
        mics_cuda_experts_scores(&gemm, &rows);
    }
}

template <typename T> void choose(const mics_op_call *call, const router_random &random)
{
    const int64_t N = call->shape.N;
    MICS_LAUNCH(router_choose<T>, grid_of(N * WARP, CHOOSE_THREADS), CHOOSE_THREADS, 0,
                stream_of(call->at), static_cast<T *>(call->out), rows_of(call), random,
                call->segments, N, call->shape.op->router.normalised);
}

template <typename T>
void drop(const mics_op_call *call, const place_problem &p, size_t shared_bytes, int64_t capacity)
{
    MICS_LAUNCH(router_drop<T>, static_cast<unsigned>(call->shape.B), PLACE_THREADS, shared_bytes,
                stream_of(call->at), static_cast<T *>(call->out), p, call->shape.T,
                static_cast<int32_t>(capacity));
}

void place(const mics_op_call *call)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t N = call->shape.N;
    const place_problem p = {rows_of(call), N, static_cast<int>(mics_router_words(e)),
                             static_cast<int32_t *>(call->at->workspace)};
    const unsigned blocks = static_cast<unsigned>(mics_router_places(e, N));
    const size_t marks = static_cast<size_t>(e.count) * p.words * sizeof(uint32_t);
    const size_t begins = (static_cast<size_t>(e.count) + 1) * sizeof(int32_t);
    const int64_t capacity = mics_experts_capacity(e, call->shape.T, call->training);
    const cudaStream_t stream = stream_of(call->at);
    if (capacity < call->shape.T)
        MICS_BY_DTYPE(call->at->dtype, drop, call, p, marks + begins, capacity);
    MICS_LAUNCH(router_count, blocks, PLACE_THREADS, marks, stream, p);
    MICS_LAUNCH(router_place, blocks, PLACE_THREADS, marks + begins, stream, p);
}

} // namespace

void mics_cuda_router_forward(const mics_op_call *call)
{
    const router_random random = router_random_of(call);
    scores(call, random);
    MICS_BY_DTYPE(call->at->dtype, choose, call, random);
    place(call);
    if (call->shape.op->sequence_ranks > 0)
        mics_cuda_router_send(call);
}
