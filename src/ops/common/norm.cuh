// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Normalisation of rows and its gradients: LayerNorm, and with CENTRED false RMSNorm, which has no
// mean and no bias. Shapes: see mics/op.h.
//
// Forward: bytes 2 s N C (x once, y once) and 4 a statistic. A team of threads takes a row, holds
// it in registers as it came (PACKS packs of 16 bytes a thread) and goes over it three times: mean,
// squares of what differs from it, results. Teams are a warp for rows up to 4 KiB, else a block.
//
// Backward: bytes 3 s N C (dy and x once, dx once; 4 s N C when it adds) and the partial sums, 4 C
// a block and parameter written and read, which stay in the chip's cache. Sums over columns want
// few owners with many rows each: so a number of blocks that the shape alone fixes, as many as the
// largest chips hold at once, goes over all rows. A thread holds the same columns of each of its
// team's rows, and their sums of dy * normal and of dy, in registers. At the end a block's teams
// add theirs in order, and a second kernel adds the blocks' in order.
//
// Rows that cannot be read in packs, or are too long for registers, go by plain loops: any shape,
// up to twice the traffic.
#pragma once

#include "ops/common/cuda_ops.h"
#include "ops/common/def.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"

enum {
    FORWARD_THREADS = 256,
    SHORT_PACKS = 128,  // backward: a row of so many packs is taken by 128 threads, one each
    MIDDLE_PACKS = 512, // by 128 or 256, two each
    LONG_PACKS = 2048,  // by 512, up to four each
    // The largest chips have some more multiprocessors than that.
    BLOCKS_PER_WAVE = MICS_NORM_ACCELERATOR_BLOCKS / 4,
    PLAIN_THREADS = 256,
    COLUMN_WARPS = 8, // of the kernel that adds the blocks' sums
};

// The arguments of both passes.
struct norm_args {
    const void *x_NC, *weight_C, *bias_C; // no bias where it is not centred
    float *stats; // of each row the mean, where it is centred, and the scale
    float eps;
    int64_t N, C;
    void *y_NC;
    // backward
    const void *dy_NC;
    void *dx_NC, *dweight_C, *dbias_C; // NULL: not wanted
    bool add_dx, add_params[2];
    float *partial; // (blocks, SUMS, C): sums of dy * normal, and where it is centred of dy
};

static __device__ __host__ inline bool wants_params(const norm_args &a)
{
    return a.dweight_C != nullptr || a.dbias_C != nullptr;
}

// Numbers that are kept of a row, and parameters whose gradients are summed.
template <bool CENTRED> constexpr int SUMS = CENTRED ? 2 : 1;

// normal = (x - mean) scale
struct row_stats {
    float mean, scale;
};

template <bool CENTRED>
static __device__ __forceinline__ row_stats get_stats(const norm_args &a, int64_t n)
{
    return {CENTRED ? a.stats[2 * n] : 0.0F, a.stats[SUMS<CENTRED> * n + SUMS<CENTRED> - 1]};
}

template <bool CENTRED>
static __device__ __forceinline__ void put_stats(const norm_args &a, int64_t n, row_stats stats)
{
    if constexpr (CENTRED)
        a.stats[2 * n] = stats.mean;
    a.stats[SUMS<CENTRED> * n + SUMS<CENTRED> - 1] = stats.scale;
}

// A row as a team holds it: its thread number `member` has the packs member, member + TEAM, ...
template <typename T, int TEAM, int PACKS> struct row_packs {
    static const int COUNT = 16 / sizeof(T);
    mics_pack<T, COUNT> pack[PACKS];

    // The column where pack number i of this thread begins.
    static __device__ __forceinline__ int column(int i)
    {
        return (static_cast<int>(threadIdx.x) % TEAM + i * TEAM) * COUNT;
    }
    __device__ __forceinline__ void load(const void *rows, int64_t n, int columns, int64_t C)
    {
        const T *row = static_cast<const T *>(rows) + n * C;
#pragma unroll
        for (int i = 0; i < PACKS; ++i)
            if (column(i) < columns)
                pack[i] = load_pack<COUNT>(row + column(i));
    }
    __device__ __forceinline__ void hold()
    {
#pragma unroll
        for (int i = 0; i < PACKS; ++i)
            hold_packed(pack[i]);
    }
};

template <typename T, int TEAM, int PACKS>
static __device__ __forceinline__ float row_mean(const row_packs<T, TEAM, PACKS> &x, int columns,
                                                 int64_t C, float *shared)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PACKS; ++i)
        if (x.column(i) < columns)
#pragma unroll
            for (int k = 0; k < x.COUNT; ++k)
                sum += to_float(x.pack[i].at[k]);
    return team_sum<TEAM>(sum, shared) / static_cast<float>(C);
}

template <typename T, int TEAM, int PACKS>
static __device__ __forceinline__ float row_scale(const row_packs<T, TEAM, PACKS> &x, int columns,
                                                  float mean, const norm_args &a, float *shared)
{
    float squares = 0;
#pragma unroll
    for (int i = 0; i < PACKS; ++i)
        if (x.column(i) < columns)
#pragma unroll
            for (int k = 0; k < x.COUNT; ++k) {
                const float off = to_float(x.pack[i].at[k]) - mean;
                squares += off * off;
            }
    squares = team_sum<TEAM>(squares, shared);
    return 1.0F / sqrtf(squares / static_cast<float>(a.C) + a.eps);
}

template <bool CENTRED, typename T, int TEAM, int PACKS>
static __device__ __forceinline__ void normalise(const row_packs<T, TEAM, PACKS> &x, int columns,
                                                 row_stats stats, const norm_args &a, int64_t n)
{
    const int COUNT = 16 / sizeof(T);
    T *y_C = static_cast<T *>(a.y_NC) + n * a.C;
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int c = x.column(i);
        if (c >= columns)
            continue;
        const auto weight = load_pack<COUNT>(static_cast<const T *>(a.weight_C) + c);
        mics_pack<T, COUNT> bias, y;
        if constexpr (CENTRED)
            bias = load_pack<COUNT>(static_cast<const T *>(a.bias_C) + c);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float normal = (to_float(x.pack[i].at[k]) - stats.mean) * stats.scale;
            const float scaled = normal * to_float(weight.at[k]);
            y.at[k] = from_float<T>(CENTRED ? scaled + to_float(bias.at[k]) : scaled);
        }
        store_pack<COUNT>(y_C + c, y);
    }
}

template <bool CENTRED, typename T, int TEAM, int PACKS>
__global__ void __launch_bounds__(FORWARD_THREADS) norm_forward(norm_args a)
{
    __shared__ float shared[MAX_WARPS];
    const int64_t TEAMS = FORWARD_THREADS / TEAM, team = threadIdx.x / TEAM;
    for (int64_t first = blockIdx.x * TEAMS; first < a.N; first += gridDim.x * TEAMS) {
        // Whole teams may be beyond the last row; they have no columns, but come to the barriers.
        const int64_t n = first + team;
        const int columns = n < a.N ? static_cast<int>(a.C) : 0;
        row_packs<T, TEAM, PACKS> x;
        x.load(a.x_NC, n, columns, a.C);
        row_stats stats = {};
        if constexpr (CENTRED) {
            stats.mean = row_mean(x, columns, a.C, shared);
            x.hold();
        }
        stats.scale = row_scale(x, columns, stats.mean, a, shared);
        x.hold();
        normalise<CENTRED>(x, columns, stats, a, n);
        if (threadIdx.x % TEAM == 0 && n < a.N)
            put_stats<CENTRED>(a, n, stats);
    }
}

// Any shape: a block a row.
template <bool CENTRED, typename T>
__global__ void __launch_bounds__(PLAIN_THREADS) norm_forward_plain(norm_args a)
{
    __shared__ float shared[MAX_WARPS];
    const T *weight_C = static_cast<const T *>(a.weight_C);
    const T *bias_C = static_cast<const T *>(a.bias_C);
    for (int64_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const T *x_C = static_cast<const T *>(a.x_NC) + n * a.C;
        T *y_C = static_cast<T *>(a.y_NC) + n * a.C;
        float sum = 0, squares = 0;
        row_stats stats = {};
        for (int64_t c = threadIdx.x; CENTRED && c < a.C; c += PLAIN_THREADS)
            sum += to_float(x_C[c]);
        if constexpr (CENTRED)
            stats.mean = team_sum<PLAIN_THREADS>(sum, shared) / static_cast<float>(a.C);
        for (int64_t c = threadIdx.x; c < a.C; c += PLAIN_THREADS)
            squares += (to_float(x_C[c]) - stats.mean) * (to_float(x_C[c]) - stats.mean);
        squares = team_sum<PLAIN_THREADS>(squares, shared);
        stats.scale = 1.0F / sqrtf(squares / static_cast<float>(a.C) + a.eps);
        for (int64_t c = threadIdx.x; c < a.C; c += PLAIN_THREADS) {
            const float normal = (to_float(x_C[c]) - stats.mean) * stats.scale;
            const float scaled = normal * to_float(weight_C[c]);
            y_C[c] = from_float<T>(CENTRED ? scaled + to_float(bias_C[c]) : scaled);
        }
        if (threadIdx.x == 0)
            put_stats<CENTRED>(a, n, stats);
    }
}

template <bool CENTRED, typename T, int TEAM, int PACKS>
static void forward_team(cudaStream_t stream, const norm_args &a)
{
    MICS_LAUNCH((norm_forward<CENTRED, T, TEAM, PACKS>), grid_of(a.N, FORWARD_THREADS / TEAM),
                FORWARD_THREADS, 0, stream, a);
}

// How many packs a row has; more than any kernel takes where it cannot be read in packs.
template <typename T> static int64_t packs_of_row(const void *const *buffers, int count, int64_t C)
{
    const int COUNT = 16 / sizeof(T);
    for (int i = 0; i < count; ++i)
        if (!packs_fit<T, COUNT>(buffers[i], C))
            return INT64_MAX;
    return C / COUNT;
}

template <bool CENTRED, typename T> static void forward(cudaStream_t stream, const norm_args &a)
{
    const void *const buffers[] = {a.x_NC, a.y_NC, a.weight_C, a.bias_C};
    const int64_t packs = packs_of_row<T>(buffers, 4, a.C);
    if (packs <= 4 * WARP)
        forward_team<CENTRED, T, WARP, 4>(stream, a);
    else if (packs <= 8 * WARP)
        forward_team<CENTRED, T, WARP, 8>(stream, a);
    else if (packs <= 4 * FORWARD_THREADS)
        forward_team<CENTRED, T, FORWARD_THREADS, 4>(stream, a);
    else if (packs <= 8 * FORWARD_THREADS)
        forward_team<CENTRED, T, FORWARD_THREADS, 8>(stream, a);
    else
        MICS_LAUNCH((norm_forward_plain<CENTRED, T>), grid_of(a.N, 1), PLAIN_THREADS, 0, stream, a);
}

// ---- backward ----
// With normal = (x - mean) scale and g = dy weight: dx = scale (g - mean of g - normal * mean of (g
// normal)).

// Blocks that share the rows: what a multiprocessor holds at once of the kernel for rows of so many
// packs, 256 threads of 64 or 80 registers or 512 of 128, times BLOCKS_PER_WAVE.
static int64_t backward_blocks(int64_t packs, int64_t N)
{
    const int64_t each = packs <= SHORT_PACKS ? 4 : packs <= MIDDLE_PACKS ? 3 : 1;
    return N < each * BLOCKS_PER_WAVE ? N : each * BLOCKS_PER_WAVE;
}

// Sums of g and of g * normal; where it is not centred the first counts for nothing.
template <bool CENTRED, int TEAM>
static __device__ __forceinline__ float2 both_sums(float sum, float sum_normal, float2 *shared)
{
    if constexpr (CENTRED)
        return team_sum2<TEAM>(sum, sum_normal, shared);
    else
        return make_float2(0, team_sum<TEAM>(sum_normal, reinterpret_cast<float *>(shared)));
}

// What a thread has summed of its columns: for the weight, and where it is centred for the bias.
template <bool CENTRED, typename T, int PACKS> struct column_sums {
    float at[SUMS<CENTRED>][PACKS][16 / sizeof(T)];
};

template <bool CENTRED, typename T, int TEAM, int PACKS>
static __device__ __forceinline__ void
add_row(column_sums<CENTRED, T, PACKS> &sums, row_packs<T, TEAM, PACKS> &dy,
        row_packs<T, TEAM, PACKS> &x, int columns, const norm_args &a, int64_t n, float2 *shared)
{
    const int COUNT = 16 / sizeof(T);
    const row_stats stats = columns ? get_stats<CENTRED>(a, n) : row_stats{};
    float sum = 0, sum_normal = 0;
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        if (x.column(i) >= columns)
            continue;
        const auto weight = load_pack<COUNT>(static_cast<const T *>(a.weight_C) + x.column(i));
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float from = to_float(dy.pack[i].at[k]), g = from * to_float(weight.at[k]);
            const float normal = (to_float(x.pack[i].at[k]) - stats.mean) * stats.scale;
            sum += g;
            sum_normal += g * normal;
            sums.at[0][i][k] += from * normal;
            if constexpr (CENTRED)
                sums.at[1][i][k] += from;
        }
    }
    if (a.dx_NC == nullptr)
        return;
    dy.hold();
    x.hold();
    const float2 both = both_sums<CENTRED, TEAM>(sum, sum_normal, shared);
    const float mean_g = both.x / static_cast<float>(a.C);
    const float mean_normal = both.y / static_cast<float>(a.C);
    T *dx_C = static_cast<T *>(a.dx_NC) + n * a.C;
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int c = x.column(i);
        if (c >= columns)
            continue;
        const auto weight = load_pack<COUNT>(static_cast<const T *>(a.weight_C) + c);
        mics_pack<T, COUNT> dx;
        if (a.add_dx)
            dx = load_pack<COUNT>(static_cast<const T *>(dx_C) + c);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float normal = (to_float(x.pack[i].at[k]) - stats.mean) * stats.scale;
            const float g = to_float(dy.pack[i].at[k]) * to_float(weight.at[k]);
            const float d = (g - mean_g - normal * mean_normal) * stats.scale;
            dx.at[k] = from_float<T>(a.add_dx ? to_float(dx.at[k]) + d : d);
        }
        store_pack<COUNT>(dx_C + c, dx);
    }
}

// Adds up what the teams of the block have, team 0 first; the last team then holds the sums.
template <bool CENTRED, typename T, int THREADS, int TEAM, int PACKS>
static __device__ __forceinline__ void add_teams(column_sums<CENTRED, T, PACKS> &sums)
{
    const int COUNT = 16 / sizeof(T), EACH = PACKS * COUNT, TEAMS = THREADS / TEAM;
    if constexpr (TEAMS > 1) {
        __shared__ float shared[SUMS<CENTRED> * EACH][TEAM];
        const int team = static_cast<int>(threadIdx.x) / TEAM;
        const int member = static_cast<int>(threadIdx.x) % TEAM;
        for (int turn = 0; turn < TEAMS; ++turn) {
            if (team == turn) {
#pragma unroll
                for (int i = 0; i < SUMS<CENTRED> * EACH; ++i) {
                    float *sum = &sums.at[i / EACH][i % EACH / COUNT][i % COUNT];
                    if (turn > 0)
                        *sum = shared[i][member] + *sum;
                    shared[i][member] = *sum;
                }
            }
            __syncthreads();
        }
    }
}

template <bool CENTRED, typename T, int THREADS, int TEAM, int PACKS>
__global__ void __launch_bounds__(THREADS, THREADS == 512 ? 1
                                           : PACKS == 1   ? 4
                                                          : 3) norm_backward(norm_args a)
{
    __shared__ float2 shared[MAX_WARPS];
    const int64_t TEAMS = THREADS / TEAM, team = threadIdx.x / TEAM;
    column_sums<CENTRED, T, PACKS> sums = {};
    for (int64_t first = blockIdx.x * TEAMS; first < a.N; first += gridDim.x * TEAMS) {
        const int64_t n = first + team;
        const int columns = n < a.N ? static_cast<int>(a.C) : 0;
        row_packs<T, TEAM, PACKS> dy, x;
        dy.load(a.dy_NC, n, columns, a.C);
        x.load(a.x_NC, n, columns, a.C);
        add_row(sums, dy, x, columns, a, n, shared);
    }
    if (!wants_params(a))
        return;
    add_teams<CENTRED, T, THREADS, TEAM, PACKS>(sums);
    if (team != TEAMS - 1)
        return;
    float *partial = a.partial + SUMS<CENTRED> * blockIdx.x * a.C;
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int64_t c = row_packs<T, TEAM, PACKS>::column(i);
        if (c >= a.C)
            continue;
#pragma unroll
        for (int of = 0; of < SUMS<CENTRED>; ++of)
            store_floats(partial + of * a.C + c, sums.at[of][i]); // C is a multiple of COUNT
    }
}

// dweight and dbias (+)= the blocks' sums. A warp adds every COLUMN_WARPS-th block's 32 columns.
template <bool CENTRED, typename T>
__global__ void __launch_bounds__(COLUMN_WARPS *WARP) norm_columns(norm_args a, int64_t blocks)
{
    __shared__ float shared[COLUMN_WARPS][WARP];
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    const int64_t c = static_cast<int64_t>(blockIdx.x) * WARP + lane;
    float sum = 0;
#pragma unroll 8
    for (int64_t block = warp; block < blocks; block += COLUMN_WARPS)
        if (c < SUMS<CENTRED> * a.C)
            sum += a.partial[SUMS<CENTRED> * block * a.C + c];
    shared[warp][lane] = sum;
    __syncthreads();
    T *dweight_C = static_cast<T *>(a.dweight_C), *dbias_C = static_cast<T *>(a.dbias_C);
    if (warp != 0 || c >= SUMS<CENTRED> * a.C || (c < a.C ? dweight_C : dbias_C) == nullptr)
        return;
    for (int other = 1; other < COLUMN_WARPS; ++other)
        sum += shared[other][lane];
    T *to = c < a.C ? dweight_C + c : dbias_C + (c - a.C);
    *to = from_float<T>(a.add_params[c < a.C ? 0 : 1] ? to_float(*to) + sum : sum);
}

// Any shape: partial sums of the columns, a thread each.
template <bool CENTRED, typename T>
__global__ void __launch_bounds__(PLAIN_THREADS) norm_columns_plain(norm_args a)
{
    const int64_t c = static_cast<int64_t>(blockIdx.x) * PLAIN_THREADS + threadIdx.x;
    if (c >= a.C)
        return;
    float weight = 0, bias = 0;
    for (int64_t n = blockIdx.y; n < a.N; n += gridDim.y) {
        const row_stats stats = get_stats<CENTRED>(a, n);
        const float dy = to_float(static_cast<const T *>(a.dy_NC)[n * a.C + c]);
        const float x = to_float(static_cast<const T *>(a.x_NC)[n * a.C + c]);
        weight += dy * ((x - stats.mean) * stats.scale);
        bias += dy;
    }
    float *partial = a.partial + SUMS<CENTRED> * blockIdx.y * a.C;
    partial[c] = weight;
    if constexpr (CENTRED)
        partial[a.C + c] = bias;
}

// Any shape: dx, a block a row.
template <bool CENTRED, typename T>
__global__ void __launch_bounds__(PLAIN_THREADS) norm_rows_plain(norm_args a)
{
    __shared__ float2 shared[MAX_WARPS];
    const T *weight_C = static_cast<const T *>(a.weight_C);
    for (int64_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const T *dy_C = static_cast<const T *>(a.dy_NC) + n * a.C;
        const T *x_C = static_cast<const T *>(a.x_NC) + n * a.C;
        T *dx_C = static_cast<T *>(a.dx_NC) + n * a.C;
        const row_stats stats = get_stats<CENTRED>(a, n);
        float sum = 0, sum_normal = 0;
        for (int64_t c = threadIdx.x; c < a.C; c += PLAIN_THREADS) {
            const float g = to_float(dy_C[c]) * to_float(weight_C[c]);
            sum += g;
            sum_normal += g * ((to_float(x_C[c]) - stats.mean) * stats.scale);
        }
        const float2 both = both_sums<CENTRED, PLAIN_THREADS>(sum, sum_normal, shared);
        const float mean_g = both.x / static_cast<float>(a.C);
        const float mean_normal = both.y / static_cast<float>(a.C);
        for (int64_t c = threadIdx.x; c < a.C; c += PLAIN_THREADS) {
            const float normal = (to_float(x_C[c]) - stats.mean) * stats.scale;
            const float g = to_float(dy_C[c]) * to_float(weight_C[c]);
            const float d = (g - mean_g - normal * mean_normal) * stats.scale;
            dx_C[c] = from_float<T>(a.add_dx ? to_float(dx_C[c]) + d : d);
        }
    }
}

// dx and the blocks' sums.
template <bool CENTRED, typename T, int THREADS, int TEAM, int PACKS>
static void backward_team(cudaStream_t stream, const norm_args &a, int64_t blocks)
{
    MICS_LAUNCH((norm_backward<CENTRED, T, THREADS, TEAM, PACKS>), static_cast<unsigned>(blocks),
                THREADS, 0, stream, a);
}

// The same in two kernels; dx may be dy, so it comes second.
template <bool CENTRED, typename T>
static void backward_plain(cudaStream_t stream, const norm_args &a, int64_t blocks)
{
    const dim3 grid(static_cast<unsigned>(ceil_div(a.C, PLAIN_THREADS)),
                    static_cast<unsigned>(blocks));
    if (wants_params(a))
        MICS_LAUNCH((norm_columns_plain<CENTRED, T>), grid, PLAIN_THREADS, 0, stream, a);
    if (a.dx_NC != nullptr)
        MICS_LAUNCH((norm_rows_plain<CENTRED, T>), grid_of(a.N, 1), PLAIN_THREADS, 0, stream, a);
}

template <bool CENTRED, typename T> static void backward(cudaStream_t stream, const norm_args &a)
{
    const void *const buffers[] = {a.x_NC, a.dy_NC, a.dx_NC, a.weight_C};
    const int64_t packs = packs_of_row<T>(buffers, 4, a.C);
    const int64_t blocks = backward_blocks(packs, a.N);
    if (packs <= WARP)
        backward_team<CENTRED, T, 256, WARP, 1>(stream, a, blocks);
    else if (packs <= SHORT_PACKS)
        backward_team<CENTRED, T, 256, 128, 1>(stream, a, blocks);
    else if (packs <= MIDDLE_PACKS / 2)
        backward_team<CENTRED, T, 256, 128, 2>(stream, a, blocks);
    else if (packs <= MIDDLE_PACKS)
        backward_team<CENTRED, T, 256, 256, 2>(stream, a, blocks);
    else if (packs <= LONG_PACKS / 2)
        backward_team<CENTRED, T, 512, 512, 2>(stream, a, blocks);
    else if (packs <= LONG_PACKS)
        backward_team<CENTRED, T, 512, 512, 4>(stream, a, blocks);
    else
        backward_plain<CENTRED, T>(stream, a, blocks);
    if (wants_params(a))
        MICS_LAUNCH((norm_columns<CENTRED, T>),
                    static_cast<unsigned>(ceil_div(SUMS<CENTRED> * a.C, WARP)), COLUMN_WARPS * WARP,
                    0, stream, a, blocks);
}

// ---- what an op's table has ----

template <bool CENTRED> struct norm_passes {
    template <typename T> static void forward_of(const mics_op_call *call, const norm_args &a)
    {
        forward<CENTRED, T>(stream_of(call->at), a);
    }
    template <typename T> static void backward_of(const mics_op_call *call, const norm_args &a)
    {
        backward<CENTRED, T>(stream_of(call->at), a);
    }
    static norm_args arguments(const mics_op_call *call)
    {
        norm_args a = {};
        a.x_NC = call->in[0];
        a.weight_C = call->params[0];
        a.bias_C = CENTRED ? call->params[1] : nullptr;
        a.stats = call->stats;
        a.eps = call->shape.op->eps;
        a.N = call->shape.N;
        a.C = call->shape.out;
        a.y_NC = call->out;
        a.dy_NC = call->dout;
        a.dx_NC = call->din;
        a.dweight_C = call->dparams[0];
        a.dbias_C = CENTRED ? call->dparams[1] : nullptr;
        a.add_dx = call->add_din;
        a.add_params[0] = call->add_params[0];
        a.add_params[1] = call->add_params[1];
        a.partial = static_cast<float *>(call->at->workspace);
        return a;
    }
    static void run_forward(const mics_op_call *call)
    {
        MICS_BY_DTYPE(call->at->dtype, forward_of, call, arguments(call));
    }
    static void run_backward(const mics_op_call *call)
    {
        MICS_BY_DTYPE(call->at->dtype, backward_of, call, arguments(call));
    }
};
