// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of dropout, against masks of the plain generator.
#pragma once

#include "ops/common/cases.h"
#include "ops/common/cases_masks.h"

// `from` where it is kept, times the scale.
static void dropout_keep(const mics_case_values *v, const mics_case_numbers *to, const double *from)
{
    const mics_op_case *of = v->of;
    const int64_t C = of->shape.out, T = of->shape.T;
    for (int64_t i = 0; i < to->elems; i++)
        to->at[i] = from[i] * mask_factor(of->draws ? &of->draw : NULL, of->op.dropout, of->op.mask,
                                          i / C / T, i / C % T, i % C);
    mics_case_single(to);
}

static void dropout_forward(mics_case_values *v)
{
    dropout_keep(v, &v->out, v->in[0].at);
}

static void dropout_backward(mics_case_values *v)
{
    dropout_keep(v, &v->din[0], v->dout.at);
}

static mics_op_case dropout_case(const int64_t shape[3], float probability, uint32_t mask,
                                 mics_dropout_draw draw)
{
    mics_op_case c = {.op = {.kind = MICS_OP_DROPOUT, .dropout = probability, .mask = mask}};
    const int64_t B = shape[0], T = shape[1], C = shape[2];
    c.shape = (mics_op_shape){.B = B, .T = T, .N = B * T, .in = {C}, .out = C};
    c.draws = true;
    c.draw = draw;
    c.samples = 20;
    return c;
}

static void dropout_walk(const mics_case_walker *w, mics_op_case c, bool add)
{
    mics_case_forward(w, c);
    c.add_din = add;
    mics_case_backward(w, c);
    c.add_din = false;
    c.in_place = true;
    mics_case_backward(w, c);
    c.draws = false; // an evaluation
    mics_case_forward(w, c);
}

static void dropout_cpu(const mics_case_walker *w)
{
    static const int64_t shapes[][3] = {{1, 1, 1},  {2, 3, 7},   {3, 5, 8},    {1, 17, 12},
                                        {2, 2, 64}, {4, 9, 129}, {2, 11, 768}, {1, 2, 2050}};
    static const float probabilities[] = {0.1F, 0.5F, 0.9F, 1e-6F, 0.999999F};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < sizeof probabilities / sizeof *probabilities; j++)
            dropout_walk(w,
                         dropout_case(shapes[i], probabilities[j], (uint32_t)(7 * i),
                                      mask_draw(mics_rng_bits(1, i, j), (uint32_t)(100 * j))),
                         (i + j) % 2);
}

static void dropout_gpu(const mics_case_walker *w)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 0},    {2, 3, 5, 0},   {2, 9, 64, 0},
                                        {1, 33, 65, 1},  {3, 5, 128, 1}, {2, 35, 96, 0},
                                        {1, 2, 2056, 0}, {1, 1, 4099, 0}};
    static const float probabilities[] = {0.1F, 0.5F, 0.999999F};
    static const mics_dropout_draw draw = {.key = {0x12345678, 0x9abcdef0}, .sequence = 77};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        mics_op_case c = dropout_case(shapes[i], probabilities[(i + (int)w->dtype) % 3], 5, draw);
        c.offset = shapes[i][3];
        dropout_walk(w, c, (i + (int)w->dtype) % 2);
    }
}

static const mics_op_cases dropout_cases = {MICS_OP_DROPOUT, dropout_cpu, dropout_gpu,
                                            dropout_forward, dropout_backward};
