// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// An adapter of low rank beside a linear (mics_lora). in: what the linear makes (O), its input x (I);
// params: A (slices * rank, I), B (outputs of all slices, rank); out: (O). Backward computes x
// A^T again: keeping it would take memory for a few thousandths of the FLOPs.
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

// GEMMs of slices as one, whose width is theirs. Backward, the gradient of x A^T is needed for A's and
// for x's.
static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    const int64_t N = s->N, I = s->in[1], all = s->params[0][0], r = s->params[1][1];
    const int64_t outputs = s->params[1][0];
    const bool back = pass->backward, of_a = back && !s->params_fixed[0];
    const bool of_b = back && !s->params_fixed[1], of_x = back && !s->in_fixed[1];
    int32_t count = 0;
    if (!back || of_b)
        works[count++] = mics_work_gemm(N, all, I);
    if (!back)
        works[count++] = mics_work_gemm(N, outputs, r);
    if (of_b)
        works[count++] = mics_work_gemm(outputs, r, N);
    if (of_a || of_x)
        works[count++] = mics_work_gemm(N, r, outputs);
    if (of_a)
        works[count++] = mics_work_gemm(all, I, N);
    if (of_x)
        works[count++] = mics_work_gemm(N, I, all);
    // What is masked, and forward what the linear made; its gradient lies where the output's did.
    const int64_t uses = s->op->dropout > 0 ? (!back || of_a || of_b) + of_x : 0;
    const double masked = (double)(N * I) * (double)(uses * s->op->lora.slices);
    const double copied = 2 * (masked + (back ? 0 : (double)N * (double)s->out));
    works[count++] = mics_work_moved(MICS_MASK_FLOPS * masked, copied * pass->elem_bytes);
    return count;
}

static double gemm_flops(const mics_op_work *of)
{
    return of->kind == MICS_WORK_GEMM ? 2 * (double)of->m * (double)of->n * (double)of->k : 0;
}

// On the CPU in bf16 GEMMs take of the workspace too.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    const int64_t elem = s->accelerator_bytes > 0 ? s->accelerator_bytes : (s->cpu_bf16 ? 2 : 4);
    const int64_t gemms = s->accelerator_bytes > 0 ? mics_part_floats(MICS_GEMM_BYTES) : 0;
    const int64_t space = mics_lora_space_of(s, elem, s->cpu_bf16).gemm;
    double flops[2] = {0, 0}, bytes[2] = {0, 0};
    int64_t floats[2] = {space + gemms, space + gemms};
    for (int back = 0; back < 2; back++) {
        const mics_op_pass pass = {.backward = back, .elem_bytes = (int32_t)sizeof(float)};
        mics_op_work works[MICS_OP_WORKS];
        const int32_t count = work(s, &pass, works);
        for (int32_t i = 0; i < count; i++) {
            const int64_t m = works[i].m, n = works[i].n, k = works[i].k;
            flops[back] += works[i].flops + gemm_flops(&works[i]);
            bytes[back] += works[i].bytes + 4 * (double)(m * n + m * k + n * k);
            if (s->cpu_bf16 && m > 0)
                floats[back] =
                    mics_larger(floats[back], space + mics_gemm_floats_any_bf16(m, n, k));
        }
    }
    // The linear's GEMM, which adds the adapter.
    if (s->cpu_bf16)
        floats[0] = mics_larger(floats[0], space + mics_gemm_floats_bf16(s->N, s->out, s->in[1]) +
                                               mics_gemm_tail_floats(s->out, s->op->lora.rank));
    return (mics_op_cost){flops[0], flops[1], bytes[0], bytes[1], floats[0], floats[1], 0};
}

// Without backward's own x A^T, which is forward's.
static double model_flops(const mics_op_shape *s)
{
    mics_op_shape one = *s;
    double flops = 0;
    one.N = 1;
    for (int backward = 0; backward < 2; backward++) {
        mics_op_work works[MICS_OP_WORKS];
        const int32_t count = work(&one, &(mics_op_pass){.backward = backward}, works);
        for (int32_t i = backward && !s->params_fixed[1]; i < count; i++)
            flops += gemm_flops(&works[i]);
    }
    return flops;
}

static mics_op_decode decode(const mics_op_shape *s, int64_t capacity)
{
    (void)capacity;
    return (mics_op_decode){.workspace = MICS_LORA_DECODE_ROWS * s->params[0][0] +
                                         mics_larger(s->params[0][1], s->params[1][1])};
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
