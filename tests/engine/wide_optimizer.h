// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers in plain fp64, as PyTorch and their authors have them: what the engine's updates are
// compared with, of a whole model.
#pragma once

#include "mics/core/optimizer.h"
#include "mics/model.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// What is updated: `elems` numbers, their gradients and states.
typedef struct wide_shard {
    double *p, *first, *second;
    const double *g;
    int64_t elems;
} wide_shard;

// torch.optim.AdamW.
static inline void wide_adamw(const mics_optimizer *o, double lr, double decay, int64_t step,
                              wide_shard s)
{
    const double beta1 = o->settings[0], beta2 = o->settings[1], eps = o->settings[2];
    for (int64_t i = 0; i < s.elems; i++) {
        s.first[i] = beta1 * s.first[i] + (1 - beta1) * s.g[i];
        s.second[i] = beta2 * s.second[i] + (1 - beta2) * s.g[i] * s.g[i];
        const double mean = s.first[i] / (1 - pow(beta1, (double)step)),
                     square = s.second[i] / (1 - pow(beta2, (double)step));
        s.p[i] -= lr * (decay * s.p[i] + mean / (sqrt(square) + eps));
    }
}

// torch.optim.SGD, without dampening.
static inline void wide_sgd(const mics_optimizer *o, double lr, double decay, wide_shard s)
{
    const double momentum = o->settings[0];
    for (int64_t i = 0; i < s.elems; i++) {
        const double g = s.g[i] + decay * s.p[i];
        s.first[i] = momentum * s.first[i] + g;
        s.p[i] -= lr * (o->settings[1] != 0 ? g + momentum * s.first[i] : s.first[i]);
    }
}

// Chen et al., 2023, arXiv:2302.06675, algorithm 2.
static inline void wide_lion(const mics_optimizer *o, double lr, double decay, wide_shard s)
{
    const double beta1 = o->settings[0], beta2 = o->settings[1];
    for (int64_t i = 0; i < s.elems; i++) {
        const double c = beta1 * s.first[i] + (1 - beta1) * s.g[i];
        s.p[i] -= lr * ((double)((c > 0) - (c < 0)) + decay * s.p[i]);
        s.first[i] = beta2 * s.first[i] + (1 - beta2) * s.g[i];
    }
}

// ---- Muon ----

// c (rows, columns) = a (rows, inner) b (inner, columns).
static inline void wide_multiply(double *c, const double *a, const double *b, int64_t rows,
                                 int64_t inner, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) {
            double sum = 0;
            for (int64_t i = 0; i < inner; i++)
                sum += a[r * inner + i] * b[i * columns + k];
            c[r * columns + k] = sum;
        }
}

static inline void wide_turn(double *to, const double *from, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows * columns; i++)
        to[i % columns * rows + i / columns] = from[i];
}

// Jordan et al., 2024: zeropower_via_newtonschulz5, in place.
static inline void wide_orthogonalise(double *x, int64_t rows, int64_t columns, int32_t steps)
{
    static const double A = 3.4445, B = -4.7750, C = 2.0315;
    enum { SIDE = 128 };
    double turned[SIDE * SIDE], gram[SIDE * SIDE], square[SIDE * SIDE], next[SIDE * SIDE];
    double norm = 0;
    assert_true(rows * columns <= SIDE * SIDE && rows <= SIDE && columns <= SIDE);
    if (rows > columns) {
        memcpy(next, x, (size_t)(rows * columns) * sizeof *x);
        wide_turn(turned, next, rows, columns);
        wide_orthogonalise(turned, columns, rows, steps);
        wide_turn(x, turned, columns, rows);
        return;
    }
    for (int64_t i = 0; i < rows * columns; i++)
        norm += x[i] * x[i];
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] /= fmax(sqrt(norm), 1e-7);
    for (int32_t step = 0; step < steps; step++) {
        wide_turn(turned, x, rows, columns);
        wide_multiply(gram, x, turned, rows, columns, rows);
        wide_multiply(square, gram, gram, rows, rows, rows);
        for (int64_t i = 0; i < rows * rows; i++)
            square[i] = B * gram[i] + C * square[i];
        wide_multiply(next, square, x, rows, rows, columns);
        for (int64_t i = 0; i < rows * columns; i++)
            x[i] = A * x[i] + next[i];
    }
}

// torch.optim.Muon, of one matrix.
static inline void wide_muon(const mics_optimizer *o, double lr, double decay, wide_shard s,
                             int64_t rows)
{
    const int64_t columns = s.elems / rows;
    const double momentum = o->settings[3], sides[] = {(double)rows, (double)columns};
    const bool nesterov = o->settings[4] != 0, matches = o->settings[6] != 0;
    double *update = (double *)calloc((size_t)s.elems, sizeof *update);
    assert_non_null(update);
    for (int64_t i = 0; i < s.elems; i++) {
        s.first[i] = momentum * s.first[i] + (1 - momentum) * s.g[i];
        update[i] = nesterov ? (1 - momentum) * s.g[i] + momentum * s.first[i] : s.first[i];
    }
    wide_orthogonalise(update, rows, columns, (int32_t)o->settings[5]);
    const double adjusted =
        lr * (matches ? 0.2 * sqrt(fmax(sides[0], sides[1])) : sqrt(fmax(1, sides[0] / sides[1])));
    for (int64_t i = 0; i < s.elems; i++)
        s.p[i] -= lr * decay * s.p[i] + adjusted * update[i];
    free(update);
}

// ---- a parameter ----

// An optimizer, and the rate of what is no matrix over the others'.
typedef struct wide_rule {
    mics_optimizer optimizer;
    double other_rate;
} wide_rule;

/* One step of a parameter, `all` of its unit's flat buffer.
 *
 * Needs: a kind that is known here.
 */
static inline void wide_update(const wide_rule *rule, double lr, int64_t step,
                               const mics_param *param, wide_shard all)
{
    const mics_optimizer *o = &rule->optimizer;
    const double decay = param->decay ? o->weight_decay : 0;
    const int64_t at = param->offset;
    const bool matrices = o->kind == MICS_OPTIMIZER_MUON && param->hidden;
    const wide_shard own = {all.p + at, all.first + at, all.second + at, all.g + at, param->elems};
    int64_t row = 0, rows = 0;
    for (int32_t part = 0; matrices && mics_param_next_matrix(param, &part, &row, &rows);) {
        const int64_t begin = row * param->shape[1];
        wide_muon(o, lr, decay,
                  (wide_shard){own.p + begin, own.first + begin, own.second + begin, own.g + begin,
                               rows * param->shape[1]},
                  rows);
    }
    if (o->kind == MICS_OPTIMIZER_SGD)
        wide_sgd(o, lr, decay, own);
    else if (o->kind == MICS_OPTIMIZER_LION)
        wide_lion(o, lr, decay, own);
    else if (!matrices)
        wide_adamw(o, lr * (rule->other_rate > 0 ? rule->other_rate : 1), decay, step, own);
}
