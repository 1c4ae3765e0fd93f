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

/* Calls a backward case as it is, and once more with fewer gradients: by turns, of those that the op
 * has and the case wants, any that leave one. */
static inline void op_walk_wants(const mics_op_case *of, int turn,
                                 void (*backward)(const mics_case_walker *self,
                                                  const mics_op_case *of),
                                 const mics_case_walker *self)
{
    enum { DIN = 1, DIN_SECOND = 2, DPARAMS = 4, ALL = 32 };
    const mics_op_def *def = mics_op_def_get(of->op.kind);
    int wanted = of->shape.in[0] > 0 && !of->without_din ? DIN : 0;
    wanted |= def->backward_second && !of->without_din_second ? DIN_SECOND : 0;
    for (int p = 0; p < MICS_OP_PARAMS; ++p)
        wanted |= of->shape.params[p][0] > 0 && !of->without_dparams[p] ? DPARAMS << p : 0;
    backward(self, of);
    for (int tries = 0; !def->loss && tries < ALL; ++tries) {
        const int kept = wanted & (turn * 5 + tries);
        mics_op_case fewer = *of;
        if (kept == 0 || kept == wanted || (of->in_place && !(kept & DIN)))
            continue;
        fewer.without_din = !(kept & DIN);
        fewer.without_din_second = !(kept & DIN_SECOND);
        for (int p = 0; p < MICS_OP_PARAMS; ++p) {
            fewer.without_dparams[p] = !(kept & DPARAMS << p);
            fewer.add_params[p] = of->add_params[p] && !fewer.without_dparams[p];
        }
        fewer.samples = 0;
        backward(self, &fewer);
        return;
    }
}

/* A case in words. */
#define OP_WALK_FORMAT                                                                             \
    "%s_%s N=%d of %d, %d to %d, heads %d/%d of %d, at %d, add %d %d %d%s%s%s%s%s%s%s"
#define OP_WALK_NO(gradient, name) ((gradient) ? ", no " name : "")
#define OP_WALK_VALUES(c, backward)                                                                \
    mics_op_def_get((c)->op.kind)->name, (backward) ? "backward" : "forward", (int)(c)->shape.N,   \
        (int)(c)->shape.T, (int)(c)->shape.in[0], (int)(c)->shape.out, (int)(c)->op.heads.query,   \
        (int)(c)->op.heads.key_value, (int)(c)->op.heads.dim, (int)(c)->offset, (c)->add_din,      \
        (c)->add_params[0], (c)->add_params[1], (c)->in_place ? ", in place" : "",                 \
        (c)->draws ? ", drawn" : "", OP_WALK_NO((c)->without_din, "din"),                          \
        OP_WALK_NO((c)->without_din_second, "second din"),                                         \
        OP_WALK_NO((c)->without_dparams[0], "dparam"),                                             \
        OP_WALK_NO((c)->without_dparams[1], "second dparam"),                                      \
        OP_WALK_NO((c)->without_dparams[2], "third dparam")
