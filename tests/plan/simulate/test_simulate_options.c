// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Options of a simulation, what is refused, and failing allocations.
#include "machines.h"
#include "mics/core/agreement.h"

static capture seen;

// ---- trees ----

static double hop_us(const mics_simulation *s)
{
    return s->kinds[MICS_STEP_REPLICA_SCATTER][MICS_STAGE_WHOLE].alone_us +
           s->kinds[MICS_STEP_REPLICA_GATHER][MICS_STAGE_WHOLE].alone_us;
}

// Between many nodes a tree's few latencies beat a ring's many; it is never taken where it is slower.
static void test_trees_are_taken_where_faster(void **state)
{
    (void)state;
    const mics_simulate_options trees = {.trees = true};
    for (int32_t nodes = 1; nodes <= 32; nodes *= 2) {
        world w;
        world_open(&w, nodes, 2, (mics_sharding){2, 2, 2});
        w.spec.all_reduces = true;
        const mics_simulation *s = world_simulate(&w, NULL);
        const double ring = s->step_us, hop = hop_us(s);
        s = world_simulate(&w, &trees);
        assert_true(s->step_us <= ring);
        if (nodes >= 8)
            assert_true(hop_us(s) < hop);
        world_close(&w);
    }
}

// An agreement is priced as its rounds, with trees or without.
static void test_agreement_by_doubling(void **state)
{
    (void)state;
    static const int32_t nodes[] = {1, 2, 3, 5, 8, 512};
    const mics_simulate_options trees = {.trees = true};
    for (size_t n = 0; n < sizeof nodes / sizeof nodes[0]; n++) {
        world w;
        world_open(&w, nodes[n], 2, (mics_sharding){2, 2, 2});
        const mics_collective rounds = {
            .kind = MICS_COLLECTIVE_ALL_GATHER_DOUBLING,
            .group = mics_mesh_group(&w.spec.mesh, MICS_AXIS_ISLAND, MICS_SCOPE_WHOLE, 0),
            .block_bytes = sizeof(mics_agreement)};
        const double us = mics_cost_collective(&w.cluster, w.spec.mesh.ranks, &rounds).us;
        for (int tree = 0; tree < 2; tree++) {
            const mics_simulation *s = world_simulate(&w, tree ? &trees : NULL);
            const mics_simulated_kind *agree = &s->kinds[MICS_STEP_AGREE][MICS_STAGE_WHOLE];
            assert_int_equal(agree->steps, 1);
            assert_close("agreement", agree->alone_us, us, 1e-12);
        }
        world_close(&w);
    }
}

// The second hop as an all-reduce: a ring's halves, or where trees are faster theirs. What only
// scatters or gathers has rings alone. Updates are the end of the step.
static void test_all_reduces_take_trees(void **state)
{
    (void)state;
    const mics_simulate_options trees = {.trees = true};
    world w;
    world_open(&w, 2, 4, (mics_sharding){1, 1, 1});
    const double deferred = hop_us(world_simulate(&w, NULL));
    assert_close("no all-reduce", hop_us(world_simulate(&w, &trees)), deferred, 1e-12);
    w.spec.all_reduces = true;
    world_reschedule(&w);
    const mics_step_list *list = &w.schedule->lists[MICS_PHASE_TRAIN];
    assert_int_equal(list->steps[list->count - 1].kind, MICS_STEP_UPDATE);
    const mics_simulation *s = world_simulate(&w, NULL);
    const mics_bytes sent = s->sent;
    assert_close("ring", hop_us(s), deferred, 1e-12);
    double expected = 0;
    for (int32_t u = 0; u < w.model->unit_count; u++) {
        const mics_collective all = {
            .kind = MICS_COLLECTIVE_ALL_REDUCE_TREE,
            .group = mics_mesh_group(&w.spec.mesh, MICS_AXIS_ISLAND, MICS_SCOPE_WHOLE, 0),
            .block_bytes = sizeof(float) * (double)w.schedule->padded_elems[u] / 8};
        mics_collective ring = all;
        ring.kind = MICS_COLLECTIVE_ALL_REDUCE;
        expected += fmin(mics_cost_collective(&w.cluster, 8, &all).us,
                         mics_cost_collective(&w.cluster, 8, &ring).us);
    }
    s = world_simulate(&w, &trees);
    assert_close("trees", hop_us(s), expected, 1e-12);
    assert_true(expected < 0.75 * deferred);
    assert_int_equal(s->sent.inter, sent.inter);
    world_close(&w);
}

// ---- math and precision ----

static void test_gemms_compute_in_what_is_asked(void **state)
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
    assert_true(faster < fp32 / 3 && faster > fp32 / 16); // norms and activations are no GEMMs
    world_close(&w);
}

// Half the bytes on links and in memory, so a step that is bound by either takes less.
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
    refuse(&w, &(mics_simulate_options){.math = MICS_MATHS}, "tf32");
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
    mics_step steps[] = {hand_gather(MICS_STEP_GATHER, MICS_STREAM_INTRA, MICS_AXIS_PARTITION, 64),
                         hand_step(MICS_STEP_FORWARD, MICS_STREAM_COMPUTE, 1)};
    steps[0].wait[MICS_STREAM_COMPUTE] = 1;
    steps[1].wait[MICS_STREAM_INTRA] = 0;
    const mics_step_list own = w.schedule->lists[MICS_PHASE_TRAIN];
    w.schedule->lists[MICS_PHASE_TRAIN] = (mics_step_list){steps, 2};
    refuse(&w, NULL, "wait for each other");
    w.schedule->lists[MICS_PHASE_TRAIN] = own;
    world_close(&w);
}

// ---- memory ----

static void test_failing_allocations(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 2, (mics_sharding){2, 2, 4});
    world_reschedule(&w);
    mics_status status = MICS_ERR_MEMORY;
    int64_t failures = 0;
    capture_begin(&seen);
    while (status != MICS_OK) {
        mics_memory_fail_after(w.memory, ++failures);
        status = mics_simulate(w.memory, w.schedule, &w.cluster, NULL, &w.simulation);
        assert_true(status == MICS_OK || (status == MICS_ERR_MEMORY && w.simulation == NULL));
    }
    mics_memory_fail_after(w.memory, 0);
    capture_end();
    assert_true(failures > 5);
    world_close(&w); // counts leaks
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees_are_taken_where_faster),
        cmocka_unit_test(test_agreement_by_doubling),
        cmocka_unit_test(test_all_reduces_take_trees),
        cmocka_unit_test(test_gemms_compute_in_what_is_asked),
        cmocka_unit_test(test_mixed_precision_moves_less),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_cluster_and_mesh_must_agree),
        cmocka_unit_test(test_a_circle_is_an_error),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
