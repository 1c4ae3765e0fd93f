// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Lion (Chen et al., 2023, arXiv:2302.06675, algorithm 2), one pass over memory.
#include "optim/blocks.h"
#include "optim/lion/factors.h"

static inline __attribute__((always_inline)) void update_part(const mics_optimizer_update *update,
                                                              const lion_factors *by, int64_t begin,
                                                              int64_t elems, const bool rounds,
                                                              const bool narrow)
{
    mics_elem *params = rounds ? (mics_elem *)update->params + begin : NULL;
    float *masters = update->masters + begin, *moment = update->states[LION_MOMENT] + begin;
    const float *grads = narrow ? NULL : update->grads + begin;
    const mics_elem *halves = narrow ? (const mics_elem *)update->rounded_grads + begin : NULL;
    const float beta1 = by->beta1, beta2 = by->beta2, keep1 = by->keep1, keep2 = by->keep2;
    const float grad_scale = by->grad_scale, rate = by->rate, decay = by->decay;
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        float p = masters[i], m = moment[i];
        float g = (narrow ? mics_load(halves[i]) : grads[i]) * grad_scale;
        float c = beta1 * m + keep1 * g;
        float sign = (float)(c > 0) - (float)(c < 0);
        moment[i] = beta2 * m + keep2 * g;
        p = p - (rate * sign + decay * p);
        masters[i] = p;
        if (rounds)
            params[i] = mics_store(p);
    }
}

MICS_OPTIMIZER_BY_BLOCKS(lion)
