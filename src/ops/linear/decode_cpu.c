// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A weight in generation: one token of each sequence by GEMV, whose rows do not depend on each
// other; a prompt by the matrix library, panel by panel, each in one thread.
#include "ops/common/decode.h"
#include "ops/common/gemv.h"
#include "ops/linear/def.h"

enum { PANEL = MICS_LINEAR_PANEL, PANEL_INPUTS = MICS_LINEAR_PANEL_INPUTS };

// Outputs [first, first + outputs) of a weight.
typedef struct panel {
    const mics_gemv *of;
    int64_t first, outputs;
} panel;

// Inputs [i, i + inputs) of a panel of bf16 as fp32, in the weight's order.
static void widen(float *to, const panel *p, int64_t i, int64_t inputs)
{
    const mics_gemv *g = p->of;
    const int64_t rows = g->out_in ? p->outputs : inputs, columns = g->out_in ? inputs : p->outputs;
    const uint16_t *from =
        (const uint16_t *)g->weight + (g->out_in ? p->first * g->I + i : i * g->O + p->first);
    for (int64_t row = 0; row < rows; ++row)
        MICS_ISA_OP(unpack_bf16)
    (to + row * columns, from + row * (g->out_in ? g->I : g->O), columns);
}

static void multiply_wide(const panel *p, float *workspace)
{
    const mics_gemv *g = p->of;
    for (int64_t i = 0; i < g->I; i += PANEL_INPUTS) {
        const int64_t inputs = g->I - i < PANEL_INPUTS ? g->I - i : PANEL_INPUTS;
        widen(workspace, p, i, inputs);
        mics_gemm(false, g->out_in, g->R, p->outputs, inputs, 1.0F, g->x + i, g->x_stride,
                  workspace, g->out_in ? inputs : p->outputs, i > 0 ? 1.0F : 0.0F, g->y + p->first,
                  g->O);
    }
}

static void multiply(const panel *p)
{
    const mics_gemv *g = p->of;
    mics_gemm(false, g->out_in, g->R, p->outputs, g->I, 1.0F, g->x, g->x_stride,
              (const float *)g->weight + p->first * (g->out_in ? g->I : 1), g->out_in ? g->I : g->O,
              0.0F, g->y + p->first, g->O);
}

static void multiply_panels(const mics_gemv *g, mics_shares *shares, float *workspace)
{
    const int64_t total = (g->O + PANEL - 1) / PANEL;
    for (int64_t share = -1; mics_share_next(shares, total, &share);) {
        panel p = {.of = g, .first = share * PANEL};
        p.outputs = g->O - p.first < PANEL ? g->O - p.first : PANEL;
        if (g->dtype == MICS_DTYPE_BF16)
            multiply_wide(&p, workspace);
        else
            multiply(&p);
        for (int64_t r = 0; g->bias && r < g->R; ++r) {
            float *y = g->y + r * g->O + p.first;
            MICS_OP(add)(y, y, g->bias + p.first, p.outputs);
        }
    }
}

void MICS_ISA_OP(linear_decode)(const mics_op_call *call)
{
    const mics_gemv product = {.y = call->out,
                               .x = call->in[0],
                               .x_stride = call->shape.in[0],
                               .weight = call->params[0],
                               .bias = call->params[1],
                               .dtype = call->weights,
                               .out_in = call->shape.op->weight_out_in,
                               .R = call->shape.N,
                               .I = call->shape.in[0],
                               .O = call->shape.out};
    if (call->shape.T == 1)
        MICS_ISA_OP(gemv)(&product, call->shares);
    else
        multiply_panels(&product, call->shares, call->at->workspace);
}
