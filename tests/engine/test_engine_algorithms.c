// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Training under each algorithm of gathers and of reductions: the fixture checks after each step that replicas have
// the same bits, and that bytes, exchanges and memory are the ledger's. How parameters are gathered
// has no say in the numbers; the order in which gradients are summed has.
#include "fixture.h"
#include <math.h>

static const struct {
    int32_t ranks, nodes;
    mics_sharding sharding;
} meshes[] = {
    {4, 2, {4, 4, 4}},
    {8, 4, {4, 8, 8}},
    {4, 1, {4, 4, 4}},
    {4, 2, {2, 4, 4}},
};

static fixture_run trained(size_t mesh, mics_comm_dtype dtype, bool ring_gathers,
                           bool ring_reductions)
{
    fixture_run run = {.want = {.ranks = meshes[mesh].ranks,
                                .nodes = meshes[mesh].nodes,
                                .sharding = meshes[mesh].sharding,
                                .sequences = 16,
                                .micro_steps = 2,
                                .steps = 3,
                                .prefetch = 1,
                                .clip = 1,
                                .params_dtype = {dtype, dtype},
                                .grads_dtype = {dtype, dtype},
                                .hierarchical = true,
                                .ring_gathers = ring_gathers,
                                .ring_reductions = ring_reductions}};
    fixture_go(&run);
    return run;
}

static void test_gathers_either_way_give_the_same_bits(void **state)
{
    (void)state;
    static const mics_comm_dtype dtypes[] = {MICS_COMM_FP32, MICS_COMM_BF16};
    for (size_t mesh = 0; mesh < sizeof meshes / sizeof meshes[0]; mesh++) {
        for (int d = 0; d < 2; d++) {
            const fixture_run a = trained(mesh, dtypes[d], false, false);
            const fixture_run b = trained(mesh, dtypes[d], true, false);
            if (memcmp(a.losses, b.losses, sizeof a.losses) != 0 ||
                memcmp(a.norms, b.norms, sizeof a.norms) != 0 ||
                memcmp(&a.eval_loss, &b.eval_loss, sizeof a.eval_loss) != 0)
                fail_msg("mesh %d, %s: losses differ", (int)mesh, mics_comm_dtype_text(dtypes[d]));
        }
    }
}

// The order of sums is another, and so are the last bits; nothing more.
static void test_reductions_by_another_algorithm(void **state)
{
    (void)state;
    for (size_t mesh = 0; mesh < sizeof meshes / sizeof meshes[0]; mesh++) {
        const fixture_run reference = trained(mesh, MICS_COMM_FP32, false, false);
        for (int gathers = 0; gathers < 2; gathers++) {
            const fixture_run run = trained(mesh, MICS_COMM_FP32, gathers == 1, true);
            for (int step = 0; step < run.want.steps; step++)
                assert_true(fabs(run.losses[step] - reference.losses[step]) <=
                            1e-5 * reference.losses[step]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gathers_either_way_give_the_same_bits),
        cmocka_unit_test(test_reductions_by_another_algorithm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
