// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of the RMSNorm of query and key heads.
#pragma once

#include "ops/common/cases_norm.h"

static int64_t head_norm_heads(const mics_case_values *v)
{
    return v->of->op.heads.query + v->of->op.heads.key_value;
}

// Where a head of all begins, and the parameter that is its weight.
static int64_t head_norm_at(const mics_case_values *v, int64_t head)
{
    const int64_t heads = head_norm_heads(v);
    return head / heads * v->of->shape.out + head % heads * v->of->op.heads.dim;
}

static int head_norm_weight(const mics_case_values *v, int64_t head)
{
    return head % head_norm_heads(v) < v->of->op.heads.query ? 0 : 1;
}

static void head_norm_forward(mics_case_values *v)
{
    const int64_t D = v->of->op.heads.dim;
    memcpy(v->out.at, v->in[0].at, (size_t)v->out.elems * sizeof *v->out.at); // values pass
    for (int64_t i = 0; i < v->stats.elems; i++) {
        const int64_t at = head_norm_at(v, i);
        const double *weight = v->params[head_norm_weight(v, i)].at;
        v->stats.at[i] = norm_scale(v->in[0].at + at, D, v->of->op.eps);
        for (int64_t d = 0; d < D; d++)
            v->out.at[at + d] *= v->stats.at[i] * weight[d];
    }
    mics_case_single(&v->out);
    mics_case_single(&v->stats);
    v->out.tolerance = v->stats.tolerance = 2 * MICS_CASE_TOLERANCE;
}

static void head_norm_backward(mics_case_values *v)
{
    memcpy(v->din[0].at, v->dout.at, (size_t)v->dout.elems * sizeof *v->dout.at);
    mics_case_single(&v->din[0]);
    for (int64_t i = 0; i < v->stats.elems; i++)
        norm_gradient(v, head_norm_weight(v, i), head_norm_at(v, i), v->of->op.heads.dim,
                      v->stats.at[i]);
    v->din[0].tolerance = 2 * MICS_CASE_TOLERANCE;
    v->dparams[0].tolerance = v->dparams[1].tolerance = 2 * MICS_CASE_TOLERANCE;
}

static mics_op_case head_norm_case(int64_t N, mics_heads heads)
{
    const int64_t W = mics_heads_width(heads);
    mics_op_case c = {.op = {.kind = MICS_OP_HEAD_NORM, .heads = heads, .eps = 1e-6F},
                      .scale = {2}};
    c.shape = (mics_op_shape){.B = 1, .T = N, .N = N, .in = {W}, .out = W, .heads = heads};
    c.shape.params[0][0] = c.shape.params[1][0] = heads.dim;
    return c;
}

static void head_norm_flags(const mics_case_walker *w, mics_op_case c, bool add_din,
                            bool add_params, bool in_place)
{
    c.add_din = add_din;
    c.add_params[0] = c.add_params[1] = add_params;
    c.in_place = in_place;
    c.samples = c.op.heads.dim >= 5 ? 20 : 0; // few numbers are too curved for differences
    mics_case_backward(w, c);
}

static void head_norm_cpu(const mics_case_walker *w)
{
    static const mics_heads heads[] = {{1, 1, 1}, {6, 2, 40}, {5, 1, 40}, {3, 3, 17}, {4, 2, 128}};
    static const int64_t rows[] = {1, 2, 15, 17, 70};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            const int flags = (i + 2 * j) % 8;
            const mics_op_case c = head_norm_case(rows[i], heads[j]);
            mics_case_forward(w, c);
            head_norm_flags(w, c, flags & 1, flags & 2, flags & 4);
        }
    for (int flags = 0; flags < 8; flags++)
        head_norm_flags(w, head_norm_case(33, (mics_heads){6, 2, 10}), flags & 1, flags & 2,
                        flags & 4);
}

static void head_norm_gpu(const mics_case_walker *w)
{
    static const struct {
        int64_t N;
        mics_heads heads;
        int64_t offset;
    } shapes[] = {{1, {1, 1, 1}, 0},   {3, {6, 2, 40}, 0},  {17, {5, 1, 64}, 0},
                  {33, {3, 3, 17}, 1}, {9, {2, 1, 128}, 0}, {5, {2, 1, 300}, 0},
                  {700, {4, 2, 8}, 0}};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        mics_op_case c = head_norm_case(shapes[i].N, shapes[i].heads);
        c.offset = shapes[i].offset;
        mics_case_forward(w, c);
        for (int k = 0; k < 4; k++)
            head_norm_flags(w, c, k & 1, (k + i) & 1, k & 2);
    }
}

static const mics_op_cases head_norm_cases = {MICS_OP_HEAD_NORM, head_norm_cpu, head_norm_gpu,
                                              head_norm_forward, head_norm_backward};
