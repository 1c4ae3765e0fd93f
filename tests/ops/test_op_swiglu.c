// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SwiGLU.
#include "op_harness.h"
#include <math.h>

typedef struct swiglu {
    float *y, *dx;
    const float *x, *dy;
    int64_t N, I;
    bool add_dx;
} swiglu;

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const swiglu *g = args;
    const mics_exec at = op_exec(threads, NULL);
    op_swiglu_forward(k, &at, g->y, g->x, g->N, g->I);
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const swiglu *g = args;
    const mics_exec at = op_exec(threads, NULL);
    op_swiglu_backward(k, &at, g->dx, g->dy, g->x, g->N, g->I, g->add_dx);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

// Rounding of e^-g is an error of |g| units in the sigmoid where that is small.
static double rounding(double gate)
{
    return 3 + (gate < 0 ? -gate : 0);
}

typedef struct wide {
    double *x, *y, *dy;
    int64_t N, I;
} wide;

static void reference(const wide *w)
{
    for (int64_t i = 0; i < w->N * w->I; ++i) {
        const double *row = w->x + i / w->I * 2 * w->I, gate = row[i % w->I];
        w->y[i] = gate * sigmoid(gate) * row[w->I + i % w->I];
    }
}

static double objective(const void *ctx)
{
    const wide *w = ctx;
    reference(w);
    return op_dot(w->y, w->dy, w->N * w->I);
}

static void forward_case(int64_t N, int64_t I, double size)
{
    op_case c;
    op_begin(&c, "swiglu_forward N=%d I=%d size=%g", (int)N, (int)I, size);
    swiglu g = {.N = N, .I = I, .x = op_input(&c, "x", N * 2 * I, size)};
    g.y = op_output(&c, "y", N * I, false);
    const wide w = {op_widen(&c, g.x), op_doubles(&c, N * I), NULL, N, I};
    double *y_sum = op_doubles(&c, N * I);
    reference(&w);
    for (int64_t i = 0; i < N * I; ++i)
        y_sum[i] = fabs(w.y[i]) * rounding(w.x[i / I * 2 * I + i % I]);
    op_expect(&c, g.y, w.y, y_sum, OP_TOLERANCE);
    op_run(&c, run_forward, &g);
    op_end(&c);
}

static void backward_case(int64_t N, int64_t I, double size, bool add_dx)
{
    op_case c;
    op_begin(&c, "swiglu_backward N=%d I=%d size=%g add %d", (int)N, (int)I, size, add_dx);
    swiglu g = {.N = N, .I = I, .add_dx = add_dx, .x = op_input(&c, "x", N * 2 * I, size)};
    g.dy = op_input(&c, "dy", N * I, 1.0);
    g.dx = op_output(&c, "dx", N * 2 * I, add_dx);
    const wide w = {op_widen(&c, g.x), op_doubles(&c, N * I), op_widen(&c, g.dy), N, I};
    double *dx = op_doubles(&c, N * 2 * I), *sum = op_doubles(&c, N * 2 * I);
    for (int64_t i = 0; i < N * I; ++i) {
        const int64_t at = i / I * 2 * I + i % I;
        const double gate = w.x[at], up = w.x[at + I], s = sigmoid(gate), dy = w.dy[i];
        dx[at] = dy * up * s * (1 + gate * (1 - s));
        dx[at + I] = dy * gate * s;
        sum[at] = fabs(dy * up) * s * (1 + fabs(gate) * (1 - s)) * rounding(gate);
        sum[at + I] = fabs(dx[at + I]) * rounding(gate);
    }
    if (size < 3)
        op_check_gradient(&c, "x", objective, &w, w.x, N * 2 * I, dx, 20);
    op_expect(&c, g.dx, dx, sum, OP_TOLERANCE);
    op_run(&c, run_backward, &g);
    op_end(&c);
}

static void swiglu_matches_reference(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 17, 70}, widths[] = {1, 3, 8, 17, 40, 64, 129, 768};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
        for (size_t j = 0; j < sizeof widths / sizeof *widths; ++j) {
            const double size = (i + j) % 3 ? 1.0 : 10.0;
            forward_case(rows[i], widths[j], size);
            backward_case(rows[i], widths[j], size, (i + j) % 2);
        }
}

// Gates far out: the sigmoid is 0 or 1, and nothing is NaN that need not be.
static void swiglu_at_the_edges(void **state)
{
    (void)state;
    enum { I = 6 };
    const float x[2 * I] = {0, 20, -20, 1e30F, -1e30F, NAN, 2, 2, 2, 2, 2, 2};
    const float dy[I] = {1, 1, 1, 1, 1, 1};
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        const mics_kernels *k = mics_kernels_at(index);
        const mics_exec at = op_exec(1, NULL);
        float y[I], dx[2 * I];
        if (!k)
            continue;
        op_swiglu_forward(k, &at, y, x, 1, I);
        op_swiglu_backward(k, &at, dx, dy, x, 1, I, false);
        assert_true(y[0] == 0.0F && fabsf(y[1] - 40.0F) < 1e-5F && fabsf(y[2]) < 1e-7F);
        assert_true(y[3] == 2e30F && y[4] == 0.0F && isnan(y[5]));
        assert_true(dx[0] == 1.0F && dx[3] == 2.0F && fabsf(dx[4]) < 1e-35F && isnan(dx[5]));
        assert_true(dx[I] == 0.0F && dx[I + 3] == 1e30F && fabsf(dx[I + 4]) < 1e-35F);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swiglu_matches_reference),
        cmocka_unit_test(swiglu_at_the_edges),
    };
    return op_run_tests(tests);
}
