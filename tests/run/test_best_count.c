// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which validation counts as the best.
#include "run/followers/best.h"
#include "test.h"
#include <math.h>

static const mics_run every_step = {.steps = 10, .validate_every = 1};

static void the_lowest_is_the_best(void **state)
{
    (void)state;
    run_best_record best = {0};
    run_best_count(&best, &every_step, 1, 3);
    run_best_count(&best, &every_step, 2, 2);
    run_best_count(&best, &every_step, 3, 2);
    run_best_count(&best, &every_step, 4, NAN);
    assert_int_equal(best.step, 2);
    assert_int_equal(best.since, 2);
}

// Neither at first nor later; it counts as no improvement.
static void what_is_no_number_is_never_the_best(void **state)
{
    (void)state;
    run_best_record best = {0};
    run_best_count(&best, &every_step, 1, NAN);
    assert_int_equal(best.step, 0);
    assert_int_equal(best.since, 1);
    run_best_count(&best, &every_step, 2, 5);
    assert_int_equal(best.step, 2);
    assert_true(best.loss == 5);
    assert_int_equal(best.since, 0);
}

// Islands that have not met since: the same parameters are validated again.
static void what_is_validated_again_counts_once(void **state)
{
    (void)state;
    const mics_run local = {.steps = 10, .validate_every = 1, .outer.every = 3};
    static const double losses[] = {5, 5, 4, 4, 4, 6, 6, 6, 7, 7};
    run_best_record best = {0};
    for (int step = 1; step <= 10; step++)
        run_best_count(&best, &local, step, losses[step - 1]);
    assert_int_equal(best.newest, 10);
    assert_int_equal(best.step, 3);
    assert_int_equal(best.since, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_is_the_best),
        cmocka_unit_test(what_is_no_number_is_never_the_best),
        cmocka_unit_test(what_is_validated_again_counts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
