// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the kernels share: SGD as torch.optim.SGD has it, with dampening 0,
// g += weight_decay * p; b = momentum * b + g; p -= lr * b, or with nesterov
// p -= lr * (g + momentum * b).
#pragma once

#include "ops/kernels.h"
#include "optim/sgd/def.h"

// The numbers of one step: p -= by_grad * g + by_buffer * b.
typedef struct sgd_factors {
    float grad_scale, decay, momentum, by_grad, by_buffer;
} sgd_factors;

// `decays`: whether weight decay applies.
static inline sgd_factors sgd_factors_of(const mics_optimizer_update *update, bool decays)
{
    const double *settings = update->optimizer->settings;
    const float momentum = (float)settings[SGD_MOMENTUM];
    const bool nesterov = settings[SGD_NESTEROV] != 0;
    const float weight_decay = decays ? (float)update->optimizer->weight_decay : 0;
    sgd_factors factors = {update->grad_scale, weight_decay, momentum, nesterov ? update->lr : 0,
                           nesterov ? update->lr * momentum : update->lr};
    return factors;
}
