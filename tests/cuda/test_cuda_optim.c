// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers on shards that begin and end anywhere: those with one state against fp64, and Muon's
// matrices against the CPU's kernels. AdamW is tested beside the kernels over flat arrays.
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

enum { MAX_MATRIX = 40 * 33 };

// Both passes of a part; the rest of the matrix came from others.
static void run_muon(const mics_exec *at, const void *args)
{
    const update_args *a = args;
    mics_optimizer_update update = a->update;
    update.optimizer = &a->optimizer;
    update.begins = true;
    mics_kernels_cuda()->update[MICS_OPTIMIZER_MUON](at, &update);
    update.begins = false;
    mics_kernels_cuda()->update[MICS_OPTIMIZER_MUON](at, &update);
}

// The same on the CPU: want[0] of masters, [1] of the momentum, [2] of the whole matrix.
static void muon_on_cpu(update_args a, cu_buffer *const from[4], double *const want[3])
{
    static float space[1 << 15], numbers[4][MAX_MATRIX];
    const mics_kernels *kernels = mics_kernels_get("generic");
    const mics_exec at = {.threads = 1, .workspace = space};
    for (int b = 0; b < 4; b++)
        for (int64_t i = 0; i < from[b]->elems; i++)
            numbers[b][i] = (float)from[b]->values[i];
    mics_optimizer_update *u = &a.update;
    assert_true(mics_optimizer_workspace(MICS_OPTIMIZER_MUON, u->rows, u->columns) <= 1 << 15);
    u->optimizer = &a.optimizer;
    u->params = NULL;
    u->masters = numbers[0];
    u->states[0] = numbers[1];
    u->states[1] = NULL;
    u->whole = numbers[2];
    u->grads = numbers[3];
    u->begins = true;
    kernels->update[MICS_OPTIMIZER_MUON](&at, u);
    u->begins = false;
    kernels->update[MICS_OPTIMIZER_MUON](&at, u);
    for (int b = 0; b < 3; b++)
        for (int64_t i = 0; i < from[b]->elems; i++)
            want[b][i] = (double)numbers[b][i];
}

static void muon_case(mics_dtype dtype, int64_t rows, int64_t columns, int64_t begin)
{
    static const char *const names[] = {"masters", "momentum", "whole", "grads"};
    const mics_optimizer muon = {MICS_OPTIMIZER_MUON, {0.9, 0.95, 1e-8, 0.95, 1, 5, 1}, 0.1};
    const int64_t elems = rows * columns, own = elems - begin - begin / 2;
    cu_case c;
    cu_begin(&c, dtype,
             (size_t)mics_optimizer_workspace(MICS_OPTIMIZER_MUON, rows, columns) * sizeof(float),
             "Muon %lld x %lld from %lld", (long long)rows, (long long)columns, (long long)begin);
    cu_buffer *buffers[4];
    for (int b = 0; b < 3; b++)
        buffers[b] = cu_inout(&c, names[b], MICS_DTYPE_FP32, b == 2 ? elems : own,
                              b == 2 ? 0 : begin % 5, true);
    buffers[3] = cu_input(&c, names[3], MICS_DTYPE_FP32, own, 1, 1.0);
    cu_buffer *params = cu_output(&c, "params", (int)dtype, own, begin % 3);
    const update_args a = {.optimizer = muon,
                           .update = {.lr = 3e-3F,
                                      .grad_scale = 0.37F,
                                      .decays = true,
                                      .step = 3,
                                      .rows = rows,
                                      .columns = columns,
                                      .begin = begin,
                                      .elems = own,
                                      .params = params->data,
                                      .masters = buffers[0]->data,
                                      .states = {buffers[1]->data, NULL},
                                      .whole = buffers[2]->data,
                                      .grads = buffers[3]->data}};
    double *want[3], *terms = cu_doubles(&c, elems);
    for (int64_t i = 0; i < elems; i++)
        terms[i] = 1;
    for (int b = 0; b < 3; b++)
        want[b] = cu_doubles(&c, elems);
    muon_on_cpu(a, buffers, want);
    for (int b = 0; b < 3; b++)
        cu_expect(buffers[b], want[b], terms, 1e-5);
    cu_run(&c, run_muon, &a);
    for (int64_t i = 0; i < own; i++)
        if (params->values[i] != cu_rounded((int)dtype, buffers[0]->values[i]))
            fail_msg("%s: parameter %lld is not its master, rounded", c.name, (long long)i);
    cu_end(&c);
}

static void muon_on_matrices(void **state)
{
    (void)state;
    cu_device();
    static const int64_t shapes[][2] = {{16, 16}, {7, 40}, {40, 33}, {33, 8}};
    for (int i = 0; i < 4; i++)
        for (int64_t begin = 0; begin <= 60; begin += 20)
            muon_case(i % 2 == 0 ? MICS_DTYPE_FP32 : MICS_DTYPE_BF16, shapes[i][0], shapes[i][1],
                      begin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_on_shards),
        cmocka_unit_test(lion_on_shards),
        cmocka_unit_test(muon_on_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
