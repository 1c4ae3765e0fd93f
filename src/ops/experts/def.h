// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a router keeps (its stats), which the ops of experts follow. A row of a token:
//
//     probabilities (count) | log of the sum of e^score | entropy | chosen (k, int32) |
//     rows (k, int32)
//
// `chosen` are experts, best first; one whose row is dropped is stored as its complement (below 0).
// `rows` are the token's places among all N * k rows: those that experts take, sorted by expert,
// then by token, and behind them those that are dropped. In generation rows are not sorted: token n
// has rows n * k to n * k + k - 1.
#pragma once

#include "mics/op.h"
#include "ops/common/def.h"

static inline int64_t mics_route_floats(mics_experts e)
{
    return (int64_t)e.count + 2 + 2 * (int64_t)e.chosen;
}

static inline const int32_t *mics_route_chosen(const float *routes, mics_experts e, int64_t n)
{
    return (const int32_t *)(const void *)(routes + n * mics_route_floats(e) + e.count + 2);
}

static inline const int32_t *mics_route_rows(const float *routes, mics_experts e, int64_t n)
{
    return mics_route_chosen(routes, e, n) + e.chosen;
}

/* The expert of a choice, and whether its row is dropped. */
static inline int32_t mics_route_expert(int32_t chosen)
{
    return chosen < 0 ? ~chosen : chosen;
}

static inline bool mics_route_drops(int32_t chosen)
{
    return chosen < 0;
}

// ---- of sequences that ranks share ----
//
// A router leaves behind the rows of its stats what it adds up over a rank's tokens, once for each of
// the S ranks: a block for each, whose row b is of sequence b. What comes (mics_op_call.routes) is a
// block of each rank.

enum { MICS_ROUTE_SUMS = 4 }; // beside two for each expert

/* Numbers of a sequence: probabilities (count), tokens that chose an expert (count), entropy, tokens
 * that count, choices that were dropped, tokens. */
static inline int64_t mics_route_sums(mics_experts e)
{
    return 2 * (int64_t)e.count + MICS_ROUTE_SUMS;
}

/* Numbers of a token that hold all blocks. */
static inline int64_t mics_route_sums_width(const mics_op_shape *s)
{
    return s->op->sequence_ranks * ((mics_route_sums(s->op->experts) + s->T - 1) / s->T);
}

/* Where a rank's sums of sequence b are among those that lie in blocks. */
static inline int64_t mics_route_sums_at(const mics_op_shape *s, int64_t rank, int64_t b)
{
    return rank * (s->N * mics_route_sums_width(s) / s->op->sequence_ranks) +
           b * mics_route_sums(s->op->experts);
}

/* Floats of a router's workspace that count rows: of each expert, and those dropped. */
static inline int64_t mics_route_rows_floats(int64_t experts)
{
    return mics_size_round_up(experts + 1, 16);
}

// ---- rows that travel ----
//
// E ranks keep count / E experts each. A tensor of rows that travel is E equal blocks, one a rank of
// the expert group: where a token's numbers go to, or come from. A block has room for the most rows
// that a rank can have for the experts of one other, since shapes alone decide what is sent: those of
// all tokens, or what the capacities of its experts let them take of each sequence, as a whole number
// of rows a token in all blocks (mics_experts_travel_rows). Rows lie sorted by expert, then by token,
// without those that are dropped; rows behind the last are of no use. On the way to the experts a tag
// a row, in one number, follows the rows of a block: the expert among those of its rank, or none.

enum { MICS_ROW_NONE = 0xffff };

/* Experts that one of the ranks keeps. */
static inline int32_t mics_experts_kept(const mics_op *op)
{
    return op->experts.count / (op->expert_ranks > 0 ? op->expert_ranks : 1);
}

/* Rows that a block has room for. */
static inline int64_t mics_experts_block_rows(const mics_op_shape *shape)
{
    return shape->N * shape->op->travel_rows / shape->op->expert_ranks;
}

/* Numbers of a row that came, without its tag. */
static inline int64_t mics_experts_came_width(const mics_op_shape *shape)
{
    return shape->routes / shape->op->travel_rows - 1;
}

/* Floats of where each expert's rows begin and end in each block, on the CPU. */
static inline int64_t mics_experts_runs_floats(const mics_op *op)
{
    return mics_size_round_up((int64_t)op->experts.count + op->expert_ranks, 16);
}

// ---- workspace of the ops of experts on the CPU: first rows | rows (N * k, width) | of GEMMs ----

/* Floats of the first rows of `count` experts, and of the end of the last. */
static inline int64_t mics_experts_first_floats(mics_experts e)
{
    return mics_size_round_up((int64_t)e.count + 1, 16);
}

/* Floats of N * k rows of numbers of so many bytes. */
static inline int64_t mics_experts_rows_floats(int64_t rows, int64_t width, int64_t elem_bytes)
{
    return mics_size_round_up(rows * width * elem_bytes / (int64_t)sizeof(float) + 1, 16);
}

// ---- and on accelerators: routes | rows (N * k, width) ----

/* Floats of whose token's and which expert's each row is, and of where an expert's rows and tiles
 * begin. */
static inline int64_t mics_experts_route_floats(mics_experts e, int64_t rows)
{
    return mics_part_floats((2 * rows + 2 * ((int64_t)e.count + 1)) * (int64_t)sizeof(int32_t));
}

/* Floats of where each row goes that a rank sends: on the CPU the first row of each block. */
static inline int64_t mics_experts_sent_floats(const mics_op_shape *shape)
{
    const mics_experts e = shape->op->experts;
    return shape->accelerator_bytes > 0 ? mics_experts_route_floats(e, shape->N * e.chosen)
                                        : mics_experts_first_floats(e);
}

/* Floats of where the rows and tiles of each expert in each block that came begin. */
static inline int64_t mics_experts_came_floats(const mics_op *op)
{
    const int64_t runs = (int64_t)op->experts.count + op->expert_ranks;
    return mics_part_floats(2 * (runs + 1) * (int64_t)sizeof(int32_t));
}

/* For descriptors: that experts are some, and that the op names a router of the same.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with unit and op. */
mics_status mics_experts_check(const mics_op_shape *shape);

/* For descriptors: cost and works of a GEMM (I, O) of each row at its expert, with `width` numbers a
 * row in the workspace. */
mics_op_cost mics_experts_cost(const mics_op_shape *shape, int64_t I, int64_t O, int64_t width);
int32_t mics_experts_works(const mics_op_shape *shape, const mics_op_pass *pass, int64_t I,
                           int64_t O, mics_op_work *works_out);

/* The same for model_flops: a token's, of what experts take at most. */
double mics_experts_model_flops(const mics_op_shape *shape, int64_t I, int64_t O);

/* What the descriptors of a GEMM at each row's expert share. */
#define MICS_EXPERTS_GEMM                                                                          \
    .params = 1, .params_needed = 1, .param_dims = {2}, .backward_reads_in = {true, true},         \
    .backward_reads_params = true, .multiplies = true, .cut = MICS_CUT_WEIGHT, .make = make,       \
    .cost = cost_of, .work = work, .model_flops = model_flops
