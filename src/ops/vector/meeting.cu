// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Meetings of islands, element by element (map.cuh). Bytes an element: change 12 (8 without an
// anchor), step 16 (8 without a momentum), adopt 16, round 14.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"

struct change_op {
    static const int PACK = 4, UNROLL = 2;
    float *message;
    const float *anchor, *held;
    float weight;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> anchor, held;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        input<COUNT> in;
        in.held = load_pack<COUNT>(held + i);
        if (anchor != nullptr)
            in.anchor = load_pack<COUNT>(anchor + i);
        return in;
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> out;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            out.at[k] =
                weight * (anchor != nullptr ? in.anchor.at[k] - in.held.at[k] : in.held.at[k]);
        store_pack<COUNT>(message + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<float, PACK>(message + i, 0) && packs_fit<float, PACK>(held + i, 0) &&
               (anchor == nullptr || packs_fit<float, PACK>(anchor + i, 0));
    }
};

struct step_op {
    static const int PACK = 4, UNROLL = 2;
    float *message, *momentum;
    float weights, lr, decay;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> message, momentum;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        input<COUNT> in;
        in.message = load_pack<COUNT>(static_cast<const float *>(message) + i);
        if (momentum != nullptr)
            in.momentum = load_pack<COUNT>(static_cast<const float *>(momentum) + i);
        return in;
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> out, moved;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float g = __fdiv_rn(in.message.at[k], weights);
            if (momentum != nullptr)
                moved.at[k] = decay * in.momentum.at[k] + g;
            out.at[k] = momentum != nullptr ? -lr * (g + decay * moved.at[k]) : g;
        }
        store_pack<COUNT>(message + i, out);
        if (momentum != nullptr)
            store_pack<COUNT>(momentum + i, moved);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<float, PACK>(message + i, 0) &&
               (momentum == nullptr || packs_fit<float, PACK>(momentum + i, 0));
    }
};

struct adopt_op {
    static const int PACK = 4, UNROLL = 2;
    float *held, *anchor;
    const float *message;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> anchor, message;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(static_cast<const float *>(anchor) + i),
                load_pack<COUNT>(message + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> out;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            out.at[k] = in.anchor.at[k] + in.message.at[k];
        store_pack<COUNT>(anchor + i, out);
        store_pack<COUNT>(held + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<float, PACK>(held + i, 0) && packs_fit<float, PACK>(anchor + i, 0) &&
               packs_fit<float, PACK>(message + i, 0);
    }
};

struct round_op {
    static const int PACK = 4, UNROLL = 2;
    __nv_bfloat16 *packed;
    const float *values;
    float *residual;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> values, residual;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(values + i),
                load_pack<COUNT>(static_cast<const float *>(residual) + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<__nv_bfloat16, COUNT> out;
        mics_pack<float, COUNT> kept;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float value = in.residual.at[k] + in.values.at[k];
            out.at[k] = from_float<__nv_bfloat16>(value);
            const float lost = value - to_float(out.at[k]);
            kept.at[k] = lost - lost == 0.0F ? lost : 0.0F; // finite
        }
        store_pack<COUNT>(packed + i, out);
        store_pack<COUNT>(residual + i, kept);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<__nv_bfloat16, PACK>(packed + i, 0) &&
               packs_fit<float, PACK>(values + i, 0) && packs_fit<float, PACK>(residual + i, 0);
    }
};

void mics_cuda_meet_change(const mics_exec *at, float *message, const float *anchor,
                           const float *held, float weight, int64_t elems)
{
    map(at, change_op{message, anchor, held, weight}, elems);
}

void mics_cuda_meet_step(const mics_exec *at, const mics_outer_step *step)
{
    const mics_outer_step &s = *step;
    map(at, step_op{s.message, s.momentum, s.weights, s.lr, s.decay}, s.elems);
}

void mics_cuda_meet_adopt(const mics_exec *at, float *held, float *anchor, const float *message,
                          int64_t elems)
{
    map(at, adopt_op{held, anchor, message}, elems);
}

void mics_cuda_meet_round(const mics_exec *at, uint16_t *packed, const float *values,
                          float *residual, int64_t elems)
{
    map(at, round_op{reinterpret_cast<__nv_bfloat16 *>(packed), values, residual}, elems);
}
