// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// RMSNorm of each query and key head. Legend: D numbers of a head; W = (Q + 2 K) D.
#include "ops/common/def.h"
#include "ops/common/kernels_isa.h"
#include "ops/common/rms_row.h"
#include <string.h>

static void forward(const mics_op_call *call)
{
    const mics_heads heads = call->shape.heads;
    const int64_t N = call->shape.N, D = heads.dim, W = mics_heads_width(heads);
    const int64_t normed = heads.query + heads.key_value;
    const mics_elem *x_NW = call->in[0];
    mics_elem *y_NW = call->out;
#pragma omp parallel for if (N * W >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        const mics_elem *x_W = x_NW + n * W;
        mics_elem *y_W = y_NW + n * W;
        float *scales = call->stats + n * normed;
        for (int64_t h = 0; h < normed; ++h)
            scales[h] =
                mics_rms_forward_row(y_W + h * D, x_W + h * D,
                                     call->params[h < heads.query ? 0 : 1], call->shape.op->eps, D);
        memcpy(y_W + normed * D, x_W + normed * D, (size_t)(heads.key_value * D) * sizeof *y_W);
    }
}

// The gradient of values: what came from above. din may be dout.
static void pass_values(mics_elem *dx, const mics_elem *dy, int64_t elems, bool add)
{
    if (add) {
#pragma omp simd
        for (int64_t i = 0; i < elems; ++i)
            dx[i] = mics_store(mics_load(dx[i]) + mics_load(dy[i]));
    } else if (dx != dy) {
        memcpy(dx, dy, (size_t)elems * sizeof *dx);
    }
}

// dweights: of queries (D), then of keys (D).
static void backward_row(const mics_op_call *call, int64_t n, float *dweights)
{
    const mics_heads heads = call->shape.heads;
    const int64_t D = heads.dim, W = mics_heads_width(heads),
                  normed = heads.query + heads.key_value;
    const mics_elem *dy_W = (const mics_elem *)call->dout + n * W,
                    *x_W = (const mics_elem *)call->in[0] + n * W;
    mics_elem *dx_W = call->din ? (mics_elem *)call->din + n * W : NULL;
    for (int64_t h = 0; h < normed; ++h) {
        const int key = h < heads.query ? 0 : 1;
        mics_rms_backward_row(dx_W ? dx_W + h * D : NULL,
                              call->dparams[key] ? dweights + key * D : NULL, dy_W + h * D,
                              x_W + h * D, call->stats[n * normed + h], call->params[key], D,
                              call->add_din);
    }
    if (dx_W)
        pass_values(dx_W + normed * D, dy_W + normed * D, heads.key_value * D, call->add_din);
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, D = call->shape.heads.dim;
    const int64_t blocks = N < MICS_NORM_BLOCKS ? N : MICS_NORM_BLOCKS;
    const bool sums = call->dparams[0] || call->dparams[1], *add = call->add_params;
    float *workspace = call->at->workspace;
#pragma omp parallel for if (N * call->shape.out >= MICS_OP_PARALLEL)
    for (int64_t block = 0; block < blocks; ++block) {
        float *dweights = sums ? workspace + block * 2 * D : NULL;
        if (sums)
            memset(dweights, 0, (size_t)(2 * D) * sizeof *dweights);
        for (int64_t n = block * N / blocks; n < (block + 1) * N / blocks; ++n)
            backward_row(call, n, dweights);
    }
    for (int p = 0; p < 2; ++p)
        if (call->dparams[p])
            MICS_OP(sum_parts)(call->dparams[p], workspace + p * D, blocks, D, 2 * D, add[p]);
}

const mics_op_kernels MICS_OP(head_norm_kernels) = {.forward = forward, .backward = backward};
