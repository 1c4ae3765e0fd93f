// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Plans of mixtures whose ranks keep different experts: memory is the ledger's, bounds are below
// simulated times, extended steps equal simulated ones, and the search finds the best E.
#include "checks.h"

typedef struct machine {
    int nodes, per_node, batch;
    const char *more;
} machine;

static void open_mixture(fixture *f, const machine *on, bool bf16, int experts)
{
    open_plans(f, on->nodes, on->per_node, on->batch);
    take_mixture(f, experts);
    f->request.length = 16;
    f->request.cluster = plan_cluster(f->memory, on->per_node, on->more);
    if (!bf16) {
        f->request.precision = MICS_PRECISION_FP32;
        f->request.math = MICS_MATH_FP32;
    }
}

static void visit_mixtures(const machine *on, int experts, visitor visit)
{
    for (int variant = 0; variant < 4; variant++) {
        fixture f;
        open_mixture(&f, on, variant % 2 == 1, experts);
        f.request.share_params = variant == 0;
        f.request.accelerator = variant == 3;
        f.request.node_memory = variant < 2;
        // Layers whole, experts not; or all.
        f.request.param_persistence_threshold = variant == 2 ? 30000 : 0;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        visit_all(&f, visit);
        close_plans(&f);
    }
}

static const machine machines[] = {
    {2, 2, 8, ""}, {2, 4, 16, "\"cores\": 3"}, {3, 2, 6, "\"rings\": 1"}};

static void test_memory(void **state)
{
    (void)state;
    visit_mixtures(&machines[0], 4, check_memory);
    visit_mixtures(&machines[0], 4, check_layered);
    visit_mixtures(&machines[1], 8, check_memory);
    visit_mixtures(&machines[2], 6, check_memory);
}

static void test_bounds(void **state)
{
    (void)state;
    tightest = 0;
    for (int i = 0; i < 3; i++)
        visit_mixtures(&machines[i], i == 2 ? 6 : 4, check_bound);
    if (tightest < 0.97)
        fail_msg("the tightest bound is %.3f of its time", tightest);
}

static void test_extensions(void **state)
{
    (void)state;
    const machine on = {2, 2, 4 * 9, ""};
    visit_mixtures(&on, 4, check_extension);
}

// ---- search ----

static void compare_with_exhaustive(const machine *on, double memory_bytes, int *largest_out)
{
    const mics_plan_space every = {.exhaustive = true};
    mics_plan_result *pruned = NULL, *all = NULL;
    fixture f;
    open_mixture(&f, on, false, 4);
    f.request.memory_bytes = memory_bytes;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 6, &pruned));
    ASSERT_OK(mics_planner_search(f.planner, &every, 6, &all));
    assert_same_entries(pruned, all);
    assert_true(pruned->simulated <= all->simulated);
    for (int32_t i = 0; i < pruned->count; i++) {
        const mics_plan_entry *e = &pruned->entries[i];
        *largest_out = e->choice.experts > *largest_out ? e->choice.experts : *largest_out;
        assert_int_equal(strstr(e->name, ", E = ") != NULL, e->choice.experts > 1);
        assert_int_equal(e->exposed_all_to_all_us > 0, e->choice.experts > 1);
        assert_close(e->compute_us + e->update_us + e->exposed_us + e->overhead_us, e->step_us,
                     1e-9, "the sum of the parts");
    }
    mics_plan_result_close(pruned);
    mics_plan_result_close(all);
    close_plans(&f);
}

static void test_search(void **state)
{
    (void)state;
    int most = 0;
    compare_with_exhaustive(&machines[0], 0, &most);
    compare_with_exhaustive(&machines[0], 4e6, &most);
    compare_with_exhaustive(&machines[1], 3e6, &most);
    assert_true(most > 1);
}

// The same model and batch: with few tokens they travel, with many the experts do.
static void test_few_tokens_travel(void **state)
{
    (void)state;
    const mics_plan_space space = {
        .sharding = {2, 2, 2}, .micro_batch = 8, .prefetch_given = true, .prefetch = 1};
    for (int length = 2; length <= 64; length += 62) {
        fixture f;
        mics_plan_result *result = NULL;
        const machine on = {2, 2, 32, "\"rings\": 1"};
        open_mixture(&f, &on, false, 2);
        f.request.length = length;
        f.request.cluster.tiers[0].bytes_per_s /= 100;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        ASSERT_OK(mics_planner_search(f.planner, &space, 4, &result));
        assert_int_equal(result->count, 2);
        assert_int_equal(result->entries[0].choice.experts, length == 2 ? 2 : 1);
        mics_plan_result_close(result);
        close_plans(&f);
    }
}

// Models without experts run E = 1.
static void test_one_alone(void **state)
{
    (void)state;
    const mics_plan_space two = {.experts = 2};
    const mics_plan_choice choice = {
        .sharding = {2, 2, 2}, .experts = 2, .micro_batch = 1, .micro_steps = 2};
    const mics_plan_choice odd = {
        .sharding = {1, 1, 2}, .experts = 2, .micro_batch = 1, .micro_steps = 2};
    mics_plan_result *result = NULL;
    mics_plan_entry entry;
    fixture f;
    open_mixture(&f, &machines[0], false, 4);
    mics_model_close(f.model);
    f.request.model = f.model = plan_model(f.memory, 2, 2, 32, 64, 200);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 100, &result));
    for (int32_t i = 0; i < result->count; i++)
        assert_int_equal(result->entries[i].choice.experts, 1);
    mics_plan_result_close(result);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_search(f.planner, &two, 1, &result));
    assert_int_not_equal(mics_planner_evaluate(f.planner, &choice, &entry), MICS_OK);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_evaluate(f.planner, &odd, &entry));
    close_plans(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_extensions),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_few_tokens_travel),
        cmocka_unit_test(test_one_alone),
    };
    mics_log_set_sink(drop_line, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
