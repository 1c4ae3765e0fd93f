// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The router of a mixture of experts: choices, capacity, chance and noise.
#include "op_experts.h"
#include "ops/common/cases_masks.h"
#include <math.h>

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
    int32_t *chosen;                    // (N, k); below 0: dropped
    double *p, *w, *lse, *count, *full; // (N, E), (N, k), (N), (B, E), (B): choices of full experts
} wide_router;

static double noise(const shape *s, int64_t n, int64_t c)
{
    const double bits = mask_bits(&draw, 5, n / s->T, n % s->T, c);
    return 1 + (double)s->jitter * ((bits + 0.5) / 32768 - 1);
}

static double noisy_dot(const wide_router *r, int64_t n, int64_t e)
{
    const shape *s = r->s;
    double sum = 0;
    for (int64_t c = 0; c < s->C; ++c)
        sum += r->x[n * s->C + c] * noise(s, n, c) * r->param[e * s->C + c];
    return sum;
}

static void score(const wide_router *r, int64_t n)
{
    const int64_t E = r->s->experts.count;
    double sum = 0;
    for (int64_t e = 0; e < E; ++e) {
        r->p[n * E + e] = exp(noisy_dot(r, n, e));
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

static int32_t expert_of(const wide_router *r, int64_t at)
{
    return r->chosen[at] < 0 ? ~r->chosen[at] : r->chosen[at];
}

static double sum_chosen(const wide_router *r, int64_t n)
{
    const int64_t E = r->s->experts.count, k = r->s->experts.chosen;
    double sum = 0;
    for (int64_t j = 0; j < k; ++j)
        sum += r->p[n * E + expert_of(r, n * k + j)];
    return sum;
}

static void weigh(const wide_router *r, int64_t n)
{
    const int64_t E = r->s->experts.count, k = r->s->experts.chosen;
    const double sum = r->s->normalised ? sum_chosen(r, n) : 1;
    for (int64_t at = n * k; at < (n + 1) * k; ++at)
        r->w[at] = r->chosen[at] < 0 ? 0 : r->p[n * E + r->chosen[at]] / sum;
}

// By chance, then by capacity: first choices of a sequence's tokens, then second ones.
static void drop(const wide_router *r, int64_t b)
{
    const shape *s = r->s;
    const int64_t E = s->experts.count, k = s->experts.chosen, T = s->T;
    const double exact = s->experts.capacity * (double)(T * k) / (double)E;
    double capacity = s->experts.capacity > 0 ? ceil(exact - 1e-9) : (double)T;
    capacity = capacity < s->experts.min_capacity ? s->experts.min_capacity : capacity;
    double taken[64] = {0};
    for (int64_t j = 0; j < k; ++j)
        for (int64_t t = 0; t < T; ++t) {
            const int64_t n = b * T + t, at = n * k + j;
            const double share = r->p[n * E + expert_of(r, at)] / sum_chosen(r, n);
            const double bits = mask_bits(&draw, 6, b, t, 0);
            if (s->random_second && j == 1 && bits >= 65536 * 2 * share)
                r->chosen[at] = ~r->chosen[at];
            else if (taken[r->chosen[at]]++ >= capacity)
                r->chosen[at] = ~r->chosen[at], r->full[b] += 1;
        }
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
                     .count = op_doubles(c, s->B * E),
                     .full = op_doubles(c, s->B)};
    for (int64_t n = 0; n < N; ++n) {
        score(&r, n);
        choose(&r, n);
    }
    for (int64_t b = 0; b < s->B; ++b)
        drop(&r, b);
    for (int64_t n = 0; n < N; ++n)
        weigh(&r, n);
    return r;
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
        double dp[64] = {0}, mean = 0, sum = r->s->normalised ? sum_chosen(r, n) : 1;
        for (int64_t at = n * k; at < (n + 1) * k; ++at)
            mean += r->s->normalised ? r->dy[at] * r->w[at] : 0;
        for (int64_t at = n * k; at < (n + 1) * k; ++at)
            dp[expert_of(r, at)] = ((r->chosen[at] < 0 ? 0 : r->dy[at]) - mean) / sum;
        const double scale = scale_of(r->s, n);
        for (int64_t e = 0; e < E; ++e)
            dp[e] +=
                scale * r->s->balance * (double)E * r->count[n / r->s->T * E + e] / (double)r->s->T;
        const double dot = op_dot(dp, r->p + n * E, E);
        for (int64_t e = 0; e < E; ++e) {
            const double d = r->p[n * E + e] * (dp[e] - dot + 2 * scale * r->s->z * r->lse[n]);
            for (int64_t i = 0; i < C; ++i) {
                dx[n * C + i] += d * r->param[e * C + i] * noise(r->s, n, i);
                dparam[e * C + i] += d * r->x[n * C + i] * noise(r->s, n, i);
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

// ---- tests ----

static const shape shapes[] = {
    {1, 1, 3, 2, {.count = 1, .chosen = 1}, true, false, 0, 0, 0, false},
    {1, 5, 7, 4, {.count = 3, .chosen = 1}, false, true, 0.5F, 0, 0, false},
    {2, 9, 16, 5, {.count = 4, .chosen = 2}, true, false, 0.3F, 0.1F, 0, false},
    {3, 7, 33, 18, {.count = 8, .chosen = 3}, false, true, 0, 0.2F, 0, false},
    {2, 40, 40, 24, {.count = 5, .chosen = 2}, true, true, 1, 0, 0, false},
    {1, 6, 300, 3, {.count = 50, .chosen = 4}, false, false, 0.1F, 0.1F, 0, false},
    // With a capacity, chance and noise: each alone, and all.
    {2, 16, 20, 3, {4, 2, 0.75, 2, 1}, true, false, 0.2F, 0, 0, false},
    {3, 11, 12, 3, {5, 3, 0.1, 2, 2}, false, true, 0, 0.1F, 0, false},
    {2, 30, 24, 3, {4, 2, 0, 0, 1}, true, false, 0.2F, 0, 0, true},
    {2, 9, 523, 3, {4, 2, 0, 0, 1}, true, true, 0, 0.1F, 0.1F, false},
    {3, 24, 40, 3, {6, 2, 1, 0, 1}, true, true, 0.3F, 0.1F, 0.05F, true},
    {2, 24, 18, 3, {6, 2, 1, 0, 1}, false, false, 0.3F, 0, 0.3F, true},
};

static void matches_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        router_forward_case(&shapes[i]);
        router_backward_case(&shapes[i]);
    }
}

// Of equal scores, and of those that are no numbers, the first experts are chosen.
static void equal_scores_choose_the_first(void **state)
{
    (void)state;
    enum { E = 4, K = 2, C = 2 };
    const shape s = {
        .B = 1, .T = 1, .C = C, .I = 1, .experts = {.count = E, .chosen = K}, .normalised = true};
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

// Of two sequences of four tokens, all of which choose expert 1 before expert 0.
static void full_experts_drop_the_last(void **state)
{
    (void)state;
    enum { E = 3, K = 2, N = 8 };
    const shape s = {
        .B = 2, .T = 4, .C = 1, .I = 1, .experts = {E, K, 1, 0, 1}, .normalised = true};
    const mics_experts e = s.experts; // 3 rows an expert and sequence
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        const mics_kernels *k = mics_kernels_at(index);
        float x[N] = {1, 1, 1, 1, 2, 2, 2, 2}, weight[E] = {0, 1, -1}, y[N * K], dy[N * K] = {0};
        float stats[N * (E + 2 + 2 * K)], space[128], dx[N], dweight[E];
        double sums[MICS_ROUTER_SUMS] = {0};
        const call args = {.shape = &s,
                           .kind = MICS_OP_ROUTER,
                           .x = x,
                           .param = weight,
                           .dy = dy,
                           .y = y,
                           .stats = stats,
                           .space = space,
                           .dx = dx,
                           .dparam = dweight,
                           .sums = sums};
        if (!k)
            continue;
        run_forward(k, 1, &args);
        static const int32_t rows[N * K] = {6, 0, 7, 1, 8, 2, 12, 13, 9, 3, 10, 4, 11, 5, 14, 15};
        for (int32_t n = 0; n < N; ++n) {
            const bool dropped = n % 4 == 3;
            assert_int_equal(mics_route_chosen(stats, e, n)[0], dropped ? ~1 : 1);
            assert_int_equal(mics_route_chosen(stats, e, n)[1], dropped ? ~0 : 0);
            for (int32_t j = 0; j < K; ++j)
                assert_int_equal(mics_route_rows(stats, e, n)[j], rows[n * K + j]);
            assert_true(dropped ? y[n * K] == 0 && y[n * K + 1] == 0
                                : y[n * K] > y[n * K + 1] && y[n * K + 1] > 0);
        }
        run_backward(k, 1, &args);
        assert_true(sums[MICS_ROUTER_SEQUENCES] == 2 && sums[MICS_ROUTER_DROPPED] == 0.5);
        assert_true(sums[MICS_ROUTER_FULLEST] == 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference),
        cmocka_unit_test(equal_scores_choose_the_first),
        cmocka_unit_test(full_experts_drop_the_last),
    };
    return op_run_tests(tests);
}
