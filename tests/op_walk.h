// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Walks an op's cases (ops/common/cases.h) on one device: the program links the walker of the CPU
// (ops/test_op_cases.c) or of a GPU (cuda/test_cuda_cases.c).
#pragma once

#include "ops/common/cases.h"
#include "ops/kernels.h"
#include "test.h"

/* Runs all cases of an op on this program's device; fails at the first wrong one. */
void op_walk(const mics_op_cases *cases);

/* cmocka's tests on all dtypes of the device.     Returns: what main returns. */
#define op_walk_tests(tests) op_walk_main(tests, sizeof(tests) / sizeof(tests)[0])
int op_walk_main(const struct CMUnitTest *tests, size_t count);

/* Elements of a parameter. */
static inline int64_t op_walk_param(const mics_op_shape *shape, int p)
{
    return shape->params[p][1] > 0 ? shape->params[p][0] * shape->params[p][1]
                                   : shape->params[p][0];
}

/* Width of a row's stats, by the op's descriptor. */
static inline int64_t op_walk_stats(const mics_op_shape *shape)
{
    int64_t out = 0, stats = 0;
    ASSERT_OK(mics_op_def_get(shape->op->kind)->make(shape, &out, &stats));
    return stats;
}

/* What the case wants no gradients of, in its shape. */
static inline void op_walk_fix(mics_op_shape *shape, const mics_op_case *of)
{
    shape->in_fixed[0] = of->without_din;
    shape->in_fixed[1] = of->without_din_second;
    for (int p = 0; p < MICS_OP_PARAMS; ++p)
        shape->params_fixed[p] = of->without_dparams[p];
}

/* A case in words. */
#define OP_WALK_FORMAT                                                                             \
    "%s_%s N=%d of %d, %d to %d, heads %d/%d of %d, at %d, add %d %d %d%s%s, without %d %d %d %d " \
    "%d"
#define OP_WALK_VALUES(c, backward)                                                                \
    mics_op_def_get((c)->op.kind)->name, (backward) ? "backward" : "forward", (int)(c)->shape.N,   \
        (int)(c)->shape.T, (int)(c)->shape.in[0], (int)(c)->shape.out, (int)(c)->op.heads.query,   \
        (int)(c)->op.heads.key_value, (int)(c)->op.heads.dim, (int)(c)->offset, (c)->add_din,      \
        (c)->add_params[0], (c)->add_params[1], (c)->in_place ? ", in place" : "",                 \
        (c)->draws ? ", drawn" : "", (c)->without_din, (c)->without_din_second,                    \
        (c)->without_dparams[0], (c)->without_dparams[1], (c)->without_dparams[2]
