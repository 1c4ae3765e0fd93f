// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// y = x scale where the mask keeps, else 0; a row's random bits are made some at a time.
#include "ops/common/mask.h"
#include <string.h>

enum { ROW_PART = 1024 }; // numbers whose bits lie in the nearest cache

// One row: `token` of its sequence.
static void drop_row(mics_elem *y, const mics_elem *x, int64_t elems, const mics_mask *mask,
                     int64_t token, bool add)
{
    uint16_t bits[ROW_PART];
    const uint32_t threshold = mask->threshold;
    const float scale = mask->scale;
    for (int64_t first = 0; first < elems; first += ROW_PART) {
        const int64_t part = elems - first < ROW_PART ? elems - first : ROW_PART;
        const mics_elem *from = x + first;
        mics_elem *to = y + first;
        MICS_ISA_OP(mask_rows)
        (bits, mask, token, first / MICS_MASK_BLOCK, 31,
         (part + MICS_MASK_BLOCK - 1) / MICS_MASK_BLOCK);
        if (add) {
#pragma omp simd
            for (int64_t i = 0; i < part; ++i)
                to[i] = mics_store(mics_load(to[i]) +
                                   (bits[i] < threshold ? 0.0F : mics_load(from[i]) * scale));
        } else {
#pragma omp simd
            for (int64_t i = 0; i < part; ++i)
                to[i] = mics_store(bits[i] < threshold ? 0.0F : mics_load(from[i]) * scale);
        }
    }
}

static void drop(const mics_op_call *call, mics_elem *y, const mics_elem *x, bool add)
{
    const int64_t N = call->shape.N, T = call->shape.T, C = call->shape.out;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        const mics_mask mask = mics_mask_of(call, n / T, 0);
        drop_row(y + n * C, x + n * C, C, &mask, n % T, add);
    }
}

static void forward(const mics_op_call *call)
{
    if (mics_drops(call))
        drop(call, call->out, call->in[0], false);
    else
        memcpy(call->out, call->in[0],
               (size_t)(call->shape.N * call->shape.out) * sizeof(mics_elem));
}

// A draw is there, since only training has a backward.
static void backward(const mics_op_call *call)
{
    drop(call, call->din, call->dout, call->add_din);
}

const mics_op_kernels MICS_OP(dropout_kernels) = {.forward = forward, .backward = backward};
