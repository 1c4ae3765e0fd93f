// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Muon: the momentum of a part of a matrix, a matrix made orthogonal, and the step of a part along
// that. AdamW's step for what is no matrix.
#include "ops/common/kernels_isa.h"
#include "optim/muon/factors.h"
#include <string.h>

static void begin_block(const mics_optimizer_update *update, const muon_factors *by, int64_t begin,
                        int64_t elems)
{
    float *moment = update->states[ADAMW_MOMENT1] + begin;
    float *to = update->direction + begin;
    const float *grads = update->grads + begin;
    const float grad_scale = by->grad_scale, momentum = by->momentum, keep = by->keep;
    const float by_grad = by->by_grad, by_moment = by->by_moment;
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        float g = grads[i] * grad_scale;
        float m = momentum * moment[i] + keep * g;
        moment[i] = m;
        to[i] = by_grad * g + by_moment * m;
    }
}

// One iteration, in place.
static void iterate(const muon_space *space, float *x, int64_t rows, int64_t columns)
{
    const int64_t side = space->side;
    const bool tall = rows > columns;
    const size_t square = (size_t)(side * side) * sizeof(float);
    memcpy(space->copy, x, (size_t)(rows * columns) * sizeof(float));
    mics_gemm(tall, !tall, side, side, tall ? rows : columns, 1, x, columns, space->copy, columns,
              0, space->gram, side);
    memcpy(space->quadratic, space->gram, square);
    mics_gemm(false, false, side, side, side, MUON_C, space->gram, side, space->gram, side, MUON_B,
              space->quadratic, side);
    if (tall)
        mics_gemm(false, false, rows, side, side, 1, space->copy, side, space->quadratic, side,
                  MUON_A, x, columns);
    else
        mics_gemm(false, false, side, columns, side, 1, space->quadratic, side, space->copy,
                  columns, MUON_A, x, columns);
}

static void orthogonalise(const mics_exec *at, const mics_optimizer_update *update, int32_t steps)
{
    const muon_space space = muon_space_of(at, update);
    const int64_t elems = update->rows * update->columns;
    float *x = update->direction;
    double squares = 0;
    MICS_ISA_OP(sum_squares)(at, &squares, x, elems);
    const double norm = sqrt(squares);
    const float scale = (float)(1 / (norm > MUON_NORM_EPS ? norm : MUON_NORM_EPS));
    for (int64_t i = 0; i < elems; ++i)
        x[i] *= scale;
    for (int32_t step = 0; step < steps; ++step)
        iterate(&space, x, update->rows, update->columns);
}

static void apply(const mics_optimizer_update *update, const muon_factors *by)
{
    const float *step = update->direction;
    mics_elem *params = update->params;
    for (int64_t i = 0; i < update->elems; ++i) {
        float p = update->masters[i];
        p = p - (by->rate * step[i] + by->decay * p);
        update->masters[i] = p;
        if (params)
            params[i] = mics_store(p);
    }
}

static void begin(const mics_optimizer_update *update, const muon_factors *by)
{
    const int64_t elems = update->elems;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t at = 0; at < elems; at += MICS_OP_BLOCK) {
        int64_t size = elems - at < MICS_OP_BLOCK ? elems - at : MICS_OP_BLOCK;
        begin_block(update, by, at, size);
    }
}

void MICS_OP(muon_update)(const mics_exec *at, const mics_optimizer_update *update)
{
    const muon_factors by = muon_factors_of(update);
    switch (update->phase) {
    case MICS_UPDATE_MOMENTUM:
        begin(update, &by);
        break;
    case MICS_UPDATE_ORTHOGONALISE:
        orthogonalise(at, update, by.steps);
        break;
    case MICS_UPDATE_APPLY:
        apply(update, &by);
        break;
    default: // ALL
        MICS_OP(adamw_update)(at, update);
    }
}
