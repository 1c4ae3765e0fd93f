// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ops on rows that travel, on a GPU against fp64: dispatch and combine of one rank, and the GEMMs and
// swiglu of the experts on rows that came, in every type. Rows of no use hold NaN, and stay as they
// were where a kernel writes.
#include "cuda_op.h"
#include "experts.h"
#include <math.h>

typedef struct shape {
    int32_t ranks;
    mics_experts experts;
    int64_t N, C, I; // C: of rows that came; I: of what their experts give
    int32_t drops;   // every so many choices one; 0: none
    bool add;
    int64_t gap; // numbers between the weights of two experts
} shape;

static const shape shapes[] = {
    {2, {.count = 4, .chosen = 2}, 5, 7, 3, 0, true, 3},      // nothing is a vector
    {4, {.count = 8, .chosen = 3}, 16, 16, 24, 2, false, 8},  // rows of vectors, many dropped
    {2, {.count = 8, .chosen = 5}, 9, 8, 16, 3, true, 0},     // fewer rows a block than choices
    {4, {.count = 4, .chosen = 1}, 40, 24, 8, 0, false, 0},   // an expert a rank
    {1, {.count = 3, .chosen = 2}, 8, 9, 4, 4, true, 0},      // rows stay
    {2, {.count = 2, .chosen = 2}, 150, 8, 136, 0, false, 1}, // two tiles of rows a block
    {2, {.count = 4, .chosen = 2}, 3, 300, 5, 1, false, 0},   // all are dropped
    // Blocks of what a capacity lets experts take: of 12 rows, which are no whole number a token.
    {4, {.count = 8, .chosen = 3, .capacity = 1, .eval_capacity = 1}, 16, 8, 16, 5, true, 0},
};

static mics_op op_of(const shape *s, mics_op_kind kind)
{
    return (mics_op){.kind = kind,
                     .experts = s->experts,
                     .expert_ranks = s->ranks,
                     .travel_rows = mics_experts_travel_rows(s->experts, s->ranks, s->N)};
}

static int64_t kept_of(const shape *s)
{
    return s->experts.count / s->ranks;
}

// Rows of a block.
static int64_t block_of(const shape *s)
{
    const mics_op op = op_of(s, MICS_OP_DISPATCH);
    return s->N * op.travel_rows / s->ranks;
}

static int64_t rows_of(const shape *s)
{
    return s->ranks * block_of(s);
}

static void begin(cu_case *c, const shape *s, mics_dtype dtype, const experts_call *of,
                  bool backward)
{
    cu_begin(c, dtype, op_workspace_of(dtype, of->op, of->call.shape),
             "%s %s E=%d, %d of %d experts, N=%d C=%d I=%d drops %d add %d",
             mics_op_def_get(of->op.kind)->name, backward ? "backward" : "forward", (int)s->ranks,
             (int)s->experts.chosen, (int)s->experts.count, (int)s->N, (int)s->C, (int)s->I,
             (int)s->drops, s->add);
}

// ---- what must be where ----

// No number is expected, and none is written.
static void expect_nothing(double *want, double *magnitude, int64_t i)
{
    want[i] = (double)NAN;
    magnitude[i] = 0;
}

static void add_term(double *want, double *magnitude, int64_t i, double term)
{
    want[i] += term;
    magnitude[i] += fabs(term);
}

// With what an output held before, where the op adds.
static void expect_added(cu_buffer *b, double *want, double *magnitude, double tolerance)
{
    for (int64_t i = 0; b->role == CU_INOUT && i < b->elems; ++i)
        if (!isnan(want[i]))
            add_term(want, magnitude, i, b->values[i]);
    cu_expect(b, want, magnitude, tolerance);
}

// A number of a buffer by its bytes.
static uint32_t bits_at(const cu_buffer *b, const unsigned char *bytes, int64_t i)
{
    uint32_t bits = 0;
    const size_t size = mics_dtype_bytes((mics_dtype)b->type);
    memcpy(&bits, bytes + b->data_at + (size_t)i * size, size);
    return bits;
}

// ---- the sender ----

// A token's choices, their places, and where its rows lie.
typedef struct routes {
    int32_t *chosen, *rows; // (N, k)
    int64_t *at;            // (N, k): of all blocks' rows; -1: dropped
    int32_t *tags;          // by row of all blocks
    float *stats;
} routes;

// The first dropped row follows all others; rows lie by expert, then by token.
static void place(const shape *s, const routes *r)
{
    const int64_t choices = s->N * s->experts.chosen, kept = kept_of(s);
    int64_t used[4] = {0};
    int32_t row = 0;
    for (int64_t i = 0; i < rows_of(s); ++i)
        r->tags[i] = MICS_ROW_NONE;
    for (int32_t expert = 0; expert < s->experts.count; ++expert)
        for (int64_t i = 0; i < choices; ++i) {
            const int64_t block = expert / kept, at = block * block_of(s) + used[block];
            if (r->chosen[i] != expert)
                continue;
            r->rows[i] = row++;
            r->at[i] = at;
            r->tags[at] = (int32_t)(expert % kept);
            used[block]++;
        }
    for (int64_t i = 0; i < choices; ++i)
        if (r->chosen[i] < 0) {
            r->rows[i] = row++;
            r->at[i] = -1;
        }
}

// Drops what is beyond an expert's capacity, of best choices first.
static void drop(const shape *s, const routes *r)
{
    const int64_t k = s->experts.chosen, capacity = mics_experts_capacity(s->experts, s->N, true);
    int64_t taken[8] = {0};
    for (int64_t j = 0; j < k; ++j)
        for (int64_t n = 0; n < s->N; ++n) {
            int32_t *choice = &r->chosen[n * k + j];
            if (*choice >= 0 && taken[*choice]++ >= capacity)
                *choice = ~*choice;
        }
}

static routes route(cu_case *c, const shape *s)
{
    const int64_t k = s->experts.chosen, choices = s->N * k, floats = mics_route_floats(s->experts);
    int32_t *ints = (int32_t *)(void *)cu_doubles(c, choices + rows_of(s));
    routes r = {.chosen = ints,
                .rows = ints + choices,
                .tags = ints + 2 * choices,
                .at = (int64_t *)(void *)cu_doubles(c, choices)};
    const cu_buffer *drawn = cu_ints(c, "choices", choices, s->experts.count);
    for (int64_t i = 0; i < choices; ++i) {
        const int32_t expert =
            ((int32_t)drawn->values[i / k * k] + (int32_t)(i % k)) % s->experts.count;
        r.chosen[i] = s->drops > 0 && i % s->drops == 0 ? ~expert : expert;
    }
    drop(s, &r);
    place(s, &r);
    cu_buffer *stats = cu_input(c, "routes", MICS_DTYPE_FP32, s->N * floats, 0, 1);
    for (int64_t i = 0; i < choices; ++i) {
        const int64_t at = i / k * floats + s->experts.count + 2 + i % k;
        stats->values[at] = experts_bits(r.chosen[i] < 0 ? 0 : r.chosen[i]);
        stats->values[at + k] = experts_bits(r.rows[i]);
    }
    cu_changed(stats);
    for (int64_t i = 0; i < choices; ++i) // NaN in fp32, whose bits a double does not keep
        if (r.chosen[i] < 0)
            memcpy(stats->before + stats->data_at +
                       (size_t)(i / k * floats + s->experts.count + 2 + i % k) * sizeof(float),
                   &r.chosen[i], sizeof r.chosen[i]);
    r.stats = stats->data;
    return r;
}

// Where number c of a row begins in a tensor of rows of `width`, with tags or without.
static int64_t number_at(const shape *s, int64_t row, int64_t width, bool tags)
{
    return row * width + (tags ? row / block_of(s) * block_of(s) : 0);
}

static int64_t tag_at(const shape *s, int64_t row, int64_t width)
{
    const int64_t block = row / block_of(s);
    return (block + 1) * block_of(s) * width + row;
}

// `combine` or else dispatch.
static experts_call token_call(const shape *s, bool combine)
{
    const int64_t rows = rows_of(s) / s->N, k = s->experts.chosen;
    experts_call of = {.op = op_of(s, combine ? MICS_OP_COMBINE : MICS_OP_DISPATCH)};
    of.call.shape = (mics_op_shape){.B = 1,
                                    .T = s->N,
                                    .N = s->N,
                                    .in = {combine ? rows * s->C : s->C, k},
                                    .out = combine ? s->C : rows * (s->C + 1)};
    return of;
}

static void dispatch_forward(const shape *s, mics_dtype dtype)
{
    cu_case c;
    experts_call of = token_call(s, false);
    begin(&c, s, dtype, &of, false);
    const int64_t ys = rows_of(s) * (s->C + 1), k = s->experts.chosen;
    const routes r = route(&c, s);
    const cu_buffer *x = cu_input(&c, "x", (int)dtype, s->N * s->C, 0, 1);
    cu_buffer *y = cu_inout(&c, "y", (int)dtype, ys, 0, true); // NaN would look like no tag
    double *want = cu_doubles(&c, 2 * ys), *magnitude = want + ys;
    for (int64_t i = 0; i < ys; ++i)
        expect_nothing(want, magnitude, i);
    for (int64_t i = 0; i < s->N * k; ++i)
        for (int64_t n = 0; r.at[i] >= 0 && n < s->C; ++n)
            want[number_at(s, r.at[i], s->C, true) + n] = x->values[i / k * s->C + n];
    cu_expect(y, want, magnitude, 1e-3);
    of.call.routes = r.stats;
    of.call.in[0] = x->data;
    of.call.out = y->data;
    for (int64_t row = 0; row < rows_of(s); ++row) { // written; their bits are compared below
        const bool nan = dtype != MICS_DTYPE_FP32 && r.tags[row] == MICS_ROW_NONE;
        want[tag_at(s, row, s->C)] = nan ? (double)NAN : 0;
        magnitude[tag_at(s, row, s->C)] = 1;
    }
    cu_run(&c, run_forward, &of);
    for (int64_t row = 0; row < rows_of(s); ++row)
        assert_int_equal(bits_at(y, y->after, tag_at(s, row, s->C)), r.tags[row]);
    cu_end(&c);
}

static void dispatch_backward(const shape *s, mics_dtype dtype)
{
    cu_case c;
    experts_call of = token_call(s, false);
    begin(&c, s, dtype, &of, true);
    const int64_t ys = rows_of(s) * (s->C + 1), xs = s->N * s->C, k = s->experts.chosen;
    const routes r = route(&c, s);
    const cu_buffer *dy = cu_input(&c, "dy", (int)dtype, ys, 0, 1);
    cu_buffer *dx = cu_inout(&c, "dx", (int)dtype, xs, 0, s->add);
    double *want = cu_doubles(&c, 2 * xs);
    for (int64_t i = 0; i < s->N * k; ++i)
        for (int64_t n = 0; r.at[i] >= 0 && n < s->C; ++n)
            add_term(want, want + xs, i / k * s->C + n,
                     dy->values[number_at(s, r.at[i], s->C, true) + n]);
    expect_added(dx, want, want + xs, CU_TOLERANCE);
    of.call.routes = r.stats;
    of.call.dout = dy->data, of.call.din = dx->data, of.call.add_din = s->add;
    cu_run(&c, run_backward, &of);
    cu_end(&c);
}

static void combine_forward(const shape *s, mics_dtype dtype)
{
    cu_case c;
    experts_call of = token_call(s, true);
    begin(&c, s, dtype, &of, false);
    const int64_t ys = s->N * s->C, k = s->experts.chosen;
    const routes r = route(&c, s);
    const cu_buffer *x = cu_input(&c, "rows", (int)dtype, rows_of(s) * s->C, 0, 1);
    const cu_buffer *weights = cu_input(&c, "weights", (int)dtype, s->N * k, 0, 1);
    cu_buffer *y = cu_output(&c, "y", (int)dtype, ys, 0);
    double *want = cu_doubles(&c, 2 * ys);
    for (int64_t i = 0; i < s->N * k; ++i)
        for (int64_t n = 0; r.at[i] >= 0 && n < s->C; ++n)
            add_term(want, want + ys, i / k * s->C + n,
                     weights->values[i] * x->values[r.at[i] * s->C + n]);
    cu_expect(y, want, want + ys, CU_TOLERANCE);
    of.call.routes = r.stats;
    of.call.in[0] = x->data, of.call.in[1] = weights->data, of.call.out = y->data;
    cu_run(&c, run_forward, &of);
    cu_end(&c);
}

static void combine_backward(const shape *s, mics_dtype dtype)
{
    cu_case c;
    experts_call of = token_call(s, true);
    begin(&c, s, dtype, &of, true);
    const int64_t xs = rows_of(s) * s->C, k = s->experts.chosen, choices = s->N * k;
    const routes r = route(&c, s);
    const cu_buffer *x = cu_input(&c, "rows", (int)dtype, xs, 0, 1);
    const cu_buffer *weights = cu_input(&c, "weights", (int)dtype, choices, 0, 1);
    const cu_buffer *dy = cu_input(&c, "dy", (int)dtype, s->N * s->C, 0, 1);
    cu_buffer *dx = cu_output(&c, "drows", (int)dtype, xs, 0);
    cu_buffer *dweights = cu_output(&c, "dweights", (int)dtype, choices, 0);
    double *want = cu_doubles(&c, 2 * xs), *sums = cu_doubles(&c, 2 * choices);
    for (int64_t i = 0; i < xs; ++i)
        expect_nothing(want, want + xs, i);
    for (int64_t i = 0; i < choices; ++i)
        for (int64_t n = 0; r.at[i] >= 0 && n < s->C; ++n) {
            const int64_t at = r.at[i] * s->C + n;
            const double d = dy->values[i / k * s->C + n];
            want[at] = 0;
            add_term(want, want + xs, at, weights->values[i] * d);
            add_term(sums, sums + choices, i, d * x->values[at]);
        }
    cu_expect(dx, want, want + xs, CU_TOLERANCE);
    cu_expect(dweights, sums, sums + choices, CU_TOLERANCE);
    of.call.routes = r.stats;
    of.call.in[0] = x->data, of.call.in[1] = weights->data, of.call.dout = dy->data;
    of.call.din = dx->data, of.call.din_second = dweights->data;
    cu_run(&c, run_backward, &of);
    cu_end(&c);
}

// ---- the experts ----

// A tensor that came: how many rows each block holds, and whose they are. Some hold none, some all.
static cu_buffer *come(cu_case *c, const shape *s, int64_t *experts)
{
    const int64_t block = block_of(s), kept = kept_of(s);
    const cu_buffer *counts = cu_ints(c, "rows of blocks", s->ranks, block + 1);
    const cu_buffer *cuts = cu_ints(c, "where experts begin", s->ranks * kept, block + 1);
    cu_buffer *came = cu_input(c, "came", c->at.dtype, rows_of(s) * (s->C + 1), 0, 1);
    const size_t bytes = mics_dtype_bytes(c->at.dtype);
    for (int64_t row = 0; row < rows_of(s); ++row) {
        const int64_t b = row / block;
        const int64_t count = b == 1 ? block : b == 2 ? 0 : (int64_t)counts->values[b];
        experts[row] = row % block < count ? 0 : -1;
        for (int64_t e = 1; experts[row] >= 0 && e < kept; ++e)
            experts[row] += row % block >= (int64_t)cuts->values[b * kept + e];
        for (int64_t n = 0; experts[row] < 0 && n < s->C; ++n)
            came->values[number_at(s, row, s->C, true) + n] = (double)NAN;
    }
    cu_changed(came);
    for (int64_t row = 0; row < rows_of(s); ++row) {
        const uint32_t tag = experts[row] < 0 ? MICS_ROW_NONE : (uint32_t)experts[row];
        memcpy(came->before + came->data_at + (size_t)tag_at(s, row, s->C) * bytes, &tag, bytes);
    }
    return came;
}

// Rows of no use hold NaN.
static cu_buffer *rows_input(cu_case *c, const shape *s, const char *name, const int64_t *experts,
                             int64_t width)
{
    cu_buffer *b = cu_input(c, name, c->at.dtype, rows_of(s) * width, 0, 1);
    for (int64_t i = 0; i < b->elems; ++i)
        if (experts[i / width] < 0)
            b->values[i] = (double)NAN;
    cu_changed(b);
    return b;
}

typedef struct rows_pass {
    mics_dtype dtype;
    bool down, backward; // down: from rows without tags, of width I, to rows of width C
} rows_pass;

// What a GEMM reads and makes.
typedef struct rows_case {
    const shape *s;
    bool down;
    int64_t inputs, outputs, params;
    int64_t *experts;
    cu_buffer *x, *weight;
} rows_case;

static int64_t x_at(const rows_case *w, int64_t row)
{
    return number_at(w->s, row, w->inputs, !w->down);
}

static int64_t weight_at(const rows_case *w, int64_t row)
{
    return w->experts[row] * (w->s->C * w->s->I + w->s->gap);
}

static void expect_outputs(cu_case *c, const rows_case *w, experts_call *of)
{
    const int64_t ys = rows_of(w->s) * w->outputs;
    cu_buffer *y = cu_output(c, "y", c->at.dtype, ys, 0);
    double *want = cu_doubles(c, 2 * ys);
    for (int64_t i = 0; i < ys; ++i) {
        const int64_t row = i / w->outputs;
        if (w->experts[row] < 0) {
            expect_nothing(want, want + ys, i);
            continue;
        }
        const double *weights = w->weight->values + weight_at(w, row) + i % w->outputs * w->inputs;
        for (int64_t n = 0; n < w->inputs; ++n)
            add_term(want, want + ys, i, w->x->values[x_at(w, row) + n] * weights[n]);
    }
    cu_expect(y, want, want + ys, CU_TOLERANCE);
    of->call.out = y->data;
}

// Of the numbers that are no parameters nothing is expected.
static void expect_gaps(const rows_case *w, double *want, double *magnitude)
{
    const int64_t own = w->s->C * w->s->I;
    for (int64_t i = 0; i < w->params; ++i)
        if (i % (own + w->s->gap) >= own)
            expect_nothing(want, magnitude, i);
}

static void expect_gradients(cu_case *c, const rows_case *w, experts_call *of)
{
    const shape *s = w->s;
    const int64_t xs = w->x->elems;
    const cu_buffer *dy = rows_input(c, s, "dy", w->experts, w->outputs);
    cu_buffer *dx = cu_output(c, "dx", c->at.dtype, xs, 0);
    cu_buffer *dw = cu_inout(c, "dweight", c->at.dtype, w->params, 0, s->add);
    double *want = cu_doubles(c, 2 * xs), *sums = cu_doubles(c, 2 * w->params);
    for (int64_t i = 0; i < xs; ++i)
        expect_nothing(want, want + xs, i);
    for (int64_t row = 0; row < rows_of(s); ++row) {
        for (int64_t i = 0; w->experts[row] >= 0 && i < w->inputs; ++i)
            want[x_at(w, row) + i] = 0;
        for (int64_t at = 0; w->experts[row] >= 0 && at < w->inputs * w->outputs; ++at) {
            const int64_t x = x_at(w, row) + at % w->inputs, p = weight_at(w, row) + at;
            const double d = dy->values[row * w->outputs + at / w->inputs];
            add_term(want, want + xs, x, d * w->weight->values[p]);
            add_term(sums, sums + w->params, p, d * w->x->values[x]);
        }
    }
    expect_gaps(w, sums, sums + w->params);
    cu_expect(dx, want, want + xs, CU_TOLERANCE);
    expect_added(dw, sums, sums + w->params, CU_TOLERANCE);
    of->call.dout = dy->data, of->call.din = dx->data;
    of->call.dparams[0] = dw->data, of->call.add_params[0] = s->add;
}

static void rows_match(const shape *s, const rows_pass *p)
{
    cu_case c;
    const int64_t rows = rows_of(s) / s->N;
    rows_case w = {.s = s,
                   .down = p->down,
                   .inputs = p->down ? s->I : s->C,
                   .outputs = p->down ? s->C : s->I,
                   .params = kept_of(s) * (s->C * s->I + s->gap)};
    experts_call of = {.op = op_of(s, MICS_OP_EXPERTS_ROWS)};
    of.call.shape = (mics_op_shape){.B = 1,
                                    .T = s->N,
                                    .N = s->N,
                                    .in = {rows * (w.inputs + !p->down)},
                                    .out = rows * w.outputs,
                                    .params = {{w.outputs, w.inputs}},
                                    .routes = rows * (s->C + 1),
                                    .expert_elems = s->C * s->I + s->gap};
    begin(&c, s, p->dtype, &of, p->backward);
    w.experts = (int64_t *)(void *)cu_doubles(&c, rows_of(s));
    cu_buffer *came = come(&c, s, w.experts);
    w.x = p->down ? rows_input(&c, s, "x", w.experts, s->I) : came;
    w.weight = cu_input(&c, "weight", (int)p->dtype, w.params, 0, 1);
    of.call.routes = came->data;
    of.call.in[0] = w.x->data, of.call.params[0] = w.weight->data;
    if (p->backward)
        expect_gradients(&c, &w, &of);
    else
        expect_outputs(&c, &w, &of);
    cu_run(&c, p->backward ? run_backward : run_forward, &of);
    cu_end(&c);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

// Gate and up side by side in a row of 2 I.
static void swiglu_match(const shape *s, mics_dtype dtype, bool backward)
{
    cu_case c;
    const int64_t rows = rows_of(s) / s->N, I = s->I, ys = rows_of(s) * I;
    experts_call of = {.op = op_of(s, MICS_OP_SWIGLU)};
    of.call.shape = (mics_op_shape){.B = 1,
                                    .T = s->N,
                                    .N = s->N,
                                    .in = {rows * 2 * I},
                                    .out = rows * I,
                                    .routes = rows * (s->C + 1)};
    begin(&c, s, dtype, &of, backward);
    int64_t *experts = (int64_t *)(void *)cu_doubles(&c, rows_of(s));
    const cu_buffer *came = come(&c, s, experts);
    const cu_buffer *x = rows_input(&c, s, "x", experts, 2 * I);
    const cu_buffer *dy = rows_input(&c, s, "dy", experts, I);
    cu_buffer *made = cu_output(&c, backward ? "dx" : "y", (int)dtype, backward ? 2 * ys : ys, 0);
    double *want = cu_doubles(&c, 4 * ys), *magnitude = want + 2 * ys;
    for (int64_t i = 0; i < made->elems; ++i)
        expect_nothing(want, magnitude, i);
    for (int64_t i = 0; i < ys; ++i) {
        const int64_t gate_at = i / I * 2 * I + i % I;
        const double gate = x->values[gate_at], up = x->values[gate_at + I], d = dy->values[i];
        const double sig = sigmoid(gate), slope = sig * (1 + gate * (1 - sig));
        if (experts[i / I] < 0)
            continue;
        want[backward ? gate_at : i] = backward ? d * up * slope : gate * sig * up;
        magnitude[backward ? gate_at : i] = fabs(backward ? d * up : gate * up);
        if (!backward)
            continue;
        want[gate_at + I] = d * gate * sig;
        magnitude[gate_at + I] = fabs(d * gate);
    }
    cu_expect(made, want, magnitude, dtype == MICS_DTYPE_FP32 ? 2 * CU_TOLERANCE : CU_QUICK);
    of.call.routes = came->data;
    of.call.in[0] = x->data, of.call.dout = dy->data;
    of.call.out = backward ? NULL : made->data, of.call.din = backward ? made->data : NULL;
    cu_run(&c, backward ? run_backward : run_forward, &of);
    cu_end(&c);
}

// ---- tests ----

enum { SHAPES = sizeof shapes / sizeof *shapes };

static void senders_match(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES * MICS_DTYPES; ++i) {
        const shape *s = &shapes[i / MICS_DTYPES];
        const mics_dtype dtype = (mics_dtype)(i % MICS_DTYPES);
        dispatch_forward(s, dtype);
        dispatch_backward(s, dtype);
        combine_forward(s, dtype);
        combine_backward(s, dtype);
    }
}

static void experts_match(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * SHAPES * MICS_DTYPES; ++i)
        rows_match(&shapes[i / 4 / MICS_DTYPES],
                   &(rows_pass){.dtype = (mics_dtype)(i / 4 % MICS_DTYPES),
                                .down = i % 2 == 1,
                                .backward = i / 2 % 2 == 1});
}

static void swiglu_matches(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * SHAPES * MICS_DTYPES; ++i)
        swiglu_match(&shapes[i / 2 / MICS_DTYPES], (mics_dtype)(i / 2 % MICS_DTYPES), i % 2 == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(senders_match),
                                       cmocka_unit_test(experts_match),
                                       cmocka_unit_test(swiglu_matches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
