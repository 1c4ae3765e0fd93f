// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of samples: every epoch visits every window once.
#include "io/data/data.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>

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

// ---- mixtures ----

static void check_shares(uint64_t seed, const mics_mixture_part *parts, int32_t count,
                         int64_t samples)
{
    int64_t seen[300] = {0};
    double weights = 0;
    for (int32_t i = 0; i < count; i++)
        weights += parts[i].weight;
    for (int64_t n = 0; n < samples; n++) {
        const mics_mixture_sample at = mics_mixture_find(seed, parts, count, n);
        assert_in_range(at.part, 0, count - 1);
        assert_int_equal(at.index, seen[at.part]++); // none is left out, none comes twice
    }
    for (int32_t i = 0; i < count; i++) {
        const double wanted = (double)samples * parts[i].weight / weights;
        assert_true(fabs((double)seen[i] - wanted) <= count);
    }
}

static void test_shares(void **state)
{
    (void)state;
    static const double weights[] = {0.7, 0.2, 0.09, 0.01};
    mics_mixture_part parts[300] = {{0}};
    for (int32_t i = 0; i < 4; i++)
        parts[i] = (mics_mixture_part){.windows = 10, .weight = weights[i]};
    for (uint64_t seed = 0; seed < 3; seed++)
        check_shares(seed, parts, 4, 100000);
    check_shares(1, parts, 1, 100);
    for (int32_t i = 0; i < 300; i++)
        parts[i] = (mics_mixture_part){.windows = 10, .weight = i % 3 == 0 ? 1 : 1e-9};
    check_shares(1, parts, 300, 2000);
    for (int32_t i = 0; i < 300; i++)
        parts[i].weight = 3;
    check_shares(1, parts, 300, 2000);
}

// Far into a run nothing is rounded away.
static void test_late_shares(void **state)
{
    (void)state;
    const mics_mixture_part parts[] = {{0, 10, 1}, {0, 10, 2}, {0, 10, 4}};
    const int64_t late = (int64_t)1 << 47;
    mics_mixture_sample before[3];
    int64_t seen[3] = {0};
    for (int32_t i = 0; i < 3; i++)
        before[i].index = -1;
    for (int64_t n = 0; n < 7000; n++) {
        const mics_mixture_sample at = mics_mixture_find(5, parts, 3, late + n);
        if (before[at.part].index >= 0)
            assert_int_equal(at.index, before[at.part].index + 1);
        before[at.part] = at;
        seen[at.part]++;
    }
    for (int32_t i = 0; i < 3; i++)
        assert_true(llabs(seen[i] - (1000 << i)) <= 3);
}

// Each part is visited as if it were alone: all of it, and then all of it again.
static void test_mixture_epochs(void **state)
{
    (void)state;
    const mics_mixture_part parts[] = {{1000, 7, 3}, {5000, 11, 1}};
    int32_t visits[2][11] = {{0}};
    for (int64_t n = 0; n < 280; n++) {
        const int64_t begin = mics_mixture_begin(3, parts, 2, 10, n);
        const int32_t part = begin >= 5000;
        const int64_t window = (begin - parts[part].begin) / 10;
        assert_int_equal((begin - parts[part].begin) % 10, 0);
        assert_in_range(window, 0, parts[part].windows - 1);
        const mics_mixture_sample at = mics_mixture_find(3, parts, 2, n);
        assert_int_equal(at.part, part);
        assert_int_equal(visits[part][window]++, at.index / parts[part].windows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),         cmocka_unit_test(test_epochs_are_permutations),
        cmocka_unit_test(test_orders_differ), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_late_shares),   cmocka_unit_test(test_mixture_epochs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
