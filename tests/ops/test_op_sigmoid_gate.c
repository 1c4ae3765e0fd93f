// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows times the sigmoid of a number each.
#include "op_harness.h"
#include <math.h>

typedef struct gated {
    const float *x, *gate, *dy;
    float *y, *dx, *dgate;
    int64_t N, C;
    bool add;
} gated;

static mics_op_call call_of(const gated *g, const mics_exec *at)
{
    return (mics_op_call){.at = at,
                          .shape = {.B = 1, .T = g->N, .N = g->N, .in = {g->C, 1}, .out = g->C},
                          .in = {g->x, g->gate},
                          .out = g->y,
                          .dout = g->dy,
                          .din = g->dx,
                          .din_second = g->dgate,
                          .add_din = g->add};
}

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const mics_exec at = op_exec(threads, NULL);
    op_forward(k, (mics_op){.kind = MICS_OP_SIGMOID_GATE}, call_of(args, &at));
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const mics_exec at = op_exec(threads, NULL);
    op_backward(k, (mics_op){.kind = MICS_OP_SIGMOID_GATE}, call_of(args, &at));
}

typedef struct wide {
    double *x, *gate, *dy, *y;
    int64_t N, C;
} wide;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double objective(const void *ctx)
{
    const wide *w = ctx;
    for (int64_t i = 0; i < w->N * w->C; ++i)
        w->y[i] = w->x[i] * sigmoid(w->gate[i / w->C]);
    return w->dy ? op_dot(w->y, w->dy, w->N * w->C) : 0;
}

static double *sizes(op_case *c, int64_t elems, double size)
{
    double *all = op_doubles(c, elems);
    for (int64_t i = 0; i < elems; ++i)
        all[i] = size;
    return all;
}

static void forward_case(int64_t N, int64_t C)
{
    op_case c;
    op_begin(&c, "sigmoid_gate_forward N=%d C=%d", (int)N, (int)C);
    gated g = {.N = N, .C = C, .x = op_input(&c, "x", N * C, 1), .gate = op_input(&c, "g", N, 2)};
    g.y = op_output(&c, "y", N * C, false);
    const wide w = {op_widen(&c, g.x), op_widen(&c, g.gate), NULL, op_doubles(&c, N * C), N, C};
    objective(&w);
    op_expect(&c, g.y, w.y, sizes(&c, N * C, 4), OP_TOLERANCE);
    op_run(&c, run_forward, &g);
    op_end(&c);
}

// `in_place`: the input's gradient lies where the output's was.
static void backward_case(int64_t N, int64_t C, bool add, bool in_place)
{
    op_case c;
    op_begin(&c, "sigmoid_gate_backward N=%d C=%d add %d in place %d", (int)N, (int)C, add,
             in_place);
    gated g = {.N = N, .C = C, .x = op_input(&c, "x", N * C, 1), .gate = op_input(&c, "g", N, 2)};
    g.add = add;
    g.dx = in_place ? op_inout(&c, "dy, dx", N * C, 1) : op_output(&c, "dx", N * C, add);
    g.dy = in_place ? g.dx : op_input(&c, "dy", N * C, 1);
    g.dgate = op_output(&c, "dg", N, false);
    const wide w = {.x = op_widen(&c, g.x),
                    .gate = op_widen(&c, g.gate),
                    .dy = op_widen(&c, g.dy),
                    .y = op_doubles(&c, N * C),
                    .N = N,
                    .C = C};
    double *dx = op_doubles(&c, N * C), *dgate = op_doubles(&c, N);
    for (int64_t i = 0; i < N * C; ++i) {
        const double by = sigmoid(w.gate[i / C]);
        dx[i] = w.dy[i] * by;
        dgate[i / C] += w.dy[i] * w.x[i] * by * (1 - by);
    }
    op_check_gradient(&c, "x", objective, &w, w.x, N * C, dx, 20);
    op_check_gradient(&c, "g", objective, &w, w.gate, N, dgate, 20);
    op_expect(&c, g.dx, dx, sizes(&c, N * C, 4), OP_TOLERANCE);
    op_expect(&c, g.dgate, dgate, sizes(&c, N, 4 + (double)C), OP_TOLERANCE);
    op_run(&c, run_backward, &g);
    op_end(&c);
}

static void matches_reference(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 5, 70}, widths[] = {1, 7, 40, 513};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
        for (size_t j = 0; j < sizeof widths / sizeof *widths; ++j) {
            forward_case(rows[i], widths[j]);
            backward_case(rows[i], widths[j], false, false);
            backward_case(rows[i], widths[j], true, false);
            backward_case(rows[i], widths[j], false, true);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_reference)};
    return op_run_tests(tests);
}
