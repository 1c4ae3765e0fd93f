// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the tests of a router and of its experts share: calls, and routes.
#pragma once

#include "op_harness.h"
#include "ops/experts/def.h"

typedef struct shape {
    int64_t B, T, C, I; // C: of tokens; I: of rows
    mics_experts experts;
    bool normalised, add;
    float balance, z, jitter;
    bool random_second;
    int without; // gradients that are not wanted
} shape;

enum { NO_DX = 1, NO_DWEIGHTS = 2, NO_DPARAM = 4 };

static inline int64_t tokens_of(const shape *s)
{
    return s->B * s->T;
}

static inline mics_op op_for(const shape *s, mics_op_kind kind)
{
    return (mics_op){.kind = kind,
                     .experts = s->experts,
                     .mask = 5,
                     .router = {.normalised = s->normalised,
                                .balance = s->balance,
                                .z = s->z,
                                .jitter = s->jitter,
                                .random_second = s->random_second}};
}

// From an expert's weight to the next one's: where gradients are added to, with a gap.
static inline int64_t stride_of(const shape *s)
{
    return s->I * s->C + (s->add ? 5 : 0);
}

static inline mics_op_shape sizes_of(const shape *s, mics_op_kind kind)
{
    const int64_t E = s->experts.count, k = s->experts.chosen;
    mics_op_shape sizes = {.B = s->B, .T = s->T, .N = tokens_of(s), .cpu_bf16 = op_bf16()};
    sizes.in_fixed[0] = s->without & NO_DX, sizes.in_fixed[1] = s->without & NO_DWEIGHTS;
    sizes.params_fixed[0] = s->without & NO_DPARAM;
    if (kind == MICS_OP_ROUTER) {
        sizes.in[0] = s->C, sizes.out = k, sizes.params[0][0] = E, sizes.params[0][1] = s->C;
    } else if (kind == MICS_OP_EXPERTS_IN) {
        sizes.in[0] = s->C, sizes.in[1] = k, sizes.out = k * s->I;
        sizes.params[0][0] = s->I, sizes.params[0][1] = s->C;
        sizes.expert_elems = stride_of(s);
    } else {
        sizes.in[0] = k * s->I, sizes.in[1] = k, sizes.out = s->C;
        sizes.params[0][0] = s->C, sizes.params[0][1] = s->I;
        sizes.expert_elems = stride_of(s);
    }
    return sizes;
}

// ---- calls ----

typedef struct call {
    const shape *shape;
    mics_op_kind kind;
    const float *x, *weights, *routes, *param, *dy;
    float *y, *stats, *dx, *dweights, *dparam, *space;
    const int32_t *targets, *segments;
    double *sums;
} call;

// Of the masks that noise and chance are of.
static const mics_dropout_draw experts_draw = {{7, 9}, 3};

static inline mics_op_call call_of(const call *c, const mics_exec *at)
{
    const int without = c->shape->without;
    const bool reads = !(without & NO_DPARAM) || c->kind == MICS_OP_EXPERTS_OUT;
    return (mics_op_call){.at = at,
                          .shape = sizes_of(c->shape, c->kind),
                          .in = {reads ? c->x : NULL, c->weights},
                          .out = c->y,
                          .stats = c->stats,
                          .routes = c->routes,
                          .targets = c->targets,
                          .segments = c->segments,
                          .params = {c->param},
                          .dout = c->dy,
                          .din = without & NO_DX ? NULL : c->dx,
                          .din_second = without & NO_DWEIGHTS ? NULL : c->dweights,
                          .dparams = {without & NO_DPARAM ? NULL : c->dparam},
                          .add_din = c->shape->add && c->kind != MICS_OP_EXPERTS_OUT,
                          .add_params = {c->shape->add},
                          .draw = &experts_draw,
                          .training = true,
                          .router_sums = c->sums,
                          .pairs = c->shape->add,
                          .loss_scale = 0.25F};
}

static inline void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const call *c = args;
    const mics_exec at = op_exec(threads, c->space);
    op_forward(k, op_for(c->shape, c->kind), call_of(c, &at));
}

static inline void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const call *c = args;
    const mics_exec at = op_exec(threads, c->space);
    op_backward(k, op_for(c->shape, c->kind), call_of(c, &at));
}

/* What a gradient must be, where it is wanted. */
static inline void expect_wanted(op_case *c, const call *of, const float *data, const double *want,
                                 const double *magnitude, double tolerance)
{
    const int without = of->shape->without;
    if (!(data == of->dx && without & NO_DX) && !(data == of->dweights && without & NO_DWEIGHTS) &&
        !(data == of->dparam && without & NO_DPARAM))
        op_expect(c, data, want, magnitude, tolerance);
}

static inline call call_begin(op_case *c, const shape *s, mics_op_kind kind, const char *name)
{
    op_begin(c, "%s B=%d T=%d C=%d I=%d experts %d of %d, add %d, without %d", name, (int)s->B,
             (int)s->T, (int)s->C, (int)s->I, (int)s->experts.chosen, (int)s->experts.count, s->add,
             s->without);
    const mics_op op = op_for(s, kind);
    mics_op_shape sizes = sizes_of(s, kind);
    sizes.op = &op;
    const mics_op_cost cost = mics_op_def_get(kind)->cost(&sizes);
    const int64_t floats = mics_larger(cost.workspace_forward, cost.workspace_backward);
    return (call){.shape = s, .kind = kind, .space = op_space(c, "space", (floats + 15) / 16 * 16)};
}

// A router's stats of these choices; those below 0 are dropped.
static inline void fill_routes(const shape *s, const int32_t *chosen_Nk, float *routes)
{
    const int64_t N = tokens_of(s), k = s->experts.chosen, E = s->experts.count;
    int32_t row = 0;
    for (int32_t e = 0; e <= E; ++e) {
        for (int64_t n = 0; n < N; ++n) {
            int32_t *chosen =
                (int32_t *)(void *)(routes + n * mics_route_floats(s->experts) + E + 2);
            for (int64_t j = 0; j < k; ++j) {
                chosen[j] = chosen_Nk[n * k + j];
                if (e < E ? chosen[j] == e : chosen[j] < 0)
                    chosen[k + j] = row++;
            }
        }
    }
}
