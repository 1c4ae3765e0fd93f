// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A router's backward, all of it in fp32: sums of each sequence, from which the loss that balances
// has its gradient; a warp a token for the gradients of its scores; then those of x and of the
// weight, by plain arithmetic. Bytes: x once for 8 experts, dx once, stats twice; flops 4 N E C at
// the rate of fp32.
//
// A sequence's sums are those of its parts, in their order, and the weight's gradient that of
// slices of the tokens: how many there are follows from the shape alone.
//
// Shapes: B sequences of T tokens, N = B * T; E experts, k chosen; C channels.
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"
#include "ops/router/def.h"
#include "ops/router/random.cuh"
#include "ops/router/router_cuda.h"

namespace
{

constexpr int SUM_THREADS = 256, TOKEN_THREADS = 256, GRADIENT_THREADS = 128;
constexpr int TOKENS = 8, SLICE = 128; // of dx: tokens of a block, experts at a time
constexpr int GROUP = MICS_ROUTER_GROUP, PART = MICS_ROUTER_PART;
static_assert(int{MICS_ROUTER_SUMS} <= int{MICS_ROUTER_METRICS}, "a sequence's metrics have room");

struct problem {
    const float *stats;
    int64_t stride;
    const int32_t *targets;  // NULL: all tokens count
    const int32_t *segments; // below 0: no token; NULL: all are
    int64_t B, T, N, C, parts;
    int32_t E, k;
    mics_router_spec router;
    float loss_scale;
    bool pairs;
    router_random random;
    // workspace
    float *dscores, *sequences, *sums;
    double *metrics;
    float *part_sums; // also what came of the ranks that share sequences
    int32_t part_stride, sequence_stride;
};

__device__ __forceinline__ const float *row_of(const problem &p, int64_t n)
{
    return p.stats + n * p.stride;
}
// A token of no segment went to no expert.
__device__ __forceinline__ bool is_nothing(const problem &p, int64_t n)
{
    return p.segments != nullptr && p.segments[n] < 0;
}

// A choice of a token, and its expert, whether it is dropped or not.
__device__ __forceinline__ int32_t choice_of(const problem &p, int64_t n, int32_t j)
{
    return __float_as_int(row_of(p, n)[p.E + 2 + j]);
}
__device__ __forceinline__ int32_t chosen_of(const problem &p, int64_t n, int32_t j)
{
    const int32_t choice = choice_of(p, n, j);
    return choice < 0 ? ~choice : choice;
}

// Choices of a token that full experts did not take.
__device__ __forceinline__ int32_t dropped_of(const problem &p, int64_t n)
{
    int32_t dropped = 0;
    for (int32_t j = 0; j < p.k; ++j)
        dropped += choice_of(p, n, j) < 0 ? 1 : 0;
    if (dropped == 0 || !p.random.second || choice_of(p, n, 1) >= 0)
        return dropped;
    const float *row = row_of(p, n);
    const float first = row[chosen_of(p, n, 0)], second = row[chosen_of(p, n, 1)];
    return dropped - (leaves_out_second(p.random, n, second / (first + second)) ? 1 : 0);
}

// ---- sums of a sequence ----

// Of a part: sums of probabilities (E), tokens that chose an expert (E), entropy, tokens that
// count, choices that were dropped, tokens.
__device__ __forceinline__ float *part_of(const problem &p, int64_t b, int64_t part)
{
    return p.part_sums + b * p.sequence_stride + part * p.part_stride;
}

// A block a part of a sequence. Columns of probabilities are summed by several threads each where
// there are few.
__global__ void __launch_bounds__(SUM_THREADS) router_part(problem p)
{
    __shared__ float shared[SUM_THREADS];
    __shared__ float2 pairs[MAX_WARPS];
    MICS_DYNAMIC_SHARED(int32_t, counts);
    const int64_t b = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
    const int64_t first = b * p.T + part * PART, end_of = (b + 1) * p.T;
    const int64_t end = first + PART < end_of ? first + PART : end_of;
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    float *to = part_of(p, b, part);
    for (int32_t e = thread; e < p.E; e += SUM_THREADS)
        counts[e] = 0;
    __syncthreads();
    float entropy = 0, counted = 0, dropped = 0, tokens = 0;
    for (int64_t n = first + thread; n < end; n += SUM_THREADS) {
        if (is_nothing(p, n))
            continue;
        tokens += 1;
        entropy += row_of(p, n)[p.E + 1];
        counted += p.targets == nullptr || p.targets[n] >= 0 ? 1.0F : 0.0F;
        for (int32_t j = 0; j < p.k; ++j)
            atomicAdd(&counts[chosen_of(p, n, j)], 1);
        dropped += static_cast<float>(dropped_of(p, n));
    }
    const float2 both = team_sum2<SUM_THREADS>(entropy, counted, pairs);
    const float2 all_dropped = team_sum2<SUM_THREADS>(dropped, tokens, pairs);
    const int32_t width = p.E < SUM_THREADS ? p.E : SUM_THREADS, beside = SUM_THREADS / width;
    for (int32_t base = 0; base < p.E; base += width) {
        const int32_t e = base + thread % width, turn = thread / width;
        float sum = 0;
        for (int64_t n = first + turn; turn < beside && e < p.E && n < end; n += beside)
            sum += row_of(p, n)[e];
        shared[thread] = sum;
        __syncthreads();
        for (int32_t i = 1; turn == 0 && i < beside; ++i)
            sum += shared[i * width + thread];
        if (turn == 0 && e < p.E) {
            to[e] = sum;
            to[p.E + e] = static_cast<float>(counts[e]);
        }
        __syncthreads();
    }
    if (thread == 0) {
        to[2 * p.E] = both.x;
        to[2 * p.E + 1] = both.y;
        to[2 * p.E + 2] = all_dropped.x;
        to[2 * p.E + 3] = all_dropped.y;
    }
}

// A sequence's sum of one number of its parts.
__device__ __forceinline__ double sum_of_parts(const problem &p, int64_t b, int32_t at)
{
    double sum = 0;
#pragma unroll 4
    for (int64_t part = 0; part < p.parts; ++part)
        sum += static_cast<double>(part_of(p, b, part)[at]);
    return sum;
}

// Of a rank's tokens, to each of the S ranks that share the sequences: a block of `elems` for each.
__global__ void __launch_bounds__(SUM_THREADS)
    router_send(float *blocks, problem p, int32_t S, int64_t elems)
{
    const int64_t sums = 2 * p.E + 4;
    for (int64_t i = grid_thread(); i < p.B * sums; i += grid_threads()) {
        const double sum = sum_of_parts(p, i / sums, static_cast<int32_t>(i % sums));
        for (int32_t rank = 0; rank < S; ++rank)
            blocks[rank * elems + i] = static_cast<float>(sum);
    }
}

// A block a sequence: gradients of the loss that balances, and the metrics.
__global__ void __launch_bounds__(SUM_THREADS) router_sequence(problem p)
{
    __shared__ double shared[MAX_WARPS];
    __shared__ float highest[MAX_WARPS];
    const int64_t b = blockIdx.x;
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const double T = fmax(sum_of_parts(p, b, 2 * p.E + 3), 1.0), E = static_cast<double>(p.E);
    const double counted = sum_of_parts(p, b, 2 * p.E + 1);
    const double share = p.pairs && counted > 0 ? 0.5 : counted; // see cpu.c
    const double scale = static_cast<double>(p.loss_scale) * share / T;
    double balance = 0;
    float fullest = 0;
    for (int32_t e = thread; e < p.E; e += SUM_THREADS) {
        const double tokens = sum_of_parts(p, b, p.E + e), fraction = tokens / T;
        balance += E * fraction * sum_of_parts(p, b, e) / T;
        fullest = fmaxf(fullest, static_cast<float>(tokens));
        p.sequences[b * (p.E + 1) + e] =
            static_cast<float>(static_cast<double>(p.router.balance) * scale * E * fraction);
    }
    balance = team_sum<SUM_THREADS>(balance, shared);
    fullest = warp_max(fullest);
    if (thread % WARP == 0)
        highest[thread / WARP] = fullest;
    __syncthreads();
    if (thread != 0)
        return;
    for (int i = 1; i < SUM_THREADS / WARP; ++i)
        fullest = fmaxf(fullest, highest[i]);
    double *to = p.metrics + b * MICS_ROUTER_METRICS;
    for (int sum = 0; sum < MICS_ROUTER_SUMS; ++sum)
        to[sum] = 0;
    p.sequences[b * (p.E + 1) + p.E] = static_cast<float>(scale);
    if (scale == 0) // none of its tokens counts
        return;
    to[MICS_ROUTER_SEQUENCES] = 1;
    to[MICS_ROUTER_ENTROPY] = sum_of_parts(p, b, 2 * p.E) / T;
    to[MICS_ROUTER_FULLEST] = static_cast<double>(fullest) / T * E / p.k;
    to[MICS_ROUTER_BALANCE] = balance;
    to[MICS_ROUTER_DROPPED] = sum_of_parts(p, b, 2 * p.E + 2) / (T * p.k);
}

// By one block, in the order of sequences.
__global__ void __launch_bounds__(WARP) router_metrics(double *sums, problem p)
{
    const int32_t sum = static_cast<int32_t>(threadIdx.x);
    for (int64_t b = 0; sum < MICS_ROUTER_SUMS && b < p.B; ++b)
        sums[sum] += p.metrics[b * MICS_ROUTER_METRICS + sum];
}

// ---- gradients of scores ----

// What a token's probability of `expert` has as its gradient: `balance` from the loss that
// balances, and if it was chosen, that of its weight; one that is dropped is 0. Of weights that are
// made to sum to 1, `mean` is what they have in common and `sum` what they were divided by.
template <typename T>
__device__ __forceinline__ float probability_gradient(const problem &p, int64_t n, int32_t expert,
                                                      const T *dweights, float balance, float mean,
                                                      float sum)
{
    for (int32_t j = 0; j < p.k; ++j)
        if (chosen_of(p, n, j) == expert)
            balance += ((choice_of(p, n, j) < 0 ? 0.0F : to_float(dweights[j])) - mean) / sum;
    return balance;
}

// A warp a token.
template <typename T>
__global__ void __launch_bounds__(TOKEN_THREADS, 1) router_scores(problem p, const T *dweights_Nk)
{
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % WARP;
    for (int64_t n = grid_thread() / WARP; n < p.N; n += grid_threads() / WARP) {
        const float *row = row_of(p, n), *sequence = p.sequences + n / p.T * (p.E + 1);
        const T *dweights = dweights_Nk + n * p.k;
        for (int32_t e = lane; is_nothing(p, n) && e < p.E; e += WARP)
            p.dscores[n * p.E + e] = 0;
        if (is_nothing(p, n))
            continue;
        float sum = p.router.normalised ? 0.0F : 1.0F, mean = 0, dot = 0;
        for (int32_t j = 0; p.router.normalised && j < p.k; ++j)
            sum += row[chosen_of(p, n, j)];
        for (int32_t j = 0; p.router.normalised && j < p.k; ++j)
            if (choice_of(p, n, j) >= 0)
                mean += to_float(dweights[j]) * (row[choice_of(p, n, j)] / sum);
        for (int32_t e = lane; e < p.E; e += WARP)
            dot += row[e] * probability_gradient(p, n, e, dweights, sequence[e], mean, sum);
        dot = warp_sum(dot);
        const float z = 2 * p.router.z * sequence[p.E] * row[p.E];
        for (int32_t e = lane; e < p.E; e += WARP) {
            const float d = probability_gradient(p, n, e, dweights, sequence[e], mean, sum);
            p.dscores[n * p.E + e] = row[e] * (d - dot + z);
        }
    }
}

// ---- dx (N, C) (+)= dscores W, times the noise ----

template <typename T, int COUNT>
__global__ void __launch_bounds__(GRADIENT_THREADS)
    router_input(T *dx, const T *weight_EC, problem p, bool add)
{
    __shared__ float by[SLICE][TOKENS];
    const int64_t first = static_cast<int64_t>(blockIdx.x) * TOKENS;
    const int64_t c = (static_cast<int64_t>(blockIdx.y) * GRADIENT_THREADS + threadIdx.x) * COUNT;
    float sum[TOKENS][COUNT] = {};
    for (int32_t base = 0; base < p.E; base += SLICE) {
        const int32_t slice = p.E - base < SLICE ? p.E - base : SLICE;
        __syncthreads();
        for (int32_t i = threadIdx.x; i < slice * TOKENS; i += GRADIENT_THREADS) {
            const int64_t n = first + i / slice;
            by[i % slice][i / slice] = n < p.N ? p.dscores[n * p.E + base + i % slice] : 0.0F;
        }
        __syncthreads();
        for (int32_t e = 0; c < p.C && e < slice; ++e) {
            const auto weight = load_pack<COUNT>(weight_EC + (base + e) * p.C + c);
#pragma unroll
            for (int t = 0; t < TOKENS; ++t)
#pragma unroll
                for (int i = 0; i < COUNT; ++i)
                    sum[t][i] = fmaf(by[e][t], to_float(weight.at[i]), sum[t][i]);
        }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
        if (c >= p.C || first + t >= p.N)
            break;
        T *to = dx + (first + t) * p.C + c;
        mics_pack<T, COUNT> pack = {};
        if (add)
            pack = load_pack<COUNT>(static_cast<const T *>(to));
        if (p.random.jitter > 0) {
            float noise[COUNT] = {};
            noise_at(noise, p.random, first + t, c);
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                sum[t][i] *= noise[i];
        }
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            pack.at[i] = from_float<T>(sum[t][i] + (add ? to_float(pack.at[i]) : 0.0F));
        store_pack<COUNT>(to, pack);
    }
}

// ---- dW (E, C) (+)= dscores^T x ----

// Sums of a slice of the tokens, of a group of experts.
template <typename T, int COUNT>
__global__ void __launch_bounds__(GRADIENT_THREADS, 1)
    router_weight_slice(const T *x, problem p, int64_t tokens)
{
    __shared__ float by[PART][GROUP];
    const int32_t group = static_cast<int32_t>(blockIdx.y) * GROUP;
    const int64_t c = (static_cast<int64_t>(blockIdx.x) * GRADIENT_THREADS + threadIdx.x) * COUNT;
    const int64_t first = blockIdx.z * tokens;
    const int64_t end = first + tokens < p.N ? first + tokens : p.N;
    float sum[GROUP][COUNT] = {};
    for (int64_t base = first; base < end; base += PART) {
        __syncthreads();
        for (int32_t i = threadIdx.x; i < PART * GROUP; i += GRADIENT_THREADS) {
            const int64_t n = base + i / GROUP;
            const int32_t e = group + i % GROUP;
            by[i / GROUP][i % GROUP] = n < end && e < p.E ? p.dscores[n * p.E + e] : 0.0F;
        }
        __syncthreads();
        const int64_t part = end - base < PART ? end - base : PART;
#pragma unroll 2
        for (int64_t n = 0; c < p.C && n < part; ++n) {
            const auto in = load_pack<COUNT>(x + (base + n) * p.C + c);
            float noise[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                noise[i] = 1;
            if (p.random.jitter > 0)
                noise_at(noise, p.random, base + n, c);
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const float wide = to_float(in.at[i]) * noise[i];
#pragma unroll
                for (int e = 0; e < GROUP; ++e)
                    sum[e][i] = fmaf(by[n][e], wide, sum[e][i]);
            }
        }
    }
#pragma unroll
    for (int e = 0; e < GROUP; ++e)
        if (c < p.C && group + e < p.E)
            store_floats<COUNT>(p.sums + (blockIdx.z * p.E + group + e) * p.C + c, sum[e]);
}

template <typename T>
__global__ void __launch_bounds__(GRADIENT_THREADS)
    router_weight(T *dweight, problem p, int64_t slices, bool add)
{
    const int64_t elems = p.E * p.C;
    for (int64_t i = grid_thread(); i < elems; i += grid_threads()) {
        float sum = add ? to_float(dweight[i]) : 0.0F;
#pragma unroll 4
        for (int64_t slice = 0; slice < slices; ++slice)
            sum += p.sums[slice * elems + i];
        dweight[i] = from_float<T>(sum);
    }
}

// ---- launches ----

problem problem_of(const mics_op_call *call)
{
    const mics_op_shape *s = &call->shape;
    const mics_experts e = s->op->experts;
    const mics_router_space space = mics_router_space_of(e, s->B, s->T, s->in[0]);
    float *floats = static_cast<float *>(call->at->workspace);
    problem p = {};
    p.stats = call->stats;
    p.stride = mics_route_floats(e);
    p.targets = call->targets;
    p.segments = call->segments;
    p.B = s->B;
    p.T = s->T;
    p.N = s->N;
    p.C = s->in[0];
    p.parts = mics_router_parts(s->T);
    p.E = e.count;
    p.k = e.chosen;
    p.router = s->op->router;
    p.loss_scale = call->loss_scale;
    p.pairs = call->pairs;
    p.random = router_random_of(call);
    p.dscores = floats + space.scores;
    p.part_sums = floats + space.parts;
    p.part_stride = static_cast<int32_t>(mics_route_sums(e));
    p.sequence_stride = static_cast<int32_t>(p.parts) * p.part_stride;
    p.sequences = floats + space.sequences;
    p.metrics = reinterpret_cast<double *>(floats + space.metrics);
    p.sums = floats + space.sums;
    return p;
}

void sum_parts(const mics_op_call *call, const problem &p)
{
    MICS_LAUNCH(router_part, static_cast<unsigned>(p.B * p.parts), SUM_THREADS,
                static_cast<size_t>(p.E) * sizeof(int32_t), stream_of(call->at), p);
}

void sequences(const mics_op_call *call, problem p)
{
    const cudaStream_t stream = stream_of(call->at);
    if (call->shape.op->sequence_ranks > 0) {
        p.part_sums = const_cast<float *>(call->routes);
        p.parts = call->shape.op->sequence_ranks;
        p.sequence_stride = p.part_stride;
        p.part_stride = static_cast<int32_t>(mics_route_sums_at(&call->shape, 1, 0));
    } else {
        sum_parts(call, p);
    }
    MICS_LAUNCH(router_sequence, static_cast<unsigned>(p.B), SUM_THREADS, 0, stream, p);
    if (call->router_sums != nullptr)
        MICS_LAUNCH(router_metrics, 1, WARP, 0, stream, call->router_sums, p);
}

template <typename T, int COUNT> void gradients_of(const mics_op_call *call, const problem &p)
{
    const cudaStream_t stream = stream_of(call->at);
    const mics_experts e = call->shape.op->experts;
    const unsigned columns =
        static_cast<unsigned>(ceil_div(p.C, static_cast<int64_t>(GRADIENT_THREADS) * COUNT));
    const int64_t slices = mics_router_slices(e, p.N);
    const dim3 of_input(static_cast<unsigned>(ceil_div(p.N, TOKENS)), columns);
    const dim3 of_weight(columns, static_cast<unsigned>(ceil_div(p.E, GROUP)),
                         static_cast<unsigned>(slices));
    if (call->din != nullptr)
        MICS_LAUNCH((router_input<T, COUNT>), of_input, GRADIENT_THREADS, 0, stream,
                    static_cast<T *>(call->din), static_cast<const T *>(call->params[0]), p,
                    call->add_din);
    if (call->dparams[0] == nullptr)
        return;
    MICS_LAUNCH((router_weight_slice<T, COUNT>), of_weight, GRADIENT_THREADS, 0, stream,
                static_cast<const T *>(call->in[0]), p, ceil_div(p.N, slices));
    MICS_LAUNCH(router_weight<T>, grid_of(p.E * p.C, GRADIENT_THREADS), GRADIENT_THREADS, 0, stream,
                static_cast<T *>(call->dparams[0]), p, slices, call->add_params[0]);
}

template <typename T> void gradients(const mics_op_call *call, const problem &p)
{
    constexpr int COUNT = 16 / sizeof(T);
    MICS_LAUNCH(router_scores<T>, grid_of(p.N * WARP, TOKEN_THREADS), TOKEN_THREADS, 0,
                stream_of(call->at), p, static_cast<const T *>(call->dout));
    if (packs_fit<T, COUNT>(call->in[0], p.C) && packs_fit<T, COUNT>(call->params[0], p.C) &&
        packs_fit<T, COUNT>(call->din, p.C))
        gradients_of<T, COUNT>(call, p);
    else
        gradients_of<T, 1>(call, p);
}

} // namespace

void mics_cuda_router_send(const mics_op_call *call)
{
    const mics_op_shape *s = &call->shape;
    problem p = problem_of(call);
    p.part_sums = static_cast<float *>(call->at->workspace);
    sum_parts(call, p);
    MICS_LAUNCH(router_send, grid_of(p.B * p.part_stride, SUM_THREADS), SUM_THREADS, 0,
                stream_of(call->at), call->stats + s->N * mics_route_floats(s->op->experts), p,
                s->op->sequence_ranks, mics_route_sums_at(s, 1, 0));
}

void mics_cuda_router_backward(const mics_op_call *call)
{
    const problem p = problem_of(call);
    sequences(call, p);
    MICS_BY_DTYPE(call->at->dtype, gradients, call, p);
}
