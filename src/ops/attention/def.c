// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Self-attention, causal or both ways. in: q, k, v side by side; out: (query heads * D); stats:
// log-sum-exp of each query head, (N, H); what cuDNN's kernels leave there, and read, is (B, H, T).
// Several query heads may read one key-value head (Ainslie et al., 2023, arXiv:2305.13245), and a
// token only the window of tokens before it (Jiang et al., Mistral 7B, 2023, arXiv:2310.06825), or
// on both sides of it (Warner et al., ModernBERT, 2024, arXiv:2412.13663). Tokens of other segments
// (documents, padding) are hidden; costs are those without segments. Dropout is of the
// probabilities, after the softmax; its masks are made anew in backward.
#include "ops/attention/def.h"
#include "mics/log.h"
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_op_check_heads(s));
    MICS_TRY(mics_op_check_dropout(s));
    if (s->op->window < 0)
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: attention: a window of %lld tokens; 1 or more works, or 0 for "
                         "none",
                         s->unit, (long long)s->op->window);
    *out_out = s->heads.query * s->heads.dim;
    *stats_out = s->heads.query;
    return MICS_OK;
}

// Keys that the queries of a sequence see, twice the mean of them: of T x T the half below the
// diagonal, less what lies before the window. Both ways all, or the window's.
static double keys_seen_twice(const mics_op_shape *s)
{
    const double T = (double)s->T, window = (double)s->op->window;
    if (s->op->both_ways)
        return 2 * (window > 0 && window < T ? window : T);
    return window > 0 && window < T ? window * (2 * T - window + 1) / T : T + 1;
}

// Our own kernels may take the place of the library's, so there is memory for either.
static void add_library(const mics_op_shape *s, mics_op_cost *cost)
{
    const mics_cudnn_chunk chunk = mics_cudnn_chunk_of(s->B, s->T, s->heads);
    const int64_t bytes =
        mics_cudnn_sums_bytes(s->T, s->heads, chunk) + mics_cudnn_bytes(s->T, s->heads, chunk);
    cost->workspace_forward = MICS_CUDNN_SMALL_BYTES / (int64_t)sizeof(float);
    cost->workspace_backward = mics_larger(cost->workspace_backward, mics_part_floats(bytes));
}

// Two products forward, five backward (one of them the recomputed scores).
static mics_op_cost cost_of(const mics_op_shape *s)
{
    const double tokens = (double)s->N, touched = 4 * tokens * (double)(s->in[0] + s->out);
    const double product = tokens * keys_seen_twice(s) * (double)s->out;
    mics_op_cost cost = {.flops_forward = 2 * product,
                         .flops_backward = 5 * product,
                         .bytes_forward = touched,
                         .bytes_backward = 2 * touched};
    if (s->op->dropout > 0) {
        const double masked =
            MICS_MASK_FLOPS * tokens * keys_seen_twice(s) / 2 * (double)s->heads.query;
        cost.flops_forward += masked;
        cost.flops_backward += masked;
    }
    cost.workspace_forward = cost.workspace_backward =
        s->threads * mics_attention_workspace(s->heads.dim);
    if (s->cpu_bf16)
        cost.workspace_forward = cost.workspace_backward =
            s->threads *
            mics_attention_workspace_bf16(s->T, s->heads.query / s->heads.key_value, s->heads.dim);
    if (s->accelerator_bytes > 0) { // a number for each query of each head
        cost.workspace_forward = 0;
        cost.workspace_backward = s->N * s->heads.query;
        if (s->library && mics_cudnn_lacks(s) == NULL)
            add_library(s, &cost);
    }
    return cost;
}

static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    const mics_op_cost cost = cost_of(s);
    const double bytes = pass->backward ? cost.bytes_backward : cost.bytes_forward;
    works[0] = (mics_op_work){.kind = MICS_WORK_ATTENTION,
                              .m = s->T,
                              .n = s->heads.dim,
                              .k = s->heads.dim,
                              .flops = pass->backward ? cost.flops_backward : cost.flops_forward,
                              .bytes = bytes * pass->elem_bytes / (double)sizeof(float),
                              .times = 1};
    return 1;
}

static double model_flops(const mics_op_shape *s)
{
    const double T = (double)s->T, window = (double)s->op->window;
    const double seen = s->op->both_ways           ? keys_seen_twice(s)
                        : window > 0 && window < T ? window * (2 * T - window) / T
                                                   : T;
    return (s->in_fixed[0] ? 2.0 : 6.0) * seen * (double)s->out;
}

// Keys and values; scores, of one token of each head that shares a key, or of some tokens of one
// head.
static mics_op_decode decode(const mics_op_shape *s, int64_t capacity)
{
    const int64_t shared = s->heads.query / s->heads.key_value;
    return (mics_op_decode){.cache = 2 * s->heads.key_value * capacity * s->heads.dim,
                            .blocks = 2 * s->heads.key_value,
                            .workspace =
                                mics_larger(shared, MICS_ATTENTION_PROMPT_ROWS) * capacity};
}

const mics_op_def mics_op_def_attention = {.name = "attention",
                                           .inputs = 1,
                                           .backward_reads_in = {true, true},
                                           .backward_reads_out = true,
                                           .reads_segments = true,
                                           .whole_sequences = true,
                                           .cut = MICS_CUT_WIDTH,
                                           .make = make,
                                           .cost = cost_of,
                                           .work = work,
                                           .model_flops = model_flops,
                                           .library_lacks = mics_cudnn_lacks,
                                           .decode = decode};
