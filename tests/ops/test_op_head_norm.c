// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// RMSNorm of query and key heads.
#include "op_harness.h"
#include "ops/common/def.h"
#include <math.h>

static const double EPS = 1e-6;

typedef struct norm {
    float *y, *new_scales, *dx, *dweights[2], *workspace;
    const float *x, *weights[2], *scales, *dy;
    int64_t N;
    mics_heads heads;
    bool add_dx, add_weights;
} norm;

static int64_t normed(const norm *a)
{
    return a->heads.query + a->heads.key_value;
}

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const norm *a = args;
    const mics_exec at = op_exec(threads, NULL);
    op_head_norm_forward(k, &at, a->y, a->new_scales, a->x, a->weights[0], a->weights[1],
                         (float)EPS, a->N, a->heads);
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const norm *a = args;
    const mics_exec at = op_exec(threads, a->workspace);
    void *const dweights[] = {a->dweights[0], a->dweights[1]};
    const void *const weights[] = {a->weights[0], a->weights[1]};
    op_head_norm_backward(k, &at, a->dx, dweights, a->dy, a->x, a->scales, weights, a->N, a->heads,
                          a->add_dx, a->add_weights);
}

// The reference in fp64.
typedef struct wide {
    double *x, *weights[2], *y, *scales, *dy;
    const norm *of;
} wide;

static void reference(const wide *w)
{
    const norm *a = w->of;
    const int64_t D = a->heads.dim, W = mics_heads_width(a->heads), heads = normed(a);
    for (int64_t i = 0; i < a->N * W; ++i)
        w->y[i] = w->x[i];
    for (int64_t i = 0; i < a->N * heads; ++i) {
        const double *x = w->x + i / heads * W + i % heads * D;
        const double *weight = w->weights[i % heads < a->heads.query ? 0 : 1];
        double *y = w->y + (x - w->x);
        w->scales[i] = 1 / sqrt(op_dot(x, x, D) / (double)D + (double)(float)EPS);
        for (int64_t d = 0; d < D; ++d)
            y[d] = x[d] * w->scales[i] * weight[d];
    }
}

static double objective(const void *ctx)
{
    const wide *w = ctx;
    reference(w);
    return op_dot(w->y, w->dy, w->of->N * mics_heads_width(w->of->heads));
}

static wide begin(op_case *c, const char *pass, norm *a)
{
    const int64_t elems = a->N * mics_heads_width(a->heads);
    op_begin(c, "head_norm_%s N=%d heads=%d/%d D=%d add %d %d", pass, (int)a->N,
             (int)a->heads.query, (int)a->heads.key_value, (int)a->heads.dim, a->add_dx,
             a->add_weights);
    a->x = op_input(c, "x", elems, 2.0);
    a->weights[0] = op_input(c, "query weight", a->heads.dim, 1.0);
    a->weights[1] = op_input(c, "key weight", a->heads.dim, 1.0);
    wide w = {.of = a, .x = op_widen(c, a->x)};
    w.weights[0] = op_widen(c, a->weights[0]);
    w.weights[1] = op_widen(c, a->weights[1]);
    w.y = op_doubles(c, elems);
    w.scales = op_doubles(c, a->N * normed(a));
    return w;
}

static void forward_case(norm a)
{
    const int64_t elems = a.N * mics_heads_width(a.heads);
    op_case c;
    const wide w = begin(&c, "forward", &a);
    a.y = op_output(&c, "y", elems, false);
    a.new_scales = op_fp32(&c, op_output(&c, "scales", a.N * normed(&a), false));
    reference(&w);
    double *y_sum = op_doubles(&c, elems);
    for (int64_t i = 0; i < elems; ++i)
        y_sum[i] = fabs(w.y[i]);
    op_expect(&c, a.y, w.y, y_sum, 2 * OP_TOLERANCE);
    op_expect(&c, a.new_scales, w.scales, w.scales, 2 * OP_TOLERANCE);
    op_run(&c, run_forward, &a);
    op_end(&c);
}

// Gradients by the formulas, each with the sum of its absolute terms.
typedef struct gradients {
    double *dx, *dx_sum, *dweights[2], *dweight_sums[2];
} gradients;

static void gradients_of_head(const wide *w, const gradients *g, int64_t index)
{
    const norm *a = w->of;
    const int64_t D = a->heads.dim, heads = normed(a);
    const int64_t at = index / heads * mics_heads_width(a->heads) + index % heads * D;
    const int key = index % heads < a->heads.query ? 0 : 1;
    const double scale = w->scales[index], *x = w->x + at, *dy = w->dy + at;
    double sum = 0, abs_sum = 0;
    for (int64_t d = 0; d < D; ++d) {
        const double term = dy[d] * x[d] * scale;
        sum += term * w->weights[key][d];
        abs_sum += fabs(term * w->weights[key][d]);
        g->dweights[key][d] += term;
        g->dweight_sums[key][d] += fabs(term);
    }
    for (int64_t d = 0; d < D; ++d) {
        const double own = dy[d] * w->weights[key][d], normal = x[d] * scale;
        g->dx[at + d] = scale * (own - normal * sum / (double)D);
        g->dx_sum[at + d] = scale * (fabs(own) + fabs(normal) * abs_sum / (double)D);
    }
}

static gradients gradients_of(op_case *c, const wide *w)
{
    const norm *a = w->of;
    const int64_t elems = a->N * mics_heads_width(a->heads), D = a->heads.dim;
    const gradients g = {op_doubles(c, elems),
                         op_doubles(c, elems),
                         {op_doubles(c, D), op_doubles(c, D)},
                         {op_doubles(c, D), op_doubles(c, D)}};
    for (int64_t i = 0; i < elems; ++i) {
        g.dx[i] = w->dy[i]; // of values
        g.dx_sum[i] = fabs(w->dy[i]);
    }
    for (int64_t i = 0; i < a->N * normed(a); ++i)
        gradients_of_head(w, &g, i);
    return g;
}

static void backward_case(norm a, bool alias)
{
    const int64_t elems = a.N * mics_heads_width(a.heads), D = a.heads.dim;
    op_case c;
    wide w = begin(&c, alias ? "backward in place" : "backward", &a);
    float *scales = op_fp32(&c, op_input(&c, "scales", a.N * normed(&a), 1.0));
    a.scales = scales;
    a.dx = alias ? op_inout(&c, "dx", elems, 1.0) : op_output(&c, "dx", elems, a.add_dx);
    a.dy = alias ? a.dx : op_input(&c, "dy", elems, 1.0);
    a.dweights[0] = op_output(&c, "dweight of queries", D, a.add_weights);
    a.dweights[1] = op_output(&c, "dweight of keys", D, a.add_weights);
    w.dy = op_widen(&c, a.dy);
    reference(&w);
    for (int64_t i = 0; i < a.N * normed(&a); ++i)
        scales[i] = (float)w.scales[i];
    op_input_changed(&c, scales);
    const gradients g = gradients_of(&c, &w);
    if (D >= 5) { // heads of few numbers are too curved for differences
        op_check_gradient(&c, "x", objective, &w, w.x, elems, g.dx, 20);
        op_check_gradient(&c, "query weight", objective, &w, w.weights[0], D, g.dweights[0], 10);
        op_check_gradient(&c, "key weight", objective, &w, w.weights[1], D, g.dweights[1], 10);
    }
    for (int64_t i = 0; alias && a.add_dx && i < elems; ++i) {
        g.dx[i] += w.dy[i];
        g.dx_sum[i] += fabs(w.dy[i]);
    }
    op_expect(&c, a.dx, g.dx, g.dx_sum, 2 * OP_TOLERANCE);
    for (int p = 0; p < 2; ++p)
        op_expect(&c, a.dweights[p], g.dweights[p], g.dweight_sums[p], 2 * OP_TOLERANCE);
    const mics_op op = {.kind = MICS_OP_HEAD_NORM, .heads = a.heads};
    mics_op_shape shape = op_heads_shape(1, a.N, a.heads);
    shape.op = &op;
    a.workspace =
        op_space(&c, "workspace", mics_op_def_get(op.kind)->cost(&shape).workspace_backward);
    op_run(&c, run_backward, &a);
    op_end(&c);
}

static void head_norm_matches_reference(void **state)
{
    (void)state;
    static const mics_heads heads[] = {{1, 1, 1}, {6, 2, 40}, {5, 1, 40}, {3, 3, 17}, {4, 2, 128}};
    static const int64_t rows[] = {1, 2, 15, 17, 70};
    for (int i = 0; i < 5; ++i)
        for (int j = 0; j < 5; ++j) {
            const int flags = (i + 2 * j) % 8;
            const norm a = {
                .N = rows[i], .heads = heads[j], .add_dx = flags & 1, .add_weights = flags & 2};
            forward_case(a);
            backward_case(a, flags & 4);
        }
    for (int flags = 0; flags < 8; ++flags)
        backward_case(
            (norm){.N = 33, .heads = {6, 2, 10}, .add_dx = flags & 1, .add_weights = flags & 2},
            flags & 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(head_norm_matches_reference)};
    return op_run_tests(tests);
}
