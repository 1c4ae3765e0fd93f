// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Both passes, in what a device computes: GEMMs, dropout and copies. Without dropout the slices
// share their input, so that GEMMs with A are of all of them; with it each has its own.
//
// Shapes: N tokens, I inputs, O outputs; r the rank of a slice, W that of the slices that share an
// input.
#pragma once

#include "ops/common/gemm.h"
#include "ops/lora/def.h"

// What a device computes, of numbers of the call's dtype.
typedef struct mics_lora_device {
    int64_t elem_bytes;
    bool widens; // mics_lora_space.wide
    const mics_op_kernels *dropout;
    // With `scaled` the result is times op->lora.scale, then rounded once, and lies in `low`.
    void (*multiply)(const mics_op_call *call, mics_gemm_spec gemm, bool scaled);
    // to (+)= from (N, O)
    void (*copy)(const mics_op_call *call, void *to, const void *from, bool add);
} mics_lora_device;

typedef struct mics_lora_matrix {
    void *at; // read only where it is no result
    int64_t rows, columns, stride;
} mics_lora_matrix;

// Slices [first, end), which share an input.
typedef struct mics_lora_group {
    const mics_lora_device *device;
    const mics_op_call *call;
    const mics_lora *of;
    int32_t first, end;
    bool drops;
    mics_lora_matrix low; // scale x A^T or its gradient, (N, W)
    mics_lora_matrix x;   // (N, I): the input, with dropout a place of its own for it
} mics_lora_group;

// From so many elements on.
static inline mics_lora_matrix mics_lora_part(const mics_lora_group *g, const void *of,
                                              int64_t first, int64_t rows, int64_t columns,
                                              int64_t stride)
{
    return (mics_lora_matrix){(char *)of + first * g->device->elem_bytes, rows, columns, stride};
}

// A of the group, or its gradient: (W, I).
static inline mics_lora_matrix mics_lora_a(const mics_lora_group *g, const void *of)
{
    const int64_t I = g->x.columns;
    return mics_lora_part(g, of, g->first * g->of->rank * I, g->low.columns, I, I);
}

// B of a slice, or its gradient: (count, r).
static inline mics_lora_matrix mics_lora_b(const mics_lora_group *g, const void *of, int32_t slice)
{
    const int64_t r = g->of->rank;
    return mics_lora_part(g, of, mics_lora_columns(g->of, slice) * r, g->of->count[slice], r, r);
}

// A slice's part of `low`: (N, r).
static inline mics_lora_matrix mics_lora_low(const mics_lora_group *g, int32_t slice)
{
    const int64_t r = g->of->rank;
    return mics_lora_part(g, g->low.at, (slice - g->first) * r, g->low.rows, r, g->low.columns);
}

// A slice's part of the output, or of its gradient: (N, count).
static inline mics_lora_matrix mics_lora_y(const mics_lora_group *g, const void *of, int32_t slice)
{
    return mics_lora_part(g, of, g->of->first[slice], g->low.rows, g->of->count[slice],
                          g->call->shape.out);
}

// c (+)= a b, either of them transposed as `gemm` says.
static inline void mics_lora_multiply(const mics_lora_group *g, mics_gemm_spec gemm,
                                      mics_lora_matrix a, mics_lora_matrix b, mics_lora_matrix c,
                                      bool scaled)
{
    gemm.a = a.at, gemm.b = b.at, gemm.c = c.at;
    gemm.lda = a.stride, gemm.ldb = b.stride, gemm.ldc = c.stride;
    gemm.M = c.rows, gemm.N = c.columns, gemm.K = gemm.transpose_a ? a.rows : a.columns;
    g->device->multiply(g->call, gemm, scaled);
}

// One mask of the input's, forward or backward.
static inline void mics_lora_drop(const mics_lora_group *g, void *to, const void *from,
                                  bool backward)
{
    mics_op op = *g->call->shape.op;
    mics_op_call drop = {.at = g->call->at, .shape = g->call->shape, .draw = g->call->draw};
    drop.position = g->call->position;
    op.mask += (uint32_t)g->first;
    drop.shape.op = &op;
    drop.shape.in[0] = drop.shape.out = g->x.columns;
    drop.in[0] = drop.dout = from;
    drop.out = drop.din = to;
    drop.add_din = g->first > 0;
    (backward ? g->device->dropout->backward : g->device->dropout->forward)(&drop);
}

// The slices from `first` on that share an input, which is made where it is dropped of and read.
static inline mics_lora_group mics_lora_group_of(const mics_lora_device *device,
                                                 const mics_op_call *call, int32_t first,
                                                 bool reads)
{
    const mics_op_shape *s = &call->shape;
    const mics_lora_space space = mics_lora_space_of(s, device->elem_bytes, device->widens);
    const int64_t N = s->N, I = s->in[1];
    float *workspace = call->at->workspace, *dropped = workspace + space.dropped;
    mics_lora_group g = {.device = device, .call = call, .of = &s->op->lora, .first = first};
    g.drops = call->draw != NULL && s->op->dropout > 0;
    g.end = g.drops ? first + 1 : g.of->slices;
    const int64_t W = (g.end - first) * g.of->rank;
    g.low = mics_lora_part(&g, workspace, 0, N, W, W);
    g.x = mics_lora_part(&g, g.drops ? dropped : call->in[1], 0, N, I, I);
    if (g.drops && reads)
        mics_lora_drop(&g, g.x.at, call->in[1], false);
    return g;
}

// low = scale x A^T
static inline void mics_lora_down(const mics_lora_group *g)
{
    mics_lora_multiply(g, (mics_gemm_spec){.transpose_b = true}, g->x,
                       mics_lora_a(g, g->call->params[0]), g->low, true);
}

/* The adapter as terms of low rank, for a GEMM to add to what the linear makes. Their scale x
 * A^T is not made yet.
 *
 * Needs:   no dropout. */
static inline void mics_lora_tails(const mics_lora_group *g, mics_gemm_spec *gemm)
{
    gemm->tail_count = g->of->slices;
    for (int32_t i = 0; i < g->of->slices; ++i)
        gemm->tails[i] = (mics_gemm_tail){.a = mics_lora_low(g, i).at,
                                          .b = mics_lora_b(g, g->call->params[1], i).at,
                                          .lda = g->low.columns,
                                          .rank = g->of->rank,
                                          .first = g->of->first[i],
                                          .columns = g->of->count[i]};
}

/* Adds the adapter to call->out, which holds what the linear made: y += low B^T of each slice. */
static inline void mics_lora_add(const mics_lora_device *device, const mics_op_call *call)
{
    for (int32_t first = 0; first < call->shape.op->lora.slices;) {
        const mics_lora_group g = mics_lora_group_of(device, call, first, true);
        mics_lora_down(&g);
        for (int32_t i = g.first; i < g.end; ++i)
            mics_lora_multiply(&g, (mics_gemm_spec){.transpose_b = true, .add = true},
                               mics_lora_low(&g, i), mics_lora_b(&g, call->params[1], i),
                               mics_lora_y(&g, call->out, i), false);
        first = g.end;
    }
}

// dB (+)= dy^T low, then low = scale dy B, its own gradient; with it dA (+)= low^T x, and dx = low A,
// or of several masks their sum. All where they are wanted.
static inline void mics_lora_group_backward(const mics_lora_group *g)
{
    const mics_op_call *call = g->call;
    const bool of_a = call->dparams[0] != NULL, of_x = call->din_second != NULL;
    const mics_gemm_spec a = {.transpose_a = true, .add = call->add_params[0]},
                         b = {.transpose_a = true, .add = call->add_params[1]},
                         plain = {.add = false};
    if (call->dparams[1] != NULL)
        mics_lora_down(g);
    for (int32_t i = g->first; i < g->end; ++i) {
        const mics_lora_matrix low = mics_lora_low(g, i), dy = mics_lora_y(g, call->dout, i);
        if (call->dparams[1] != NULL)
            mics_lora_multiply(g, b, dy, low, mics_lora_b(g, call->dparams[1], i), false);
        if (of_a || of_x)
            mics_lora_multiply(g, plain, dy, mics_lora_b(g, call->params[1], i), low, true);
    }
    if (of_a)
        mics_lora_multiply(g, a, g->low, g->x, mics_lora_a(g, call->dparams[0]), false);
    mics_lora_matrix dx = g->x;
    if (!g->drops)
        dx.at = call->din_second;
    if (of_x)
        mics_lora_multiply(g, plain, g->low, mics_lora_a(g, call->params[0]), dx, false);
    if (of_x && g->drops)
        mics_lora_drop(g, call->din_second, dx.at, true);
}

static inline void mics_lora_backward(const mics_lora_device *device, const mics_op_call *call)
{
    if (call->din != NULL && (call->add_din || call->din != call->dout))
        device->copy(call, call->din, call->dout, call->add_din);
    for (int32_t first = 0; first < call->shape.op->lora.slices;) {
        const bool reads = call->dparams[0] != NULL || call->dparams[1] != NULL;
        const mics_lora_group g = mics_lora_group_of(device, call, first, reads);
        mics_lora_group_backward(&g);
        first = g.end;
    }
}
