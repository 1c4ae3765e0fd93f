// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Heads turned by their position, as in cpu.c: numbers i and dims / 2 + i of a head are a pair, and
// backward turns the other way. A block a token: its threads compute the sines and cosines of the
// token's position once, for all heads. Bytes a number, of a dtype of s bytes: 2 s (3 s when it
// adds; in place, none for what does not turn).
//
// Frequencies travel with the launch, so that nothing has to lie on the device before.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"

namespace
{

constexpr int THREADS = 256, PAIRS = 128; // pairs of a launch: all of a head in every model known

template <typename T> struct rotation {
    T *to;
    const T *from;
    int64_t N, T_, position; // tokens, and of a sequence; of the first one in it
    int heads;               // that turn: of queries and keys
    int values;              // numbers of a token's values
    int D, dims;
    int first, count; // pairs of this launch
    float scale, sign;
    bool rest; // what does not turn is this launch's
    float frequencies[PAIRS];
};

template <typename T, int COUNT, bool ADD>
__device__ __forceinline__ void pass_on(T *to, const T *from)
{
    auto pack = load_pack<COUNT>(from);
    if (ADD) {
        const auto before = load_pack<COUNT>(static_cast<const T *>(to));
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            pack.at[k] = from_float<T>(to_float(before.at[k]) + to_float(pack.at[k]));
    }
    store_pack<COUNT>(to, pack);
}

// Numbers `pair` to pair + COUNT - 1 of a head, and their partners.
template <typename T, int COUNT, bool ADD>
__device__ __forceinline__ void turn(T *to, const T *from, int half, const float *cosine,
                                     const float *sine)
{
    const auto a = load_pack<COUNT>(from), b = load_pack<COUNT>(from + half);
    mics_pack<T, COUNT> to_a, to_b;
    if (ADD) {
        to_a = load_pack<COUNT>(static_cast<const T *>(to));
        to_b = load_pack<COUNT>(static_cast<const T *>(to) + half);
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const float of_a = to_float(a.at[k]), of_b = to_float(b.at[k]);
        const float turned_a = of_a * cosine[k] - of_b * sine[k];
        const float turned_b = of_b * cosine[k] + of_a * sine[k];
        to_a.at[k] = from_float<T>(ADD ? to_float(to_a.at[k]) + turned_a : turned_a);
        to_b.at[k] = from_float<T>(ADD ? to_float(to_b.at[k]) + turned_b : turned_b);
    }
    store_pack<COUNT>(to, to_a);
    store_pack<COUNT>(to + half, to_b);
}

template <typename T, int COUNT, bool ADD>
__global__ void __launch_bounds__(THREADS) rotary_kernel(rotation<T> r)
{
    __shared__ float cosine[PAIRS], sine[PAIRS];
    const int half = r.dims / 2, packs = r.count / COUNT, ends = (r.D - r.dims) / COUNT;
    const int64_t W = (int64_t)r.heads * r.D + r.values;
    for (int64_t n = blockIdx.x; n < r.N; n += gridDim.x) {
        __syncthreads(); // the token before has been turned
        for (int i = (int)threadIdx.x; i < r.count; i += THREADS) {
            float s, c;
            sincosf((float)(r.position + n % r.T_) * r.frequencies[i], &s, &c);
            cosine[i] = c * r.scale;
            sine[i] = s * r.sign;
        }
        __syncthreads();
        T *to = r.to + n * W;
        const T *from = r.from + n * W;
        for (int i = (int)threadIdx.x; i < r.heads * packs; i += THREADS) {
            const int pair = i % packs * COUNT, at = i / packs * r.D + r.first + pair;
            turn<T, COUNT, ADD>(to + at, from + at, half, cosine + pair, sine + pair);
        }
        if (!r.rest)
            continue;
        for (int i = (int)threadIdx.x; i < r.heads * ends; i += THREADS) {
            const int at = i / ends * r.D + r.dims + i % ends * COUNT;
            pass_on<T, COUNT, ADD>(to + at, from + at);
        }
        for (int i = (int)threadIdx.x * COUNT; i < r.values; i += THREADS * COUNT)
            pass_on<T, COUNT, ADD>(to + r.heads * r.D + i, from + r.heads * r.D + i);
    }
}

template <typename T, int COUNT, bool ADD> void launch(const mics_exec *at, const rotation<T> &r)
{
    MICS_LAUNCH((rotary_kernel<T, COUNT, ADD>), grid_of(r.N, 1), THREADS, 0, stream_of(at), r);
}

// Packs begin on their size wherever half a head, a head and what does not turn are whole packs.
template <typename T, bool ADD> void launch_any(const mics_exec *at, const rotation<T> &r)
{
    constexpr int COUNT = 16 / sizeof(T);
    const bool whole = r.dims / 2 % COUNT == 0 && r.D % COUNT == 0;
    if (whole && packs_fit<T, COUNT>(r.to, 0) && packs_fit<T, COUNT>(r.from, 0))
        launch<T, COUNT, ADD>(at, r);
    else
        launch<T, 1, ADD>(at, r);
}

// PAIRS at a time: heads in which more turn take several launches. In place, unless something is
// added, what does not turn stays where it is.
template <typename T> void rotate(const mics_op_call *call, void *to, const void *from, bool back)
{
    const mics_rotary_spec *by = call->shape.rotary;
    const mics_heads heads = call->shape.heads;
    const bool add = back && call->add_din;
    rotation<T> r = {};
    r.to = static_cast<T *>(to);
    r.from = static_cast<const T *>(from);
    r.N = call->shape.N;
    r.T_ = call->shape.T;
    r.position = call->position;
    r.heads = (int)(heads.query + heads.key_value);
    r.values = (int)(heads.key_value * heads.dim);
    r.D = (int)heads.dim;
    r.dims = (int)by->dims;
    r.scale = by->scale;
    r.sign = back ? -by->scale : by->scale;
    for (r.first = 0; r.first < r.dims / 2; r.first += PAIRS) {
        r.count = r.dims / 2 - r.first < PAIRS ? r.dims / 2 - r.first : PAIRS;
        r.rest = r.first == 0 && (add || to != from);
        memcpy(r.frequencies, by->frequencies + r.first, (size_t)r.count * sizeof(float));
        if (add)
            launch_any<T, true>(call->at, r);
        else
            launch_any<T, false>(call->at, r);
    }
}

void forward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, rotate, call, call->out, call->in[0], false);
}

void backward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, rotate, call, call->din, call->dout, true);
}

} // namespace

const mics_op_kernels mics_cuda_rotary_kernels = {forward, backward, nullptr, nullptr,
                                                  nullptr, nullptr,  nullptr, false};
