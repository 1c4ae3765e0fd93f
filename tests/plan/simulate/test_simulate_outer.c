// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps on clocks: which steps run, the mean of a period, and what it goes to.
#include "machines.h"
#include "mics/core/ledger.h"

// Islands of a node.
static void world_open_islands(world *w, int32_t nodes, mics_sharding sharding, mics_outer outer)
{
    world_open(w, nodes, 2, sharding);
    if (nodes > 1)
        ASSERT_OK(mics_mesh_part_islands(&w->spec.mesh, 2));
    w->spec.outer = nodes > 1 ? outer : (mics_outer){0};
}

static double mean_us(world *w, mics_simulation **mean_out)
{
    mics_simulation *mean = NULL;
    if (w->schedule == NULL)
        world_reschedule(w);
    ASSERT_OK(mics_simulate_period(w->memory, w->schedule, &w->cluster, NULL, &mean));
    const double us = mean->step_us;
    if (mean_out != NULL)
        *mean_out = mean;
    else
        mics_simulation_close(mean);
    return us;
}

static double meeting_exposed_us(const mics_simulation *s)
{
    double us = 0;
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        if (mics_part_of((mics_step_kind)(i / MICS_STAGES)) == MICS_PART_MEETING)
            us += s->kinds[i / MICS_STAGES][i % MICS_STAGES].exposed_us;
    }
    return us;
}

static const mics_outer forms[] = {
    {.every = 5, .fragments = 1},
    {.every = 6, .fragments = 2, .overlap_steps = 1},
    {.every = 8, .fragments = 1, .overlap_steps = 4},
    {.every = 4, .fragments = 3, .overlap_steps = 2, .dtype = MICS_COMM_BF16},
    {.every = 3, .fragments = 1, .moments_every = 3},
    {.every = 4, .fragments = 2, .overlap_steps = 2, .moments_every = 2},
    {.every = 1, .fragments = 1, .overlap_steps = 1, .moments_every = 1},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

static const mics_sharding shardings[] = {{1, 1, 1}, {2, 2, 2}, {1, 2, 2}};

// Against each training step of the period simulated by itself: times, and how many steps ran.
static void test_mean_is_of_all_steps(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        for (size_t s = 0; s < sizeof shardings / sizeof shardings[0]; s++) {
            world w;
            mics_simulation *mean = NULL;
            world_open_islands(&w, 3, shardings[s], forms[form]);
            world_reschedule(&w);
            const mics_step_list *list = &w.schedule->lists[MICS_PHASE_TRAIN];
            const int32_t period = mics_schedule_period(w.schedule);
            double step_us = 0, exposed_us = 0, meeting_us = 0;
            int32_t met = 0;
            for (int64_t number = 2; number < 2 + period; number++) {
                const mics_simulate_options at = {.number = number};
                const mics_simulation *one = world_simulate(&w, &at);
                int32_t ran = 0, due = 0;
                for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++)
                    ran += one->kinds[i / MICS_STAGES][i % MICS_STAGES].steps;
                for (int32_t i = 0; i < list->count; i++) {
                    due += mics_step_is_due(&list->steps[i], number);
                    met += mics_step_is_due(&list->steps[i], number) &&
                           mics_step_meets(&list->steps[i]);
                }
                assert_int_equal(ran, due);
                step_us += one->step_us / period;
                exposed_us += one->exposed_us / period;
                meeting_us += meeting_exposed_us(one) / period;
            }
            assert_true(met > 0);
            assert_close("step", mean_us(&w, &mean), step_us, 1e-9);
            assert_close("exposed", mean->exposed_us, exposed_us, 1e-9);
            assert_close("exposed meeting", meeting_exposed_us(mean), meeting_us, 1e-9);
            assert_close("sum", mean->compute_us + mean->exposed_us + mean->overhead_us, step_us,
                         1e-9);
            const mics_bytes sent = mics_schedule_meeting_bytes(w.schedule);
            assert_int_equal(mean->met.inter, sent.inter);
            assert_true(sent.inter > 0);
            mics_simulation_close(mean);
            world_close(&w);
        }
    }
}

// What goes through the links is what the ledgers count: the same for each node, as islands are of a node.
static void test_links_carry_what_is_counted(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        for (size_t s = 0; s < sizeof shardings / sizeof shardings[0]; s++) {
            world w;
            mics_simulation *mean = NULL;
            world_open_islands(&w, 4, shardings[s], forms[form]);
            mean_us(&w, &mean);
            const double period = mics_schedule_period(w.schedule);
            const mics_bytes met = mics_schedule_meeting_bytes(w.schedule);
            const mics_bytes sent = mics_schedule_all_bytes(w.schedule, MICS_PHASE_TRAIN);
            assert_close("bytes of a period and node", mean->tier_bytes[1] * period,
                         ((double)met.inter + period * (double)sent.inter) / 4, 1e-12);
            mics_simulation_close(mean);
            world_close(&w);
        }
    }
}

// Without local steps a period is one step, with the same bits.
static void test_one_island_is_as_ever(void **state)
{
    (void)state;
    world w;
    mics_simulation *mean = NULL;
    world_open_islands(&w, 1, (mics_sharding){2, 2, 2}, forms[0]);
    const mics_simulation *one = world_simulate(&w, NULL);
    assert_true(mean_us(&w, &mean) == one->step_us);
    assert_true(mean->exposed_us == one->exposed_us && mean->compute_us == one->compute_us);
    assert_int_equal(mean->met.inter + mean->met.intra, 0);
    mics_simulation_close(mean);
    world_close(&w);
}

// The fewer meetings, the closer to nodes apart: what is left is what islands tell each other.
static void test_rare_meetings_are_nodes_apart(void **state)
{
    (void)state;
    world alone, w;
    world_open(&alone, 1, 2, (mics_sharding){2, 2, 2});
    const double apart_us = world_simulate(&alone, NULL)->step_us;
    double before_us = INFINITY;
    for (int32_t every = 1; every <= 1000000; every *= 10) {
        world_open_islands(&w, 4, (mics_sharding){2, 2, 2},
                           (mics_outer){.every = every, .fragments = 1});
        const double us = mean_us(&w, NULL);
        assert_true(us < before_us && us >= apart_us);
        before_us = us;
        if (every == 1000000) {
            const mics_simulation *plain = world_simulate(&w, NULL);
            assert_close("without meetings", us, plain->step_us, 1e-5);
            assert_close("nodes apart", us, apart_us, 0.01);
        }
        world_close(&w);
    }
    world_close(&alone);
}

// What overlaps is waited for less, and the step is the shorter for it, the more steps share it.
static void test_overlap_hides_meetings(void **state)
{
    (void)state;
    double exposed_us[3], step_us[3];
    static const int32_t overlaps[] = {0, 1, 5};
    for (int i = 0; i < 3; i++) {
        world w;
        mics_simulation *mean = NULL;
        world_open_islands(&w, 4, (mics_sharding){2, 2, 2},
                           (mics_outer){.every = 10, .fragments = 1, .overlap_steps = overlaps[i]});
        w.cluster.tiers[1].bytes_per_s = 1e6; // a meeting takes longer than two steps
        step_us[i] = mean_us(&w, &mean);
        exposed_us[i] = meeting_exposed_us(mean);
        mics_simulation_close(mean);
        world_close(&w);
    }
    // Of a meeting of more than two steps one step hides what it computes, and five all but their ends.
    assert_true(exposed_us[1] < 0.8 * exposed_us[0] && exposed_us[1] > 0.5 * exposed_us[0]);
    assert_true(exposed_us[2] < 0.1 * exposed_us[0]);
    assert_true(step_us[0] > step_us[1] && step_us[1] > step_us[2]);
}

// A stream passes over what is not due, and who waits for that waits for what is before it.
static void test_steps_not_due_are_passed_over(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, 2, (mics_sharding){2, 2, 2});
    mics_step steps[] = {
        hand_node_gather(20000),
        hand_node_gather(60000),
        hand_step(MICS_STEP_FORWARD, MICS_STREAM_COMPUTE, 1),
    };
    steps[1].unit = 2;
    steps[1].period = 4; // the meeting of training step 4
    steps[1].offset = 3;
    steps[2].wait[MICS_STREAM_INTRA] = 1;
    const mics_simulate_options due = {.number = 4}, other = {.number = 5};
    const mics_simulation *s = hand_simulate(&w, steps, 3, &due);
    const double first_us = s->times[0].end_us;
    assert_close("waits for it", s->times[2].begin_us, s->times[1].end_us, 1e-12);
    assert_true(s->times[1].end_us > 2 * first_us);
    s = hand_simulate(&w, steps, 3, &other);
    assert_close("waits for what is before", s->times[2].begin_us, first_us, 1e-12);
    assert_true(s->times[1].end_us == 0);
    assert_int_equal(s->kinds[MICS_STEP_GATHER][MICS_STAGE_INTRA].steps, 1);
    world_close(&w);
}

// A meeting of one node's ranks: what they read and write is what the memory's rate says, and the sum and
// the gather are rings over the nodes.
static void test_meeting_costs(void **state)
{
    (void)state;
    world w;
    mics_simulation *mean = NULL;
    world_open_islands(&w, 4, (mics_sharding){2, 2, 2}, (mics_outer){.every = 1, .fragments = 1});
    w.cluster.accelerator.launch_us = 0;
    mean_us(&w, &mean);
    double change_us = 0, update_us = 0, adopt_us = 0, ring_us = 0;
    for (int32_t u = 0; u < w.model->unit_count; u++) {
        const double elems = (double)w.schedule->padded_elems[u];
        const double us = elems * 4 / w.cluster.accelerator.memory_bytes_per_s * 1e6;
        const mics_collective gather = {
            .kind = MICS_COLLECTIVE_ALL_GATHER,
            .group = mics_mesh_group(&w.spec.mesh, MICS_AXIS_OUTER, MICS_SCOPE_WHOLE, 0),
            .block_bytes = 4 * elems / 8};
        change_us += 3 * us / 2;
        update_us += 4 * us / 8;
        adopt_us += 4 * us / 2;
        ring_us += mics_cost_collective(&w.cluster, 8, &gather).us;
    }
    const double share = w.cluster.accelerator.memory_efficiency > 0
                             ? 1 / w.cluster.accelerator.memory_efficiency
                             : 1;
    mics_simulated_kind(*kinds)[MICS_STAGES] = mean->kinds;
    assert_close("change", kinds[MICS_STEP_MEET_CHANGE][0].alone_us, share * change_us, 1e-6);
    assert_close("outer step", kinds[MICS_STEP_MEET_UPDATE][0].alone_us, share * update_us, 1e-6);
    assert_close("adoption", kinds[MICS_STEP_MEET_ADOPT][0].alone_us, share * adopt_us, 1e-6);
    assert_close("gather", kinds[MICS_STEP_MEET_GATHER][0].alone_us, ring_us, 1e-9);
    assert_true(kinds[MICS_STEP_MEET_SPREAD][0].alone_us == 0);
    mics_simulation_close(mean);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_is_of_all_steps),
        cmocka_unit_test(test_links_carry_what_is_counted),
        cmocka_unit_test(test_one_island_is_as_ever),
        cmocka_unit_test(test_rare_meetings_are_nodes_apart),
        cmocka_unit_test(test_overlap_hides_meetings),
        cmocka_unit_test(test_steps_not_due_are_passed_over),
        cmocka_unit_test(test_meeting_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
