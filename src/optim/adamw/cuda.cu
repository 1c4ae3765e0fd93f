// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101, algorithm 2). Bytes an element: reads 16
// (master, two moments, gradient; 14 of a gradient in 2 bytes), writes 12 and the parameter's s; in
// two passes it would be 8 more.
#include "ops/common/cuda_ops.h"
#include "optim/adamw/factors.h"
#include "optim/update.cuh"

struct adamw_rule {
    typedef adamw_factors factors;
    static const int STATES = ADAMW_STATES;
    static __device__ float step(const factors &by, float decay, float p, float g, float *states)
    {
        const float m = states[ADAMW_MOMENT1] = by.beta1 * states[ADAMW_MOMENT1] + by.keep1 * g;
        const float v = states[ADAMW_MOMENT2] =
            by.beta2 * states[ADAMW_MOMENT2] + by.keep2 * (g * g);
        return p - (by.rate * m / (sqrtf(v) * by.root_scale + by.eps) + decay * p);
    }
};

void mics_cuda_adamw_update(const mics_exec *at, const mics_optimizer_update *u)
{
    update<adamw_rule>(at, u, adamw_factors_of(u, true));
}
