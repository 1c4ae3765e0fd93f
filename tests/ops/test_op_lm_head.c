// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The LM head with cross-entropy.
#include "base/rng.h"
#include "op_harness.h"
#include "ops/gemm/def.h"
#include "ops/lm_head/def.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct lm_head {
    float *loss, *dx, *dweight, *workspace;
    const float *x, *weight;
    const int32_t *targets;
    float scale;
    int64_t N, C, V, rows;
    bool add_dweight;
} lm_head;

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const lm_head *l = args;
    const mics_exec at = op_exec(threads, l->workspace);
    op_lm_head_forward(k, &at, l->loss, l->x, l->weight, l->targets, l->N, l->C, l->V, l->rows);
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const lm_head *l = args;
    const mics_exec at = op_exec(threads, l->workspace);
    op_lm_head_backward(k, &at, l->loss, l->dx, l->dweight, l->x, l->weight, l->targets, l->scale,
                        l->N, l->C, l->V, l->add_dweight, l->rows);
}

// All in fp64, with all logits at once. `uncertain`: absolute terms of a row's largest logit, in
// which the error of its exponentials is measured.
typedef struct lm_head_wide {
    double *x, *weight, *logits, *loss, *loss_sum, *uncertain;
    const int32_t *targets;
    double scale;
    int64_t N, C, V;
} lm_head_wide;

static void reference_row(const lm_head_wide *w, int64_t n)
{
    double *logits = w->logits + n * w->V, highest = -INFINITY, sum = 0;
    w->uncertain[n] = w->loss[n] = w->loss_sum[n] = 0;
    if (w->targets[n] < 0) { // it does not count
        memset(logits, 0, (size_t)w->V * sizeof *logits);
        return;
    }
    for (int64_t v = 0; v < w->V; ++v) {
        double logit = 0, terms = 0;
        for (int64_t i = 0; i < w->C; ++i) {
            logit += w->x[n * w->C + i] * w->weight[v * w->C + i];
            terms += fabs(w->x[n * w->C + i] * w->weight[v * w->C + i]);
        }
        logits[v] = logit;
        highest = fmax(highest, logit);
        w->uncertain[n] = fmax(w->uncertain[n], terms);
    }
    for (int64_t v = 0; v < w->V; ++v)
        sum += exp(logits[v] - highest);
    const double log_sum = highest + log(sum), target = logits[w->targets[n]];
    w->loss[n] = log_sum - target;
    w->loss_sum[n] = 2 * w->uncertain[n] + 1;
    for (int64_t v = 0; v < w->V; ++v) // from here on: probabilities
        logits[v] = exp(logits[v] - log_sum);
}

static double objective(const void *ctx)
{
    const lm_head_wide *w = ctx;
    double sum = 0;
    for (int64_t n = 0; n < w->N; ++n) {
        reference_row(w, n);
        sum += w->scale * w->loss[n];
    }
    return sum;
}

static lm_head_wide widen(op_case *c, const lm_head *l)
{
    lm_head_wide w = {.N = l->N, .C = l->C, .V = l->V, .targets = l->targets};
    w.scale = (double)l->scale;
    w.x = op_widen(c, l->x);
    w.weight = op_widen(c, l->weight);
    w.logits = op_doubles(c, l->N * l->V);
    w.loss = op_doubles(c, l->N);
    w.loss_sum = op_doubles(c, l->N);
    w.uncertain = op_doubles(c, l->N);
    return w;
}

static void gradients(const lm_head_wide *w, double *dx, double *dx_sum, double *dweight,
                      double *dweight_sum)
{
    for (int64_t n = 0; n < w->N; ++n)
        for (int64_t v = 0; v < w->V; ++v) {
            const double p = w->logits[n * w->V + v], hit = v == w->targets[n];
            const double d = w->scale * (p - hit);
            const double terms = fabs(w->scale) * (p * (2 + 2 * w->uncertain[n]) + hit);
            for (int64_t i = 0; i < w->C; ++i) {
                dx[n * w->C + i] += d * w->weight[v * w->C + i];
                dx_sum[n * w->C + i] += terms * fabs(w->weight[v * w->C + i]);
                dweight[v * w->C + i] += d * w->x[n * w->C + i];
                dweight_sum[v * w->C + i] += terms * fabs(w->x[n * w->C + i]);
            }
        }
}

// Floats: as the descriptor says, with chunks of so many rows.
static int64_t workspace_of(int64_t rows, int64_t V, int64_t C)
{
    const int64_t gemms[] = {mics_gemm_floats_bf16(rows, V, C), mics_gemm_floats_bf16(rows, C, V),
                             mics_gemm_floats_bf16(V, C, rows)};
    int64_t most = 0;
    for (int i = 0; i < 3; ++i)
        most = gemms[i] > most ? gemms[i] : most;
    return op_bf16() ? mics_logits_floats_bf16(rows, V) + V * C + most : rows * V;
}

// Of 100 rows so many count, as chance has it; the first `rows` never where they are fewer.
static void drop_targets(int32_t *targets, int64_t N, int64_t rows, int counted)
{
    for (int64_t n = 0; n < N; ++n) {
        const bool first = n < rows && rows < N;
        if (counted < 100 && (first || mics_rng_bits(3, 3, (uint64_t)n) % 100 >= (uint64_t)counted))
            targets[n] = n % 2 ? -1 : -100;
    }
}

static void lm_head_case(int64_t N, int64_t C, int64_t V, int64_t rows, double spread,
                         bool add_dweight, int counted)
{
    op_case c;
    char dropped[32] = ""; // not in the names of the others, which their numbers are drawn from
    if (counted < 100)
        snprintf(dropped, sizeof dropped, ", %d%% count", counted);
    op_begin(&c, "lm_head N=%d C=%d V=%d rows=%d spread=%g add %d%s", (int)N, (int)C, (int)V,
             (int)rows, spread, add_dweight, dropped);
    c.depends_on_threads = true;
    lm_head l = {.N = N, .C = C, .V = V, .rows = rows, .scale = 0.3F};
    l.add_dweight = add_dweight;
    int32_t *targets = op_random_ints(&c, N, V);
    drop_targets(targets, N, rows, counted);
    l.targets = targets;
    l.x = op_input(&c, "x", N * C, spread);
    l.weight = op_input(&c, "weight", V * C, 1.0);
    l.loss = op_fp32(&c, op_output(&c, "loss", N, false));
    l.workspace = op_space(&c, "workspace", workspace_of(rows, V, C));
    lm_head_wide w = widen(&c, &l);
    objective(&w);
    op_expect(&c, l.loss, w.loss, w.loss_sum, OP_TOLERANCE + op_bf16_roundings(1));
    op_run(&c, run_forward, &l);

    l.dx = op_output(&c, "dx", N * C, false);
    l.dweight = op_output(&c, "dweight", V * C, add_dweight);
    double *dx = op_doubles(&c, N * C), *dx_sum = op_doubles(&c, N * C);
    double *dweight = op_doubles(&c, V * C), *dweight_sum = op_doubles(&c, V * C);
    gradients(&w, dx, dx_sum, dweight, dweight_sum);
    // dx sums over the vocabulary in fp32; rounding grows with the root of its length.
    const double tolerance = OP_TOLERANCE * sqrt(1 + (double)V / 4096);
    const int64_t samples = V > 1000 ? 2 : 8;
    if (spread < 10) { // the derivatives of steeper rows are too large for differences
        op_check_gradient(&c, "x", objective, &w, w.x, N * C, dx, samples);
        op_check_gradient(&c, "weight", objective, &w, w.weight, V * C, dweight, samples);
        objective(&w);
    }
    op_expect(&c, l.dx, dx, dx_sum, tolerance + op_bf16_roundings(2));
    op_expect(&c, l.dweight, dweight, dweight_sum, OP_TOLERANCE + op_bf16_roundings(2));
    op_run(&c, run_backward, &l);
    op_end(&c);
}

static void lm_head_matches_reference(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {// N, C, V, workspace_rows
                                        {1, 1, 1, 1},      {3, 2, 1, 2},     {1, 5, 7, 1},
                                        {5, 3, 2, 2},      {17, 17, 7, 4},   {63, 5, 65, 64},
                                        {64, 63, 127, 64}, {65, 64, 64, 17}, {130, 17, 130, 33},
                                        {2, 65, 3, 5},     {7, 3, 4099, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        const int64_t *s = shapes[i];
        lm_head_case(s[0], s[1], s[2], s[3], 1.0, false, 100);
        lm_head_case(s[0], s[1], s[2], s[3], 1.0, true, 100);
    }
    lm_head_case(5, 7, 50257, 2, 1.0, false, 100);
    // Logits far beyond what an exponential in fp32 can hold.
    lm_head_case(9, 17, 65, 4, 300.0, false, 100);
}

// Few rows, which are gathered; most, which are not; and none.
static void rows_that_do_not_count(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{1, 1, 1, 1},      {5, 3, 2, 2},     {63, 5, 65, 64},
                                        {64, 63, 127, 64}, {65, 64, 64, 17}, {130, 17, 131, 33},
                                        {40, 9, 40, 40},   {7, 3, 4099, 3}};
    static const int shares[] = {0, 15, 60, 97};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int share = 0; share < 4; ++share) {
            const int64_t *s = shapes[i];
            lm_head_case(s[0], s[1], s[2], s[3], 1.0, share % 2, shares[share]);
        }
    lm_head_case(9, 17, 65, 4, 300.0, false, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lm_head_matches_reference),
                                       cmocka_unit_test(rows_that_do_not_count)};
    return op_run_tests(tests);
}
