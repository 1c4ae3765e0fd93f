// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Both passes, in what a device computes: GEMMs, dropout and copies. Without dropout the slices
// share their input, so that products with A are of all of them; with it each has its own.
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
    void (*multiply)(const mics_op_call *call, mics_gemm_spec gemm);
    // The same of a product of low rank: overwritten, times op->lora.scale, rounded once.
    void (*multiply_scaled)(const mics_op_call *call, mics_gemm_spec gemm);
    void (*copy)(const mics_op_call *call, void *to, const void *from);       // (N, O)
    void (*accumulate)(const mics_op_call *call, void *to, const void *from); // to += from
} mics_lora_device;

// Slices [first, end), which share an input.
typedef struct mics_lora_group {
    const mics_lora_device *device;
    const mics_op_call *call;
    int32_t first, end;
    int64_t W;
    void *low;     // (N, W)
    void *dropped; // (N, I), with dropout
    const void *x; // (N, I); NULL where nobody reads it
    bool drops;
} mics_lora_group;

static inline void *mics_lora_at(const mics_lora_group *g, const void *from, int64_t elems)
{
    return (char *)from + elems * g->device->elem_bytes; // read only where `from` is
}

static inline const mics_lora *mics_lora_of(const mics_lora_group *g)
{
    return &g->call->shape.op->lora;
}

// One mask of the input's, forward or backward.
static inline void mics_lora_drop(const mics_lora_group *g, void *to, const void *from,
                                  bool backward)
{
    mics_op op = *g->call->shape.op;
    mics_op_call drop = {.at = g->call->at, .shape = g->call->shape, .draw = g->call->draw};
    op.mask += (uint32_t)g->first;
    drop.shape.op = &op;
    drop.shape.in[0] = drop.shape.out = g->call->shape.in[1];
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
    const mics_lora *of = &call->shape.op->lora;
    const mics_lora_space space =
        mics_lora_space_of(&call->shape, device->elem_bytes, device->widens);
    mics_lora_group g = {.device = device,
                         .call = call,
                         .first = first,
                         .low = call->at->workspace,
                         .dropped = (float *)call->at->workspace + space.dropped,
                         .x = reads ? call->in[1] : NULL,
                         .drops = call->draw != NULL && call->shape.op->dropout > 0};
    g.end = g.drops ? first + 1 : of->slices;
    g.W = (g.end - first) * of->rank;
    if (g.drops && reads) {
        mics_lora_drop(&g, g.dropped, call->in[1], false);
        g.x = g.dropped;
    }
    return g;
}

// A of the group, or its gradient; B of a slice, or its gradient; the part of `low` of a slice.
static inline void *mics_lora_a(const mics_lora_group *g, const void *of)
{
    return mics_lora_at(g, of, g->first * mics_lora_of(g)->rank * g->call->shape.in[1]);
}

static inline void *mics_lora_b(const mics_lora_group *g, const void *of, int32_t slice)
{
    const mics_lora *lora = mics_lora_of(g);
    return mics_lora_at(g, of, mics_lora_columns(lora, slice) * lora->rank);
}

static inline void *mics_lora_low(const mics_lora_group *g, int32_t slice)
{
    return mics_lora_at(g, g->low, (slice - g->first) * mics_lora_of(g)->rank);
}

// low = scale x A^T
static inline void mics_lora_down(const mics_lora_group *g)
{
    const int64_t I = g->call->shape.in[1];
    g->device->multiply_scaled(g->call, (mics_gemm_spec){.transpose_b = true,
                                                         .M = g->call->shape.N,
                                                         .N = g->W,
                                                         .K = I,
                                                         .a = g->x,
                                                         .lda = I,
                                                         .b = mics_lora_a(g, g->call->params[0]),
                                                         .ldb = I,
                                                         .c = g->low,
                                                         .ldc = g->W});
}

// y += low B^T, in the columns of each slice.
static inline void mics_lora_up(const mics_lora_group *g)
{
    const mics_lora *of = mics_lora_of(g);
    for (int32_t i = g->first; i < g->end; ++i)
        g->device->multiply(g->call,
                            (mics_gemm_spec){.transpose_b = true,
                                             .add = true,
                                             .M = g->call->shape.N,
                                             .N = of->count[i],
                                             .K = of->rank,
                                             .a = mics_lora_low(g, i),
                                             .lda = g->W,
                                             .b = mics_lora_b(g, g->call->params[1], i),
                                             .ldb = of->rank,
                                             .c = mics_lora_at(g, g->call->out, of->first[i]),
                                             .ldc = g->call->shape.out});
}

// dB (+)= dy^T low
static inline void mics_lora_b_gradient(const mics_lora_group *g)
{
    const mics_lora *of = mics_lora_of(g);
    for (int32_t i = g->first; i < g->end; ++i)
        g->device->multiply(g->call,
                            (mics_gemm_spec){.transpose_a = true,
                                             .add = g->call->add_params[1],
                                             .M = of->count[i],
                                             .N = of->rank,
                                             .K = g->call->shape.N,
                                             .a = mics_lora_at(g, g->call->dout, of->first[i]),
                                             .lda = g->call->shape.out,
                                             .b = mics_lora_low(g, i),
                                             .ldb = g->W,
                                             .c = mics_lora_b(g, g->call->dparams[1], i),
                                             .ldc = of->rank});
}

// low = scale dy B, its own gradient.
static inline void mics_lora_low_gradient(const mics_lora_group *g)
{
    const mics_lora *of = mics_lora_of(g);
    for (int32_t i = g->first; i < g->end; ++i)
        g->device->multiply_scaled(
            g->call, (mics_gemm_spec){.M = g->call->shape.N,
                                      .N = of->rank,
                                      .K = of->count[i],
                                      .a = mics_lora_at(g, g->call->dout, of->first[i]),
                                      .lda = g->call->shape.out,
                                      .b = mics_lora_b(g, g->call->params[1], i),
                                      .ldb = of->rank,
                                      .c = mics_lora_low(g, i),
                                      .ldc = g->W});
}

// dA (+)= low^T x
static inline void mics_lora_a_gradient(const mics_lora_group *g)
{
    const int64_t I = g->call->shape.in[1];
    g->device->multiply(g->call, (mics_gemm_spec){.transpose_a = true,
                                                  .add = g->call->add_params[0],
                                                  .M = g->W,
                                                  .N = I,
                                                  .K = g->call->shape.N,
                                                  .a = g->low,
                                                  .lda = g->W,
                                                  .b = g->x,
                                                  .ldb = I,
                                                  .c = mics_lora_a(g, g->call->dparams[0]),
                                                  .ldc = I});
}

// dx = low A, or of several masks their sum.
static inline void mics_lora_input_gradient(const mics_lora_group *g)
{
    const int64_t I = g->call->shape.in[1];
    g->device->multiply(g->call, (mics_gemm_spec){.M = g->call->shape.N,
                                                  .N = I,
                                                  .K = g->W,
                                                  .a = g->low,
                                                  .lda = g->W,
                                                  .b = mics_lora_a(g, g->call->params[0]),
                                                  .ldb = I,
                                                  .c = g->drops ? g->dropped : g->call->din_second,
                                                  .ldc = I});
    if (g->drops)
        mics_lora_drop(g, g->call->din_second, g->dropped, true);
}

/* Adds the products of low rank to call->out, which holds what the linear made. */
static inline void mics_lora_add(const mics_lora_device *device, const mics_op_call *call)
{
    for (int32_t first = 0; first < call->shape.op->lora.slices;) {
        const mics_lora_group g = mics_lora_group_of(device, call, first, true);
        mics_lora_down(&g);
        mics_lora_up(&g);
        first = g.end;
    }
}

static inline void mics_lora_forward(const mics_lora_device *device, const mics_op_call *call)
{
    device->copy(call, call->out, call->in[0]);
    mics_lora_add(device, call);
}

static inline void mics_lora_backward(const mics_lora_device *device, const mics_op_call *call)
{
    const bool of_a = call->dparams[0] != NULL, of_b = call->dparams[1] != NULL;
    const bool of_x = call->din_second != NULL;
    if (call->din != NULL && call->add_din)
        device->accumulate(call, call->din, call->dout);
    else if (call->din != NULL && call->din != call->dout)
        device->copy(call, call->din, call->dout);
    for (int32_t first = 0; first < call->shape.op->lora.slices;) {
        const mics_lora_group g = mics_lora_group_of(device, call, first, of_a || of_b);
        if (of_b)
            mics_lora_down(&g);
        if (of_b)
            mics_lora_b_gradient(&g);
        if (of_a || of_x)
            mics_lora_low_gradient(&g);
        if (of_a)
            mics_lora_a_gradient(&g);
        if (of_x)
            mics_lora_input_gradient(&g);
        first = g.end;
    }
}
