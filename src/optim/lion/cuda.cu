// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Lion (Chen et al., 2023, arXiv:2302.06675, algorithm 2). Bytes an element: reads 12 (master,
// momentum, gradient), writes 8 and the parameter's.
#include "ops/common/cuda_ops.h"
#include "optim/lion/factors.h"
#include "optim/update.cuh"

struct lion_rule {
    typedef lion_factors factors;
    static const int STATES = LION_STATES;
    static __device__ float step(const factors &by, float decay, float p, float g, float *states)
    {
        const float m = states[LION_MOMENT], c = by.beta1 * m + by.keep1 * g;
        const float sign = static_cast<float>(c > 0) - static_cast<float>(c < 0);
        states[LION_MOMENT] = by.beta2 * m + by.keep2 * g;
        return p - (by.rate * sign + decay * p);
    }
};

void mics_cuda_lion_update(const mics_exec *at, const mics_optimizer_update *u)
{
    update<lion_rule>(at, u, lion_factors_of(u, true));
}
