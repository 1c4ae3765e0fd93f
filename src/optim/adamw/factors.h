// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the kernels share: AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101, algorithm 2),
// p -= lr * (m / bias1 / (sqrt(v / bias2) + eps) + weight_decay * p).
#pragma once

#include "ops/kernels.h"
#include "optim/adamw/def.h"
#include <math.h>

// The numbers of one step, in fp32 as the kernels take them.
typedef struct adamw_factors {
    float beta1, beta2, keep1, keep2; // keep = 1 - beta
    float grad_scale, rate, decay, root_scale, eps;
} adamw_factors;

// `decays`: whether weight decay applies.
static inline adamw_factors adamw_factors_of(const mics_optimizer_update *update, bool decays)
{
    const double *settings = update->optimizer->settings;
    const float beta1 = (float)settings[ADAMW_BETA1], beta2 = (float)settings[ADAMW_BETA2];
    const double step = (double)update->step;
    const float bias1 = (float)(1 - pow((double)beta1, step)),
                bias2 = (float)(1 - pow((double)beta2, step));
    const float weight_decay = decays ? (float)update->optimizer->weight_decay : 0;
    adamw_factors factors = {beta1,
                             beta2,
                             1.0F - beta1,
                             1.0F - beta2,
                             update->grad_scale,
                             update->lr / bias1,
                             update->lr * weight_decay,
                             1.0F / sqrtf(bias2),
                             (float)settings[ADAMW_EPS]};
    return factors;
}
