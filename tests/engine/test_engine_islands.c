// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps over meshes, periods, fragments, overlaps, optimizers and dtypes of changes.
#include "islands.h"

static void test_head(void **state)
{
    (void)state;
    static const mics_outer outers[] = {
        {.every = 4, .fragments = 1}, {.every = 3, .fragments = 2}, {.every = 1, .fragments = 1}};
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        for (size_t o = 0; o < sizeof outers / sizeof outers[0]; o++) {
            islands_run of = on_mesh(&meshes[m], outers[o]);
            run_case(&of, 2e-5);
        }
    }
}

static void test_beside(void **state)
{
    (void)state;
    static const mics_outer outers[] = {{.every = 4, .fragments = 1, .overlap_steps = 1},
                                        {.every = 4, .fragments = 2, .overlap_steps = 2},
                                        {.every = 3, .fragments = 1, .overlap_steps = 3}};
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        for (size_t o = 0; o < sizeof outers / sizeof outers[0]; o++) {
            islands_run of = on_mesh(&meshes[m], outers[o]);
            run_case(&of, 2e-5);
        }
    }
}

// ---- options ----

// Whether all options go together, one mesh each.
static void test_options(void **state)
{
    (void)state;
    for (int option = 0; option < 8; option++) {
        const mics_outer outer = {
            .every = 3, .fragments = 1 + option % 2, .overlap_steps = option % 3};
        islands_run of = on_mesh(&meshes[2 + option], outer);
        of.steps = 14;
        of.run.want.optimizer = fixture_optimizers[option % MICS_OPTIMIZER_KINDS];
        of.run.want.micro_steps = option % 2 + 1;
        of.run.want.early_gathers = option == 6;
        of.run.want.outer.moments_every = option / 2 % 3;
        of.run.want.coalesce_below = option == 5 ? 5000 : 0;
        of.run.want.recompute = option == 4;
        of.run.want.prefetch = option % 3;
        if (option == 7)
            of.run.want.trainable = "transformer.h.*.attn.*";
        run_case(&of, of.run.want.optimizer.kind == MICS_OPTIMIZER_SGD ? 2e-5 : 5e-4);
    }
}

// Each step, rate 1 and no momentum: parameters are the mean of the islands'.
static void test_average(void **state)
{
    (void)state;
    islands_run of = on_mesh(&meshes[3], (mics_outer){.every = 1, .fragments = 1});
    of.run.want.outer_lr = 1;
    of.run.want.outer_momentum = 0;
    run_case(&of, 2e-5);
}

// ---- fewer bits ----

static double distance(const islands_run *a, const islands_run *b)
{
    double squares = 0, all = 0;
    for (int64_t i = 0; i < model_elems(a->run.model); i++) {
        const double d = (double)a->agreed[0][i] - (double)b->agreed[0][i];
        squares += d * d;
        all += (double)b->agreed[0][i] * (double)b->agreed[0][i];
    }
    return sqrt(squares / all);
}

static void open_and_train(mics_memory *memory, islands_run *of)
{
    open_case(memory, of);
    ranks_run_ok(of->run.want.ranks, train_all, of);
}

// Anchors have the same bits everywhere: train_all compares them. Error feedback keeps them close to
// those of fp32.
static void test_dtypes(void **state)
{
    (void)state;
    static const double most[MICS_COMM_DTYPES] = {0, 2e-3, 1e-2, 0.1};
    for (int dtype = MICS_COMM_BF16; dtype < MICS_COMM_DTYPES; dtype++) {
        for (size_t m = 1; m < sizeof meshes / sizeof meshes[0]; m++) {
            mics_memory *memory = NULL;
            islands_run whole = on_mesh(
                &meshes[m], (mics_outer){.every = 2, .fragments = 1, .overlap_steps = (int)m % 2});
            islands_run rounded = whole;
            rounded.run.want.outer.dtype = (mics_comm_dtype)dtype;
            ASSERT_OK(mics_memory_open(&memory));
            open_and_train(memory, &whole);
            open_and_train(memory, &rounded);
            const double d = distance(&rounded, &whole);
            if (!(d > 0 && d < most[dtype]))
                fail_msg("%s, mesh %d: %g", mics_comm_dtype_text((mics_comm_dtype)dtype), (int)m,
                         d);
            close_case(&whole);
            close_case(&rounded);
            assert_int_equal(mics_memory_close(memory), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head),    cmocka_unit_test(test_beside),
        cmocka_unit_test(test_options), cmocka_unit_test(test_average),
        cmocka_unit_test(test_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
