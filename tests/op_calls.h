// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ops called apart from a model, for tests and benchmarks: each function fills in a call and hands
// it to the kernels.
// Shapes: see mics/op.h.
#pragma once

#include "ops/kernels.h"

typedef enum mics_weight_order { MICS_WEIGHT_IN_OUT, MICS_WEIGHT_OUT_IN } mics_weight_order;

// The CPU's place.
static inline mics_exec op_exec(int32_t threads, void *workspace)
{
    return (mics_exec){.threads = threads, .workspace = workspace};
}

static inline size_t op_workspace_of(mics_dtype dtype, mics_op op, mics_op_shape shape)
{
    shape.op = &op;
    shape.accelerator_bytes = (int32_t)mics_dtype_bytes(dtype);
    const mics_op_cost cost = mics_op_def_get(op.kind)->cost(&shape);
    const int64_t floats = cost.workspace_backward > cost.workspace_forward
                               ? cost.workspace_backward
                               : cost.workspace_forward;
    return (size_t)floats * sizeof(float);
}

static inline size_t op_workspace_bytes(mics_dtype dtype, mics_op_kind kind, mics_op_shape shape)
{
    return op_workspace_of(dtype, (mics_op){.kind = kind}, shape);
}

static inline void op_forward(const mics_kernels *k, mics_op op, mics_op_call call)
{
    call.shape.op = &op;
    k->ops[op.kind]->forward(&call);
}

static inline void op_backward(const mics_kernels *k, mics_op op, mics_op_call call)
{
    call.shape.op = &op;
    k->ops[op.kind]->backward(&call);
}

// AdamW's settings, and what changes from step to step.
typedef struct op_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    int64_t step;
    float grad_scale;
} op_adamw;

static inline void op_adamw_update(const mics_kernels *k, const mics_exec *at, void *params,
                                   float *masters, float *moment1, float *moment2,
                                   const float *grads, int64_t elems, const op_adamw *by)
{
    const mics_optimizer optimizer = {MICS_OPTIMIZER_ADAMW,
                                      {(double)by->beta1, (double)by->beta2, (double)by->eps},
                                      (double)by->weight_decay};
    const mics_optimizer_update update = {.optimizer = &optimizer,
                                          .lr = by->lr,
                                          .grad_scale = by->grad_scale,
                                          .decays = true,
                                          .step = by->step,
                                          .rows = 1,
                                          .columns = elems,
                                          .elems = elems,
                                          .params = params,
                                          .masters = masters,
                                          .states = {moment1, moment2},
                                          .grads = grads};
    k->update[optimizer.kind](at, &update);
}

static inline mics_op_call op_linear_gradient(const mics_exec *at, void *dx_NI, void *dweight,
                                              void *dbias_O, const void *dy_NO, const void *x_NI,
                                              const void *weight, int64_t N, int64_t I, int64_t O)
{
    return (mics_op_call){.at = at,
                          .shape = {.N = N, .in = {I}, .out = O},
                          .in = {x_NI},
                          .params = {weight},
                          .dout = dy_NO,
                          .din = dx_NI,
                          .dparams = {dweight, dbias_O}};
}

static inline void op_linear_backward(const mics_kernels *k, const mics_exec *at, void *dx_NI,
                                      void *dweight, void *dbias_O, const void *dy_NO,
                                      const void *x_NI, const void *weight, mics_weight_order order,
                                      int64_t N, int64_t I, int64_t O, bool add_dx, bool add_params)
{
    mics_op_call call =
        op_linear_gradient(at, dx_NI, dweight, dbias_O, dy_NO, x_NI, weight, N, I, O);
    call.add_din = add_dx;
    call.add_params[0] = call.add_params[1] = add_params;
    op_backward(k, (mics_op){.kind = MICS_OP_LINEAR, .weight_out_in = order == MICS_WEIGHT_OUT_IN},
                call);
}

static inline void op_linear_gelu_forward(const mics_kernels *k, const mics_exec *at, void *y_NO,
                                          void *pre_NO, const void *x_NI, const void *weight,
                                          const void *bias_O, mics_weight_order order, int64_t N,
                                          int64_t I, int64_t O, bool exact)
{
    const mics_op ops[] = {{.kind = MICS_OP_LINEAR, .weight_out_in = order == MICS_WEIGHT_OUT_IN},
                           {.kind = MICS_OP_GELU, .exact = exact}};
    const mics_op_call linear = {.at = at,
                                 .shape = {.op = &ops[0], .N = N, .in = {I}, .out = O},
                                 .in = {x_NI},
                                 .out = pre_NO,
                                 .params = {weight, bias_O}};
    const mics_op_call gelu = {.at = at,
                               .shape = {.op = &ops[1], .N = N, .in = {O}, .out = O},
                               .in = {pre_NO},
                               .out = y_NO};
    k->ops[MICS_OP_LINEAR]->pairs->forward(&linear, &gelu);
}

// What lies between is not read.
static inline void op_linear_add_forward(const mics_kernels *k, const mics_exec *at, void *y_NO,
                                         void *between_NO, const void *residual_NO,
                                         const void *x_NI, const void *weight, const void *bias_O,
                                         mics_weight_order order, int64_t N, int64_t I, int64_t O)
{
    const mics_op ops[] = {{.kind = MICS_OP_LINEAR, .weight_out_in = order == MICS_WEIGHT_OUT_IN},
                           {.kind = MICS_OP_ADD}};
    const mics_op_call linear = {.at = at,
                                 .shape = {.op = &ops[0], .N = N, .in = {I}, .out = O},
                                 .in = {x_NI},
                                 .out = between_NO,
                                 .params = {weight, bias_O}};
    const mics_op_call add = {.at = at,
                              .shape = {.op = &ops[1], .N = N, .in = {O, O}, .out = O},
                              .in = {residual_NO, between_NO},
                              .out = y_NO};
    const mics_op_pair *pair = k->ops[MICS_OP_LINEAR]->pairs;
    while (pair->next != MICS_OP_ADD)
        pair++;
    pair->forward(&linear, &add);
}

// A linear (O, I), and an adapter of all its outputs: A (rank, I), B (O, rank). As one call, or as two;
// what lies between is not read by one.
typedef struct op_adapted {
    const void *x, *weight, *bias, *a, *b;
    void *between, *y;
    int64_t N, I, O, rank;
    bool pair;
} op_adapted;

static inline void op_linear_lora_forward(const mics_kernels *k, const mics_exec *at,
                                          const op_adapted *of)
{
    const mics_op ops[] = {
        {.kind = MICS_OP_LINEAR, .weight_out_in = true},
        {.kind = MICS_OP_LORA, .lora = {of->rank, 1.5F, 1, {0, 0, 0}, {of->O, 0, 0}}}};
    const mics_op_call linear = {.at = at,
                                 .shape = {.op = &ops[0], .N = of->N, .in = {of->I}, .out = of->O},
                                 .in = {of->x},
                                 .out = of->between,
                                 .params = {of->weight, of->bias}};
    const mics_op_call lora = {
        .at = at,
        .shape = {.op = &ops[1], .N = of->N, .in = {of->O, of->I}, .out = of->O},
        .in = {of->between, of->x},
        .out = of->y,
        .params = {of->a, of->b}};
    const mics_op_pair *pair = k->ops[MICS_OP_LINEAR]->pairs;
    while (pair->next != MICS_OP_LORA)
        pair++;
    if (of->pair) {
        pair->forward(&linear, &lora);
        return;
    }
    k->ops[MICS_OP_LINEAR]->forward(&linear);
    k->ops[MICS_OP_LORA]->forward(&lora);
}

static inline void op_linear_gelu_backward(const mics_kernels *k, const mics_exec *at,
                                           void *dpre_NI, void *dweight, void *dbias_O,
                                           const void *dy_NO, const void *x_NI, const void *pre_NI,
                                           const void *weight, mics_weight_order order, int64_t N,
                                           int64_t I, int64_t O, bool exact, bool add_params)
{
    const mics_op ops[] = {{.kind = MICS_OP_LINEAR, .weight_out_in = order == MICS_WEIGHT_OUT_IN},
                           {.kind = MICS_OP_GELU, .exact = exact}};
    mics_op_call linear =
        op_linear_gradient(at, NULL, dweight, dbias_O, dy_NO, x_NI, weight, N, I, O);
    linear.shape.op = &ops[0];
    linear.add_params[0] = linear.add_params[1] = add_params;
    const mics_op_call gelu = {.at = at,
                               .shape = {.op = &ops[1], .N = N, .in = {I}, .out = I},
                               .in = {pre_NI},
                               .din = dpre_NI};
    k->ops[MICS_OP_LINEAR]->pairs->backward(&linear, &gelu);
}

static inline void op_gelu_forward(const mics_kernels *k, const mics_exec *at, void *y,
                                   const void *x, int64_t elems, bool exact)
{
    op_forward(
        k, (mics_op){.kind = MICS_OP_GELU, .exact = exact},
        (mics_op_call){.at = at, .shape = {.N = elems, .in = {1}, .out = 1}, .in = {x}, .out = y});
}

static inline void op_gelu_backward(const mics_kernels *k, const mics_exec *at, void *dx,
                                    const void *dy, const void *x, int64_t elems, bool exact,
                                    bool add_dx)
{
    op_backward(k, (mics_op){.kind = MICS_OP_GELU, .exact = exact},
                (mics_op_call){.at = at,
                               .shape = {.N = elems, .in = {1}, .out = 1},
                               .in = {x},
                               .dout = dy,
                               .din = dx,
                               .add_din = add_dx});
}

// Heads that read keys and values of their own.
static inline mics_heads op_heads(int64_t H, int64_t D)
{
    return (mics_heads){H, H, D};
}

static inline mics_op_shape op_heads_shape(int64_t B, int64_t T, mics_heads heads)
{
    const int64_t W = mics_heads_width(heads);
    return (mics_op_shape){.B = B, .T = T, .N = B * T, .in = {W}, .out = W, .heads = heads};
}

static inline mics_op_shape op_attention_shape(int64_t B, int64_t T, mics_heads heads)
{
    mics_op_shape shape = op_heads_shape(B, T, heads);
    shape.out = heads.query * heads.dim;
    return shape;
}

// Dropout of an op, with its draw in the memory of the kernels; all 0: none.
typedef struct op_dropout {
    float probability;
    uint32_t mask;
    const mics_dropout_draw *draw;
} op_dropout;

// Which tokens a token sees; segments in the memory of the kernels, NULL: all are of one.
typedef struct op_sight {
    int64_t window;
    bool both_ways;
    const int32_t *segments;
} op_sight;

static inline mics_op op_attention_of(mics_heads heads, op_sight sight, op_dropout dropout)
{
    return (mics_op){.kind = MICS_OP_ATTENTION,
                     .heads = heads,
                     .window = sight.window,
                     .both_ways = sight.both_ways,
                     .segments = sight.segments != NULL,
                     .dropout = dropout.probability,
                     .mask = dropout.mask};
}

static inline void op_attention_forward(const mics_kernels *k, const mics_exec *at, void *y_NC,
                                        float *lse_NH, const void *qkv, int64_t B, int64_t T,
                                        mics_heads heads, op_sight sight, op_dropout dropout)
{
    op_forward(k, op_attention_of(heads, sight, dropout),
               (mics_op_call){.at = at,
                              .shape = op_attention_shape(B, T, heads),
                              .in = {qkv},
                              .out = y_NC,
                              .stats = lse_NH,
                              .segments = sight.segments,
                              .draw = dropout.draw});
}

static inline void op_attention_backward(const mics_kernels *k, const mics_exec *at, void *dqkv,
                                         const void *dy_NC, const void *y_NC, const float *lse_NH,
                                         const void *qkv, int64_t B, int64_t T, mics_heads heads,
                                         op_sight sight, op_dropout dropout)
{
    op_backward(k, op_attention_of(heads, sight, dropout),
                (mics_op_call){.at = at,
                               .shape = op_attention_shape(B, T, heads),
                               .in = {qkv},
                               .out = (void *)y_NC,
                               .stats = (float *)lse_NH,
                               .segments = sight.segments,
                               .draw = dropout.draw,
                               .dout = dy_NC,
                               .din = dqkv});
}

// y: forward of x, without a draw too. Backward is of the same sizes.
static inline void op_dropout_forward(const mics_kernels *k, const mics_exec *at, void *y_NC,
                                      const void *x_NC, int64_t B, int64_t T, int64_t C,
                                      op_dropout dropout)
{
    op_forward(
        k, (mics_op){.kind = MICS_OP_DROPOUT, .dropout = dropout.probability, .mask = dropout.mask},
        (mics_op_call){.at = at,
                       .shape = {.B = B, .T = T, .N = B * T, .in = {C}, .out = C},
                       .in = {x_NC},
                       .out = y_NC,
                       .draw = dropout.draw});
}

static inline void op_swiglu_forward(const mics_kernels *k, const mics_exec *at, void *y_NI,
                                     const void *x_N2I, int64_t N, int64_t I)
{
    op_forward(
        k, (mics_op){.kind = MICS_OP_SWIGLU},
        (mics_op_call){
            .at = at, .shape = {.N = N, .in = {2 * I}, .out = I}, .in = {x_N2I}, .out = y_NI});
}

static inline void op_swiglu_backward(const mics_kernels *k, const mics_exec *at, void *dx_N2I,
                                      const void *dy_NI, const void *x_N2I, int64_t N, int64_t I,
                                      bool add_dx)
{
    op_backward(k, (mics_op){.kind = MICS_OP_SWIGLU},
                (mics_op_call){.at = at,
                               .shape = {.N = N, .in = {2 * I}, .out = I},
                               .in = {x_N2I},
                               .dout = dy_NI,
                               .din = dx_N2I,
                               .add_din = add_dx});
}

static inline void op_add(const mics_kernels *k, const mics_exec *at, void *y, const void *a,
                          const void *b, int64_t elems)
{
    op_forward(
        k, (mics_op){.kind = MICS_OP_ADD},
        (mics_op_call){
            .at = at, .shape = {.N = elems, .in = {1, 1}, .out = 1}, .in = {a, b}, .out = y});
}
