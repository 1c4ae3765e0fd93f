// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which token's each sorted row is, where an expert's rows and tiles begin, of sorted rows and of
// those that came, and sums of a token's rows. Bytes: routes some 20 a row; sums s (k + 1) a number
// of a token (s more when they add).
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"
#include "ops/experts/experts_cuda.h"
#include "ops/experts/rows.cuh"

namespace
{

constexpr int ROUTE_THREADS = 256, ADD_THREADS = 256;

__global__ void __launch_bounds__(ROUTE_THREADS)
    route_rows(routes_of_tokens from, mics_cuda_routes to, int64_t rows)
{
    for (int64_t i = grid_thread(); i < rows; i += grid_threads()) {
        const int64_t n = i / from.chosen;
        const int j = static_cast<int>(i % from.chosen);
        const int32_t row = from.row(n, j);
        to.tokens[row] = static_cast<int32_t>(n);
        to.experts[row] = from.expert(n, j);
    }
}

// The first row whose expert is not below `expert`.
__device__ int32_t first_row(const int32_t *experts, int64_t rows, int32_t expert)
{
    int64_t low = 0, high = rows;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (experts[middle] < expert)
            low = middle + 1;
        else
            high = middle;
    }
    return static_cast<int32_t>(low);
}

// By one block.
__global__ void __launch_bounds__(ROUTE_THREADS)
    route_experts(mics_cuda_routes to, int64_t rows, int32_t experts)
{
    __shared__ int shared[MAX_WARPS];
    int32_t tiles = 0; // of the experts before
    for (int32_t base = 0; base < experts; base += ROUTE_THREADS) {
        const int32_t e = base + static_cast<int32_t>(threadIdx.x);
        const int32_t begin = first_row(to.experts, rows, e),
                      end = first_row(to.experts, rows, e + 1);
        const int32_t of_rows = (end - begin + MICS_CUDA_EXPERTS_TILE - 1) / MICS_CUDA_EXPERTS_TILE;
        int total = 0;
        const int before =
            block_sum_before<ROUTE_THREADS>(e < experts ? of_rows : 0, shared, &total);
        if (e < experts) {
            to.first[e] = begin;
            to.tiles[e] = tiles + before;
        }
        tiles += total;
    }
    if (threadIdx.x == 0) {
        to.first[experts] = first_row(to.experts, rows, experts);
        to.tiles[experts] = tiles;
    }
}

// By one block. Of each block that came, a run an expert and one of the rows of no use.
template <typename T>
__global__ void __launch_bounds__(ROUTE_THREADS)
    route_runs(mics_cuda_routes to, tags_of_rows<T> tags, int32_t blocks, int32_t kept)
{
    __shared__ int shared[MAX_WARPS];
    const int32_t runs = blocks * (kept + 1), rows = static_cast<int32_t>(tags.rows);
    int32_t tiles = 0; // of the runs before
    for (int32_t base = 0; base < runs; base += ROUTE_THREADS) {
        const int32_t run = base + static_cast<int32_t>(threadIdx.x);
        const int32_t block = run / (kept + 1), expert = run % (kept + 1);
        int32_t begin = 0, of_rows = 0;
        if (run < runs) {
            begin = tags.first(block, static_cast<uint32_t>(expert));
            of_rows =
                expert < kept ? tags.first(block, static_cast<uint32_t>(expert + 1)) - begin : 0;
        }
        int total = 0;
        const int before = block_sum_before<ROUTE_THREADS>(
            (of_rows + MICS_CUDA_EXPERTS_TILE - 1) / MICS_CUDA_EXPERTS_TILE, shared, &total);
        if (run < runs) {
            to.first[run] = block * rows + begin;
            to.tiles[run] = tiles + before;
        }
        tiles += total;
    }
    if (threadIdx.x == 0) {
        to.first[runs] = blocks * rows;
        to.tiles[runs] = tiles;
    }
}

template <typename T, int COUNT>
__global__ void __launch_bounds__(ADD_THREADS)
    add_up_rows(T *y, const T *rows, const T *weights, rows_of_tokens of, int64_t N, bool add)
{
    const int64_t width = of.width;
    const int chosen = of.from.chosen;
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        for (int64_t i = threadIdx.x * COUNT; i < width; i += (int64_t)ADD_THREADS * COUNT) {
            mics_pack<T, COUNT> pack = {};
            if (add)
                pack = load_pack<COUNT>(static_cast<const T *>(y) + n * width + i);
            float sum[COUNT];
#pragma unroll
            for (int c = 0; c < COUNT; ++c)
                sum[c] = to_float(pack.at[c]);
#pragma unroll(COUNT > 1 ? 4 : 1) // rows whose loads are on their way together
            for (int j = 0; j < chosen; ++j) {
                const int64_t at = of.place(n, j);
                if (at < 0)
                    continue;
                const auto in = load_pack<COUNT>(rows + at + i);
                const float by = weights != nullptr ? to_float(weights[n * chosen + j]) : 1.0F;
#pragma unroll
                for (int c = 0; c < COUNT; ++c)
                    sum[c] += by * to_float(in.at[c]);
            }
#pragma unroll
            for (int c = 0; c < COUNT; ++c)
                pack.at[c] = from_float<T>(sum[c]);
            store_pack<COUNT>(y + n * width + i, pack);
        }
    }
}

rows_of_tokens summed_rows(const mics_op_call *call, const mics_cuda_experts_sum *s)
{
    if (s->routes != nullptr)
        return sent_rows(call, s->routes, s->width, s->tensor_width);
    return {tokens_of(call), nullptr, 0, 0, s->width};
}

template <typename T, int COUNT>
void launch_add_up(const mics_op_call *call, const mics_cuda_experts_sum *s,
                   const rows_of_tokens &of)
{
    MICS_LAUNCH((add_up_rows<T, COUNT>), grid_of(call->shape.N, 1), ADD_THREADS, 0,
                stream_of(call->at), static_cast<T *>(s->y), static_cast<const T *>(s->rows),
                static_cast<const T *>(s->weights), of, call->shape.N, s->add);
}

template <typename T> void add_up(const mics_op_call *call, const mics_cuda_experts_sum *s)
{
    constexpr int COUNT = 16 / sizeof(T);
    const rows_of_tokens of = summed_rows(call, s);
    if (packs_fit<T, COUNT>(s->y, s->width) && packs_fit<T, COUNT>(s->rows, s->width) &&
        of.block_elems % COUNT == 0)
        launch_add_up<T, COUNT>(call, s, of);
    else
        launch_add_up<T, 1>(call, s, of);
}

template <typename T> void find_runs(const mics_op_call *call, const mics_cuda_routes *to)
{
    const mics_op *op = call->shape.op;
    MICS_LAUNCH((route_runs<T>), 1, ROUTE_THREADS, 0, stream_of(call->at), *to,
                tags_that_came<T>(call), op->expert_ranks, mics_experts_kept(op));
}

} // namespace

mics_cuda_routes mics_cuda_experts_route(const mics_op_call *call)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t rows = call->shape.N * e.chosen;
    float *floats = static_cast<float *>(call->at->workspace);
    int32_t *ints = static_cast<int32_t *>(call->at->workspace);
    const mics_cuda_routes to = {ints, ints + rows, ints + 2 * rows, ints + 2 * rows + e.count + 1,
                                 floats + mics_experts_route_floats(e, rows)};
    const cudaStream_t stream = stream_of(call->at);
    MICS_LAUNCH(route_rows, grid_of(rows, ROUTE_THREADS), ROUTE_THREADS, 0, stream, tokens_of(call),
                to, rows);
    MICS_LAUNCH(route_experts, 1, ROUTE_THREADS, 0, stream, to, rows, e.count);
    return to;
}

mics_cuda_routes mics_cuda_experts_came(const mics_op_call *call)
{
    const mics_op *op = call->shape.op;
    int32_t *ints = static_cast<int32_t *>(call->at->workspace);
    const mics_cuda_routes to = {nullptr, nullptr, ints,
                                 ints + op->experts.count + op->expert_ranks + 1, nullptr};
    MICS_BY_DTYPE(call->at->dtype, find_runs, call, &to);
    return to;
}

void mics_cuda_experts_add_up(const mics_op_call *call, const mics_cuda_experts_sum *sum)
{
    MICS_BY_DTYPE(call->at->dtype, add_up, call, sum);
}
