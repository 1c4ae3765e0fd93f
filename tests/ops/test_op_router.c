// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The router of a mixture of experts: choices, capacity, chance and noise.
#include "op_experts.h"
#include "ops/router/cases.h"
#include <math.h>

// ---- the router in fp64 ----

static router_shape wide_shape(const shape *s)
{
    const mics_op op = op_for(s, MICS_OP_ROUTER);
    return (router_shape){s->B, s->T, s->C, s->experts, op.router, true, 0, s->add};
}

static router_values widen_router(op_case *c, const router_shape *s, const call *k)
{
    const int64_t N = s->B * s->T, E = s->experts.count, choices = N * s->experts.chosen;
    const router_values r = {.s = s,
                             .draw = experts_draw,
                             .loss_scale = 0.25,
                             .x = op_widen(c, k->x),
                             .w = op_widen(c, k->param),
                             .dy = k->dy ? op_widen(c, k->dy) : NULL,
                             .p = op_doubles(c, N * E),
                             .terms = op_doubles(c, N),
                             .lse = op_doubles(c, N),
                             .entropy = op_doubles(c, N),
                             .gates = op_doubles(c, choices),
                             .count = op_doubles(c, s->B * E),
                             .mean = op_doubles(c, s->B * E),
                             .full = op_doubles(c, s->B),
                             .chosen = op_ints(c, choices),
                             .rows = op_ints(c, choices)};
    router_forward(&r);
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
    const router_shape wide = wide_shape(s);
    const router_values r = widen_router(&c, &wide, &args);
    double *ones = op_doubles(&c, N * k);
    for (int64_t i = 0; i < N * k; ++i)
        ones[i] = 1;
    op_expect(&c, args.y, r.gates, ones, 20 * OP_TOLERANCE);
    op_run(&c, run_forward, &args);
    op_end(&c);
}

static void router_backward_case(const shape *s)
{
    op_case c;
    const int64_t N = tokens_of(s), E = s->experts.count, k = s->experts.chosen, C = s->C;
    call args = call_begin(&c, s, MICS_OP_ROUTER, "router_backward");
    args.x = op_input(&c, "x", N * C, 1);
    args.param = op_input(&c, "weight", E * C, 0.5);
    args.dy = op_input(&c, "dy", N * k, 1);
    const router_shape wide = wide_shape(s);
    int32_t *targets = op_ints(&c, N);
    for (int64_t n = 0; n < N; ++n)
        targets[n] = router_target(&wide, n);
    args.targets = targets;
    const router_values r = widen_router(&c, &wide, &args);
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
    double *unused[] = {op_doubles(&c, N * C), op_doubles(&c, E * C)};
    router_backward(&r, (double *const[]){dx, unused[0]}, (double *const[]){dparam, unused[1]});
    for (int64_t i = 0; i < N * C; ++i)
        dx_size[i] = 10;
    for (int64_t i = 0; i < E * C; ++i)
        dparam_size[i] = 10 * (double)N;
    op_check_gradient(&c, "x", router_objective, &r, (double *)(uintptr_t)r.x, N * C, dx, 20);
    op_check_gradient(&c, "weight", router_objective, &r, (double *)(uintptr_t)r.w, E * C, dparam,
                      20);
    expect_wanted(&c, &args, args.dx, dx, dx_size, OP_TOLERANCE);
    expect_wanted(&c, &args, args.dparam, dparam, dparam_size, OP_TOLERANCE);
    op_run(&c, run_backward, &args);
    op_end(&c);
}

// ---- tests ----

static const shape shapes[] = {
    {1, 1, 3, 2, {.count = 1, .chosen = 1}, true, false, 0, 0, 0, false, 0},
    {1, 5, 7, 4, {.count = 3, .chosen = 1}, false, true, 0.5F, 0, 0, false, 0},
    {2, 9, 16, 5, {.count = 4, .chosen = 2}, true, false, 0.3F, 0.1F, 0, false, 0},
    {3, 7, 33, 18, {.count = 8, .chosen = 3}, false, true, 0, 0.2F, 0, false, 0},
    {2, 40, 40, 24, {.count = 5, .chosen = 2}, true, true, 1, 0, 0, false, 0},
    {1, 6, 300, 3, {.count = 50, .chosen = 4}, false, false, 0.1F, 0.1F, 0, false, 0},
    // With a capacity, chance and noise: each alone, and all.
    {2, 16, 20, 3, {4, 2, 0.75, 2, 1}, true, false, 0.2F, 0, 0, false, 0},
    {3, 11, 12, 3, {5, 3, 0.1, 2, 2}, false, true, 0, 0.1F, 0, false, 0},
    {2, 30, 24, 3, {4, 2, 0, 0, 1}, true, false, 0.2F, 0, 0, true, 0},
    {2, 9, 523, 3, {4, 2, 0, 0, 1}, true, true, 0, 0.1F, 0.1F, false, 0},
    {3, 24, 40, 3, {6, 2, 1, 0, 1}, true, true, 0.3F, 0.1F, 0.05F, true, 0},
    {2, 24, 18, 3, {6, 2, 1, 0, 1}, false, false, 0.3F, 0, 0.3F, true, 0},
};

static void matches_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        router_forward_case(&shapes[i]);
        router_backward_case(&shapes[i]);
        shape fewer = shapes[i];
        fewer.without = i % 2 == 0 ? NO_DPARAM : NO_DX;
        router_backward_case(&fewer);
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

// A sequence whose last tokens are padding, and the same one without them: all figures and gradients
// are the same, the padding's are 0, and it goes to no expert.
static void padding_is_nothing(void **state)
{
    (void)state;
    enum { E = 3, K = 2, REAL = 4, T = 7, C = 2, ROW = E + 2 + 2 * K };
    const shape whole = {.B = 1,
                         .T = T,
                         .C = C,
                         .I = 1,
                         .experts = {.count = E, .chosen = K},
                         .normalised = true,
                         .balance = 0.3F,
                         .z = 0.2F};
    shape alone = whole;
    alone.T = REAL;
    static const int32_t targets[T] = {1, -1, 1, 1, -1, -1, -1};
    static const int32_t segments[T] = {0, 0, 0, 3, -1, -1, -1};
    const float x[T * C] = {1, -2, 0.5F, 3, -1, 0.25F, 2, 2, 9, 9, 8, -8, 7, 7};
    const float weight[E * C] = {0.3F, -0.2F, 0.1F, 0.4F, -0.5F, 0.2F};
    const float dy[T * K] = {1, -1, 0.5F, 2, 3, 1, -2, 1, 5, 5, 5, 5, 5, 5};
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        const mics_kernels *k = mics_kernels_at(index);
        float y[2][T * K], stats[2][T * ROW], dx[2][T * C], dweight[2][E * C], space[128];
        double sums[2][MICS_ROUTER_SUMS] = {{0}};
        for (int32_t i = 0; k != NULL && i < 2; ++i) {
            const call args = {.shape = i == 0 ? &whole : &alone,
                               .kind = MICS_OP_ROUTER,
                               .x = x,
                               .param = weight,
                               .dy = dy,
                               .y = y[i],
                               .stats = stats[i],
                               .space = space,
                               .targets = targets,
                               .segments = i == 0 ? segments : NULL,
                               .dx = dx[i],
                               .dparam = dweight[i],
                               .sums = sums[i]};
            run_forward(k, 1, &args);
            run_backward(k, 1, &args);
        }
        if (k == NULL)
            continue;
        for (int32_t i = 0; i < T * K; ++i)
            assert_true(i < REAL * K ? y[0][i] == y[1][i] : y[0][i] == 0);
        for (int32_t i = 0; i < T * C; ++i)
            assert_true(i < REAL * C ? fabsf(dx[0][i] - dx[1][i]) < 1e-6F : dx[0][i] == 0);
        for (int32_t i = 0; i < E * C; ++i)
            assert_true(fabsf(dweight[0][i] - dweight[1][i]) < 1e-5F);
        for (int32_t i = 0; i < MICS_ROUTER_SUMS; ++i)
            assert_true(fabs(sums[0][i] - sums[1][i]) < 1e-6);
        for (int32_t n = REAL; n < T; ++n)
            assert_true(mics_route_drops(mics_route_chosen(stats[0], whole.experts, n)[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference),
        cmocka_unit_test(equal_scores_choose_the_first),
        cmocka_unit_test(full_experts_drop_the_last),
        cmocka_unit_test(padding_is_nothing),
    };
    return op_run_tests(tests);
}
