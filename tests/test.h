// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What every test includes: cmocka with the headers it needs, and a check that prints both
// statuses.
#ifndef MICS_TEST_H
#define MICS_TEST_H

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

#endif
