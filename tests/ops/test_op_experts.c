// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Experts: GEMMs of rows sorted by expert.
#include "op_experts.h"

// ---- in fp64: the sum over a token's experts of weight * down(up(x)), both linear ----

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
        if (w->chosen[i] >= 0)
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
        if (w->chosen[at] < 0)
            continue;
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

// All tokens' choices at random, some experts without any. With a capacity, whatever it is, some
// are dropped: the router says which.
static wide_experts route(op_case *c, const shape *s, mics_op_kind kind, call *args)
{
    const int64_t N = tokens_of(s), k = s->experts.chosen;
    int32_t *chosen = op_random_ints(c, N * k, s->experts.count), *rows = op_ints(c, N * k);
    for (int64_t at = 0; at < N * k; ++at)
        if (at % k > 0) // others than the first
            chosen[at] = (int32_t)((chosen[at - 1] + 1) % s->experts.count);
    for (int64_t at = 0; s->experts.capacity > 0 && at < N * k; at += 3)
        chosen[at] = ~chosen[at];
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
    expect_wanted(&c, &args, args.dx, dx, filled(&c, xs, size), tolerance);
    expect_wanted(&c, &args, args.dparam, dparam, filled(&c, params, 4 * (double)N), tolerance);
    if (out) {
        op_check_gradient(&c, "weights", experts_objective, &w, w.weights, N * k, dweights, 20);
        expect_wanted(&c, &args, args.dweights, dweights, filled(&c, N * k, size * 4), tolerance);
    }
    op_run(&c, run_backward, &args);
    op_end(&c);
}

// ---- tests ----

static const shape shapes[] = {
    {.B = 1, .T = 1, .C = 3, .I = 2, .experts = {.count = 1, .chosen = 1}},
    {.B = 1, .T = 5, .C = 7, .I = 4, .experts = {.count = 3, .chosen = 1}, .add = true},
    {.B = 2, .T = 9, .C = 16, .I = 5, .experts = {.count = 4, .chosen = 2}},
    {.B = 3, .T = 7, .C = 33, .I = 18, .experts = {.count = 8, .chosen = 3}, .add = true},
    {.B = 2, .T = 40, .C = 40, .I = 24, .experts = {.count = 5, .chosen = 2}, .add = true},
    {.B = 1, .T = 6, .C = 300, .I = 3, .experts = {.count = 50, .chosen = 4}},
    {.B = 1, .T = 1, .C = 3, .I = 2, .experts = {1, 1, 1, 1, 1}}, // dropped
    {.B = 2, .T = 20, .C = 24, .I = 10, .experts = {4, 2, 1, 1, 1}},
    {.B = 1, .T = 33, .C = 17, .I = 9, .experts = {6, 3, 1, 1, 1}, .add = true},
};

static void match_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int backward = 0; backward < 2; ++backward) {
            experts_case(&shapes[i], MICS_OP_EXPERTS_IN, backward);
            experts_case(&shapes[i], MICS_OP_EXPERTS_OUT, backward);
        }
}

// Any gradients but all are left out, and nothing is computed for them.
static void some_gradients_match(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int without = NO_DX; without < NO_DX + NO_DWEIGHTS + NO_DPARAM; ++without) {
            shape s = shapes[i];
            s.without = without;
            experts_case(&s, MICS_OP_EXPERTS_OUT, true);
            if ((without & (NO_DX | NO_DPARAM)) != (NO_DX | NO_DPARAM))
                experts_case(&s, MICS_OP_EXPERTS_IN, true);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(match_reference),
                                       cmocka_unit_test(some_gradients_match)};
    return op_run_tests(tests);
}
