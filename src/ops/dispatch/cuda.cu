// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Each token's numbers to the rows of its experts, as in cpu.c, and the sum of their gradients back.
// A block a token; a tag by what the sorted row at its place says. Bytes: s (k + 1) a number of a
// token each way.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/experts/rows.cuh"

namespace
{

constexpr int SEND_THREADS = 256;

template <typename T, int COUNT>
__global__ void __launch_bounds__(SEND_THREADS)
    send_rows(T *y, const T *x, rows_of_tokens of, int64_t N)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        const T *x_C = x + n * of.width;
        for (int j = 0; j < of.from.chosen; ++j) {
            const int64_t at = of.place(n, j);
            if (at < 0)
                continue;
            for (int64_t i = threadIdx.x * COUNT; i < of.width; i += (int64_t)SEND_THREADS * COUNT)
                store_pack<COUNT>(y + at + i, load_pack<COUNT>(x_C + i));
        }
    }
}

// tags: those of the first block; `rows` a block.
template <typename T>
__global__ void __launch_bounds__(SEND_THREADS)
    send_tags(T *tags, mics_cuda_routes routes, rows_of_tokens of, int64_t rows, int32_t blocks)
{
    for (int64_t i = grid_thread(); i < rows * blocks; i += grid_threads()) {
        const int64_t block = i / rows, row = i % rows;
        const int64_t sorted = routes.first[block * of.kept] + row;
        const bool used = sorted < routes.first[(block + 1) * of.kept];
        put_tag(tags + block * of.block_elems + row,
                used ? static_cast<uint32_t>(routes.experts[sorted] % of.kept)
                     : uint32_t{MICS_ROW_NONE});
    }
}

template <typename T, int COUNT>
void launch_rows(const mics_op_call *call, const rows_of_tokens &of)
{
    MICS_LAUNCH((send_rows<T, COUNT>), grid_of(call->shape.N, 1), SEND_THREADS, 0,
                stream_of(call->at), static_cast<T *>(call->out),
                static_cast<const T *>(call->in[0]), of, call->shape.N);
}

template <typename T> void send(const mics_op_call *call, const mics_cuda_routes *routes)
{
    constexpr int COUNT = 16 / sizeof(T);
    const mics_op *op = call->shape.op;
    const int64_t C = call->shape.in[0], rows = mics_experts_block_rows(&call->shape);
    const rows_of_tokens of = sent_rows(call, routes, C, call->shape.out);
    if (packs_fit<T, COUNT>(call->in[0], C) && packs_fit<T, COUNT>(call->out, C) &&
        of.block_elems % COUNT == 0)
        launch_rows<T, COUNT>(call, of);
    else
        launch_rows<T, 1>(call, of);
    MICS_LAUNCH((send_tags<T>), grid_of(rows * op->expert_ranks, SEND_THREADS), SEND_THREADS, 0,
                stream_of(call->at), static_cast<T *>(call->out) + rows * C, *routes, of, rows,
                op->expert_ranks);
}

void run_forward(const mics_op_call *call)
{
    const mics_cuda_routes routes = mics_cuda_experts_route(call);
    MICS_BY_DTYPE(call->at->dtype, send, call, &routes);
}

void run_backward(const mics_op_call *call)
{
    if (call->din == nullptr)
        return;
    const mics_cuda_routes routes = mics_cuda_experts_route(call);
    const mics_cuda_experts_sum sum = {call->din,     call->dout, nullptr,        call->shape.in[0],
                                       call->add_din, &routes,    call->shape.out};
    mics_cuda_experts_add_up(call, &sum);
}

} // namespace

const mics_op_kernels mics_cuda_dispatch_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                    nullptr,     nullptr,      nullptr, false};
