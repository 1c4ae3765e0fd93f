// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What every test includes: cmocka with the headers it needs, a check that prints both statuses,
// and a runner that tells skipped from passed.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "mics/status.h"

// Fails the test when `expr` is not `expected`, naming both statuses.
#define ASSERT_STATUS(expected, expr)                                                              \
    do {                                                                                           \
        mics_status test_status_ = (expr);                                                         \
        if (test_status_ != (expected))                                                            \
            fail_msg("%s gave %s, expected %s", #expr, mics_status_name(test_status_),             \
                     mics_status_name(expected));                                                  \
    } while (0)
#define ASSERT_OK(expr) ASSERT_STATUS(MICS_OK, expr)

// cmocka's runner returns 0 where every case was skipped, which CTest takes for passed. So its
// names mean these here, and tests are written as its manual says.

// Ends a case as skipped, and counts it. Threads: the one that runs the case.
void runner_skip(const char *file, int line);

/* Runs a group, or of it the cases in MICS_TEST_CASES (names, commas between them, all of which have
 * to be there), and where cases were skipped, prints how many.
 *
 * Returns: 0; 1 when a case failed; 77, for CTest's SKIP_RETURN_CODE, when all were skipped.
 */
int runner_run(const char *name, const struct CMUnitTest *cases, size_t count,
               CMFixtureFunction setup, CMFixtureFunction teardown);

#undef skip
#define skip() runner_skip(__FILE__, __LINE__)
#undef cmocka_run_group_tests_name
#define cmocka_run_group_tests_name(name, cases, setup, teardown)                                  \
    runner_run(name, cases, sizeof(cases) / sizeof((cases)[0]), setup, teardown)
#undef cmocka_run_group_tests
#define cmocka_run_group_tests(cases, setup, teardown)                                             \
    cmocka_run_group_tests_name(#cases, cases, setup, teardown)
