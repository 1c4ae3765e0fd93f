// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "test.h"
#include <stdio.h>

enum { STATUS_SKIPPED = 77 }; // CTest's SKIP_RETURN_CODE in tests/CMakeLists.txt

static size_t skipped;

void runner_skip(const char *file, int line)
{
    skipped++;
    _skip(file, line);
}

int runner_run(const char *name, const struct CMUnitTest *cases, size_t count,
               CMFixtureFunction setup, CMFixtureFunction teardown)
{
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
