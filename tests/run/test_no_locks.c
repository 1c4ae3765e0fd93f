// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Two runs in a folder whose file system has no locks: nothing keeps the second one out, so the first one ends before it saves
// into the other's checkpoints. This program's own functions stand in for the system's.
#include "base/capture.h"
#include "run/jobs.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/syscall.h>

int flock(int file, int how)
{
    (void)file;
    (void)how;
    errno = ENOLCK;
    return -1;
}

static int call_fcntl(int file, int command, va_list arguments)
{
    if (command == F_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_fcntl, file, command, va_arg(arguments, long));
}

int fcntl(int file, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    const int result = call_fcntl(file, command, arguments);
    va_end(arguments);
    return result;
}

int fcntl64(int file, int command, ...);

int fcntl64(int file, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    const int result = call_fcntl(file, command, arguments);
    va_end(arguments);
    return result;
}

static void test_second_run(void **state)
{
    const mics_run_values values = values_of("shared");
    mics_job *first = NULL, *second = NULL;
    capture seen;
    (void)state;
    mics_job_spec spec = spec_of(&values);
    capture_begin(&seen);
    ASSERT_OK(mics_job_open(&spec, &first));
    assert_int_equal(seen.warnings, 1); // that there are no locks
    ASSERT_OK(mics_job_train(first, 1));
    ASSERT_OK(mics_job_save(first));
    ASSERT_OK(mics_job_train(first, 1));
    ASSERT_OK(mics_job_open(&spec, &second));
    assert_int_equal(mics_job_facts_get(second).step, 1);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_job_save(first));
    if (strstr(seen.line, "shared: another run has begun there") == NULL)
        fail_msg("%s", seen.line);
    // What the second one saves is its own.
    ASSERT_OK(mics_job_train(second, 2));
    ASSERT_OK(mics_job_save(second));
    capture_end();
    ASSERT_OK(mics_job_close(second));
    (void)mics_job_close(first);
    const mics_run_values later = values_of("shared");
    spec = spec_of(&later);
    ASSERT_OK(mics_job_open(&spec, &first));
    assert_int_equal(mics_job_facts_get(first).step, 3);
    ASSERT_OK(mics_job_close(first));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_second_run)};
    return cmocka_run_group_tests(tests, begin, end);
}
