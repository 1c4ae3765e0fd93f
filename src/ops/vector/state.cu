// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// States of optimizers in 8 or 16 bits. Of 8 bits a warp packs a block, 8 numbers a lane: the
// largest is a maximum over the warp, and the byte of each a search of 8 steps in shared memory.
// Bytes a number: 4 + 1, or 4 + 2. The same bits as on the CPU.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/mask.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"
#include "ops/vector/state_code.h"

namespace
{

constexpr int THREADS = 256, PACK = 4, LANE_PACKS = MICS_STATE_BLOCK / (WARP * PACK), DRAW = 8;
static_assert(THREADS == MICS_STATE_CODES, "a thread brings a number of the code");

// ---- 8 bits ----

// What lies behind the end is 0.
__device__ __forceinline__ mics_pack<float, PACK> load_some(const float *values, int64_t first,
                                                            int64_t elems)
{
    if (first + PACK <= elems)
        return load_pack<PACK>(values + first);
    mics_pack<float, PACK> some;
#pragma unroll
    for (int k = 0; k < PACK; ++k)
        some.at[k] = first + k < elems ? values[first + k] : 0.0F;
    return some;
}

__device__ __forceinline__ int code_of(const float *middles, float value)
{
    int at = 0;
#pragma unroll
    for (int step = MICS_STATE_CODES / 2; step > 0; step /= 2)
        at += value >= middles[at + step - 1] ? step : 0;
    return at;
}

__device__ __forceinline__ float warp_scale(const mics_pack<float, PACK> (&in)[LANE_PACKS])
{
    unsigned largest = 0;
#pragma unroll
    for (int p = 0; p < LANE_PACKS; ++p)
#pragma unroll
        for (int k = 0; k < PACK; ++k) {
            const unsigned key = mics_state_key_of_bits(__float_as_uint(in[p].at[k]));
            largest = key > largest ? key : largest;
        }
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        const unsigned other = __shfl_xor_sync(0xffffffffU, largest, distance);
        largest = other > largest ? other : largest;
    }
    return __uint_as_float(mics_state_scale_bits(largest));
}

__global__ void __launch_bounds__(THREADS)
    pack_8bit(uint8_t *held, float *scales, const float *values, int64_t elems,
              mics_state_code code)
{
    __shared__ float middles[MICS_STATE_CODES];
    middles[threadIdx.x] = code.middles[threadIdx.x];
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    const int64_t blocks = (elems + MICS_STATE_BLOCK - 1) / MICS_STATE_BLOCK;
    for (int64_t block = grid_thread() / WARP; block < blocks; block += grid_threads() / WARP) {
        const int64_t first = block * MICS_STATE_BLOCK + lane * PACK;
        mics_pack<float, PACK> in[LANE_PACKS];
#pragma unroll
        for (int p = 0; p < LANE_PACKS; ++p)
            in[p] = load_some(values, first + p * WARP * PACK, elems);
        const float scale = warp_scale(in);
        const bool empty = scale == 0.0F;
        if (lane == 0)
            scales[block] = scale;
#pragma unroll
        for (int p = 0; p < LANE_PACKS; ++p) {
            mics_pack<uint8_t, PACK> out;
#pragma unroll
            for (int k = 0; k < PACK; ++k) {
                const float value = in[p].at[k];
                const int at = code_of(middles, empty ? 0.0F : value / scale);
                const int floor = code.squares && !empty && value > 0.0F ? 1 : 0;
                out.at[k] = static_cast<uint8_t>(at > floor ? at : floor);
            }
            // `held` is rounded up to 16 bytes, so that the last pack is whole.
            if (first + p * WARP * PACK < elems)
                store_pack<PACK>(held + first + p * WARP * PACK, out);
        }
    }
}

__global__ void __launch_bounds__(THREADS)
    unpack_8bit(float *values, const uint8_t *held, const float *scales, int64_t elems,
                mics_state_code code)
{
    __shared__ float numbers[MICS_STATE_CODES];
    numbers[threadIdx.x] = code.values[threadIdx.x];
    __syncthreads();
    for (int64_t first = grid_thread() * PACK; first < elems; first += grid_threads() * PACK) {
        const auto in = load_pack<PACK>(held + first);
        const float scale = scales[first / MICS_STATE_BLOCK];
        mics_pack<float, PACK> out;
#pragma unroll
        for (int k = 0; k < PACK; ++k)
            out.at[k] = numbers[in.at[k]] * scale + 0.0F;
        if (first + PACK <= elems)
            store_pack<PACK>(values + first, out);
        else
            for (int k = 0; first + k < elems; ++k)
                values[first + k] = out.at[k];
    }
}

// ---- bf16 ----

__device__ __forceinline__ uint16_t bf16_of(float value, unsigned added)
{
    const unsigned bits = __float_as_uint(value);
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return static_cast<uint16_t>((is_nan ? bits | 0x400000U : bits + added) >> 16);
}

// DRAWS: at random.
template <bool DRAWS>
__global__ void __launch_bounds__(THREADS)
    pack_bf16(uint16_t *held, const float *values, int64_t elems, mics_state_draw draw)
{
    for (int64_t first = grid_thread() * DRAW; first < elems; first += grid_threads() * DRAW) {
        const int64_t block = (draw.first + first) / DRAW;
        uint32_t c[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         draw.state, 0};
        if (DRAWS)
            make_random(c, static_cast<uint32_t>(draw.key), static_cast<uint32_t>(draw.key >> 32));
        mics_pack<uint16_t, DRAW> out;
#pragma unroll
        for (int k = 0; k < DRAW; ++k) {
            const float value = first + k < elems ? values[first + k] : 0.0F;
            const unsigned nearest = 0x7fffU + (__float_as_uint(value) >> 16 & 1U);
            out.at[k] = bf16_of(value, DRAWS ? c[k / 2] >> 16 * (k % 2) & 0xffffU : nearest);
        }
        store_pack<DRAW>(held + first, out); // rounded up to 16 bytes
    }
}

__global__ void __launch_bounds__(THREADS)
    unpack_bf16(float *values, const uint16_t *held, int64_t elems)
{
    for (int64_t i = grid_thread(); i < elems; i += grid_threads())
        values[i] = __uint_as_float(static_cast<unsigned>(held[i]) << 16);
}

} // namespace

void mics_cuda_pack_state(const mics_exec *at, const mics_state_part *part, const float *values,
                          const mics_state_draw *draw)
{
    const int64_t elems = part->elems;
    const cudaStream_t stream = stream_of(at);
    uint16_t *halves = static_cast<uint16_t *>(part->held);
    if (part->dtype == MICS_STATE_8BIT)
        MICS_LAUNCH(pack_8bit, grid_of(ceil_div(elems, MICS_STATE_BLOCK) * WARP, THREADS), THREADS,
                    0, stream, static_cast<uint8_t *>(part->held), part->scales, values, elems,
                    mics_state_code_of(part->squares));
    else if (draw != nullptr)
        MICS_LAUNCH(pack_bf16<true>, grid_of(ceil_div(elems, DRAW), THREADS), THREADS, 0, stream,
                    halves, values, elems, *draw);
    else
        MICS_LAUNCH(pack_bf16<false>, grid_of(ceil_div(elems, DRAW), THREADS), THREADS, 0, stream,
                    halves, values, elems, mics_state_draw{0, 0, 0});
}

void mics_cuda_unpack_state(const mics_exec *at, float *values, const mics_state_part *part)
{
    const int64_t elems = part->elems;
    const cudaStream_t stream = stream_of(at);
    if (part->dtype == MICS_STATE_8BIT)
        MICS_LAUNCH(unpack_8bit, grid_of(ceil_div(elems, PACK), THREADS), THREADS, 0, stream,
                    values, static_cast<const uint8_t *>(part->held),
                    static_cast<const float *>(part->scales), elems,
                    mics_state_code_of(part->squares));
    else
        MICS_LAUNCH(unpack_bf16, grid_of(elems, THREADS), THREADS, 0, stream, values,
                    static_cast<const uint16_t *>(part->held), elems);
}
