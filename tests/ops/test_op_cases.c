// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The walker of the CPU: every instruction set, 1 to 3 threads, fp32 and bf16 (op_harness.h).
#include "op_harness.h"
#include "op_walk.h"

static const mics_op_cases *walked;

typedef struct walk {
    op_case c;
    const mics_op_def *def;
    mics_op op;
    mics_op_call call;
    mics_case_values v;
    float *workspace;
} walk;

static void run(const mics_kernels *k, int32_t threads, const void *args, bool backward)
{
    const walk *w = args;
    const mics_exec at = op_exec(threads, w->workspace);
    mics_op_call call = w->call;
    call.at = &at;
    (backward ? k->ops[w->op.kind]->backward : k->ops[w->op.kind]->forward)(&call);
}

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    run(k, threads, args, false);
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    run(k, threads, args, true);
}

static double objective(const void *ctx)
{
    mics_case_values v = *(const mics_case_values *)ctx;
    walked->forward(&v);
    double losses = 0;
    for (int64_t n = 0; !v.dout.at && n < v.out.elems; ++n)
        losses += (double)v.of->loss_scale * v.out.at[n] *
                  (v.of->row_scales ? (double)v.of->row_scales[n] : 1);
    return !v.dout.at ? losses : op_dot(v.out.at, v.dout.at, v.out.elems);
}

static mics_case_numbers result(op_case *c, int64_t elems)
{
    return (mics_case_numbers){op_doubles(c, elems), op_doubles(c, elems), MICS_CASE_TOLERANCE,
                               elems};
}

static mics_case_numbers given(op_case *c, const float *data, int64_t elems)
{
    return (mics_case_numbers){.at = op_widen(c, data), .elems = elems};
}

static void first_input(op_case *c, const mics_op_case *of, float *x, int64_t elems)
{
    for (int64_t i = 0; of->shift != 0 && i < elems; ++i)
        x[i] += (float)of->shift;
    for (int64_t i = 0; i < of->edge_count && i < elems; ++i)
        x[i] = (float)of->edges[i];
    op_input_changed(c, x);
}

// An array that is fp32 in every dtype, with bits that bf16 has not.
static void make_wide(op_case *c, float *data, int64_t elems)
{
    op_fp32(c, data);
    for (int64_t i = 0; i < elems; ++i)
        data[i] *= 1.00073F;
    op_input_changed(c, data);
}

static void make_tokens(walk *w, const mics_op_case *of)
{
    int32_t *tokens = op_random_ints(&w->c, of->shape.N, of->shape.vocab);
    if (of->set_tokens)
        of->set_tokens(of, tokens);
    w->v.tokens = w->call.tokens = w->call.targets = tokens;
}

static void make_inputs(walk *w, const mics_op_case *of)
{
    static const char *const inputs[] = {"in", "second in"};
    static const char *const params[] = {"param", "second param", "third param"};
    const mics_op_shape *s = &w->call.shape;
    for (int i = 0; i < MICS_OP_INPUTS && s->in[i] > 0; ++i) {
        const int64_t elems = s->N * s->in[i];
        float *x = op_input(&w->c, inputs[i], elems, of->scale[i] != 0 ? of->scale[i] : 1);
        if (of->wide_in)
            make_wide(&w->c, x, elems);
        if (i == 0)
            first_input(&w->c, of, x, elems);
        w->call.in[i] = x;
        w->v.in[i] = given(&w->c, x, elems);
    }
    for (int p = 0; p < MICS_OP_PARAMS; ++p) {
        const int64_t elems = op_walk_param(s, p);
        if (elems == 0)
            continue;
        const float *x = op_input(&w->c, params[p], elems, 1.0);
        w->call.params[p] = x;
        w->v.params[p] = given(&w->c, x, elems);
    }
    if (s->vocab > 0)
        make_tokens(w, of);
    w->v.out = result(&w->c, s->N * (w->def->loss ? 1 : s->out));
    w->v.stats = result(&w->c, s->N * op_walk_stats(s));
}

static void begin(walk *w, const mics_op_case *of, bool backward)
{
    *w = (walk){.def = mics_op_def_get(of->op.kind), .op = of->op};
    op_begin(&w->c, OP_WALK_FORMAT, OP_WALK_VALUES(of, backward));
    w->c.depends_on_threads = w->def->multiplies;
    w->call = (mics_op_call){.shape = of->shape,
                             .draw = of->draws ? &of->draw : NULL,
                             .segments = of->segments,
                             .chunk_rows = of->chunk_rows,
                             .loss_scale = of->loss_scale,
                             .row_scales = of->row_scales};
    w->call.shape.op = &w->op;
    w->call.shape.unit = "case";
    if (backward)
        op_walk_fix(&w->call.shape, of);
    w->call.shape.cpu_bf16 = op_bf16();
    w->call.shape.threads = OP_MAX_THREADS;
    w->v = (mics_case_values){.of = of, .dtype = op_bf16() ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32};
    make_inputs(w, of);
    walked->forward(&w->v);
    const mics_op_cost cost = w->def->cost(&w->call.shape);
    int64_t floats = backward ? cost.workspace_backward : cost.workspace_forward;
    if (of->workspace_bytes > 0)
        floats = (int64_t)(of->workspace_bytes / sizeof(float));
    w->workspace = floats > 0 ? op_space(&w->c, "workspace", floats) : NULL;
}

static void expect(walk *w, const float *data, const mics_case_numbers *numbers)
{
    op_expect(&w->c, data, numbers->at, numbers->sum, numbers->tolerance);
}

static void make_out(walk *w)
{
    float *out = op_output(&w->c, "out", w->v.out.elems, false);
    if (w->op.wide)
        op_fp32(&w->c, out);
    w->call.losses = w->def->loss ? op_fp32(&w->c, out) : NULL;
    w->call.out = w->def->loss ? NULL : out;
    expect(w, out, &w->v.out);
}

static void forward(const mics_op_case *of)
{
    walk w;
    begin(&w, of, false);
    make_out(&w);
    if (w.v.stats.elems > 0) {
        w.call.stats = op_fp32(&w.c, op_output(&w.c, "stats", w.v.stats.elems, false));
        expect(&w, w.call.stats, &w.v.stats);
    }
    op_run(&w.c, run_forward, &w);
    op_end(&w.c);
}

static float *kept(op_case *c, const char *name, const mics_case_numbers *numbers, bool fp32)
{
    float *data = op_input(c, name, numbers->elems, 1.0);
    for (int64_t i = 0; i < numbers->elems; ++i)
        data[i] = (float)numbers->at[i];
    if (fp32)
        op_fp32(c, data);
    op_input_changed(c, data);
    return data;
}

// What forward left, and what this op's backward does not read.
static void make_kept(walk *w)
{
    if (w->def->backward_reads_out)
        w->call.out = kept(&w->c, "out", &w->v.out, false);
    if (w->v.stats.elems > 0)
        w->call.stats = kept(&w->c, "stats", &w->v.stats, true);
    for (int i = 0; i < MICS_OP_INPUTS; ++i) {
        if (!mics_op_keeps_in(&w->call.shape, i))
            w->call.in[i] = NULL;
    }
    for (int p = 0; p < MICS_OP_PARAMS && !w->def->backward_reads_params; ++p)
        w->call.params[p] = NULL;
}

static void make_dout(walk *w, int64_t elems)
{
    float *dout = op_input(&w->c, "dout", elems, 1.0);
    if (w->op.wide)
        make_wide(&w->c, dout, elems);
    w->call.dout = dout;
}

static void make_gradients(walk *w, const mics_op_case *of)
{
    static const char *const names[] = {"dparam", "second dparam", "third dparam"};
    op_case *c = &w->c;
    mics_case_values *v = &w->v;
    const int64_t outs = v->out.elems;
    if (w->def->loss)
        make_out(w);
    else if (of->in_place)
        w->call.dout = w->call.din = op_inout(c, "dout and din", outs, 1.0);
    else
        make_dout(w, outs);
    if (!w->def->loss)
        v->dout = given(c, w->call.dout, outs);
    if (v->in[0].elems > 0)
        v->din[0] = result(c, v->in[0].elems);
    if (v->in[0].elems > 0 && !of->in_place && !of->without_din)
        w->call.din = op_output(c, "din", v->in[0].elems, of->add_din);
    if (of->wide_in && w->call.din)
        op_fp32(c, w->call.din);
    w->call.add_din = of->add_din;
    if (w->def->backward_second) {
        v->din[1] = result(c, v->in[1].elems);
        if (!of->without_din_second)
            w->call.din_second = op_output(c, "second din", v->in[1].elems, false);
    }
    for (int p = 0; p < MICS_OP_PARAMS && v->params[p].at; ++p) {
        v->dparams[p] = result(c, v->params[p].elems);
        w->call.add_params[p] = of->add_params[p];
        if (!of->without_dparams[p])
            w->call.dparams[p] = op_output(c, names[p], v->params[p].elems, of->add_params[p]);
    }
}

static void check_gradients(walk *w, int64_t samples)
{
    mics_case_values *v = &w->v;
    for (int i = 0; samples > 0 && i < MICS_OP_INPUTS && v->din[i].at; ++i)
        op_check_gradient(&w->c, "in", objective, v, v->in[i].at, v->in[i].elems, v->din[i].at,
                          samples);
    for (int p = 0; samples > 0 && p < MICS_OP_PARAMS && v->dparams[p].at; ++p)
        op_check_gradient(&w->c, "param", objective, v, v->params[p].at, v->params[p].elems,
                          v->dparams[p].at, samples);
}

static void backward(const mics_case_walker *self, const mics_op_case *of)
{
    walk w;
    (void)self;
    begin(&w, of, true);
    make_kept(&w);
    make_gradients(&w, of);
    walked->backward(&w.v);
    check_gradients(&w, of->samples);
    if (of->samples > 0)
        walked->forward(&w.v); // what differences left is of moved inputs
    for (int64_t i = 0; of->in_place && of->add_din && i < w.v.dout.elems; ++i)
        mics_case_add(&w.v.din[0], i, w.v.dout.at[i]);
    if (w.call.din)
        expect(&w, w.call.din, &w.v.din[0]);
    if (w.call.din_second)
        expect(&w, w.call.din_second, &w.v.din[1]);
    for (int p = 0; p < MICS_OP_PARAMS; ++p)
        if (w.call.dparams[p])
            expect(&w, w.call.dparams[p], &w.v.dparams[p]);
    op_run(&w.c, run_backward, &w);
    op_end(&w.c);
}

static void call(const mics_case_walker *self, const mics_op_case *of, bool is_backward)
{
    static int turn = 0;
    if (is_backward)
        op_walk_wants(of, turn++, backward, self);
    else
        forward(of);
}

void op_walk(const mics_op_cases *cases)
{
    const mics_case_walker walker = {op_bf16() ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32, false, call};
    walked = cases;
    cases->cpu(&walker);
}

int op_walk_main(const struct CMUnitTest *tests, size_t count)
{
    return op_run_twice(tests, count);
}
