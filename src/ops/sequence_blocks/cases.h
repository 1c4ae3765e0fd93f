// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of rows cut into blocks, and put together.
#pragma once

#include "ops/common/cases.h"

// Which number of the rows number `i` of the blocks is: of the key-value head that the query heads read
// for which its rank has it.
static int64_t sequence_blocks_row(const mics_case_values *v, int64_t i)
{
    const mics_op_shape *s = &v->of->shape;
    const mics_heads h = v->of->op.heads;
    const int64_t S = v->of->op.sequence_ranks, D = h.dim, q = h.query / S;
    const int64_t w = (v->of->op.from_blocks ? s->in[0] : s->out) / S;
    const int64_t rank = i / (s->N * w), n = i / w % s->N;
    if (h.query == 0)
        return ((n / s->T * S + rank) * s->T + n % s->T) * w + i % w;
    const int64_t head = i % w / D, k = (w / D - q) / 2, pair = k > 0 ? (head - q) % k : 0;
    int64_t from = rank * q + head;
    if (head >= q)
        from = h.query + (head - q) / k * h.key_value +
               (rank * q + pair * q / k) / (h.query / h.key_value);
    return (n * (h.query + 2 * h.key_value) + from) * D + i % D;
}

static void sequence_blocks_move(const mics_case_values *v, const mics_case_numbers *to,
                                 const double *from, bool join)
{
    const int64_t blocks = join ? v->of->shape.N * v->of->shape.out : to->elems;
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t row = sequence_blocks_row(v, i);
        mics_case_add(to, join ? row : i, from[join ? i : row]);
    }
}

static void sequence_blocks_forward(mics_case_values *v)
{
    memset(v->out.at, 0, (size_t)v->out.elems * sizeof *v->out.at);
    memset(v->out.sum, 0, (size_t)v->out.elems * sizeof *v->out.sum);
    sequence_blocks_move(v, &v->out, v->in[0].at, v->of->op.from_blocks);
}

static void sequence_blocks_backward(mics_case_values *v)
{
    sequence_blocks_move(v, &v->din[0], v->dout.at, !v->of->op.from_blocks);
}

static void sequence_blocks_walk(const mics_case_walker *w)
{
    static const mics_heads heads[] = {{0, 0, 5},  {0, 0, 8},  {4, 4, 3}, {8, 2, 16},
                                       {12, 6, 8}, {4, 1, 40}, {8, 0, 5}, {12, 4, 2}};
    for (int i = 0; i < 8; i++)
        for (int32_t S = 2; S <= 4; S += 2)
            for (int64_t B = 1; B <= 3; B += 2) {
                const mics_heads h = heads[i];
                mics_op_case c = {.op = {.kind = MICS_OP_SEQUENCE_BLOCKS,
                                         .heads = h,
                                         .sequence_ranks = S,
                                         .from_blocks = B > 1 && h.key_value == 0},
                                  .samples = 20};
                c.shape = (mics_op_shape){.B = B, .T = 7, .N = 7 * B, .in = {S * h.dim}};
                if (h.query > 0)
                    c.shape.in[0] = mics_heads_width(h);
                c.shape.out = h.key_value > 0 ? S * mics_heads_width(mics_sequence_heads(h, S))
                                              : c.shape.in[0];
                mics_case_forward(w, c);
                mics_case_backward(w, c);
            }
}

static const mics_op_cases sequence_blocks_cases = {MICS_OP_SEQUENCE_BLOCKS, sequence_blocks_walk,
                                                    sequence_blocks_walk, sequence_blocks_forward,
                                                    sequence_blocks_backward};
