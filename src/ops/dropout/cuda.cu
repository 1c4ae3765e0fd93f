// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// y = x scale where the mask keeps, else 0; backward is the same of gradients. A block a row, a
// thread 8 numbers at a time, for which it makes one block of random bits: some 16 integer
// instructions a number. Bytes a number, of a dtype of s bytes: 2 s (3 s when it adds).
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/mask.cuh"
#include "ops/common/numbers.cuh"

namespace
{

constexpr int MAX_THREADS = 256, WARP_THREADS = 32, BLOCK = 8;

// COUNT of a block's numbers.
template <typename T, int COUNT, bool ADD>
__device__ __forceinline__ void drop_pack(T *y, const T *x, uint32_t keep, float scale)
{
    const auto in = load_pack<COUNT>(x);
    mics_pack<T, COUNT> out;
    if (ADD)
        out = load_pack<COUNT>(y);
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const float kept = (keep >> k & 1U) != 0 ? to_float(in.at[k]) * scale : 0.0F;
        out.at[k] = from_float<T>(ADD ? to_float(out.at[k]) + kept : kept);
    }
    store_pack<COUNT>(y, out);
}

// y may be x. COUNT: 1, or 16 bytes where rows are aligned and whole blocks.
template <typename T, int COUNT, bool ADD>
__global__ void __launch_bounds__(MAX_THREADS)
    dropout_rows(T *y, const T *x, int64_t N, int64_t length, int64_t C, mics_masks masks)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        const mics_mask mask = mask_at(masks, n / length, 0);
        for (int64_t c = threadIdx.x * BLOCK; c < C; c += (int64_t)blockDim.x * BLOCK) {
            const uint32_t keep = keep_bits(mask, c / BLOCK, masks.position + n % length);
#pragma unroll
            for (int k = 0; k < BLOCK; k += COUNT)
                if (COUNT > 1 || c + k < C)
                    drop_pack<T, COUNT, ADD>(y + n * C + c + k, x + n * C + c + k, keep >> k,
                                             masks.scale);
        }
    }
}

unsigned row_threads(int64_t blocks)
{
    const int64_t whole = ceil_div(blocks, WARP_THREADS) * WARP_THREADS;
    return static_cast<unsigned>(whole < MAX_THREADS ? whole : int64_t{MAX_THREADS});
}

template <typename T, bool ADD> void drop(const mics_op_call *call, void *y, const void *x)
{
    constexpr int COUNT = 16 / sizeof(T);
    const int64_t N = call->shape.N, C = call->shape.out;
    const unsigned threads = row_threads(ceil_div(C, BLOCK));
    const mics_masks masks = mics_masks_of(call);
    if (C % BLOCK == 0 && packs_fit<T, COUNT>(x, C) && packs_fit<T, COUNT>(y, C))
        MICS_LAUNCH((dropout_rows<T, COUNT, ADD>), grid_of(N, 1), threads, 0, stream_of(call->at),
                    static_cast<T *>(y), static_cast<const T *>(x), N, call->shape.T, C, masks);
    else
        MICS_LAUNCH((dropout_rows<T, 1, ADD>), grid_of(N, 1), threads, 0, stream_of(call->at),
                    static_cast<T *>(y), static_cast<const T *>(x), N, call->shape.T, C, masks);
}

template <typename T> void drop_any(const mics_op_call *call, void *y, const void *x, bool add)
{
    if (add)
        drop<T, true>(call, y, x);
    else
        drop<T, false>(call, y, x);
}

void run_forward(const mics_op_call *call)
{
    const mics_device *device = call->at->device;
    const int64_t elems = call->shape.N * call->shape.out;
    if (mics_masks_of(call).draw != nullptr)
        MICS_BY_DTYPE(call->at->dtype, drop_any, call, call->out, call->in[0], false);
    else
        device->ops->copy(device->ctx, call->at->stream, call->out, call->in[0],
                          static_cast<size_t>(elems) * mics_dtype_bytes(call->at->dtype));
}

// A draw is there, since only training has a backward.
void run_backward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, drop_any, call, call->din, call->dout, call->add_din);
}

} // namespace

const mics_op_kernels mics_cuda_dropout_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                   nullptr,     nullptr,      nullptr, false};
