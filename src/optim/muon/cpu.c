// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Muon: the momentum of a part of a matrix, and the step of a part by the whole matrix's momentum
// made orthogonal. AdamW's step for what is no matrix.
#include "ops/common/kernels_isa.h"
#include "optim/muon/factors.h"
#include <string.h>

static void begin_block(const mics_optimizer_update *update, const muon_factors *by, int64_t begin,
                        int64_t elems)
{
    float *moment = update->states[ADAMW_MOMENT1] + begin;
    float *to = update->whole + update->begin + begin;
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

// One iteration: space->next from space->x.
static void iterate(const muon_space *space, int64_t rows, int64_t columns)
{
    const int64_t side = space->side;
    const bool tall = rows > columns;
    const size_t square = (size_t)(side * side) * sizeof(float);
    mics_gemm(tall, !tall, side, side, tall ? rows : columns, 1, space->x, columns, space->x,
              columns, 0, space->gram, side);
    memcpy(space->quadratic, space->gram, square);
    mics_gemm(false, false, side, side, side, MUON_C, space->gram, side, space->gram, side, MUON_B,
              space->quadratic, side);
    memcpy(space->next, space->x, (size_t)(rows * columns) * sizeof(float));
    if (tall)
        mics_gemm(false, false, rows, side, side, 1, space->x, side, space->quadratic, side, MUON_A,
                  space->next, side);
    else
        mics_gemm(false, false, side, columns, side, 1, space->quadratic, side, space->x, columns,
                  MUON_A, space->next, columns);
}

// The whole matrix, made orthogonal, in the workspace.
static const float *orthogonalise(const mics_exec *at, const mics_optimizer_update *update,
                                  int32_t steps)
{
    muon_space space = muon_space_of(at, update);
    const int64_t elems = update->rows * update->columns;
    double squares = 0;
    MICS_ISA_OP(sum_squares)(at, &squares, update->whole, elems);
    const double norm = sqrt(squares);
    const float scale = (float)(1 / (norm > MUON_NORM_EPS ? norm : MUON_NORM_EPS));
    for (int64_t i = 0; i < elems; ++i)
        space.x[i] = update->whole[i] * scale;
    for (int32_t step = 0; step < steps; ++step) {
        iterate(&space, update->rows, update->columns);
        float *last = space.x;
        space.x = space.next;
        space.next = last;
    }
    return space.x;
}

static void apply(const mics_optimizer_update *update, const muon_factors *by,
                  const float *orthogonal)
{
    const float *step = orthogonal + update->begin;
    mics_elem *params = update->params;
    for (int64_t i = 0; i < update->elems; ++i) {
        float p = update->masters[i];
        p = p - (by->rate * step[i] + by->decay * p);
        update->masters[i] = p;
        if (params)
            params[i] = mics_store(p);
    }
}

void MICS_OP(muon_update)(const mics_exec *at, const mics_optimizer_update *update)
{
    const muon_factors by = muon_factors_of(update);
    const int64_t elems = update->elems;
    if (update->whole == NULL) {
        MICS_OP(adamw_update)(at, update);
        return;
    }
    if (!update->begins) {
        apply(update, &by, orthogonalise(at, update, by.steps));
        return;
    }
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        int64_t size = elems - begin < MICS_OP_BLOCK ? elems - begin : MICS_OP_BLOCK;
        begin_block(update, &by, begin, size);
    }
}
