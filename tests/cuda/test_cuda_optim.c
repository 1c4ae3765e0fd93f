// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers on shards that begin and end anywhere: those with one state against fp64, Muon's parts
// of matrices against the CPU's kernels, and its matrices against fp64. AdamW is tested beside the kernels over flat arrays.
#include "../engine/wide_optimizer.h"
#include "cuda_op.h"
#include <math.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_on_shards),
        cmocka_unit_test(lion_on_shards),
        cmocka_unit_test(muon_on_parts),
        cmocka_unit_test(muon_on_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
