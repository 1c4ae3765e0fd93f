// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Points by two figures: each has its mark, the front is joined in order, names do not cover each
// other, and what cannot be drawn is refused.
#include "base/capture.h"
#include "mics/report.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static mics_memory *memory;

static const mics_scatter_point three[] = {
    {"a & b:8", 20, 90e3, true},
    {"slow", 100, 100e3, false},
    {"fast:64", 2, 120e3, true},
    {"unpriced", 3, NAN, false},
};

static mics_scatter scatter_of(const mics_scatter_point *points, int32_t count)
{
    return (mics_scatter){
        .title = "t", .x_label = "days", .y_label = "USD", .points = points, .count = count};
}

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
        count++;
    return count;
}

static void test_points(void **state)
{
    (void)state;
    const mics_scatter scatter = scatter_of(three, 4);
    char *svg = NULL;
    ASSERT_OK(mics_scatter_svg(memory, &scatter, &svg));
    assert_int_equal(strncmp(svg, "<svg ", 5), 0);
    assert_string_equal(svg + strlen(svg) - 7, "</svg>\n");
    assert_int_equal(count_of(svg, "<circle"), 2);   // the front
    assert_int_equal(count_of(svg, "l5 5l-5 5"), 1); // the other
    assert_non_null(strstr(svg, "a &amp; b:8"));
    assert_null(strstr(svg, "unpriced"));
    assert_int_equal(count_of(svg, "nan"), 0);
    // The line goes once from left to right: from 2 to 20 days, with price falling (y grows downwards).
    const char *path = strstr(strstr(svg, "stroke-width=\"2\""), " d=\"M");
    char *end = NULL;
    const double x0 = strtod(path + 5, &end), y0 = strtod(end, &end);
    assert_int_equal(*end, 'L');
    const double x1 = strtod(end + 1, &end), y1 = strtod(end, &end);
    assert_true(x1 > x0 && y1 > y0);
    assert_int_equal(*end, '"');
    mics_free(memory, svg);
}

// Of points in one place the front's name is written, the others' find no place.
static void test_names(void **state)
{
    (void)state;
    mics_scatter_point crowd[MICS_SCATTER_MAX_POINTS];
    for (int i = 0; i < MICS_SCATTER_MAX_POINTS; i++)
        crowd[i] = (mics_scatter_point){"crowd", 10, 5, i == 200};
    crowd[200].name = "front";
    const mics_scatter scatter = scatter_of(crowd, MICS_SCATTER_MAX_POINTS);
    char *svg = NULL;
    ASSERT_OK(mics_scatter_svg(memory, &scatter, &svg));
    assert_int_equal(count_of(svg, ">front<"), 1);
    assert_true(count_of(svg, ">crowd<") < 4); // a mark has four sides
    mics_free(memory, svg);
}

static void test_refused(void **state)
{
    (void)state;
    static const mics_scatter_point bad[] = {{"none", NAN, 1, false},
                                             {"zero", 0, 1, false},
                                             {"below", 1, -1, false},
                                             {"endless", INFINITY, 1, false},
                                             {"endless", 1, INFINITY, false}};
    char *svg = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const mics_scatter scatter = scatter_of(&bad[i], 1);
        ASSERT_STATUS(MICS_ERR_INVALID, mics_scatter_svg(memory, &scatter, &svg));
    }
    const mics_scatter large = scatter_of(three, MICS_SCATTER_MAX_POINTS + 1);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_scatter_svg(memory, &large, &svg));
    assert_null(svg);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    const mics_scatter scatter = scatter_of(three, 4);
    char *svg = NULL;
    mics_status status = MICS_ERR_MEMORY;
    for (int64_t n = 1; status != MICS_OK; n++) {
        mics_memory_fail_after(memory, n);
        status = mics_scatter_svg(memory, &scatter, &svg);
        mics_memory_fail_after(memory, 0);
        assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
        assert_true(n > 1 || status != MICS_OK);
    }
    mics_free(memory, svg);
}

static int begin(void **state)
{
    (void)state;
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
