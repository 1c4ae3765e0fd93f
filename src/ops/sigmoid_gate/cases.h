// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of rows times the sigmoid of a number each.
#pragma once

#include "ops/common/cases.h"

static double sigmoid_gate_at(const mics_case_values *v, int64_t i)
{
    return 1 / (1 + exp(-v->in[1].at[i / v->of->shape.out]));
}

static void sigmoid_gate_size(const mics_case_numbers *numbers, double size)
{
    for (int64_t i = 0; i < numbers->elems; i++)
        numbers->sum[i] = size;
}

static void sigmoid_gate_forward(mics_case_values *v)
{
    for (int64_t i = 0; i < v->out.elems; i++)
        v->out.at[i] = v->in[0].at[i] * sigmoid_gate_at(v, i);
    sigmoid_gate_size(&v->out, 4);
}

static void sigmoid_gate_backward(mics_case_values *v)
{
    const int64_t C = v->of->shape.out;
    for (int64_t i = 0; i < v->out.elems; i++) {
        const double by = sigmoid_gate_at(v, i);
        v->din[0].at[i] = v->dout.at[i] * by;
        v->din[1].at[i / C] += v->dout.at[i] * v->in[0].at[i] * by * (1 - by);
    }
    sigmoid_gate_size(&v->din[0], 4);
    sigmoid_gate_size(&v->din[1], v->gpu ? 4 * (double)C : 4 + (double)C);
}

static mics_op_case sigmoid_gate_case(int64_t N, int64_t C, double scale)
{
    mics_op_case c = {.op = {.kind = MICS_OP_SIGMOID_GATE}, .scale = {1, scale}, .samples = 20};
    c.shape = (mics_op_shape){.B = 1, .T = N, .N = N, .in = {C, 1}, .out = C};
    return c;
}

static void sigmoid_gate_cpu(const mics_case_walker *w)
{
    static const int64_t rows[] = {1, 5, 70}, widths[] = {1, 7, 40, 513};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) {
            mics_op_case c = sigmoid_gate_case(rows[i], widths[j], 2);
            mics_case_forward(w, c);
            mics_case_backward(w, c);
            c.in_place = true;
            mics_case_backward(w, c);
            c.in_place = false;
            c.add_din = true;
            mics_case_backward(w, c);
        }
}

static void sigmoid_gate_gpu(const mics_case_walker *w)
{
    static const int64_t sizes[][2] = {{1, 1}, {5, 7}, {9, 64}, {3, 2056}, {40, 33}};
    for (int i = 0; i < 5; i++) {
        const mics_op_case c = sigmoid_gate_case(sizes[i][0], sizes[i][1], 3);
        mics_case_forward(w, c);
        mics_case_backward(w, c);
    }
}

static const mics_op_cases sigmoid_gate_cases = {MICS_OP_SIGMOID_GATE, sigmoid_gate_cpu,
                                                 sigmoid_gate_gpu, sigmoid_gate_forward,
                                                 sigmoid_gate_backward};
