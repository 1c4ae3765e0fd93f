// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows that travel: of several ranks in one process, whose blocks are copied from each to each.
// Dispatch, two GEMMs and combine against the plain sum over a token's experts in fp64, and its
// gradients. Some rows are dropped.
#include "op_calls.h"
#include "ops/experts/def.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 4 };

typedef struct travel {
    int32_t ranks, experts, chosen;
    int64_t N, C, I;
    int32_t drops;   // every so many choices one; 0: none
    double capacity; // factor; 0: none
} travel;

typedef struct rank_data {
    float *x, *weights, *routes; // (N, C), (N, k), stats of the router
    float *sent, *came, *mid;    // rows
    float *made, *back, *y;      // rows, rows, (N, C)
    float *dy, *dback, *dmade, *dmid, *dcame, *dsent, *dx, *dweights;
    float *params, *dparams; // of the experts that it keeps: up (I, C), down (C, I), each
    float *space;
} rank_data;

static float draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0F - 1.0F;
}

// Not a number, so that what nobody wrote shows where it is read.
static float *floats(int64_t count)
{
    float *made = malloc((size_t)(count + 16) * sizeof *made);
    assert_non_null(made);
    for (int64_t i = 0; i < count + 16; i++)
        made[i] = NAN;
    return made;
}

static float *drawn(int64_t count, uint32_t *state)
{
    float *made = floats(count);
    for (int64_t i = 0; i < count; i++)
        made[i] = draw(state);
    return made;
}

static int64_t expert_elems(const travel *t)
{
    return 2 * t->C * t->I;
}

static mics_experts experts_of(const travel *t)
{
    return (mics_experts){.count = t->experts,
                          .chosen = t->chosen,
                          .capacity = t->capacity,
                          .eval_capacity = t->capacity};
}

static mics_op op_of(const travel *t, mics_op_kind kind)
{
    return (mics_op){.kind = kind,
                     .experts = experts_of(t),
                     .expert_ranks = t->ranks,
                     .travel_rows = mics_experts_travel_rows(experts_of(t), t->ranks, t->N)};
}

static int64_t rows_of(const travel *t)
{
    const mics_op op = op_of(t, MICS_OP_DISPATCH);
    return t->N * op.travel_rows;
}

// Each token's experts at random, all different; those of some choices are dropped.
static void choose(const travel *t, rank_data *d, uint32_t *state)
{
    const mics_experts e = experts_of(t);
    for (int64_t n = 0; n < t->N; n++) {
        int32_t *chosen = (int32_t *)mics_route_chosen(d->routes, e, n);
        const int32_t first = (int32_t)(fabsf(draw(state)) * (float)t->experts) % t->experts;
        for (int32_t j = 0; j < t->chosen; j++)
            chosen[j] = (first + j * j) % t->experts;
        for (int32_t j = 1; j < t->chosen; j++)
            for (int32_t i = 0; i < j; i++)
                if (chosen[i] == chosen[j]) {
                    chosen[j] = (chosen[j] + 1) % t->experts;
                    i = -1;
                }
        for (int32_t j = 0; j < t->chosen; j++)
            if (t->drops > 0 && (n * t->chosen + j) % t->drops == 0)
                chosen[j] = ~chosen[j];
    }
}

// What is beyond an expert's capacity.
static void drop(const travel *t, rank_data *d)
{
    const mics_experts e = experts_of(t);
    const int64_t capacity = mics_experts_capacity(e, t->N, true);
    int64_t taken[16] = {0};
    for (int32_t j = 0; j < t->chosen; j++)
        for (int64_t n = 0; n < t->N; n++) {
            int32_t *choice = (int32_t *)mics_route_chosen(d->routes, e, n) + j;
            if (*choice >= 0 && taken[*choice]++ >= capacity)
                *choice = ~*choice;
        }
}

// With the rows of the router: those that are dropped are behind the others.
static void route(const travel *t, rank_data *d, uint32_t *state)
{
    const mics_experts e = experts_of(t);
    int32_t row = 0;
    d->routes = drawn(t->N * mics_route_floats(e), state);
    choose(t, d, state);
    drop(t, d);
    for (int32_t expert = 0; expert <= t->experts; expert++)
        for (int64_t n = 0; n < t->N; n++)
            for (int32_t j = 0; j < t->chosen; j++) {
                int32_t *chosen = (int32_t *)mics_route_chosen(d->routes, e, n);
                if (expert < t->experts ? chosen[j] == expert : chosen[j] < 0)
                    chosen[t->chosen + j] = row++;
            }
}

static void open_rank(const travel *t, rank_data *d, uint32_t *state)
{
    const int64_t N = t->N, C = t->C, I = t->I, rows = rows_of(t);
    const int64_t params = t->experts / t->ranks * expert_elems(t);
    *d = (rank_data){.x = drawn(N * C, state),
                     .weights = drawn(N * t->chosen, state),
                     .sent = floats(rows * (C + 1)),
                     .came = floats(rows * (C + 1)),
                     .mid = floats(rows * I),
                     .made = floats(rows * C),
                     .back = floats(rows * C),
                     .y = floats(N * C),
                     .dy = drawn(N * C, state),
                     .dback = floats(rows * C),
                     .dmade = floats(rows * C),
                     .dmid = floats(rows * I),
                     .dcame = floats(rows * (C + 1)),
                     .dsent = floats(rows * (C + 1)),
                     .dx = drawn(N * C, state),
                     .dweights = floats(N * t->chosen),
                     .params = drawn(params, state),
                     .dparams = floats(params),
                     .space = floats(4096)};
    route(t, d, state);
}

static void close_rank(rank_data *d)
{
    float *const all[] = {d->x,     d->weights,  d->routes, d->sent,    d->came,
                          d->mid,   d->made,     d->back,   d->y,       d->dy,
                          d->dback, d->dmade,    d->dmid,   d->dcame,   d->dsent,
                          d->dx,    d->dweights, d->params, d->dparams, d->space};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

typedef float *field(rank_data *d);
#define FIELD(name)                                                                                \
    static float *name##_of(rank_data *d)                                                          \
    {                                                                                              \
        return d->name;                                                                            \
    }
FIELD(sent)
FIELD(came)
FIELD(made)
FIELD(back)
FIELD(dback)
FIELD(dmade)
FIELD(dcame)
FIELD(dsent)

// What the schedule's all-to-all does.
static void exchange(const travel *t, rank_data *ranks, field *from, field *to, int64_t elems)
{
    const int64_t block = elems / t->ranks;
    for (int32_t r = 0; r < t->ranks; r++)
        for (int32_t m = 0; m < t->ranks; m++)
            memcpy(to(&ranks[m]) + r * block, from(&ranks[r]) + m * block,
                   (size_t)block * sizeof(float));
}

static mics_op_call begin(const travel *t, const rank_data *d, const mics_exec *at)
{
    (void)d;
    return (mics_op_call){.at = at, .shape = {.B = 1, .T = t->N, .N = t->N}};
}

static mics_op_call token_call(const travel *t, rank_data *d, const mics_exec *at, bool combine)
{
    const int64_t width = rows_of(t) / t->N;
    mics_op_call call = begin(t, d, at);
    call.shape.in[0] = combine ? width * t->C : t->C;
    call.shape.in[1] = t->chosen;
    call.shape.out = combine ? t->C : width * (t->C + 1);
    call.in[0] = combine ? d->back : d->x;
    call.in[1] = d->weights;
    call.routes = d->routes;
    call.out = combine ? d->y : d->sent;
    call.dout = combine ? d->dy : d->dsent;
    call.din = combine ? d->dback : d->dx;
    call.din_second = combine ? d->dweights : NULL;
    call.add_din = !combine;
    return call;
}

static mics_op_call rows_call(const travel *t, rank_data *d, const mics_exec *at, bool down)
{
    const int64_t width = rows_of(t) / t->N, at_down = t->I * t->C;
    mics_op_call call = begin(t, d, at);
    call.shape.params[0][0] = down ? t->C : t->I;
    call.shape.params[0][1] = down ? t->I : t->C;
    call.shape.expert_elems = expert_elems(t);
    call.shape.in[0] = width * (down ? t->I : t->C + 1);
    call.shape.out = width * (down ? t->C : t->I);
    call.shape.routes = width * (t->C + 1);
    call.routes = d->came;
    call.in[0] = down ? d->mid : d->came;
    call.out = down ? d->made : d->mid;
    call.dout = down ? d->dmade : d->dmid;
    call.din = down ? d->dmid : d->dcame;
    call.params[0] = d->params + (down ? at_down : 0);
    call.dparams[0] = d->dparams + (down ? at_down : 0);
    return call;
}

static void run(const mics_kernels *k, const travel *t, rank_data *ranks)
{
    const int64_t rows = rows_of(t);
    for (int32_t r = 0; r < t->ranks; r++) {
        const mics_exec at = op_exec(1, ranks[r].space);
        op_forward(k, op_of(t, MICS_OP_DISPATCH), token_call(t, &ranks[r], &at, false));
    }
    exchange(t, ranks, sent_of, came_of, rows * (t->C + 1));
    for (int32_t r = 0; r < t->ranks; r++) {
        const mics_exec at = op_exec(1, ranks[r].space);
        op_forward(k, op_of(t, MICS_OP_EXPERTS_ROWS), rows_call(t, &ranks[r], &at, false));
        op_forward(k, op_of(t, MICS_OP_EXPERTS_ROWS), rows_call(t, &ranks[r], &at, true));
    }
    exchange(t, ranks, made_of, back_of, rows * t->C);
    for (int32_t r = 0; r < t->ranks; r++) {
        const mics_exec at = op_exec(1, ranks[r].space);
        op_forward(k, op_of(t, MICS_OP_COMBINE), token_call(t, &ranks[r], &at, true));
        op_backward(k, op_of(t, MICS_OP_COMBINE), token_call(t, &ranks[r], &at, true));
    }
    exchange(t, ranks, dback_of, dmade_of, rows * t->C);
    for (int32_t r = 0; r < t->ranks; r++) {
        const mics_exec at = op_exec(1, ranks[r].space);
        op_backward(k, op_of(t, MICS_OP_EXPERTS_ROWS), rows_call(t, &ranks[r], &at, true));
        op_backward(k, op_of(t, MICS_OP_EXPERTS_ROWS), rows_call(t, &ranks[r], &at, false));
    }
    exchange(t, ranks, dcame_of, dsent_of, rows * (t->C + 1));
    for (int32_t r = 0; r < t->ranks; r++) {
        const mics_exec at = op_exec(1, ranks[r].space);
        op_backward(k, op_of(t, MICS_OP_DISPATCH), token_call(t, &ranks[r], &at, false));
    }
}

static void near(double got, double expected, const char *what)
{
    if (!(fabs(got - expected) <= 2e-4 * (1 + fabs(expected))))
        fail_msg("%s: %.9g, expected %.9g", what, got, expected);
}

// What token n of a rank gives through its expert number j; adds to y, and the gradients.
static void plain(const travel *t, rank_data *ranks, int32_t r, int64_t n, int32_t j, double *y_C,
                  double *dx_C, double *dweight, double *dparams)
{
    const mics_experts e = experts_of(t);
    const rank_data *d = &ranks[r];
    const int32_t expert = mics_route_chosen(d->routes, e, n)[j], kept = t->experts / t->ranks;
    if (mics_route_drops(expert))
        return;
    const float *up = ranks[expert / kept].params + expert % kept * expert_elems(t);
    const float *down = up + t->I * t->C, *x = d->x + n * t->C, *dy = d->dy + n * t->C;
    const double weight = (double)d->weights[n * t->chosen + j];
    double *dup = dparams + expert * expert_elems(t), *ddown = dup + t->I * t->C;
    for (int64_t i = 0; i < t->I; i++) {
        double mid = 0, dmid = 0;
        for (int64_t c = 0; c < t->C; c++)
            mid += (double)up[i * t->C + c] * (double)x[c];
        for (int64_t c = 0; c < t->C; c++) {
            y_C[c] += weight * (double)down[c * t->I + i] * mid;
            *dweight += (double)dy[c] * (double)down[c * t->I + i] * mid;
            dmid += weight * (double)dy[c] * (double)down[c * t->I + i];
            ddown[c * t->I + i] += weight * (double)dy[c] * mid;
        }
        for (int64_t c = 0; c < t->C; c++) {
            dx_C[c] += dmid * (double)up[i * t->C + c];
            dup[i * t->C + c] += dmid * (double)x[c];
        }
    }
}

static void check(const mics_kernels *k, const travel *t)
{
    rank_data ranks[MAX_RANKS];
    double *dparams = calloc((size_t)(t->experts * expert_elems(t)), sizeof *dparams);
    float *before[MAX_RANKS];
    uint32_t state = 7;
    assert_non_null(dparams);
    for (int32_t r = 0; r < t->ranks; r++) {
        open_rank(t, &ranks[r], &state);
        before[r] = floats(t->N * t->C);
        memcpy(before[r], ranks[r].dx, (size_t)(t->N * t->C) * sizeof(float));
    }
    run(k, t, ranks);
    for (int32_t r = 0; r < t->ranks; r++) {
        for (int64_t n = 0; n < t->N; n++) {
            double y[64] = {0}, dx[64] = {0};
            for (int32_t j = 0; j < t->chosen; j++) {
                double dweight = 0;
                plain(t, ranks, r, n, j, y, dx, &dweight, dparams);
                near((double)ranks[r].dweights[n * t->chosen + j], dweight, "dweight");
            }
            for (int64_t c = 0; c < t->C; c++) {
                near((double)ranks[r].y[n * t->C + c], y[c], "y");
                near((double)ranks[r].dx[n * t->C + c], dx[c] + (double)before[r][n * t->C + c],
                     "dx");
            }
        }
    }
    const int64_t kept = t->experts / t->ranks * expert_elems(t);
    for (int64_t i = 0; i < t->experts * expert_elems(t); i++)
        near((double)ranks[i / kept].dparams[i % kept], dparams[i], "dweights of experts");
    for (int32_t r = 0; r < t->ranks; r++) {
        close_rank(&ranks[r]);
        free(before[r]);
    }
    free(dparams);
}

static void matches_plain_sums(void **state)
{
    static const travel cases[] = {
        {2, 4, 2, 5, 6, 3, 0, 0},     {4, 4, 2, 7, 8, 5, 0, 0},
        {2, 8, 5, 3, 4, 4, 0, 0},     {4, 8, 1, 1, 16, 2, 0, 0},
        {4, 4, 4, 6, 5, 7, 0, 0},     {1, 3, 2, 4, 9, 2, 0, 0},
        {2, 4, 2, 9, 6, 3, 3, 0},     {4, 8, 3, 7, 5, 4, 2, 0},
        {2, 4, 2, 5, 4, 3, 1, 0}, // none is left
        {4, 8, 2, 40, 6, 3, 0, 0.5},  {4, 4, 2, 18, 5, 3, 0, 0.6},
        {2, 16, 3, 21, 4, 2, 5, 1.1},
    };
    (void)state;
    for (int32_t index = 0; index < mics_kernels_count(); index++)
        for (size_t i = 0; mics_kernels_at(index) != NULL && i < sizeof cases / sizeof cases[0];
             i++)
            check(mics_kernels_at(index), &cases[i]);
}

// A block has room for what the experts of a rank take of each sequence, and little more.
static void rows_follow_capacities(void **state)
{
    (void)state;
    const mics_experts all = {.count = 8, .chosen = 2};
    mics_experts some = {.count = 8, .chosen = 2, .capacity = 1, .eval_capacity = 1};
    assert_int_equal(mics_experts_travel_rows(all, 2, 64), 4);
    assert_int_equal(mics_experts_travel_rows(all, 8, 64), 8);
    assert_int_equal(mics_experts_travel_rows(some, 8, 64), 2);
    assert_int_equal(mics_experts_travel_rows(some, 4, 50), 4); // 3 do not divide into 4 blocks
    some.eval_capacity = 2;
    assert_int_equal(mics_experts_travel_rows(some, 8, 64), 4); // an evaluation has more
    some.eval_capacity = 0;
    assert_int_equal(mics_experts_travel_rows(some, 8, 64), 8); // and here all
    for (int32_t ranks = 1; ranks <= 8; ranks *= 2)
        for (int64_t length = 1; length < 70; length++)
            for (int32_t chosen = 1; chosen <= 8; chosen++)
                for (int32_t quarters = 0; quarters < 12; quarters++) {
                    const mics_experts e = {.count = 8,
                                            .chosen = chosen,
                                            .capacity = 0.25 * quarters,
                                            .eval_capacity = 0.25 * quarters};
                    const int64_t rows = mics_experts_travel_rows(e, ranks, length),
                                  kept = 8 / ranks;
                    const int64_t each = mics_smaller(chosen, kept);
                    const int64_t most =
                        mics_smaller(length * each, kept * mics_experts_capacity(e, length, true));
                    assert_int_equal(rows * length % ranks, 0);
                    assert_true(rows * length / ranks >= most);
                    assert_true(rows <= ranks * each);
                    assert_true(rows < ranks || (rows - ranks) * length / ranks < most);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_plain_sums),
                                       cmocka_unit_test(rows_follow_capacities)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
