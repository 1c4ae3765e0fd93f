// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GShard's recipe on a GPU against the CPU's kernels of fp32, on the same rounded inputs: what a
// capacity and chance drop, noise of the input, and ops of experts with rows that are dropped.
#include "experts.h"
#include <stdlib.h>

typedef struct shape {
    int64_t B, T, C, I;
    mics_experts experts;
    bool normalised, second;
    float jitter;
} shape;

enum { DRAW_INTS = 3 };

static const int32_t DRAW[DRAW_INTS] = {12345, 678, 5};

static mics_op op_of(const shape *s, mics_op_kind kind)
{
    return (mics_op){.kind = kind,
                     .experts = s->experts,
                     .mask = 3,
                     .router = {.normalised = s->normalised,
                                .balance = 0.3F,
                                .z = 0.1F,
                                .jitter = s->jitter,
                                .random_second = s->second}};
}

static mics_op_shape sizes_of(const shape *s, mics_op_kind kind)
{
    const int64_t E = s->experts.count, k = s->experts.chosen;
    mics_op_shape sizes = {.B = s->B, .T = s->T, .N = s->B * s->T, .in = {s->C}, .out = k};
    sizes.params[0][0] = E;
    sizes.params[0][1] = s->C;
    if (kind == MICS_OP_EXPERTS_IN) {
        sizes.in[1] = k;
        sizes.out = k * s->I;
        sizes.params[0][0] = s->I;
        sizes.expert_elems = s->I * s->C;
    } else if (kind == MICS_OP_EXPERTS_OUT) {
        sizes.in[0] = k * s->I;
        sizes.in[1] = k;
        sizes.out = s->C;
        sizes.params[0][0] = s->C;
        sizes.expert_elems = s->I * s->C;
        sizes.params[0][1] = s->I;
    }
    return sizes;
}

// ---- one pass of one op, on the CPU and on the GPU ----

typedef struct pass {
    mics_op op;
    mics_op_call call;
    bool backward;
} pass;

static void run_pass(const mics_exec *at, const void *args)
{
    const pass *p = args;
    mics_op_call call = p->call;
    call.at = at;
    if (p->backward)
        op_backward(mics_kernels_cuda(), p->op, call);
    else
        op_forward(mics_kernels_cuda(), p->op, call);
}

static float *floats_of(cu_case *c, const cu_buffer *b)
{
    float *floats = (float *)(void *)cu_doubles(c, b->elems);
    for (int64_t i = 0; i < b->elems; ++i)
        floats[i] = (float)b->values[i];
    return floats;
}

static void run_on_cpu(const pass *p)
{
    mics_op_shape sizes = p->call.shape;
    sizes.op = &p->op;
    sizes.threads = 1;
    const mics_op_cost cost = mics_op_def_get(p->op.kind)->cost(&sizes);
    const int64_t floats = mics_larger(cost.workspace_forward, cost.workspace_backward);
    void *space = NULL;
    assert_int_equal(posix_memalign(&space, 64, (size_t)(floats + 16) * sizeof(float)), 0);
    const mics_exec at = op_exec(1, space);
    mics_op_call call = p->call;
    call.at = &at;
    if (p->backward)
        op_backward(mics_kernels_get(NULL), p->op, call);
    else
        op_forward(mics_kernels_get(NULL), p->op, call);
    free(space);
}

// An output, to be within a tolerance of what the CPU leaves in *wanted_out.
typedef struct output {
    cu_buffer *buffer;
    float *wanted;
} output;

static output output_of(cu_case *c, const char *name, int type, int64_t elems)
{
    return (output){.buffer = cu_output(c, name, type, elems, 0),
                    .wanted = (float *)(void *)cu_doubles(c, elems)};
}

static void expect(cu_case *c, const output *o, double size, double tolerance)
{
    double *want = cu_doubles(c, o->buffer->elems), *sizes = cu_doubles(c, o->buffer->elems);
    for (int64_t i = 0; i < o->buffer->elems; ++i) {
        want[i] = (double)o->wanted[i];
        sizes[i] = size;
    }
    cu_expect(o->buffer, want, sizes, tolerance);
}

// Bits of a buffer of fp32 that is read, some of which are integers.
static const void *bits_input(cu_case *c, const char *name, const float *bits, int64_t elems)
{
    cu_buffer *b = cu_input(c, name, MICS_DTYPE_FP32, elems, 0, 1);
    memcpy(b->before + b->data_at, bits, (size_t)elems * sizeof *bits);
    return b->data;
}

static const mics_dropout_draw *draw_input(cu_case *c)
{
    cu_buffer *b = cu_ints(c, "draw", DRAW_INTS, 1);
    for (int i = 0; i < DRAW_INTS; ++i)
        b->values[i] = DRAW[i];
    cu_changed(b);
    return b->data;
}

static void begin(cu_case *c, const shape *s, mics_dtype dtype, const pass *p)
{
    cu_begin(c, dtype, op_workspace_of(dtype, p->op, p->call.shape),
             "%s %s B=%d T=%d C=%d experts %d of %d, capacity %g, jitter %g, second %d",
             mics_op_def_get(p->op.kind)->name, p->backward ? "backward" : "forward", (int)s->B,
             (int)s->T, (int)s->C, (int)s->experts.chosen, (int)s->experts.count,
             s->experts.capacity, (double)s->jitter, s->second);
}

static pass pass_of(const shape *s, mics_op_kind kind, bool backward)
{
    pass p = {.op = op_of(s, kind), .backward = backward};
    p.call = (mics_op_call){.shape = sizes_of(s, kind), .loss_scale = 0.25F, .training = true};
    return p;
}

// ---- the router ----

static int64_t drops_of(const shape *s, const float *stats)
{
    int64_t drops = 0;
    for (int64_t n = 0; n < s->B * s->T; ++n)
        for (int32_t j = 0; j < s->experts.chosen; ++j)
            drops += mics_route_drops(mics_route_chosen(stats, s->experts, n)[j]);
    return drops;
}

static void check_choices(const cu_case *c, const shape *s, const output *stats)
{
    const float *got = (const float *)(const void *)(stats->buffer->after + stats->buffer->data_at);
    for (int64_t n = 0; n < s->B * s->T; ++n) {
        const int32_t *own = mics_route_chosen(got, s->experts, n);
        const int32_t *wanted = mics_route_chosen(stats->wanted, s->experts, n);
        if (memcmp(own, wanted, 2 * (size_t)s->experts.chosen * sizeof *own) != 0)
            fail_msg("%s: token %lld goes to expert %d in row %d, on the CPU to %d in %d", c->name,
                     (long long)n, (int)own[0], (int)own[s->experts.chosen], (int)wanted[0],
                     (int)wanted[s->experts.chosen]);
    }
}

static void router_case(const shape *s, mics_dtype dtype)
{
    cu_case c;
    const int64_t N = s->B * s->T, E = s->experts.count, k = s->experts.chosen;
    const int64_t floats = N * mics_route_floats(s->experts);
    pass p = pass_of(s, MICS_OP_ROUTER, false);
    begin(&c, s, dtype, &p);
    const cu_buffer *x = cu_input(&c, "x", (int)dtype, N * s->C, 0, 1);
    const cu_buffer *w = cu_input(&c, "weight", (int)dtype, E * s->C, 0, 0.5);
    const output gates = output_of(&c, "weights", (int)dtype, N * k);
    const output stats = output_of(&c, "stats", MICS_DTYPE_FP32, floats);
    const mics_dropout_draw *draw = draw_input(&c);
    pass cpu = p;
    cpu.call.in[0] = floats_of(&c, x), cpu.call.params[0] = floats_of(&c, w);
    cpu.call.out = gates.wanted, cpu.call.stats = stats.wanted;
    cpu.call.draw = (const mics_dropout_draw *)(const void *)DRAW;
    run_on_cpu(&cpu);
    assert_true(drops_of(s, stats.wanted) > 0);
    expect(&c, &gates, 1, 2e-5);
    expect(&c, &stats, 10, 2e-5);
    p.call.in[0] = x->data, p.call.params[0] = w->data, p.call.draw = draw;
    p.call.out = gates.buffer->data, p.call.stats = stats.buffer->data;
    cu_run(&c, run_pass, &p);
    check_choices(&c, s, &stats);
    cu_end(&c);
}

// Stats of a router's forward on the CPU, which goes before its backward and ops of experts. Owned
// by the case.
static float *stats_of(cu_case *c, const shape *s)
{
    const int64_t N = s->B * s->T;
    cu_buffer *x = cu_input(c, "unread x", MICS_DTYPE_FP32, N * s->C, 0, 1);
    cu_buffer *w = cu_input(c, "unread w", MICS_DTYPE_FP32, s->experts.count * s->C, 0, 0.5);
    pass p = pass_of(s, MICS_OP_ROUTER, false);
    float *stats = (float *)(void *)cu_doubles(c, N * mics_route_floats(s->experts));
    p.call.in[0] = floats_of(c, x), p.call.params[0] = floats_of(c, w);
    p.call.out = cu_doubles(c, N * s->experts.chosen), p.call.stats = stats;
    p.call.draw = (const mics_dropout_draw *)(const void *)DRAW;
    run_on_cpu(&p);
    return stats;
}

static void router_backward_case(const shape *s, mics_dtype dtype)
{
    cu_case c;
    const int64_t N = s->B * s->T, E = s->experts.count, k = s->experts.chosen;
    pass p = pass_of(s, MICS_OP_ROUTER, true);
    begin(&c, s, dtype, &p);
    const cu_buffer *x = cu_input(&c, "x", (int)dtype, N * s->C, 0, 1);
    const cu_buffer *w = cu_input(&c, "weight", (int)dtype, E * s->C, 0, 0.5);
    const cu_buffer *dy = cu_input(&c, "dweights", (int)dtype, N * k, 0, 1);
    const output dx = output_of(&c, "dx", (int)dtype, N * s->C);
    const output dw = output_of(&c, "dweight", (int)dtype, E * s->C);
    cu_buffer *sums = cu_inout(&c, "metrics", CU_FP64, MICS_ROUTER_SUMS, 0, true);
    const mics_dropout_draw *draw = draw_input(&c);
    float *stats = stats_of(&c, s);
    pass cpu = p;
    double *wanted = cu_doubles(&c, MICS_ROUTER_SUMS), *sizes = cu_doubles(&c, MICS_ROUTER_SUMS);
    for (int i = 0; i < MICS_ROUTER_SUMS; ++i) {
        wanted[i] = sums->values[i];
        sizes[i] = 10;
    }
    cpu.call.in[0] = floats_of(&c, x), cpu.call.params[0] = floats_of(&c, w);
    cpu.call.dout = floats_of(&c, dy), cpu.call.stats = stats;
    cpu.call.din = dx.wanted, cpu.call.dparams[0] = dw.wanted, cpu.call.router_sums = wanted;
    cpu.call.draw = (const mics_dropout_draw *)(const void *)DRAW;
    run_on_cpu(&cpu);
    assert_true(wanted[MICS_ROUTER_DROPPED] > sums->values[MICS_ROUTER_DROPPED] ||
                s->experts.capacity <= 0);
    expect(&c, &dx, 10, 2e-6);
    expect(&c, &dw, 10 * (double)N, 2e-6);
    cu_expect(sums, wanted, sizes, 2e-6);
    p.call.in[0] = x->data, p.call.params[0] = w->data, p.call.dout = dy->data;
    p.call.stats =
        (float *)(uintptr_t)bits_input(&c, "stats", stats, N * mics_route_floats(s->experts));
    p.call.din = dx.buffer->data, p.call.dparams[0] = dw.buffer->data;
    p.call.router_sums = sums->data, p.call.draw = draw;
    cu_run(&c, run_pass, &p);
    cu_end(&c);
}

// ---- experts ----

static double rounding_of(mics_dtype dtype)
{
    return dtype == MICS_DTYPE_FP32 ? 0 : ldexp(1, dtype == MICS_DTYPE_BF16 ? -8 : -11);
}

static void experts_case(const shape *s, mics_op_kind kind, bool backward, mics_dtype dtype)
{
    cu_case c;
    const bool out = kind == MICS_OP_EXPERTS_OUT;
    pass p = pass_of(s, kind, backward), cpu;
    const mics_op_shape sizes = p.call.shape;
    const int64_t N = sizes.N, xs = N * sizes.in[0], ys = N * sizes.out, k = s->experts.chosen;
    const int64_t params = s->experts.count * sizes.expert_elems;
    const double size = 4 * (double)(s->I + s->C), near = 5e-7 + rounding_of(dtype);
    begin(&c, s, dtype, &p);
    float *stats = stats_of(&c, s);
    const cu_buffer *x = cu_input(&c, "x", (int)dtype, xs, 0, 1);
    const cu_buffer *w = cu_input(&c, "weight", (int)dtype, params, 0, 1);
    const cu_buffer *gates = cu_input(&c, "weights", (int)dtype, N * k, 0, 1);
    p.call.routes = bits_input(&c, "routes", stats, N * mics_route_floats(s->experts));
    cpu = p;
    cpu.call.routes = stats;
    cpu.call.in[0] = floats_of(&c, x), cpu.call.in[1] = floats_of(&c, gates);
    cpu.call.params[0] = floats_of(&c, w);
    p.call.in[0] = x->data, p.call.in[1] = gates->data, p.call.params[0] = w->data;
    if (!backward) {
        const output y = output_of(&c, "y", (int)dtype, ys);
        cpu.call.out = y.wanted;
        run_on_cpu(&cpu);
        expect(&c, &y, size, near);
        p.call.out = y.buffer->data;
    } else {
        const cu_buffer *dy = cu_input(&c, "dy", (int)dtype, ys, 0, 1);
        const output dx = output_of(&c, "dx", (int)dtype, xs);
        const output dw = output_of(&c, "dweight", (int)dtype, params);
        const output dgates = output_of(&c, "dweights", (int)dtype, out ? N * k : 1);
        cpu.call.dout = floats_of(&c, dy), cpu.call.din = dx.wanted;
        cpu.call.dparams[0] = dw.wanted, cpu.call.din_second = out ? dgates.wanted : NULL;
        run_on_cpu(&cpu);
        expect(&c, &dx, size, near);
        expect(&c, &dw, 4 * (double)N, near);
        if (out)
            expect(&c, &dgates, size * 4, near);
        p.call.dout = dy->data, p.call.din = dx.buffer->data;
        p.call.dparams[0] = dw.buffer->data;
        p.call.din_second = out ? dgates.buffer->data : NULL;
    }
    cu_run(&c, run_pass, &p);
    cu_end(&c);
}

// ---- tests ----

static const shape shapes[] = {
    {2, 40, 16, 8, {.count = 4, .chosen = 2, .capacity = 1}, true, false, 0},
    {3, 33, 20, 5, {.count = 5, .chosen = 2, .capacity = 0.5}, true, true, 0.1F},
    {1, 600, 8, 3, {.count = 3, .chosen = 1, .capacity = 0.8}, false, false, 0.2F}, // two parts
    {2, 30, 7, 4, {.count = 6, .chosen = 2}, false, true, 0.05F},
    {1, 70, 8, 2, {.count = 1100, .chosen = 3, .capacity = 2, .min_capacity = 1}, true, false, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void routers_drop_as_on_the_cpu(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
            router_case(&shapes[i], (mics_dtype)dtype);
            router_backward_case(&shapes[i], (mics_dtype)dtype);
        }
}

static void experts_leave_out_rows(void **state)
{
    (void)state;
    for (int i = 0; i + 1 < SHAPES; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
            for (int backward = 0; backward < 2; ++backward) {
                experts_case(&shapes[i], MICS_OP_EXPERTS_IN, backward, (mics_dtype)dtype);
                experts_case(&shapes[i], MICS_OP_EXPERTS_OUT, backward, (mics_dtype)dtype);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(routers_drop_as_on_the_cpu),
                                       cmocka_unit_test(experts_leave_out_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
