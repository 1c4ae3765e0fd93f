// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Comparisons of replicas: one bit that differs is found in every state that exists more than once,
// named by unit, state and rank, and repaired where most replicas agree. That nothing is found where
// nothing differs, fixture.h checks after each step of all engine tests.
#include "flips.h"

static fixture_case case_of(int32_t ranks, mics_sharding sharding)
{
    return (fixture_case){.ranks = ranks,
                          .nodes = 1,
                          .sharding = sharding,
                          .sequences = ranks * 2,
                          .micro_steps = 1,
                          .prefetch = 1};
}

// ---- cases ----

static void test_masters_and_moments(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{1, 1, 1}, {2, 2, 2}, {1, 2, 2}, {1, 1, 2}};
    for (int32_t ranks = 2; ranks <= 8; ranks += 2) {
        for (int i = 0; i < 4; i++) {
            const mics_sharding s = shardings[i];
            const fixture_case want = case_of(ranks, s);
            if (s.optimizer == ranks) // see test_parameters
                continue;
            for (int32_t unit = 0; unit < 3; unit += 2) {
                flips_go(&want, FLIPS_MASTERS, ranks - 1, unit, ranks / s.optimizer);
                flips_go(&want, FLIPS_MOMENTS, ranks / 2, unit, ranks / s.optimizer);
            }
        }
    }
    const fixture_case three = case_of(3, (mics_sharding){1, 1, 1});
    flips_go(&three, FLIPS_MASTERS, 0, 1, 3);
    flips_go(&three, FLIPS_MOMENTS, 1, 1, 3);
}

// Where masters exist once, parameters are compared; where parameters do, nothing is.
static void test_parameters(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{1, 1, 4}, {1, 4, 4}, {2, 2, 4}, {2, 4, 4}};
    for (int i = 0; i < 4; i++) {
        const fixture_case want = case_of(4, shardings[i]);
        flips_go(&want, FLIPS_PARAMS, 2, 1, 4 / shardings[i].params);
    }
    const fixture_case eight = case_of(8, (mics_sharding){2, 2, 4}); // both exist twice or more
    flips_go(&eight, FLIPS_PARAMS, 5, 1, 4);
    flips_go(&eight, FLIPS_MASTERS, 5, 1, 2);
    const fixture_case whole = case_of(4, (mics_sharding){4, 4, 4});
    flips_go(&whole, FLIPS_MASTERS, 1, 1, 1);
}

// Small units stay whole on every rank: of P = 2 they exist 4 times all the same.
static void test_persistent_units(void **state)
{
    (void)state;
    fixture_case want = case_of(4, (mics_sharding){2, 2, 2});
    want.param_persistence_threshold = 100;
    flips_go(&want, FLIPS_PARAMS, 1, 3, 4);
    flips_go(&want, FLIPS_MASTERS, 1, 0, 2);
    want.sharding = (mics_sharding){4, 4, 4};
    flips_go(&want, FLIPS_PARAMS, 3, 3, 4);
}

// What the owner alone has whole is compared as the others have it.
static void test_rounded_parameters(void **state)
{
    (void)state;
    fixture_case want = case_of(4, (mics_sharding){2, 2, 4});
    want.params_dtype = (mics_comm_dtypes){MICS_COMM_BF16, MICS_COMM_BF16};
    flips_go(&want, FLIPS_PARAMS, 2, 1, 2);
}

static void test_shared_parameters(void **state)
{
    (void)state;
    fixture_case want = case_of(4, (mics_sharding){2, 2, 2});
    want.nodes = 2;
    want.share_params = true;
    flips_go(&want, FLIPS_MASTERS, 3, 1, 2);
    flips_go(&want, FLIPS_MOMENTS, 0, 0, 2);
}

// As bytes and scales, and as bf16; what repairs gives fp32.
static void test_packed_moments(void **state)
{
    (void)state;
    for (int dtype = MICS_STATE_BF16; dtype < MICS_STATE_DTYPES; dtype++) {
        fixture_case want = case_of(4, (mics_sharding){1, 1, 2});
        want.state_dtype = (mics_state_dtype)dtype;
        flips_go(&want, FLIPS_MOMENTS, 0, 1, 2);
        flips_go(&want, FLIPS_MASTERS, 3, 0, 2);
        flips_go(&want, FLIPS_PADDING, 1, 0, 2);
        want = case_of(3, (mics_sharding){1, 1, 1});
        want.state_dtype = (mics_state_dtype)dtype;
        flips_go(&want, FLIPS_MOMENTS, 2, 1, 3);
    }
}

// Nobody reads what lies behind a unit's end.
static void test_padding(void **state)
{
    (void)state;
    const fixture_case want = case_of(2, (mics_sharding){1, 1, 1});
    flips_go(&want, FLIPS_PADDING, 1, 0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masters_and_moments),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_packed_moments),
        cmocka_unit_test(test_persistent_units),
        cmocka_unit_test(test_rounded_parameters),
        cmocka_unit_test(test_shared_parameters),
        cmocka_unit_test(test_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
