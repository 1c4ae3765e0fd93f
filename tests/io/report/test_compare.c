// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The table of predicted against measured.
#include "base/capture.h"
#include "mics/report.h"
#include "test.h"
#include <stdlib.h>

static void test_table(void **state)
{
    (void)state;
    static const mics_compare_row rows[] = {{"parameters", 2097152, 2097152},
                                            {"gather slots", 1000, 1064},
                                            {"workspace", 2048, 1024},
                                            {"between nodes", 0, 12}};
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    ASSERT_OK(mics_compare_print(stream, "memory a rank", rows, 4));
    fclose(stream);
    assert_string_equal(text, "memory a rank     predicted      measured\n"
                              "parameters         2.00 MiB      2.00 MiB  exact\n"
                              "gather slots         1000 B      1.04 KiB  +64 B (+6.40 %)\n"
                              "workspace          2.00 KiB      1.00 KiB  -1024 B (-50.00 %)\n"
                              "between nodes           0 B          12 B  +12 B\n");
    free(text);
}

static void test_full_disk(void **state)
{
    (void)state;
    capture seen;
    capture_begin(&seen);
    FILE *stream = fopen("/dev/full", "w");
    if (stream == NULL)
        skip();
    ASSERT_STATUS(MICS_ERR_FULL, mics_compare_print(stream, "memory", NULL, 0));
    ASSERT_SAID(&seen, "No space left");
    fclose(stream);
    capture_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
