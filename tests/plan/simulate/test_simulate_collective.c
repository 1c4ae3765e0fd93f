// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Single collectives by hand: the bytes that a thread compresses, adds and copies, and which steps
// may take half of an all-reduce over trees.
#include "machines.h"
#include "plan/simulate/internal.h"

enum { ELEMS = 1000, UNIT = 1 }; // of a block; 4000 bytes in fp32, 2000 in bf16

static void expect(const char *what, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%s: %.15g, expected %.15g", what, value, expected);
}

// ---- local bytes ----

typedef struct local_case {
    const char *what;
    mics_step_kind kind;
    mics_step_stage stage; // of 2 nodes x 4 ranks: 8 members whole, 4 intra-node, 2 inter-node
    mics_comm_dtype held, sent;
    mics_precision precision;
    mics_comm_dtype params_intra; // spec.params_dtype.intra
    int32_t micro_steps, members;
    double bytes;      // read and written by the thread
    double unit_bytes; // of each element of the padded unit, besides
} local_case;

#define FP32 MICS_COMM_FP32
#define BF16 MICS_COMM_BF16
#define FULL MICS_PRECISION_FP32
#define MIXED MICS_PRECISION_MIXED
#define WHOLE MICS_STAGE_WHOLE
#define INTRA MICS_STAGE_INTRA
#define INTER MICS_STAGE_INTER

static const local_case local_cases[] = {
    // 7 blocks compressed, 4000 + 2000 each; 7 decompressed and added, 2000 + 2 x 4000 each
    {"sum", MICS_STEP_SCATTER, WHOLE, FP32, BF16, FULL, FP32, 2, 0, 112000, 0},
    {"sum, inter", MICS_STEP_REPLICA_SCATTER, INTER, FP32, BF16, FULL, FP32, 2, 0, 16000, 0},
    {"sum in fp32", MICS_STEP_SCATTER, WHOLE, FP32, FP32, FULL, FP32, 2, 0, 0, 0},
    // the own block compressed and 7 decompressed, 4000 + 2000 each
    {"sync", MICS_STEP_PARAM_SYNC, WHOLE, FP32, BF16, FULL, FP32, 2, 0, 48000, 0},
    {"sync in fp32", MICS_STEP_PARAM_SYNC, WHOLE, FP32, FP32, FULL, FP32, 2, 0, 0, 0},
    // the own shard into the slot, 4 x 1000 + what is sent; the unit decompressed, 2 + 4 an element
    {"gather in fp32", MICS_STEP_GATHER, WHOLE, FP32, FP32, FULL, FP32, 2, 0, 8000, 0},
    {"gather in bf16", MICS_STEP_GATHER, WHOLE, FP32, BF16, FULL, BF16, 2, 0, 6000, 6},
    {"gather of bf16", MICS_STEP_GATHER, WHOLE, BF16, BF16, MIXED, FP32, 2, 0, 4000, 0},
    // inter-node: 2 blocks decompressed where the node's links carry fp32
    {"inter, fp32 intra", MICS_STEP_GATHER, INTER, FP32, BF16, FULL, FP32, 2, 0, 18000, 0},
    {"inter, bf16 intra", MICS_STEP_GATHER, INTER, FP32, BF16, FULL, BF16, 2, 0, 6000, 0},
    {"intra", MICS_STEP_GATHER, INTRA, FP32, BF16, FULL, BF16, 2, 0, 0, 6},
    {"intra in fp32", MICS_STEP_GATHER, INTRA, FP32, FP32, FULL, FP32, 2, 0, 0, 0},
    // joined units: 4 blocks and the own one, read and written
    {"joined", MICS_STEP_PARAM_SYNC, INTRA, FP32, FP32, FULL, FP32, 2, 3, 40000, 0},
    {"one joined", MICS_STEP_PARAM_SYNC, INTRA, FP32, FP32, FULL, FP32, 2, 1, 40000, 0},
    // into the accumulator: written, read as well behind the first micro-step, and the slot read
    {"reduce, only one", MICS_STEP_REDUCE, WHOLE, FP32, FP32, FULL, FP32, 1, 0, 8000, 0},
    {"reduce, one of 2", MICS_STEP_REDUCE, WHOLE, FP32, FP32, FULL, FP32, 2, 0, 12000, 0},
    {"reduce of bf16", MICS_STEP_REDUCE, WHOLE, BF16, BF16, MIXED, FP32, 2, 0, 10000, 0},
    {"reduce, inter", MICS_STEP_REDUCE, INTER, FP32, FP32, FULL, FP32, 1, 0, 8000, 0},
    {"reduce, intra", MICS_STEP_REDUCE, INTRA, FP32, FP32, FULL, FP32, 2, 0, 0, 0},
};

static mics_step local_step(const local_case *c)
{
    mics_step step = hand_gather(c->kind, MICS_STREAM_INTER, MICS_AXIS_ISLAND, 0);
    step.unit = UNIT;
    step.stage = c->stage;
    step.dtype = (mics_step_dtypes){.held = c->held, .sent = c->sent};
    step.block_elems = ELEMS;
    step.block_bytes = mics_comm_dtype_bytes(c->sent, ELEMS);
    step.member_count = c->members;
    return step;
}

// What memory at 1 GB/s adds to a collective that has memory of any speed.
static void test_threads_move_bytes(void **state)
{
    (void)state;
    const mics_simulate_options options = {.math = MICS_MATH_FP32};
    world w;
    world_open(&w, 2, 4, (mics_sharding){1, 1, 8});
    world_reschedule(&w);
    w.cluster.accelerator.launch_us = 0;
    w.cluster.accelerator.memory_efficiency = 1;
    mics_cluster fast = w.cluster;
    fast.accelerator.memory_bytes_per_s = INFINITY;
    for (size_t i = 0; i < sizeof local_cases / sizeof local_cases[0]; i++) {
        const local_case *c = &local_cases[i];
        const mics_step step = local_step(c);
        w.schedule->spec.precision = c->precision;
        w.schedule->spec.params_dtype.intra = c->params_intra;
        w.schedule->spec.micro_steps = c->micro_steps;
        const mics_cost_use use = collective_use(w.schedule, &w.cluster, &options, &step);
        const mics_cost_use sent = collective_use(w.schedule, &fast, &options, &step);
        const double us =
            (c->bytes + c->unit_bytes * (double)w.schedule->padded_elems[UNIT]) / 1000;
        expect(c->what, use.us, sent.us + us);
        expect(c->what, use.beside_us, sent.beside_us + us);
        expect(c->what, use.core_us, sent.core_us + us);
    }
    world_close(&w);
}

// A thread that has nothing to move launches nothing.
static void test_no_bytes_no_launch(void **state)
{
    (void)state;
    const mics_simulate_options options = {.math = MICS_MATH_FP32};
    world w;
    world_open(&w, 2, 4, (mics_sharding){1, 1, 8});
    world_reschedule(&w);
    mics_step step = hand_gather(MICS_STEP_PARAM_SYNC, MICS_STREAM_INTER, MICS_AXIS_ISLAND, 4000);
    const double us = collective_use(w.schedule, &w.cluster, &options, &step).us;
    w.cluster.accelerator.launch_us = 1000;
    expect("sync", collective_use(w.schedule, &w.cluster, &options, &step).us, us);
    step.kind = MICS_STEP_GATHER; // copies its own shard
    assert_true(collective_use(w.schedule, &w.cluster, &options, &step).us > 1000);
    world_close(&w);
}

// ---- all-reduces ----

static mics_cost_use priced(const world *w, mics_collective_kind kind, const mics_step *step)
{
    const mics_collective one = {
        .kind = kind,
        .group = mics_mesh_group(&w->spec.mesh, step->axis, mics_step_scope(step), 0),
        .block_bytes = (double)step->block_bytes,
        .crowd = 1};
    return mics_cost_collective(&w->cluster, w->spec.mesh.ranks, &one);
}

static void assert_use(const char *what, const mics_cost_use *use, const mics_cost_use *expected,
                       double parts)
{
    expect(what, use->us, expected->us / parts);
    expect(what, use->beside_us, expected->beside_us / parts);
    expect(what, use->latency_us, expected->latency_us / parts);
    expect(what, use->core_us, expected->core_us / parts);
    for (int t = 0; t < MICS_CLUSTER_TIERS; t++) {
        expect(what, use->bytes[t], expected->bytes[t] / parts);
        expect(what, use->busy_us[t], expected->busy_us[t] / parts);
    }
}

typedef struct tree_case {
    const char *what;
    mics_step_kind kind;
    mics_step_stage stage;
    mics_algorithm algorithm;
    bool all_reduces, trees;
    bool half; // of an all-reduce over trees
} tree_case;

static const tree_case tree_cases[] = {
    {"scatter", MICS_STEP_REPLICA_SCATTER, WHOLE, MICS_ALGORITHM_RING, true, true, true},
    {"gather", MICS_STEP_REPLICA_GATHER, WHOLE, MICS_ALGORITHM_RING, true, true, true},
    {"inter", MICS_STEP_REPLICA_SCATTER, INTER, MICS_ALGORITHM_RING, true, true, true},
    {"two stages", MICS_STEP_REPLICA_SCATTER, WHOLE, MICS_ALGORITHM_TWO_STAGE, true, true, false},
    {"no trees", MICS_STEP_REPLICA_SCATTER, WHOLE, MICS_ALGORITHM_RING, true, false, false},
    {"two steps", MICS_STEP_REPLICA_SCATTER, WHOLE, MICS_ALGORITHM_RING, false, true, false},
    {"inside", MICS_STEP_REPLICA_SCATTER, INTRA, MICS_ALGORITHM_RING, true, true, false},
    {"first hop", MICS_STEP_SCATTER, WHOLE, MICS_ALGORITHM_RING, true, true, false},
    {"sync", MICS_STEP_PARAM_SYNC, WHOLE, MICS_ALGORITHM_RING, true, true, false},
};

static void check_tree(world *w, const tree_case *c, bool faster)
{
    const mics_simulate_options options = {.math = MICS_MATH_FP32, .trees = c->trees};
    mics_step step = hand_gather(c->kind, MICS_STREAM_INTER, MICS_AXIS_ISLAND, 4096);
    step.stage = c->stage;
    step.algorithm = c->algorithm;
    w->schedule->spec.all_reduces = c->all_reduces;
    const mics_cost_use use = collective_use(w->schedule, &w->cluster, &options, &step);
    const bool sums = c->kind == MICS_STEP_REPLICA_SCATTER || c->kind == MICS_STEP_SCATTER;
    const mics_cost_use tree = priced(w, MICS_COLLECTIVE_ALL_REDUCE_TREE, &step);
    const mics_cost_use ring =
        priced(w, sums ? MICS_COLLECTIVE_REDUCE_SCATTER : MICS_COLLECTIVE_ALL_GATHER, &step);
    if (c->half && faster)
        assert_use(c->what, &use, &tree, 2);
    else
        assert_use(c->what, &use, &ring, 1);
}

// Over 32 nodes a tree's few latencies beat a ring's many. In a node it is a chain, whose middle
// passes twice the buffer on: more than a ring's 14 of 8 blocks.
static void test_which_steps_take_trees(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 32; nodes += 31) {
        world w;
        world_open(&w, nodes, nodes == 1 ? 8 : 1, (mics_sharding){1, 1, 1});
        w.cluster.tiers[1].core_us_per_byte = 1e-3;
        w.cluster.tiers[1].beside_us = mics_curve_constant(5);
        world_reschedule(&w);
        for (size_t i = 0; i < sizeof tree_cases / sizeof tree_cases[0]; i++)
            check_tree(&w, &tree_cases[i], nodes == 32);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_move_bytes),
        cmocka_unit_test(test_no_bytes_no_launch),
        cmocka_unit_test(test_which_steps_take_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
