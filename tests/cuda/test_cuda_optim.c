// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers with one state, on shards that begin and end anywhere; AdamW is tested beside the
// kernels over flat arrays.
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_on_shards),
        cmocka_unit_test(lion_on_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
