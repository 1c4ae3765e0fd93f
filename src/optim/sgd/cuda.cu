// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SGD with momentum on a shard's masters, with clipping and the rounding of the parameters in the
// same pass. Bytes an element: reads 12 (master, momentum, gradient), writes 8 and the parameter's.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"
#include "optim/flips.cuh"
#include "optim/sgd/factors.h"

// G: of gradients.
template <typename T, bool ROUND, typename G> struct sgd_op {
    static const int PACK = 4, UNROLL = 2;
    T *params;
    float *masters, *buffer;
    const G *grads;
    sgd_factors by; // its decay: where that applies
    update_flips flips;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> p, b;
        mics_pack<G, COUNT> g;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(static_cast<const float *>(masters) + i),
                load_pack<COUNT>(static_cast<const float *>(buffer) + i),
                load_pack<COUNT>(grads + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> p, b;
        mics_pack<T, COUNT> rounded;
        const float decay = flips.decays_at(i) ? by.weight_decay : 0;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float g = to_float(in.g.at[k]) * by.grad_scale + decay * in.p.at[k];
            b.at[k] = by.momentum * in.b.at[k] + g;
            p.at[k] = in.p.at[k] - (by.by_grad * g + by.by_buffer * b.at[k]);
            if (ROUND)
                rounded.at[k] = from_float<T>(p.at[k]);
        }
        store_pack<COUNT>(masters + i, p);
        store_pack<COUNT>(buffer + i, b);
        if (ROUND)
            store_pack<COUNT>(params + i, rounded);
    }
    bool fits(int64_t i) const
    {
        return flips.fit<PACK>(i) && packs_fit<float, PACK>(masters + i, 0) &&
               packs_fit<float, PACK>(buffer + i, 0) && packs_fit<G, PACK>(grads + i, 0) &&
               (!ROUND || packs_fit<T, PACK>(params + i, 0));
    }
};

template <typename T, typename G>
static void update_from(const mics_exec *at, const mics_optimizer_update *u, const G *grads,
                        const sgd_factors &by)
{
    map(at,
        sgd_op<T, true, G>{static_cast<T *>(u->params), u->masters, u->states[SGD_BUFFER], grads,
                           by, flips_of(u)},
        u->elems);
}

template <typename T>
static void update_to(const mics_exec *at, const mics_optimizer_update *u, const sgd_factors &by)
{
    if (u->rounded_grads)
        update_from<T>(at, u, static_cast<const T *>(u->rounded_grads), by);
    else
        update_from<T>(at, u, u->grads, by);
}

void mics_cuda_sgd_update(const mics_exec *at, const mics_optimizer_update *u)
{
    const sgd_factors by = sgd_factors_of(u, true);
    if (u->params)
        MICS_BY_DTYPE(at->dtype, update_to, at, u, by);
    else
        map(at,
            sgd_op<float, false, float>{nullptr, u->masters, u->states[SGD_BUFFER], u->grads, by,
                                        flips_of(u)},
            u->elems);
}
