// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Initial weights: every table that this CPU can run draws what mics_rng_normal says, bit for bit.
#include "base/rng.h"
#include "ops/kernels.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

static const float GUARD = 12345.0F;

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void check(const mics_kernels *kernels, int64_t elems, uint64_t stream, uint64_t first,
                  double deviation)
{
    float *values = malloc(((size_t)elems + 1) * sizeof *values);
    assert_non_null(values);
    values[elems] = GUARD;
    kernels->draw_normal(values, elems, 1, stream, first, deviation);
    for (int64_t i = 0; i < elems; i++) {
        const double normal = mics_rng_normal(1, stream, first + (uint64_t)i);
        const float expected = (float)(deviation * normal);
        if (bits_of(values[i]) != bits_of(expected))
            fail_msg("%s: number %llu of stream %llu is %a, not %a", kernels->name,
                     (unsigned long long)first + (unsigned long long)i, (unsigned long long)stream,
                     (double)values[i], (double)expected);
    }
    assert_true(values[elems] == GUARD);
    free(values);
}

static void with_every_table(void (*run)(const mics_kernels *kernels))
{
    for (int32_t index = 0; index < mics_kernels_count(); index++) {
        const mics_kernels *kernels = mics_kernels_at(index);
        if (kernels != NULL)
            run(kernels);
    }
}

static void check_sizes(const mics_kernels *kernels)
{
    static const int64_t SIZES[] = {0, 1, 7, 8, 9, 255, 256, 257, 1000};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        check(kernels, SIZES[i], 77, 1000, 0.02);
    check(kernels, 200001, 0x123456789abcdef0U, 0, 1);           // with threads
    check(kernels, 1000, UINT64_MAX, UINT32_MAX - 500U, 0.0003); // a counter's carry
}

static void test_sizes(void **state)
{
    (void)state;
    with_every_table(check_sizes);
}

// These lie so near the middle of two fp32 numbers that series of fp64, without a look at what they
// may be off, round to the other one.
static void check_ties(const mics_kernels *kernels)
{
    static const uint64_t TIES[] = {6008962,  9414336,  11849058, 26803538,
                                    30699482, 57816020, 69918236, 87746088};
    for (size_t i = 0; i < sizeof TIES / sizeof *TIES; i++)
        check(kernels, 16, 2, TIES[i] - 8, 1);
}

static void test_ties(void **state)
{
    (void)state;
    with_every_table(check_ties);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_ties)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
