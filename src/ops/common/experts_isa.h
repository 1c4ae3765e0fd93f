// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the CPU's kernels of experts share: rows sorted by expert, and GEMMs expert by expert.
#pragma once

#include "ops/common/kernels_isa.h"
#include "ops/experts/def.h"

// The workspace of a call, divided.
typedef struct experts_space {
    int32_t *first;  // (count + 1): first row of each expert, and of what is dropped
    int64_t all;     // N * k
    mics_elem *rows; // (N * k, width)
    float *gemm;
} experts_space;

/* Divides the workspace and counts each expert's rows. */
static inline experts_space experts_space_of(const mics_op_call *call, int64_t width)
{
    const mics_experts e = call->shape.op->experts;
    float *floats = call->at->workspace;
    experts_space space = {.first = (int32_t *)(void *)floats, .all = call->shape.N * e.chosen};
    floats += mics_experts_first_floats(e);
    space.rows = (mics_elem *)(void *)floats;
    space.gemm = floats + mics_experts_rows_floats(space.all, width, (int64_t)sizeof(mics_elem));
    memset(space.first, 0, ((size_t)e.count + 1) * sizeof *space.first);
    for (int64_t n = 0; n < call->shape.N; ++n) {
        const int32_t *chosen = mics_route_chosen(call->routes, e, n);
        for (int32_t j = 0; j < e.chosen; ++j)
            if (!mics_route_drops(chosen[j]))
                space.first[chosen[j] + 1]++;
    }
    for (int32_t i = 0; i < e.count; ++i)
        space.first[i + 1] += space.first[i];
    return space;
}

/* rows: each token's numbers, at its places. */
static inline void experts_scatter(const mics_op_call *call, mics_elem *rows, const void *x_NW,
                                   int64_t width)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t N = call->shape.N;
    const mics_elem *x = x_NW;
#pragma omp parallel for if (N * width >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        const int32_t *to = mics_route_rows(call->routes, e, n);
        for (int32_t j = 0; j < e.chosen; ++j)
            memcpy(rows + to[j] * width, x + n * width, (size_t)width * sizeof *x);
    }
}

// One GEMM an expert, of its rows. Y (rows, O) = X (rows, I) W^T; or of gradients.
typedef struct experts_gemm {
    const mics_exec *at;
    const experts_space *space;
    int32_t count;
    int64_t I, O;
    int64_t stride;     // from an expert's weight to the next one's
    const void *weight; // (O, I), of the first
} experts_gemm;

// 0 where no expert computes.
static inline void experts_clear(const experts_gemm *g, void *rows, int64_t width)
{
    const int64_t taken = g->space->first[g->count];
    mics_elem *dropped = (mics_elem *)rows + taken * width;
    memset(dropped, 0, (size_t)((g->space->all - taken) * width) * sizeof *dropped);
}

static inline void experts_forward(const experts_gemm *g, void *y, const void *x)
{
    const int32_t *first = g->space->first;
    for (int32_t e = 0; e < g->count; ++e) {
        const mics_gemm_spec gemm = {.transpose_b = true,
                                     .M = first[e + 1] - first[e],
                                     .N = g->O,
                                     .K = g->I,
                                     .a = (const mics_elem *)x + first[e] * g->I,
                                     .lda = g->I,
                                     .b = (const mics_elem *)g->weight + e * g->stride,
                                     .ldb = g->I,
                                     .c = (mics_elem *)y + first[e] * g->O,
                                     .space = g->space->gemm,
                                     .ldc = g->O};
        if (gemm.M > 0)
            MICS_OP(gemm)(g->at, &gemm);
    }
    experts_clear(g, y, g->O);
}

/* dx (rows, I) = dy W */
static inline void experts_input_gradient(const experts_gemm *g, void *dx, const void *dy)
{
    const int32_t *first = g->space->first;
    for (int32_t e = 0; e < g->count; ++e) {
        const mics_gemm_spec gemm = {.M = first[e + 1] - first[e],
                                     .N = g->I,
                                     .K = g->O,
                                     .a = (const mics_elem *)dy + first[e] * g->O,
                                     .lda = g->O,
                                     .b = (const mics_elem *)g->weight + e * g->stride,
                                     .ldb = g->I,
                                     .c = (mics_elem *)dx + first[e] * g->I,
                                     .space = g->space->gemm,
                                     .ldc = g->I};
        if (gemm.M > 0)
            MICS_OP(gemm)(g->at, &gemm);
    }
    experts_clear(g, dx, g->I);
}

/* dW (O, I), of each expert, (+)= dy^T x; 0 of one without rows. */
static inline void experts_weight_gradient(const experts_gemm *g, void *dweight, const void *dy,
                                           const void *x, bool add)
{
    const int32_t *first = g->space->first;
    for (int32_t e = 0; e < g->count; ++e) {
        mics_elem *to = (mics_elem *)dweight + e * g->stride;
        const mics_gemm_spec gemm = {.transpose_a = true,
                                     .add = add,
                                     .M = g->O,
                                     .N = g->I,
                                     .K = first[e + 1] - first[e],
                                     .a = (const mics_elem *)dy + first[e] * g->O,
                                     .lda = g->O,
                                     .b = (const mics_elem *)x + first[e] * g->I,
                                     .ldb = g->I,
                                     .c = to,
                                     .space = g->space->gemm,
                                     .ldc = g->I};
        if (gemm.K > 0)
            MICS_OP(gemm)(g->at, &gemm);
        else if (!add)
            memset(to, 0, (size_t)(g->O * g->I) * sizeof *to);
    }
}
