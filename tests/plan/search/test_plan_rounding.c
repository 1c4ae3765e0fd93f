// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where numbers are sent as fewer bits, some choices would send more of them between nodes and are
// refused as schedules: the search passes over these and no others, and rows of other systems do
// without.
#include "base/capture.h"
#include "plan/search/baseline.h"
#include "plans.h"

enum { NODES = 2, PER_NODE = 4, RANKS = NODES * PER_NODE };

static void open_rounding(fixture *f, mics_comm_dtype grads, mics_comm_dtype boundary)
{
    open_plans(f, NODES, PER_NODE, 16);
    f->request.precision = MICS_PRECISION_FP32;
    f->request.math = MICS_MATH_FP32;
    f->request.grads_dtype = mics_comm_dtypes_both(grads);
    f->request.boundary_dtype = mics_comm_dtypes_both(boundary);
    ASSERT_OK(mics_planner_open(f->memory, &f->request, &f->planner));
}

static mics_algorithm algorithm(bool two_stage)
{
    return two_stage ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING;
}

// Whether a run could have it.
static bool can_be(const fixture *f, mics_sharding sharding, bool reduce, bool boundary)
{
    mics_schedule *schedule = NULL;
    mics_schedule_spec spec = {.model = f->model,
                               .batch = {2, f->request.length, 1},
                               .micro_steps = 1,
                               .reduce = algorithm(reduce),
                               .boundary = algorithm(boundary),
                               .param_persistence_threshold = 1024,
                               .grads_dtype = f->request.grads_dtype,
                               .boundary_dtype = f->request.boundary_dtype};
    ASSERT_OK(mics_mesh_init(RANKS, NODES, sharding, &spec.mesh));
    const bool muted = mics_log_mute(true);
    const mics_status status = mics_schedule_open(f->memory, &spec, &schedule);
    (void)mics_log_mute(muted);
    mics_schedule_close(schedule);
    if (status != MICS_OK)
        assert_int_equal(status, MICS_ERR_INVALID);
    return status == MICS_OK;
}

// Shardings that a run could have, of all, by the space's collectives.
static int count_possible(const fixture *f, const mics_plan_space *space, int *all_out)
{
    int possible = 0;
    *all_out = 0;
    for (int p = 1; p <= RANKS; p *= 2) {
        for (int g = p; g <= RANKS; g *= 2) {
            for (int o = g; o <= RANKS; o *= 2) {
                const mics_sharding s = {p, g, o};
                const bool boundary = !space->collectives_given || space->boundary_two_stage;
                possible += can_be(f, s, space->reduce_two_stage, boundary) ||
                            (!space->collectives_given && can_be(f, s, true, boundary));
                ++*all_out;
            }
        }
    }
    return possible;
}

static void test_search_passes_over(void **state)
{
    (void)state;
    static const struct {
        mics_comm_dtype grads, boundary;
        bool given, two_stage, leaves_out;
    } cases[] = {
        {MICS_COMM_BF16, MICS_COMM_FP32, false, false, false},
        {MICS_COMM_BF16, MICS_COMM_FP32, true, false, true},
        {MICS_COMM_BF16, MICS_COMM_BF16, true, false, true},
        {MICS_COMM_FP32, MICS_COMM_BF16, true, false, true},
        {MICS_COMM_FP32, MICS_COMM_INT8, true, false, true},
        {MICS_COMM_BF16, MICS_COMM_INT8, true, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_plan_space space = {.collectives_given = cases[i].given,
                                 .gather_two_stage = cases[i].two_stage,
                                 .reduce_two_stage = cases[i].two_stage,
                                 .boundary_two_stage = cases[i].two_stage};
        mics_plan_result *result = NULL, *every = NULL;
        fixture f;
        int all = 0;
        open_rounding(&f, cases[i].grads, cases[i].boundary);
        const int possible = count_possible(&f, &space, &all);
        assert_true(cases[i].leaves_out == (possible < all) && possible > 0);
        ASSERT_OK(mics_planner_search(f.planner, &space, all, &result));
        assert_int_equal(result->count, possible);
        space.exhaustive = true;
        ASSERT_OK(mics_planner_search(f.planner, &space, all, &every));
        assert_int_equal(every->count, possible);
        for (int32_t k = 0; k < result->count; k++) {
            const mics_plan_choice *c = &result->entries[k].choice;
            assert_true(can_be(&f, c->sharding, c->reduce_two_stage, c->boundary_two_stage));
            assert_true(result->entries[k].step_us == every->entries[k].step_us);
        }
        mics_plan_result_close(result);
        mics_plan_result_close(every);
        close_plans(&f);
    }
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    const mics_plan_space space = {.sharding = {1, RANKS, RANKS}, .collectives_given = true};
    mics_plan_result *result = NULL;
    capture seen;
    fixture f;
    open_rounding(&f, MICS_COMM_BF16, MICS_COMM_FP32);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_search(f.planner, &space, 1, &result));
    capture_end();
    ASSERT_SAID(&seen, "times fp32's bytes between nodes");
    close_plans(&f);
}

static void test_rows_of_others_do_without(void **state)
{
    (void)state;
    fixture rounded, whole;
    open_rounding(&rounded, MICS_COMM_BF16, MICS_COMM_INT8);
    open_rounding(&whole, MICS_COMM_FP32, MICS_COMM_FP32);
    for (int b = 0; b < MICS_PLAN_BASELINES; b++) {
        const mics_plan_baseline baseline = (mics_plan_baseline)b;
        mics_plan_entry there, here;
        ASSERT_OK(mics_planner_baseline(rounded.planner, NULL, baseline, &there));
        ASSERT_OK(mics_planner_baseline(whole.planner, NULL, baseline, &here));
        assert_true(b == MICS_PLAN_MICS_PLUS || there.step_us == here.step_us);
    }
    close_plans(&rounded);
    close_plans(&whole);
}

// Parameters that are whole between nodes are gathered inside one alone where they are rounded there.
static void test_parameters_rounded_inside_nodes(void **state)
{
    (void)state;
    mics_plan_result *result = NULL;
    mics_plan_entry zero3;
    fixture f;
    open_plans(&f, NODES, PER_NODE, 16);
    f.request.precision = MICS_PRECISION_FP32;
    f.request.math = MICS_MATH_FP32;
    f.request.params_dtype.intra = MICS_COMM_BF16;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 100, &result));
    assert_int_equal(result->count, 10 + 6 + 3); // G|O over P = 1, 2 and 4, each to 8
    for (int32_t i = 0; i < result->count; i++)
        assert_true(result->entries[i].choice.sharding.params <= PER_NODE);
    mics_plan_result_close(result);
    ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_ZERO3, &zero3));
    assert_int_equal(zero3.choice.sharding.params, RANKS);
    mics_planner_close(f.planner);
    f.request.cluster = plan_cluster(f.memory, 1, "");
    f.request.nodes = RANKS; // of one rank each
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 100, &result));
    assert_int_equal(result->count, 10); // G|O over P = 1
    mics_plan_result_close(result);
    mics_planner_close(f.planner);
    f.request.precision = MICS_PRECISION_MIXED; // parameters are sent as they are held
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 100, &result));
    assert_int_equal(result->count, 20);
    mics_plan_result_close(result);
    close_plans(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search_passes_over),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_rows_of_others_do_without),
        cmocka_unit_test(test_parameters_rounded_inside_nodes),
    };
    mics_log_set_sink(drop_line, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
