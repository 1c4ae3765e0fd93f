// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A committed checkpoint of 4 ranks, which tools/check_checkpoint.py has read with Python's
// safetensors: what is read here are the same numbers, on this and on another mesh.
#include "base/capture.h"
#include "mics/core/checkpoint.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN MICS_TEST_DATA "/checkpoint"

enum { MAX_ELEMS = 2720, LINES = 12 };

// The sum of a state, read in `parts` ranges as that many ranks would.
static double sum_of(const mics_checkpoint *checkpoint, const char *unit, const char *state,
                     int64_t elems, int64_t parts)
{
    float data[MAX_ELEMS];
    double sum = 0;
    assert_true(elems <= MAX_ELEMS);
    for (int64_t part = 0; part < parts; part++) {
        const int64_t begin = elems * part / parts, end = elems * (part + 1) / parts;
        ASSERT_OK(mics_checkpoint_read(checkpoint, unit, elems, state, begin, end, data));
        for (int64_t i = 0; i < end - begin; i++)
            sum += (double)data[i];
    }
    return sum;
}

static void fail_problem(void *ctx, const char *line)
{
    (void)ctx;
    fail_msg("%s", line);
}

static void test_same_numbers(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_checkpoint *checkpoint = NULL;
    const mics_verify_listener listener = {.problem = fail_problem};
    mics_checkpoint_verified found;
    char unit[64], name[64], elems[64], expected[64];
    int lines = 0;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_checkpoint_verify(memory, GOLDEN "/step-00000008", &listener, NULL, &found));
    assert_int_equal(found.problems, 0);
    ASSERT_OK(mics_checkpoint_open(memory, GOLDEN "/step-00000008", &checkpoint));
    FILE *file = fopen(GOLDEN "/expected.txt", "r");
    assert_non_null(file);
    while (fscanf(file, "%63s %63s %63s %63s", unit, name, elems, expected) == 4) {
        for (int64_t parts = 1; parts <= 7; parts += 3)
            assert_true(sum_of(checkpoint, unit, name, strtoll(elems, NULL, 10), parts) ==
                        strtod(expected, NULL));
        lines++;
    }
    fclose(file);
    assert_int_equal(lines, LINES);
    mics_checkpoint_close(checkpoint);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
