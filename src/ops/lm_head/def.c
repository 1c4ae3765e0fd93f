// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The last GEMM with the softmax and each token's loss, by chunks of rows. params: weight (V, C),
// bias (V) or none.
#include "ops/lm_head/def.h"
#include "ops/common/def.h"
#include "ops/gemm/def.h"

// Rows of logits at a time on an accelerator: full tiles for every multiprocessor whatever the
// vocabulary, in whole tiles.
enum { ACCELERATOR_ROWS = 4096 };

// On the CPU logits are held for so many floats' worth of rows at a time: large enough that a
// chunk's GEMMs run at full speed although each passes over the whole table once.
static const int64_t logits_floats = (int64_t)16 << 20;

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_op_check(s, "width of the weight", s->params[0][1], s->in[0]));
    MICS_TRY(mics_op_check(s, "rows of the weight", s->params[0][0], s->vocab));
    *out_out = *stats_out = 0;
    return s->params[1][0] > 0 ? mics_op_check(s, "bias", s->params[1][0], s->vocab) : MICS_OK;
}

// The weight's gradient of several chunks is summed in fp32 where numbers have 2 bytes, V C floats,
// so that it is rounded once; one chunk whose logits take no more memory than a smaller chunk's and
// that sum needs no sum and passes over the table once.
static int64_t accelerator_rows(const mics_op_shape *s)
{
    const int64_t tokens = s->N, elem_bytes = s->accelerator_bytes;
    const int64_t instead =
        elem_bytes < (int64_t)sizeof(float)
            ? mics_lm_head_sum_floats(s) / s->params[0][0] * (int64_t)sizeof(float) / elem_bytes
            : 0;
    if (tokens <= ACCELERATOR_ROWS + instead)
        return tokens;
    const int64_t chunks = (tokens + ACCELERATOR_ROWS - 1) / ACCELERATOR_ROWS;
    return mics_size_round_up((tokens + chunks - 1) / chunks, MICS_LM_HEAD_TILE);
}

// Within the budget, at least two chunks, all of nearly the same size.
static int64_t cpu_rows(int64_t tokens, int64_t vocab)
{
    const int64_t most = logits_floats / vocab;
    const int64_t chunks = mics_larger(most > 0 ? (tokens + most - 1) / most : tokens, 2);
    return (tokens + chunks - 1) / chunks;
}

// Logits whose rows begin on 16 bytes, then the sum of the weight's gradient, then what GEMMs take.
static void place_on_accelerator(const mics_op_shape *s, mics_op_cost *cost)
{
    const int64_t bytes = s->accelerator_bytes, sum = mics_lm_head_sum_floats(s);
    const int64_t row = mics_size_round_up(s->params[0][0] * bytes, 16);
    const bool summed = cost->chunk_rows < s->N && bytes < (int64_t)sizeof(float);
    cost->workspace_forward =
        mics_part_floats(row * cost->chunk_rows) + mics_part_floats(MICS_GEMM_BYTES);
    cost->workspace_backward =
        cost->workspace_forward + (summed ? mics_part_floats(sum * (int64_t)sizeof(float)) : 0);
}

// On the CPU in bf16 all rows are one chunk, unless their logits take more memory than a smaller
// chunk's with the fp32 sum of the weight's gradient that several chunks need.
static void place_bf16(const mics_op_shape *s, mics_op_cost *cost)
{
    const int64_t V = s->params[0][0], C = s->params[0][1], sum = mics_lm_head_sum_floats(s);
    const bool whole = mics_logits_floats_bf16(s->N, V) <= logits_floats + sum;
    cost->chunk_rows = whole ? s->N : mics_smaller(2 * cost->chunk_rows, s->N);
    const int64_t R = cost->chunk_rows, logits = mics_logits_floats_bf16(R, V);
    cost->workspace_forward = logits + mics_gemm_floats_bf16(R, V, C);
    cost->workspace_backward =
        logits + (whole ? 0 : sum) +
        mics_larger(mics_gemm_floats_bf16(R, V, C),
                    mics_larger(mics_gemm_floats_bf16(R, C, V), mics_gemm_floats_bf16(V, C, R)));
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    const int64_t V = s->params[0][0], C = s->params[0][1];
    mics_op_cost cost = mics_cost_gemm((double)s->N, (double)C, (double)V, mics_gradients(s));
    cost.flops_backward += cost.flops_forward; // its forward's work is done there
    cost.chunk_rows = s->accelerator_bytes > 0 ? accelerator_rows(s) : cpu_rows(s->N, V);
    cost.workspace_forward = cost.workspace_backward = cost.chunk_rows * V;
    if (s->accelerator_bytes > 0)
        place_on_accelerator(s, &cost);
    if (s->cpu_bf16)
        place_bf16(s, &cost);
    cost.workspace_forward += mics_lm_head_bias_floats(s);
    cost.workspace_backward += mics_lm_head_bias_floats(s);
    return cost;
}

// Logits of some rows: made, read twice and written once as they become losses (or gradients), and
// in backward multiplied with the table and with the inputs. They are held as activations are.
extern const mics_op_def mics_op_def_lm_head;

static int32_t add_rows(const mics_op_shape *s, const mics_op_pass *pass, int64_t rows,
                        int64_t times, mics_op_work *works)
{
    const int64_t V = s->params[0][0], C = s->params[0][1];
    const double bytes =
        s->accelerator_bytes > 0 || s->cpu_bf16 ? pass->elem_bytes : (double)sizeof(float);
    int32_t count = 0;
    if (!(pass->backward && pass->keeps_logits)) {
        works[count++] = mics_work_gemm(rows, V, C);
        works[count++] = mics_work_moved(0, 3 * bytes * (double)rows * (double)V *
                                                mics_op_separate(&mics_op_def_lm_head, pass));
    }
    if (pass->backward && !s->in_fixed[0])
        works[count++] = mics_work_gemm(rows, C, V);
    if (pass->backward && !s->params_fixed[0])
        works[count++] = mics_work_gemm(V, C, rows);
    for (int32_t i = 0; i < count; i++)
        works[i].times = times;
    return count;
}

static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    const int64_t rows = pass->keeps_logits ? s->N : cost_of(s).chunk_rows;
    int32_t count = add_rows(s, pass, rows, s->N / rows, works);
    if (s->N % rows > 0)
        count += add_rows(s, pass, s->N % rows, 1, works + count);
    return count;
}

static double model_flops(const mics_op_shape *s)
{
    return 2.0 * (1 + mics_gradients(s)) * (double)(s->params[0][0] * s->params[0][1]);
}

const mics_op_def mics_op_def_lm_head = {.name = "lm_head",
                                         .inputs = 1,
                                         .params = 2,
                                         .params_needed = 1,
                                         .param_dims = {2, 1},
                                         .loss = true,
                                         .backward_reads_in = {true, true},
                                         .backward_reads_params = true,
                                         .multiplies = true,
                                         // Bytes a logit in bf16: a copy in fp32 (6), log_softmax
                                         // (8), its gradient (16, zeros first), a copy (6)
                                         .separate_forward = 36.0 / 6,
                                         .separate_backward = 36.0 / 6,
                                         .cut = MICS_CUT_ROWS,
                                         .make = make,
                                         .cost = cost_of,
                                         .work = work,
                                         .model_flops = model_flops};
