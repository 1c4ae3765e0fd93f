// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A router on a GPU against fp64: scores, choices, places, gradients with and without its losses,
// and what it adds to the metrics; many tokens and many experts, equal scores, NaN; GShard's recipe.
#include "experts.h"
#include "ops/router/cases.h"

typedef struct shape {
    router_shape of;
    bool add;
} shape;

static const float LOSS_SCALE = 0.25F;
static const mics_dropout_draw DRAW = {{12345, 678}, 5};

static int64_t tokens_of(const shape *s)
{
    return s->of.B * s->of.T;
}

static mics_op op_of(const shape *s)
{
    return (mics_op){.kind = MICS_OP_ROUTER,
                     .experts = s->of.experts,
                     .mask = ROUTER_MASK,
                     .router = s->of.spec};
}

static mics_op_shape sizes_of(const shape *s)
{
    return (mics_op_shape){.B = s->of.B,
                           .T = s->of.T,
                           .N = tokens_of(s),
                           .in = {s->of.C},
                           .out = s->of.experts.chosen,
                           .params = {{s->of.experts.count, s->of.C}}};
}

// ---- in fp64 ----

static router_values router_of(cu_case *c, const shape *s, const double *x, const double *w)
{
    const int64_t B = s->of.B, N = tokens_of(s), E = s->of.experts.count;
    const int64_t k = s->of.experts.chosen;
    router_values r = {.s = &s->of,
                       .draw = DRAW,
                       .loss_scale = (double)LOSS_SCALE,
                       .x = x,
                       .w = w,
                       .p = cu_doubles(c, N * E),
                       .terms = cu_doubles(c, N),
                       .lse = cu_doubles(c, N),
                       .entropy = cu_doubles(c, N),
                       .gates = cu_doubles(c, N * k),
                       .count = cu_doubles(c, B * E),
                       .mean = cu_doubles(c, B * E),
                       .full = cu_doubles(c, B),
                       .chosen = (int32_t *)(void *)cu_doubles(c, N * k)};
    r.rows = r.chosen + N * k;
    router_forward(&r);
    return r;
}

// Segments of a shape with padding; NULL: none.
static const int32_t *segments_of(cu_case *c, const shape *s)
{
    if (s->of.padding == 0)
        return NULL;
    cu_buffer *segments = cu_ints(c, "segments", tokens_of(s), 1);
    for (int64_t n = 0; n < tokens_of(s); ++n)
        segments->values[n] = router_is_nothing(&s->of, n) ? -1 : 0;
    cu_changed(segments);
    return segments->data;
}

// A row of stats, and how exact its numbers are: terms of scores are their absolute error, in the
// unit of tolerances.
static void fill_stats(const router_values *r, double *stats, double *sums)
{
    const mics_experts e = r->s->experts;
    const int64_t floats = mics_route_floats(e), k = e.chosen;
    for (int64_t n = 0; n < r->s->B * r->s->T; ++n) {
        double *row = stats + n * floats, *sum = sums + n * floats;
        for (int32_t i = 0; i < e.count; ++i) {
            row[i] = r->p[n * e.count + i];
            sum[i] = 2 * row[i] * r->terms[n];
        }
        row[e.count] = r->lse[n];
        row[e.count + 1] = r->entropy[n];
        sum[e.count] = sum[e.count + 1] = 4 * r->terms[n];
        for (int64_t j = 0; j < k; ++j) {
            const int32_t chosen = r->chosen[n * k + j];
            row[e.count + 2 + j] = experts_bits(chosen);
            row[e.count + 2 + k + j] = experts_bits(r->rows[n * k + j]);
            sum[e.count + 2 + j] = chosen < 0; // NaN in fp32; check_places compares its bits
        }
    }
}

// What a case's kernels read of a draw.
static const mics_dropout_draw *draw_input(cu_case *c)
{
    int32_t words[sizeof DRAW / sizeof(int32_t)];
    memcpy(words, &DRAW, sizeof words);
    cu_buffer *b = cu_ints(c, "draw", sizeof words / sizeof *words, 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
        b->values[i] = words[i];
    cu_changed(b);
    return b->data;
}

// ---- cases ----

static experts_call begin(cu_case *c, const shape *s, mics_dtype dtype, const char *name)
{
    experts_call of = {.op = op_of(s)};
    cu_begin(c, dtype, op_workspace_of(dtype, of.op, sizes_of(s)),
             "%s B=%d T=%d C=%d experts %d of %d normalised %d add %d masked %d", name,
             (int)s->of.B, (int)s->of.T, (int)s->of.C, (int)s->of.experts.chosen,
             (int)s->of.experts.count, s->of.spec.normalised, s->add, s->of.masked);
    of.call = (mics_op_call){
        .shape = sizes_of(s), .loss_scale = LOSS_SCALE, .training = true, .draw = draw_input(c)};
    return of;
}

static void check_places(const cu_case *c, const router_values *r, const cu_buffer *stats)
{
    const mics_experts e = r->s->experts;
    const float *got = (const float *)(const void *)(stats->after + stats->data_at);
    const int64_t k = e.chosen;
    for (int64_t at = 0; at < r->s->B * r->s->T * k; ++at) {
        const int32_t *chosen = mics_route_chosen(got, e, at / k);
        if (chosen[at % k] != r->chosen[at] || chosen[k + at % k] != r->rows[at])
            fail_msg("%s: token %lld, choice %lld is not expert %d in row %d", c->name,
                     (long long)(at / k), (long long)(at % k), (int)r->chosen[at],
                     (int)r->rows[at]);
    }
}

// Some choices are dropped wherever a capacity may drop them.
static void check_drops(const router_values *r)
{
    double full = 0;
    for (int64_t b = 0; b < r->s->B; ++b)
        full += r->full[b];
    assert_true(full > 0 || r->s->experts.capacity <= 0);
}

// The bits of choices that are dropped, which a double does not keep.
static void put_drops(cu_buffer *stats, const router_values *r)
{
    const mics_experts e = r->s->experts;
    for (int64_t at = 0; at < r->s->B * r->s->T * e.chosen; ++at) {
        const int64_t to = at / e.chosen * mics_route_floats(e) + e.count + 2 + at % e.chosen;
        if (r->chosen[at] < 0)
            memcpy(stats->before + stats->data_at + (size_t)to * sizeof(float), &r->chosen[at],
                   sizeof r->chosen[at]);
    }
}

static void forward_case(const shape *s, mics_dtype dtype)
{
    cu_case c;
    experts_call of = begin(&c, s, dtype, "router_forward");
    const int64_t N = tokens_of(s), E = s->of.experts.count, k = s->of.experts.chosen;
    const int64_t floats = N * mics_route_floats(s->of.experts);
    const cu_buffer *x = cu_input(&c, "x", (int)dtype, N * s->of.C, 0, 1);
    const cu_buffer *w = cu_input(&c, "weight", (int)dtype, E * s->of.C, 0, 0.5);
    cu_buffer *gates = cu_output(&c, "weights", (int)dtype, N * k, 0);
    cu_buffer *stats = cu_output(&c, "stats", MICS_DTYPE_FP32, floats, 0);
    const router_values r = router_of(&c, s, x->values, w->values);
    double *want = cu_doubles(&c, floats), *sum = cu_doubles(&c, floats);
    double *gates_sum = cu_doubles(&c, N * k);
    fill_stats(&r, want, sum);
    for (int64_t at = 0; at < N * k; ++at)
        gates_sum[at] = 4 * r.terms[at / k];
    cu_expect(stats, want, sum, CU_TOLERANCE);
    cu_expect(gates, r.gates, gates_sum, CU_TOLERANCE);
    of.call.in[0] = x->data, of.call.params[0] = w->data;
    of.call.out = gates->data, of.call.stats = stats->data;
    of.call.segments = segments_of(&c, s);
    cu_run(&c, run_forward, &of);
    check_places(&c, &r, stats);
    check_drops(&r);
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

// With a frozen weight its gradient is not wanted, and x is not read.
static void backward_case(const shape *s, mics_dtype dtype, bool frozen)
{
    cu_case c;
    experts_call of = begin(&c, s, dtype, "router_backward");
    const int64_t N = tokens_of(s), E = s->of.experts.count, k = s->of.experts.chosen, C = s->of.C;
    const cu_buffer *x = cu_input(&c, "x", (int)dtype, N * C, 0, 1);
    const cu_buffer *w = cu_input(&c, "weight", (int)dtype, E * C, 0, 0.5);
    const cu_buffer *dy = cu_input(&c, "dweights", (int)dtype, N * k, 0, 1);
    router_values r = router_of(&c, s, x->values, w->values);
    r.dy = dy->values;
    cu_buffer *stats =
        cu_input(&c, "stats", MICS_DTYPE_FP32, N * mics_route_floats(s->of.experts), 0, 1);
    double *unused = cu_doubles(&c, stats->elems);
    fill_stats(&r, stats->values, unused);
    cu_changed(stats);
    put_drops(stats, &r);
    cu_buffer *targets = cu_ints(&c, "targets", N, 1);
    for (int64_t n = 0; n < N; ++n)
        targets->values[n] = router_target(&s->of, n);
    cu_changed(targets);
    cu_buffer *sums = cu_inout(&c, "metrics", CU_FP64, MICS_ROUTER_SUMS, 0, true);
    cu_buffer *dx = cu_inout(&c, "dx", (int)dtype, N * C, 0, s->add);
    cu_buffer *dw = cu_inout(&c, "dweight", (int)dtype, E * C, 0, s->add);
    double *dx_want[2] = {cu_doubles(&c, N * C), cu_doubles(&c, N * C)};
    double *dw_want[2] = {cu_doubles(&c, E * C), cu_doubles(&c, E * C)};
    double *sums_want[2] = {cu_doubles(&c, MICS_ROUTER_SUMS), cu_doubles(&c, MICS_ROUTER_SUMS)};
    router_backward(&r, dx_want, dw_want);
    router_metrics(&r, sums_want[0]);
    for (int i = 0; i < MICS_ROUTER_SUMS; ++i)
        sums_want[1][i] = fabs(sums_want[0][i]) + 1;
    expect_added(dx, dx_want);
    expect_added(dw, dw_want);
    expect_added(sums, sums_want);
    of.call.in[0] = x->data, of.call.params[0] = w->data, of.call.stats = stats->data;
    of.call.dout = dy->data, of.call.din = dx->data, of.call.dparams[0] = dw->data;
    of.call.add_din = of.call.add_params[0] = s->add;
    of.call.targets = s->of.masked ? targets->data : NULL;
    of.call.router_sums = sums->data;
    of.call.pairs = s->of.pairs;
    of.call.segments = segments_of(&c, s);
    of.call.shape.params_fixed[0] = frozen;
    if (frozen) {
        of.call.in[0] = of.call.dparams[0] = NULL;
        dw->want = NULL;
    }
    cu_run(&c, run_backward, &of);
    cu_end(&c);
}

// ---- tests ----

static const shape shapes[] = {
    {{1, 1, 1, {.count = 1, .chosen = 1}, {.normalised = true}, false, 0, false}, false},
    {{1, 5, 7, {.count = 3, .chosen = 1}, {false, 0.5F, 0, 0, false}, true, 0, false}, true},
    {{2, 9, 16, {.count = 4, .chosen = 2}, {true, 0.3F, 0.1F, 0, false}, true, 0, false}, false},
    {{4, 9, 16, {.count = 4, .chosen = 2}, {true, 0.3F, 0.1F, 0, false}, true, 2, true}, false},
    {{3, 7, 33, {.count = 8, .chosen = 3}, {false, 0, 0.2F, 0, false}, false, 0, false}, true},
    // two blocks of tokens to place
    {{2, 150, 8, {.count = 8, .chosen = 2}, {true, 1, 0.1F, 0, false}, true, 0, false}, true},
    {{1, 70, 1048, {.count = 5, .chosen = 2}, {true, 0.2F, 0, 0, false}, false, 0, false}, false},
    {{1, 6, 24, {.count = 50, .chosen = 4}, {false, 0.1F, 0.1F, 0, false}, true, 0, false}, false},
    // more experts than threads
    {{1, 70, 8, {.count = 300, .chosen = 8}, {true, 2, 0.1F, 0, false}, false, 0, false}, false},
    // what a capacity and chance drop, and noise of the input
    {{2, 40, 16, {4, 2, 1, 0, 0}, {true, 0.3F, 0.1F, 0, false}, false, 0, false}, false},
    {{3, 33, 20, {5, 2, 0.5, 0, 0}, {true, 0.3F, 0.1F, 0.1F, true}, false, 0, false}, false},
    {{1, 600, 8, {3, 1, 0.8, 0, 0}, {false, 0.3F, 0.1F, 0.2F, false}, false, 0, false},
     false}, // two parts
    {{2, 30, 7, {6, 2, 0, 0, 0}, {false, 0.3F, 0.1F, 0.05F, true}, false, 0, false}, false},
    {{1, 70, 8, {1100, 3, 2, 0, 1}, {true, 0.3F, 0.1F, 0, false}, false, 0, false}, false},
    // padding: with a capacity, in two parts, with chance
    {{2, 40, 16, {4, 2, 0.7, 0, 0}, {true, 0.3F, 0.1F, 0, false}, false, 9, false}, false},
    {{3, 150, 8, {.count = 6, .chosen = 2}, {false, 1, 0.1F, 0, false}, true, 70, false}, true},
    {{2, 30, 7, {6, 2, 0, 0, 0}, {true, 0.3F, 0.1F, 0.05F, true}, true, 1, false}, false},
};

static void router_matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
            forward_case(&shapes[i], (mics_dtype)dtype);
            backward_case(&shapes[i], (mics_dtype)dtype, false);
            backward_case(&shapes[i], (mics_dtype)dtype, true);
        }
}

// So many that a block places the rows of few tokens.
static void many_experts(void **state)
{
    (void)state;
    static const shape s = {
        {1, 40, 3, {.count = 1100, .chosen = 2}, {true, 1, 0, 0, false}, false, 0, false}, false};
    forward_case(&s, MICS_DTYPE_FP32);
    backward_case(&s, MICS_DTYPE_FP32, false);
}

// Of equal scores the first; NaN counts as the lowest, so that all choices are experts.
static void equal_scores_choose_the_first(void **state)
{
    (void)state;
    enum { E = 40, K = 3, C = 8, N = 4 };
    static const shape s = {
        {1, N, C, {.count = E, .chosen = K}, {.normalised = true}, false, 0, false}, false};
    static const int32_t want[N][K] = {{2, 37, 0}, {2, 37, 0}, {0, 1, 2}, {5, 2, 37}};
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
        cu_case c;
        experts_call of = begin(&c, &s, (mics_dtype)dtype, "equal scores");
        cu_buffer *x = cu_input(&c, "x", dtype, N * C, 0, 1);
        cu_buffer *w = cu_input(&c, "weight", dtype, E * C, 0, 1);
        cu_buffer *gates = cu_output(&c, "weights", dtype, N * K, 0);
        cu_buffer *stats =
            cu_output(&c, "stats", MICS_DTYPE_FP32, N * mics_route_floats(s.of.experts), 0);
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
            assert_true(stats->values[at / K * mics_route_floats(s.of.experts) + E + 2 + at % K] ==
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
