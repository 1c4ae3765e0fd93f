// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATUS_SKIPPED = 77 }; // CTest's SKIP_RETURN_CODE in tests/CMakeLists.txt

static size_t skipped;

void runner_skip(const char *file, int line)
{
    skipped++;
    _skip(file, line);
}

enum { MAX_CASES = 64 };

// Fills `chosen` with the cases that `names` names, commas between them. Returns their number, or 0
// where one of them is not there.
static size_t choose(const char *names, const struct CMUnitTest *cases, size_t count,
                     struct CMUnitTest *chosen)
{
    size_t chosen_count = 0;
    while (*names != '\0') {
        const size_t length = strcspn(names, ",");
        size_t i = 0;
        while (i < count &&
               (strncmp(cases[i].name, names, length) != 0 || cases[i].name[length] != '\0'))
            i++;
        if (i == count || chosen_count == MAX_CASES) {
            printf("MICS_TEST_CASES: there is no case %.*s\n", (int)length, names);
            return 0;
        }
        chosen[chosen_count++] = cases[i];
        names += length + (names[length] == ',');
    }
    return chosen_count;
}

int runner_run(const char *name, const struct CMUnitTest *cases, size_t count,
               CMFixtureFunction setup, CMFixtureFunction teardown)
{
    const char *names = getenv("MICS_TEST_CASES");
    struct CMUnitTest chosen[MAX_CASES];
    if (names != NULL) {
        count = choose(names, cases, count, chosen);
        cases = chosen;
        if (count == 0)
            return 1;
    }
    skipped = 0;
    const int failed = _cmocka_run_group_tests(name, cases, count, setup, teardown);
    if (skipped > 0) {
        printf("skipped %zu of %zu cases\n", skipped, count);
        fflush(stdout);
    }
    // Not the number of failures, which may be 77, or 256, of which a parent sees 0.
    if (failed != 0)
        return 1;
    return count > 0 && skipped == count ? STATUS_SKIPPED : 0;
}
