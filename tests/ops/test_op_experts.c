// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: the router, and GEMMs of rows sorted by expert.
#include "op_harness.h"
#include "ops/experts/def.h"
#include <math.h>

typedef struct shape {
    int64_t B, T, C, I; // C: of tokens; I: of rows
    mics_experts experts;
    bool normalised, add;
    float balance, z;
} shape;

static int64_t tokens_of(const shape *s)
{
    return s->B * s->T;
}

static mics_op op_for(const shape *s, mics_op_kind kind)
{
    return (mics_op){
        .kind = kind, .experts = s->experts, .router = {s->normalised, s->balance, s->z}};
}

// From an expert's weight to the next one's. In models others of the expert lie between, which
// golden files check.
static int64_t stride_of(const shape *s)
{
    return s->I * s->C;
}

static mics_op_shape sizes_of(const shape *s, mics_op_kind kind)
{
    const int64_t E = s->experts.count, k = s->experts.chosen;
    mics_op_shape sizes = {.B = s->B, .T = s->T, .N = tokens_of(s), .cpu_bf16 = op_bf16()};
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
    const int32_t *targets;
} call;

static mics_op_call call_of(const call *c, const mics_exec *at)
{
    return (mics_op_call){.at = at,
                          .shape = sizes_of(c->shape, c->kind),
                          .in = {c->x, c->weights},
                          .out = c->y,
                          .stats = c->stats,
                          .routes = c->routes,
                          .targets = c->targets,
                          .params = {c->param},
                          .dout = c->dy,
                          .din = c->dx,
                          .din_second = c->dweights,
                          .dparams = {c->dparam},
                          .add_din = c->shape->add && c->kind != MICS_OP_EXPERTS_OUT,
                          .add_params = {c->shape->add},
                          .loss_scale = 0.25F};
}

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const call *c = args;
    const mics_exec at = op_exec(threads, c->space);
    op_forward(k, op_for(c->shape, c->kind), call_of(c, &at));
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const call *c = args;
    const mics_exec at = op_exec(threads, c->space);
    op_backward(k, op_for(c->shape, c->kind), call_of(c, &at));
}

static call call_begin(op_case *c, const shape *s, mics_op_kind kind, const char *name)
{
    op_begin(c, "%s B=%d T=%d C=%d I=%d experts %d of %d, add %d", name, (int)s->B, (int)s->T,
             (int)s->C, (int)s->I, (int)s->experts.chosen, (int)s->experts.count, s->add);
    const mics_op op = op_for(s, kind);
    mics_op_shape sizes = sizes_of(s, kind);
    sizes.op = &op;
    const mics_op_cost cost = mics_op_def_get(kind)->cost(&sizes);
    const int64_t floats = mics_larger(cost.workspace_forward, cost.workspace_backward);
    return (call){.shape = s, .kind = kind, .space = op_space(c, "space", (floats + 15) / 16 * 16)};
}

// ---- the router in fp64 ----

// Of the loss: every third token counts in none.
static int32_t target_of(int64_t n)
{
    return n % 3 == 1 ? -1 : 0;
}

// Scale of the losses of a token's sequence: by its share of tokens that count.
static double scale_of(const shape *s, int64_t token)
{
    const int64_t first = token / s->T * s->T;
    double counted = 0;
    for (int64_t n = first; n < first + s->T; ++n)
        counted += target_of(n) >= 0;
    return 0.25 * counted / (double)s->T;
}

typedef struct wide_router {
    const shape *s;
    double *x, *param, *dy;
    int32_t *chosen;             // (N, k)
    double *p, *w, *lse, *count; // (N, E), (N, k), (N), (B, E)
} wide_router;

static void score(const wide_router *r, int64_t n)
{
    const int64_t E = r->s->experts.count;
    double sum = 0;
    for (int64_t e = 0; e < E; ++e) {
        r->p[n * E + e] = exp(op_dot(r->x + n * r->s->C, r->param + e * r->s->C, r->s->C));
        sum += r->p[n * E + e];
    }
    for (int64_t e = 0; e < E; ++e)
        r->p[n * E + e] /= sum;
    r->lse[n] = log(sum);
}

static void choose(const wide_router *r, int64_t n)
{
    const int64_t E = r->s->experts.count, k = r->s->experts.chosen;
    for (int64_t j = 0; j < k; ++j) {
        int32_t best = -1;
        for (int32_t e = 0; e < E; ++e) {
            bool taken = false;
            for (int64_t i = 0; i < j; ++i)
                taken = taken || r->chosen[n * k + i] == e;
            if (!taken && (best < 0 || r->p[n * E + e] > r->p[n * E + best]))
                best = e;
        }
        r->chosen[n * k + j] = best;
        r->count[n / r->s->T * E + best] += 1;
    }
}

static void weigh(const wide_router *r, int64_t n)
{
    const int64_t E = r->s->experts.count, k = r->s->experts.chosen;
    double sum = 0;
    for (int64_t j = 0; j < k; ++j)
        sum += r->p[n * E + r->chosen[n * k + j]];
    for (int64_t j = 0; j < k; ++j)
        r->w[n * k + j] = r->p[n * E + r->chosen[n * k + j]] / (r->s->normalised ? sum : 1);
}

// With the experts that were chosen before.
static double router_objective(const void *ctx)
{
    const wide_router *r = ctx;
    const int64_t N = tokens_of(r->s), E = r->s->experts.count, k = r->s->experts.chosen;
    double sum = 0;
    for (int64_t n = 0; n < N; ++n) {
        score(r, n);
        weigh(r, n);
        sum += op_dot(r->w + n * k, r->dy + n * k, k);
        sum += scale_of(r->s, n) * r->s->z * r->lse[n] * r->lse[n];
        for (int64_t e = 0; e < E; ++e) // T times the loss of the sequence
            sum += scale_of(r->s, n) * r->s->balance * (double)E * r->count[n / r->s->T * E + e] /
                   (double)r->s->T * r->p[n * E + e];
    }
    return sum;
}

static wide_router widen_router(op_case *c, const shape *s, const call *k)
{
    const int64_t N = tokens_of(s), E = s->experts.count;
    wide_router r = {.s = s,
                     .x = op_widen(c, k->x),
                     .param = op_widen(c, k->param),
                     .chosen = op_ints(c, N * s->experts.chosen),
                     .p = op_doubles(c, N * E),
                     .w = op_doubles(c, N * s->experts.chosen),
                     .lse = op_doubles(c, N),
                     .count = op_doubles(c, s->B * E)};
    for (int64_t n = 0; n < N; ++n) {
        score(&r, n);
        choose(&r, n);
        weigh(&r, n);
    }
    return r;
}

// A router's stats of these choices.
static void fill_routes(const shape *s, const int32_t *chosen_Nk, float *routes)
{
    const int64_t N = tokens_of(s), k = s->experts.chosen;
    int32_t row = 0;
    for (int32_t e = 0; e < s->experts.count; ++e) {
        for (int64_t n = 0; n < N; ++n) {
            int32_t *chosen = (int32_t *)(void *)(routes + n * mics_route_floats(s->experts) +
                                                  s->experts.count + 2);
            for (int64_t j = 0; j < k; ++j) {
                chosen[j] = chosen_Nk[n * k + j];
                if (chosen[j] == e)
                    chosen[k + j] = row++;
            }
        }
    }
}

static void router_forward_case(const shape *s)
{
    op_case c;
    const int64_t N = tokens_of(s), k = s->experts.chosen;
    call args = call_begin(&c, s, MICS_OP_ROUTER, "router_forward");
    args.x = op_input(&c, "x", N * s->C, 1);
    args.param = op_input(&c, "weight", s->experts.count * s->C, 0.5);
    args.y = op_output(&c, "weights", N * k, false);
    args.stats = op_fp32(&c, op_output(&c, "stats", N * mics_route_floats(s->experts), false));
    const wide_router r = widen_router(&c, s, &args);
    double *ones = op_doubles(&c, N * k);
    for (int64_t i = 0; i < N * k; ++i)
        ones[i] = 1;
    op_expect(&c, args.y, r.w, ones, 20 * OP_TOLERANCE);
    op_run(&c, run_forward, &args);
    op_end(&c);
}

static void router_gradients(const wide_router *r, double *dx, double *dparam)
{
    const int64_t N = tokens_of(r->s), E = r->s->experts.count, k = r->s->experts.chosen,
                  C = r->s->C;
    for (int64_t n = 0; n < N; ++n) {
        double dp[64] = {0}, mean = 0, sum = 0;
        for (int64_t j = 0; j < k; ++j) {
            sum += r->p[n * E + r->chosen[n * k + j]];
            mean += r->dy[n * k + j] * r->w[n * k + j];
        }
        for (int64_t j = 0; j < k; ++j)
            dp[r->chosen[n * k + j]] =
                r->s->normalised ? (r->dy[n * k + j] - mean) / sum : r->dy[n * k + j];
        const double scale = scale_of(r->s, n);
        for (int64_t e = 0; e < E; ++e)
            dp[e] +=
                scale * r->s->balance * (double)E * r->count[n / r->s->T * E + e] / (double)r->s->T;
        const double dot = op_dot(dp, r->p + n * E, E);
        for (int64_t e = 0; e < E; ++e) {
            const double d = r->p[n * E + e] * (dp[e] - dot + 2 * scale * r->s->z * r->lse[n]);
            for (int64_t i = 0; i < C; ++i) {
                dx[n * C + i] += d * r->param[e * C + i];
                dparam[e * C + i] += d * r->x[n * C + i];
            }
        }
    }
}

static void router_backward_case(const shape *s)
{
    op_case c;
    const int64_t N = tokens_of(s), E = s->experts.count, k = s->experts.chosen, C = s->C;
    call args = call_begin(&c, s, MICS_OP_ROUTER, "router_backward");
    args.x = op_input(&c, "x", N * C, 1);
    args.param = op_input(&c, "weight", E * C, 0.5);
    args.dy = op_input(&c, "dy", N * k, 1);
    int32_t *targets = op_ints(&c, N);
    for (int64_t n = 0; n < N; ++n)
        targets[n] = target_of(n);
    args.targets = targets;
    wide_router r = widen_router(&c, s, &args);
    r.dy = op_widen(&c, args.dy);
    args.stats = op_fp32(&c, op_input(&c, "stats", N * mics_route_floats(s->experts), 1));
    for (int64_t n = 0; n < N; ++n) {
        float *row = args.stats + n * mics_route_floats(s->experts);
        for (int64_t e = 0; e < E; ++e)
            row[e] = (float)r.p[n * E + e];
        row[E] = (float)r.lse[n];
    }
    fill_routes(s, r.chosen, args.stats);
    op_input_changed(&c, args.stats);
    args.dx = op_output(&c, "dx", N * C, s->add);
    args.dparam = op_output(&c, "dweight", E * C, s->add);
    double *dx = op_doubles(&c, N * C), *dparam = op_doubles(&c, E * C);
    double *dx_size = op_doubles(&c, N * C), *dparam_size = op_doubles(&c, E * C);
    router_gradients(&r, dx, dparam);
    for (int64_t i = 0; i < N * C; ++i)
        dx_size[i] = 10;
    for (int64_t i = 0; i < E * C; ++i)
        dparam_size[i] = 10 * (double)N;
    op_check_gradient(&c, "x", router_objective, &r, r.x, N * C, dx, 20);
    op_check_gradient(&c, "weight", router_objective, &r, r.param, E * C, dparam, 20);
    op_expect(&c, args.dx, dx, dx_size, OP_TOLERANCE);
    op_expect(&c, args.dparam, dparam, dparam_size, OP_TOLERANCE);
    op_run(&c, run_backward, &args);
    op_end(&c);
}

// ---- experts in fp64: the sum over a token's experts of weight * down(up(x)), both linear ----

typedef struct wide_experts {
    const shape *s;
    const int32_t *chosen, *rows;    // (N, k)
    double *x, *param, *weights, *y; // of one op
    const double *dy;
    mics_op_kind kind;
} wide_experts;

// Row (n, j) of experts_in, or its part of experts_out; x of it lies at x_at, y at y_at.
static void multiply(const wide_experts *w, int64_t n, int64_t j, bool out)
{
    const shape *s = w->s;
    const int64_t k = s->experts.chosen, row = w->rows[n * k + j], expert = w->chosen[n * k + j];
    const int64_t inputs = out ? s->I : s->C, outputs = out ? s->C : s->I;
    const double *x = w->x + (out ? row : n) * inputs;
    double *y = w->y + (out ? n : row) * outputs;
    for (int64_t o = 0; o < outputs; ++o)
        y[o] += (out ? w->weights[n * k + j] : 1) *
                op_dot(x, w->param + expert * stride_of(s) + o * inputs, inputs);
}

static double experts_objective(const void *ctx)
{
    const wide_experts *w = ctx;
    const shape *s = w->s;
    const bool out = w->kind == MICS_OP_EXPERTS_OUT;
    const int64_t N = tokens_of(s), k = s->experts.chosen, elems = N * (out ? s->C : k * s->I);
    memset(w->y, 0, (size_t)elems * sizeof *w->y);
    for (int64_t i = 0; i < N * k; ++i)
        multiply(w, i / k, i % k, out);
    return w->dy ? op_dot(w->y, w->dy, elems) : 0;
}

static void experts_gradients(const wide_experts *w, double *dx, double *dweights, double *dparam)
{
    const shape *s = w->s;
    const bool out = w->kind == MICS_OP_EXPERTS_OUT;
    const int64_t k = s->experts.chosen, inputs = out ? s->I : s->C, outputs = out ? s->C : s->I;
    for (int64_t at = 0; at < tokens_of(s) * k; ++at) {
        const int64_t x_at = (out ? w->rows[at] : at / k) * inputs;
        const int64_t y_at = (out ? at / k : w->rows[at]) * outputs;
        const double weight = out ? w->weights[at] : 1;
        for (int64_t o = 0; o < outputs; ++o)
            for (int64_t i = 0; i < inputs; ++i) {
                const int64_t p = w->chosen[at] * stride_of(s) + o * inputs + i;
                const double d = w->dy[y_at + o];
                dx[x_at + i] += weight * d * w->param[p];
                dparam[p] += weight * d * w->x[x_at + i];
                dweights[at] += d * w->param[p] * w->x[x_at + i];
            }
    }
}

// All tokens' choices at random, some experts without any.
static wide_experts route(op_case *c, const shape *s, mics_op_kind kind, call *args)
{
    const int64_t N = tokens_of(s), k = s->experts.chosen;
    int32_t *chosen = op_random_ints(c, N * k, s->experts.count), *rows = op_ints(c, N * k);
    for (int64_t at = 0; at < N * k; ++at)
        if (at % k > 0) // others than the first
            chosen[at] = (int32_t)((chosen[at - 1] + 1) % s->experts.count);
    float *routes = op_fp32(c, op_input(c, "routes", N * mics_route_floats(s->experts), 1));
    fill_routes(s, chosen, routes);
    op_input_changed(c, routes);
    for (int64_t at = 0; at < N * k; ++at)
        rows[at] = mics_route_rows(routes, s->experts, at / k)[at % k];
    args->routes = routes;
    return (wide_experts){.s = s, .chosen = chosen, .rows = rows, .kind = kind};
}

static double *filled(op_case *c, int64_t elems, double value)
{
    double *numbers = op_doubles(c, elems);
    for (int64_t i = 0; i < elems; ++i)
        numbers[i] = value;
    return numbers;
}

static void experts_case(const shape *s, mics_op_kind kind, bool backward)
{
    op_case c;
    const bool out = kind == MICS_OP_EXPERTS_OUT;
    const int64_t N = tokens_of(s), k = s->experts.chosen, E = s->experts.count;
    const int64_t xs = N * (out ? k * s->I : s->C), ys = N * (out ? s->C : k * s->I);
    const int64_t params = E * stride_of(s);
    call args = call_begin(&c, s, kind, out ? "experts_out" : "experts_in");
    c.depends_on_threads = true;
    wide_experts w = route(&c, s, kind, &args);
    args.x = op_input(&c, "x", xs, 1);
    args.weights = op_input(&c, "weights", N * k, 1);
    args.param = op_input(&c, "weight", params, 1);
    w.x = op_widen(&c, args.x), w.weights = op_widen(&c, args.weights);
    w.param = op_widen(&c, args.param), w.y = op_doubles(&c, ys);
    const double size = 6 * (double)(s->I + s->C),
                 tolerance = OP_TOLERANCE + op_bf16_roundings(0.5);
    if (!backward) {
        args.y = op_output(&c, "y", ys, false);
        experts_objective(&w);
        op_expect(&c, args.y, w.y, filled(&c, ys, size), tolerance);
        op_run(&c, run_forward, &args);
        op_end(&c);
        return;
    }
    args.dy = op_input(&c, "dy", ys, 1);
    w.dy = op_widen(&c, args.dy);
    args.dx = op_output(&c, "dx", xs, s->add && !out);
    args.dweights = out ? op_output(&c, "dweights", N * k, false) : NULL;
    args.dparam = op_output(&c, "dweight", params, s->add);
    double *dx = op_doubles(&c, xs), *dweights = op_doubles(&c, N * k),
           *dparam = op_doubles(&c, params);
    experts_gradients(&w, dx, dweights, dparam);
    op_check_gradient(&c, "x", experts_objective, &w, w.x, xs, dx, 20);
    op_check_gradient(&c, "weight", experts_objective, &w, w.param, params, dparam, 20);
    op_expect(&c, args.dx, dx, filled(&c, xs, size), tolerance);
    op_expect(&c, args.dparam, dparam, filled(&c, params, 4 * (double)N), tolerance);
    if (out) {
        op_check_gradient(&c, "weights", experts_objective, &w, w.weights, N * k, dweights, 20);
        op_expect(&c, args.dweights, dweights, filled(&c, N * k, size * 4), tolerance);
    }
    op_run(&c, run_backward, &args);
    op_end(&c);
}

// ---- tests ----

static const shape shapes[] = {
    {1, 1, 3, 2, {1, 1}, true, false, 0, 0},
    {1, 5, 7, 4, {3, 1}, false, true, 0.5F, 0},
    {2, 9, 16, 5, {4, 2}, true, false, 0.3F, 0.1F},
    {3, 7, 33, 18, {8, 3}, false, true, 0, 0.2F},
    {2, 40, 40, 24, {5, 2}, true, true, 1, 0},
    {1, 6, 300, 3, {50, 4}, false, false, 0.1F, 0.1F},
};

static void router_matches_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        router_forward_case(&shapes[i]);
        router_backward_case(&shapes[i]);
    }
}

static void experts_match_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int backward = 0; backward < 2; ++backward) {
            experts_case(&shapes[i], MICS_OP_EXPERTS_IN, backward);
            experts_case(&shapes[i], MICS_OP_EXPERTS_OUT, backward);
        }
}

// Of equal scores, and of those that are no numbers, the first experts are chosen.
static void equal_scores_choose_the_first(void **state)
{
    (void)state;
    enum { E = 4, K = 2, C = 2 };
    const shape s = {1, 1, C, 1, {E, K}, true, false, 0, 0};
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        const mics_kernels *k = mics_kernels_at(index);
        float x[C] = {1, 1}, weight[E * C] = {0, 0, 1, 1, 1, 1, 1, 1}, y[K];
        float stats[E + 2 + 2 * K], space[64];
        const call args = {.shape = &s,
                           .kind = MICS_OP_ROUTER,
                           .x = x,
                           .param = weight,
                           .y = y,
                           .stats = stats,
                           .space = space};
        if (!k)
            continue;
        run_forward(k, 1, &args);
        assert_true(mics_route_chosen(stats, s.experts, 0)[0] == 1);
        assert_true(mics_route_chosen(stats, s.experts, 0)[1] == 2);
        assert_true(y[0] == 0.5F && y[1] == 0.5F);
        x[0] = NAN;
        run_forward(k, 1, &args);
        assert_true(mics_route_chosen(stats, s.experts, 0)[0] == 0);
        assert_true(mics_route_chosen(stats, s.experts, 0)[1] == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(router_matches_reference),
        cmocka_unit_test(experts_match_reference),
        cmocka_unit_test(equal_scores_choose_the_first),
    };
    return op_run_tests(tests);
}
