// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of casts to fp32 and from it. Shards begin and end anywhere.
#pragma once

#include "ops/common/cases.h"

static inline void cast_forward(mics_case_values *v)
{
    memcpy(v->out.at, v->in[0].at, (size_t)v->out.elems * sizeof *v->out.at);
    mics_case_single(&v->out);
}

static inline void cast_backward(mics_case_values *v)
{
    memcpy(v->din[0].at, v->dout.at, (size_t)v->dout.elems * sizeof *v->din[0].at);
    mics_case_single(&v->din[0]);
}

static inline void cast_case(const mics_case_walker *w, int64_t elems, bool wide, int64_t offset)
{
    mics_op_case c = {.op = {.kind = MICS_OP_CAST, .wide = wide}, .wide_in = !wide};
    c.shape = (mics_op_shape){.N = elems, .in = {1}, .out = 1};
    c.offset = offset;
    c.offset_step = offset % 2;
    mics_case_forward(w, c);
    mics_case_backward(w, c);
    c.add_din = true;
    mics_case_backward(w, c);
}

static inline void cast_cpu(const mics_case_walker *w)
{
    static const int64_t sizes[] = {1, 2, 5, 17, 64, 65, 130, 4095, 4097, 20000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int wide = 0; wide < 2; wide++)
            cast_case(w, sizes[i], wide, 0);
}

static inline void cast_gpu(const mics_case_walker *w)
{
    static const int64_t sizes[] = {1, 3, 4, 5, 31, 64, 65, 257, 1000, 4096, 4099};
    for (int64_t i = 0; i < (int64_t)(sizeof sizes / sizeof *sizes); i++)
        for (int wide = 0; wide < 2; wide++) {
            cast_case(w, sizes[i], wide, 0);
            cast_case(w, sizes[i], wide, i % 8);
        }
}

static const mics_op_cases cast_cases = {MICS_OP_CAST, cast_cpu, cast_gpu, cast_forward,
                                         cast_backward};
