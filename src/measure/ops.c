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
#include "measure/internal.h"
#include <stdio.h>
#include <string.h>

enum {
    MAX_CALLS = 96,
    CUBES = 3, // on the CPU
    GPU_CUBES = 6,
    LENGTHS = 4,
    TOKEN_COUNTS = 6
};

// Shares of the time.
static const double GEMMS = 0.42, ATTENTION = 0.1, OTHERS = 0.13, TRAINING = 0.3;
static const double PRECISIONS = 0.03; // on GPUs
static const size_t ARENA_BYTES = (size_t)64 << 20, GPU_ARENA_BYTES = (size_t)1 << 30;

// ---- GEMMs ----

typedef struct gemm_table {
    measure_call calls[MAX_CALLS];
    int32_t count;
} gemm_table;

static void add_gemm(gemm_table *table, measure_call call)
{
    for (int32_t i = 0; i < table->count; i++) {
        measure_call *other = &table->calls[i];
        if (other->m == call.m && other->n == call.n && other->k == call.k &&
            other->transpose_a == call.transpose_a && other->transpose_b == call.transpose_b) {
            other->weight += call.weight;
            return;
        }
    }
    call.kind = MEASURE_GEMM;
    if (table->count < MAX_CALLS)
        table->calls[table->count++] = call;
}

// The three GEMMs of a linear op with a weight (I, O), on N tokens: outputs, gradients of inputs,
// and of the weight. One that is stored (O, I), as the LM head's table is, is the other's
// transpose.
static void add_linear(gemm_table *table, int64_t N, int64_t I, int64_t O, bool out_in)
{
    add_gemm(table, (measure_call){.m = N, .n = O, .k = I, .transpose_b = out_in, .weight = 1});
    add_gemm(table, (measure_call){.m = N, .n = I, .k = O, .transpose_b = !out_in, .weight = 1});
    if (out_in)
        add_gemm(table, (measure_call){.m = O, .n = I, .k = N, .transpose_a = true, .weight = 1});
    else
        add_gemm(table, (measure_call){.m = I, .n = O, .k = N, .transpose_a = true, .weight = 1});
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

static int64_t smallest(const measure_call *call)
{
    const int64_t least = call->m < call->n ? call->m : call->n;
    return call->k < least ? call->k : least;
}

static double gemm_flops(const measure_call *call)
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
static mics_status read_pace(measure_ops *self, double from_us, const measure_call *call,
                             double *us_per_flop)
{
    const double mine[] = {mics_clock_us(), self->calls_made};
    MICS_TRY(measure_share(self->session, mine, 2));
    *us_per_flop = (self->session->all[0] - from_us) / self->session->all[1] / gemm_flops(call);
    return MICS_OK;
}

static mics_status time_gemms(measure_ops *self, const measure_subject *subject, double seconds)
{
    static const int64_t cubes[GPU_CUBES] = {256, 512, 1024, 2048, 4096, 8192};
    gemm_table table = {.count = 0};
    int64_t counts[TOKEN_COUNTS];
    double begin_us = 0, now_us = 0, us = 0, us_per_flop = 0; // of the wall clock
    const int32_t token_count = token_counts(subject, counts);
    for (int32_t i = 0; i < token_count; i++)
        add_model(&table, subject, counts[i]);
    for (int i = 0; i < (self->session->place.gpu ? GPU_CUBES : CUBES);
         i++) // towards the peak; of no weight
        add_gemm(&table, (measure_call){.m = cubes[i], .n = cubes[i], .k = cubes[i]});
    measure_say(self->session, "%d GEMMs", (int)table.count);
    MICS_TRY(measure_now_us(self->session, &begin_us));
    for (int32_t i = 0; i < table.count; i++) {
        measure_call *call = &table.calls[i];
        MICS_TRY(measure_now_us(self->session, &now_us));
        const double left_us = seconds * 1e6 - (now_us - begin_us);
        if (left_us < 3 * us_per_flop * gemm_flops(call))
            continue;
        MICS_TRY(measure_call_run(self, call, left_us / (table.count - i), &us));
        MICS_TRY(read_pace(self, now_us, call, &us_per_flop));
        raise_peak(self, gemm_flops(call), us);
        if (us > 0 && call->weight == 0)
            self->cube = call->m;
        if (us > 0 && call->weight > 0)
            add_rate(&self->gemms, (double)smallest(call), call->weight * gemm_flops(call),
                     call->weight * us);
    }
    return MICS_OK;
}

// The same cube in the other precisions of a GPU. What the plugin lacks stays unknown.
static mics_status time_precisions(measure_ops *self, double seconds)
{
    static const struct {
        mics_math math;
        mics_dtype dtype;
        bool tf32;
    } kinds[] = {{MICS_MATH_FP16, MICS_DTYPE_FP16, false},
                 {MICS_MATH_TF32, MICS_DTYPE_FP32, true},
                 {MICS_MATH_FP32, MICS_DTYPE_FP32, false}};
    const measure_ops own = *self;
    void *address = mics_plugin_symbol("mics_cuda_matmul_allow_tf32");
    void (*allow_tf32)(mics_device * device, bool allow) = NULL;
    memcpy(&allow_tf32, &address, sizeof address); // ISO C has no cast for it
    mics_status status = MICS_OK;
    for (size_t i = 0; status == MICS_OK && i < sizeof kinds / sizeof *kinds; i++) {
        const measure_call call = {
            .kind = MEASURE_GEMM, .m = own.cube, .n = own.cube, .k = own.cube};
        double us = 0;
        self->dtype = kinds[i].dtype;
        self->elem_bytes = mics_dtype_bytes(self->dtype);
        self->arena_elems = own.arena_elems * (int64_t)own.elem_bytes / (int64_t)self->elem_bytes;
        if (allow_tf32 != NULL)
            allow_tf32(self->session->rank->device, kinds[i].tf32);
        if (allow_tf32 != NULL || !kinds[i].tf32)
            status = measure_call_run(self, &call, seconds * 1e6 / 3, &us);
        self->flops_by_math[kinds[i].math] = us > 0 ? gemm_flops(&call) / us * 1e6 : 0;
    }
    if (allow_tf32 != NULL)
        allow_tf32(self->session->rank->device, false);
    self->dtype = own.dtype;
    self->elem_bytes = own.elem_bytes;
    self->arena_elems = own.arena_elems;
    self->at[0] = self->at[1] = 0;
    return status;
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
        const measure_call call = {
            .kind = MEASURE_OP,
            .shape = mics_op_shape_get(subject->model, layer_of(subject), op, batch)};
        const mics_op_cost cost = mics_op_def_get(op->kind)->cost(&call.shape);
        const double flops = cost.flops_forward + cost.flops_backward;
        double us = 0;
        MICS_TRY(measure_call_run(self, &call, seconds * 1e6 / LENGTHS, &us));
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
    measure_call call = {.kind = MEASURE_OP,
                         .shape = mics_op_shape_get(subject->model, unit, op, subject->batch)};
    bool first = false;
    double us = 0;
    call.weight = count_alike(unit, index, &first);
    const bool has_kernel = self->kernels->ops[op->kind]->forward != NULL;
    if (!first || !has_kernel || first_work(&call.shape) != MICS_WORK_MEMORY)
        return MICS_OK;
    MICS_TRY(measure_call_run(self, &call, allowed_us, &us));
    const mics_op_cost cost = def->cost(&call.shape);
    // Of what has no backward, the copies are the schedule's.
    const double bytes =
        def->backward_passes
            ? sizeof(float) * (double)(call.shape.N * (def->inputs + 1) * call.shape.out)
            : cost.bytes_forward + cost.bytes_backward; // in fp32
    if (us > 0) {
        self->elementwise_bytes += call.weight * bytes * (double)self->elem_bytes / sizeof(float);
        self->elementwise_us += call.weight * us;
    }
    return MICS_OK;
}

// A layer's ops that move memory, additions as large as the arena and tiny, and updates.
static mics_status time_others(measure_ops *self, const measure_subject *subject, double seconds)
{
    static const mics_op sum = {.kind = MICS_OP_ADD};
    const double allowed_us = seconds * 1e6 / 6;
    const int64_t max_elems = self->arena_elems / 2 / 8,
                  params = mics_model_param_count(subject->model);
    const measure_call stream = {
        .kind = MEASURE_OP, .shape = {.op = &sum, .N = max_elems * 2 / 3, .in = {1, 1}, .out = 1}};
    const measure_call tiny = {.kind = MEASURE_OP,
                               .shape = {.op = &sum, .N = 16, .in = {1, 1}, .out = 1}};
    const measure_call update = {
        .kind = MEASURE_UPDATE, .m = params < max_elems ? params : max_elems, .n = 1};
    double us = 0;
    measure_say(self->session, "memory, update");
    for (int32_t i = 0; i < layer_of(subject)->op_count; i++)
        MICS_TRY(time_op(self, subject, i, allowed_us));
    MICS_TRY(measure_call_run(self, &stream, allowed_us, &us));
    self->stream_bytes_per_s = 3.0 * (double)self->elem_bytes * (double)stream.shape.N / us * 1e6;
    MICS_TRY(measure_call_run(self, &update, allowed_us, &us));
    self->update_bytes_per_s =
        mics_optimizer_moved_bytes(MICS_OPTIMIZER_ADAMW, MICS_STATE_FP32, false, sizeof(float)) *
        (double)update.m / us * 1e6;
    return measure_call_run(self, &tiny, allowed_us, &self->launch_us);
}

// ---- the whole ----

static int64_t workspace_floats(const measure_ops *self, const measure_subject *subject)
{
    const mics_unit *unit = layer_of(subject);
    const measure_gemm gemm = {.m = 64, .n = 64, .k = 64};
    mics_op op;
    const mics_op_shape shape = measure_gemm_shape(&gemm, self->dtype, &op);
    const mics_op_cost any = mics_op_def_get(op.kind)->cost(&shape);
    int64_t space = self->session->place.gpu ? any.workspace_forward : 1;
    for (int32_t i = 0; i < unit->op_count; i++) {
        const mics_op_cost cost =
            mics_op_cost_get(subject->model, unit, &unit->ops[i], subject->batch);
        const int64_t most = cost.workspace_forward > cost.workspace_backward
                                 ? cost.workspace_forward
                                 : cost.workspace_backward;
        space = most > space ? most : space;
    }
    return space;
}

// On a GPU the arena's zeros will do: what a kernel takes does not depend on numbers, and no
// gradient is more than 0 where updates read it.
static void fill_arena(measure_ops *self)
{
    float *numbers = (float *)(void *)self->arena;
    if (self->session->place.gpu)
        return;
    for (int64_t i = 0; i < self->arena_elems; i++)
        numbers[i] = (float)(i % 31 - 15) / 4096;
}

static mics_status open_ops(measure_ops *self, measure_session *b, const measure_subject *subject)
{
    const bool gpu = b->place.gpu;
    const size_t most = gpu ? GPU_ARENA_BYTES : ARENA_BYTES;
    const size_t bytes = b->place.buffer_bytes < most ? b->place.buffer_bytes : most;
    void *block = NULL;
    *self = (measure_ops){.session = b,
                          .kernels = gpu ? mics_kernels_cuda() : mics_kernels_get(NULL),
                          .threads = b->place.threads,
                          .dtype = gpu ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32};
    self->elem_bytes = mics_dtype_bytes(self->dtype);
    self->arena_elems = (int64_t)(bytes / self->elem_bytes / 32 * 32);
    self->workspace_bytes = (size_t)workspace_floats(self, subject) * sizeof(float);
    mics_op_set_threads(self->threads);
    MICS_TRY(measure_buffer_open(b, bytes, &block));
    self->arena = block;
    fill_arena(self);
    MICS_TRY(measure_buffer_open(b, self->workspace_bytes, &block));
    self->workspace = block;
    return MICS_OK;
}

static void close_ops(measure_ops *self, const measure_session *session)
{
    measure_buffer_close(session, self->workspace);
    measure_buffer_close(session, self->arena);
}

static mics_status describe(const measure_session *self, measure_compute *compute)
{
    mics_machine machine;
    MICS_TRY(mics_machine_read(&machine));
    snprintf(compute->cpu_name, sizeof compute->cpu_name, "%.40s, %d thread%s", machine.cpu_name,
             (int)self->place.threads, self->place.threads == 1 ? "" : "s");
    compute->memory_bytes = (double)machine.memory_total_bytes / self->place.machine_ranks;
    if (self->place.gpu) {
        snprintf(compute->cpu_name, sizeof compute->cpu_name, "%s", self->place.chip);
        compute->memory_bytes = self->place.memory_bytes;
    }
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
    if (self->place.gpu) {
        MICS_TRY_OUT(time_precisions(&ops, seconds * PRECISIONS));
        MICS_TRY_OUT(measure_copies_run(self, &compute.host_bytes_per_s));
    }
    MICS_TRY_OUT(measure_training_run(&ops, subject, seconds * TRAINING, &compute));
    MICS_TRY_OUT(measure_now_us(self, &end_us));
    compute.took_s = (end_us - begin_us) / 1e6;
    *compute_out = compute;
out:
    close_ops(&ops, self);
    return status;
}
