// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of samples: every epoch visits every window once.
#include "mics/data.h"
#include "test.h"

static void test_count(void **state)
{
    (void)state;
    assert_int_equal(mics_sample_count(0, 4), 0);
    assert_int_equal(mics_sample_count(1, 4), 0);
    assert_int_equal(mics_sample_count(4, 4), 0);
    assert_int_equal(mics_sample_count(5, 4), 1);
    assert_int_equal(mics_sample_count(8, 4), 1);
    assert_int_equal(mics_sample_count(9, 4), 2);
    assert_int_equal(mics_sample_count(INT64_MAX, 1), INT64_MAX - 1);
}

static void test_epochs_are_permutations(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 7, 64, 65, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            char visited[1000] = {0};
            for (int64_t i = 0; i < sizes[s]; i++) {
                int64_t begin = mics_sample_begin(9, sizes[s], 5, epoch * sizes[s] + i);
                assert_int_equal(begin % 5, 0);
                assert_in_range(begin / 5, 0, sizes[s] - 1);
                assert_int_equal(visited[begin / 5]++, 0);
            }
        }
    }
}

static void test_orders_differ(void **state)
{
    (void)state;
    int same_epoch = 0, same_seed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t begin = mics_sample_begin(9, 1000, 1, i);
        same_epoch += begin == mics_sample_begin(9, 1000, 1, 1000 + i);
        same_seed += begin == mics_sample_begin(10, 1000, 1, i);
    }
    assert_in_range(same_epoch, 0, 10); // one in expectation
    assert_in_range(same_seed, 0, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_epochs_are_permutations),
        cmocka_unit_test(test_orders_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
