// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics/planning.h as a program uses it: plans, sweeps, what is refused, and failing allocations.
#include "base/capture.h"
#include "mics/planning.h"
#include "test.h"
#include <stdlib.h>
#include <unistd.h>

static char work[] = "/tmp/mics-planning-XXXXXX";
static capture seen;

static mics_plan *open_plan(mics_memory *memory, const char *cluster, bool any_nodes)
{
    const mics_plan_spec spec = {.file = "run.json", .cluster = cluster, .any_nodes = any_nodes};
    mics_plan *plan = NULL;
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    return plan;
}

// ---- plans ----

static void test_best_beside_the_rest(void **state)
{
    mics_memory *memory = *state;
    mics_plan *plan = open_plan(memory, "p4d.24xlarge:2", false);
    mics_plan_found found = {.planner = NULL};
    assert_int_equal(plan->nodes, 2);
    assert_int_equal(plan->length, 16);
    assert_int_equal(plan->rank_batch, 2 * 3);
    assert_int_equal(mics_plan_request_get(plan, 2).global_batch, 16 * 2 * 3);
    ASSERT_OK(mics_plan_find(plan, 2, 3, &found));
    assert_int_equal(found.result->count, 3);
    const mics_plan_entry *best = &found.result->entries[0];
    assert_true(best->fits && best->why[0] != '\0');
    assert_int_equal(best->choice.micro_batch * best->choice.micro_steps, 2 * 3);
    // The run's own choice and mics+ are points of the space; other baselines' collectives are not.
    assert_true(found.has_file && found.file.step_us >= best->step_us);
    assert_int_equal(found.file.choice.sharding.params, 4);
    assert_int_equal(found.file.choice.micro_steps, 3);
    assert_true(found.baselines[MICS_PLAN_MICS_PLUS].step_us >= best->step_us);
    mics_plan_found_close(&found);
    mics_plan_close(plan);
}

// Where memory is too little for anything, it says what would do.
static void test_nothing_fits(void **state)
{
    mics_memory *memory = *state;
    const char *sets[] = {"run.memory_limit=300000"};
    const mics_plan_spec spec = {
        .file = "run.json", .sets = sets, .set_count = 1, .cluster = "p4d.24xlarge:1"};
    mics_plan *plan = NULL;
    mics_plan_found found = {.planner = NULL};
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    ASSERT_OK(mics_plan_find(plan, 1, 1, &found));
    assert_int_equal(found.result->count, 0);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_MEMORY, mics_plan_fail_fit(plan, &found));
    capture_end();
    ASSERT_SAID(&seen, "model.json fits nowhere on 1 node of p4d.24xlarge");
    mics_plan_found_close(&found);
    mics_plan_close(plan);
}

// ---- sweeps ----

static void test_sweeps(void **state)
{
    mics_memory *memory = *state;
    mics_plan *plan = open_plan(memory, "p4d.24xlarge", true);
    mics_plan_sweep *sweep = NULL;
    ASSERT_OK(mics_plan_sweep_open(plan, "nodes=1..3", &sweep));
    assert_int_equal(sweep->point_count, 3); // 1, 2, and the last
    assert_int_equal(sweep->points[2].ranks, 24);
    assert_string_equal(sweep->names[0], "best");
    for (int32_t i = 0; i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        assert_true(point->has[0] && point->has[1 + MICS_PLAN_MICS_PLUS]);
        assert_true(point->curves[1 + MICS_PLAN_MICS_PLUS].step_us >= point->curves[0].step_us);
    }
    mics_plan_sweep_close(sweep);
    mics_plan_close(plan);
    plan = open_plan(memory, "p4d.24xlarge:1", false);
    ASSERT_OK(mics_plan_sweep_open(plan, "P", &sweep));
    assert_true(sweep->over_params);
    assert_int_equal(sweep->point_count, 4); // 1, 2, 4, 8
    assert_int_equal(sweep->points[3].curves[1].choice.sharding.params, 8);
    mics_plan_sweep_close(sweep);
    mics_plan_close(plan);
}

// ---- what is refused ----

static void test_refused(void **state)
{
    static const struct {
        mics_plan_spec spec;
        const char *said;
    } bad[] = {
        {{.file = "nowhere.json", .cluster = "p4d.24xlarge:1"}, "nowhere.json"},
        {{.file = "run.json", .cluster = "p4d"}, "did you mean p4d.24xlarge"},
        {{.file = "run.json", .cluster = "p4d.24xlarge"}, "does not say how many nodes"},
        {{.file = "run.json", .cluster = "p4d.24xlarge:1", .precision = "fp8"}, "fp8 is not known"},
    };
    static const char *const points[] = {"nodes=", "nodes=4..2", "nodes=2,1", "nodes=0", "ranks=2"};
    mics_memory *memory = *state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mics_plan *plan = NULL;
        capture_begin(&seen);
        assert_int_not_equal(mics_plan_open(memory, &bad[i].spec, &plan), MICS_OK);
        capture_end();
        assert_null(plan);
        ASSERT_SAID(&seen, bad[i].said);
    }
    mics_plan *plan = open_plan(memory, "p4d.24xlarge", true);
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        mics_plan_sweep *sweep = NULL;
        capture_begin(&seen);
        ASSERT_STATUS(MICS_ERR_INVALID, mics_plan_sweep_open(plan, points[i], &sweep));
        capture_end();
        assert_null(sweep);
        ASSERT_SAID(&seen, points[i]);
    }
    mics_plan_close(plan);
}

// ---- memory ----

static void test_failing_allocations(void **state)
{
    mics_memory *memory = *state;
    const mics_plan_spec spec = {.file = "run.json", .cluster = "p4d.24xlarge:1"};
    mics_status status = MICS_ERR_MEMORY;
    int64_t failures = 0;
    capture_begin(&seen);
    while (status != MICS_OK) {
        mics_plan *plan = NULL;
        mics_memory_fail_after(memory, ++failures);
        status = mics_plan_open(memory, &spec, &plan);
        mics_plan_close(plan);
    }
    mics_memory_fail_after(memory, 0);
    capture_end();
    assert_true(failures > 5);
}

// ---- the tests ----

static void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static int begin(void **state)
{
    mics_memory *memory = NULL;
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mics_memory_open(&memory) != MICS_OK)
        return 1;
    write_file("model.json",
               "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 16, "
               "\"n_head\": 2, \"n_layer\": 2, \"n_positions\": 32, \"vocab_size\": 256, "
               "\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0}");
    write_file("run.json",
               "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"text.txt\"], "
               "\"sequence_length\": 16}, \"run\": {\"steps\": 1, \"out\": \"out\"}, "
               "\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 3, "
               "\"sharding\": {\"params\": 4, \"grads\": 4, \"optimizer\": 4}}");
    *state = memory;
    return 0;
}

// Nothing is left of what was allocated.
static int end(void **state)
{
    char command[64];
    const int64_t leaks = mics_memory_close(*state);
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 && leaks == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_beside_the_rest),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_sweeps),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
