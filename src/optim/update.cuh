// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// An optimizer's pass over a shard's masters, with clipping and the rounding of the parameters. A
// thread updates 4 elements at a time (map.cuh), so fp32 moves in 16 bytes and 2-byte parameters in
// 8. What one element becomes is said by a rule:
//
//   struct rule {
//       typedef ... factors;         // the numbers of the step; grad_scale and decay among them
//       static const int STATES = 1; // per element
//       // Updates the element's states and returns its master p. g: gradient, clipped; decay: by's,
//       // or 0 where none applies.
//       static __device__ float step(const factors &by, float decay, float p, float g,
//                                    float *states);
//   };
#pragma once

#include "ops/common/map.cuh"
#include "ops/kernels.h"

// Where in an update weight decay applies. A pack lies on one side of each flip: tensors begin on
// MICS_ALIGNMENT bytes. Where one does not, all elements go one by one.
struct update_flips {
    bool decays;
    int32_t count;
    int64_t at[MICS_UPDATE_FLIPS];

    __device__ bool decays_at(int64_t i) const
    {
        bool on = decays;
        for (int32_t f = 0; f < count; ++f)
            on ^= i >= at[f];
        return on;
    }
    template <int PACK> bool fit(int64_t i) const
    {
        for (int32_t f = 0; f < count; ++f)
            if ((at[f] - i) % PACK != 0)
                return false;
        return true;
    }
};

// T: of parameters, G: of gradients.
template <typename RULE, typename T, bool ROUND, typename G> struct update_op {
    static const int PACK = 4, UNROLL = 2, STATES = RULE::STATES;
    T *params;
    float *masters, *states[STATES];
    const G *grads;
    typename RULE::factors by;
    update_flips flips;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> p, states[STATES];
        mics_pack<G, COUNT> g;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        input<COUNT> in;
        in.p = load_pack<COUNT>(static_cast<const float *>(masters) + i);
#pragma unroll
        for (int s = 0; s < STATES; ++s)
            in.states[s] = load_pack<COUNT>(static_cast<const float *>(states[s]) + i);
        in.g = load_pack<COUNT>(grads + i);
        return in;
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> p, next[STATES];
        mics_pack<T, COUNT> rounded;
        const float decay = flips.decays_at(i) ? by.decay : 0;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            float of[STATES];
#pragma unroll
            for (int s = 0; s < STATES; ++s)
                of[s] = in.states[s].at[k];
            const float g = to_float(in.g.at[k]) * by.grad_scale;
            p.at[k] = RULE::step(by, decay, in.p.at[k], g, of);
#pragma unroll
            for (int s = 0; s < STATES; ++s)
                next[s].at[k] = of[s];
            if (ROUND)
                rounded.at[k] = from_float<T>(p.at[k]);
        }
        store_pack<COUNT>(masters + i, p);
#pragma unroll
        for (int s = 0; s < STATES; ++s)
            store_pack<COUNT>(states[s] + i, next[s]);
        if (ROUND)
            store_pack<COUNT>(params + i, rounded);
    }
    bool fits(int64_t i) const
    {
        bool all = flips.fit<PACK>(i) && packs_fit<float, PACK>(masters + i, 0) &&
                   packs_fit<G, PACK>(grads + i, 0) &&
                   (!ROUND || packs_fit<T, PACK>(params + i, 0));
        for (int s = 0; s < STATES; ++s)
            all = all && packs_fit<float, PACK>(states[s] + i, 0);
        return all;
    }
};

template <typename RULE, typename T, bool ROUND, typename G>
static void update_from(const mics_exec *at, const mics_optimizer_update *u, const G *grads,
                        const typename RULE::factors &by)
{
    update_op<RULE, T, ROUND, G> op = {static_cast<T *>(u->params),   u->masters, {}, grads, by,
                                       {u->decays, u->flip_count, {}}};
    for (int s = 0; s < RULE::STATES; ++s)
        op.states[s] = u->states[s];
    for (int32_t f = 0; f < u->flip_count; ++f)
        op.flips.at[f] = u->flips[f];
    map(at, op, u->elems);
}

template <typename T, typename RULE>
static void update_to(const mics_exec *at, const mics_optimizer_update *u,
                      const typename RULE::factors &by, RULE)
{
    if (u->rounded_grads)
        update_from<RULE, T, true>(at, u, static_cast<const T *>(u->rounded_grads), by);
    else
        update_from<RULE, T, true>(at, u, u->grads, by);
}

template <typename RULE>
static void update(const mics_exec *at, const mics_optimizer_update *u,
                   const typename RULE::factors &by)
{
    if (u->params)
        MICS_BY_DTYPE(at->dtype, update_to, at, u, by, RULE{});
    else
        update_from<RULE, float, false>(at, u, u->grads, by);
}
