// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Random numbers: the published vectors, moments, and permutations.
#include "base/rng.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Source: Random123 1.14, tests/kat_vectors, philox4x32 with 10 rounds.
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint64_t key;
        uint32_t counter[4], bits[4];
    } cases[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {0xffffffffffffffff,
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t bits[4] = {0};
        mics_rng_philox(cases[i].key, cases[i].counter, bits);
        for (int word = 0; word < 4; word++)
            assert_int_equal(bits[word], cases[i].bits[word]);
    }
}

static void test_arguments_all_count(void **state)
{
    (void)state;
    uint64_t bits = mics_rng_bits(1, 2, 3);
    assert_true(bits == mics_rng_bits(1, 2, 3));
    for (int shift = 0; shift < 64; shift++) {
        uint64_t flip = (uint64_t)1 << shift;
        assert_true(bits != mics_rng_bits(1 ^ flip, 2, 3));
        assert_true(bits != mics_rng_bits(1, 2 ^ flip, 3));
        assert_true(bits != mics_rng_bits(1, 2, 3 ^ flip));
    }
}

// Moments of n draws lie within five standard errors.
static void test_uniform(void **state)
{
    (void)state;
    const int64_t n = 200000;
    double sum = 0, squares = 0, lag = 0, last = 0.5;
    int64_t bins[10] = {0};
    for (int64_t i = 0; i < n; i++) {
        double u = mics_rng_uniform(42, 7, (uint64_t)i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
        lag += (u - 0.5) * (last - 0.5);
        last = u;
        bins[(int)(u * 10)]++;
    }
    const double count = (double)n;
    assert_true(fabs(sum / count - 0.5) < 5 * sqrt(1.0 / 12 / count));
    assert_true(fabs(squares / count - 1.0 / 3) < 5 * sqrt(4.0 / 45 / count));
    assert_true(fabs(lag / count) < 5 * sqrt(1.0 / 144 / count));
    double chi2 = 0;
    for (int bin = 0; bin < 10; bin++)
        chi2 += pow((double)bins[bin] - count / 10, 2) / (count / 10);
    assert_true(chi2 < 34); // 9 degrees of freedom: exceeded once in 10 000 seeds
}

static void test_normal(void **state)
{
    (void)state;
    const int64_t n = 200000;
    double moments[5] = {0};
    int64_t within = 0;
    for (int64_t i = 0; i < n; i++) {
        double z = mics_rng_normal(42, 8, (uint64_t)i), power = 1;
        assert_true(isfinite(z) && fabs(z) < 9); // 53 bits reach 8.6
        for (int k = 1; k < 5; k++)
            moments[k] += power *= z;
        within += fabs(z) < 1;
    }
    const double count = (double)n;
    assert_true(fabs(moments[1] / count) < 5 * sqrt(1 / count));
    assert_true(fabs(moments[2] / count - 1) < 5 * sqrt(2 / count));
    assert_true(fabs(moments[3] / count) < 5 * sqrt(15 / count));
    assert_true(fabs(moments[4] / count - 3) < 5 * sqrt(96 / count));
    assert_true(fabs((double)within / count - 0.682689) < 5 * sqrt(0.2166 / count));
}

static void check_permutation(uint64_t seed, uint64_t stream, uint64_t count)
{
    char *seen = calloc(count, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = mics_rng_permute(seed, stream, count, i);
        assert_true(at < count);
        if (seen[at]++ != 0)
            fail_msg("of %llu, %llu is reached twice", (unsigned long long)count,
                     (unsigned long long)at);
    }
    free(seen);
}

static void test_permute_is_a_permutation(void **state)
{
    (void)state;
    for (uint64_t count = 1; count <= 130; count++)
        check_permutation(count, 3, count);
    static const uint64_t counts[] = {255, 256, 257, 1000, 1023, 1025, 4096, 4097, 65537};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        check_permutation(5, i, counts[i]);
}

static void test_permute_large_counts(void **state)
{
    (void)state;
    static const uint64_t counts[] = {(uint64_t)1 << 32, ((uint64_t)1 << 40) + 1,
                                      ((uint64_t)1 << 62) + 1, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint64_t count = counts[i];
        assert_true(mics_rng_permute(1, 2, count, 0) < count);
        assert_true(mics_rng_permute(1, 2, count, count - 1) < count);
        assert_true(mics_rng_permute(1, 2, count, 0) != mics_rng_permute(1, 2, count, 1));
    }
}

// Every element lands about equally often in every tenth of the range, over many streams.
static void test_permute_mixes(void **state)
{
    (void)state;
    enum { COUNT = 100, STREAMS = 2000 };
    for (uint64_t index = 0; index < COUNT; index += 33) {
        int tenths[10] = {0};
        for (uint64_t stream = 0; stream < STREAMS; stream++)
            tenths[mics_rng_permute(1, stream, COUNT, index) / 10]++;
        for (int tenth = 0; tenth < 10; tenth++)
            assert_in_range(tenths[tenth], 130, 270); // 200 in expectation, 5 deviations of 13.4
    }
}

// Each of the 24 orders of four, and each place of each of sixteen.
static void test_few_are_uniform(void **state)
{
    (void)state;
    enum { STREAMS = 24000, FOUR = 4, SIXTEEN = 16 };
    static int orders[FOUR * FOUR * FOUR * FOUR], places[SIXTEEN][SIXTEEN];
    for (uint64_t stream = 0; stream < STREAMS; stream++) {
        uint64_t order = 0;
        for (uint64_t i = 0; i < FOUR; i++)
            order = order * FOUR + mics_rng_permute(7, stream, FOUR, i);
        orders[order]++;
        for (uint64_t i = 0; i < SIXTEEN; i++)
            places[i][mics_rng_permute(7, stream, SIXTEEN, i)]++;
    }
    int found = 0;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        found += orders[i] > 0;
        if (orders[i] > 0)
            assert_in_range(orders[i], 840, 1160); // 1000 in expectation, 5 deviations of 31
    }
    assert_int_equal(found, 24);
    for (int i = 0; i < SIXTEEN; i++) {
        for (int at = 0; at < SIXTEEN; at++)
            assert_in_range(places[i][at], 1310, 1690); // 1500, 5 deviations of 37.5
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_arguments_all_count),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_normal),
        cmocka_unit_test(test_permute_is_a_permutation),
        cmocka_unit_test(test_permute_large_counts),
        cmocka_unit_test(test_permute_mixes),
        cmocka_unit_test(test_few_are_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
