// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// y = x W + bias. params: weight (I, O), or (O, I) where the op says so; bias (O) or none.
#include "ops/linear/def.h"
#include "ops/common/def.h"
#include "ops/gemm/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    const bool out_in = s->op->weight_out_in;
    MICS_TRY(mics_op_check(s, "inputs of the weight", s->params[0][out_in ? 1 : 0], s->in[0]));
    *out_out = s->params[0][out_in ? 0 : 1];
    *stats_out = 0;
    return s->params[1][0] > 0 ? mics_op_check(s, "bias", s->params[1][0], *out_out) : MICS_OK;
}

// On the CPU in bf16, too, GEMMs come before the sums of the bias's gradient.
static void place_bf16(const mics_op_shape *s, mics_op_cost *cost)
{
    const int64_t N = s->N, rows = s->params[0][0], columns = s->params[0][1];
    cost->workspace_forward = mics_gemm_floats_bf16(N, s->out, s->in[0]);
    const int64_t input = s->in_fixed[0] ? 0 : mics_gemm_floats_bf16(N, s->in[0], s->out);
    const int64_t weight = s->params_fixed[0] ? 0 : mics_gemm_floats_bf16(rows, columns, N);
    cost->workspace_backward = mics_larger(mics_larger(input, weight), cost->workspace_backward);
}

// On an accelerator one after the other: GEMMs, and sums of the bias's gradient.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    enum { BLOCKS = MICS_LINEAR_ACCELERATOR_BLOCKS };
    mics_op_cost cost =
        mics_cost_gemm((double)s->N, (double)s->in[0], (double)s->out, mics_gradients(s));
    cost.workspace_backward = s->params_fixed[1] ? 0 : MICS_LINEAR_BLOCKS * s->out;
    if (s->cpu_bf16)
        place_bf16(s, &cost);
    if (s->accelerator_bytes > 0) {
        cost.workspace_forward = mics_part_floats(MICS_GEMM_BYTES);
        cost.workspace_backward = mics_larger(
            cost.workspace_forward, s->out * mics_smaller((s->N + BLOCKS - 1) / BLOCKS, BLOCKS));
    }
    return cost;
}

static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    const int64_t rows = s->N, inputs = s->in[0], outputs = s->out;
    int32_t count = 0;
    if (!pass->backward)
        works[count++] = mics_work_gemm(rows, outputs, inputs);
    if (pass->backward && pass->input_gradient)
        works[count++] = mics_work_gemm(rows, inputs, outputs);
    if (pass->backward && !s->params_fixed[0])
        works[count++] = mics_work_gemm(inputs, outputs, rows);
    if (pass->backward && s->params[1][0] > 0 &&
        !s->params_fixed[1]) // the bias's gradient: a sum over rows
        works[count++] = mics_work_moved(0, (double)s->N * (double)s->out * pass->elem_bytes);
    return count;
}

static double model_flops(const mics_op_shape *s)
{
    return 2.0 * (1 + mics_gradients(s)) * (double)s->in[0] * (double)s->out;
}

// A panel of a weight, widened.
static mics_op_decode decode(const mics_op_shape *s, int64_t capacity)
{
    (void)s;
    (void)capacity;
    return (mics_op_decode){.workspace = MICS_LINEAR_PANEL * MICS_LINEAR_PANEL_INPUTS};
}

const mics_op_def mics_op_def_linear = {.name = "linear",
                                        .inputs = 1,
                                        .params = 2,
                                        .params_needed = 1,
                                        .param_dims = {2, 1},
                                        .backward_reads_in = {true, true},
                                        .params_read_in = true,
                                        .backward_reads_params = true,
                                        .backward_adds = true,
                                        .multiplies = true,
                                        .cut = MICS_CUT_WEIGHT,
                                        .make = make,
                                        .cost = cost_of,
                                        .work = work,
                                        .model_flops = model_flops,
                                        .decode = decode};
