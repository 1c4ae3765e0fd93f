// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Embedding and layernorm.
#include "op_harness.h"
#include "ops/common/def.h"
#include <math.h>
#include <string.h>

// ---- embedding ----

typedef struct embedding {
    float *y, *dwte, *dwpe, *workspace;
    const float *wte, *wpe, *dy;
    const int32_t *tokens;
    int64_t N, T, C, V, P;
    bool add_wte, add_wpe;
} embedding;

static void run_embedding_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const embedding *e = args;
    const mics_exec at = op_exec(threads, NULL);
    op_embedding_forward(k, &at, e->y, e->tokens, e->wte, e->wpe, e->N, e->T, e->C);
}

static void run_embedding_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const embedding *e = args;
    const mics_exec at = op_exec(threads, e->workspace);
    op_embedding_backward(k, &at, e->dwte, e->dwpe, e->dy, e->tokens, NULL, e->N, e->T, e->C, e->V,
                          e->P, e->add_wte, e->add_wpe);
}

static void embedding_forward_case(int64_t B, int64_t T, int64_t C, int64_t V, bool positions)
{
    op_case c;
    op_begin(&c, "embedding_forward B=%d T=%d C=%d V=%d wpe=%d", (int)B, (int)T, (int)C, (int)V,
             positions);
    embedding e = {.N = B * T, .T = T, .C = C, .V = V, .P = T + 2};
    e.tokens = op_random_ints(&c, e.N, V);
    e.wte = op_input(&c, "wte", V * C, 1.0);
    e.wpe = positions ? op_input(&c, "wpe", e.P * C, 1.0) : NULL;
    e.y = op_output(&c, "y", e.N * C, false);
    double *want = op_doubles(&c, e.N * C), *magnitude = op_doubles(&c, e.N * C);
    for (int64_t i = 0; i < e.N * C; ++i) {
        const double a = (double)e.wte[e.tokens[i / C] * C + i % C];
        const double b = positions ? (double)e.wpe[i / C % T * C + i % C] : 0.0;
        want[i] = a + b;
        magnitude[i] = fabs(a) + fabs(b);
    }
    op_expect(&c, e.y, want, magnitude, positions ? OP_TOLERANCE : 0.0);
    op_run(&c, run_embedding_forward, &e);
    op_end(&c);
}

// The gradient of a sum of table rows is plain counting, so differences would add nothing.
static void embedding_backward_case(int64_t B, int64_t T, int64_t C, int64_t V, bool positions,
                                    bool add_wte, bool add_wpe)
{
    op_case c;
    op_begin(&c, "embedding_backward B=%d T=%d C=%d V=%d wpe=%d add %d %d", (int)B, (int)T, (int)C,
             (int)V, positions, add_wte, add_wpe);
    embedding e = {.N = B * T, .T = T, .C = C, .V = V, .P = T + 3};
    e.add_wte = add_wte;
    e.add_wpe = add_wpe;
    e.tokens = op_random_ints(&c, e.N, V);
    e.dy = op_input(&c, "dy", e.N * C, 1.0);
    e.dwte = op_output(&c, "dwte", V * C, add_wte);
    e.dwpe = positions ? op_output(&c, "dwpe", e.P * C, add_wpe) : NULL;
    double *dwte = op_doubles(&c, V * C), *dwte_sum = op_doubles(&c, V * C);
    double *dwpe = op_doubles(&c, e.P * C), *dwpe_sum = op_doubles(&c, e.P * C);
    for (int64_t i = 0; i < e.N * C; ++i) {
        const double dy = (double)e.dy[i];
        dwte[e.tokens[i / C] * C + i % C] += dy;
        dwte_sum[e.tokens[i / C] * C + i % C] += fabs(dy);
        dwpe[i / C % T * C + i % C] += dy;
        dwpe_sum[i / C % T * C + i % C] += fabs(dy);
    }
    e.workspace = op_space(&c, "workspace", e.N + V + 1);
    op_expect(&c, e.dwte, dwte, dwte_sum, OP_TOLERANCE);
    if (positions)
        op_expect(&c, e.dwpe, dwpe, dwpe_sum, OP_TOLERANCE);
    op_run(&c, run_embedding_backward, &e);
    op_end(&c);
}

static void embedding_matches_reference(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {// B, T, C, V
                                        {1, 1, 1, 1},   {1, 1, 5, 1},    {2, 3, 17, 7},
                                        {3, 5, 63, 2},  {1, 17, 64, 9},  {2, 63, 65, 130},
                                        {5, 2, 127, 3}, {4, 65, 130, 11}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        const int64_t *s = shapes[i];
        for (int flags = 0; flags < 8; ++flags) {
            if (flags < 2)
                embedding_forward_case(s[0], s[1], s[2], s[3], flags);
            embedding_backward_case(s[0], s[1], s[2], s[3], flags & 1, flags & 2, flags & 4);
        }
    }
}

// ---- layernorm ----

static const double EPS = 1e-5;

// Kernels sum a row in whatever order; rounding grows with the root of its length. Far from 0 a row
// of bf16 has few different numbers, which round alike: then with its length.
static double row_tolerance(int64_t C)
{
    return OP_TOLERANCE * (1 + (op_bf16() ? (double)C : sqrt((double)C)) / 16);
}

typedef struct layernorm {
    float *y, *new_stats, *dx, *dweight, *dbias, *workspace;
    const float *x, *weight, *bias, *dy, *stats;
    int64_t N, C;
    bool add_dx, add_params;
} layernorm;

static void run_layernorm_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const layernorm *l = args;
    const mics_exec at = op_exec(threads, NULL);
    op_layernorm_forward(k, &at, l->y, l->new_stats, l->x, l->weight, l->bias, (float)EPS, l->N,
                         l->C);
}

static void run_layernorm_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const layernorm *l = args;
    const mics_exec at = op_exec(threads, l->workspace);
    op_layernorm_backward(k, &at, l->dx, l->dweight, l->dbias, l->dy, l->x, l->stats, l->weight,
                          l->N, l->C, l->add_dx, l->add_params);
}

// The reference in fp64. Also |x| averaged over a row: rounding of the mean scales with it.
typedef struct layernorm_wide {
    double *x, *weight, *bias, *dy, *y, *stats, *mean_abs;
    int64_t N, C;
} layernorm_wide;

static void layernorm_reference(const layernorm_wide *w)
{
    for (int64_t n = 0; n < w->N; ++n) {
        const double *x = w->x + n * w->C;
        double sum = 0, sum_abs = 0, squares = 0;
        for (int64_t i = 0; i < w->C; ++i) {
            sum += x[i];
            sum_abs += fabs(x[i]);
        }
        const double mean = sum / (double)w->C;
        for (int64_t i = 0; i < w->C; ++i)
            squares += (x[i] - mean) * (x[i] - mean);
        const double scale = 1 / sqrt(squares / (double)w->C + (double)(float)EPS);
        for (int64_t i = 0; i < w->C; ++i)
            w->y[n * w->C + i] = (x[i] - mean) * scale * w->weight[i] + w->bias[i];
        w->stats[2 * n] = mean;
        w->stats[2 * n + 1] = scale;
        w->mean_abs[n] = sum_abs / (double)w->C;
    }
}

static double layernorm_objective(const void *ctx)
{
    const layernorm_wide *w = ctx;
    layernorm_reference(w);
    return op_dot(w->y, w->dy, w->N * w->C);
}

static layernorm_wide widen(op_case *c, const layernorm *l)
{
    layernorm_wide w = {.N = l->N, .C = l->C};
    w.x = op_widen(c, l->x);
    w.weight = op_widen(c, l->weight);
    w.bias = op_widen(c, l->bias);
    w.y = op_doubles(c, l->N * l->C);
    w.stats = op_doubles(c, l->N * 2);
    w.mean_abs = op_doubles(c, l->N);
    return w;
}

static void layernorm_forward_case(int64_t N, int64_t C, double offset)
{
    op_case c;
    op_begin(&c, "layernorm_forward N=%d C=%d offset=%g", (int)N, (int)C, offset);
    layernorm l = {.N = N, .C = C};
    float *x = op_input(&c, "x", N * C, 2.0);
    for (int64_t i = 0; i < N * C; ++i)
        x[i] += (float)offset;
    op_input_changed(&c, x);
    l.x = x;
    l.weight = op_input(&c, "weight", C, 1.0);
    l.bias = op_input(&c, "bias", C, 1.0);
    l.y = op_output(&c, "y", N * C, false);
    l.new_stats = op_fp32(&c, op_output(&c, "stats", N * 2, false));
    layernorm_wide w = widen(&c, &l);
    layernorm_reference(&w);
    double *y_sum = op_doubles(&c, N * C), *stats_sum = op_doubles(&c, N * 2);
    for (int64_t i = 0; i < N * C; ++i) {
        const int64_t n = i / C;
        y_sum[i] = (fabs(w.x[i]) + w.mean_abs[n]) * w.stats[2 * n + 1] * fabs(w.weight[i % C]) +
                   fabs(w.bias[i % C]);
        stats_sum[2 * n] = w.mean_abs[n];
        stats_sum[2 * n + 1] = w.stats[2 * n + 1];
    }
    op_expect(&c, l.y, w.y, y_sum, row_tolerance(C));
    op_expect(&c, l.new_stats, w.stats, stats_sum, row_tolerance(C));
    op_run(&c, run_layernorm_forward, &l);
    op_end(&c);
}

// Gradients in fp64 by the formulas, each with the sum of its absolute terms.
typedef struct layernorm_gradients {
    double *dx, *dweight, *dbias, *dx_sum, *dweight_sum, *dbias_sum;
} layernorm_gradients;

static void layernorm_gradients_row(const layernorm_wide *w, const layernorm_gradients *g,
                                    int64_t n)
{
    const int64_t C = w->C;
    const double mean = w->stats[2 * n], scale = w->stats[2 * n + 1];
    double sum = 0, sum_normal = 0, abs_sum = 0, abs_normal = 0;
    for (int64_t i = 0; i < C; ++i) {
        const double dy = w->dy[n * C + i], x = w->x[n * C + i], normal = (x - mean) * scale;
        const double normal_sum = (fabs(x) + w->mean_abs[n]) * scale;
        sum += dy * w->weight[i];
        sum_normal += dy * w->weight[i] * normal;
        abs_sum += fabs(dy * w->weight[i]);
        abs_normal += fabs(dy * w->weight[i]) * normal_sum;
        g->dweight[i] += dy * normal;
        g->dweight_sum[i] += fabs(dy) * normal_sum;
        g->dbias[i] += dy;
        g->dbias_sum[i] += fabs(dy);
    }
    for (int64_t i = 0; i < C; ++i) {
        const double from = w->dy[n * C + i] * w->weight[i], x = w->x[n * C + i];
        const double normal = (x - mean) * scale, count = (double)C;
        const double normal_sum = (fabs(x) + w->mean_abs[n]) * scale;
        g->dx[n * C + i] = scale * (from - sum / count - normal * sum_normal / count);
        g->dx_sum[n * C + i] =
            scale * (fabs(from) + abs_sum / count + normal_sum * abs_normal / count);
    }
}

static void layernorm_backward_case(int64_t N, int64_t C, bool add_dx, bool add_params, bool alias)
{
    op_case c;
    op_begin(&c, "layernorm_backward N=%d C=%d add %d %d alias %d", (int)N, (int)C, add_dx,
             add_params, alias);
    layernorm l = {.N = N, .C = C, .add_dx = add_dx, .add_params = add_params};
    l.x = op_input(&c, "x", N * C, 2.0);
    l.weight = op_input(&c, "weight", C, 1.0);
    l.bias = op_input(&c, "bias", C, 1.0);
    float *stats = op_fp32(&c, op_input(&c, "stats", N * 2, 1.0));
    l.stats = stats;
    l.dx = alias ? op_inout(&c, "dx", N * C, 1.0) : op_output(&c, "dx", N * C, add_dx);
    l.dy = alias ? l.dx : op_input(&c, "dy", N * C, 1.0);
    l.dweight = op_output(&c, "dweight", C, add_params);
    l.dbias = op_output(&c, "dbias", C, add_params);
    l.workspace = op_space(&c, "workspace", 2 * C * MICS_NORM_BLOCKS);
    layernorm_wide w = widen(&c, &l);
    w.dy = op_widen(&c, l.dy);
    layernorm_reference(&w);
    for (int64_t i = 0; i < N * 2; ++i)
        stats[i] = (float)w.stats[i];
    op_input_changed(&c, stats);
    const layernorm_gradients g = {op_doubles(&c, N * C), op_doubles(&c, C), op_doubles(&c, C),
                                   op_doubles(&c, N * C), op_doubles(&c, C), op_doubles(&c, C)};
    for (int64_t n = 0; n < N; ++n)
        layernorm_gradients_row(&w, &g, n);
    if (C >= 5) { // rows of few channels may be nearly constant: too curved for differences
        op_check_gradient(&c, "x", layernorm_objective, &w, w.x, N * C, g.dx, 20);
        op_check_gradient(&c, "weight", layernorm_objective, &w, w.weight, C, g.dweight, 20);
        op_check_gradient(&c, "bias", layernorm_objective, &w, w.bias, C, g.dbias, 20);
    }
    for (int64_t i = 0; alias && add_dx && i < N * C; ++i) {
        g.dx[i] += w.dy[i];
        g.dx_sum[i] += fabs(w.dy[i]);
    }
    op_expect(&c, l.dx, g.dx, g.dx_sum, row_tolerance(C));
    op_expect(&c, l.dweight, g.dweight, g.dweight_sum, row_tolerance(C));
    op_expect(&c, l.dbias, g.dbias, g.dbias_sum, OP_TOLERANCE);
    op_run(&c, run_layernorm_backward, &l);
    op_end(&c);
}

static void layernorm_matches_reference(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 3, 5, 15, 16, 17, 63, 130};
    static const int64_t channels[] = {1, 2, 3, 5, 17, 63, 64, 65, 127, 130, 768};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
        for (size_t j = 0; j < sizeof channels / sizeof *channels; ++j) {
            layernorm_forward_case(rows[i], channels[j], 0.0);
            const int flags = (int)(i + j) % 8;
            layernorm_backward_case(rows[i], channels[j], flags & 1, flags & 2, flags & 4);
        }
    for (int flags = 0; flags < 8; ++flags)
        layernorm_backward_case(33, 70, flags & 1, flags & 2, flags & 4);
    layernorm_forward_case(3, 768, 1000.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_matches_reference),
        cmocka_unit_test(layernorm_matches_reference),
    };
    return op_run_tests(tests);
}
