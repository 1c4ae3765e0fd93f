// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of adapters: one slice and several, with gaps and without, and dropout by the plain generator.
#pragma once

#include "ops/common/cases.h"
#include "ops/common/cases_masks.h"
#include "ops/lora/def.h"

// What dropout makes of a number of x.
static inline double lora_mask(const mics_case_values *v, int32_t slice, int64_t n, int64_t c)
{
    const mics_op_case *of = v->of;
    return mask_factor(of->draws ? &of->draw : NULL, of->op.dropout, of->op.mask + (uint32_t)slice,
                       n / of->shape.T, n % of->shape.T, c);
}

// Number `k` of scale x A^T of a slice and token, and the sum of its absolute terms.
static inline double lora_low(const mics_case_values *v, int32_t slice, int64_t n, int64_t k,
                              double *terms_out)
{
    const mics_lora *of = &v->of->op.lora;
    const int64_t I = v->of->shape.in[1];
    double sum = 0;
    *terms_out = 0;
    for (int64_t c = 0; c < I; c++) {
        const double term = (double)of->scale * v->in[1].at[n * I + c] * lora_mask(v, slice, n, c) *
                            v->params[0].at[(slice * of->rank + k) * I + c];
        sum += term;
        *terms_out += fabs(term);
    }
    return sum;
}

static inline void lora_term(const mics_case_numbers *to, int64_t at, double term, double terms)
{
    if (to->at == NULL)
        return;
    to->at[at] += term;
    to->sum[at] += terms;
}

// What number `k` of a slice adds to a token's outputs, or to gradients.
static void lora_add(const mics_case_values *v, int32_t slice, int64_t n, int64_t k, bool backward)
{
    const mics_lora *of = &v->of->op.lora;
    const int64_t I = v->of->shape.in[1], row = slice * of->rank + k;
    double terms, dlow = 0, dterms = 0;
    const double low = lora_low(v, slice, n, k, &terms);
    for (int64_t o = 0; o < of->count[slice]; o++) {
        const int64_t b_at = (mics_lora_columns(of, slice) + o) * of->rank + k;
        const int64_t y_at = n * v->of->shape.out + of->first[slice] + o;
        const double b = v->params[1].at[b_at], dy = backward ? v->dout.at[y_at] : 0;
        if (!backward)
            lora_term(&v->out, y_at, low * b, terms * fabs(b));
        dlow += (double)of->scale * dy * b;
        dterms += fabs((double)of->scale * dy * b);
        lora_term(&v->dparams[1], b_at, dy * low, fabs(dy) * terms);
    }
    for (int64_t c = 0; backward && c < I; c++) {
        const double mask = lora_mask(v, slice, n, c), x = v->in[1].at[n * I + c] * mask;
        const double a = v->params[0].at[row * I + c] * mask;
        lora_term(&v->dparams[0], row * I + c, dlow * x, dterms * fabs(x));
        lora_term(&v->din[1], n * I + c, dlow * a, dterms * fabs(a));
    }
}

static void lora_add_all(const mics_case_values *v, bool backward)
{
    const mics_lora *of = &v->of->op.lora;
    for (int64_t at = 0; at < v->of->shape.N * mics_lora_rank(of); at++) {
        const int64_t row = at % mics_lora_rank(of);
        lora_add(v, (int32_t)(row / of->rank), at / mics_lora_rank(of), row % of->rank, backward);
    }
}

// Of fp32 sums, and so many roundings on the way: of scale x A^T, and with dropout of what is masked.
static inline double lora_tolerance(const mics_case_values *v, int roundings)
{
    const double each = mics_case_unit(v->dtype);
    return (v->gpu ? 2e-6 : MICS_CASE_TOLERANCE) + (v->of->draws ? roundings : 1) * each;
}

static void lora_forward(mics_case_values *v)
{
    memcpy(v->out.at, v->in[0].at, (size_t)v->out.elems * sizeof *v->out.at);
    mics_case_single(&v->out);
    lora_add_all(v, false);
    v->out.tolerance = lora_tolerance(v, 2);
}

static void lora_backward(mics_case_values *v)
{
    for (int64_t i = 0; i < v->dout.elems; i++)
        mics_case_add(&v->din[0], i, v->dout.at[i]);
    lora_add_all(v, true);
    v->dparams[0].tolerance = v->dparams[1].tolerance = lora_tolerance(v, 2);
    v->din[1].tolerance = lora_tolerance(v, 2 + 2 * v->of->op.lora.slices);
}

// Slices of some of O columns: 1, all of them; 2, with gaps; 3, side by side, of two widths.
static mics_op_case lora_case(int64_t N, int64_t I, int64_t O, int64_t rank, int32_t slices)
{
    static const int64_t EACH = 4;
    const int64_t part = O / EACH;
    const mics_lora of[] = {{rank, 0.5F, 1, {0}, {O}},
                            {rank, 1.75F, 2, {part, O - part}, {part, part}},
                            {rank, -2, 3, {0, O - 2 * part, O - part}, {O - 2 * part, part, part}}};
    mics_op_case c = {.op = {.kind = MICS_OP_LORA, .mask = 9, .lora = of[slices - 1]}};
    c.shape = (mics_op_shape){.B = N % 2 ? 1 : 2, .N = N, .in = {O, I}, .out = O};
    c.shape.T = N / c.shape.B;
    c.shape.params[0][0] = slices * rank;
    c.shape.params[0][1] = I;
    c.shape.params[1][0] = mics_lora_columns(&of[slices - 1], slices);
    c.shape.params[1][1] = rank;
    c.draw = mask_draw(0x123456789abcdef0, 40);
    c.samples = 3;
    return c;
}

// Without dropout, with it, and in an evaluation.
static void lora_walk(const mics_case_walker *w, mics_op_case c, int flags)
{
    for (int drops = 0; drops < 2; drops++) {
        c.op.dropout = drops ? 0.3F : 0;
        c.draws = drops;
        mics_case_forward(w, c);
        c.add_din = flags % 3 == 1;
        c.in_place = flags % 3 == 2;
        c.add_params[0] = c.add_params[1] = flags % 2;
        mics_case_backward(w, c);
    }
    c.draws = false;
    mics_case_forward(w, c);
}

static void lora_all(const mics_case_walker *w)
{
    static const int64_t shapes[][5] = {// N, I, O, rank, offset
                                        {1, 1, 4, 1, 0},    {2, 5, 9, 3, 1},
                                        {18, 64, 33, 8, 0}, {30, 70, 40, 4, 2},
                                        {66, 16, 96, 2, 0}, {6, 136, 64, 16, 0}};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
        for (int k = 0; k < 2 * MICS_LORA_SLICES; k++) {
            const int64_t *s = shapes[i];
            mics_op_case c = lora_case(s[0], s[1], s[2], s[3], 1 + k / 2);
            c.offset = s[4];
            lora_walk(w, c, 5 * i + k + (int)w->dtype);
        }
}

static const mics_op_cases lora_cases = {MICS_OP_LORA, lora_all, lora_all, lora_forward,
                                         lora_backward};
