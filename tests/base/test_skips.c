// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The suite's own runner: what a test program exits with when cases are skipped, that it says how
// many, and which cases it runs of those that are asked for. Each group runs in a child, whose output is read.
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void passes(void **state)
{
    (void)state;
}

static void skips(void **state)
{
    (void)state;
    skip();
}

static void fails(void **state)
{
    (void)state;
    fail();
}

static const struct CMUnitTest ran[] = {cmocka_unit_test(passes), cmocka_unit_test(passes)};
static const struct CMUnitTest mixed[] = {cmocka_unit_test(skips), cmocka_unit_test(passes),
                                          cmocka_unit_test(skips)};
static const struct CMUnitTest left_out[] = {cmocka_unit_test(skips), cmocka_unit_test(skips)};
static const struct CMUnitTest broken[] = {cmocka_unit_test(skips), cmocka_unit_test(fails)};

static int run(int group)
{
    switch (group) {
    case 0:
        return cmocka_run_group_tests(ran, NULL, NULL);
    case 1:
        return cmocka_run_group_tests(mixed, NULL, NULL);
    case 2:
        return cmocka_run_group_tests_name("left out", left_out, NULL, NULL);
    default:
        return cmocka_run_group_tests(broken, NULL, NULL);
    }
}

// Exit status of a child that runs a group; what it prints goes to `said`.
static int status_of(int group, char *said, size_t bytes)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(file), STDOUT_FILENO);
        dup2(fileno(file), STDERR_FILENO);
        exit(run(group));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    rewind(file);
    said[fread(said, 1, bytes - 1, file)] = '\0';
    fclose(file);
    return WEXITSTATUS(status);
}

static void test_status_and_count(void **state)
{
    static const struct {
        int status;
        const char *says; // NULL: nothing of skipped cases
    } expected[] = {{0, NULL},
                    {0, "skipped 2 of 3 cases\n"},
                    {77, "skipped 2 of 2 cases\n"},
                    {1, "skipped 1 of 2 cases\n"}};
    (void)state;
    for (int group = 0; group < (int)(sizeof expected / sizeof expected[0]); group++) {
        char said[4096];
        assert_int_equal(status_of(group, said, sizeof said), expected[group].status);
        if (expected[group].says == NULL)
            assert_null(strstr(said, "skipped"));
        else
            assert_non_null(strstr(said, expected[group].says));
    }
}

// Of the last group, which has a case that fails; a name that is not there fails too.
static void test_chosen_cases(void **state)
{
    static const struct {
        const char *names;
        int status;
        const char *says;
    } expected[] = {{"skips", 77, "skipped 1 of 1 cases\n"},
                    {"fails", 1, "fails"},
                    {"skips,fails", 1, "skipped 1 of 2 cases\n"},
                    {"skips,skip", 1, "there is no case skip\n"},
                    {"skipsfails", 1, "there is no case skipsfails\n"},
                    {"", 1, ""}};
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char said[4096];
        setenv("MICS_TEST_CASES", expected[i].names, 1);
        const int status = status_of(3, said, sizeof said);
        unsetenv("MICS_TEST_CASES");
        assert_int_equal(status, expected[i].status);
        assert_non_null(strstr(said, expected[i].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_status_and_count),
                                       cmocka_unit_test(test_chosen_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
