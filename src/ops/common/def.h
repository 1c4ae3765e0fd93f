// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What descriptors of several ops share.
#pragma once

#include "base/size.h"
#include "mics/op.h"
#include <string.h>

// Contracts with an accelerator's kernels: bytes that a GEMM may take (NVIDIA's advice for Hopper:
// cuBLAS 13.0, "cublasSetWorkspace"), and what parts of a workspace begin on.
enum { MICS_GEMM_BYTES = 32 << 20, MICS_PART_BYTES = 256 };

// Rows of the gradients of a norm's parameters are summed in at most so many fixed blocks, whatever
// the number of threads: on the CPU, and on an accelerator.
enum { MICS_NORM_BLOCKS = 16, MICS_NORM_ACCELERATOR_BLOCKS = 512 };

// What a number of a dropout mask costs, as floating-point operations: a Philox block of 10 rounds
// of some 12 operations is for 8 numbers.
enum { MICS_MASK_FLOPS = 15 };

static inline int64_t mics_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mics_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Floats of a part of a workspace. */
static inline int64_t mics_part_floats(int64_t bytes)
{
    return mics_size_round_up(bytes, MICS_PART_BYTES) / (int64_t)sizeof(float);
}

/* Times of its bytes that an op moves in a pass: above 1 where separate kernels move more. */
static inline double mics_op_separate(const mics_op_def *def, const mics_op_pass *pass)
{
    const double times = pass->backward ? def->separate_backward : def->separate_forward;
    return pass->separate && times > 0 ? times : 1;
}

/* Floats that the sums of a norm's gradients take, of `elems` parameters; 0 where all are fixed. */
static inline int64_t mics_norm_sums(const mics_op_shape *s, int64_t elems)
{
    int64_t blocks = MICS_NORM_BLOCKS;
    if (s->params_fixed[0] && (s->params_fixed[1] || s->params[1][0] == 0))
        return 0;
    if (s->accelerator_bytes > 0)
        blocks = mics_smaller(s->N, MICS_NORM_ACCELERATOR_BLOCKS);
    return blocks * elems;
}

/* An op that moves memory alone: inputs and output once forward, twice backward. */
static inline mics_op_cost mics_cost_moved(const mics_op_shape *s)
{
    const double touched = 4 * (double)s->N * (double)(s->in[0] + s->out);
    mics_op_cost cost;
    memset(&cost, 0, sizeof cost);
    cost.bytes_forward = touched;
    cost.bytes_backward = 2 * touched;
    return cost;
}

/* (N, I) x (I, O), and backward as many GEMMs as gradients are wanted. */
static inline mics_op_cost mics_cost_gemm(double tokens, double inputs, double outputs,
                                          int32_t gradients)
{
    mics_op_cost cost;
    memset(&cost, 0, sizeof cost);
    cost.flops_forward = 2 * tokens * inputs * outputs;
    cost.flops_backward = gradients * cost.flops_forward;
    cost.bytes_forward = 4 * (inputs * outputs + tokens * (inputs + outputs));
    cost.bytes_backward = gradients * cost.bytes_forward;
    return cost;
}

/* Of the gradients of in[0] and params[0], how many are wanted. */
static inline int32_t mics_gradients(const mics_op_shape *s)
{
    return !s->in_fixed[0] + !s->params_fixed[0];
}

static inline mics_op_work mics_work_gemm(int64_t m, int64_t n, int64_t k)
{
    mics_op_work work = {MICS_WORK_GEMM, m, n, k, 0, 0, 1};
    return work;
}

static inline mics_op_work mics_work_moved(double flops, double bytes)
{
    mics_op_work work = {MICS_WORK_MEMORY, 0, 0, 0, flops, bytes, 1};
    return work;
}
