// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// As in cpu.c: a thread 16 bytes of a row. Bytes a number, of a dtype of s bytes: 2 s.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/sequence_blocks/def.h"

namespace
{

constexpr int THREADS = 256;

template <typename T, int COUNT, bool JOIN>
__global__ void __launch_bounds__(THREADS) move_heads(T *to, const T *from, mics_sequence_layout l)
{
    const int64_t heads = l.Q + 2 * l.K, packs = l.D / COUNT;
    for (int64_t i = grid_thread(); i < l.X * heads * packs; i += grid_threads()) {
        const int64_t x = i / packs / heads, h = i / packs % heads, d = i % packs * COUNT;
        if (!JOIN) {
            const auto pack = load_pack<COUNT>(from + i * COUNT);
            for (int64_t place = 0; place < mics_sequence_places(&l, h); ++place)
                store_pack<COUNT>(to + mics_sequence_at(&l, x, h, place) + d, pack);
            continue;
        }
        auto sum = load_pack<COUNT>(from + mics_sequence_at(&l, x, h, 0) + d);
        float wide[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            wide[k] = to_float(sum.at[k]);
        for (int64_t place = 1; place < mics_sequence_places(&l, h); ++place) {
            const auto next = load_pack<COUNT>(from + mics_sequence_at(&l, x, h, place) + d);
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                wide[k] += to_float(next.at[k]);
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            sum.at[k] = from_float<T>(wide[k]);
        store_pack<COUNT>(to + i * COUNT, sum);
    }
}

template <typename T, int COUNT>
void launch(const mics_exec *at, T *to, const T *from, const mics_sequence_layout &l, bool join)
{
    const unsigned grid = grid_of(l.X * mics_sequence_row(&l) / COUNT, THREADS);
    if (join)
        MICS_LAUNCH((move_heads<T, COUNT, true>), grid, THREADS, 0, stream_of(at), to, from, l);
    else
        MICS_LAUNCH((move_heads<T, COUNT, false>), grid, THREADS, 0, stream_of(at), to, from, l);
}

template <typename T> void run(const mics_op_call *call, void *to, const void *from, bool join)
{
    constexpr int COUNT = 16 / sizeof(T);
    const mics_sequence_layout l = mics_sequence_layout_of(&call->shape);
    T *out = static_cast<T *>(to);
    const T *in = static_cast<const T *>(from);
    if (packs_fit<T, COUNT>(out, l.D) && packs_fit<T, COUNT>(in, l.D))
        launch<T, COUNT>(call->at, out, in, l, join);
    else
        launch<T, 1>(call->at, out, in, l, join);
}

void run_forward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, run, call, call->out, call->in[0], call->shape.op->from_blocks);
}

void run_backward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, run, call, call->din, call->dout, !call->shape.op->from_blocks);
}

} // namespace

const mics_op_kernels mics_cuda_sequence_blocks_kernels = {
    run_forward, run_backward, nullptr, nullptr, nullptr, nullptr, nullptr, false};
