// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ops of experts on a GPU against fp64: grouped GEMMs in every type, experts without rows and with
// many tiles of them, rows that are dropped, rows of whole vectors and others.
#include "cuda_op.h"
#include "experts.h"
#include <math.h>

typedef struct shape {
    int64_t N, C, I; // C: of tokens; I: of rows
    mics_experts experts;
    int32_t used; // experts that tokens choose, the others have no rows
    bool add;
    int64_t gap;   // numbers between the weights of two experts
    int32_t drops; // every so many choices one; 0: none
} shape;

// What an op reads and makes, in fp64, and the sums of absolute terms.
typedef struct wide {
    const shape *s;
    bool out;                // experts_out
    int64_t inputs, outputs; // of the weight
    int32_t *chosen, *rows;  // (N, k)
    const double *x, *w, *gates, *dy;
    double *y, *dx, *dw, *dgates; // each followed by the sums of absolute terms
} wide;

static int64_t rows_of(const shape *s)
{
    return s->N * s->experts.chosen;
}

// From an expert's weight to the next one's.
static int64_t stride_of(const shape *s)
{
    return s->I * s->C + s->gap;
}

static mics_op_shape sizes_of(const shape *s, bool out)
{
    const int64_t k = s->experts.chosen;
    if (out)
        return (mics_op_shape){.B = 1,
                               .T = s->N,
                               .N = s->N,
                               .in = {k * s->I, k},
                               .out = s->C,
                               .params = {{s->C, s->I}},
                               .expert_elems = stride_of(s)};
    return (mics_op_shape){.B = 1,
                           .T = s->N,
                           .N = s->N,
                           .in = {s->C, k},
                           .out = k * s->I,
                           .params = {{s->I, s->C}},
                           .expert_elems = stride_of(s)};
}

// ---- in fp64 ----

static const double *x_at(const wide *w, int64_t at)
{
    return w->x + (w->out ? w->rows[at] : at / w->s->experts.chosen) * w->inputs;
}

static int64_t y_at(const wide *w, int64_t at)
{
    return (w->out ? at / w->s->experts.chosen : w->rows[at]) * w->outputs;
}

static void forward(const wide *w, int64_t ys)
{
    for (int64_t at = 0; at < rows_of(w->s); ++at) {
        const double gate = w->out ? w->gates[at] : 1;
        for (int64_t o = 0; w->chosen[at] >= 0 && o < w->outputs; ++o) {
            const double *row = w->w + w->chosen[at] * stride_of(w->s) + o * w->inputs;
            for (int64_t i = 0; i < w->inputs; ++i) {
                const double term = gate * x_at(w, at)[i] * row[i];
                w->y[y_at(w, at) + o] += term;
                w->y[ys + y_at(w, at) + o] += fabs(term);
            }
        }
    }
}

static void backward(const wide *w, int64_t xs, int64_t params)
{
    for (int64_t at = 0; at < rows_of(w->s); ++at) {
        const double gate = w->out ? w->gates[at] : 1, *x = x_at(w, at);
        const int64_t dx_at = x - w->x;
        for (int64_t o = 0; w->chosen[at] >= 0 && o < w->outputs; ++o) {
            const double dy = w->dy[y_at(w, at) + o];
            for (int64_t i = 0; i < w->inputs; ++i) {
                const int64_t p = w->chosen[at] * stride_of(w->s) + o * w->inputs + i;
                w->dx[dx_at + i] += gate * dy * w->w[p];
                w->dx[xs + dx_at + i] += fabs(gate * dy * w->w[p]);
                w->dw[p] += gate * dy * x[i];
                w->dw[params + p] += fabs(gate * dy * x[i]);
                if (!w->out)
                    continue;
                w->dgates[at] += dy * w->w[p] * x[i];
                w->dgates[rows_of(w->s) + at] += fabs(dy * w->w[p] * x[i]);
            }
        }
    }
}

// ---- cases ----

// Choices at random among the experts that are used.
static float *route(cu_case *c, const shape *s, wide *w)
{
    const int64_t k = s->experts.chosen, rows = rows_of(s), floats = mics_route_floats(s->experts);
    const cu_buffer *drawn = cu_ints(c, "choices", rows, s->used);
    int32_t *ints = (int32_t *)(void *)cu_doubles(c, rows);
    w->chosen = ints;
    w->rows = ints + rows;
    for (int64_t at = 0; at < rows; ++at) {
        const int32_t first = (int32_t)drawn->values[at / k * k];
        ints[at] = (int32_t)((first + at % k) % s->used) * (s->experts.count / s->used);
        ints[at] = s->drops > 0 && at % s->drops == 0 ? ~ints[at] : ints[at];
    }
    experts_place(s->experts, s->N, w->chosen, w->rows);
    cu_buffer *routes = cu_input(c, "routes", MICS_DTYPE_FP32, s->N * floats, 0, 1);
    for (int64_t at = 0; at < rows; ++at) { // by their bits: a dropped one's are NaN
        float *row = (float *)(void *)(routes->before + routes->data_at) + at / k * floats;
        int32_t *choice = (int32_t *)(void *)(row + s->experts.count + 2 + at % k);
        choice[0] = w->chosen[at];
        choice[k] = w->rows[at];
    }
    return routes->data;
}

static double rounding_of(mics_dtype dtype)
{
    return dtype == MICS_DTYPE_FP32 ? 0 : ldexp(1, dtype == MICS_DTYPE_BF16 ? -8 : -11);
}

typedef struct pass {
    mics_dtype dtype;
    bool out, backward;
    double tf32; // what inputs lose by it; 0: they are multiplied as they are
    int without; // gradients that are not wanted
} pass;

enum { NO_DX = 1, NO_DWEIGHTS = 2, NO_DPARAM = 4 };

static void expect_added(cu_buffer *b, double *want, double *sum, double tolerance)
{
    for (int64_t i = 0; b->role == CU_INOUT && i < b->elems; ++i) {
        want[i] += b->values[i];
        sum[i] += fabs(b->values[i]);
    }
    cu_expect(b, want, sum, tolerance);
}

// Nothing is written between the weights of two experts.
static void expect_gaps(const shape *s, double *want, double *sum)
{
    for (int64_t i = 0; i < s->experts.count * stride_of(s); ++i)
        if (i % stride_of(s) >= s->I * s->C) {
            want[i] = (double)NAN;
            sum[i] = 0;
        }
}

// A gradient that is not wanted stays as it was.
static void leave_out(cu_buffer *b, bool is, void **gradient)
{
    if (!is)
        return;
    *gradient = NULL;
    b->want = NULL;
}

// The second op rounds rows of gradients on their way to both, the first to x's alone.
static void expect_gradients(cu_case *c, wide *w, const pass *p, experts_call *of, double exact)
{
    const shape *s = w->s;
    const mics_op_shape *sizes = &of->call.shape;
    const int64_t xs = s->N * sizes->in[0], ys = s->N * sizes->out, rows = rows_of(s);
    const int64_t params = s->experts.count * stride_of(s);
    const double twice = exact + rounding_of(p->dtype);
    const cu_buffer *dy = cu_input(c, "dy", (int)p->dtype, ys, 0, 1);
    cu_buffer *dx = cu_inout(c, "dx", (int)p->dtype, xs, 0, s->add && !p->out);
    cu_buffer *dw = cu_inout(c, "dweight", (int)p->dtype, params, 0, s->add);
    w->dy = dy->values;
    w->dx = cu_doubles(c, 2 * xs);
    w->dw = cu_doubles(c, 2 * params);
    w->dgates = cu_doubles(c, 2 * rows);
    backward(w, xs, params);
    expect_added(dx, w->dx, w->dx + xs, twice);
    expect_added(dw, w->dw, w->dw + params, p->out ? twice : exact);
    expect_gaps(s, w->dw, w->dw + params);
    of->call.dout = dy->data, of->call.din = dx->data, of->call.dparams[0] = dw->data;
    of->call.add_din = s->add && !p->out, of->call.add_params[0] = s->add;
    leave_out(dx, p->without & NO_DX, &of->call.din);
    leave_out(dw, p->without & NO_DPARAM, &of->call.dparams[0]);
    if (!p->out)
        return;
    cu_buffer *dgates = cu_output(c, "dweights", (int)p->dtype, rows, 0);
    cu_expect(dgates, w->dgates, w->dgates + rows, twice);
    of->call.din_second = dgates->data;
    leave_out(dgates, p->without & NO_DWEIGHTS, &of->call.din_second);
}

static void experts_case(const shape *s, const pass *p)
{
    cu_case c;
    experts_call of = {
        .op = {.kind = p->out ? MICS_OP_EXPERTS_OUT : MICS_OP_EXPERTS_IN, .experts = s->experts}};
    mics_op_shape sizes = sizes_of(s, p->out);
    const int64_t xs = s->N * sizes.in[0], ys = s->N * sizes.out, rows = rows_of(s);
    const int64_t params = s->experts.count * stride_of(s);
    sizes.in_fixed[0] = p->without & NO_DX, sizes.in_fixed[1] = p->without & NO_DWEIGHTS;
    sizes.params_fixed[0] = p->without & NO_DPARAM;
    cu_begin(&c, p->dtype, op_workspace_of(p->dtype, of.op, sizes),
             "%s %s N=%d C=%d I=%d experts %d of %d, %d used, add %d, tf32 %d, without %d",
             mics_op_def_get(of.op.kind)->name, p->backward ? "backward" : "forward", (int)s->N,
             (int)s->C, (int)s->I, (int)s->experts.chosen, (int)s->experts.count, (int)s->used,
             s->add, p->tf32 > 0, p->without);
    wide w = {.s = s, .out = p->out, .inputs = sizes.params[0][1], .outputs = sizes.params[0][0]};
    of.call = (mics_op_call){.shape = sizes, .routes = route(&c, s, &w)};
    const cu_buffer *x = cu_input(&c, "x", (int)p->dtype, xs, 0, 1);
    const cu_buffer *weight = cu_input(&c, "weight", (int)p->dtype, params, 0, 1);
    const cu_buffer *gates = cu_input(&c, "weights", (int)p->dtype, rows, 0, 1);
    w.x = x->values, w.w = weight->values, w.gates = gates->values;
    of.call.in[0] = p->out || !(p->without & NO_DPARAM) ? x->data : NULL;
    of.call.in[1] = gates->data, of.call.params[0] = weight->data;
    const double exact = CU_TOLERANCE + 2 * p->tf32, twice = exact + rounding_of(p->dtype);
    if (!p->backward) {
        cu_buffer *y = cu_output(&c, "y", (int)p->dtype, ys, 0);
        w.y = cu_doubles(&c, 2 * ys);
        forward(&w, ys);
        cu_expect(y, w.y, w.y + ys, p->out ? twice : exact);
        of.call.out = y->data;
    } else {
        expect_gradients(&c, &w, p, &of, exact);
    }
    cu_run(&c, p->backward ? run_backward : run_forward, &of);
    cu_end(&c);
}

// ---- tests ----

static const shape shapes[] = {
    {1, 1, 1, {.count = 1, .chosen = 1}, 1, false, 0, 0},     // nothing is a vector
    {5, 7, 3, {.count = 4, .chosen = 2}, 4, true, 3, 0},      //
    {40, 24, 40, {.count = 8, .chosen = 2}, 3, false, 64, 0}, // most experts have no rows
    {200, 8, 16, {.count = 3, .chosen = 2}, 3, true, 128, 0}, // two tiles of rows an expert
    // several slices of K, and tiles of columns
    {9, 160, 136, {.count = 6, .chosen = 3}, 6, false, 1, 0},
    {70, 33, 130, {.count = 300, .chosen = 1}, 10, true, 0, 0},
    // rows that are dropped: as many as a capacity leaves a workspace for stay
    {80, 16, 8, {4, 2, 1, 0, 0}, 4, false, 0, 3},
    {99, 20, 5, {5, 2, 0.5, 0, 0}, 5, false, 0, 2},
    {600, 8, 3, {3, 1, 0.8, 0, 0}, 3, false, 0, 5},
    {60, 7, 4, {.count = 6, .chosen = 2}, 6, true, 1, 4},
    {3, 7, 4, {6, 2, 1, 1, 1}, 6, false, 0, 1}, // all
};

static void all_passes(const shape *s, mics_dtype dtype, double tf32)
{
    for (int i = 0; i < 4; ++i)
        experts_case(
            s, &(pass){.dtype = dtype, .out = i / 2 == 1, .backward = i % 2 == 1, .tf32 = tf32});
}

static void experts_match(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
            all_passes(&shapes[i], (mics_dtype)dtype, 0);
}

// Any gradients but all are left out, and nothing is computed for them.
static void some_gradients_match(void **state)
{
    (void)state;
    for (int without = NO_DX; without < NO_DX + NO_DWEIGHTS + NO_DPARAM; ++without)
        for (size_t i = 1; i < sizeof shapes / sizeof *shapes; i += 2) {
            pass p = {.dtype = (mics_dtype)((i + (size_t)without) % MICS_DTYPES),
                      .out = true,
                      .backward = true,
                      .without = without};
            experts_case(&shapes[i], &p);
            p.out = false;
            if ((without & (NO_DX | NO_DPARAM)) != (NO_DX | NO_DPARAM))
                experts_case(&shapes[i], &p);
        }
}

// More tiles of columns than are run beside each other.
static void wide_rows(void **state)
{
    (void)state;
    static const shape s = {3, 8, 1112, {.count = 2, .chosen = 1}, 2, false, 16, 0};
    experts_case(&s, &(pass){.dtype = MICS_DTYPE_BF16});
    experts_case(&s, &(pass){.dtype = MICS_DTYPE_BF16, .out = true, .backward = true});
}

static void experts_match_in_tf32(void **state)
{
    void (*allow)(mics_device * device, bool allow) = NULL;
    (void)state;
    cu_symbol("mics_cuda_matmul_allow_tf32", &allow);
    allow(cu_device(), true);
    for (size_t i = 1; i < sizeof shapes / sizeof *shapes; i += 2)
        all_passes(&shapes[i], MICS_DTYPE_FP32, ldexp(1, -11));
    all_passes(&shapes[4], MICS_DTYPE_FP32, ldexp(1, -11));
    allow(cu_device(), false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_match), cmocka_unit_test(some_gradients_match),
        cmocka_unit_test(wide_rows), cmocka_unit_test(experts_match_in_tf32)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
