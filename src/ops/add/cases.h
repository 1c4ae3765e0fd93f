// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of sums, in the dtype and in fp32. Backward is no kernel.
#pragma once

#include "ops/common/cases.h"

static inline void add_forward(mics_case_values *v)
{
    for (int64_t i = 0; i < v->out.elems; i++) {
        mics_case_add(&v->out, i, v->in[0].at[i]);
        mics_case_add(&v->out, i, v->in[1].at[i]);
    }
}

static inline void add_all(const mics_case_walker *w)
{
    static const int64_t sizes[] = {1, 5, 64, 65, 257, 4099, 20000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int wide = 0; wide < 2; wide++) {
            mics_op_case c = {.op = {.kind = MICS_OP_ADD, .wide = wide}, .wide_in = wide};
            c.shape = (mics_op_shape){.N = sizes[i], .in = {1, 1}, .out = 1};
            c.offset = (int64_t)i % 4;
            mics_case_forward(w, c);
        }
}

static const mics_op_cases add_cases = {MICS_OP_ADD, add_all, add_all, add_forward, NULL};
