// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Choice of a table, and what the matrix library says of itself.
#include "ops/kernels.h"
#include "test.h"
#include <string.h>

static void generic_is_always_there_and_last(void **state)
{
    (void)state;
    const int32_t count = mics_kernels_count();
    assert_true(count >= 1);
    const mics_kernels *last = mics_kernels_at(count - 1);
    assert_non_null(last);
    assert_string_equal(last->name, "generic");
    assert_ptr_equal(mics_kernels_get("generic"), last);
}

static void the_best_is_the_first_that_runs(void **state)
{
    (void)state;
    int32_t index = 0;
    while (!mics_kernels_at(index))
        ++index;
    assert_ptr_equal(mics_kernels_get(NULL), mics_kernels_at(index));
    print_message("best table: %s; %s\n", mics_kernels_get(NULL)->name, mics_gemm_library());
}

static void tables_are_found_by_name(void **state)
{
    (void)state;
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        const mics_kernels *kernels = mics_kernels_at(index);
        if (kernels)
            assert_ptr_equal(mics_kernels_get(kernels->name), kernels);
    }
    assert_null(mics_kernels_get("altivec"));
    assert_null(mics_kernels_get(""));
    assert_null(mics_kernels_at(-1));
    assert_null(mics_kernels_at(mics_kernels_count()));
}

static void the_library_has_a_name(void **state)
{
    (void)state;
    assert_ptr_equal(strstr(mics_gemm_library(), "oneDNN "), mics_gemm_library());
    assert_ptr_equal(mics_gemm_library(), mics_gemm_library());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generic_is_always_there_and_last),
        cmocka_unit_test(the_best_is_the_first_that_runs),
        cmocka_unit_test(tables_are_found_by_name),
        cmocka_unit_test(the_library_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
