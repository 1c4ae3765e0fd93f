// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A router on a GPU against fp64: scores, choices, places, gradients with and without its losses,
// and what it adds to the metrics; many tokens and many experts, equal scores, NaN.
#include "experts.h"

typedef struct shape {
    int64_t B, T, C;
    mics_experts experts;
    bool normalised, add, masked;
    float balance, z;
} shape;

static const float LOSS_SCALE = 0.25F;

typedef struct router {
    const shape *s;
    const double *x, *w, *dy;
    double *p, *terms, *lse, *entropy, *gates; // (N, E), (N), (N), (N), (N, k)
    double *count, *mean;                      // (B, E): tokens, and mean probability
    int32_t *chosen, *rows;                    // (N, k)
} router;

static int64_t tokens_of(const shape *s)
{
    return s->B * s->T;
}

static mics_op op_of(const shape *s)
{
    return (mics_op){.kind = MICS_OP_ROUTER,
                     .experts = s->experts,
                     .router = {.normalised = s->normalised, .balance = s->balance, .z = s->z}};
}

static mics_op_shape sizes_of(const shape *s)
{
    return (mics_op_shape){.B = s->B,
                           .T = s->T,
                           .N = tokens_of(s),
                           .in = {s->C},
                           .out = s->experts.chosen,
                           .params = {{s->experts.count, s->C}}};
}

// ---- in fp64 ----

static void choose(const router *r, int64_t n, const double *scores)
{
    const int32_t E = r->s->experts.count, k = r->s->experts.chosen;
    for (int32_t j = 0; j < k; ++j) {
        int32_t best = -1;
        for (int32_t e = 0; e < E; ++e) {
            bool taken = false;
            for (int32_t i = 0; i < j; ++i)
                taken = taken || r->chosen[n * k + i] == e;
            if (!taken && (best < 0 || scores[e] > scores[best]))
                best = e;
        }
        r->chosen[n * k + j] = best;
        r->count[n / r->s->T * E + best] += 1;
    }
}

static void route(const router *r, int64_t n)
{
    const int64_t E = r->s->experts.count, k = r->s->experts.chosen, C = r->s->C;
    double *p = r->p + n * E, sum = 0, chosen = 0;
    for (int64_t e = 0; e < E; ++e) {
        double terms = 0;
        for (int64_t c = 0; c < C; ++c) {
            p[e] += r->x[n * C + c] * r->w[e * C + c];
            terms += fabs(r->x[n * C + c] * r->w[e * C + c]);
        }
        r->terms[n] = fmax(r->terms[n], 1 + terms);
    }
    choose(r, n, p);
    for (int64_t e = 0; e < E; ++e) {
        p[e] = exp(p[e]);
        sum += p[e];
    }
    r->lse[n] = log(sum);
    for (int64_t e = 0; e < E; ++e) {
        p[e] /= sum;
        r->entropy[n] -= p[e] > 0 ? p[e] * log(p[e]) : 0;
        r->mean[n / r->s->T * E + e] += p[e] / (double)r->s->T;
    }
    for (int64_t j = 0; j < k; ++j)
        chosen += p[r->chosen[n * k + j]];
    for (int64_t j = 0; j < k; ++j)
        r->gates[n * k + j] = p[r->chosen[n * k + j]] / (r->s->normalised ? chosen : 1);
}

static router router_of(cu_case *c, const shape *s, const double *x, const double *w)
{
    const int64_t N = tokens_of(s), E = s->experts.count, k = s->experts.chosen;
    router r = {.s = s,
                .x = x,
                .w = w,
                .p = cu_doubles(c, N * E),
                .terms = cu_doubles(c, N),
                .lse = cu_doubles(c, N),
                .entropy = cu_doubles(c, N),
                .gates = cu_doubles(c, N * k),
                .count = cu_doubles(c, s->B * E),
                .mean = cu_doubles(c, s->B * E),
                .chosen = (int32_t *)(void *)cu_doubles(c, N * k)};
    r.rows = r.chosen + N * k;
    for (int64_t n = 0; n < N; ++n)
        route(&r, n);
    experts_place(s->experts, N, r.chosen, r.rows);
    return r;
}

// A row of stats, and how exact its numbers are: terms of scores are their absolute error, in the
// unit of tolerances.
static void fill_stats(const router *r, double *stats, double *sums)
{
    const mics_experts e = r->s->experts;
    const int64_t floats = mics_route_floats(e), k = e.chosen;
    for (int64_t n = 0; n < tokens_of(r->s); ++n) {
        double *row = stats + n * floats, *sum = sums + n * floats;
        for (int32_t i = 0; i < e.count; ++i) {
            row[i] = r->p[n * e.count + i];
            sum[i] = 2 * row[i] * r->terms[n];
        }
        row[e.count] = r->lse[n];
        row[e.count + 1] = r->entropy[n];
        sum[e.count] = sum[e.count + 1] = 4 * r->terms[n];
        for (int64_t j = 0; j < k; ++j) {
            row[e.count + 2 + j] = experts_bits(r->chosen[n * k + j]);
            row[e.count + 2 + k + j] = experts_bits(r->rows[n * k + j]);
        }
    }
}

static int32_t target_of(const shape *s, int64_t n)
{
    return s->masked && n % 3 == 1 ? -1 : 0;
}

static double scale_of(const shape *s, int64_t b)
{
    double counted = 0;
    for (int64_t n = b * s->T; n < (b + 1) * s->T; ++n)
        counted += target_of(s, n) >= 0;
    return (double)LOSS_SCALE * counted / (double)s->T;
}

// Gradients of a token's scores, and sums of the absolute terms behind them.
static void score_gradients(const router *r, int64_t n, double *d, double *sum)
{
    const shape *s = r->s;
    const int64_t E = s->experts.count, k = s->experts.chosen;
    const double *p = r->p + n * E, scale = scale_of(s, n / s->T);
    double chosen = 0, mean = 0, dot = 0, dot_sum = 0;
    for (int64_t j = 0; j < k; ++j) {
        chosen += p[r->chosen[n * k + j]];
        mean += r->dy[n * k + j] * r->gates[n * k + j];
    }
    for (int64_t e = 0; e < E; ++e) {
        d[e] = scale * (double)s->balance * (double)E * r->count[n / s->T * E + e] / (double)s->T;
        sum[e] = fabs(d[e]);
    }
    for (int64_t j = 0; j < k; ++j) {
        const int32_t e = r->chosen[n * k + j];
        d[e] += s->normalised ? (r->dy[n * k + j] - mean) / chosen : r->dy[n * k + j];
        sum[e] += (fabs(r->dy[n * k + j]) + fabs(mean)) / (s->normalised ? chosen : 1);
    }
    for (int64_t e = 0; e < E; ++e) {
        dot += d[e] * p[e];
        dot_sum += sum[e] * p[e];
    }
    for (int64_t e = 0; e < E; ++e) {
        const double z = 2 * scale * (double)s->z * r->lse[n];
        d[e] = p[e] * (d[e] - dot + z);
        sum[e] = 4 * p[e] * (sum[e] + dot_sum + fabs(z));
    }
}

static void gradients(const router *r, double *dx[2], double *dw[2], double *d, double *sum)
{
    const int64_t E = r->s->experts.count, C = r->s->C;
    for (int64_t n = 0; n < tokens_of(r->s); ++n) {
        score_gradients(r, n, d, sum);
        for (int64_t e = 0; e < E; ++e)
            for (int64_t c = 0; c < C; ++c) {
                dx[0][n * C + c] += d[e] * r->w[e * C + c];
                dx[1][n * C + c] += sum[e] * fabs(r->w[e * C + c]);
                dw[0][e * C + c] += d[e] * r->x[n * C + c];
                dw[1][e * C + c] += sum[e] * fabs(r->x[n * C + c]);
            }
    }
}

static void metrics(const router *r, double sums[MICS_ROUTER_SUMS])
{
    const shape *s = r->s;
    const int64_t E = s->experts.count;
    for (int64_t n = 0; n < tokens_of(s); ++n)
        sums[MICS_ROUTER_ENTROPY] += r->entropy[n] / (double)s->T;
    for (int64_t b = 0; b < s->B; ++b) {
        double fullest = 0;
        for (int64_t e = 0; e < E; ++e) {
            const double fraction = r->count[b * E + e] / (double)s->T;
            fullest = fmax(fullest, fraction);
            sums[MICS_ROUTER_BALANCE] += (double)E * fraction * r->mean[b * E + e];
        }
        sums[MICS_ROUTER_FULLEST] += fullest * (double)E / s->experts.chosen;
        sums[MICS_ROUTER_SEQUENCES] += 1;
    }
}

// ---- cases ----

static experts_call begin(cu_case *c, const shape *s, mics_dtype dtype, const char *name)
{
    experts_call of = {.op = op_of(s)};
    cu_begin(c, dtype, op_workspace_of(dtype, of.op, sizes_of(s)),
             "%s B=%d T=%d C=%d experts %d of %d normalised %d add %d masked %d", name, (int)s->B,
             (int)s->T, (int)s->C, (int)s->experts.chosen, (int)s->experts.count, s->normalised,
             s->add, s->masked);
    of.call = (mics_op_call){.shape = sizes_of(s), .loss_scale = LOSS_SCALE};
    return of;
}

static void check_places(const cu_case *c, const router *r, const cu_buffer *stats)
{
    const mics_experts e = r->s->experts;
    const int64_t k = e.chosen;
    for (int64_t at = 0; at < tokens_of(r->s) * k; ++at) {
        const double *row = stats->values + at / k * mics_route_floats(e) + e.count + 2;
        if (row[at % k] != experts_bits(r->chosen[at]) ||
            row[k + at % k] != experts_bits(r->rows[at]))
            fail_msg("%s: token %lld, choice %lld is not expert %d in row %d", c->name,
                     (long long)(at / k), (long long)(at % k), (int)r->chosen[at],
                     (int)r->rows[at]);
    }
}

static void forward_case(const shape *s, mics_dtype dtype)
{
    cu_case c;
    experts_call of = begin(&c, s, dtype, "router_forward");
    const int64_t N = tokens_of(s), E = s->experts.count, k = s->experts.chosen;
    const int64_t floats = N * mics_route_floats(s->experts);
    const cu_buffer *x = cu_input(&c, "x", (int)dtype, N * s->C, 0, 1);
    const cu_buffer *w = cu_input(&c, "weight", (int)dtype, E * s->C, 0, 0.5);
    cu_buffer *gates = cu_output(&c, "weights", (int)dtype, N * k, 0);
    cu_buffer *stats = cu_output(&c, "stats", MICS_DTYPE_FP32, floats, 0);
    const router r = router_of(&c, s, x->values, w->values);
    double *want = cu_doubles(&c, floats), *sum = cu_doubles(&c, floats);
    double *gates_sum = cu_doubles(&c, N * k);
    fill_stats(&r, want, sum);
    for (int64_t at = 0; at < N * k; ++at)
        gates_sum[at] = 4 * r.terms[at / k];
    cu_expect(stats, want, sum, CU_TOLERANCE);
    cu_expect(gates, r.gates, gates_sum, CU_TOLERANCE);
    of.call.in[0] = x->data, of.call.params[0] = w->data;
    of.call.out = gates->data, of.call.stats = stats->data;
    cu_run(&c, run_forward, &of);
    check_places(&c, &r, stats);
    cu_end(&c);
}

static void expect_added(cu_buffer *b, double *const want[2])
{
    for (int64_t i = 0; b->role == CU_INOUT && i < b->elems; ++i) {
        want[0][i] += b->values[i];
        want[1][i] += fabs(b->values[i]);
    }
    cu_expect(b, want[0], want[1], 2 * CU_TOLERANCE);
}

static void backward_case(const shape *s, mics_dtype dtype)
{
    cu_case c;
    experts_call of = begin(&c, s, dtype, "router_backward");
    const int64_t N = tokens_of(s), E = s->experts.count, k = s->experts.chosen, C = s->C;
    const cu_buffer *x = cu_input(&c, "x", (int)dtype, N * C, 0, 1);
    const cu_buffer *w = cu_input(&c, "weight", (int)dtype, E * C, 0, 0.5);
    const cu_buffer *dy = cu_input(&c, "dweights", (int)dtype, N * k, 0, 1);
    router r = router_of(&c, s, x->values, w->values);
    r.dy = dy->values;
    cu_buffer *stats =
        cu_input(&c, "stats", MICS_DTYPE_FP32, N * mics_route_floats(s->experts), 0, 1);
    double *unused = cu_doubles(&c, stats->elems);
    fill_stats(&r, stats->values, unused);
    cu_changed(stats);
    cu_buffer *targets = cu_ints(&c, "targets", N, 1);
    for (int64_t n = 0; n < N; ++n)
        targets->values[n] = target_of(s, n);
    cu_changed(targets);
    cu_buffer *sums = cu_inout(&c, "metrics", CU_FP64, MICS_ROUTER_SUMS, 0, true);
    cu_buffer *dx = cu_inout(&c, "dx", (int)dtype, N * C, 0, s->add);
    cu_buffer *dw = cu_inout(&c, "dweight", (int)dtype, E * C, 0, s->add);
    double *dx_want[2] = {cu_doubles(&c, N * C), cu_doubles(&c, N * C)};
    double *dw_want[2] = {cu_doubles(&c, E * C), cu_doubles(&c, E * C)};
    double *sums_want[2] = {cu_doubles(&c, MICS_ROUTER_SUMS), cu_doubles(&c, MICS_ROUTER_SUMS)};
    gradients(&r, dx_want, dw_want, cu_doubles(&c, E), cu_doubles(&c, E));
    metrics(&r, sums_want[0]);
    for (int i = 0; i < MICS_ROUTER_SUMS; ++i)
        sums_want[1][i] = fabs(sums_want[0][i]) + 1;
    expect_added(dx, dx_want);
    expect_added(dw, dw_want);
    expect_added(sums, sums_want);
    of.call.in[0] = x->data, of.call.params[0] = w->data, of.call.stats = stats->data;
    of.call.dout = dy->data, of.call.din = dx->data, of.call.dparams[0] = dw->data;
    of.call.add_din = of.call.add_params[0] = s->add;
    of.call.targets = s->masked ? targets->data : NULL;
    of.call.router_sums = sums->data;
    cu_run(&c, run_backward, &of);
    cu_end(&c);
}

// ---- tests ----

static const shape shapes[] = {
    {1, 1, 1, {.count = 1, .chosen = 1}, true, false, false, 0, 0},
    {1, 5, 7, {.count = 3, .chosen = 1}, false, true, true, 0.5F, 0},
    {2, 9, 16, {.count = 4, .chosen = 2}, true, false, true, 0.3F, 0.1F},
    {3, 7, 33, {.count = 8, .chosen = 3}, false, true, false, 0, 0.2F},
    {2,
     150,
     8,
     {.count = 8, .chosen = 2},
     true,
     true,
     true,
     1,
     0.1F}, // two blocks of tokens to place
    {1, 70, 1048, {.count = 5, .chosen = 2}, true, false, false, 0.2F, 0},
    {1, 6, 24, {.count = 50, .chosen = 4}, false, false, true, 0.1F, 0.1F},
    {1,
     70,
     8,
     {.count = 300, .chosen = 8},
     true,
     false,
     false,
     2,
     0.1F}, // more experts than threads
};

static void router_matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
            forward_case(&shapes[i], (mics_dtype)dtype);
            backward_case(&shapes[i], (mics_dtype)dtype);
        }
}

// So many that a block places the rows of few tokens.
static void many_experts(void **state)
{
    (void)state;
    static const shape s = {1, 40, 3, {.count = 1100, .chosen = 2}, true, false, false, 1, 0};
    forward_case(&s, MICS_DTYPE_FP32);
    backward_case(&s, MICS_DTYPE_FP32);
}

// Of equal scores the first; NaN counts as the lowest, so that all choices are experts.
static void equal_scores_choose_the_first(void **state)
{
    (void)state;
    enum { E = 40, K = 3, C = 8, N = 4 };
    static const shape s = {1, N, C, {.count = E, .chosen = K}, true, false, false, 0, 0};
    static const int32_t want[N][K] = {{2, 37, 0}, {2, 37, 0}, {0, 1, 2}, {5, 2, 37}};
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
        cu_case c;
        experts_call of = begin(&c, &s, (mics_dtype)dtype, "equal scores");
        cu_buffer *x = cu_input(&c, "x", dtype, N * C, 0, 1);
        cu_buffer *w = cu_input(&c, "weight", dtype, E * C, 0, 1);
        cu_buffer *gates = cu_output(&c, "weights", dtype, N * K, 0);
        cu_buffer *stats =
            cu_output(&c, "stats", MICS_DTYPE_FP32, N * mics_route_floats(s.experts), 0);
        for (int i = 0; i < N * C; ++i)
            x->values[i] = i / C == 2 && i % C == 3 ? (double)NAN : i / C == 3 ? 2 : 1;
        for (int i = 0; i < E * C; ++i)
            w->values[i] = i / C == 2 || i / C == 37 ? 0.5 : 0.25;
        w->values[5 * C] = -8; // of tokens 0 and 1 below all, of token 3 above
        w->values[5 * C + 7] = 4;
        x->values[3 * C + 7] = 8;
        cu_changed(x);
        cu_changed(w);
        of.call.in[0] = x->data, of.call.params[0] = w->data;
        of.call.out = gates->data, of.call.stats = stats->data;
        cu_run(&c, run_forward, &of);
        for (int at = 0; at < N * K; ++at)
            assert_true(stats->values[at / K * mics_route_floats(s.experts) + E + 2 + at % K] ==
                        experts_bits(want[at / K][at % K]));
        assert_true(isnan(gates->values[2 * K]));
        cu_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(router_matches),
                                       cmocka_unit_test(many_experts),
                                       cmocka_unit_test(equal_scores_choose_the_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
