// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tensor and pipeline parallelism: bubbles as in the paper, sums over the cuts, memory.
#include "plan/search/megatron.h"
#include "plans.h"

// Layers of one us forward and two backward; nothing else takes time.
static const stage_times plain = {.layer = {.forward_us = 1, .backward_us = 2}, .layers = 16};

static pipeline_time run(mics_memory *memory, int stages, int chunks, int micro_steps,
                         const stage_times *times)
{
    const cut c = {.p = {.tensor = 1, .stages = stages, .data = 1, .chunks = chunks},
                   .micro_batch = 1,
                   .micro_steps = micro_steps};
    pipeline_time time = {0};
    ASSERT_OK(pipeline_run(memory, &c, times, &time));
    return time;
}

// Narayanan et al., SC21, section 2.2: the bubble is (p - 1) / (v m) of the work.
static void test_bubbles(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    const int cases[][3] = {{1, 1, 4},  {4, 1, 4},  {4, 1, 16}, {8, 1, 24}, {2, 4, 8},
                            {4, 2, 16}, {4, 4, 32}, {4, 4, 4},  {8, 2, 8},  {16, 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int p = cases[i][0], v = cases[i][1], m = cases[i][2];
        const double work = m * 3.0 * 16 / p;
        const pipeline_time time = run(memory, p, v, m, &plain);
        assert_near(time.compute_us, work, 1e-12, "work of a stage");
        assert_near(time.us, work * (1 + (p - 1.0) / (v * m)), 1e-12, "with its bubble");
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_the_slowest_stage_sets_the_pace(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    stage_times times = plain;
    times.head = (unit_time){.forward_us = 3, .backward_us = 6, .forward_sum_us = 1};
    times.embed.forward_us = 0.5;
    const pipeline_time time = run(memory, 4, 1, 64, &times);
    assert_near(time.compute_us, 64 * (12 + 9), 1e-12, "the last stage's work");
    assert_near(time.sum_us, 64, 1e-12, "its sums");
    assert_true(time.us > 64 * 22 && time.us < 64 * 22 + 60);
    // Sends lie between stages; the first has none forward, the last none backward.
    times = plain;
    times.send_us = 10;
    assert_near(run(memory, 1, 1, 5, &times).us, 5 * 48, 1e-12, "one stage sends nothing");
    assert_true(run(memory, 4, 1, 8, &times).us > run(memory, 4, 1, 8, &plain).us + 8 * 10);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_micro_batches_under_way(void **state)
{
    (void)state;
    const cut plain_cut = {.p = {.stages = 4, .chunks = 1}, .micro_steps = 16};
    const cut few = {.p = {.stages = 4, .chunks = 1}, .micro_steps = 2};
    const cut interleaved = {.p = {.stages = 4, .chunks = 2}, .micro_steps = 16};
    // 1F1B holds as many micro-batches as there are stages (SC21, section 2.2.1); 16 layers: 4 a stage.
    assert_near(pipeline_layers_held(&plain_cut, 16), 4 * 4, 0, "1F1B");
    assert_near(pipeline_layers_held(&few, 16), 2 * 4, 0, "no more than there are");
    assert_near(pipeline_layers_held(&interleaved, 16), (6 + 4 + 1) * 2, 0, "interleaved");
}

static void test_cutting_products(void **state)
{
    (void)state;
    fixture f;
    open_plans(&f, 2, 4, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    const cut whole = {.p = {1, 1, 8, 1, 0}, .micro_batch = 2};
    const cut quarter = {.p = {4, 1, 2, 1, 0}, .micro_batch = 2};
    const unit_time a = tensor_unit(f.planner, 1, &whole), b = tensor_unit(f.planner, 1, &quarter);
    assert_true(b.forward_us < a.forward_us && b.forward_us > a.forward_us / 4);
    assert_near(a.forward_sum_us, 0, 0, "sums of one rank");
    assert_true(b.forward_sum_us > 0 && b.backward_sum_us == b.forward_sum_us);
    assert_near(a.flops_forward, b.flops_forward, 1e-12, "FLOPs of the whole unit");
    // Norms' inputs and what the first products read stay whole: 4 widths of 128 tokens, 2 bytes each.
    const double width = 2.0 * 64 * 128 * 2;
    assert_near(a.saved_bytes - b.saved_bytes, 0.75 * (a.saved_bytes - 4 * width), 1e-12, "cut");
    assert_near(a.input_bytes, width, 0, "input");
    // As many FLOPs as the ledger of schedules counts.
    double forward = 0;
    for (int32_t o = 0; o < f.model->units[1].op_count; o++)
        forward += mics_op_cost_get(f.model, &f.model->units[1], &f.model->units[1].ops[o],
                                    (mics_batch){.sequences = 2, .length = 64, .threads = 1})
                       .flops_forward;
    assert_near(a.flops_forward, forward, 1e-12, "forward FLOPs");
    close_plans(&f);
}

static void test_best_cut(void **state)
{
    (void)state;
    fixture f;
    mics_plan_entry best, entry;
    open_plans(&f, 2, 4, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_MEGATRON, &best));
    assert_int_equal(best.pipeline.tensor * best.pipeline.stages * best.pipeline.data, 8);
    assert_near(best.compute_us + best.update_us + best.exposed_us + best.overhead_us, best.step_us,
                1e-9, "parts of a step");
    assert_true(best.fits);
    // No cut that is asked for by name is faster: 4 heads, 5 layers.
    for (int t = 1; t <= 4; t *= 2) {
        mics_plan_space space = {.pipeline = {.tensor = t, .stages = 1}};
        ASSERT_OK(mics_planner_baseline(f.planner, &space, MICS_PLAN_MEGATRON, &entry));
        assert_int_equal(entry.pipeline.tensor, t);
        assert_true(entry.step_us >= best.step_us);
    }
    close_plans(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bubbles),
        cmocka_unit_test(test_the_slowest_stage_sets_the_pace),
        cmocka_unit_test(test_micro_batches_under_way),
        cmocka_unit_test(test_cutting_products),
        cmocka_unit_test(test_best_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
