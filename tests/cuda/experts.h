// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What tests of a router and of experts on a GPU share.
#pragma once

#include "cuda_op.h"
#include "ops/experts/def.h"
#include <math.h>

/* The fp32 number whose bits are those of an integer >= 0: what a row of stats holds. */
static inline double experts_bits(int32_t integer)
{
    float number = 0;
    memcpy(&number, &integer, sizeof number);
    return (double)number;
}

/* Places of rows sorted by expert, then by token; behind them of those that are dropped (below 0). */
static inline void experts_place(mics_experts e, int64_t N, const int32_t *chosen_Nk,
                                 int32_t *rows_Nk)
{
    int32_t row = 0;
    for (int32_t expert = 0; expert <= e.count; ++expert)
        for (int64_t at = 0; at < N * e.chosen; ++at)
            if (expert < e.count ? chosen_Nk[at] == expert : chosen_Nk[at] < 0)
                rows_Nk[at] = row++;
}

// What cu_run runs.
typedef struct experts_call {
    mics_op op;
    mics_op_call call;
} experts_call;

static inline void run_forward(const mics_exec *at, const void *args)
{
    const experts_call *c = args;
    mics_op_call of = c->call;
    of.at = at;
    op_forward(mics_kernels_cuda(), c->op, of);
}

static inline void run_backward(const mics_exec *at, const void *args)
{
    const experts_call *c = args;
    mics_op_call of = c->call;
    of.at = at;
    op_backward(mics_kernels_cuda(), c->op, of);
}
