// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Learning rates against values worked out by hand from DeepSpeed's formulas.
#include "mics/config.h"
#include "test.h"
#include <math.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant),      cmocka_unit_test(test_warmup_log),
        cmocka_unit_test(test_warmup_linear), cmocka_unit_test(test_warmup_decay),
        cmocka_unit_test(test_warmup_cosine), cmocka_unit_test(test_wsd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
