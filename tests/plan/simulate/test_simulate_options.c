// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Options of a simulation, what is refused, and failing allocations.
#include "machines.h"

static capture seen;

// ---- jitter ----

static bool same_times(const mics_simulation *a, const mics_simulation *b)
{
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->steps, b->steps);
    const size_t count = (size_t)a->ranks * (size_t)a->steps;
    return memcmp(a->times, b->times, count * sizeof(mics_step_time)) == 0;
}

static void test_jitter_repeats_by_its_seed(void **state)
{
    (void)state;
    world a, b;
    world_open(&a, 2, 2, (mics_sharding){2, 2, 4});
    world_open(&b, 2, 2, (mics_sharding){2, 2, 4});
    mics_simulate_options options = {.jitter = 0.1, .seed = 7};
    const mics_simulation *first = world_simulate(&a, &options);
    assert_int_equal(first->ranks, 4);
    assert_true(same_times(first, world_simulate(&b, &options)));
    options.seed = 8;
    assert_false(same_times(first, world_simulate(&b, &options)));
    world_close(&a);
    world_close(&b);
}

// Its factors are log-normal: on one rank without collectives, the mean of the logarithm is about 0 and its
// deviation about what was asked for.
static void test_jitter_is_log_normal(void **state)
{
    (void)state;
    world w;
    world_open(&w, 1, 1, (mics_sharding){1, 1, 1});
    w.spec.micro_steps = 400;
    const mics_simulate_options options = {.jitter = 0.2, .seed = 3};
    const double plain = world_simulate(&w, NULL)->step_us;
    const mics_simulation *s = world_simulate(&w, &options);
    // The mean of a log-normal factor of median 1.
    assert_near("step", s->step_us, plain * exp(0.2 * 0.2 / 2), 0.02);
    double sum = 0, squares = 0;
    int32_t count = 0;
    mics_simulation *none = NULL;
    ASSERT_OK(mics_simulate(w.memory, w.schedule, &w.cluster, NULL, &none));
    for (int32_t i = 0; i < s->steps; i++) {
        const mics_step_time *t = &s->times[i], *u = &none->times[i];
        if (u->end_us == u->begin_us) // agreement with nobody
            continue;
        count++;
        const double factor = log((t->end_us - t->begin_us) / (u->end_us - u->begin_us));
        sum += factor;
        squares += factor * factor;
    }
    assert_true(fabs(sum / count) < 5 * 0.2 / sqrt(count));
    assert_near("deviation", sqrt(squares / count), 0.2, 5 / sqrt(2.0 * count));
    mics_simulation_close(none);
    world_close(&w);
}

// More of it makes steps longer, as all wait for the slowest.
static void test_jitter_costs_time(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 4, (mics_sharding){8, 8, 8});
    w.cluster.accelerator.flops_per_s[MICS_MATH_FP32] /= 20; // computation counts
    double before = world_simulate(&w, NULL)->step_us;
    for (double jitter = 0.1; jitter < 0.9; jitter *= 2) {
        const mics_simulate_options options = {.jitter = jitter, .seed = 1};
        const double after = world_simulate(&w, &options)->step_us;
        assert_true(after > before);
        before = after;
    }
    world_close(&w);
}

// A straggler that is as fast as the others is none.
static void test_factor_one_changes_nothing(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 2, (mics_sharding){1, 2, 4});
    const mics_straggler none[] = {{0, 1}, {3, 1}};
    const mics_simulate_options options = {.stragglers = none, .straggler_count = 2};
    const double plain = world_simulate(&w, NULL)->step_us;
    assert_near("step", world_simulate(&w, &options)->step_us, plain, 1e-9);
    world_close(&w);
}

// ---- trees ----

// Between many nodes a tree's few latencies beat a ring's many; it is never taken where it is slower.
static void test_trees_are_taken_where_faster(void **state)
{
    (void)state;
    const mics_simulate_options trees = {.trees = true};
    for (int32_t nodes = 1; nodes <= 32; nodes *= 2) {
        world w;
        world_open(&w, nodes, 2, (mics_sharding){2, 2, 2});
        const mics_simulation *s = world_simulate(&w, NULL);
        const double ring = s->step_us,
                     agree = s->kinds[MICS_STEP_AGREE][MICS_STAGE_WHOLE].alone_us;
        s = world_simulate(&w, &trees);
        assert_true(s->step_us <= ring);
        if (nodes >= 8)
            assert_true(s->kinds[MICS_STEP_AGREE][MICS_STAGE_WHOLE].alone_us < agree / 2);
        world_close(&w);
    }
}

// ---- math and precision ----

static void test_products_compute_in_what_is_asked(void **state)
{
    (void)state;
    world w;
    world_open(&w, 1, 1, (mics_sharding){1, 1, 1});
    w.cluster.accelerator.memory_bytes_per_s = w.cluster.accelerator.update_bytes_per_s = 1e15;
    w.cluster.accelerator.launch_us = 0;
    w.cluster.accelerator.flops_per_s[MICS_MATH_BF16] =
        16 * w.cluster.accelerator.flops_per_s[MICS_MATH_FP32];
    const mics_simulate_options bf16 = {.math = MICS_MATH_BF16};
    const double fp32 = world_simulate(&w, NULL)->step_us;
    const double faster = world_simulate(&w, &bf16)->step_us;
    assert_true(faster < fp32 / 3 && faster > fp32 / 16); // norms and activations are no products
    world_close(&w);
}

// Half the bytes on the wires and in memory, so a step that is bound by either takes less.
static void test_mixed_precision_moves_less(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 2, (mics_sharding){4, 4, 4});
    const mics_simulation *s = world_simulate(&w, NULL);
    const double gather = s->kinds[MICS_STEP_GATHER][MICS_STAGE_WHOLE].alone_us, step = s->step_us;
    w.spec.precision = MICS_PRECISION_MIXED;
    world_reschedule(&w);
    s = world_simulate(&w, NULL);
    assert_true(s->step_us < step);
    assert_true(s->kinds[MICS_STEP_GATHER][MICS_STAGE_WHOLE].alone_us < 0.75 * gather);
    world_close(&w);
}

// ---- what is refused ----

static void refuse(world *w, const mics_simulate_options *options, const char *said)
{
    mics_simulation *simulation = NULL;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_simulate(w->memory, w->schedule, &w->cluster, options, &simulation));
    capture_end();
    assert_null(simulation);
    ASSERT_SAID(&seen, said);
}

static void test_bad_options(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 2, (mics_sharding){2, 2, 2});
    world_reschedule(&w);
    const double bad[] = {-0.1, NAN, INFINITY, 6};
    for (int i = 0; i < 4; i++)
        refuse(&w, &(mics_simulate_options){.jitter = bad[i]}, "jitter");
    refuse(&w, &(mics_simulate_options){.math = MICS_MATHS}, "tf32");
    refuse(&w, &(mics_simulate_options){.straggler_count = -1}, "-1 stragglers");
    const mics_straggler stragglers[] = {{-1, 2}, {4, 2}, {0, 0}, {0, -1}, {0, NAN}, {0, INFINITY}};
    for (int i = 0; i < 6; i++)
        refuse(&w, &(mics_simulate_options){.stragglers = &stragglers[i], .straggler_count = 1},
               "straggler 0: rank");
    world_close(&w);
}

static void test_cluster_and_mesh_must_agree(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 2, (mics_sharding){2, 2, 2});
    world_reschedule(&w);
    const mics_cluster good = w.cluster;
    w.cluster = machine(4);
    refuse(&w, NULL, "2 ranks a node, and cluster test 4: lay the mesh out for 1 nodes of 4");
    w.cluster = good;
    w.cluster.tiers[1].fan_out = 1; // of nodes
    refuse(&w, NULL, "test");
    w.cluster = good;
    w.spec.evaluation_only = true;
    world_reschedule(&w);
    refuse(&w, NULL, "evaluation only");
    world_close(&w);
}

// Streams that wait for each other end in an error, not in silence.
static void test_a_circle_is_an_error(void **state)
{
    (void)state;
    world w;
    world_open(&w, 1, 2, (mics_sharding){2, 2, 2});
    world_reschedule(&w);
    mics_step steps[] = {hand_gather(MICS_STEP_GATHER, MICS_STREAM_NEAR, MICS_AXIS_PARTITION, 64),
                         hand_step(MICS_STEP_FORWARD, MICS_STREAM_COMPUTE, 1)};
    steps[0].wait[MICS_STREAM_COMPUTE] = 1;
    steps[1].wait[MICS_STREAM_NEAR] = 0;
    const mics_step_list own = w.schedule->lists[MICS_PHASE_TRAIN];
    w.schedule->lists[MICS_PHASE_TRAIN] = (mics_step_list){steps, 2};
    refuse(&w, NULL, "wait for each other");
    refuse(&w, &(mics_simulate_options){.every_rank = true}, "wait for each other");
    w.schedule->lists[MICS_PHASE_TRAIN] = own;
    world_close(&w);
}

// ---- memory ----

static void test_failing_allocations(void **state)
{
    (void)state;
    const mics_straggler slow = {.rank = 1, .factor = 2};
    const mics_simulate_options options[] = {
        {.math = MICS_MATH_FP32}, {.stragglers = &slow, .straggler_count = 1, .jitter = 0.1}};
    for (int i = 0; i < 2; i++) {
        world w;
        world_open(&w, 2, 2, (mics_sharding){2, 2, 4});
        world_reschedule(&w);
        mics_status status = MICS_ERR_MEMORY;
        int64_t failures = 0;
        capture_begin(&seen);
        while (status != MICS_OK) {
            mics_memory_fail_after(w.memory, ++failures);
            status = mics_simulate(w.memory, w.schedule, &w.cluster, &options[i], &w.simulation);
            assert_true(status == MICS_OK || (status == MICS_ERR_MEMORY && w.simulation == NULL));
        }
        mics_memory_fail_after(w.memory, 0);
        capture_end();
        assert_true(failures > 10);
        world_close(&w); // counts leaks
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jitter_repeats_by_its_seed),
        cmocka_unit_test(test_jitter_is_log_normal),
        cmocka_unit_test(test_jitter_costs_time),
        cmocka_unit_test(test_factor_one_changes_nothing),
        cmocka_unit_test(test_trees_are_taken_where_faster),
        cmocka_unit_test(test_products_compute_in_what_is_asked),
        cmocka_unit_test(test_mixed_precision_moves_less),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_cluster_and_mesh_must_agree),
        cmocka_unit_test(test_a_circle_is_an_error),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
