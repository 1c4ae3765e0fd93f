// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A cluster file is refused where it mispredicts a step by more than a factor of two.
#include "measure/internal.h"
#include "mics/log.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

static char said[1024];
static bool force;

static void keep_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)ctx;
    (void)level;
    (void)rank;
    snprintf(said, sizeof said, "%s", line);
}

static mics_status judge(double us, double predicted_us, double spread, double load)
{
    const measure_compute compute = {
        .check_us = us, .check_predicted_us = predicted_us, .check_spread = spread};
    mics_log_set_sink(keep_line, NULL);
    const mics_status status = measure_training_judge(&compute, load, 4, force);
    mics_log_set_sink(NULL, NULL);
    return status;
}

static void test_factor_of_two(void **state)
{
    (void)state;
    ASSERT_OK(judge(100, 100, 1, 4));
    ASSERT_OK(judge(199, 100, 9, 9));
    ASSERT_OK(judge(100, 199, 9, 9));
    assert_int_equal(judge(201, 100, 1, 4), MICS_ERR_FORMAT);
    assert_int_equal(judge(100, 201, 1, 4), MICS_ERR_FORMAT);
}

static void test_says_what_disturbed_it(void **state)
{
    (void)state;
    assert_int_equal(judge(9000, 3000, 1, 7.5), MICS_ERR_FORMAT);
    assert_non_null(strstr(said, "a step takes 9 ms, and the figures predict 3 ms"));
    assert_non_null(strstr(said, "load 7.5 on 4 cores"));
    assert_non_null(strstr(said, "no file was written"));
    assert_int_equal(judge(9000, 3000, 3, 4), MICS_ERR_FORMAT);
    assert_non_null(strstr(said, "the slowest step took 3.0 times the fastest"));
}

static void test_force(void **state)
{
    (void)state;
    force = true;
    ASSERT_OK(judge(9000, 3000, 1, 7.5));
    assert_non_null(strstr(said, "as --force asks"));
    force = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factor_of_two),
        cmocka_unit_test(test_says_what_disturbed_it),
        cmocka_unit_test(test_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
