// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Few rows times a weight, at the speed at which memory gives the weight.
#pragma once

#include "base/shares.h"
#include "mics/core/dtype.h"
#include "ops/common/kernels_isa.h"
#include <stdbool.h>
#include <stdint.h>

// y = x W + bias. R rows, I inputs, O outputs.
typedef struct mics_gemv {
    float *y;           // (R, O)
    const float *x;     // (R, I), a row every x_stride floats
    const void *weight; // (I, O), or (O, I) if out_in, of dtype: fp32 or bf16
    const float *bias;  // (O), or NULL
    int64_t R, I, O, x_stride;
    mics_dtype dtype;
    bool out_in;
} mics_gemv;

/* Computes y with the other threads that call this with the same arguments. The weight is read once
 * from memory for all rows. A row's result does not depend on the other rows.
 *
 * shares: of these threads.
 */
void MICS_ISA_OP(gemv)(const mics_gemv *g, mics_shares *shares);
