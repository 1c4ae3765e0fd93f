// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// An adapter of low rank beside a linear (mics_lora). in: what the linear makes (O), its input x (I);
// params: A (slices * rank, I), B (outputs of all slices, rank); out: (O). Backward computes the
// product of low rank again: keeping it would take memory for a few thousandths of the FLOPs.
#include "ops/lora/def.h"
#include "mics/log.h"
#include "ops/gemm/def.h"
#include <math.h>

static mics_status check_slices(const mics_op_shape *s)
{
    const mics_lora *of = &s->op->lora;
    int64_t end = 0;
    if (of->rank < 1 || of->slices < 1 || of->slices > MICS_LORA_SLICES || !isfinite(of->scale) ||
        of->scale == 0)
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: lora: rank %lld, %d slices and scale %g; a rank from 1 on, 1 to "
                         "%d slices and a finite scale other than 0 work",
                         s->unit, (long long)of->rank, (int)of->slices, (double)of->scale,
                         (int)MICS_LORA_SLICES);
    for (int32_t i = 0; i < of->slices; i++) {
        if (of->first[i] < end || of->count[i] < 1 || of->first[i] > s->in[0] - of->count[i])
            return mics_fail(
                MICS_ERR_INVALID,
                "unit %s: lora: slice %d, %lld columns from %lld on, is not behind the "
                "one before and within %lld columns",
                s->unit, (int)i, (long long)of->count[i], (long long)of->first[i],
                (long long)s->in[0]);
        end = of->first[i] + of->count[i];
    }
    return MICS_OK;
}

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    const mics_lora *of = &s->op->lora;
    MICS_TRY(mics_op_check_dropout(s));
    MICS_TRY(check_slices(s));
    MICS_TRY(mics_op_check(s, "rows of A", s->params[0][0], mics_lora_rank(of)));
    MICS_TRY(mics_op_check(s, "inputs of A", s->params[0][1], s->in[1]));
    MICS_TRY(mics_op_check(s, "rows of B", s->params[1][0], mics_lora_columns(of, of->slices)));
    MICS_TRY(mics_op_check(s, "rank of B", s->params[1][1], of->rank));
    *out_out = s->in[0];
    *stats_out = 0;
    return MICS_OK;
}

// Which products a pass has. `down`: x times A; `up`: that times B; backward their gradients. The
// gradient of the product of low rank is needed for A's and for x's.
typedef struct products {
    bool down, up, low_gradient, a_gradient, b_gradient, input_gradient;
} products;

static products products_of(const mics_op_shape *s, bool backward)
{
    products p = {.down = true, .up = true};
    if (!backward)
        return p;
    p = (products){.a_gradient = !s->params_fixed[0],
                   .b_gradient = !s->params_fixed[1],
                   .input_gradient = !s->in_fixed[1]};
    p.down = p.b_gradient;
    p.low_gradient = p.a_gradient || p.input_gradient;
    return p;
}

// Products of a token, in parameters of A and of B.
static double flops_of(const mics_op_shape *s, bool backward)
{
    const products p = products_of(s, backward);
    const double a = (double)s->params[0][0] * (double)s->params[0][1];
    const double b = (double)s->params[1][0] * (double)s->params[1][1];
    return 2 * (a * (p.down + p.a_gradient + p.input_gradient) +
                b * (p.up + p.low_gradient + p.b_gradient));
}

// Numbers of x that are masked, of a token.
static double masked_of(const mics_op_shape *s, bool backward)
{
    const products p = products_of(s, backward);
    const double all = (double)s->op->lora.slices * (double)s->in[1];
    return s->op->dropout > 0 ? all * ((p.down || p.a_gradient) + p.input_gradient) : 0;
}

// What a pass moves besides GEMMs, numbers of a token: forward the linear's product; backward its
// gradient lies where the output's did.
static double copied_of(const mics_op_shape *s, bool backward)
{
    return 2 * masked_of(s, backward) + (backward ? 0 : 2 * (double)s->out);
}

static double bytes_of(const mics_op_shape *s, bool backward)
{
    const products p = products_of(s, backward);
    const double x = (double)s->in[1], out = (double)s->params[1][0];
    const double a = (double)s->params[0][0] * x, b = out * (double)s->params[1][1];
    const double rows = copied_of(s, backward) + x * (p.down + p.a_gradient + p.input_gradient) +
                        out * (2 * p.up + p.low_gradient + p.b_gradient);
    return 4 * ((double)s->N * rows + a * (p.down + p.a_gradient + p.input_gradient) +
                b * (p.up + p.low_gradient + p.b_gradient));
}

// Of GEMMs in bf16 on the CPU, those of the widest slice and of all slices.
static int64_t gemm_floats(const mics_op_shape *s)
{
    const mics_lora *of = &s->op->lora;
    const int64_t N = s->N, I = s->in[1], r = of->rank, all = mics_lora_rank(of);
    const int64_t shapes[][3] = {{N, all, I}, {all, I, N}, {N, I, all}};
    int64_t floats = 0;
    for (int i = 0; i < 3; i++)
        floats =
            mics_larger(floats, mics_gemm_floats_bf16(shapes[i][0], shapes[i][1], shapes[i][2]));
    for (int32_t i = 0; i < of->slices; i++) {
        const int64_t C = of->count[i];
        floats = mics_larger(floats, mics_larger(mics_gemm_floats_bf16(N, C, r),
                                                 mics_larger(mics_gemm_floats_bf16(C, r, N),
                                                             mics_gemm_floats_bf16(N, r, C))));
    }
    return floats;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    const double N = (double)s->N;
    const int64_t bytes = s->accelerator_bytes > 0 ? s->accelerator_bytes : (s->cpu_bf16 ? 2 : 4);
    const int64_t space = mics_lora_space_of(s, bytes, s->cpu_bf16).gemm;
    mics_op_cost cost = {
        .flops_forward = N * (flops_of(s, false) + MICS_MASK_FLOPS * masked_of(s, false)),
        .flops_backward = N * (flops_of(s, true) + MICS_MASK_FLOPS * masked_of(s, true)),
        .bytes_forward = bytes_of(s, false),
        .bytes_backward = bytes_of(s, true)};
    cost.workspace_forward = cost.workspace_backward =
        space + (s->accelerator_bytes > 0 ? mics_part_floats(MICS_GEMM_BYTES)
                 : s->cpu_bf16            ? gemm_floats(s)
                                          : 0);
    return cost;
}

// Slices' products as one, whose width is theirs.
static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    const products p = products_of(s, pass->backward);
    const int64_t N = s->N, I = s->in[1], all = s->params[0][0], r = s->params[1][1];
    const int64_t outputs = s->params[1][0];
    const double copied = copied_of(s, pass->backward);
    int32_t count = 0;
    if (p.down)
        works[count++] = mics_work_gemm(N, all, I);
    if (p.up)
        works[count++] = mics_work_gemm(N, outputs, r);
    if (p.b_gradient)
        works[count++] = mics_work_gemm(outputs, r, N);
    if (p.low_gradient)
        works[count++] = mics_work_gemm(N, r, outputs);
    if (p.a_gradient)
        works[count++] = mics_work_gemm(all, I, N);
    if (p.input_gradient)
        works[count++] = mics_work_gemm(N, I, all);
    if (copied > 0)
        works[count++] = mics_work_moved((double)N * MICS_MASK_FLOPS * masked_of(s, pass->backward),
                                         (double)N * copied * pass->elem_bytes);
    return count;
}

// Backward's own product of low rank is not counted: it is forward's.
static double model_flops(const mics_op_shape *s)
{
    const double a = (double)s->params[0][0] * (double)s->params[0][1];
    return flops_of(s, false) + flops_of(s, true) - (products_of(s, true).down ? 2 * a : 0);
}

static mics_op_decode decode(const mics_op_shape *s, int64_t capacity)
{
    const mics_lora *of = &s->op->lora;
    (void)capacity;
    return (mics_op_decode){.workspace = MICS_LORA_DECODE_ROWS * (mics_lora_rank(of) + s->out)};
}

const mics_op_def mics_op_def_lora = {.name = "lora",
                                      .inputs = 2,
                                      .params = 2,
                                      .params_needed = 2,
                                      .param_dims = {2, 2},
                                      .backward_reads_in = {false, true},
                                      .params_read_in = true,
                                      .backward_reads_params = true,
                                      .backward_in_place = true,
                                      .backward_adds = true,
                                      .backward_second = true,
                                      .multiplies = true,
                                      .make = make,
                                      .cost = cost_of,
                                      .work = work,
                                      .model_flops = model_flops,
                                      .decode = decode};
