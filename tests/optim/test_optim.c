// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers: one step against an fp64 reference on every kernel, and 20 steps against PyTorch's
// and the authors' own rules (tools/make_optimizer_golden.py). AdamW's single step is tested beside
// the ops.
#include "../ops/op_harness.h"
#include "config/config.h"
#include "config/value.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t SIZES[] = {1, 7, 16, 33, 1000, 40000};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

// ---- one step ----

typedef struct update_args {
    mics_optimizer optimizer;
    mics_optimizer_update update;
} update_args;

static void run_update(const mics_kernels *k, int32_t threads, const void *args)
{
    const update_args *a = args;
    const mics_exec at = op_exec(threads, NULL);
    mics_optimizer_update update = a->update;
    update.optimizer = &a->optimizer;
    k->update[a->optimizer.kind](&at, &update);
}

// A parameter, its state, and what both become; terms that make them up.
typedef struct element {
    double p, state, grad; // scaled
    double p_terms, state_terms;
} element;

static void sgd_step(const update_args *a, element *e)
{
    const double momentum = (double)(float)a->optimizer.settings[0];
    const double decay = a->update.decays ? (double)(float)a->optimizer.weight_decay : 0;
    const double g = e->grad + decay * e->p, b = momentum * e->state + g;
    const bool nesterov = a->optimizer.settings[1] != 0;
    const double lr = (double)a->update.lr;
    e->state_terms = fabs(momentum * e->state) + fabs(e->grad) + fabs(decay * e->p);
    e->p_terms = fabs(e->p) + lr * (fabs(g) + 2 * e->state_terms);
    e->p -= lr * (nesterov ? g + momentum * b : b);
    e->state = b;
}

static void lion_step(const update_args *a, element *e)
{
    const double beta1 = (double)(float)a->optimizer.settings[0];
    const double beta2 = (double)(float)a->optimizer.settings[1];
    const double decay = a->update.decays ? (double)(float)a->optimizer.weight_decay : 0;
    const double c = beta1 * e->state + (1 - beta1) * e->grad, lr = (double)a->update.lr;
    e->p_terms = fabs(e->p) + lr * (1 + fabs(decay * e->p));
    e->state_terms = fabs(e->state) + fabs(e->grad);
    e->p -= lr * ((c > 0) - (c < 0) + decay * e->p);
    e->state = beta2 * e->state + (1 - beta2) * e->grad;
}

static void update_case(mics_optimizer optimizer, int64_t elems, bool decays, float grad_scale,
                        void (*step)(const update_args *, element *))
{
    op_case c;
    op_begin(&c, "%s elems=%d decays=%d", mics_optimizer_def_get(optimizer.kind)->name, (int)elems,
             decays);
    update_args a = {.optimizer = optimizer};
    float *params = op_output(&c, "params", elems, false);
    float *masters = op_fp32(&c, op_inout(&c, "masters", elems, 1.0));
    float *state = op_fp32(&c, op_inout(&c, "state", elems, 0.1));
    float *grads = op_fp32(&c, op_input(&c, "grads", elems, 1.0));
    for (int64_t i = 0; i < elems; i += 5)
        state[i] = grads[i] = 0; // never had a gradient
    op_input_changed(&c, state);
    op_input_changed(&c, grads);
    a.update = (mics_optimizer_update){.lr = 3e-2F,
                                       .grad_scale = grad_scale,
                                       .decays = decays,
                                       .step = 3,
                                       .rows = 1,
                                       .columns = elems,
                                       .elems = elems,
                                       .params = params,
                                       .masters = masters,
                                       .states = {state},
                                       .grads = grads};
    double *want[2] = {op_doubles(&c, elems), op_doubles(&c, elems)};
    double *terms[2] = {op_doubles(&c, elems), op_doubles(&c, elems)};
    for (int64_t i = 0; i < elems; i++) {
        element e = {.p = (double)masters[i],
                     .state = (double)state[i],
                     .grad = (double)grads[i] * (double)grad_scale};
        step(&a, &e);
        want[0][i] = e.p;
        want[1][i] = e.state;
        terms[0][i] = e.p_terms;
        terms[1][i] = e.state_terms;
    }
    op_expect(&c, params, want[0], terms[0], OP_TOLERANCE);
    op_expect(&c, masters, want[0], terms[0], OP_TOLERANCE);
    op_expect(&c, state, want[1], terms[1], OP_TOLERANCE);
    op_run(&c, run_update, &a);
    op_end(&c);
}

static void test_sgd(void **unused)
{
    (void)unused;
    const mics_optimizer plain = {MICS_OPTIMIZER_SGD, {0, 0}, 0.1};
    const mics_optimizer momentum = {MICS_OPTIMIZER_SGD, {0.9, 0}, 0.1};
    const mics_optimizer nesterov = {MICS_OPTIMIZER_SGD, {0.9, 1}, 0.1};
    for (int i = 0; i < SIZE_COUNT; i++) {
        update_case(plain, SIZES[i], true, 1, sgd_step);
        update_case(momentum, SIZES[i], false, 0.37F, sgd_step);
        update_case(nesterov, SIZES[i], true, 0.37F, sgd_step);
    }
}

static void test_lion(void **unused)
{
    (void)unused;
    const mics_optimizer lion = {MICS_OPTIMIZER_LION, {0.9, 0.99}, 0.1};
    for (int i = 0; i < SIZE_COUNT; i++) {
        update_case(lion, SIZES[i], true, 1, lion_step);
        update_case(lion, SIZES[i], false, 0.37F, lion_step);
    }
}

// ---- gradients in 2 bytes ----

enum { ROUNDED_ELEMS = 70001 };

// Gradients as they are give the bits of the same ones in fp32, and so does their norm.
static void rounded_case(const mics_kernels *k, mics_optimizer optimizer, int64_t elems)
{
    static float wide[ROUNDED_ELEMS], state[2][3][ROUNDED_ELEMS];
    static uint16_t halves[ROUNDED_ELEMS], params[2][ROUNDED_ELEMS];
    const mics_exec at = {.dtype = MICS_DTYPE_BF16, .threads = 1};
    double squares[2] = {0.5, 0.5};
    for (int64_t i = 0; i < elems; i++) {
        wide[i] = (float)sin(0.37 * (double)i) * (i % 11 == 0 ? 1e-6F : 1.0F);
        state[0][0][i] = state[1][0][i] = cosf((float)i);
        state[0][1][i] = state[1][1][i] = 0.1F * sinf((float)i);
        state[0][2][i] = state[1][2][i] = 0.01F + 0.01F * cosf(3 * (float)i);
    }
    mics_kernels_get(NULL)->pack_bf16(halves, wide, elems);
    mics_kernels_get(NULL)->unpack_bf16(wide, halves, elems);
    for (int way = 0; way < 2; way++) {
        const mics_optimizer_update update = {.optimizer = &optimizer,
                                              .lr = 3e-2F,
                                              .grad_scale = 0.37F,
                                              .decays = true,
                                              .step = 3,
                                              .rows = 1,
                                              .columns = elems,
                                              .elems = elems,
                                              .params = params[way],
                                              .masters = state[way][0],
                                              .states = {state[way][1], state[way][2]},
                                              .grads = way == 0 ? wide : NULL,
                                              .rounded_grads = way == 0 ? NULL : halves};
        k->update[optimizer.kind](&at, &update);
    }
    for (int s = 0; s < 3; s++)
        assert_memory_equal(state[0][s], state[1][s], (size_t)elems * sizeof(float));
    assert_memory_equal(params[0], params[1], (size_t)elems * sizeof(uint16_t));
    k->sum_squares(&at, &squares[0], wide, elems);
    k->sum_squares_rounded(&at, &squares[1], halves, elems);
    assert_true(squares[0] > 1 || elems < 10);
    assert_memory_equal(&squares[0], &squares[1], sizeof(double));
}

static void test_rounded_gradients(void **unused)
{
    (void)unused;
    static const mics_optimizer optimizers[] = {{MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0.1},
                                                {MICS_OPTIMIZER_SGD, {0.9, 1}, 0.1},
                                                {MICS_OPTIMIZER_LION, {0.9, 0.99}, 0.1}};
    static const int64_t sizes[] = {1, 7, 33, 4095, 4096, 4097, ROUNDED_ELEMS};
    for (int32_t k = 0; k < mics_kernels_count(); k++)
        for (size_t i = 0; mics_kernels_at(k) != NULL && i < 3 * 7; i++)
            rounded_case(mics_kernels_at(k)->bf16, optimizers[i % 3], sizes[i / 3]);
}

// ---- neighbouring parameters in one call ----

enum { FLIP_ELEMS = 40001 };

// The bits of a call for each run, whatever their lengths.
static void flips_case(const mics_kernels *k, mics_optimizer optimizer, const int64_t *ends,
                       int32_t runs, bool decays)
{
    static float values[2][3][FLIP_ELEMS], grads[FLIP_ELEMS];
    const mics_exec at = {.dtype = MICS_DTYPE_FP32, .threads = 1};
    for (int64_t i = 0; i < FLIP_ELEMS; i++) {
        grads[i] = sinf((float)i);
        values[0][0][i] = values[1][0][i] = 1.5F + cosf((float)i);
        values[0][1][i] = values[1][1][i] = 0.1F * sinf(2 * (float)i);
        values[0][2][i] = values[1][2][i] = 0.01F + 0.01F * cosf(3 * (float)i);
    }
    mics_optimizer_update whole = {.optimizer = &optimizer,
                                   .lr = 3e-2F,
                                   .grad_scale = 0.37F,
                                   .decays = decays,
                                   .flip_count = runs - 1,
                                   .step = 3,
                                   .rows = 1,
                                   .columns = ends[runs - 1],
                                   .elems = ends[runs - 1],
                                   .masters = values[0][0],
                                   .states = {values[0][1], values[0][2]},
                                   .grads = grads};
    for (int32_t run = 0; run < runs; run++) {
        const int64_t begin = run == 0 ? 0 : ends[run - 1];
        mics_optimizer_update part = whole;
        part.flip_count = 0;
        part.decays = decays != (run % 2 != 0);
        part.columns = part.elems = ends[run] - begin;
        part.masters = values[1][0] + begin;
        part.states[0] = values[1][1] + begin;
        part.states[1] = values[1][2] + begin;
        part.grads = grads + begin;
        k->update[optimizer.kind](&at, &part);
        if (run < runs - 1)
            whole.flips[run] = ends[run];
    }
    k->update[optimizer.kind](&at, &whole);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
}

static void test_flips(void **unused)
{
    (void)unused;
    static const mics_optimizer optimizers[] = {{MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0.1},
                                                {MICS_OPTIMIZER_SGD, {0.9, 1}, 0.1},
                                                {MICS_OPTIMIZER_LION, {0.9, 0.99}, 0.1}};
    static const int64_t few[] = {64, 20000, 20004, FLIP_ELEMS}, one[] = {FLIP_ELEMS};
    int64_t most[MICS_UPDATE_FLIPS + 1];
    for (int32_t run = 0; run <= MICS_UPDATE_FLIPS; run++)
        most[run] = 1 + run * 2353;
    for (int32_t k = 0; k < mics_kernels_count(); k++)
        for (int i = 0; mics_kernels_at(k) != NULL && i < 6; i++) {
            flips_case(mics_kernels_at(k), optimizers[i / 2], few, 4, i % 2 == 0);
            flips_case(mics_kernels_at(k), optimizers[i / 2], one, 1, i % 2 == 0);
            flips_case(mics_kernels_at(k), optimizers[i / 2], most, MICS_UPDATE_FLIPS + 1,
                       i % 2 == 0);
        }
}

// ---- 20 steps ----

enum { MAX_ELEMS = 64, GOLDEN_BYTES = 1 << 20, RUN_BYTES = 2048, WORKSPACE = 1 << 13 };

static mics_run *load_case(mics_memory *memory, const mics_json_value *one)
{
    char text[RUN_BYTES], params[RUN_BYTES / 2];
    mics_run *run = NULL;
    mics_config_value_text(mics_json_get(one, "params"), params, sizeof params);
    snprintf(text, sizeof text,
             "{\"model\": {\"config\": \"%s\"}, \"data\": {\"train\": \"a\"}, \"run\": {\"steps\": "
             "20}, \"train_batch_size\": 1, \"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": "
             "%.17g, \"weight_decay\": %.17g%s%s}}",
             MICS_MODEL_OF_PROGRAM, mics_json_string(mics_json_get(one, "type")),
             mics_json_real(mics_json_get(one, "lr")),
             mics_json_real(mics_json_get(one, "weight_decay")), strlen(params) > 2 ? ", " : "",
             params + 1); // without its brace
    ASSERT_OK(mics_run_parse(memory, "golden", text, NULL, 0, &run));
    return run;
}

static void check_values(const mics_json_value *one, const char *what, const mics_json_value *want,
                         const float *got)
{
    assert_true(mics_json_count(want) > 0);
    for (int32_t i = 0; i < mics_json_count(want); i++) {
        const double expected = mics_json_real(mics_json_element(want, i));
        if (!(fabs((double)got[i] - expected) <= 2e-6 * (fabs(expected) + 1)))
            fail_msg("%s: %s of element %d is %.9g, expected %.9g",
                     mics_json_string(mics_json_get(one, "type")), what, (int)i, (double)got[i],
                     expected);
    }
}

static void orthogonalise(const mics_kernels *k, const mics_exec *at,
                          const mics_optimizer_update *all, float *matrix)
{
    const mics_optimizer_update call = {.optimizer = all->optimizer,
                                        .phase = MICS_UPDATE_ORTHOGONALISE,
                                        .rows = all->rows,
                                        .columns = all->columns,
                                        .direction = matrix};
    k->update[all->optimizer->kind](at, &call);
}

// Of a matrix two ranks' parts, between which it is made orthogonal.
static void update(const mics_kernels *k, mics_optimizer_update call)
{
    static float space[WORKSPACE], whole[MAX_ELEMS];
    const mics_exec at = op_exec(1, space);
    const mics_optimizer_update all = call;
    const int64_t cut = all.rows > 1 ? all.elems / 3 : 0;
    const bool matrix = all.rows > 1;
    assert_true(mics_optimizer_workspace(all.optimizer->kind, all.rows, all.columns) <= WORKSPACE);
    for (int part = 0; part < 4; part++) {
        const int64_t begin = part % 2 == 0 ? 0 : cut, end = part % 2 == 0 ? cut : all.elems;
        if (matrix && part == 2)
            orthogonalise(k, &at, &all, whole);
        call.direction = matrix ? whole + begin : NULL;
        call.phase = !matrix    ? MICS_UPDATE_ALL
                     : part < 2 ? MICS_UPDATE_MOMENTUM
                                : MICS_UPDATE_APPLY;
        call.begin = begin;
        call.elems = end - begin;
        call.masters = all.masters + begin;
        call.grads = all.grads + begin;
        for (int s = 0; s < MICS_OPTIMIZER_STATES; s++)
            call.states[s] = all.states[s] + begin;
        if (end > begin && (matrix || part >= 2))
            k->update[all.optimizer->kind](&at, &call);
    }
}

static void train(const mics_kernels *k, const mics_run *run, const mics_json_value *shape,
                  float *p, float *const states[MICS_OPTIMIZER_STATES])
{
    const bool matrix = mics_json_count(shape) > 1;
    const int64_t rows = matrix ? mics_json_int(mics_json_element(shape, 0)) : 1;
    const int64_t columns = mics_json_int(mics_json_element(shape, matrix ? 1 : 0));
    const int64_t elems = rows * columns;
    float grads[MAX_ELEMS];
    for (int step = 1; step <= 20; step++) {
        for (int i = 0; i < (int)elems; i++)
            grads[i] = i % 7 == 3 ? 0 : (float)(0.3 * (double)p[i] + sin(0.7 * i + 1.3 * step));
        update(k, (mics_optimizer_update){.optimizer = &run->optimizer,
                                          .lr = (float)mics_lr_at(&run->lr, step),
                                          .grad_scale = 1,
                                          .decays = true,
                                          .step = step,
                                          .rows = rows,
                                          .columns = columns,
                                          .elems = elems,
                                          .masters = p,
                                          .states = {states[0], states[1]},
                                          .grads = grads});
    }
}

static void check_case(const mics_kernels *k, const mics_run *run, const mics_json_value *one)
{
    const mics_optimizer_def *def = mics_optimizer_def_get(run->optimizer.kind);
    const mics_json_value *want = mics_json_get(one, "states");
    float p[MAX_ELEMS], held[MICS_OPTIMIZER_STATES][MAX_ELEMS] = {{0}};
    float *const states[MICS_OPTIMIZER_STATES] = {held[0], held[1]};
    const int32_t elems = mics_json_count(mics_json_get(one, "final"));
    assert_in_range(elems, 1, MAX_ELEMS);
    for (int i = 0; i < elems; i++)
        p[i] = cosf((float)i);
    train(k, run, mics_json_get(one, "shape"), p, states);
    check_values(one, "parameter", mics_json_get(one, "final"), p);
    for (int32_t s = 0; s < def->states; s++) {
        if (mics_json_get(want, def->state_names[s]) == NULL)
            continue; // without momentum, or of a matrix the second moment
        check_values(one, def->state_names[s], mics_json_get(want, def->state_names[s]), states[s]);
    }
}

static void test_golden(void **unused)
{
    (void)unused;
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_json_load(memory, MICS_TEST_DATA "/optimizers.json", GOLDEN_BYTES, &json));
    const mics_json_value *cases = mics_json_at(json, "cases");
    assert_int_equal(mics_json_int(mics_json_at(json, "steps")), 20);
    assert_true(mics_json_count(cases) >= 10);
    for (int32_t i = 0; i < mics_json_count(cases); i++) {
        const mics_json_value *one = mics_json_element(cases, i);
        mics_run *run = load_case(memory, one);
        for (int32_t k = 0; k < mics_kernels_count(); k++) {
            if (mics_kernels_at(k) != NULL)
                check_case(mics_kernels_at(k), run, one);
        }
        mics_run_close(run);
    }
    mics_json_close(json);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_lion),
        cmocka_unit_test(test_rounded_gradients),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_golden),
    };
    return op_run_tests(tests);
}
