// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of ops: sizes and attributes of a call, and its results in fp64. An op's are in
// <op>/cases.h, once for tests on the CPU, tests on a GPU and timers. Shapes: see mics/op.h.
#pragma once

#include "mics/core/dtype.h"
#include "mics/op.h"
#include <math.h>
#include <string.h>

// About 8 roundings of fp32.
#define MICS_CASE_TOLERANCE 5e-7

// One call, forward or backward.
typedef struct mics_op_case {
    mics_op op;
    mics_op_shape shape;          // `op` and `routes` are the walker's
    double scale[MICS_OP_INPUTS]; // of an input's normal random numbers; 0: 1
    double shift;                 // added to the first input
    const double *edges;          // (edge_count) the first input begins with; NULL: none
    int32_t edge_count;
    bool
        wide_in; // inputs and their gradients are fp32 in every dtype, as op.wide says of the output
    bool draws;  // random numbers of dropout
    mics_dropout_draw draw;
    // (optional) Fills in tokens or targets, drawn from the vocabulary before, by `tokens`.
    void (*set_tokens)(const struct mics_op_case *c, int32_t *tokens_N);
    int32_t tokens;
    const int32_t *segments; // (N), NULL: none
    int64_t chunk_rows;      // of logits
    float loss_scale;
    const float *row_scales; // (N), of losses; NULL: 1
    bool counted;            // on a GPU: rows that count are known to the host
    size_t workspace_bytes;  // 0: as the descriptor says
    bool tight;              // and too few for what it does best
    // On a GPU: elements, below 8, that the first buffer begins off 256 bytes; so many more the next.
    int64_t offset, offset_step;
    // backward
    bool add_din, add_params[MICS_OP_PARAMS];
    bool in_place; // the input's gradient replaces the output's
    // not wanted; shape.in_fixed and shape.params_fixed follow
    bool without_din, without_din_second, without_dparams[MICS_OP_PARAMS];
    int32_t samples; // central differences of each gradient
} mics_op_case;

// An array of a call in fp64.
typedef struct mics_case_numbers {
    double *at;       // NULL: the call has none
    double *sum;      // results: absolute terms of each element, in which its error is measured
    double tolerance; // results: relative to them
    int64_t elems;
} mics_case_numbers;

typedef struct mics_case_values {
    const mics_op_case *of;
    mics_dtype dtype;
    bool gpu;
    const int32_t *tokens; // or targets
    mics_case_numbers in[MICS_OP_INPUTS], params[MICS_OP_PARAMS], stats;
    mics_case_numbers out; // of a loss: the losses
    mics_case_numbers dout, din[MICS_OP_INPUTS], dparams[MICS_OP_PARAMS];
} mics_case_values;

// Who calls the cases' ops.
typedef struct mics_case_walker {
    mics_dtype dtype;
    bool gpu;
    void (*call)(const struct mics_case_walker *self, const mics_op_case *c, bool backward);
} mics_case_walker;

// An op's cases.
typedef struct mics_op_cases {
    mics_op_kind kind;
    void (*cpu)(const mics_case_walker *walker); // all of them, on each device
    void (*gpu)(const mics_case_walker *walker); // (optional) none where a test has its own way
    void (*forward)(mics_case_values *v);        // fills out and stats
    void (*backward)(mics_case_values *v);       // (after forward) fills gradients, which hold 0
} mics_op_cases;

static inline void mics_case_forward(const mics_case_walker *walker, mics_op_case c)
{
    walker->call(walker, &c, false);
}

static inline void mics_case_backward(const mics_case_walker *walker, mics_op_case c)
{
    walker->call(walker, &c, true);
}

/* Where one term is all there is: its absolute value is the sum. */
static inline void mics_case_single(const mics_case_numbers *numbers)
{
    for (int64_t i = 0; i < numbers->elems; i++)
        numbers->sum[i] = fabs(numbers->at[i]);
}

/* Adds a term to an element. */
static inline void mics_case_add(const mics_case_numbers *numbers, int64_t i, double term)
{
    if (numbers->at == NULL)
        return;
    numbers->at[i] += term;
    numbers->sum[i] += fabs(term);
}

/* Half a unit in the last place, relative. */
static inline double mics_case_unit(mics_dtype dtype)
{
    return ldexp(1, dtype == MICS_DTYPE_FP32 ? -24 : dtype == MICS_DTYPE_BF16 ? -8 : -11);
}

/* Sums of a row in any order: their rounding grows with the root of its length. */
static inline double mics_case_row_tolerance(int64_t length)
{
    return MICS_CASE_TOLERANCE * (1 + sqrt((double)length) / 16);
}
