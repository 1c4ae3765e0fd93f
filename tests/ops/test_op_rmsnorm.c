// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// RMSNorm.
#include "op_harness.h"
#include "ops/common/def.h"
#include <math.h>

static const double EPS = 1e-5;

// Kernels sum a row in whatever order; rounding grows with the root of its length.
static double row_tolerance(int64_t C)
{
    return OP_TOLERANCE * (1 + sqrt((double)C) / 16);
}

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    mics_op_call call = *(const mics_op_call *)args;
    const mics_exec at = op_exec(threads, NULL);
    call.at = &at;
    k->ops[MICS_OP_RMSNORM]->forward(&call);
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    mics_op_call call = *(const mics_op_call *)args;
    const mics_exec at = op_exec(threads, call.at->workspace);
    call.at = &at;
    k->ops[MICS_OP_RMSNORM]->backward(&call);
}

// The reference in fp64.
typedef struct wide {
    double *x, *weight, *dy, *y, *scale;
    int64_t N, C;
} wide;

static void reference(const wide *w)
{
    for (int64_t n = 0; n < w->N; ++n) {
        const double *x = w->x + n * w->C;
        double squares = 0;
        for (int64_t i = 0; i < w->C; ++i)
            squares += x[i] * x[i];
        w->scale[n] = 1 / sqrt(squares / (double)w->C + (double)(float)EPS);
        for (int64_t i = 0; i < w->C; ++i)
            w->y[n * w->C + i] = x[i] * w->scale[n] * w->weight[i];
    }
}

static double objective(const void *ctx)
{
    const wide *w = ctx;
    reference(w);
    return op_dot(w->y, w->dy, w->N * w->C);
}

static wide widen(op_case *c, const float *x, const float *weight, int64_t N, int64_t C)
{
    wide w = {.N = N, .C = C, .x = op_widen(c, x), .weight = op_widen(c, weight)};
    w.y = op_doubles(c, N * C);
    w.scale = op_doubles(c, N);
    return w;
}

static void forward_case(int64_t N, int64_t C, double size)
{
    op_case c;
    op_begin(&c, "rmsnorm_forward N=%d C=%d size=%g", (int)N, (int)C, size);
    const float *x = op_input(&c, "x", N * C, size), *weight = op_input(&c, "weight", C, 1.0);
    float *y = op_output(&c, "y", N * C, false),
          *scale = op_fp32(&c, op_output(&c, "scale", N, false));
    const wide w = widen(&c, x, weight, N, C);
    reference(&w);
    double *y_sum = op_doubles(&c, N * C);
    for (int64_t i = 0; i < N * C; ++i)
        y_sum[i] = fabs(w.y[i]);
    op_expect(&c, y, w.y, y_sum, row_tolerance(C));
    op_expect(&c, scale, w.scale, w.scale, row_tolerance(C));
    const mics_op op = {.kind = MICS_OP_RMSNORM, .eps = (float)EPS};
    const mics_op_call call = {.shape = {.op = &op, .N = N, .in = {C}, .out = C},
                               .in = {x},
                               .out = y,
                               .stats = scale,
                               .params = {weight}};
    op_run(&c, run_forward, &call);
    op_end(&c);
}

// Gradients in fp64 by the formulas, each with the sum of its absolute terms.
typedef struct gradients {
    double *dx, *dweight, *dx_sum, *dweight_sum;
} gradients;

static void gradients_of_row(const wide *w, const gradients *g, int64_t n)
{
    const int64_t C = w->C;
    const double scale = w->scale[n], *x = w->x + n * C, *dy = w->dy + n * C;
    double sum = 0, abs_sum = 0;
    for (int64_t i = 0; i < C; ++i) {
        const double term = dy[i] * x[i] * scale;
        sum += term * w->weight[i];
        abs_sum += fabs(term * w->weight[i]);
        g->dweight[i] += term;
        g->dweight_sum[i] += fabs(term);
    }
    for (int64_t i = 0; i < C; ++i) {
        const double own = dy[i] * w->weight[i], normal = x[i] * scale;
        g->dx[n * C + i] = scale * (own - normal * sum / (double)C);
        g->dx_sum[n * C + i] = scale * (fabs(own) + fabs(normal) * abs_sum / (double)C);
    }
}

static void backward_case(int64_t N, int64_t C, bool add_dx, bool add_weight, bool alias)
{
    op_case c;
    op_begin(&c, "rmsnorm_backward N=%d C=%d add %d %d alias %d", (int)N, (int)C, add_dx,
             add_weight, alias);
    const float *x = op_input(&c, "x", N * C, 2.0), *weight = op_input(&c, "weight", C, 1.0);
    float *scale = op_fp32(&c, op_input(&c, "scale", N, 1.0));
    float *dx = alias ? op_inout(&c, "dx", N * C, 1.0) : op_output(&c, "dx", N * C, add_dx);
    const float *dy = alias ? dx : op_input(&c, "dy", N * C, 1.0);
    float *dweight = op_output(&c, "dweight", C, add_weight);
    wide w = widen(&c, x, weight, N, C);
    w.dy = op_widen(&c, dy);
    reference(&w);
    for (int64_t n = 0; n < N; ++n)
        scale[n] = (float)w.scale[n];
    op_input_changed(&c, scale);
    const gradients g = {op_doubles(&c, N * C), op_doubles(&c, C), op_doubles(&c, N * C),
                         op_doubles(&c, C)};
    for (int64_t n = 0; n < N; ++n)
        gradients_of_row(&w, &g, n);
    if (C >= 5) { // rows of few channels are too curved for differences
        op_check_gradient(&c, "x", objective, &w, w.x, N * C, g.dx, 20);
        op_check_gradient(&c, "weight", objective, &w, w.weight, C, g.dweight, 20);
    }
    for (int64_t i = 0; alias && add_dx && i < N * C; ++i) {
        g.dx[i] += w.dy[i];
        g.dx_sum[i] += fabs(w.dy[i]);
    }
    op_expect(&c, dx, g.dx, g.dx_sum, row_tolerance(C));
    op_expect(&c, dweight, g.dweight, g.dweight_sum, row_tolerance(C));
    const mics_op op = {.kind = MICS_OP_RMSNORM, .eps = (float)EPS};
    const mics_op_shape shape = {.op = &op, .N = N, .in = {C}, .out = C};
    const mics_exec at = op_exec(
        1, op_space(&c, "workspace", mics_op_def_get(op.kind)->cost(&shape).workspace_backward));
    const mics_op_call call = {.at = &at,
                               .shape = shape,
                               .in = {x},
                               .stats = scale,
                               .params = {weight},
                               .dout = dy,
                               .din = dx,
                               .dparams = {dweight},
                               .add_din = add_dx,
                               .add_params = {add_weight}};
    op_run(&c, run_backward, &call);
    op_end(&c);
}

static void rmsnorm_matches_reference(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 3, 15, 16, 17, 63, 130};
    static const int64_t channels[] = {1, 2, 3, 5, 17, 64, 65, 127, 768};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
        for (size_t j = 0; j < sizeof channels / sizeof *channels; ++j) {
            const int flags = (int)(i + j) % 8;
            forward_case(rows[i], channels[j], 2.0);
            backward_case(rows[i], channels[j], flags & 1, flags & 2, flags & 4);
        }
    for (int flags = 0; flags < 8; ++flags)
        backward_case(33, 70, flags & 1, flags & 2, flags & 4);
    forward_case(3, 768, 1e-4); // eps counts
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rmsnorm_matches_reference)};
    return op_run_tests(tests);
}
