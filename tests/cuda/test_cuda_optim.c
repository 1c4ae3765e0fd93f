// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers on shards that begin and end anywhere: those with one state against fp64, Muon's parts
// of matrices against the CPU's kernels, and its matrices against fp64. AdamW is tested beside the kernels over flat arrays.
#include "../engine/wide_optimizer.h"
#include "cuda_op.h"
#include <math.h>
#include <string.h>

static const int64_t SIZES[] = {1, 3, 4, 31, 257, 4099};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

typedef struct update_args {
    mics_optimizer optimizer;
    mics_optimizer_update update;
} update_args;

static const mics_kernels *table(void)
{
    cu_device();
    const mics_kernels *found = mics_kernels_cuda();
    if (!found)
        fail_msg("the plugin has no kernels");
    return found;
}

static void run_update(const mics_exec *at, const void *args)
{
    const update_args *a = args;
    mics_optimizer_update update = a->update;
    update.optimizer = &a->optimizer;
    table()->update[a->optimizer.kind](at, &update);
}

typedef struct element {
    double p, state, grad; // scaled
    double p_terms, state_terms;
} element;

static void sgd_step(const update_args *a, element *e)
{
    const double momentum = (double)(float)a->optimizer.settings[0];
    const double lr = (double)a->update.lr;
    const double decayed = (double)(float)a->optimizer.weight_decay * e->p;
    const double g = e->grad + decayed, b = momentum * e->state + g;
    e->state_terms = fabs(momentum * e->state) + fabs(e->grad) + fabs(decayed);
    e->p_terms = fabs(e->p) + lr * (fabs(g) + 2 * e->state_terms);
    e->p -= lr * (a->optimizer.settings[1] != 0 ? g + momentum * b : b);
    e->state = b;
}

static void lion_step(const update_args *a, element *e)
{
    const double beta1 = (double)(float)a->optimizer.settings[0];
    const double beta2 = (double)(float)a->optimizer.settings[1];
    const double lr = (double)a->update.lr, c = beta1 * e->state + (1 - beta1) * e->grad;
    const double decayed = (double)(float)a->optimizer.weight_decay * e->p;
    e->p_terms = fabs(e->p) + lr * (1 + fabs(decayed));
    e->state_terms = fabs(e->state) + fabs(e->grad);
    e->p -= lr * ((c > 0) - (c < 0) + decayed);
    e->state = beta2 * e->state + (1 - beta2) * e->grad;
}

// `offset`: of each buffer another one, unless 0.
static void update_case(mics_optimizer optimizer, mics_dtype dtype, int64_t elems, int64_t offset,
                        bool with_params, void (*step)(const update_args *, element *))
{
    cu_case c;
    cu_begin(&c, dtype, 0, "%s %lld at %lld params %d",
             mics_optimizer_def_get(optimizer.kind)->name, (long long)elems, (long long)offset,
             with_params);
    cu_buffer *p = cu_inout(&c, "masters", MICS_DTYPE_FP32, elems, offset, true);
    cu_buffer *m = cu_inout(&c, "state", MICS_DTYPE_FP32, elems, offset % 3, true);
    cu_buffer *g = cu_input(&c, "grads", MICS_DTYPE_FP32, elems, offset % 2, 2.0);
    for (int64_t i = 0; i < elems; i += 5)
        m->values[i] = g->values[i] = 0;
    cu_changed(m);
    cu_changed(g);
    cu_buffer *params = with_params ? cu_output(&c, "params", (int)dtype, elems, offset) : NULL;
    update_args a = {.optimizer = optimizer,
                     .update = {.lr = 3e-3F,
                                .grad_scale = 0.37F,
                                .decays = true,
                                .step = 3,
                                .rows = 1,
                                .columns = elems,
                                .elems = elems,
                                .params = params ? params->data : NULL,
                                .masters = p->data,
                                .states = {m->data},
                                .grads = g->data}};
    double *want[2] = {cu_doubles(&c, elems), cu_doubles(&c, elems)};
    double *terms[2] = {cu_doubles(&c, elems), cu_doubles(&c, elems)};
    for (int64_t i = 0; i < elems; i++) {
        element e = {.p = p->values[i],
                     .state = m->values[i],
                     .grad = g->values[i] * (double)a.update.grad_scale};
        step(&a, &e);
        want[0][i] = e.p;
        want[1][i] = e.state;
        terms[0][i] = e.p_terms;
        terms[1][i] = e.state_terms;
    }
    cu_expect(p, want[0], terms[0], CU_TOLERANCE);
    cu_expect(m, want[1], terms[1], CU_TOLERANCE);
    cu_run(&c, run_update, &a);
    for (int64_t i = 0; params && i < elems; i++)
        if (params->values[i] != cu_rounded((int)dtype, p->values[i]))
            fail_msg("%s: parameter %lld is %.9g, its master %.9g", c.name, (long long)i,
                     params->values[i], p->values[i]);
    cu_end(&c);
}

static void over_cases(mics_optimizer optimizer, void (*step)(const update_args *, element *))
{
    for (int dtype = 0; dtype < MICS_DTYPES; dtype++)
        for (int i = 0; i < SIZE_COUNT; i++)
            for (int64_t offset = 0; offset < 4; offset++)
                update_case(optimizer, (mics_dtype)dtype, SIZES[i], offset, offset % 2 == 0, step);
}

static void sgd_on_shards(void **state)
{
    (void)state;
    over_cases((mics_optimizer){MICS_OPTIMIZER_SGD, {0.9, 0}, 0.1}, sgd_step);
    over_cases((mics_optimizer){MICS_OPTIMIZER_SGD, {0.9, 1}, 0.1}, sgd_step);
}

static void lion_on_shards(void **state)
{
    (void)state;
    over_cases((mics_optimizer){MICS_OPTIMIZER_LION, {0.9, 0.99}, 0.1}, lion_step);
}

// ---- Muon ----

// The momentum and step of a part, against the CPU's kernels: want[0] of masters, [1] of the
// momentum, [2] of the direction.
enum { MAX_MATRIX = 40 * 33 };

static void part_on_cpu(update_args a, cu_buffer *const from[4], double *const want[3])
{
    static float numbers[4][MAX_MATRIX];
    const mics_exec at = {.threads = 1};
    for (int b = 0; b < 4; b++)
        for (int64_t i = 0; i < from[b]->elems; i++)
            numbers[b][i] = (float)from[b]->values[i];
    a.update.optimizer = &a.optimizer;
    a.update.params = NULL;
    a.update.masters = numbers[0];
    a.update.states[0] = numbers[1];
    a.update.direction = numbers[2];
    a.update.grads = numbers[3];
    mics_kernels_get("generic")->update[MICS_OPTIMIZER_MUON](&at, &a.update);
    for (int b = 0; b < 3; b++)
        for (int64_t i = 0; i < from[b]->elems; i++)
            want[b][i] = (double)numbers[b][i];
}

static const mics_optimizer muon = {MICS_OPTIMIZER_MUON, {0.9, 0.95, 1e-8, 0.95, 1, 5, 1}, 0.1};

static void part_case(mics_dtype dtype, mics_update_phase phase, int64_t elems, int64_t offset)
{
    static const char *const names[] = {"masters", "momentum", "direction", "grads"};
    const bool applies = phase == MICS_UPDATE_APPLY;
    cu_case c;
    cu_begin(&c, dtype, 0, "Muon, phase %d, %lld at %lld", (int)phase, (long long)elems,
             (long long)offset);
    cu_buffer *buffers[4];
    for (int b = 0; b < 3; b++)
        buffers[b] = cu_inout(&c, names[b], MICS_DTYPE_FP32, elems, (offset + b) % 5, true);
    buffers[3] = cu_input(&c, names[3], MICS_DTYPE_FP32, elems, 1, 1.0);
    cu_buffer *params = applies ? cu_output(&c, "params", (int)dtype, elems, offset % 3) : NULL;
    const update_args a = {.optimizer = muon,
                           .update = {.lr = 3e-3F,
                                      .grad_scale = 0.37F,
                                      .decays = true,
                                      .step = 3,
                                      .rows = 40,
                                      .columns = 33,
                                      .elems = elems,
                                      .params = params ? params->data : NULL,
                                      .masters = buffers[0]->data,
                                      .states = {buffers[1]->data, NULL},
                                      .grads = buffers[3]->data,
                                      .phase = phase,
                                      .direction = buffers[2]->data}};
    double *want[3], *terms = cu_doubles(&c, elems);
    for (int64_t i = 0; i < elems; i++)
        terms[i] = 1;
    for (int b = 0; b < 3; b++)
        want[b] = cu_doubles(&c, elems);
    part_on_cpu(a, buffers, want);
    for (int b = 0; b < 3; b++)
        cu_expect(buffers[b], want[b], terms, 1e-6);
    cu_run(&c, run_update, &a);
    for (int64_t i = 0; params && i < elems; i++)
        if (params->values[i] != cu_rounded((int)dtype, buffers[0]->values[i]))
            fail_msg("%s: parameter %lld is not its master, rounded", c.name, (long long)i);
    cu_end(&c);
}

static void muon_on_parts(void **state)
{
    (void)state;
    cu_device();
    for (int dtype = 0; dtype < MICS_DTYPES; dtype++)
        for (int64_t offset = 0; offset < 4; offset++)
            for (int phase = MICS_UPDATE_MOMENTUM; phase <= MICS_UPDATE_APPLY; phase += 2)
                part_case((mics_dtype)dtype, (mics_update_phase)phase, 257 + 100 * offset, offset);
}

// A whole matrix against fp64: of fp32 to rounding. Of 16 bits GEMMs in bf16 leave 1 to 2 % of its
// norm, as torch's do, most of that in the directions that begin small. A step at a rate of 0.02 then
// is within 2e-3 of the exact one by far.
static void matrix_case(mics_dtype dtype, int64_t rows, int64_t columns, int64_t offset)
{
    const int64_t elems = rows * columns;
    cu_case c;
    cu_begin(&c, dtype,
             (size_t)mics_optimizer_workspace(MICS_OPTIMIZER_MUON, rows, columns) * sizeof(float),
             "Muon %lld x %lld", (long long)rows, (long long)columns);
    cu_buffer *matrix = cu_inout(&c, "matrix", MICS_DTYPE_FP32, elems, offset, true);
    double *want = cu_doubles(&c, elems), *terms = cu_doubles(&c, elems);
    for (int64_t i = 0; i < elems; i++) {
        want[i] = matrix->values[i];
        terms[i] = 1;
    }
    wide_orthogonalise(want, rows, columns, 5);
    cu_expect(matrix, want, terms, dtype == MICS_DTYPE_FP32 ? 1e-5 : 2e-2);
    const update_args a = {.optimizer = muon,
                           .update = {.rows = rows,
                                      .columns = columns,
                                      .phase = MICS_UPDATE_ORTHOGONALISE,
                                      .direction = matrix->data}};
    cu_run(&c, run_update, &a);
    double off = 0, norm = 0;
    for (int64_t i = 0; i < elems; i++) {
        off += (matrix->values[i] - want[i]) * (matrix->values[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (!(sqrt(off / norm) <= (dtype == MICS_DTYPE_FP32 ? 1e-5 : 2.5e-2)))
        fail_msg("%s: off by %.2g of its norm", c.name, sqrt(off / norm));
    cu_end(&c);
}

static void muon_on_matrices(void **state)
{
    (void)state;
    cu_device();
    static const int64_t shapes[][2] = {{16, 16}, {7, 40}, {40, 33}, {33, 8}, {64, 128}, {96, 64}};
    for (int dtype = 0; dtype < MICS_DTYPES; dtype++)
        for (int i = 0; i < 6; i++)
            matrix_case((mics_dtype)dtype, shapes[i][0], shapes[i][1], i % 3);
}

// ---- states in fewer bits ----

enum { MAX_STATE = 4099, STATE_BYTES = 2 * MAX_STATE + 256 };

static void *on_device(size_t bytes)
{
    void *block = NULL;
    mics_device *device = cu_device();
    ASSERT_OK(device->ops->alloc(device->ctx, bytes, &block));
    return block;
}

static void copy(void *to, const void *from, size_t bytes)
{
    mics_device *device = cu_device();
    device->ops->copy(device->ctx, 0, to, from, bytes);
    ASSERT_OK(device->ops->synchronize(device->ctx, 0));
}

static mics_state_part part_in(char *bytes, mics_state_dtype dtype, bool squares, int64_t elems)
{
    return (mics_state_part){.dtype = dtype,
                             .squares = squares,
                             .scales = (float *)(void *)bytes,
                             .held = bytes + mics_state_scale_bytes(dtype, elems),
                             .elems = elems};
}

// What the CPU makes of `values` in `want`, and of that in `wide`.
static void pack_on_cpu(const mics_state_part *part, const mics_state_draw *draw,
                        const float *values, float *wide)
{
    const mics_kernels *cpu = mics_kernels_get("generic");
    const mics_exec at = {.threads = 1};
    cpu->pack_state(&at, part, values, draw);
    cpu->unpack_state(&at, wide, part);
}

// Bytes and numbers are the CPU's, and nothing is written behind what a state takes.
static void states_case(mics_state_dtype dtype, bool squares, int64_t elems,
                        const mics_state_draw *draw, const float *values)
{
    static _Alignas(16) char want[STATE_BYTES], got[STATE_BYTES];
    static float wide[MAX_STATE], back[MAX_STATE];
    mics_device *device = cu_device();
    const mics_exec at = {.device = device};
    const size_t bytes = mics_state_bytes(dtype, elems);
    char *held = on_device(STATE_BYTES);
    float *numbers = on_device(sizeof wide);
    const mics_state_part on_cpu = part_in(want, dtype, squares, elems),
                          on_gpu = part_in(held, dtype, squares, elems);
    memset(want, 0x5A, sizeof want);
    memset(wide, 0x5A, sizeof wide);
    copy(held, want, sizeof want);
    copy(numbers, values, (size_t)elems * sizeof(float));
    pack_on_cpu(&on_cpu, draw, values, wide);
    table()->pack_state(&at, &on_gpu, numbers, draw);
    memset(back, 0x5A, sizeof back);
    copy(numbers, back, sizeof back);
    table()->unpack_state(&at, numbers, &on_gpu);
    copy(got, held, sizeof got);
    copy(back, numbers, sizeof back);
    const size_t scales =
        dtype == MICS_STATE_8BIT ? (size_t)(elems + MICS_STATE_BLOCK - 1) / MICS_STATE_BLOCK : 0;
    const size_t begin = mics_state_scale_bytes(dtype, elems);
    assert_memory_equal(got, want, scales * sizeof(float));
    assert_memory_equal(got + begin, want + begin, (size_t)elems * mics_state_elem_bytes(dtype));
    assert_memory_equal(got + bytes, want + bytes, STATE_BYTES - bytes);
    assert_memory_equal(back, wide, sizeof back);
    device->ops->free(device->ctx, held);
    device->ops->free(device->ctx, numbers);
}

// Of 11 decades; a block of zeros, and one below all scales.
static void fill_state(float *values, int64_t elems, bool squares, int seed)
{
    for (int64_t i = 0; i < elems; i++) {
        const double value = pow(10, -(double)(i % 11)) * sin((double)(i + 3 * seed));
        values[i] = (float)(squares ? value * value : value);
        if (i / MICS_STATE_BLOCK == 2)
            values[i] = 0;
        if (i / MICS_STATE_BLOCK == 3)
            values[i] *= 1e-35F;
    }
    if (elems > 600 && seed % 4 >= 2)
        values[300] = seed % 4 == 2 ? -INFINITY : NAN;
}

static void states_as_on_the_cpu(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 3, 8, 255, 256, 259, 2049, MAX_STATE};
    static float values[MAX_STATE];
    const mics_state_draw draw = {
        .key = 0x123456789abcdefULL, .first = (int64_t)1 << 36, .state = 1};
    for (int i = 0; i < 8 * 4; i++) {
        const int64_t elems = sizes[i / 4];
        fill_state(values, elems, i % 2 == 1, i);
        states_case(MICS_STATE_8BIT, i % 2 == 1, elems, i % 3 == 0 ? &draw : NULL, values);
        states_case(MICS_STATE_BF16, i % 2 == 1, elems, i % 3 == 0 ? NULL : &draw, values);
    }
}

// ---- gradients in 2 bytes ----

// Gradients as they are give the bits of the same ones in fp32, and so does their norm.
static void rounded_case(mics_dtype dtype, mics_optimizer optimizer, int64_t elems, int64_t offset)
{
    enum { BUFFERS = 4, MAX = MAX_STATE + 16 };
    static float start[BUFFERS][MAX], end[2][BUFFERS][MAX];
    static uint16_t params[2][MAX];
    mics_device *device = cu_device();
    double squares[2] = {0, 0};
    const size_t floats = sizeof start[0];
    float *buffers[BUFFERS], *workspace = on_device(MICS_CUDA_SUM_BYTES);
    uint16_t *halves = on_device(sizeof params[0]), *rounded = on_device(sizeof params[0]);
    double *sum = on_device(sizeof *sum);
    const mics_exec at = {.device = device,
                          .dtype = dtype,
                          .workspace = workspace,
                          .workspace_bytes = MICS_CUDA_SUM_BYTES};
    for (int b = 0; b < BUFFERS; b++) {
        buffers[b] = on_device(floats);
        for (int64_t i = 0; i < MAX; i++)
            start[b][i] = (float)sin(0.37 * (double)i + b) + (b == 2 ? 1.5F : 0);
    }
    copy(buffers[3], start[3], floats);
    table()->round(&at, halves, buffers[3], MAX);
    table()->widen(&at, buffers[3], halves, MAX); // the same in fp32
    for (int way = 0; way < 2; way++) {
        for (int b = 0; b < 3; b++)
            copy(buffers[b], start[b], floats);
        const mics_optimizer_update update = {.optimizer = &optimizer,
                                              .lr = 3e-2F,
                                              .grad_scale = 0.37F,
                                              .decays = true,
                                              .step = 3,
                                              .rows = 1,
                                              .columns = elems,
                                              .elems = elems,
                                              .params = rounded + offset,
                                              .masters = buffers[0] + offset,
                                              .states = {buffers[1] + offset, buffers[2] + offset},
                                              .grads = way == 0 ? buffers[3] + offset : NULL,
                                              .rounded_grads = way == 0 ? NULL : halves + offset};
        table()->update[optimizer.kind](&at, &update);
        for (int b = 0; b < 3; b++)
            copy(end[way][b], buffers[b], floats);
        copy(params[way], rounded, sizeof params[way]);
        device->ops->zero(device->ctx, 0, sum, sizeof *sum);
        if (way == 0)
            table()->sum_squares(&at, sum, buffers[3] + offset, elems);
        else
            table()->sum_squares_rounded(&at, sum, halves + offset, elems);
        copy(&squares[way], sum, sizeof *sum);
    }
    assert_true(squares[0] > 0);
    assert_memory_equal(&squares[0], &squares[1], sizeof squares[0]);
    assert_memory_equal(end[0], end[1], 3 * floats);
    assert_memory_not_equal(end[0][0], start[0], floats);
    assert_memory_equal(params[0] + offset, params[1] + offset, (size_t)elems * 2);
    void *const blocks[] = {buffers[0], buffers[1], buffers[2], buffers[3],
                            workspace,  halves,     rounded,    sum};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        device->ops->free(device->ctx, blocks[i]);
}

static void rounded_gradients(void **state)
{
    (void)state;
    static const mics_optimizer optimizers[] = {{MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0.1},
                                                {MICS_OPTIMIZER_SGD, {0.9, 1}, 0.1},
                                                {MICS_OPTIMIZER_LION, {0.9, 0.99}, 0.1}};
    for (int i = 0; i < 3 * SIZE_COUNT; i++)
        for (int dtype = MICS_DTYPE_BF16; dtype < MICS_DTYPES; dtype++)
            rounded_case((mics_dtype)dtype, optimizers[i % 3], SIZES[i / 3], i % 4);
}

// ---- neighbouring parameters in one call ----

// One call with flips gives the bits of a call for each run, of shards that begin anywhere.
static void flips_case(mics_dtype dtype, mics_optimizer optimizer, const int64_t *ends,
                       int64_t offset)
{
    enum { RUNS = 4, BUFFERS = 4, MAX = 4128 };
    static float start[BUFFERS][MAX], end[2][BUFFERS][MAX];
    static uint16_t params[2][MAX];
    mics_device *device = cu_device();
    const mics_exec at = {.device = device, .dtype = dtype};
    float *buffers[BUFFERS];
    uint16_t *rounded = on_device(sizeof params[0]);
    for (int b = 0; b < BUFFERS; b++) {
        buffers[b] = on_device(sizeof start[0]);
        for (int64_t i = 0; i < MAX; i++)
            start[b][i] = (float)sin(0.37 * (double)i + b) + (b == 0 || b == 2 ? 1.5F : 0);
    }
    for (int way = 0; way < 2; way++) {
        for (int b = 0; b < BUFFERS; b++)
            copy(buffers[b], start[b], sizeof start[0]);
        device->ops->zero(device->ctx, 0, rounded, sizeof params[0]);
        for (int run = 0; run < (way == 0 ? 1 : RUNS); run++) {
            const int64_t begin = run == 0 ? 0 : ends[run - 1], from = begin + offset;
            mics_optimizer_update update = {.optimizer = &optimizer,
                                            .lr = 3e-2F,
                                            .grad_scale = 0.37F,
                                            .decays = run % 2 != 0,
                                            .step = 3,
                                            .rows = 1,
                                            .elems = ends[way == 0 ? RUNS - 1 : run] - begin,
                                            .params = rounded + from,
                                            .masters = buffers[0] + from,
                                            .states = {buffers[1] + from, buffers[2] + from},
                                            .grads = buffers[3] + from};
            update.columns = update.elems;
            update.flip_count = way == 0 ? RUNS - 1 : 0;
            for (int f = 0; f < update.flip_count; f++)
                update.flips[f] = ends[f];
            table()->update[optimizer.kind](&at, &update);
        }
        for (int b = 0; b < BUFFERS; b++)
            copy(end[way][b], buffers[b], sizeof start[0]);
        copy(params[way], rounded, sizeof params[way]);
    }
    assert_memory_equal(end[0], end[1], sizeof end[0]);
    assert_memory_equal(params[0], params[1], sizeof params[0]);
    assert_memory_not_equal(end[0][0], start[0], sizeof start[0]);
    for (int b = 0; b < BUFFERS; b++)
        device->ops->free(device->ctx, buffers[b]);
    device->ops->free(device->ctx, rounded);
}

static void flips(void **state)
{
    (void)state;
    static const mics_optimizer optimizers[] = {{MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0.1},
                                                {MICS_OPTIMIZER_SGD, {0.9, 1}, 0.1},
                                                {MICS_OPTIMIZER_LION, {0.9, 0.99}, 0.1}};
    static const int64_t aligned[] = {64, 128, 4032, 4099}, not_aligned[] = {1, 67, 2050, 4099};
    for (int i = 0; i < 3 * 4; i++)
        for (int dtype = MICS_DTYPE_BF16; dtype < MICS_DTYPES; dtype++) {
            flips_case((mics_dtype)dtype, optimizers[i % 3], aligned, i / 3);
            flips_case((mics_dtype)dtype, optimizers[i % 3], not_aligned, i / 3);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_on_shards),
        cmocka_unit_test(lion_on_shards),
        cmocka_unit_test(muon_on_parts),
        cmocka_unit_test(muon_on_matrices),
        cmocka_unit_test(states_as_on_the_cpu),
        cmocka_unit_test(rounded_gradients),
        cmocka_unit_test(flips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
