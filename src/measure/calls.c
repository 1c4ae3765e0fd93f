// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One call of an op's passes, of a GEMM or of an update, timed on all ranks at once: on the CPU by
// its kernels, on a GPU by the plugin's, enqueued on one stream.
#include "base/size.h"
#include "measure/internal.h"

enum { MIN_SAMPLES = 3 };

// A sample of what is quick is so many calls that they take this long.
static const double SAMPLE_US = 200;

// ---- operands ----

// The next `elems` numbers to read, or to write; both halves of the arena are walked through again
// and again.
static void *take(measure_ops *self, bool writes, int64_t elems)
{
    const int64_t half = self->arena_elems / 2;
    int64_t *at = &self->at[writes];
    if (*at + elems > half)
        *at = 0;
    void *operand = self->arena + (size_t)((writes ? half : 0) + *at) * self->elem_bytes;
    *at += mics_size_round_up(elems, 16);
    return operand;
}

static void *in(measure_ops *self, int64_t elems)
{
    return take(self, false, elems);
}

static void *out(measure_ops *self, int64_t elems)
{
    return take(self, true, elems);
}

// Numbers that are fp32 whatever the dtype.
static int64_t floats(const measure_ops *self, int64_t elems)
{
    return elems * (int64_t)(sizeof(float) / self->elem_bytes);
}

static mics_exec exec_of(const measure_ops *self)
{
    return (mics_exec){.device = self->session->rank->device,
                       .dtype = self->dtype,
                       .threads = self->threads,
                       .workspace = self->workspace,
                       .workspace_bytes = self->workspace_bytes};
}

// ---- calls ----

static int64_t param_elems(const mics_op_shape *s, int p)
{
    return s->params[p][0] * (s->params[p][1] > 0 ? s->params[p][1] : 1);
}

// At least as wide as any op's stats; those of a router hold all scores, and places of those
// chosen.
static int64_t stats_width(const mics_op_shape *s)
{
    const mics_experts e = s->op->experts;
    return s->heads.query + s->heads.key_value + 2 + e.count + 2 * (int64_t)e.chosen;
}

// All that an op reads and writes in both passes, stats as numbers of the largest size.
static int64_t op_elems(const mics_op_shape *s)
{
    int64_t elems = s->N * (2 * s->in[0] + 2 * s->in[1] + 2 * s->out + 2 * stats_width(s));
    for (int p = 0; p < MICS_OP_PARAMS; p++)
        elems += 2 * param_elems(s, p);
    return elems;
}

// Elements of the largest operands that a call reads, and writes.
static int64_t call_elems(const measure_call *call)
{
    const int64_t m = call->m, n = call->n, k = call->k;
    switch (call->kind) {
    case MEASURE_GEMM:
        return m * k + k * n + m * n;
    case MEASURE_OP:
        return op_elems(&call->shape);
    case MEASURE_UPDATE:
        return 8 * m; // fp32
    default:
        return 0;
    }
}

static void call_gemm(measure_ops *self, const measure_call *call)
{
    const int64_t m = call->m, n = call->n, k = call->k;
    const void *a = in(self, m * k), *b = in(self, k * n);
    if (self->session->place.gpu) {
        const mics_exec at = exec_of(self);
        const measure_gemm gemm = {.m = m,
                                   .n = n,
                                   .k = k,
                                   .transpose_a = call->transpose_a,
                                   .transpose_b = call->transpose_b,
                                   .a = (void *)a,
                                   .b = (void *)b,
                                   .c = out(self, m * n)};
        measure_gemm_enqueue(&gemm, &at);
        return;
    }
    mics_gemm(call->transpose_a, call->transpose_b, m, n, k, 1, a, call->transpose_a ? m : k, b,
              call->transpose_b ? k : n, 0, out(self, m * n), n);
}

static void call_op(measure_ops *self, const measure_call *call)
{
    const mics_op_shape *s = &call->shape;
    const mics_op_kernels *kernels = self->kernels->ops[s->op->kind];
    const mics_exec at = exec_of(self);
    mics_op_call c = {.at = &at,
                      .shape = *s,
                      .out = out(self, s->N * s->out),
                      .stats = out(self, floats(self, s->N * stats_width(s)))};
    for (int i = 0; i < MICS_OP_INPUTS; i++)
        c.in[i] = in(self, s->N * s->in[i]);
    for (int p = 0; p < MICS_OP_PARAMS && param_elems(s, p) > 0; p++)
        c.params[p] = in(self, param_elems(s, p));
    kernels->forward(&c);
    if (kernels->backward == NULL)
        return;
    c.dout = in(self, s->N * s->out);
    c.din = out(self, s->N * s->in[0]);
    if (mics_op_def_get(s->op->kind)->backward_second)
        c.din_second = out(self, s->N * s->in[1]);
    for (int p = 0; p < MICS_OP_PARAMS && param_elems(s, p) > 0; p++)
        c.dparams[p] = out(self, param_elems(s, p));
    kernels->backward(&c);
}

// States and values stay as they are: nothing is learnt at a rate of 0.
static void call_update(measure_ops *self, const measure_call *call)
{
    const mics_optimizer optimizer = mics_optimizer_standard(MICS_OPTIMIZER_ADAMW);
    const mics_exec at = exec_of(self);
    const int64_t elems = floats(self, call->m);
    mics_optimizer_update update = {.optimizer = &optimizer,
                                    .step = 1,
                                    .grad_scale = 1,
                                    .rows = 1,
                                    .columns = call->m,
                                    .elems = call->m,
                                    .masters = out(self, elems),
                                    .grads = in(self, elems)};
    for (int s = 0; s < mics_optimizer_def_get(optimizer.kind)->states; s++)
        update.states[s] = out(self, elems);
    self->kernels->update[optimizer.kind](&at, &update);
}

static void run_call(measure_ops *self, const measure_call *call)
{
    static void (*const calls[MEASURE_CALL_KINDS])(measure_ops *, const measure_call *) = {
        [MEASURE_GEMM] = call_gemm, [MEASURE_OP] = call_op, [MEASURE_UPDATE] = call_update};
    calls[call->kind](self, call);
}

// ---- timing ----

typedef struct timed_call {
    measure_ops *self;
    const measure_call *call;
    double at_us[MEASURE_MAX_SAMPLES + 1]; // by mark
} timed_call;

static mics_status next_call(void *ctx, int32_t call)
{
    const timed_call *of = ctx;
    (void)call;
    run_call(of->self, of->call);
    return MICS_OK;
}

static mics_status set_mark(void *ctx, int32_t mark)
{
    timed_call *of = ctx;
    MICS_TRY(measure_wait(of->self->session, 0));
    of->at_us[mark] = measure_work_us(of->self->session);
    return MICS_OK;
}

static mics_status read_mark(void *ctx, int32_t mark, double *us_out)
{
    const timed_call *of = ctx;
    *us_out = of->at_us[mark];
    return MICS_OK;
}

// Time of one call on this rank, in about `allowed_us` of the wall clock; 0 when the arena is too
// small for it.
static mics_status time_call(measure_ops *self, const measure_call *call, double allowed_us,
                             double *us_out)
{
    timed_call of = {.self = self, .call = call};
    measure_timer timer = {.call = next_call,
                           .mark = set_mark,
                           .read = read_mark,
                           .ctx = &of,
                           .warm_ups = 1,
                           .sample_us = SAMPLE_US,
                           .max_repeats = 4096,
                           .allowed_us = allowed_us,
                           .min_samples = MIN_SAMPLES};
    *us_out = 0;
    if (call_elems(call) > self->arena_elems / 2)
        return MICS_OK;
    MICS_TRY(measure_timer_run(&timer));
    self->calls_made = timer.calls;
    *us_out = timer.median_us;
    return MICS_OK;
}

// The same on all ranks at once; their mean.
mics_status measure_call_run(measure_ops *self, const measure_call *call, double allowed_us,
                             double *us_out)
{
    double mine = 0;
    MICS_TRY(measure_share(self->session, &mine, 1));
    MICS_TRY(time_call(self, call, allowed_us, &mine));
    mine = mine > 0 ? mine : -1;
    MICS_TRY(measure_share(self->session, &mine, 1));
    *us_out = measure_mean(self->session, 0);
    return MICS_OK;
}
