// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the kernels share: Muon as torch.optim.Muon has it,
// m = momentum * m + (1 - momentum) * g; u = m, or with nesterov momentum * m + (1 - momentum) * g;
// p -= lr * weight_decay * p + lr * rate * orthogonal(u), where rate is of the matrix's shape.
//
// orthogonal(u): x = u / max(|u|, eps); so many times a = x x', x = 3.4445 x + (-4.775 a + 2.0315
// a a) x; of a tall matrix with a = x' x, on the other side (Jordan et al., 2024).
#pragma once

#include "ops/kernels.h"
#include "optim/muon/def.h"
#include <math.h>

#define MUON_NORM_EPS 1e-7
#define MUON_A 3.4445F
#define MUON_B -4.7750F
#define MUON_C 2.0315F

// The numbers of one step, in fp32 as the kernels take them.
typedef struct muon_factors {
    float grad_scale, momentum, keep; // keep = 1 - momentum
    float by_grad, by_moment;         // u = by_grad * g + by_moment * m
    float rate, decay;
    int32_t steps;
} muon_factors;

static inline muon_factors muon_factors_of(const mics_optimizer_update *update)
{
    const double *settings = update->optimizer->settings;
    const double rows = (double)update->rows, columns = (double)update->columns;
    const float momentum = (float)settings[MUON_MOMENTUM], keep = 1.0F - momentum;
    const bool nesterov = settings[MUON_NESTEROV] != 0;
    const float weight_decay = update->decays ? (float)update->optimizer->weight_decay : 0;
    // Moonshot's (arXiv:2502.16982), or Keller Jordan's.
    const double scale = settings[MUON_MATCHES_ADAMW] != 0
                             ? 0.2 * sqrt(rows > columns ? rows : columns)
                             : sqrt(rows > columns ? rows / columns : 1);
    muon_factors factors = {update->grad_scale,
                            momentum,
                            keep,
                            nesterov ? keep : 0,
                            nesterov ? momentum : 1,
                            update->lr * (float)scale,
                            update->lr * weight_decay,
                            (int32_t)settings[MUON_STEPS]};
    return factors;
}

// Where the workspace has what.
typedef struct muon_space {
    float *copy;             // (rows, columns); 16-bit numbers where GEMMs read these, as in gram
    float *gram, *quadratic; // (side, side)
    double *sums;
    int64_t side; // the smaller of rows and columns
} muon_space;

static inline muon_space muon_space_of(const mics_exec *at, const mics_optimizer_update *update)
{
    const muon_layout layout = muon_layout_of(update->rows, update->columns);
    muon_space space;
    space.copy = (float *)at->workspace;
    space.gram = space.copy + layout.gram;
    space.quadratic = space.copy + layout.quadratic;
    space.sums = (double *)(void *)(space.copy + layout.sums);
    space.side = layout.side;
    return space;
}
