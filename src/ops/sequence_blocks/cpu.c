// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/common/kernels_isa.h"
#include "ops/sequence_blocks/def.h"
#include <string.h>

// Head h of row x to all its places.
static void split_head(mics_elem *blocks, const mics_elem *head_D, const mics_sequence_layout *l,
                       int64_t x, int64_t h)
{
    for (int64_t place = 0; place < mics_sequence_places(l, h); ++place)
        memcpy(blocks + mics_sequence_at(l, x, h, place), head_D, (size_t)l->D * sizeof *head_D);
}

// The sum over its places, in their order.
static void join_head(mics_elem *head_D, const mics_elem *blocks, const mics_sequence_layout *l,
                      int64_t x, int64_t h)
{
    const int64_t places = mics_sequence_places(l, h);
    const mics_elem *first_D = blocks + mics_sequence_at(l, x, h, 0);
    if (places == 1) {
        memcpy(head_D, first_D, (size_t)l->D * sizeof *head_D);
        return;
    }
    for (int64_t d = 0; d < l->D; ++d) {
        float sum = mics_load(first_D[d]);
        for (int64_t place = 1; place < places; ++place)
            sum += mics_load(blocks[mics_sequence_at(l, x, h, place) + d]);
        head_D[d] = mics_store(sum);
    }
}

static void run(const mics_op_call *call, mics_elem *to, const mics_elem *from, bool join)
{
    const mics_sequence_layout l = mics_sequence_layout_of(&call->shape);
    const int64_t heads = l.Q + 2 * l.K;
#pragma omp parallel for if (l.X * heads * l.D >= MICS_OP_PARALLEL)
    for (int64_t i = 0; i < l.X * heads; ++i) {
        if (join)
            join_head(to + i * l.D, from, &l, i / heads, i % heads);
        else
            split_head(to, from + i * l.D, &l, i / heads, i % heads);
    }
}

static void forward(const mics_op_call *call)
{
    run(call, call->out, call->in[0], call->shape.op->from_blocks);
}

static void backward(const mics_op_call *call)
{
    run(call, call->din, call->dout, !call->shape.op->from_blocks);
}

const mics_op_kernels MICS_OP(sequence_blocks_kernels) = {.forward = forward, .backward = backward};
