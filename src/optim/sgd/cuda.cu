// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SGD with momentum. Bytes an element: reads 12 (master, momentum, gradient), writes 8 and the
// parameter's.
#include "ops/common/cuda_ops.h"
#include "optim/sgd/factors.h"
#include "optim/update.cuh"

struct sgd_rule {
    typedef sgd_factors factors;
    static const int STATES = SGD_STATES;
    static __device__ float step(const factors &by, float decay, float p, float g, float *states)
    {
        const float sum = g + decay * p;
        const float b = states[SGD_BUFFER] = by.momentum * states[SGD_BUFFER] + sum;
        return p - (by.by_grad * sum + by.by_buffer * b);
    }
};

void mics_cuda_sgd_update(const mics_exec *at, const mics_optimizer_update *u)
{
    update<sgd_rule>(at, u, sgd_factors_of(u, true));
}
