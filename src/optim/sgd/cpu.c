// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SGD with momentum, one pass over memory.
#include "optim/blocks.h"
#include "optim/sgd/factors.h"

static inline __attribute__((always_inline)) void update_part(const mics_optimizer_update *update,
                                                              const sgd_factors *by, int64_t begin,
                                                              int64_t elems, const bool rounds,
                                                              const bool narrow)
{
    mics_elem *params = rounds ? (mics_elem *)update->params + begin : NULL;
    float *masters = update->masters + begin, *buffer = update->states[SGD_BUFFER] + begin;
    const float *grads = narrow ? NULL : update->grads + begin;
    const mics_elem *halves = narrow ? (const mics_elem *)update->rounded_grads + begin : NULL;
    const float grad_scale = by->grad_scale, weight_decay = by->decay;
    const float momentum = by->momentum, by_grad = by->by_grad, by_buffer = by->by_buffer;
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        float p = masters[i];
        float g = (narrow ? mics_load(halves[i]) : grads[i]) * grad_scale + weight_decay * p;
        float b = momentum * buffer[i] + g;
        buffer[i] = b;
        p = p - (by_grad * g + by_buffer * b);
        masters[i] = p;
        if (rounds)
            params[i] = mics_store(p);
    }
}

MICS_OPTIMIZER_BY_BLOCKS(sgd)
