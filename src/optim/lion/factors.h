// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the kernels share: Lion (Chen et al., 2023, arXiv:2302.06675, algorithm 2),
// p -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p); m = beta2 * m + (1 - beta2) *
// g.
#pragma once

#include "ops/kernels.h"
#include "optim/lion/def.h"

// The numbers of one step, in fp32 as the kernels take them.
typedef struct lion_factors {
    float grad_scale, beta1, beta2, keep1, keep2; // keep = 1 - beta
    float rate, decay;
} lion_factors;

// `decays`: whether weight decay applies.
static inline lion_factors lion_factors_of(const mics_optimizer_update *update, bool decays)
{
    const double *settings = update->optimizer->settings;
    const float beta1 = (float)settings[LION_BETA1], beta2 = (float)settings[LION_BETA2];
    const float weight_decay = decays ? (float)update->optimizer->weight_decay : 0;
    lion_factors factors = {
        update->grad_scale,       beta1, beta2, 1.0F - beta1, 1.0F - beta2, update->lr,
        update->lr * weight_decay};
    return factors;
}
