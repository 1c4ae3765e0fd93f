// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows cut into a block for each of the S ranks that share a sequence, for an all-to-all, or put
// together from blocks. With heads: rows are a rank's tokens, and a block has the heads that its rank
// computes, key-value heads repeated where ranks share them. Without: rows are whole sequences, and a
// block has the tokens of its rank.
#include "ops/sequence_blocks/def.h"
#include "ops/common/def.h"

mics_sequence_layout mics_sequence_layout_of(const mics_op_shape *s)
{
    const int64_t S = s->op->sequence_ranks, width = s->in[0] / S;
    const mics_heads h = s->op->heads;
    if (h.query == 0)
        return (mics_sequence_layout){s->B, S, S, 0, 1, s->T * width, s->T * width};
    mics_sequence_layout l = {s->N, S, h.query, h.key_value, 1, h.dim, width};
    if (h.key_value == 0) {
        l.Q = S;
        l.D *= h.query / S;
        return l;
    }
    l.repeats = S * mics_sequence_heads(h, (int32_t)S).key_value / h.key_value;
    l.width = mics_heads_width(mics_sequence_heads(h, (int32_t)S));
    return l;
}

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    const mics_sequence_layout l = mics_sequence_layout_of(s);
    *out_out = s->op->heads.key_value == 0 ? s->in[0]
               : s->op->from_blocks        ? mics_sequence_row(&l)
                                           : l.S * l.width;
    *stats_out = 0;
    return MICS_OK;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_cost_moved(s);
    cost.bytes_backward = cost.bytes_forward;
    return cost;
}

const mics_op_def mics_op_def_sequence_blocks = {
    .name = "sequence_blocks", .inputs = 1, .make = make, .cost = cost_of};
