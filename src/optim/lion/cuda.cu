// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Lion (Chen et al., 2023, arXiv:2302.06675, algorithm 2) on a shard's masters, with clipping and
// the rounding of the parameters in the same pass. Bytes an element: reads 12 (master, momentum,
// gradient), writes 8 and the parameter's.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"
#include "optim/flips.cuh"
#include "optim/lion/factors.h"

// G: of gradients.
template <typename T, bool ROUND, typename G> struct lion_op {
    static const int PACK = 4, UNROLL = 2;
    T *params;
    float *masters, *moment;
    const G *grads;
    lion_factors by; // its decay: where that applies
    update_flips flips;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> p, m;
        mics_pack<G, COUNT> g;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(static_cast<const float *>(masters) + i),
                load_pack<COUNT>(static_cast<const float *>(moment) + i),
                load_pack<COUNT>(grads + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> p, m;
        mics_pack<T, COUNT> rounded;
        const float decay = flips.decays_at(i) ? by.decay : 0;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float g = to_float(in.g.at[k]) * by.grad_scale;
            const float c = by.beta1 * in.m.at[k] + by.keep1 * g;
            const float sign = static_cast<float>(c > 0) - static_cast<float>(c < 0);
            m.at[k] = by.beta2 * in.m.at[k] + by.keep2 * g;
            p.at[k] = in.p.at[k] - (by.rate * sign + decay * in.p.at[k]);
            if (ROUND)
                rounded.at[k] = from_float<T>(p.at[k]);
        }
        store_pack<COUNT>(masters + i, p);
        store_pack<COUNT>(moment + i, m);
        if (ROUND)
            store_pack<COUNT>(params + i, rounded);
    }
    bool fits(int64_t i) const
    {
        return flips.fit<PACK>(i) && packs_fit<float, PACK>(masters + i, 0) &&
               packs_fit<float, PACK>(moment + i, 0) && packs_fit<G, PACK>(grads + i, 0) &&
               (!ROUND || packs_fit<T, PACK>(params + i, 0));
    }
};

template <typename T, typename G>
static void update_from(const mics_exec *at, const mics_optimizer_update *u, const G *grads,
                        const lion_factors &by)
{
    map(at,
        lion_op<T, true, G>{static_cast<T *>(u->params), u->masters, u->states[LION_MOMENT], grads,
                            by, flips_of(u)},
        u->elems);
}

template <typename T>
static void update_to(const mics_exec *at, const mics_optimizer_update *u, const lion_factors &by)
{
    if (u->rounded_grads)
        update_from<T>(at, u, static_cast<const T *>(u->rounded_grads), by);
    else
        update_from<T>(at, u, u->grads, by);
}

void mics_cuda_lion_update(const mics_exec *at, const mics_optimizer_update *u)
{
    const lion_factors by = lion_factors_of(u, true);
    if (u->params)
        MICS_BY_DTYPE(at->dtype, update_to, at, u, by);
    else
        map(at,
            lion_op<float, false, float>{nullptr, u->masters, u->states[LION_MOMENT], u->grads, by,
                                         flips_of(u)},
            u->elems);
}
