// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Trials of repeats that now and then take many times the mean.
#include "measure/internal.h"
#include "mics/rng.h"
#include "test.h"
#include <math.h>

enum { SEEDS = 200 };

static const double BUDGET_US = 500e3;

// What `repeats` of them take from number `from` on, each.
typedef double (*takes)(uint64_t seed, int64_t from, int32_t repeats);

static int64_t repeats_of(const measure_trials *trials)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < trials->count; i++)
        sum += trials->repeats[i];
    return sum;
}

static measure_trials run(takes us, uint64_t seed)
{
    measure_trials trials = {.budget_us = BUDGET_US};
    int32_t repeats = 0;
    while ((repeats = measure_trials_next(&trials)) > 0)
        measure_trials_add(&trials, repeats, us(seed, repeats_of(&trials), repeats));
    return trials;
}

// 50 us, and one in a hundred 20 ms more: 250 us on average.
static double late_now_and_then(uint64_t seed, int64_t from, int32_t repeats)
{
    double sum_us = 0;
    for (int64_t i = from; i < from + repeats; i++)
        sum_us += mics_rng_bits(seed, 0, (uint64_t)i) % 100 == 0 ? 20050 : 50;
    return sum_us / repeats;
}

// The time holds 2000 of them with 20 late ones, of which each trial has its part.
static void test_what_comes_often_counts(void **state)
{
    (void)state;
    double mean_us = 0, square = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const measure_trials trials = run(late_now_and_then, seed);
        const double us = measure_trials_us(&trials);
        mean_us += us / SEEDS;
        square += (us / 250 - 1) * (us / 250 - 1) / SEEDS;
    }
    assert_true(fabs(mean_us - 250) < 30);
    assert_true(sqrt(square) < 0.35);
}

// All take 50 us; the first 16 ms more, and the 3000th half a second.
static double interrupted(uint64_t seed, int64_t from, int32_t repeats)
{
    (void)seed;
    const double extra_us =
        (from == 0 ? 16e3 : 0) + (from <= 3000 && from + repeats > 3000 ? 500e3 : 0);
    return 50 + extra_us / repeats;
}

static void test_interruptions_do_not_count(void **state)
{
    (void)state;
    const measure_trials trials = run(interrupted, 0);
    assert_true(repeats_of(&trials) > 3000);
    assert_true(measure_trials_us(&trials) == 50);
    assert_true(trials.spent_us < 2.5 * BUDGET_US);
}

static void test_middle(void **state)
{
    (void)state;
    measure_trials trials = {.budget_us = 1};
    assert_true(measure_trials_us(&trials) == 0);
    measure_trials_add(&trials, 3, 7);
    assert_true(measure_trials_us(&trials) == 7);
    measure_trials_add(&trials, 2, 5);
    assert_true(measure_trials_us(&trials) == 7);
    measure_trials_add(&trials, 1, 1);
    assert_true(measure_trials_us(&trials) == 6); // between 5 and 7
    measure_trials_add(&trials, 1, 1);
    assert_true(measure_trials_us(&trials) == 5);
}

static double a_second(uint64_t seed, int64_t from, int32_t repeats)
{
    (void)seed;
    (void)from;
    (void)repeats;
    return 1e6;
}

static double nothing(uint64_t seed, int64_t from, int32_t repeats)
{
    (void)seed;
    (void)from;
    (void)repeats;
    return 0;
}

static void test_they_end(void **state)
{
    (void)state;
    const measure_trials slow = run(a_second, 0), none = run(nothing, 0);
    assert_int_equal(repeats_of(&slow), slow.count); // of one repeat each
    assert_true(slow.count > 1 && slow.count < 10);
    assert_int_equal(none.count, MEASURE_MAX_TRIALS);
    assert_true(measure_trials_us(&none) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_comes_often_counts),
        cmocka_unit_test(test_interruptions_do_not_count),
        cmocka_unit_test(test_middle),
        cmocka_unit_test(test_they_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
