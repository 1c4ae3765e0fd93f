// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The walker of a GPU, real or emulated: all dtypes, twice (cuda_op.h).
#include "cuda_op.h"
#include "op_walk.h"

static const mics_op_cases *walked;

typedef struct walk {
    cu_case c;
    const mics_op_def *def;
    mics_op op;
    mics_op_call call;
    mics_case_values v;
    int type;
    int in_type, out_type; // of inputs and of the output, and their gradients
    int64_t offset, offset_step;
    cu_buffer *out, *stats, *dout, *din[MICS_OP_INPUTS], *dparams[MICS_OP_PARAMS];
} walk;

static void run_forward(const mics_exec *at, const void *args)
{
    const walk *w = args;
    mics_op_call call = w->call;
    call.at = at;
    mics_kernels_cuda()->ops[w->op.kind]->forward(&call);
}

static void run_backward(const mics_exec *at, const void *args)
{
    const walk *w = args;
    mics_op_call call = w->call;
    call.at = at;
    mics_kernels_cuda()->ops[w->op.kind]->backward(&call);
}

// Where the next buffer of the case's dtype begins.
static int64_t next_offset(walk *w)
{
    const int64_t offset = w->offset;
    w->offset = (w->offset + w->offset_step) % 8;
    return offset;
}

static mics_case_numbers result(cu_case *c, int64_t elems)
{
    return (mics_case_numbers){cu_doubles(c, elems), cu_doubles(c, elems), MICS_CASE_TOLERANCE,
                               elems};
}

// A copy: a gradient may come to lie over the buffer.
static mics_case_numbers given(cu_case *c, const cu_buffer *buffer)
{
    double *values = cu_doubles(c, buffer->elems);
    memcpy(values, buffer->values, (size_t)buffer->elems * sizeof *values);
    return (mics_case_numbers){.at = values, .elems = buffer->elems};
}

static void first_input(const mics_op_case *of, cu_buffer *x)
{
    for (int64_t i = 0; i < x->elems; ++i)
        x->values[i] += of->shift;
    for (int64_t i = 0; i < of->edge_count && i < x->elems; ++i)
        x->values[i] = of->edges[i];
    cu_changed(x);
}

static cu_buffer *integers(cu_case *c, const char *name, const int32_t *values, int64_t count)
{
    cu_buffer *buffer = cu_ints(c, name, count, 1);
    for (int64_t i = 0; i < count; ++i)
        buffer->values[i] = values[i];
    cu_changed(buffer);
    return buffer;
}

static void make_counted(walk *w, const int32_t *targets)
{
    const int64_t N = w->call.shape.N;
    int32_t *order = (int32_t *)(void *)cu_doubles(&w->c, N);
    int64_t rest = 0;
    for (int64_t n = 0; n < N; ++n)
        rest += targets[n] >= 0;
    w->call.counted_rows = rest;
    for (int64_t n = 0, at = 0; n < N; ++n)
        order[targets[n] >= 0 ? at++ : rest++] = (int32_t)n;
    w->call.counted = integers(&w->c, "counted", order, N)->data;
}

// Tokens, and their rows sorted by them.
static void make_tokens(walk *w, const mics_op_case *of)
{
    const int64_t N = w->call.shape.N, V = w->call.shape.vocab;
    int32_t *tokens = (int32_t *)(void *)cu_doubles(&w->c, N);
    int32_t *order = (int32_t *)(void *)cu_doubles(&w->c, N);
    int32_t *counts = (int32_t *)(void *)cu_doubles(&w->c, V + 1);
    const cu_buffer *drawn = cu_ints(&w->c, "drawn tokens", N, V);
    for (int64_t n = 0; n < N; ++n)
        tokens[n] = (int32_t)drawn->values[n];
    if (of->set_tokens)
        of->set_tokens(of, tokens);
    w->v.tokens = tokens;
    w->call.tokens = w->call.targets = integers(&w->c, "tokens", tokens, N)->data;
    if (w->def->loss && of->counted)
        make_counted(w, tokens);
    if (w->def->loss)
        return;
    mics_op_sort_tokens(order, tokens, N, V, counts);
    w->call.order = integers(&w->c, "order", order, N)->data;
}

static void make_inputs(walk *w, const mics_op_case *of)
{
    static const char *const inputs[] = {"in", "second in"};
    static const char *const params[] = {"param", "second param", "third param"};
    const mics_op_shape *s = &w->call.shape;
    for (int i = 0; i < MICS_OP_INPUTS && s->in[i] > 0; ++i) {
        cu_buffer *x = cu_input(&w->c, inputs[i], w->in_type, s->N * s->in[i], next_offset(w),
                                of->scale[i] != 0 ? of->scale[i] : 1);
        if (i == 0)
            first_input(of, x);
        w->call.in[i] = x->data;
        w->v.in[i] = given(&w->c, x);
    }
    for (int p = 0; p < MICS_OP_PARAMS; ++p) {
        const int64_t elems = op_walk_param(s, p);
        if (elems == 0)
            continue;
        const cu_buffer *x = cu_input(&w->c, params[p], w->type, elems, next_offset(w), 1.0);
        w->call.params[p] = x->data;
        w->v.params[p] = given(&w->c, x);
    }
    if (s->vocab > 0)
        make_tokens(w, of);
    w->v.out = result(&w->c, s->N * (w->def->loss ? 1 : s->out));
    w->v.stats = result(&w->c, s->N * op_walk_stats(s));
}

static void make_draw(walk *w, const mics_op_case *of)
{
    int32_t words[sizeof of->draw / sizeof(int32_t)];
    memcpy(words, &of->draw, sizeof words);
    if (of->draws)
        w->call.draw = integers(&w->c, "draw", words, sizeof words / sizeof *words)->data;
}

static void begin(walk *w, const mics_case_walker *walker, const mics_op_case *of, bool backward)
{
    *w = (walk){.def = mics_op_def_get(of->op.kind), .op = of->op, .type = (int)walker->dtype};
    w->in_type = of->wide_in ? MICS_DTYPE_FP32 : w->type;
    w->out_type = of->op.wide ? MICS_DTYPE_FP32 : w->type;
    w->offset = of->offset;
    w->offset_step = of->offset_step;
    w->call = (mics_op_call){
        .shape = of->shape, .chunk_rows = of->chunk_rows, .loss_scale = of->loss_scale};
    w->call.shape.op = &w->op;
    w->call.shape.unit = "case";
    if (backward)
        op_walk_fix(&w->call.shape, of);
    w->call.shape.accelerator_bytes = (int32_t)mics_dtype_bytes(walker->dtype);
    const mics_op_cost cost = w->def->cost(&w->call.shape);
    const int64_t floats = backward ? cost.workspace_backward : cost.workspace_forward;
    const size_t bytes = (size_t)floats * sizeof(float);
    cu_begin(&w->c, walker->dtype, of->workspace_bytes > 0 ? of->workspace_bytes : bytes,
             OP_WALK_FORMAT, OP_WALK_VALUES(of, backward));
    w->v = (mics_case_values){.of = of, .dtype = walker->dtype, .gpu = true};
    make_draw(w, of);
    if (of->row_scales) {
        cu_buffer *scales = cu_input(&w->c, "scales", MICS_DTYPE_FP32, of->shape.N, 0, 1.0);
        for (int64_t n = 0; n < of->shape.N; ++n)
            scales->values[n] = (double)of->row_scales[n];
        cu_changed(scales);
        w->call.row_scales = scales->data;
    }
    if (of->segments)
        w->call.segments = integers(&w->c, "segments", of->segments, of->shape.N)->data;
    make_inputs(w, of);
    walked->forward(&w->v);
}

static void *expect(cu_buffer *buffer, const mics_case_numbers *numbers)
{
    cu_expect(buffer, numbers->at, numbers->sum, numbers->tolerance);
    return buffer->data;
}

static void make_out(walk *w)
{
    const bool loss = w->def->loss;
    void *out = expect(cu_output(&w->c, "out", loss ? MICS_DTYPE_FP32 : w->out_type, w->v.out.elems,
                                 loss ? 0 : next_offset(w)),
                       &w->v.out);
    w->call.losses = loss ? out : NULL;
    w->call.out = loss ? NULL : out;
}

static void forward(const mics_case_walker *walker, const mics_op_case *of)
{
    walk w;
    begin(&w, walker, of, false);
    make_out(&w);
    if (w.v.stats.elems > 0)
        w.call.stats =
            expect(cu_output(&w.c, "stats", MICS_DTYPE_FP32, w.v.stats.elems, 0), &w.v.stats);
    cu_run(&w.c, run_forward, &w);
    cu_end(&w.c);
}

// What forward left, and what this op's backward does not read.
static void make_kept(walk *w)
{
    if (w->v.stats.elems > 0) {
        cu_buffer *stats = cu_input(&w->c, "stats", MICS_DTYPE_FP32, w->v.stats.elems, 0, 1.0);
        memcpy(stats->values, w->v.stats.at, (size_t)stats->elems * sizeof *stats->values);
        cu_changed(stats);
        w->call.stats = stats->data;
    }
    for (int i = 0; i < MICS_OP_INPUTS; ++i) {
        if (!mics_op_keeps_in(&w->call.shape, i))
            w->call.in[i] = NULL;
    }
    for (int p = 0; p < MICS_OP_PARAMS && !w->def->backward_reads_params; ++p)
        w->call.params[p] = NULL;
}

static void make_gradients(walk *w, const mics_op_case *of)
{
    static const char *const names[] = {"dparam", "second dparam", "third dparam"};
    cu_case *c = &w->c;
    mics_case_values *v = &w->v;
    cu_buffer *dout = NULL;
    if (w->def->loss) {
        make_out(w);
    } else {
        dout = cu_input(c, "dout", w->out_type, v->out.elems, next_offset(w), 1.0);
        w->call.dout = dout->data;
        v->dout = given(c, dout);
    }
    if (v->in[0].elems > 0)
        v->din[0] = result(c, v->in[0].elems);
    if (of->in_place) {
        dout->role = CU_INOUT;
        w->din[0] = dout;
    } else if (v->in[0].elems > 0 && !of->without_din)
        w->din[0] = cu_inout(c, "din", w->in_type, v->in[0].elems, next_offset(w), of->add_din);
    w->call.add_din = of->add_din;
    if (w->def->backward_second) {
        v->din[1] = result(c, v->in[1].elems);
        if (!of->without_din_second)
            w->din[1] = cu_output(c, "second din", w->type, v->in[1].elems, next_offset(w));
    }
    for (int p = 0; p < MICS_OP_PARAMS && v->params[p].at; ++p) {
        v->dparams[p] = result(c, v->params[p].elems);
        w->call.add_params[p] = of->add_params[p];
        if (!of->without_dparams[p])
            w->dparams[p] = cu_inout(c, names[p], w->type, v->params[p].elems, next_offset(w),
                                     of->add_params[p]);
    }
}

static void *expect_sum(cu_buffer *buffer, const mics_case_numbers *numbers, bool add)
{
    if (buffer == NULL)
        return NULL;
    for (int64_t i = 0; add && i < buffer->elems; ++i)
        mics_case_add(numbers, i, buffer->values[i]);
    return expect(buffer, numbers);
}

static void backward(const mics_case_walker *walker, const mics_op_case *of)
{
    walk w;
    begin(&w, walker, of, true);
    make_kept(&w);
    make_gradients(&w, of);
    walked->backward(&w.v);
    w.call.din = expect_sum(w.din[0], &w.v.din[0], of->add_din);
    w.call.din_second = expect_sum(w.din[1], &w.v.din[1], false);
    for (int p = 0; p < MICS_OP_PARAMS; ++p)
        w.call.dparams[p] = expect_sum(w.dparams[p], &w.v.dparams[p], of->add_params[p]);
    cu_run(&w.c, run_backward, &w);
    cu_end(&w.c);
}

static void call(const mics_case_walker *self, const mics_op_case *of, bool is_backward)
{
    static int turn = 0;
    if (is_backward)
        op_walk_wants(of, turn++, backward, self);
    else
        forward(self, of);
}

void op_walk(const mics_op_cases *cases)
{
    cu_device();
    if (cases->gpu == NULL)
        skip();
    walked = cases;
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
        const mics_case_walker walker = {(mics_dtype)dtype, true, call};
        cases->gpu(&walker);
    }
}

int op_walk_main(const struct CMUnitTest *tests, size_t count)
{
    return runner_run("gpu", tests, count, NULL, NULL);
}
