// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Charts: values lie where they belong, gaps are gaps, names do not cover each other, texts are XML.
#include "base/capture.h"
#include "mics/report.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const ticks[] = {"1", "2", "4", "8"};

static mics_chart chart_of(const double *first, const double *second)
{
    return (mics_chart){.title = "a & b <c>",
                        .x_label = "nodes",
                        .y_label = "TFLOP/s per GPU",
                        .x_texts = ticks,
                        .x_count = 4,
                        .series = {{"best", first}, {"other", second}},
                        .series_count = 2};
}

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
        count++;
    return count;
}

static void test_curves(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    char *svg = NULL;
    const double first[] = {10, 20, NAN, 40}, second[] = {NAN, NAN, NAN, NAN};
    const mics_chart chart = chart_of(first, second);
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_chart_svg(memory, &chart, &svg));
    assert_int_equal(strncmp(svg, "<svg ", 5), 0);
    assert_string_equal(svg + strlen(svg) - 7, "</svg>\n");
    assert_non_null(strstr(svg, "a &amp; b &lt;c&gt;"));
    assert_int_equal(count_of(svg, "<circle"), 3 + 1); // a mark a value, and one by the name
    assert_null(strstr(svg, ">other<"));               // a curve without values has no name
    assert_non_null(strstr(svg, ">best<"));
    assert_int_equal(count_of(svg, "nan"), 0);
    // Two begin where a curve begins: the gap is not bridged.
    const char *path = strstr(svg, "stroke-width=\"3\"");
    assert_non_null(path);
    const char *d = strstr(path, " d=\"");
    const char *end = strchr(d + 4, '"');
    int moves = 0;
    for (const char *at = d + 4; at < end; at++)
        moves += *at == 'M';
    assert_int_equal(moves, 2);
    mics_free(memory, svg);
    assert_int_equal(mics_memory_close(memory), 0);
}

// The y places of the curves' names, which end equally high.
static void test_names_do_not_cover_each_other(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    char *svg = NULL;
    double values[MICS_CHART_SERIES][4];
    static const char *const names[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};
    mics_chart chart = chart_of(values[0], values[1]);
    for (int s = 0; s < MICS_CHART_SERIES; s++) {
        for (int i = 0; i < 4; i++)
            values[s][i] = 1e-3 * s + (s % 2 == 0 ? 0 : 100); // some at the floor, some at the top
        chart.series[s] = (mics_chart_series){names[s], values[s]};
    }
    chart.series_count = MICS_CHART_SERIES;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_chart_svg(memory, &chart, &svg));
    double places[MICS_CHART_SERIES];
    for (int s = 0; s < MICS_CHART_SERIES; s++) {
        char name[16];
        snprintf(name, sizeof name, ">%s<", names[s]);
        const char *at = strstr(svg, name);
        assert_non_null(at);
        while (strncmp(at, "<text", 5) != 0)
            at--;
        places[s] = strtod(strstr(at, "y=\"") + 3, NULL);
        assert_true(places[s] > 0 && places[s] < 540);
        for (int t = 0; t < s; t++)
            assert_true(fabs(places[s] - places[t]) > 14);
    }
    mics_free(memory, svg);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_bad_charts(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    char *svg = NULL;
    const double good[] = {1, 2, 3, 4}, none[] = {NAN, NAN, NAN, NAN}, below[] = {1, -2, 3, 4};
    const double endless[] = {1, INFINITY, 3, 4}, zeros[] = {0, 0, 0, 0}, tiny[] = {1e-9, 0, 0, 0};
    mics_chart chart = chart_of(none, none);
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_chart_svg(memory, &chart, &svg));
    chart = chart_of(good, below);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_chart_svg(memory, &chart, &svg));
    chart = chart_of(endless, good);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_chart_svg(memory, &chart, &svg));
    chart = chart_of(good, good);
    chart.series_count = MICS_CHART_SERIES + 1;
    ASSERT_STATUS(MICS_ERR_INVALID, mics_chart_svg(memory, &chart, &svg));
    chart.series_count = 1;
    chart.x_count = 0;
    ASSERT_STATUS(MICS_ERR_INVALID, mics_chart_svg(memory, &chart, &svg));
    assert_null(svg);
    chart = chart_of(zeros, tiny);
    ASSERT_OK(mics_chart_svg(memory, &chart, &svg));
    mics_free(memory, svg);
    chart.x_count = 1;
    ASSERT_OK(mics_chart_svg(memory, &chart, &svg));
    mics_free(memory, svg);
    chart = chart_of(good, good);
    mics_status status = MICS_ERR_MEMORY;
    for (int64_t n = 1; status != MICS_OK; n++) {
        mics_memory_fail_after(memory, n);
        status = mics_chart_svg(memory, &chart, &svg);
        mics_memory_fail_after(memory, 0);
        if (status != MICS_OK)
            ASSERT_STATUS(MICS_ERR_MEMORY, status);
        assert_true(n > 1 || status != MICS_OK);
    }
    mics_free(memory, svg);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_names_do_not_cover_each_other),
        cmocka_unit_test(test_bad_charts),
    };
    capture seen;
    capture_begin(&seen);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
