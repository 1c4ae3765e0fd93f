// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101, algorithm 2), one pass over memory.
#include "optim/adamw/factors.h"
#include "optim/blocks.h"
#include <math.h>

static inline __attribute__((always_inline)) void update_part(const mics_optimizer_update *update,
                                                              const adamw_factors *by,
                                                              int64_t begin, int64_t elems,
                                                              const bool rounds, const bool narrow)
{
    mics_elem *params = rounds ? (mics_elem *)update->params + begin : NULL;
    float *masters = update->masters + begin, *moment1 = update->states[ADAMW_MOMENT1] + begin,
          *moment2 = update->states[ADAMW_MOMENT2] + begin;
    const float *grads = narrow ? NULL : update->grads + begin;
    const mics_elem *halves = narrow ? (const mics_elem *)update->rounded_grads + begin : NULL;
    const float beta1 = by->beta1, beta2 = by->beta2, keep1 = by->keep1, keep2 = by->keep2;
    const float grad_scale = by->grad_scale, rate = by->rate, decay = by->decay;
    const float root_scale = by->root_scale, eps = by->eps;
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        float g = (narrow ? mics_load(halves[i]) : grads[i]) * grad_scale;
        float m = beta1 * moment1[i] + keep1 * g;
        float v = beta2 * moment2[i] + keep2 * (g * g);
        float p = masters[i];
        moment1[i] = m;
        moment2[i] = v;
        p = p - (rate * m / (sqrtf(v) * root_scale + eps) + decay * p);
        masters[i] = p;
        if (rounds)
            params[i] = mics_store(p);
    }
}

MICS_OPTIMIZER_BY_BLOCKS(adamw)
