// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics bench compute: what a rank computes with, from the ops of a model. All ranks compute at
// once, since they share memory, caches and perhaps cores.
//
// Each op is timed alone first, on operands that wander through memory, as those of layer after
// layer do. Then whole steps of the model train, on each rank for itself, and all rates are
// corrected by one factor, so that a pass of the model takes what it took there (training.c).
//
// Shapes: N tokens of a micro-step; I inputs, O outputs of a linear op; V vocabulary, C hidden
// size, R rows of logits.
#include "base/clock.h"
#include "base/size.h"
#include "measure/internal.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

enum {
    MAX_SAMPLES = 64,
    MIN_SAMPLES = 3,
    MAX_CALLS = 96,
    CUBES = 3,
    LENGTHS = 4,
    TOKEN_COUNTS = 6
};

// Shares of the time.
static const double GEMMS = 0.45, ATTENTION = 0.1, OTHERS = 0.15, TRAINING = 0.3;
// A sample of what is quick is so many calls that they take this long.
static const double SAMPLE_US = 200;
static const size_t ARENA_BYTES = (size_t)64 << 20;

// ---- operands ----

// The next `elems` floats to read, or to write; both halves of the arena are walked through again
// and again.
static float *take(measure_ops *self, bool writes, int64_t elems)
{
    const int64_t half = self->arena_elems / 2;
    int64_t *at = &self->at[writes];
    if (*at + elems > half)
        *at = 0;
    float *operand = self->arena + (writes ? half : 0) + *at;
    *at += mics_size_round_up(elems, 16);
    return operand;
}

static const float *in(measure_ops *self, int64_t elems)
{
    return take(self, false, elems);
}

static float *out(measure_ops *self, int64_t elems)
{
    return take(self, true, elems);
}

// ---- calls ----

typedef enum call_kind {
    GEMM,   // (m, k) x (k, n)
    OP,     // forward and backward of an op
    UPDATE, // of m parameters
    CALL_KINDS
} call_kind;

typedef struct timed_call {
    call_kind kind;
    int64_t m, n, k;
    mics_op_shape shape; // OP
    bool transpose_a, transpose_b;
    double weight; // how often it counts among those of its size
} timed_call;

static int64_t param_elems(const mics_op_shape *s, int p)
{
    return s->params[p][0] * (s->params[p][1] > 0 ? s->params[p][1] : 1);
}

// At least as wide as any op's stats.
static int64_t stats_width(const mics_op_shape *s)
{
    return s->heads.query + s->heads.key_value + 2;
}

// All that an op reads and writes in both passes.
static int64_t op_elems(const mics_op_shape *s)
{
    int64_t elems = s->N * (2 * s->in[0] + s->in[1] + 2 * s->out + stats_width(s));
    for (int p = 0; p < MICS_OP_PARAMS; p++)
        elems += 2 * param_elems(s, p);
    return elems;
}

// Elements of the largest operands that a call reads, and writes.
static int64_t call_elems(const timed_call *call)
{
    const int64_t m = call->m, n = call->n, k = call->k;
    switch (call->kind) {
    case GEMM:
        return m * k + k * n + m * n;
    case OP:
        return op_elems(&call->shape);
    case UPDATE:
        return 4 * m;
    default:
        return 0;
    }
}

static void call_gemm(measure_ops *self, const timed_call *call)
{
    const int64_t m = call->m, n = call->n, k = call->k;
    const float *a = in(self, m * k), *b = in(self, k * n);
    mics_gemm(call->transpose_a, call->transpose_b, m, n, k, 1, a, call->transpose_a ? m : k, b,
              call->transpose_b ? k : n, 0, out(self, m * n), n);
}

static void call_op(measure_ops *self, const timed_call *call)
{
    const mics_op_shape *s = &call->shape;
    const mics_op_kernels *kernels = self->kernels->ops[s->op->kind];
    const mics_exec at = {.threads = self->threads, .workspace = self->workspace};
    mics_op_call c = {.at = &at,
                      .shape = *s,
                      .out = out(self, s->N * s->out),
                      .stats = out(self, s->N * stats_width(s))};
    for (int i = 0; i < MICS_OP_INPUTS; i++)
        c.in[i] = in(self, s->N * s->in[i]);
    for (int p = 0; p < MICS_OP_PARAMS && param_elems(s, p) > 0; p++)
        c.params[p] = in(self, param_elems(s, p));
    kernels->forward(&c);
    if (kernels->backward == NULL)
        return;
    c.dout = in(self, s->N * s->out);
    c.din = out(self, s->N * s->in[0]);
    for (int p = 0; p < MICS_OP_PARAMS && param_elems(s, p) > 0; p++)
        c.dparams[p] = out(self, param_elems(s, p));
    kernels->backward(&c);
}

// States and values stay as they are: nothing is learnt at a rate of 0.
static void call_update(measure_ops *self, const timed_call *call)
{
    const mics_optimizer optimizer = mics_optimizer_standard(MICS_OPTIMIZER_ADAMW);
    const mics_exec at = {.threads = self->threads};
    mics_optimizer_update update = {.optimizer = &optimizer,
                                    .step = 1,
                                    .grad_scale = 1,
                                    .rows = 1,
                                    .columns = call->m,
                                    .elems = call->m,
                                    .masters = out(self, call->m),
                                    .grads = in(self, call->m)};
    for (int s = 0; s < mics_optimizer_def_get(optimizer.kind)->states; s++)
        update.states[s] = out(self, call->m);
    self->kernels->update[optimizer.kind](&at, &update);
}

static void run_call(measure_ops *self, const timed_call *call)
{
    static void (*const calls[CALL_KINDS])(measure_ops *, const timed_call *) = {
        [GEMM] = call_gemm, [OP] = call_op, [UPDATE] = call_update};
    calls[call->kind](self, call);
}

// Time of one call on this rank, in about `allowed_us` of the wall clock; 0 when the arena is too
// small for it.
static double time_call(measure_ops *self, const timed_call *call, double allowed_us)
{
    double samples[MAX_SAMPLES];
    int32_t count = 0, repeats = 1;
    if (call_elems(call) > self->arena_elems / 2)
        return 0;
    run_call(self, call); // warms up
    const double begin_us = mics_clock_us();
    run_call(self, call);
    const double once_us = mics_clock_us() - begin_us;
    while (repeats < 4096 && repeats * once_us < SAMPLE_US)
        repeats *= 2;
    const int32_t least = once_us * MIN_SAMPLES < allowed_us ? MIN_SAMPLES : 1;
    do {
        const double from_us = measure_work_us(self->session);
        for (int32_t i = 0; i < repeats; i++)
            run_call(self, call);
        samples[count++] = (measure_work_us(self->session) - from_us) / repeats;
    } while (count < MAX_SAMPLES && (count < least || mics_clock_us() - begin_us < allowed_us));
    self->calls_made = 2 + count * repeats;
    return measure_median(samples, count);
}

// The same on all ranks at once; their mean.
static mics_status measure(measure_ops *self, const timed_call *call, double allowed_us,
                           double *us_out)
{
    double mine = 0;
    MICS_TRY(measure_share(self->session, &mine, 1));
    mine = time_call(self, call, allowed_us);
    mine = mine > 0 ? mine : -1;
    MICS_TRY(measure_share(self->session, &mine, 1));
    *us_out = measure_mean(self->session, 0);
    return MICS_OK;
}

// ---- GEMMs ----

typedef struct gemm_table {
    timed_call calls[MAX_CALLS];
    int32_t count;
} gemm_table;

static void add_gemm(gemm_table *table, timed_call call)
{
    for (int32_t i = 0; i < table->count; i++) {
        timed_call *other = &table->calls[i];
        if (other->m == call.m && other->n == call.n && other->k == call.k &&
            other->transpose_a == call.transpose_a && other->transpose_b == call.transpose_b) {
            other->weight += call.weight;
            return;
        }
    }
    call.kind = GEMM;
    if (table->count < MAX_CALLS)
        table->calls[table->count++] = call;
}

// The three GEMMs of a linear op with a weight (I, O), on N tokens: outputs, gradients of inputs,
// and of the weight. One that is stored (O, I), as the LM head's table is, is the other's
// transpose.
static void add_linear(gemm_table *table, int64_t N, int64_t I, int64_t O, bool out_in)
{
    add_gemm(table, (timed_call){.m = N, .n = O, .k = I, .transpose_b = out_in, .weight = 1});
    add_gemm(table, (timed_call){.m = N, .n = I, .k = O, .transpose_b = !out_in, .weight = 1});
    if (out_in)
        add_gemm(table, (timed_call){.m = O, .n = I, .k = N, .transpose_a = true, .weight = 1});
    else
        add_gemm(table, (timed_call){.m = I, .n = O, .k = N, .transpose_a = true, .weight = 1});
}

static void add_model(gemm_table *table, const measure_subject *subject, int64_t tokens)
{
    const mics_model *model = subject->model;
    mics_batch batch = subject->batch;
    batch.sequences = tokens > batch.length ? tokens / batch.length : 1;
    batch.length = tokens / batch.sequences;
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        for (int32_t i = 0; i < unit->op_count; i++) {
            const mics_op *op = &unit->ops[i];
            const mics_op_def *def = mics_op_def_get(op->kind);
            const mics_op_shape shape = mics_op_shape_get(model, unit, op, batch);
            if (def->multiplies && def->loss)
                add_linear(table, def->cost(&shape).chunk_rows, shape.in[0], shape.params[0][0],
                           true);
            else if (def->multiplies)
                add_linear(table, tokens, shape.in[0], shape.out, op->weight_out_in);
        }
    }
}

// Numbers of tokens, the run's first: halves and multiples, of which the largest do not shorten the
// smallest dimension any more.
static int32_t token_counts(const measure_subject *subject, int64_t counts[TOKEN_COUNTS])
{
    const int64_t tokens = subject->batch.sequences * subject->batch.length;
    int32_t count = 0;
    counts[count++] = tokens;
    for (int64_t more = 2 * tokens; count < TOKEN_COUNTS - 1 && more <= 4096; more *= 2)
        counts[count++] = more;
    if (tokens >= 32)
        counts[count++] = tokens / 2;
    return count;
}

static int64_t smallest(const timed_call *call)
{
    const int64_t least = call->m < call->n ? call->m : call->n;
    return call->k < least ? call->k : least;
}

static double gemm_flops(const timed_call *call)
{
    return 2.0 * (double)call->m * (double)call->n * (double)call->k;
}

static void add_rate(measure_rates *rates, double size, double flops, double us)
{
    int32_t at = 0;
    while (at < rates->count && rates->points[at].size < size)
        at++;
    if (at == rates->count || rates->points[at].size > size) {
        if (rates->count == MICS_CURVE_POINTS)
            return;
        for (int32_t i = rates->count++; i > at; i--)
            rates->points[i] = rates->points[i - 1];
        memset(&rates->points[at], 0, sizeof rates->points[at]);
        rates->points[at].size = size;
    }
    rates->points[at].flops += flops;
    rates->points[at].us += us;
}

static void raise_peak(measure_ops *self, double flops, double us)
{
    const double rate = us > 0 ? flops / us * 1e6 : 0;
    self->peak = rate > self->peak ? rate : self->peak;
}

// What one call takes by the clock on the wall, on rank 0, so that those that would take too long
// are left out; the same on all ranks.
static mics_status read_pace(measure_ops *self, double from_us, const timed_call *call,
                             double *us_per_flop)
{
    const double mine[] = {mics_clock_us(), self->calls_made};
    MICS_TRY(measure_share(self->session, mine, 2));
    *us_per_flop = (self->session->all[0] - from_us) / self->session->all[1] / gemm_flops(call);
    return MICS_OK;
}

static mics_status time_gemms(measure_ops *self, const measure_subject *subject, double seconds)
{
    static const int64_t cubes[CUBES] = {256, 512, 1024};
    gemm_table table = {.count = 0};
    int64_t counts[TOKEN_COUNTS];
    double begin_us = 0, now_us = 0, us = 0, us_per_flop = 0; // of the wall clock
    const int32_t token_count = token_counts(subject, counts);
    for (int32_t i = 0; i < token_count; i++)
        add_model(&table, subject, counts[i]);
    for (int i = 0; i < CUBES; i++) // towards the peak; of no weight
        add_gemm(&table, (timed_call){.m = cubes[i], .n = cubes[i], .k = cubes[i]});
    measure_say(self->session, "%d GEMMs", (int)table.count);
    MICS_TRY(measure_now_us(self->session, &begin_us));
    for (int32_t i = 0; i < table.count; i++) {
        timed_call *call = &table.calls[i];
        MICS_TRY(measure_now_us(self->session, &now_us));
        const double left_us = seconds * 1e6 - (now_us - begin_us);
        if (left_us < 3 * us_per_flop * gemm_flops(call))
            continue;
        MICS_TRY(measure(self, call, left_us / (table.count - i), &us));
        MICS_TRY(read_pace(self, now_us, call, &us_per_flop));
        raise_peak(self, gemm_flops(call), us);
        if (us > 0 && call->weight > 0)
            add_rate(&self->gemms, (double)smallest(call), call->weight * gemm_flops(call),
                     call->weight * us);
    }
    return MICS_OK;
}

// ---- what is not a GEMM ----

// What a forward pass of an op does first.
static mics_op_work_kind first_work(const mics_op_shape *shape)
{
    const mics_op_pass pass = {.elem_bytes = sizeof(float)};
    mics_op_work works[MICS_OP_WORKS];
    mics_op_works(shape, &pass, works);
    return works[0].kind;
}

// A layer of the model: its second unit.
static const mics_unit *layer_of(const measure_subject *subject)
{
    return &subject->model->units[1];
}

static const mics_op *find_attention(const measure_subject *subject)
{
    const mics_unit *unit = layer_of(subject);
    for (int32_t i = 0; i < unit->op_count; i++) {
        const mics_op_shape shape =
            mics_op_shape_get(subject->model, unit, &unit->ops[i], subject->batch);
        if (first_work(&shape) == MICS_WORK_ATTENTION)
            return &unit->ops[i];
    }
    return NULL;
}

static mics_status time_attention(measure_ops *self, const measure_subject *subject, double seconds)
{
    const mics_op *op = find_attention(subject);
    int64_t length = subject->batch.length >= 4 ? subject->batch.length / 4 : 1;
    measure_say(self->session, "attention");
    for (int i = 0; op != NULL && i < LENGTHS && length <= subject->model->positions; i++) {
        const mics_batch batch = {
            .sequences = subject->batch.sequences, .length = length, .threads = self->threads};
        const timed_call call = {
            .kind = OP, .shape = mics_op_shape_get(subject->model, layer_of(subject), op, batch)};
        const mics_op_cost cost = mics_op_def_get(op->kind)->cost(&call.shape);
        const double flops = cost.flops_forward + cost.flops_backward;
        double us = 0;
        MICS_TRY(measure(self, &call, seconds * 1e6 / LENGTHS, &us));
        if (us > 0)
            add_rate(&self->attention, (double)length, flops, us);
        raise_peak(self, flops, us);
        length *= length < subject->batch.length ? 2 : 4;
    }
    return MICS_OK;
}

// Whether an op of its kind stands before it in the layer, and how many there are.
static int32_t count_alike(const mics_unit *unit, int32_t op, bool *first_out)
{
    int32_t count = 0;
    *first_out = true;
    for (int32_t i = 0; i < unit->op_count; i++) {
        if (unit->ops[i].kind != unit->ops[op].kind)
            continue;
        count++;
        *first_out = *first_out && i >= op;
    }
    return count;
}

static mics_status time_op(measure_ops *self, const measure_subject *subject, int32_t index,
                           double allowed_us)
{
    const mics_unit *unit = layer_of(subject);
    const mics_op *op = &unit->ops[index];
    const mics_op_def *def = mics_op_def_get(op->kind);
    timed_call call = {.kind = OP,
                       .shape = mics_op_shape_get(subject->model, unit, op, subject->batch)};
    bool first = false;
    double us = 0;
    call.weight = count_alike(unit, index, &first);
    if (!first || first_work(&call.shape) != MICS_WORK_MEMORY)
        return MICS_OK;
    MICS_TRY(measure(self, &call, allowed_us, &us));
    const mics_op_cost cost = def->cost(&call.shape);
    // Of what has no backward, the copies are the schedule's.
    const double bytes =
        def->backward_passes
            ? sizeof(float) * (double)(call.shape.N * (def->inputs + 1) * call.shape.out)
            : cost.bytes_forward + cost.bytes_backward;
    if (us > 0) {
        self->elementwise_bytes += call.weight * bytes;
        self->elementwise_us += call.weight * us;
    }
    return MICS_OK;
}

// A layer's ops that move memory, additions as large as the arena and tiny, and updates.
static mics_status time_others(measure_ops *self, const measure_subject *subject, double seconds)
{
    static const mics_op sum = {.kind = MICS_OP_ADD};
    const double allowed_us = seconds * 1e6 / 6;
    const int64_t max_elems = self->arena_elems / 2 / 4,
                  params = mics_model_param_count(subject->model);
    const timed_call stream = {.kind = OP,
                               .shape = {.op = &sum, .N = max_elems / 2, .in = {1, 1}, .out = 1}};
    const timed_call tiny = {.kind = OP, .shape = {.op = &sum, .N = 16, .in = {1, 1}, .out = 1}};
    const timed_call update = {
        .kind = UPDATE, .m = params < max_elems ? params : max_elems, .n = 1};
    double us = 0;
    measure_say(self->session, "memory, update");
    for (int32_t i = 0; i < layer_of(subject)->op_count; i++)
        MICS_TRY(time_op(self, subject, i, allowed_us));
    MICS_TRY(measure(self, &stream, allowed_us, &us));
    self->stream_bytes_per_s = 3 * sizeof(float) * (double)stream.shape.N / us * 1e6;
    MICS_TRY(measure(self, &update, allowed_us, &us));
    self->update_bytes_per_s =
        mics_optimizer_moved_bytes(MICS_OPTIMIZER_ADAMW, false) * (double)update.m / us * 1e6;
    return measure(self, &tiny, allowed_us, &self->launch_us);
}

// ---- the whole ----

static mics_status open_ops(measure_ops *self, measure_session *b, const measure_subject *subject)
{
    const mics_unit *unit = layer_of(subject);
    int64_t space = 1;
    for (int32_t i = 0; i < unit->op_count; i++) {
        const mics_op_cost cost =
            mics_op_cost_get(subject->model, unit, &unit->ops[i], subject->batch);
        const int64_t floats = cost.workspace_forward > cost.workspace_backward
                                   ? cost.workspace_forward
                                   : cost.workspace_backward;
        space = floats > space ? floats : space;
    }
    const size_t bytes = b->place.buffer_bytes < ARENA_BYTES ? b->place.buffer_bytes : ARENA_BYTES;
    void *block = NULL;
    *self = (measure_ops){.session = b,
                          .kernels = mics_kernels_get(NULL),
                          .threads = b->place.threads,
                          .arena_elems = (int64_t)(bytes / sizeof(float) / 32 * 32)};
    mics_op_set_threads(self->threads);
    MICS_TRY(mics_alloc(b->rank->memory, MICS_MEM_WORKSPACE, bytes, &block));
    self->arena = block;
    for (int64_t i = 0; i < self->arena_elems;
         i++) // no gradient is more than 0 where updates read it
        self->arena[i] = (float)(i % 31 - 15) / 4096;
    MICS_TRY(
        mics_alloc(b->rank->memory, MICS_MEM_WORKSPACE, (size_t)space * sizeof(float), &block));
    self->workspace = block;
    return MICS_OK;
}

static void close_ops(measure_ops *self, mics_memory *memory)
{
    mics_free(memory, self->workspace);
    mics_free(memory, self->arena);
}

static mics_status describe(const measure_session *self, measure_compute *compute)
{
    mics_machine machine;
    MICS_TRY(mics_machine_read(&machine));
    snprintf(compute->cpu_name, sizeof compute->cpu_name, "%.40s, %d thread%s", machine.cpu_name,
             (int)self->place.threads, self->place.threads == 1 ? "" : "s");
    compute->memory_bytes = (double)machine.memory_total_bytes / self->place.machine_ranks;
    return MICS_OK;
}

mics_status measure_compute_run(measure_session *self, const measure_subject *subject,
                                double seconds, measure_compute *compute_out)
{
    measure_compute compute = {.training_factor = 1};
    measure_ops ops = {0};
    double begin_us = 0, end_us = 0;
    mics_status status = open_ops(&ops, self, subject);
    if (status == MICS_OK)
        status = describe(self, &compute);
    MICS_TRY_OUT(run_rank_agree(self->rank, status));
    MICS_TRY_OUT(measure_now_us(self, &begin_us));
    MICS_TRY_OUT(time_gemms(&ops, subject, seconds * GEMMS));
    MICS_TRY_OUT(time_attention(&ops, subject, seconds * ATTENTION));
    MICS_TRY_OUT(time_others(&ops, subject, seconds * OTHERS));
    MICS_TRY_OUT(measure_training_run(&ops, subject, seconds * TRAINING, &compute));
    MICS_TRY_OUT(measure_now_us(self, &end_us));
    compute.took_s = (end_us - begin_us) / 1e6;
    *compute_out = compute;
out:
    close_ops(&ops, self->rank->memory);
    return status;
}
