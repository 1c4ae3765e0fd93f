// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Learning rates against values worked out by hand from DeepSpeed's formulas, and against those of
// transformers and DeepSpeed themselves (tools/make_lr_golden.py).
#include "config/config.h"
#include "config/value.h"
#include "test.h"
#include <math.h>
#include <stdio.h>

typedef struct expected_rate {
    int64_t step;
    double rate;
} expected_rate;

static void check_rates(const mics_lr *lr, const expected_rate *rates, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double got = mics_lr_at(lr, rates[i].step);
        if (!(fabs(got - rates[i].rate) <= 1e-12))
            fail_msg("step %lld: %.15g, expected %.15g", (long long)rates[i].step, got,
                     rates[i].rate);
    }
}
#define CHECK(lr, rates) check_rates(&(lr), rates, sizeof(rates) / sizeof *(rates))

static void test_constant(void **state)
{
    (void)state;
    const mics_lr lr = {.kind = MICS_LR_CONSTANT, .peak = 0.25};
    const expected_rate rates[] = {{1, 0.25}, {1000000000000, 0.25}};
    CHECK(lr, rates);
}

// Step k has iteration k - 2; log warm-up: ln(iteration + 1) / ln(steps).
static void test_warmup_log(void **state)
{
    (void)state;
    const mics_lr lr = {.kind = MICS_LR_WARMUP,
                        .warmup = MICS_WARMUP_LOG,
                        .start = 0.1,
                        .peak = 1.1,
                        .warmup_steps = 8};
    const expected_rate rates[] = {
        {1, 0.1},             // iteration -1: the start
        {2, 0.1},             // ln 1 = 0
        {3, 0.1 + 1.0 / 3.0}, // ln 2 / ln 8
        {5, 0.1 + 2.0 / 3.0}, // ln 4 / ln 8
        {9, 1.1},             // ln 8 / ln 8
        {10, 1.1},
        {1000, 1.1} // after the warm-up
    };
    CHECK(lr, rates);
}

static void test_warmup_linear(void **state)
{
    (void)state;
    mics_lr lr = {
        .kind = MICS_LR_WARMUP, .warmup = MICS_WARMUP_LINEAR, .peak = 1.0, .warmup_steps = 4};
    const expected_rate rates[] = {{1, 0.0}, {2, 0.0}, {3, 0.25}, {5, 0.75}, {6, 1.0}, {7, 1.0}};
    CHECK(lr, rates);
    lr.warmup_steps = 1; // DeepSpeed takes at least 2
    const expected_rate short_rates[] = {{1, 0.0}, {2, 0.0}, {3, 0.5}, {4, 1.0}};
    CHECK(lr, short_rates);
}

static void test_warmup_decay(void **state)
{
    (void)state;
    mics_lr lr = {.kind = MICS_LR_WARMUP_DECAY,
                  .warmup = MICS_WARMUP_LINEAR,
                  .start = 0.5,
                  .peak = 1.5,
                  .warmup_steps = 4,
                  .total_steps = 14};
    const expected_rate rates[] = {
        {1, 0.5},  {4, 1.0},  // iteration 2 of 4
        {6, 1.5},             // (14 - 4) / (14 - 4)
        {11, 1.0}, {16, 0.5}, // iterations 9 and 14
        {50, 0.5}             // not below
    };
    CHECK(lr, rates);
    lr.total_steps = 3; // ends inside the warm-up: straight to the start
    const expected_rate ended[] = {{4, 1.0}, {6, 0.5}};
    CHECK(lr, ended);
}

static void test_warmup_cosine(void **state)
{
    (void)state;
    mics_lr lr = {.kind = MICS_LR_WARMUP_COSINE,
                  .warmup = MICS_WARMUP_LINEAR,
                  .peak = 2.0,
                  .min_ratio = 0.2,
                  .end_ratio = 0.1,
                  .warmup_steps = 10,
                  .total_steps = 14};
    const expected_rate rates[] = {
        {1, 0.0}, // iteration -1 is 0, whatever min_ratio
        {2, 0.4}, // 0.2 x 2
        {7, 1.2}, // (0.2 + 0.5 x 0.8) x 2
        {12, 2.0 * (0.1 + 0.9 * (1.0 + 0.70710678118654752) / 2.0)}, // cos(pi / 4)
        {13, 1.1}, // cos(pi / 2) = 0: (0.1 + 0.45) x 2
        {15, 0.2}, // cos(pi): 0.1 x 2
        {99, 0.2}  // stays there
    };
    CHECK(lr, rates);
    lr.total_steps = 5;
    const expected_rate ended[] = {{12, 0.2}};
    CHECK(lr, ended);
}

static void test_wsd(void **state)
{
    (void)state;
    mics_lr lr = {.kind = MICS_LR_WSD,
                  .peak = 4.0,
                  .end_ratio = 0.25,
                  .warmup_steps = 4,
                  .decay_steps = 3,
                  .total_steps = 10};
    const expected_rate rates[] = {{1, 1.0}, {3, 3.0}, {4, 4.0},  {7, 4.0},
                                   {8, 3.0}, {9, 2.0}, {10, 1.0}, {11, 1.0}};
    CHECK(lr, rates);
    lr = (mics_lr){.kind = MICS_LR_WSD, .peak = 4.0, .total_steps = 10};
    const expected_rate flat[] = {{1, 4.0}, {10, 4.0}, {20, 4.0}};
    CHECK(lr, flat);
}

// ---- golden values ----

enum { RUN_BYTES = 2048, GOLDEN_BYTES = 1 << 20 };

static mics_run *load_case(mics_memory *memory, const mics_json_value *one)
{
    char text[RUN_BYTES], params[RUN_BYTES / 2];
    mics_run *run = NULL;
    mics_config_value_text(mics_json_get(one, "params"), params, sizeof params);
    snprintf(text, sizeof text,
             "{\"model\": {\"config\": \"%s\"}, \"data\": {\"train\": \"a\"}, \"run\": {\"steps\": "
             "%lld}, \"train_batch_size\": 1, \"optimizer\": {\"params\": {\"lr\": %.17g}}, "
             "\"scheduler\": {\"type\": \"%s\", \"params\": %s}}",
             MICS_MODEL_OF_PROGRAM, (long long)mics_json_int(mics_json_get(one, "steps")),
             mics_json_real(mics_json_get(one, "lr")), mics_json_string(mics_json_get(one, "type")),
             params);
    ASSERT_OK(mics_run_parse(memory, "golden", text, NULL, 0, &run));
    return run;
}

// Rounding apart, and that of the sum 1 + cos next to 0.
static void check_case(mics_memory *memory, const mics_json_value *one)
{
    mics_run *run = load_case(memory, one);
    const mics_json_value *rates = mics_json_get(one, "rates");
    assert_true(mics_json_count(rates) >= 40);
    for (int32_t i = 0; i < mics_json_count(rates); i++) {
        const double expected = mics_json_real(mics_json_element(rates, i));
        const double got = mics_lr_at(&run->lr, i + 1);
        if (!(fabs(got - expected) <= 1e-12 * expected + 1e-18))
            fail_msg("%s, step %d: %.17g, expected %.17g",
                     mics_json_string(mics_json_get(one, "type")), (int)i + 1, got, expected);
    }
    mics_run_close(run);
}

static void test_golden(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_json_load(memory, MICS_TEST_GOLDEN "/lr.json", GOLDEN_BYTES, &json));
    const mics_json_value *cases = mics_json_at(json, "cases");
    assert_true(mics_json_count(cases) >= 24);
    for (int32_t i = 0; i < mics_json_count(cases); i++)
        check_case(memory, mics_json_element(cases, i));
    mics_json_close(json);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant),      cmocka_unit_test(test_warmup_log),
        cmocka_unit_test(test_warmup_linear), cmocka_unit_test(test_warmup_decay),
        cmocka_unit_test(test_warmup_cosine), cmocka_unit_test(test_wsd),
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
