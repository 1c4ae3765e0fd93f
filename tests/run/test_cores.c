// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What ranks have of cores that launchers bind them to.
#include "run/ranks/cores.h"
#include "test.h"

static cpu_set_t cores(size_t first, size_t count)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (size_t core = first; core < first + count; core++)
        CPU_SET(core, &mask);
    return mask;
}

static void assert_shares(const cpu_set_t *masks, int32_t ranks, const int32_t *expected)
{
    for (int32_t rank = 0; rank < ranks; rank++)
        assert_int_equal(run_cores_share(masks, ranks, rank), expected[rank]);
}

// Nobody is bound: the whole machine is shared, as evenly as whole cores go, and nobody has none.
static void test_unbound(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 8; ranks++) {
        for (int32_t machine = 1; machine <= 64; machine++) {
            cpu_set_t masks[8];
            for (int32_t rank = 0; rank < ranks; rank++)
                masks[rank] = cores(0, (size_t)machine);
            const int32_t share = machine / ranks;
            assert_int_equal(run_cores_share(masks, ranks, ranks - 1), share > 0 ? share : 1);
        }
    }
}

static void test_cores_of_their_own(void **state)
{
    (void)state;
    const cpu_set_t masks[] = {cores(0, 4), cores(4, 4), cores(8, 2), cores(CPU_SETSIZE - 1, 1)};
    assert_shares(masks, 4, (const int32_t[]){4, 4, 2, 1});
}

static void test_sockets(void **state)
{
    (void)state;
    const cpu_set_t masks[] = {cores(0, 9), cores(0, 9), cores(0, 9), cores(9, 9), cores(9, 9)};
    assert_shares(masks, 5, (const int32_t[]){3, 3, 3, 4, 4});
}

// One core of a wide rank's is another's as well.
static void test_overlaps(void **state)
{
    (void)state;
    const cpu_set_t masks[] = {cores(0, 8), cores(7, 1), cores(8, 2)};
    assert_shares(masks, 3, (const int32_t[]){7, 1, 2});
    const cpu_set_t chain[] = {cores(0, 4), cores(2, 4), cores(4, 4)};
    assert_shares(chain, 3, (const int32_t[]){3, 2, 3});
}

static void test_unknown(void **state)
{
    (void)state;
    const cpu_set_t masks[] = {cores(0, 4), cores(0, 0)};
    assert_shares(masks, 2, (const int32_t[]){0, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unbound), cmocka_unit_test(test_cores_of_their_own),
        cmocka_unit_test(test_sockets), cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
