// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The second hop, scatter and publication in two stages, one precision a hop, and messages that
// small units share: the fixture checks after each step that replicas have the same bits and that
// bytes, exchanges and memory are the ledger's; here losses are compared with those of one rank.
#include "fixture.h"
#include <math.h>

enum { STEPS = FIXTURE_STEPS_RUN < 5 ? FIXTURE_STEPS_RUN : 5 };

// Where groups have several members a node and cover several nodes, and one where they do not.
static const mics_sharding shardings[] = {
    {2, 2, 2}, {2, 2, 8}, {1, 1, 8}, {1, 1, 1}, {1, 2, 2}, {2, 8, 8}, {1, 2, 4}, {8, 8, 8},
};
enum { SHARDINGS = sizeof shardings / sizeof shardings[0] };

static fixture_run one_rank(void)
{
    fixture_run run = {.want = {.ranks = 1,
                                .nodes = 1,
                                .sharding = {1, 1, 1},
                                .sequences = 48,
                                .micro_steps = 2,
                                .steps = STEPS,
                                .prefetch = 1,
                                .clip = 1}};
    fixture_go(&run);
    return run;
}

static void check_losses(const fixture_run *run, const fixture_run *reference, double tolerance)
{
    for (int32_t step = 0; step < run->want.steps; step++) {
        const double loss = run->losses[step], expected = reference->losses[step];
        if (!(fabs(loss - expected) <= tolerance * expected))
            fail_msg("%d|%d|%d: step %d: loss %.9g, one rank has %.9g",
                     (int)run->want.sharding.params, (int)run->want.sharding.grads,
                     (int)run->want.sharding.optimizer, (int)step + 1, loss, expected);
    }
}

// 2 nodes of 4.
static fixture_run in_stages(const fixture_run *reference, int sharding)
{
    fixture_run run = {.want = reference->want};
    run.want.ranks = 8;
    run.want.nodes = 2;
    run.want.sharding = shardings[sharding];
    run.want.micro_steps = 3;
    run.want.prefetch = sharding % 3;
    run.want.hierarchical = true;
    return run;
}

static mics_bytes sent_bytes(const fixture_run *run)
{
    mics_bytes sum = {0, 0};
    for (int32_t rank = 0; rank < run->want.ranks; rank++) {
        sum.intra += run->results[rank].sent.intra;
        sum.inter += run->results[rank].sent.inter;
    }
    return sum;
}

// Fewer bytes between nodes than one ring over all of a group, and the same numbers but for the
// order of sums.
static void test_fewer_bytes_between_nodes(void **state)
{
    (void)state;
    const fixture_run reference = one_rank();
    for (int sharding = 0; sharding < SHARDINGS; sharding++) {
        fixture_run stages = in_stages(&reference, sharding), ring = stages;
        ring.want.hierarchical = false;
        fixture_go(&stages);
        fixture_go(&ring);
        check_losses(&stages, &reference, 1e-4);
        check_losses(&ring, &reference, 1e-4);
        if (stages.want.sharding.optimizer == 4) // whole nodes, so one rank of each node meets
            assert_int_equal(sent_bytes(&stages).inter, sent_bytes(&ring).inter);
        else
            assert_true(sent_bytes(&stages).inter < sent_bytes(&ring).inter);
    }
}

// Packed sums cross between equal local ranks only: half of fp32's bytes, and less as int8.
static void test_packed(void **state)
{
    (void)state;
    static const mics_comm_dtype wires[] = {MICS_COMM_FP32, MICS_COMM_BF16, MICS_COMM_INT8};
    const fixture_run reference = one_rank();
    for (int sharding = 0; sharding < SHARDINGS; sharding++) {
        int64_t sent = INT64_MAX;
        for (int i = 0; i < 3; i++) {
            fixture_run run = in_stages(&reference, sharding);
            run.want.boundary_dtype = mics_comm_dtypes_both(wires[i]);
            fixture_go(&run);
            check_losses(&run, &reference, 2e-2);
            if (run.want.sharding.grads < run.want.ranks)
                assert_true(sent_bytes(&run).inter < sent);
            sent = sent_bytes(&run).inter;
        }
    }
}

// One precision inside nodes and another between them. Gathers over several nodes are refused with
// fewer bits inside than between.
static void test_each_hop_its_own(void **state)
{
    (void)state;
    static const mics_comm_dtypes mixed[] = {{MICS_COMM_FP32, MICS_COMM_BF16},
                                             {MICS_COMM_BF16, MICS_COMM_FP32},
                                             {MICS_COMM_BF16, MICS_COMM_INT8}};
    const fixture_run reference = one_rank();
    for (int sharding = 0; sharding < SHARDINGS; sharding++) {
        fixture_run whole = in_stages(&reference, sharding);
        fixture_go(&whole);
        for (int i = 0; i < 3; i++) {
            fixture_run run = in_stages(&reference, sharding);
            const bool spans = run.want.sharding.params > 4;
            run.want.boundary_dtype = mixed[i];
            run.want.grads_dtype = mixed[i % 2];
            run.want.params_dtype = mixed[spans ? 0 : i % 2];
            fixture_go(&run);
            check_losses(&run, &reference, 2e-2);
            if (i == 0) // publication is rounded only where gathers inside the node are
                assert_int_equal(sent_bytes(&run).intra, sent_bytes(&whole).intra);
            if (i == 0)
                assert_true(sent_bytes(&run).inter < sent_bytes(&whole).inter);
        }
    }
}

// Several units a message: the same bits and bytes. A message holds two layers, the last and the
// embedding, or all units; some of them whole on every rank.
static void test_units_that_share_messages(void **state)
{
    (void)state;
    static const mics_comm_dtype hops[] = {MICS_COMM_FP32, MICS_COMM_BF16, MICS_COMM_INT8};
    static const int64_t below[] = {4000, 100000, 4000}, whole[] = {0, 100, 100};
    const fixture_run reference = one_rank();
    for (int sharding = 0; sharding < SHARDINGS; sharding++) {
        for (int i = 0; i < 3; i++) {
            fixture_run apart = in_stages(&reference, sharding);
            apart.want.param_persistence_threshold = whole[i];
            apart.want.hierarchical = i > 0;
            apart.want.params_dtype =
                mics_comm_dtypes_both(i == 1 ? MICS_COMM_BF16 : MICS_COMM_FP32);
            apart.want.boundary_dtype = mics_comm_dtypes_both(hops[i]);
            fixture_run joined = apart;
            joined.want.coalesce_below = below[i];
            fixture_go(&apart);
            fixture_go(&joined);
            check_losses(&joined, &reference, 2e-2);
            if (hops[i] == MICS_COMM_INT8) // whose blocks begin elsewhere
                continue;
            assert_memory_equal(joined.losses, apart.losses, sizeof joined.losses);
            assert_int_equal(sent_bytes(&joined).intra, sent_bytes(&apart).intra);
            assert_int_equal(sent_bytes(&joined).inter, sent_bytes(&apart).inter);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fewer_bytes_between_nodes),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_each_hop_its_own),
        cmocka_unit_test(test_units_that_share_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
