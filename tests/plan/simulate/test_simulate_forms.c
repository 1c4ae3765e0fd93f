// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Times by hand: what steps take alone, how they overlap, and how they share links, the accelerator
// and cores.
#include "machines.h"
#include "mics/core/ledger.h"
#include "plan/simulate/internal.h"

static const double tight = 1e-12;
static const mics_simulate_options plain = {.math = MICS_MATH_FP32};

static double duration(const mics_simulation *s, int32_t step)
{
    const mics_step_time t = s->times[step];
    return t.end_us - t.begin_us;
}

static double alone(const mics_simulation *s, mics_step_kind kind)
{
    return s->kinds[kind][MICS_STAGE_WHOLE].alone_us;
}

// ---- what steps take ----

static void check_flops(world *w)
{
    world_reschedule(w);
    for (int32_t i = 0; i < w->schedule->lists[MICS_PHASE_TRAIN].count; i++) {
        const mics_step *step = &w->schedule->lists[MICS_PHASE_TRAIN].steps[i];
        double flops = 0;
        if (step->kind == MICS_STEP_FORWARD)
            unit_forward_us(w->schedule, &w->cluster, MICS_MATH_FP32, step->unit, &flops);
        if (step->kind == MICS_STEP_BACKWARD)
            unit_backward_us(w->schedule, &w->cluster, MICS_MATH_FP32, step->unit, &flops);
        assert_close(w->model->units[step->unit < 0 ? 0 : step->unit].name, flops, step->flops,
                     tight);
    }
}

// The ops that are priced count the schedule's FLOPs, in every way that a unit is run.
static void test_flops_are_the_schedules(void **state)
{
    (void)state;
    for (int kind = -1; kind < MODEL_KINDS; kind++) {
        world w;
        world_open(&w, 1, 1, (mics_sharding){1, 1, 1});
        if (kind >= 0) {
            mics_model_close(w.model);
            w.spec.model = w.model = model_build(w.memory, &model_kinds[kind], kind % 2 == 0);
        }
        check_flops(&w);
        w.spec.recompute = mics_recompute_all(true);
        check_flops(&w);
        world_close(&w);
    }
}

// A layer's forward, op by op, at 1 GFLOP/s and 0.85 GB/s: 32 tokens, hidden size 12, 3 heads, 16 a
// sequence.
static void test_a_layer_by_hand(void **state)
{
    (void)state;
    world w;
    world_open(&w, 1, 1, (mics_sharding){1, 1, 1});
    w.cluster.accelerator.matmul_efficiency = mics_curve_constant(0.5);
    w.cluster.accelerator.attention_efficiency = mics_curve_constant(0.25);
    w.cluster.accelerator.memory_efficiency = 0.85;
    w.cluster.accelerator.launch_us = 0;
    world_reschedule(&w);
    const double moved = 4 * 32 * (12 + 12) / 850.0;
    const double norm = 8 * 32 * 12 / 1000.0;
    const double gemms = 2 * 32 * 12 * (36 + 12 + 48 + 48) / 500.0;
    const double attention = 2 * 32 * 17 * 12 / 250.0;
    const double gelu = 12 * 32 * 48 / 1000.0;
    const double us = unit_forward_us(w.schedule, &w.cluster, MICS_MATH_FP32, 1, NULL);
    assert_close("forward", us,
                 2 * fmax(norm, moved) + gemms + attention + fmax(gelu, 4 * moved) + 2 * moved,
                 tight);
    world_close(&w);
}

// One rank: everything one after the other.
static void test_one_rank_is_a_sum(void **state)
{
    (void)state;
    world w;
    world_open(&w, 1, 1, (mics_sharding){1, 1, 1});
    w.spec.micro_steps = 3;
    w.cluster.step_overhead_us = 77;
    const mics_simulation *s = world_simulate(&w, NULL);
    double once = norm_us(w.schedule, &w.cluster), each = 0;
    for (int32_t u = 0; u < w.model->unit_count; u++) {
        if (!w.schedule->units[u].loss)
            each += unit_forward_us(w.schedule, &w.cluster, MICS_MATH_FP32, u, NULL);
        each += unit_backward_us(w.schedule, &w.cluster, MICS_MATH_FP32, u, NULL);
        once += fmax((double)w.schedule->padded_elems[u] * 28e6 /
                         w.cluster.accelerator.update_bytes_per_s,
                     w.cluster.accelerator.launch_us);
    }
    assert_close("step", s->step_us, 3 * each + once + 77, tight);
    assert_close("computation", s->compute_us, 3 * each + once, tight);
    assert_true(s->exposed_us == 0 && s->stream_us[MICS_STREAM_INTRA] == 0);
    assert_close("FLOPs", s->flops, mics_schedule_flops(w.schedule, MICS_PHASE_TRAIN), tight);
    world_close(&w);
}

static int64_t world_padded_elems(const world *w)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < w->model->unit_count; u++)
        elems += w->schedule->padded_elems[u];
    return elems;
}

// Where masters have replicas, their gradients are summed before they are updated; elsewhere not.
static void test_updates_are_compared(void **state)
{
    static const mics_sharding shardings[] = {{1, 1, 2}, {1, 1, 4}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        world w;
        world_open(&w, 1, 4, shardings[i]);
        w.cluster.accelerator.launch_us = 0;
        world_reschedule(&w);
        const double elems = (double)w.schedule->padded_elems[1] / shardings[i].optimizer;
        const double squares =
            norm_us(w.schedule, &w.cluster) * elems * 4 / (double)world_padded_elems(&w);
        const double alone_us = elems * 28e6 / w.cluster.accelerator.update_bytes_per_s;
        assert_close("update", update_us(w.schedule, &w.cluster, 1),
                     alone_us + (mics_schedule_defers(w.schedule) ? squares : 0), tight);
        world_close(&w);
    }
}

// Where computation takes no time, collectives of one stream follow each other without a gap.
static void test_communication_bound(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{4, 4, 4}, {1, 1, 1}, {2, 2, 4}, {1, 4, 4}};
    for (int i = 0; i < 4; i++) {
        world w;
        world_open(&w, 1, 4, shardings[i]);
        for (int math = 0; math < MICS_MATHS; math++)
            w.cluster.accelerator.flops_per_s[math] = INFINITY;
        w.cluster.accelerator.memory_bytes_per_s = INFINITY;
        w.cluster.accelerator.update_bytes_per_s = INFINITY;
        w.cluster.accelerator.launch_us = 0;
        const mics_simulation *s = world_simulate(&w, NULL);
        double sum = 0;
        for (int kind = 0; kind < MICS_STEP_KINDS; kind++)
            sum += alone(s, (mics_step_kind)kind);
        assert_true(sum > 0);
        assert_close("step", s->step_us, sum, tight);
        assert_close("exposed", s->exposed_us, sum, tight);
        world_close(&w);
    }
}

// Where links take no time, only computation is left.
static void test_computation_bound(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 2, (mics_sharding){2, 2, 4});
    for (int t = 0; t < 2; t++) {
        w.cluster.tiers[t].latency_us = 0;
        w.cluster.tiers[t].bytes_per_s = w.cluster.tiers[t].rank_bytes_per_s = INFINITY;
    }
    w.cluster.collective_us = 0;
    w.cluster.accelerator.memory_bytes_per_s = INFINITY; // so do sums into accumulators
    w.cluster.accelerator.launch_us = 0;
    const mics_simulation *s = world_simulate(&w, NULL);
    assert_true(s->compute_us > 0 && s->step_us == s->compute_us && s->exposed_us == 0);
    world_close(&w);
}

// ---- overlap ----

// Nothing waits: the longer one sets the time. One waits for the other: their sum.
static void test_overlap_is_the_maximum(void **state)
{
    (void)state;
    world w;
    world_open(&w, 1, 4, (mics_sharding){4, 4, 4});
    w.cluster.accelerator.memory_bytes_per_s = INFINITY; // no time to copy the own shard
    w.cluster.accelerator.launch_us = 0;
    for (size_t bytes = 64; bytes <= (size_t)64 << 12; bytes *= 4) {
        mics_step steps[] = {
            hand_gather(MICS_STEP_GATHER, MICS_STREAM_INTRA, MICS_AXIS_PARTITION, bytes),
            hand_step(MICS_STEP_FORWARD, MICS_STREAM_COMPUTE, 1)};
        const mics_simulation *s = hand_simulate(&w, steps, 2, NULL);
        const double gather = alone(s, MICS_STEP_GATHER), forward = alone(s, MICS_STEP_FORWARD);
        assert_close("gather", gather, 3 * (2 + (double)bytes / 200) + w.cluster.collective_us,
                     tight);
        assert_close("maximum", s->step_us, fmax(gather, forward), tight);
        assert_true(s->exposed_us == 0);
        steps[1].wait[MICS_STREAM_INTRA] = 0;
        s = hand_simulate(&w, steps, 2, NULL);
        assert_close("sum", s->step_us, gather + forward, tight);
        assert_true(s->exposed_us == gather);
        assert_true(s->kinds[MICS_STEP_GATHER][MICS_STAGE_WHOLE].exposed_us == gather);
        assert_true(s->kinds[MICS_STEP_GATHER][MICS_STAGE_WHOLE].critical_us == gather);
        assert_int_equal(s->kinds[MICS_STEP_GATHER][MICS_STAGE_WHOLE].tier, 0);
    }
    world_close(&w);
}

// Each kind of step belongs to a part.
static void test_kinds_have_parts(void **state)
{
    (void)state;
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++)
        assert_true(mics_part_of((mics_step_kind)kind) < MICS_PARTS);
    assert_int_equal(mics_part_of(MICS_STEP_REPLICA_SCATTER), MICS_PART_SECOND_HOP);
    assert_int_equal(mics_part_of(MICS_STEP_REPLICA_GATHER), MICS_PART_SECOND_HOP);
}

// Computation runs at 1 / (1 + slowdown) while the gather lasts.
static void test_slowdown(void **state)
{
    (void)state;
    world w;
    world_open(&w, 1, 4, (mics_sharding){4, 4, 4});
    w.cluster.tiers[0].slowdown = 0.5;
    mics_step steps[] = {
        hand_gather(MICS_STEP_GATHER, MICS_STREAM_INTRA, MICS_AXIS_PARTITION, 2000),
        hand_step(MICS_STEP_FORWARD, MICS_STREAM_COMPUTE, 1)};
    const mics_simulation *s = hand_simulate(&w, steps, 2, NULL);
    const double gather = alone(s, MICS_STEP_GATHER), forward = alone(s, MICS_STEP_FORWARD);
    assert_true(gather < forward);
    assert_close("step", s->step_us, gather + (forward - gather / 1.5), tight);
    world_close(&w);
}

// A gather is late while its members compute, and goes on at full speed when they have done.
static void test_messages_are_late_beside_computation(void **state)
{
    (void)state;
    world w;
    world_open(&w, 1, 4, (mics_sharding){4, 4, 4});
    w.cluster.tiers[0].beside_us_per_byte = mics_curve_constant(1e-2);
    mics_step steps[] = {
        hand_gather(MICS_STEP_GATHER, MICS_STREAM_INTRA, MICS_AXIS_PARTITION, 40000000),
        hand_step(MICS_STEP_FORWARD, MICS_STREAM_COMPUTE, 1)};
    const mics_simulation *s = hand_simulate(&w, steps, 2, NULL);
    const mics_cost_use use = collective_use(w.schedule, &w.cluster, &plain, &steps[0]);
    const double forward = alone(s, MICS_STEP_FORWARD), late = use.beside_us / use.us;
    assert_true(late > 2 && use.us > forward);
    assert_close("forward", duration(s, 1), forward, tight);
    assert_close("gather", duration(s, 0), forward + (use.us - forward / late), tight);
    world_close(&w);
}

// ---- links ----

// A gather inside nodes and one over all, which passes nodes as well, on 2 nodes of 4.
static const mics_simulation *two_gathers(world *w, mics_cost_use *intra, mics_cost_use *inter)
{
    mics_step steps[] = {
        hand_node_gather(100000),
        hand_gather(MICS_STEP_PARAM_SYNC, MICS_STREAM_INTER, MICS_AXIS_ISLAND, 80000)};
    const mics_simulation *s = hand_simulate(w, steps, 2, NULL);
    *intra = collective_use(w->schedule, &w->cluster, &plain, &steps[0]);
    *inter = collective_use(w->schedule, &w->cluster, &plain, &steps[1]);
    return s;
}

// They slow each other by what both want of the nodes' links, until the first ends.
static void test_links_are_shared(void **state)
{
    (void)state;
    world w;
    mics_cost_use intra, inter;
    world_open(&w, 2, 4, (mics_sharding){4, 4, 8});
    const mics_simulation *s = two_gathers(&w, &intra, &inter);
    assert_true(intra.busy_us[1] == 0 && inter.busy_us[0] > 0 && inter.busy_us[1] > 0);
    const double crowd = intra.busy_us[0] / intra.us + inter.busy_us[0] / inter.us;
    assert_true(crowd > 1.05 && intra.us < inter.us);
    assert_close("intra", duration(s, 0), intra.us * crowd, tight);
    assert_close("inter", duration(s, 1), intra.us * crowd + (inter.us - intra.us), tight);
    world_close(&w);
}

// Shares that add up to less than 1 leave both as they are.
static void test_links_with_bandwidth_to_spare(void **state)
{
    (void)state;
    world w;
    mics_cost_use intra, inter;
    world_open(&w, 2, 4, (mics_sharding){4, 4, 8});
    w.cluster.tiers[0].bytes_per_s = 100e9; // a rank moves no more than before
    const mics_simulation *s = two_gathers(&w, &intra, &inter);
    assert_true(intra.busy_us[0] > 0 && inter.busy_us[0] > 0);
    assert_close("intra", duration(s, 0), intra.us, tight);
    assert_close("inter", duration(s, 1), inter.us, tight);
    world_close(&w);
}

// ---- compressed sums ----

// Each of 2 nodes x 4 ranks sends 7 blocks: 3 inside the node, 4 beyond, 16 over each node's link
// at once.
static void test_compressed_sums_are_sent_directly(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 4, (mics_sharding){1, 1, 8});
    w.cluster.accelerator.memory_bytes_per_s = INFINITY; // compressing takes no time
    w.cluster.accelerator.launch_us = 0;
    world_reschedule(&w);
    mics_step step = hand_gather(MICS_STEP_SCATTER, MICS_STREAM_INTER, MICS_AXIS_OPTIMIZER, 720);
    step.algorithm = MICS_ALGORITHM_DIRECT;
    step.dtype.sent = MICS_COMM_BF16;
    const mics_cost_use use = collective_use(w.schedule, &w.cluster, &plain, &step);
    assert_close("bytes inside", use.bytes[0], 3 * 720, tight);
    assert_close("bytes between", use.bytes[1], 16 * 720, tight);
    const double inside = 2 + 720 / 200.0, between = 10 + 4 * 720 / 72.0;
    assert_close("time", use.us, 3 * inside + 4 * between + w.cluster.collective_us, tight);
    const mics_bytes sent = mics_schedule_step_bytes(w.schedule, &step, 0);
    assert_int_equal(sent.intra, 3 * 720);
    assert_int_equal(sent.inter, 4 * 720);
    world_close(&w);
}

// A sum in chunks begins anew for each; its bytes stay.
static void test_sums_in_chunks(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 4, (mics_sharding){1, 1, 8});
    w.cluster.accelerator.memory_bytes_per_s = INFINITY;
    w.cluster.accelerator.launch_us = 0;
    world_reschedule(&w);
    mics_step step = hand_gather(MICS_STEP_SCATTER, MICS_STREAM_INTER, MICS_AXIS_OPTIMIZER, 768);
    step.algorithm = MICS_ALGORITHM_DIRECT;
    const mics_cost_use whole = collective_use(w.schedule, &w.cluster, &plain, &step);
    w.schedule->spec.sum_chunk_elems = 64; // of 192
    const mics_cost_use chunks = collective_use(w.schedule, &w.cluster, &plain, &step);
    const double begun = 2 * (3 * 2 + 4 * 10 + w.cluster.collective_us);
    assert_true(fabs(chunks.bytes[1] - whole.bytes[1]) < 1e-6);
    assert_true(fabs(chunks.us - whole.us - begun) < 1e-6);
    world_close(&w);
}

// All-to-alls of one unit each take what their own size does.
static void test_exchanges_of_several_sizes(void **state)
{
    (void)state;
    world w;
    world_open(&w, 1, 4, (mics_sharding){4, 4, 4});
    w.cluster.accelerator.launch_us = 0;
    mics_step steps[4];
    for (int i = 0; i < 4; i++) {
        steps[i] = hand_gather(MICS_STEP_ALL_TO_ALL, MICS_STREAM_INTRA, MICS_AXIS_ISLAND,
                               i % 2 == 0 ? 4096 : 1 << 20);
        steps[i].algorithm = MICS_ALGORITHM_DIRECT;
    }
    const mics_simulation *s = hand_simulate(&w, steps, 4, &plain);
    for (int i = 0; i < 4; i++) {
        const double us = s->times[i].end_us - s->times[i].begin_us;
        assert_true(fabs(us - collective_use(w.schedule, &w.cluster, &plain, &steps[i]).us) < 1e-6);
    }
    world_close(&w);
}

// ---- cores ----

// 4 ranks on 2 cores compute at half speed; with two threads each, at a quarter; on 8 cores as if
// alone.
static void test_computation_shares_cores(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 2, (mics_sharding){2, 2, 2});
    mics_step steps[] = {hand_step(MICS_STEP_FORWARD, MICS_STREAM_COMPUTE, 1)};
    w.cluster.cores = 2;
    const mics_simulation *s = hand_simulate(&w, steps, 1, NULL);
    assert_close("halves", s->step_us, 2 * alone(s, MICS_STEP_FORWARD), tight);
    w.spec.batch.threads = 2;
    world_reschedule(&w);
    s = hand_simulate(&w, steps, 1, NULL);
    assert_close("quarters", s->step_us, 4 * alone(s, MICS_STEP_FORWARD), tight);
    w.cluster.cores = 8;
    s = hand_simulate(&w, steps, 1, NULL);
    assert_true(s->step_us == alone(s, MICS_STEP_FORWARD));
    world_close(&w);
}

// A gather whose threads want little of a core gets that, and computation the rest; one that wants
// a lot gets an equal share. 4 ranks on 2 cores, 8 threads.
static void test_cores_are_shared_fairly(void **state)
{
    (void)state;
    static const double core_us_per_byte[] = {0.0005, 0.004};
    for (int i = 0; i < 2; i++) {
        world w;
        world_open(&w, 2, 2, (mics_sharding){2, 2, 2});
        w.cluster.cores = 2;
        w.cluster.tiers[0].core_us_per_byte = core_us_per_byte[i];
        mics_step steps[] = {hand_node_gather(2000),
                             hand_step(MICS_STEP_FORWARD, MICS_STREAM_COMPUTE, 1)};
        const mics_simulation *s = hand_simulate(&w, steps, 2, NULL);
        const mics_cost_use use = collective_use(w.schedule, &w.cluster, &plain, &steps[0]);
        const double wants = use.core_us / use.us, forward = alone(s, MICS_STEP_FORWARD);
        assert_true(i == 0 ? wants > 0.01 && wants < 0.25 : wants > 0.25);
        const double gather = i == 0 ? use.us : use.us * wants / 0.25;
        const double rate = i == 0 ? (2 - 4 * wants) / 4 : 0.25;
        assert_close("gather", duration(s, 0), gather, tight);
        assert_close("forward", duration(s, 1), gather + (forward - gather * rate) / 0.5, tight);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flops_are_the_schedules),
        cmocka_unit_test(test_a_layer_by_hand),
        cmocka_unit_test(test_one_rank_is_a_sum),
        cmocka_unit_test(test_updates_are_compared),
        cmocka_unit_test(test_communication_bound),
        cmocka_unit_test(test_computation_bound),
        cmocka_unit_test(test_overlap_is_the_maximum),
        cmocka_unit_test(test_kinds_have_parts),
        cmocka_unit_test(test_slowdown),
        cmocka_unit_test(test_messages_are_late_beside_computation),
        cmocka_unit_test(test_links_are_shared),
        cmocka_unit_test(test_links_with_bandwidth_to_spare),
        cmocka_unit_test(test_compressed_sums_are_sent_directly),
        cmocka_unit_test(test_sums_in_chunks),
        cmocka_unit_test(test_exchanges_of_several_sizes),
        cmocka_unit_test(test_computation_shares_cores),
        cmocka_unit_test(test_cores_are_shared_fairly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
