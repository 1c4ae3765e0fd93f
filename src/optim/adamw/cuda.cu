// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101, algorithm 2) on a shard's masters, with
// clipping and the rounding of the parameters in the same pass. Bytes an element: reads 16 (master,
// two moments, gradient; 14 of a gradient in 2 bytes), writes 12 and the parameter's s; in two passes it would be 8 more. A
// thread updates 4 elements at a time (map.cuh), so fp32 moves in 16 bytes and 2-byte parameters in
// 8.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"
#include "optim/adamw/factors.h"
#include "optim/flips.cuh"

// G: of gradients.
template <typename T, bool ROUND, typename G> struct adamw_op {
    static const int PACK = 4, UNROLL = 2;
    T *params;
    float *masters, *moment1, *moment2;
    const G *grads;
    adamw_factors by; // its decay: where that applies
    update_flips flips;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> p, m, v;
        mics_pack<G, COUNT> g;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(static_cast<const float *>(masters) + i),
                load_pack<COUNT>(static_cast<const float *>(moment1) + i),
                load_pack<COUNT>(static_cast<const float *>(moment2) + i),
                load_pack<COUNT>(grads + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> p, m, v;
        mics_pack<T, COUNT> rounded;
        const float decay = flips.decays_at(i) ? by.decay : 0;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float g = to_float(in.g.at[k]) * by.grad_scale;
            m.at[k] = by.beta1 * in.m.at[k] + by.keep1 * g;
            v.at[k] = by.beta2 * in.v.at[k] + by.keep2 * (g * g);
            p.at[k] = in.p.at[k] - (by.rate * m.at[k] / (sqrtf(v.at[k]) * by.root_scale + by.eps) +
                                    decay * in.p.at[k]);
            if (ROUND)
                rounded.at[k] = from_float<T>(p.at[k]);
        }
        store_pack<COUNT>(masters + i, p);
        store_pack<COUNT>(moment1 + i, m);
        store_pack<COUNT>(moment2 + i, v);
        if (ROUND)
            store_pack<COUNT>(params + i, rounded);
    }
    bool fits(int64_t i) const
    {
        return flips.fit<PACK>(i) && packs_fit<float, PACK>(masters + i, 0) &&
               packs_fit<float, PACK>(moment1 + i, 0) && packs_fit<float, PACK>(moment2 + i, 0) &&
               packs_fit<G, PACK>(grads + i, 0) && (!ROUND || packs_fit<T, PACK>(params + i, 0));
    }
};

template <typename T, typename G>
static void update_from(const mics_exec *at, const mics_optimizer_update *u, const G *grads,
                        const adamw_factors &by)
{
    map(at,
        adamw_op<T, true, G>{static_cast<T *>(u->params), u->masters, u->states[ADAMW_MOMENT1],
                             u->states[ADAMW_MOMENT2], grads, by, flips_of(u)},
        u->elems);
}

template <typename T>
static void update_to(const mics_exec *at, const mics_optimizer_update *u, const adamw_factors &by)
{
    if (u->rounded_grads)
        update_from<T>(at, u, static_cast<const T *>(u->rounded_grads), by);
    else
        update_from<T>(at, u, u->grads, by);
}

void mics_cuda_adamw_update(const mics_exec *at, const mics_optimizer_update *u)
{
    const adamw_factors by = adamw_factors_of(u, true);
    if (u->params)
        MICS_BY_DTYPE(at->dtype, update_to, at, u, by);
    else
        map(at,
            adamw_op<float, false, float>{nullptr, u->masters, u->states[ADAMW_MOMENT1],
                                          u->states[ADAMW_MOMENT2], u->grads, by, flips_of(u)},
            u->elems);
}
