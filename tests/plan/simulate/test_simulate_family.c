// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The whole family of shardings, simulated: what must hold of every schedule on every cluster.
#include "machines.h"
#include "mics/core/ledger.h"
#include <stdlib.h>

typedef struct setting {
    int32_t nodes, per_node;
    mics_sharding sharding;
    int32_t micro_steps, prefetch;
    bool hierarchical, recompute, slow_chip, offload;
    mics_precision precision;
    mics_comm_dtype gather, reduce, second_hop;
    int32_t cores;
    double slowdown;
} setting;

static void setting_open(const setting *want, world *w)
{
    world_open(w, want->nodes, want->per_node, want->sharding);
    w->spec.micro_steps = want->micro_steps;
    w->spec.prefetch = want->prefetch;
    w->spec.recompute = mics_recompute_all(want->recompute);
    w->spec.offload_units = want->offload; // all that can be
    w->spec.precision = want->precision;
    w->spec.params_dtype = mics_comm_dtypes_both(want->gather);
    w->spec.grads_dtype = mics_comm_dtypes_both(want->reduce);
    w->spec.boundary_dtype = mics_comm_dtypes_both(want->second_hop);
    w->spec.gather = w->spec.reduce =
        want->hierarchical ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING;
    w->cluster.cores = want->cores;
    w->cluster.tiers[0].core_us_per_byte = w->cluster.tiers[1].core_us_per_byte = 0.002;
    w->cluster.tiers[0].slowdown = w->cluster.tiers[1].slowdown = want->slowdown;
    if (want->slow_chip)
        w->cluster.accelerator.flops_per_s[MICS_MATH_FP32] /= 20;
}

// Every chain of degrees on some meshes, with the other settings drawn by `index`.
static const int32_t meshes[][2] = {{1, 1}, {1, 4}, {2, 1}, {2, 2}, {2, 4}, {4, 2}, {8, 1}};
enum { MESHES = sizeof meshes / sizeof meshes[0] };

static void draw(setting *s, int32_t index)
{
    s->micro_steps = 1 + index % 3;
    s->prefetch = index / 2 % 4;
    s->hierarchical = index % 2 == 1;
    s->recompute = index / 4 % 2 == 1;
    s->offload = index % 4 == 1;
    s->slow_chip = index / 3 % 2 == 1;
    s->precision = index % 5 == 4 ? MICS_PRECISION_MIXED : MICS_PRECISION_FP32;
    s->gather = index % 7 == 3 ? MICS_COMM_BF16 : MICS_COMM_FP32;
    s->reduce = index % 7 == 5 ? MICS_COMM_BF16 : MICS_COMM_FP32;
    s->second_hop = (mics_comm_dtype)(index % 11 <= MICS_COMM_INT8 ? index % 11 : MICS_COMM_FP32);
    if (s->nodes > 1 && s->per_node > 2) // packed sums may send more than whole ones: refused
        s->reduce = s->second_hop = MICS_COMM_FP32;
    s->cores = index % 4 == 2 ? 2 : 0;
    s->slowdown = index % 3 == 1 ? 0.2 : 0;
}

static void for_each_setting(void (*check)(const setting *s))
{
    int32_t index = 0;
    for (int m = 0; m < 4 * MESHES; m++) { // four times, each time with other settings
        const int32_t nodes = meshes[m % MESHES][0], per_node = meshes[m % MESHES][1];
        const int32_t ranks = nodes * per_node;
        for (int32_t p = 1; p <= ranks; p *= 2) {
            for (int32_t g = p; g <= ranks; g *= 2) {
                for (int32_t o = g; o <= ranks; o *= 2) {
                    setting s = {.nodes = nodes, .per_node = per_node, .sharding = {p, g, o}};
                    draw(&s, index++);
                    check(&s);
                }
            }
        }
    }
    assert_true(index > 300);
}

// ---- what must hold of times ----

static void check_order(const world *w, const mics_simulation *s)
{
    const mics_step_list *list = &w->schedule->lists[MICS_PHASE_TRAIN];
    const mics_step_time *times = s->times;
    double end[MICS_STREAMS] = {0};
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        assert_true(times[i].begin_us >= end[step->stream]);
        assert_true(times[i].end_us >= times[i].begin_us);
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            if (step->wait[stream] >= 0)
                assert_true(times[i].begin_us >= times[step->wait[stream]].end_us);
        }
        end[step->stream] = times[i].end_us;
    }
}

static void check_sums(const world *w, const mics_simulation *s)
{
    double critical = 0, exposed = 0, busy = 0, alone = 0;
    int32_t steps = 0;
    for (int kind = 0; kind < MICS_STEP_KINDS * MICS_STAGES; kind++) {
        const mics_simulated_kind *k = &s->kinds[kind / MICS_STAGES][kind % MICS_STAGES];
        critical += k->critical_us;
        exposed += k->exposed_us;
        busy += k->busy_us;
        alone += k->alone_us;
        steps += k->steps;
        assert_true(k->busy_us >= k->alone_us * (1 - 1e-9));
        assert_true(k->critical_us <= k->busy_us * (1 + 1e-9));
    }
    assert_int_equal(steps, w->schedule->lists[MICS_PHASE_TRAIN].count);
    assert_close("critical", critical + s->overhead_us, s->step_us, 1e-9);
    assert_close("exposed", exposed, s->exposed_us, 1e-9);
    assert_close("parts", s->compute_us + s->exposed_us + s->overhead_us, s->step_us, 1e-9);
    assert_close("streams", s->stream_us[0] + s->stream_us[1] + s->stream_us[2] + s->stream_us[3],
                 busy, 1e-9);
    assert_true(s->step_us <= busy * (1 + 1e-9) + s->overhead_us && alone <= busy * (1 + 1e-9));
}

// What passes the links is what the schedule says is sent.
static void check_bytes(const world *w, const mics_simulation *s)
{
    const mics_bytes all = mics_schedule_all_bytes(w->schedule, MICS_PHASE_TRAIN);
    const mics_mesh *mesh = &w->spec.mesh;
    const int32_t nodes = mesh->ranks / mesh->ranks_per_node;
    assert_int_equal(s->sent.intra, all.intra);
    assert_int_equal(s->sent.inter, all.inter);
    assert_close("between nodes", s->tier_bytes[1] * nodes, (double)all.inter, 1e-12);
    assert_true(s->tier_bytes[0] * mesh->ranks >= (double)all.intra * (1 - 1e-12));
    if (mesh->ranks_per_node == 1)
        assert_true(s->tier_bytes[0] == 0);
}

static void check_setting(const setting *want)
{
    world w;
    setting_open(want, &w);
    w.cluster.step_overhead_us = 5;
    const mics_simulation *s = world_simulate(&w, NULL);
    check_order(&w, s);
    check_sums(&w, s);
    check_bytes(&w, s);
    world_close(&w);
}

static void test_every_sharding(void **state)
{
    (void)state;
    for_each_setting(check_setting);
}

// ---- another simulator ----

// Steps name earlier steps only, so without anything shared one walk along the list gives all times.
static double walk(const world *w, const mics_simulation *s)
{
    const mics_step_list *list = &w->schedule->lists[MICS_PHASE_TRAIN];
    double end[MICS_STREAMS] = {0}, last = 0;
    double *ends = calloc((size_t)list->count, sizeof *ends);
    assert_non_null(ends);
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        const mics_step_time t = s->times[i];
        double begin = end[step->stream];
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            if (step->wait[stream] >= 0)
                begin = fmax(begin, ends[step->wait[stream]]);
        }
        assert_close("begins", t.begin_us, begin, 1e-9);
        ends[i] = end[step->stream] = begin + (t.end_us - t.begin_us);
        last = fmax(last, ends[i]);
    }
    free(ends);
    return last;
}

// Each step begins as early as it may, whatever is shared; where nothing is, it takes what it takes alone.
static void check_walk(const setting *want)
{
    world w;
    setting_open(want, &w);
    const mics_simulation *s = world_simulate(&w, NULL);
    assert_close("walk", s->step_us, walk(&w, s), 1e-9);
    w.cluster.cores = 0;
    w.cluster.tiers[0].slowdown = w.cluster.tiers[1].slowdown = 0;
    w.cluster.tiers[0].bytes_per_s *= 1000; // ranks move no more than before
    w.cluster.tiers[1].bytes_per_s *= 1000;
    s = world_simulate(&w, NULL);
    for (int kind = 0; kind < MICS_STEP_KINDS * MICS_STAGES; kind++)
        assert_close("alone", s->kinds[kind / MICS_STAGES][kind % MICS_STAGES].busy_us,
                     s->kinds[kind / MICS_STAGES][kind % MICS_STAGES].alone_us, 1e-9);
    world_close(&w);
}

static void test_steps_begin_at_once(void **state)
{
    (void)state;
    for_each_setting(check_walk);
}

// ---- what must grow with what ----

static void check_growth(const setting *want)
{
    world w;
    setting_open(want, &w);
    const double before = world_simulate(&w, NULL)->step_us;
    for (int change = 0; change < 5; change++) {
        const mics_cluster cluster = w.cluster;
        const int t = change % 2;
        if (change < 2) {
            w.cluster.tiers[t].bytes_per_s *= 3;
            w.cluster.tiers[t].rank_bytes_per_s *= 3;
        } else if (change < 4) {
            w.cluster.tiers[t].latency_us = 0;
        } else {
            w.cluster.accelerator.flops_per_s[MICS_MATH_FP32] *= 3;
        }
        // What ends earlier may meet something else on a shared link or core: a few per cent.
        const double after = world_simulate(&w, NULL)->step_us;
        if (!(after <= before * 1.03))
            fail_msg("%d nodes of %d, P|G|O %d|%d|%d, change %d: %g us, before %g",
                     (int)want->nodes, (int)want->per_node, (int)want->sharding.params,
                     (int)want->sharding.grads, (int)want->sharding.optimizer, change, after,
                     before);
        w.cluster = cluster;
    }
    world_close(&w);
}

static void test_faster_parts_are_not_slower(void **state)
{
    (void)state;
    for_each_setting(check_growth);
}

// More nodes with the same work each: zero3's step grows with them, and so does what leaves a node.
static void test_more_nodes_are_not_faster(void **state)
{
    (void)state;
    double before = 0;
    for (int32_t nodes = 1; nodes <= 16; nodes *= 2) {
        world w;
        world_open(&w, nodes, 2, (mics_sharding){2 * nodes, 2 * nodes, 2 * nodes});
        const double after = world_simulate(&w, NULL)->step_us;
        assert_true(after > before);
        before = after;
        world_close(&w);
    }
}

// ---- two stages against rings ----

static double collectives_us(world *w, mics_algorithm gather, mics_algorithm reduce)
{
    w->spec.gather = gather;
    w->spec.reduce = reduce;
    world_reschedule(w);
    return world_simulate(w, NULL)->step_us;
}

// Links inside a node are some twice as fast as a node's network, which computation keeps busy in
// part (variant 0) or all of the time. In two stages fewer bytes go between nodes, so both gathers
// and sums in two stages are the fastest of the four ways.
static void test_two_stages_are_fastest(void **state)
{
    (void)state;
    static const mics_algorithm ring = MICS_ALGORITHM_RING, two = MICS_ALGORITHM_TWO_STAGE;
    for (int variant = 0; variant < 12; variant++) {
        world w;
        world_open(&w, 4, 4, (mics_sharding){16, 16, 16});
        mics_model_close(w.model);
        w.spec.model = w.model = model_gpt2(w.memory, 12, true);
        w.spec.micro_steps = 4;
        w.spec.prefetch = 1 + variant % 3;
        w.cluster.pipelined = true;
        w.cluster.rings = 4;
        w.cluster.accelerator.flops_per_s[MICS_MATH_FP32] *= 4 << (variant / 3);
        w.cluster.tiers[0].latency_us = w.cluster.tiers[1].latency_us = 0.1;
        const double rings = collectives_us(&w, ring, ring);
        const double gathers = collectives_us(&w, two, ring), sums = collectives_us(&w, ring, two);
        const double both = collectives_us(&w, two, two);
        if (both > 1.001 * fmin(rings, fmin(gathers, sums)))
            fail_msg("variant %d: two stages take %.0f us; rings %.0f, of gathers %.0f, of sums "
                     "%.0f",
                     variant, both, rings, sums, gathers);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sharding),
        cmocka_unit_test(test_steps_begin_at_once),
        cmocka_unit_test(test_faster_parts_are_not_slower),
        cmocka_unit_test(test_more_nodes_are_not_faster),
        cmocka_unit_test(test_two_stages_are_fastest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
