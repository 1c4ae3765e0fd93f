// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One call of an op's passes, of a GEMM or of an update, timed on all ranks at once: on the CPU by
// its kernels, on a GPU by the plugin's, enqueued on one stream.
#include "measure/internal.h"

// A call that is timed.
typedef struct timed {
    measure_ops *ops;
    const measure_call *call;
    mics_exec at;
    size_t set_bytes[2]; // of operands that are read, and written
    size_t sets[2];      // of each, in its half of the arena
    double marks_us[MEASURE_MAX_SAMPLES + 1];
} timed;

// ---- calls, which run where their operands lie somewhere ----

static mics_status call_gemm(const timed *self, measure_layout *layout)
{
    const measure_call *call = self->call;
    const int64_t m = call->m, n = call->n, k = call->k, elem = (int64_t)self->ops->elem_bytes;
    const measure_gemm gemm = {.m = m,
                               .n = n,
                               .k = k,
                               .transpose_a = call->transpose_a,
                               .transpose_b = call->transpose_b,
                               .a = measure_take(layout, false, m * k * elem),
                               .b = measure_take(layout, false, k * n * elem),
                               .c = measure_take(layout, true, m * n * elem)};
    if (gemm.a != NULL)
        measure_gemm_enqueue(&gemm, &self->at);
    return MICS_OK;
}

static mics_status call_op(const timed *self, measure_layout *layout)
{
    const mics_op_kernels *kernels = self->ops->kernels->ops[self->call->shape.op->kind];
    mics_op_call call = {.at = &self->at, .shape = self->call->shape};
    MICS_TRY(measure_op_lay(layout, &call));
    if (layout->base[0] != NULL)
        kernels->forward(&call);
    if (layout->base[0] != NULL && kernels->backward != NULL)
        kernels->backward(&call);
    return MICS_OK;
}

// States and values stay as they are: nothing is learnt at a rate of 0.
static mics_status call_update(const timed *self, measure_layout *layout)
{
    const mics_optimizer optimizer = mics_optimizer_standard(MICS_OPTIMIZER_ADAMW);
    const int64_t m = self->call->m, bytes = m * (int64_t)sizeof(float);
    mics_optimizer_update update = {.optimizer = &optimizer,
                                    .step = 1,
                                    .grad_scale = 1,
                                    .rows = 1,
                                    .columns = m,
                                    .elems = m,
                                    .masters = measure_take(layout, true, bytes),
                                    .grads = measure_take(layout, false, bytes)};
    for (int s = 0; s < mics_optimizer_def_get(optimizer.kind)->states; s++)
        update.states[s] = measure_take(layout, true, bytes);
    if (update.masters != NULL)
        self->ops->kernels->update[optimizer.kind](&self->at, &update);
    return MICS_OK;
}

static mics_status run(const timed *self, measure_layout *layout)
{
    static mics_status (*const calls[MEASURE_CALL_KINDS])(const timed *, measure_layout *) = {
        [MEASURE_GEMM] = call_gemm, [MEASURE_OP] = call_op, [MEASURE_UPDATE] = call_update};
    return calls[self->call->kind](self, layout);
}

// ---- timing ----

static mics_status run_call(void *ctx, int32_t call)
{
    const timed *self = ctx;
    char *half[] = {self->ops->arena, self->ops->arena + self->ops->arena_bytes / 2};
    measure_layout layout = {.bytes = {0}};
    for (int w = 0; w < 2; w++)
        layout.base[w] = half[w] + (size_t)call % self->sets[w] * self->set_bytes[w];
    return run(self, &layout);
}

static mics_status mark(void *ctx, int32_t mark)
{
    timed *self = ctx;
    MICS_TRY(measure_wait(self->ops->session, 0));
    self->marks_us[mark] = measure_work_us(self->ops->session);
    return MICS_OK;
}

static mics_status read_mark(void *ctx, int32_t mark, double *us_out)
{
    *us_out = ((timed *)ctx)->marks_us[mark];
    return MICS_OK;
}

// Time of one call on this rank, in about `allowed_us` of the wall clock; 0 when the arena is too
// small for it, or it is of nothing.
static mics_status time_call(measure_ops *self, const measure_call *call, double allowed_us,
                             double *us_out)
{
    const size_t half = self->arena_bytes / 2;
    timed one = {.ops = self,
                 .call = call,
                 .at = {.device = self->session->rank->device,
                        .dtype = self->dtype,
                        .threads = self->threads,
                        .workspace = self->workspace,
                        .workspace_bytes = self->workspace_bytes}};
    measure_timer timer = {.call = run_call,
                           .mark = mark,
                           .read = read_mark,
                           .ctx = &one,
                           .warm_ups = 1,
                           .sample_us = 200,
                           .max_repeats = 4096,
                           .allowed_us = allowed_us,
                           .min_samples = 3};
    measure_layout layout = {.bytes = {0}};
    *us_out = 0;
    MICS_TRY(run(&one, &layout));
    if (layout.bytes[0] + layout.bytes[1] > half || layout.bytes[0] == 0)
        return MICS_OK;
    for (int w = 0; w < 2; w++) {
        one.set_bytes[w] = layout.bytes[w];
        one.sets[w] = half / layout.bytes[w];
    }
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
