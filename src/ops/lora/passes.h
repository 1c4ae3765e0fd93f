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
    int64_t stride;
} mics_lora_matrix;

// Slices [first, end), which share an input.
typedef struct mics_lora_group {
    const mics_lora_device *device;
    const mics_op_call *call;
    const mics_lora *of;
    int32_t first, end;
    int64_t N, I, O, r, W;
    bool drops;
    mics_lora_matrix low, dropped; // scale x A^T or its gradient, (N, W); with dropout (N, I)
    mics_lora_matrix x;            // (N, I), where somebody reads it
} mics_lora_group;

// Of a matrix, from so many elements on.
static inline mics_lora_matrix mics_lora_part(const mics_lora_group *g, const void *of,
                                              int64_t first, int64_t stride)
{
    return (mics_lora_matrix){(char *)of + first * g->device->elem_bytes, stride};
}

// A of the group, or its gradient: (W, I). B of a slice, or its gradient: (count, r).
static inline mics_lora_matrix mics_lora_a(const mics_lora_group *g, const void *of)
{
    return mics_lora_part(g, of, g->first * g->r * g->I, g->I);
}
static inline mics_lora_matrix mics_lora_b(const mics_lora_group *g, const void *of, int32_t slice)
{
    return mics_lora_part(g, of, mics_lora_columns(g->of, slice) * g->r, g->r);
}

// A slice's part of `low`: (N, r).
static inline mics_lora_matrix mics_lora_low(const mics_lora_group *g, int32_t slice)
{
    return mics_lora_part(g, g->low.at, (slice - g->first) * g->r, g->W);
}

// c (+)= a b
static inline void mics_lora_multiply(const mics_lora_group *g, mics_gemm_spec gemm,
                                      mics_lora_matrix a, mics_lora_matrix b, mics_lora_matrix c,
                                      bool scaled)
{
    gemm.a = a.at, gemm.b = b.at, gemm.c = c.at;
    gemm.lda = a.stride, gemm.ldb = b.stride, gemm.ldc = c.stride;
    g->device->multiply(g->call, gemm, scaled);
}

// One mask of the input's, forward or backward.
static inline void mics_lora_drop(const mics_lora_group *g, void *to, const void *from,
                                  bool backward)
{
    mics_op op = *g->call->shape.op;
    mics_op_call drop = {.at = g->call->at, .shape = g->call->shape, .draw = g->call->draw};
    op.mask += (uint32_t)g->first;
    drop.shape.op = &op;
    drop.shape.in[0] = drop.shape.out = g->I;
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
    mics_lora_group g = {.device = device, .call = call, .of = &s->op->lora, .first = first};
    g.N = s->N;
    g.I = s->in[1];
    g.O = s->out;
    g.r = g.of->rank;
    g.drops = call->draw != NULL && s->op->dropout > 0;
    g.end = g.drops ? first + 1 : g.of->slices;
    g.W = (g.end - first) * g.r;
    g.low = (mics_lora_matrix){call->at->workspace, g.W};
    g.dropped = (mics_lora_matrix){(float *)call->at->workspace + space.dropped, g.I};
    g.x = g.drops ? g.dropped : mics_lora_part(&g, call->in[1], 0, g.I);
    if (g.drops && reads)
        mics_lora_drop(&g, g.dropped.at, call->in[1], false);
    return g;
}

// low = scale x A^T
static inline void mics_lora_down(const mics_lora_group *g)
{
    const mics_gemm_spec gemm = {.transpose_b = true, .M = g->N, .N = g->W, .K = g->I};
    mics_lora_multiply(g, gemm, g->x, mics_lora_a(g, g->call->params[0]), g->low, true);
}

// y += low B^T
static inline void mics_lora_up(const mics_lora_group *g, int32_t slice)
{
    const mics_gemm_spec gemm = {
        .transpose_b = true, .add = true, .M = g->N, .N = g->of->count[slice], .K = g->r};
    mics_lora_multiply(g, gemm, mics_lora_low(g, slice), mics_lora_b(g, g->call->params[1], slice),
                       mics_lora_part(g, g->call->out, g->of->first[slice], g->O), false);
}

// dB (+)= dy^T low, then low = scale dy B, its own gradient, where they are wanted.
static inline void mics_lora_slice_backward(const mics_lora_group *g, int32_t slice, bool of_b,
                                            bool of_low)
{
    const int64_t columns = g->of->count[slice];
    const mics_lora_matrix low = mics_lora_low(g, slice);
    const mics_lora_matrix dy = mics_lora_part(g, g->call->dout, g->of->first[slice], g->O);
    const mics_gemm_spec b = {
        .transpose_a = true, .add = g->call->add_params[1], .M = columns, .N = g->r, .K = g->N};
    if (of_b)
        mics_lora_multiply(g, b, dy, low, mics_lora_b(g, g->call->dparams[1], slice), false);
    if (of_low)
        mics_lora_multiply(g, (mics_gemm_spec){.M = g->N, .N = g->r, .K = columns}, dy,
                           mics_lora_b(g, g->call->params[1], slice), low, true);
}

// dA (+)= low^T x
static inline void mics_lora_a_backward(const mics_lora_group *g)
{
    const mics_gemm_spec gemm = {
        .transpose_a = true, .add = g->call->add_params[0], .M = g->W, .N = g->I, .K = g->N};
    mics_lora_multiply(g, gemm, g->low, g->x, mics_lora_a(g, g->call->dparams[0]), false);
}

// dx = low A, or of several masks their sum.
static inline void mics_lora_x_backward(const mics_lora_group *g)
{
    const mics_gemm_spec gemm = {.M = g->N, .N = g->I, .K = g->W};
    const mics_lora_matrix dx = mics_lora_part(g, g->call->din_second, 0, g->I);
    mics_lora_multiply(g, gemm, g->low, mics_lora_a(g, g->call->params[0]),
                       g->drops ? g->dropped : dx, false);
    if (g->drops)
        mics_lora_drop(g, dx.at, g->dropped.at, true);
}

/* Adds the adapter to call->out, which holds what the linear made. */
static inline void mics_lora_add(const mics_lora_device *device, const mics_op_call *call)
{
    for (int32_t first = 0; first < call->shape.op->lora.slices;) {
        const mics_lora_group g = mics_lora_group_of(device, call, first, true);
        mics_lora_down(&g);
        for (int32_t i = g.first; i < g.end; ++i)
            mics_lora_up(&g, i);
        first = g.end;
    }
}

static inline void mics_lora_backward(const mics_lora_device *device, const mics_op_call *call)
{
    const bool of_a = call->dparams[0] != NULL, of_b = call->dparams[1] != NULL;
    const bool of_x = call->din_second != NULL;
    if (call->din != NULL && (call->add_din || call->din != call->dout))
        device->copy(call, call->din, call->dout, call->add_din);
    for (int32_t first = 0; first < call->shape.op->lora.slices;) {
        const mics_lora_group g = mics_lora_group_of(device, call, first, of_a || of_b);
        if (of_b)
            mics_lora_down(&g);
        for (int32_t i = g.first; i < g.end; ++i)
            mics_lora_slice_backward(&g, i, of_b, of_a || of_x);
        if (of_a)
            mics_lora_a_backward(&g);
        if (of_x)
            mics_lora_x_backward(&g);
        first = g.end;
    }
}
