// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps as the planner sees them: entries against whole schedules, bounds, which islands and meetings.
#include "mics/core/ledger.h"
#include "plan/search/baseline.h"
#include "plan/search/estimate.h"
#include "plan/simulate/simulate.h"
#include "plans.h"
#include "schedule/layered.h"

static void open_islands(fixture *f, int nodes, int32_t ranks, mics_outer outer)
{
    open_plans(f, nodes, 2, 16 * 2 * nodes);
    f->request.outer = outer;
    f->request.outer_ranks = ranks;
    ASSERT_OK(mics_planner_open(f->memory, &f->request, &f->planner));
}

// The schedule of all micro-steps, which the planner extends from fewer.
static mics_schedule *whole_schedule(const fixture *f, const mics_plan_choice *choice)
{
    mics_schedule *schedule = NULL;
    const mics_algorithm ring = MICS_ALGORITHM_RING;
    mics_schedule_spec spec = {
        .model = f->model,
        .batch = {.sequences = choice->micro_batch, .length = 64, .threads = 1},
        .micro_steps = choice->micro_steps,
        .prefetch = choice->prefetch,
        .layered_micro_steps = choice->layered_micro_steps,
        .recompute = choice->recompute,
        .gather = ring,
        .reduce = ring,
        .boundary = ring,
        .param_persistence_threshold = f->request.param_persistence_threshold,
        .precision = f->request.precision,
        .outer = f->request.outer,
    };
    ASSERT_OK(mics_mesh_init(2 * f->request.nodes, f->request.nodes, choice->sharding, &spec.mesh));
    ASSERT_OK(mics_mesh_part_islands(&spec.mesh, f->request.outer_ranks));
    ASSERT_OK(mics_schedule_open(f->memory, &spec, &schedule));
    return schedule;
}

static void check_entry(fixture *f, const mics_plan_choice *choice)
{
    const mics_simulate_options options = {.math = MICS_MATH_BF16, .trees = true};
    mics_plan_entry e;
    mics_simulation *mean = NULL;
    double bound_us = 0, bytes = 0;
    ASSERT_OK(mics_planner_evaluate(f->planner, choice, &e));
    mics_schedule *schedule = whole_schedule(f, choice);
    ASSERT_OK(mics_simulate_period(f->memory, schedule, &f->request.cluster, &options, &mean));
    assert_close(e.step_us, mean->step_us, 1e-6, "the mean step");
    assert_close(e.exposed_us, mean->exposed_us, 1e-6, "waits");
    assert_close(e.compute_us + e.update_us + e.exposed_us + e.overhead_us, e.step_us, 1e-6,
                 "parts");
    assert_true(e.meeting_us > 0 && e.meeting_us < e.step_us);
    assert_memory_equal(&e.memory, &schedule->ledger, sizeof e.memory);
    const mics_bytes met = mics_schedule_meeting_bytes(schedule);
    const mics_bytes sent = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN);
    assert_true(met.inter > 0 && e.met.inter == met.inter && e.met.intra == met.intra);
    assert_true(e.sent.inter == sent.inter && e.sent.intra == sent.intra);
    ASSERT_OK(mics_planner_bound(f->planner, choice, &bound_us));
    ASSERT_OK(mics_planner_memory(f->planner, choice, &bytes));
    assert_true(bound_us <= e.step_us * (1 + 1e-9) && bytes <= (double)e.memory.total);
    mics_simulation_close(mean);
    mics_schedule_close(schedule);
}

static void test_entries_are_of_whole_schedules(void **state)
{
    (void)state;
    static const mics_outer forms[] = {
        {.every = 10, .fragments = 1},
        {.every = 6, .fragments = 2, .overlap_steps = 2, .dtype = MICS_COMM_INT8},
        {.every = 4, .fragments = 1, .overlap_steps = 4, .moments_every = 2},
    };
    for (size_t form = 0; form < sizeof forms / sizeof forms[0]; form++) {
        for (int32_t ranks = 2; ranks <= 4; ranks += 2) { // of 8
            fixture f;
            open_islands(&f, 4, ranks, forms[form]);
            for (int degree = 1; degree <= ranks; degree *= 2) {
                const mics_plan_choice choice = {.sharding = {degree, ranks, ranks},
                                                 .micro_batch = 1,
                                                 .micro_steps = 16,
                                                 .prefetch = 1,
                                                 .layered_micro_steps = degree};
                check_entry(&f, &choice);
            }
            close_plans(&f);
        }
    }
}

static void assert_same_times(const mics_plan_entry *a, const mics_plan_entry *b)
{
    assert_close(a->step_us, b->step_us, 1e-12, "the same step");
    assert_memory_equal(&a->memory, &b->memory, sizeof a->memory);
}

// Rows beside an independent evaluation of what each says; the first is of the smallest islands.
static void test_rows_are_what_they_say(void **state)
{
    (void)state;
    fixture f;
    mics_plan_result *result = NULL;
    mics_plan_local local;
    open_plans(&f, 4, 2, 32);
    f.request.cluster.tiers[1].bytes_per_s = 2e8;
    f.request.cluster.tiers[1].rank_bytes_per_s = 2e8;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 1, &result));
    ASSERT_OK(mics_planner_local(f.planner, &result->entries[0].choice, &local));
    assert_true(local.asked);
    assert_int_equal(local.count, MICS_PLAN_PERIODS);
    static const int32_t periods[] = {10, 30, 100};
    for (int i = 0; i < local.count; i++) {
        const mics_plan_entry *row = &local.entries[i];
        fixture as;
        mics_plan_entry e;
        assert_int_equal(row->outer.every, periods[i]);
        assert_int_equal(row->outer_ranks, 2);
        assert_true(row->fits && row->outer.overlap_steps <= row->outer.every);
        assert_true(strlen(row->why) > 0);
        open_islands(&as, 4, 2, row->outer);
        mics_planner_close(as.planner);
        as.request.global_batch = 32;
        as.request.cluster = f.request.cluster;
        ASSERT_OK(mics_planner_open(as.memory, &as.request, &as.planner));
        ASSERT_OK(mics_planner_evaluate(as.planner, &row->choice, &e));
        assert_same_times(row, &e);
        close_plans(&as);
    }
    // The first whose meetings are hidden; at this speed those of 10 steps are, if rounded.
    const mics_plan_entry *take = &local.entries[local.take];
    for (int i = 0; i < local.take; i++)
        assert_true(local.entries[i].meeting_us > 0.03 * local.entries[i].step_us);
    assert_true(take->meeting_us <= 0.03 * take->step_us || local.take == local.count - 1);
    assert_true(result->entries[0].step_us > 1.05 * take->step_us);
    assert_true(local.gbit_per_s >= 1.6);
    mics_plan_result_close(result);
    close_plans(&f);
}

// Where a node's memory does not hold the state, islands are of more nodes; where half of all do not, there are none.
static void test_islands_hold_the_state(void **state)
{
    (void)state;
    fixture f;
    mics_plan_local local;
    static const mics_plan_choice alone = {.experts = 1};
    int32_t ranks = 2;
    open_plans(&f, 8, 2, 32);
    mics_planner *planner = NULL;
    f.request.memory_bytes = 1e9;
    for (; f.request.memory_bytes > 1e6; f.request.memory_bytes *= 0.9) {
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &planner));
        ASSERT_OK(mics_planner_local(planner, &alone, &local));
        mics_planner_close(planner);
        if (local.count == 0)
            break;
        assert_true(local.entries[0].outer_ranks >= ranks);
        ranks = local.entries[0].outer_ranks;
        for (int i = 0; i < local.count; i++)
            assert_true((double)local.entries[i].memory.total <= f.request.memory_bytes);
    }
    assert_int_equal(local.count, 0);
    assert_int_equal(ranks, 8);
    close_plans(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries_are_of_whole_schedules),
        cmocka_unit_test(test_rows_are_what_they_say),
        cmocka_unit_test(test_islands_hold_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
