// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Communication dtypes, and small units kept whole: the fixture checks after each step that
// replicas have the same bits and that bytes, exchanges and memory are the ledger's; here the losses
// are compared with those of one rank, and bytes with those of fp32.
#include "fixture.h"
#include <math.h>

static fixture_run one_rank(void)
{
    fixture_run run = {.want = {.ranks = 1,
                                .nodes = 1,
                                .sharding = {1, 1, 1},
                                .sequences = 48,
                                .micro_steps = 2,
                                .steps = FIXTURE_STEPS_RUN,
                                .prefetch = 1,
                                .clip = 1}};
    fixture_go(&run);
    return run;
}

static const struct {
    int32_t ranks, nodes;
    mics_sharding sharding;
    bool stages;
} meshes[] = {
    {4, 2, {2, 2, 2}, true},  {4, 2, {2, 2, 4}, false}, {4, 2, {4, 4, 4}, true},
    {4, 2, {1, 4, 4}, false}, {4, 2, {1, 1, 1}, true},  {8, 4, {4, 4, 8}, false},
    {8, 4, {2, 8, 8}, true},  {8, 2, {2, 2, 4}, false}, {4, 1, {4, 4, 4}, true},
};

static void check_losses(const fixture_run *run, const fixture_run *reference, double tolerance)
{
    for (int32_t step = 0; step < run->want.steps; step++) {
        const double loss = run->losses[step], expected = reference->losses[step];
        if (!(fabs(loss - expected) <= tolerance * expected))
            fail_msg("%d ranks, %d nodes, %d|%d|%d, wires %d %d %d: step %d: loss %.9g, one rank "
                     "has %.9g",
                     (int)run->want.ranks, (int)run->want.nodes, (int)run->want.sharding.params,
                     (int)run->want.sharding.grads, (int)run->want.sharding.optimizer,
                     (int)run->want.params_dtype.inter, (int)run->want.grads_dtype.inter,
                     (int)run->want.boundary_dtype.inter, (int)step + 1, loss, expected);
    }
}

static fixture_run with_mesh(const fixture_run *reference, size_t mesh)
{
    fixture_run run = {.want = reference->want};
    run.want.ranks = meshes[mesh].ranks;
    run.want.nodes = meshes[mesh].nodes;
    run.want.sharding = meshes[mesh].sharding;
    run.want.micro_steps = run.want.ranks == 8 ? 3 : 2;
    run.want.prefetch = (int32_t)mesh % 3;
    run.want.hierarchical = meshes[mesh].stages;
    return run;
}

static int64_t sent_bytes(const fixture_run *run)
{
    int64_t sum = 0;
    for (int32_t rank = 0; rank < run->want.ranks; rank++)
        sum += run->results[rank].sent.intra + run->results[rank].sent.inter;
    return sum;
}

// bf16 has 8 bits of mantissa; the losses of 20 steps stay within half a percent.
static void test_bf16(void **state)
{
    (void)state;
    const fixture_run reference = one_rank();
    for (size_t mesh = 0; mesh < sizeof meshes / sizeof meshes[0]; mesh++) {
        fixture_run whole = with_mesh(&reference, mesh);
        fixture_run rounded = with_mesh(&reference, mesh);
        rounded.want.params_dtype = mics_comm_dtypes_both(MICS_COMM_BF16);
        rounded.want.grads_dtype = mics_comm_dtypes_both(MICS_COMM_BF16);
        rounded.want.boundary_dtype = mics_comm_dtypes_both(MICS_COMM_BF16);
        fixture_go(&whole);
        fixture_go(&rounded);
        check_losses(&rounded, &reference, 5e-3);
        assert_true(sent_bytes(&rounded) < sent_bytes(&whole));
        // They are rounded indeed: some step's loss differs from fp32's.
        if (meshes[mesh].sharding.params > 1)
            assert_memory_not_equal(rounded.losses, whole.losses, sizeof rounded.losses);
    }
}

static void test_each_hop_alone(void **state)
{
    (void)state;
    const fixture_run reference = one_rank();
    for (int hop = 0; hop < 3; hop++) {
        for (size_t mesh = 0; mesh < 3; mesh++) {
            fixture_run run = with_mesh(&reference, mesh);
            run.want.params_dtype =
                mics_comm_dtypes_both(hop == 0 ? MICS_COMM_BF16 : MICS_COMM_FP32);
            run.want.grads_dtype =
                mics_comm_dtypes_both(hop == 1 ? MICS_COMM_BF16 : MICS_COMM_FP32);
            run.want.boundary_dtype =
                mics_comm_dtypes_both(hop == 2 ? MICS_COMM_BF16 : MICS_COMM_FP32);
            fixture_go(&run);
            check_losses(&run, &reference, 5e-3);
        }
    }
}

static void test_int8(void **state)
{
    (void)state;
    const fixture_run reference = one_rank();
    for (size_t mesh = 0; mesh < sizeof meshes / sizeof meshes[0]; mesh++) {
        fixture_run run = with_mesh(&reference, mesh);
        run.want.boundary_dtype = mics_comm_dtypes_both(MICS_COMM_INT8);
        fixture_go(&run);
        check_losses(&run, &reference, 2e-2);
    }
}

// The head (12 weights and biases) stays whole; then the layers too.
static void test_small_units_stay_whole(void **state)
{
    (void)state;
    const fixture_run reference = one_rank();
    const int64_t below[] = {100, 2000};
    for (size_t mesh = 0; mesh < sizeof meshes / sizeof meshes[0]; mesh++) {
        for (int i = 0; i < 2; i++) {
            fixture_run run = with_mesh(&reference, mesh);
            run.want.param_persistence_threshold = below[i];
            fixture_go(&run);
            check_losses(&run, &reference, 1e-4);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_each_hop_alone),
        cmocka_unit_test(test_int8),
        cmocka_unit_test(test_small_units_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
