// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101, algorithm 2), one pass over memory.
#include "ops/common/kernels_isa.h"
#include <math.h>
#include <string.h>

static void update_block(float *params, float *moment1, float *moment2, const float *grads,
                         int64_t elems, const mics_adamw *adamw)
{
    const float beta1 = adamw->beta1, beta2 = adamw->beta2, eps = adamw->eps;
    const float keep1 = 1.0F - beta1, keep2 = 1.0F - beta2, grad_scale = adamw->grad_scale;
    const float rate = adamw->lr / adamw->bias1, decay = adamw->lr * adamw->weight_decay;
    const float root_scale = 1.0F / sqrtf(adamw->bias2);
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        float g = grads[i] * grad_scale;
        float m = beta1 * moment1[i] + keep1 * g;
        float v = beta2 * moment2[i] + keep2 * (g * g);
        float p = params[i];
        moment1[i] = m;
        moment2[i] = v;
        params[i] = p - (rate * m / (sqrtf(v) * root_scale + eps) + decay * p);
    }
}

void MICS_OP(adamw_update)(const mics_op_place *at, void *params, float *masters, float *moment1,
                           float *moment2, const float *grads, int64_t elems,
                           const mics_adamw *adamw)
{
    (void)at;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        int64_t size = elems - begin < MICS_OP_BLOCK ? elems - begin : MICS_OP_BLOCK;
        update_block(masters + begin, moment1 + begin, moment2 + begin, grads + begin, size, adamw);
    }
    if (params)
        memcpy(params, masters, (size_t)elems * sizeof *masters);
}
