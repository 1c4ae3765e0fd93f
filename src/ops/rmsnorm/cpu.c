// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows scaled by their root mean square. Shapes: see mics/op.h.
#include "ops/common/def.h"
#include "ops/common/kernels_isa.h"
#include "ops/common/rms_row.h"
#include <string.h>

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const mics_elem *x_NC = call->in[0];
    mics_elem *y_NC = call->out;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n)
        call->stats[n] = mics_rms_forward_row(y_NC + n * C, x_NC + n * C, call->params[0],
                                              call->shape.op->eps, C);
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const int64_t blocks = N < MICS_NORM_BLOCKS ? N : MICS_NORM_BLOCKS;
    const mics_elem *dy_NC = call->dout, *x_NC = call->in[0];
    const float *scale_N = call->stats;
    mics_elem *dx_NC = call->din;
    float *workspace = call->at->workspace;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t block = 0; block < blocks; ++block) {
        float *dweight = call->dparams[0] ? workspace + block * C : NULL;
        if (dweight)
            memset(dweight, 0, (size_t)C * sizeof *dweight);
        for (int64_t n = block * N / blocks; n < (block + 1) * N / blocks; ++n)
            mics_rms_backward_row(dx_NC ? dx_NC + n * C : NULL, dweight, dy_NC + n * C,
                                  x_NC + n * C, scale_N[n], call->params[0], C, call->add_din);
    }
    if (call->dparams[0])
        MICS_OP(sum_parts)(call->dparams[0], workspace, blocks, C, C, call->add_params[0]);
}

const mics_op_kernels MICS_OP(rmsnorm_kernels) = {.forward = forward, .backward = backward};
