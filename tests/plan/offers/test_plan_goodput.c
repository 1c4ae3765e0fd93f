// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Goodput of plans: seconds from bytes and rates by hand, failures by machine, what the run file
// says, spot nodes, and what days and money become.
#include "plan/offers/planning.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char work[] = "/tmp/mics-goodput-XXXXXX";

static const double hours_s = 3600, host_bytes_per_s = 4e9;

static void assert_within(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected)))
        fail_msg("%.12g is not %.12g within %g", value, expected, share);
}

static mics_plan *open_plan(mics_memory *memory, const char *cluster, const char *set)
{
    const char *sets[] = {set};
    const mics_plan_spec spec = {
        .file = "model.json", .cluster = cluster, .sets = sets, .set_count = set != NULL ? 1 : 0};
    mics_plan *plan = NULL;
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    return plan;
}

static mics_plan_entry entry_of(int32_t params, int32_t optimizer)
{
    return (mics_plan_entry){.choice = {.sharding = {params, params, optimizer}},
                             .step_us = 10e6,
                             .tokens = 1e6,
                             .tokens_per_s = 1e5};
}

// ---- seconds ----

static void test_seconds(void **state)
{
    mics_plan *plan = open_plan(*state, "p4d.24xlarge:2", NULL);
    const double params = (double)mics_model_param_count(plan->model), bytes = 12 * params;
    const mics_plan_losses losses = {.checkpoint_bytes_per_s = 2e9, .restart_s = 100};
    const double network = 400e9 / 8 * 0.85;
    mics_plan_entry entry = entry_of(4, 16);
    mics_plan_goodput g = mics_plan_goodput_get(plan, 2, &entry, &losses);
    const double copied = bytes / 16 + params * 4 / 4;
    assert_within(g.state_bytes, bytes, 1e-12);
    const mics_plan_saves *waiting = &g.saves[MICS_PLAN_SAVE_WAITING],
                          *behind = &g.saves[MICS_PLAN_SAVE_BEHIND],
                          *memory = &g.saves[MICS_PLAN_SAVE_MEMORY];
    assert_within(waiting->blocked_s, copied / host_bytes_per_s + bytes / 4e9, 1e-9);
    assert_true(waiting->write_s == 0);
    // Each node reads its half; each rank its 1 / 16.
    const double read_s = bytes / 2 / 2e9 + bytes / 16 / host_bytes_per_s;
    assert_within(waiting->restart_s, 100 + read_s, 1e-12);
    assert_within(behind->blocked_s, (copied + bytes / 16) / host_bytes_per_s, 1e-9);
    assert_within(behind->write_s, bytes / 4e9, 1e-9);
    // O = n: the partner's copy of a node's half crosses the network, and is written too.
    const double file_s = bytes / 2 / 8 / host_bytes_per_s;
    assert_within(memory->blocked_s, copied / host_bytes_per_s + 2 * file_s + bytes / 2 / network,
                  1e-9);
    assert_within(memory->restart_s, 100 + bytes / 2 / network + bytes / 16 / host_bytes_per_s,
                  1e-12);
    // O = 8: both nodes have the whole state, and nothing crosses.
    entry = entry_of(4, 8);
    g = mics_plan_goodput_get(plan, 2, &entry, &losses);
    assert_within(g.saves[MICS_PLAN_SAVE_MEMORY].blocked_s,
                  (bytes / 8 + params + bytes / 8) / host_bytes_per_s, 1e-9);
    // One node's memory is lost with it.
    assert_false(
        mics_plan_goodput_get(plan, 1, &entry, &losses).saves[MICS_PLAN_SAVE_MEMORY].possible);
    mics_plan_close(plan);
}

// Checkpoints have what trains; frozen weights are read from the model's files, in 16 bits, or come
// from other nodes.
static void test_frozen_weights_are_read_again(void **state)
{
    mics_plan *plan = open_plan(*state, "p4d.24xlarge:2", "adapter.r=4");
    const double trained = (double)mics_model_trained_count(plan->model), bytes = 12 * trained;
    const double frozen = 2 * ((double)mics_model_param_count(plan->model) - trained);
    const mics_plan_losses losses = {.checkpoint_bytes_per_s = 2e9, .restart_s = 100};
    const mics_plan_entry entry = entry_of(16, 16);
    const mics_plan_goodput g = mics_plan_goodput_get(plan, 2, &entry, &losses);
    const double rank_s = bytes / 16 / host_bytes_per_s;
    assert_true(frozen > 10 * bytes);
    assert_within(g.state_bytes, bytes, 1e-12);
    assert_within(g.saves[MICS_PLAN_SAVE_BEHIND].restart_s,
                  100 + (bytes + frozen) / 2 / 2e9 + rank_s, 1e-12);
    assert_within(g.saves[MICS_PLAN_SAVE_MEMORY].restart_s,
                  100 + (bytes + frozen) / 2 / (400e9 / 8 * 0.85) + rank_s, 1e-12);
    mics_plan_close(plan);
}

// ---- failures ----

static void test_failures(void **state)
{
    static const struct {
        const char *cluster, *source;
        double per_node_day;
    } cases[] = {{"p4d.24xlarge:4", "published", 8 * 0.00064},
                 {"p5.48xlarge:4", "published", 419 / 54.0 / 2048},
                 {"p3dn.24xlarge:4", "assumed", 8 * 0.0005},
                 {"gb200-nvl72:4", "assumed", 72 * 0.0005}};
    const mics_plan_entry entry = entry_of(8, 8);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_plan_losses losses = {0};
        mics_plan *plan = open_plan(*state, cases[i].cluster, NULL);
        mics_plan_goodput g = mics_plan_goodput_get(plan, 4, &entry, &losses);
        assert_string_equal(g.failures_source, cases[i].source);
        assert_within(g.failures_per_node_day, cases[i].per_node_day, 0.01);
        assert_within(g.failure_hours, 24 / 4 / g.failures_per_node_day, 1e-9);
        assert_true(g.goodput.low < g.goodput.typical && g.goodput.typical < g.goodput.high);
        losses.failures_per_node_day = 0.5;
        g = mics_plan_goodput_get(plan, 4, &entry, &losses);
        assert_string_equal(g.failures_source, "given");
        assert_within(g.failure_hours, 12, 1e-9);
        assert_true(g.goodput.low >= g.goodput.high);
        // A cluster file's own figure; none at all.
        plan->cluster.failures_per_node_day = 0.25;
        losses.failures_per_node_day = 0;
        assert_within(mics_plan_goodput_get(plan, 4, &entry, &losses).failure_hours, 24, 1e-9);
        losses.failures_per_node_day = -1;
        g = mics_plan_goodput_get(plan, 4, &entry, &losses);
        assert_true(g.failure_hours == 0 && g.goodput.typical >= 1);
        mics_plan_close(plan);
    }
}

static void test_monotone(void **state)
{
    mics_plan *plan = open_plan(*state, "p4d.24xlarge:4", NULL);
    const mics_plan_entry entry = entry_of(8, 8);
    double nodes_last = 1, disk_last = 0, failures_last = 1;
    for (int32_t nodes = 1; nodes <= 4096; nodes *= 4) {
        const mics_plan_losses usual = {0},
                               slow = {.checkpoint_bytes_per_s = nodes * 1e3, .restart_s = 10},
                               bad = {.failures_per_node_day = nodes * 1e-3};
        const double by_nodes = mics_plan_goodput_get(plan, nodes, &entry, &usual).goodput.typical;
        const double by_disk = mics_plan_goodput_get(plan, 64, &entry, &slow).goodput.typical;
        const double by_failures = mics_plan_goodput_get(plan, 64, &entry, &bad).goodput.typical;
        assert_true(by_nodes < nodes_last && by_disk > disk_last && by_failures < failures_last);
        nodes_last = by_nodes;
        disk_last = by_disk;
        failures_last = by_failures;
    }
    mics_plan_close(plan);
}

static void test_simulated(void **state)
{
    mics_plan *plan = open_plan(*state, "p4d.24xlarge:4", NULL);
    const mics_plan_entry entry = entry_of(8, 8);
    const mics_plan_losses losses = {.failures_per_node_day = 0.5, .checkpoint_bytes_per_s = 1e6};
    const mics_plan_goodput g = mics_plan_goodput_get(plan, 64, &entry, &losses);
    assert_true(g.goodput.typical > 0.5 && g.goodput.typical < 0.9);
    assert_within(g.simulated, g.goodput.typical, 0.03);
    mics_plan_close(plan);
}

// ---- the run file's interval ----

static void test_own_interval(void **state)
{
    const mics_plan_entry entry = entry_of(8, 32);
    const mics_plan_losses losses = {0};
    mics_plan *plan = open_plan(*state, "p4d.24xlarge:4", NULL);
    assert_int_equal(mics_plan_goodput_get(plan, 4, &entry, &losses).file.steps, 0);
    mics_plan_close(plan);
    plan = open_plan(*state, "p4d.24xlarge:4", "run.checkpoint_every=5000");
    mics_plan_goodput g = mics_plan_goodput_get(plan, 4, &entry, &losses);
    assert_int_equal(g.saving, MICS_PLAN_SAVE_BEHIND);
    assert_int_equal(g.file.steps, 5000);
    assert_true(g.file.goodput < g.goodput.typical);
    mics_plan_close(plan);
    plan = open_plan(*state, "p4d.24xlarge:4", "run.memory_checkpoint_every=50");
    g = mics_plan_goodput_get(plan, 4, &entry, &losses);
    assert_int_equal(g.saving, MICS_PLAN_SAVE_MEMORY);
    assert_int_equal(g.file.steps, 50);
    assert_true(g.goodput.typical <= g.saves[MICS_PLAN_SAVE_MEMORY].best.goodput);
    mics_plan_close(plan);
}

// ---- spot ----

static void test_spot(void **state)
{
    mics_plan *plan = open_plan(*state, "p4d.24xlarge:16", NULL);
    const mics_plan_entry entry = entry_of(8, 8);
    const double usd = plan->cluster.usd_per_node_hour;
    mics_plan_losses losses = {0};
    assert_true(mics_plan_goodput_get(plan, 16, &entry, &losses).spot_usd_per_node_hour == 0);
    losses.spot_usd_per_node_hour = usd / 2;
    mics_plan_goodput g = mics_plan_goodput_get(plan, 16, &entry, &losses);
    assert_false(g.preemptions_known);
    assert_true(g.spot_saves_in_time && g.break_even > 0);
    // At the break-even spot nodes cost as much; with half as many preemptions they cost less.
    losses.preemptions_per_node_day = g.break_even;
    g = mics_plan_goodput_get(plan, 16, &entry, &losses);
    assert_true(g.preemptions_known);
    assert_within(g.spot_price_ratio, 1, 1e-6);
    losses.preemptions_per_node_day = g.break_even / 2;
    assert_true(mics_plan_goodput_get(plan, 16, &entry, &losses).spot_price_ratio < 1);
    losses.preemptions_per_node_day = -1; // none
    g = mics_plan_goodput_get(plan, 16, &entry, &losses);
    assert_true(g.preemptions_known);
    assert_within(g.spot_price_ratio, 0.5, 1e-9);
    // Without time to save, work is lost too.
    const double before = g.break_even;
    plan->cluster.preemption_notice_s = 0;
    g = mics_plan_goodput_get(plan, 16, &entry, &losses);
    assert_true(!g.spot_saves_in_time && g.break_even < before);
    // Each preemption is then as a failure, and saves are more frequent than on other nodes.
    losses.preemptions_per_node_day = 10;
    g = mics_plan_goodput_get(plan, 16, &entry, &losses);
    assert_true(g.spot.steps > 0 && g.spot.steps < g.saves[g.saving].best.steps);
    losses.preemptions_per_node_day = -1;
    losses.spot_usd_per_node_hour = 1.01 * usd;
    assert_true(mics_plan_goodput_get(plan, 16, &entry, &losses).break_even < 0);
    // A machine of one's own has no price to compare with.
    plan->cluster.usd_per_node_hour = 0;
    g = mics_plan_goodput_get(plan, 16, &entry, &losses);
    assert_true(g.break_even == 0 && g.spot_price_ratio == 0 && g.spot.goodput > 0);
    mics_plan_close(plan);
}

// ---- days and money ----

// From 1024 ranks on the slow end counts slow GPUs.
static void test_straggling(void **state)
{
    mics_plan *plan = open_plan(*state, "p4d.24xlarge:16", NULL);
    const mics_plan_entry entry = entry_of(8, 8);
    const mics_plan_goal goal = {0};
    const mics_plan_offer few = mics_plan_offer_get(plan, 127, &entry, &goal);
    mics_plan_offer many = mics_plan_offer_get(plan, 128, &entry, &goal);
    assert_true(few.straggling == 0 && few.step_s.high < 1.3 * few.step_s.typical);
    assert_within(many.straggling, 1.34, 1e-9);
    assert_within(many.step_s.high, 1.34 * many.step_s.typical, 1e-9);
    assert_within(many.step_s.low, few.step_s.low, 1e-9);
    // A wider range stays, and what was measured has none.
    plan->cluster.accelerator.step_high = 1.5;
    many = mics_plan_offer_get(plan, 128, &entry, &goal);
    assert_true(many.straggling == 0);
    assert_within(many.step_s.high, 1.5 * many.step_s.typical, 1e-9);
    plan->cluster.accelerator.step_low = plan->cluster.accelerator.step_high = 0;
    many = mics_plan_offer_get(plan, 128, &entry, &goal);
    assert_true(many.straggling == 0 && many.step_s.high == many.step_s.typical);
    mics_plan_close(plan);
}

static void test_offer(void **state)
{
    mics_plan *plan = open_plan(*state, "p4d.24xlarge:16", NULL);
    const mics_plan_entry entry = entry_of(8, 8);
    mics_plan_goal goal = {.tokens = 1e12, .losses = {.failures_per_node_day = 2}};
    mics_plan_offer offer = mics_plan_offer_get(plan, 16, &entry, &goal);
    const double kept = offer.goodput.goodput.typical;
    assert_true(kept > 0.5 && kept < 0.95);
    assert_within(offer.days.typical, 1e12 / 1e5 / 24 / hours_s / kept, 1e-9);
    assert_within(offer.usd.typical, offer.days.typical * 24 * 16 * plan->cluster.usd_per_node_hour,
                  1e-9);
    // Low: fast steps and few failures.
    goal.losses.failures_per_node_day = 0;
    offer = mics_plan_offer_get(plan, 16, &entry, &goal);
    assert_within(offer.days.low / offer.days.typical,
                  plan->cluster.accelerator.step_low * offer.goodput.goodput.typical /
                      offer.goodput.goodput.high,
                  1e-9);
    goal = (mics_plan_goal){.days = 10, .losses = {.failures_per_node_day = 2}};
    offer = mics_plan_offer_get(plan, 16, &entry, &goal);
    assert_within(offer.tokens.typical, 1e5 * 864000 * kept, 1e-9);
    assert_within(offer.days.typical, 10, 1e-9);
    // So many failures that nothing is done: neither time nor price.
    goal = (mics_plan_goal){.tokens = 1e12, .losses = {.failures_per_node_day = 1e4}};
    offer = mics_plan_offer_get(plan, 4096, &entry, &goal);
    assert_true(offer.never && offer.days.typical == 0 && offer.usd.typical == 0);
    mics_plan_close(plan);
}

// ---- the tests ----

static int begin(void **state)
{
    mics_memory *memory = NULL;
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mics_memory_open(&memory) != MICS_OK)
        return 1;
    FILE *out = fopen("model.json", "w");
    if (out == NULL)
        return 1;
    fputs("{\"model_type\": \"gpt2\", \"n_embd\": 512, \"n_head\": 8, \"n_layer\": 8, "
          "\"n_positions\": 128, \"vocab_size\": 8192}",
          out);
    *state = memory;
    return fclose(out);
}

static int end(void **state)
{
    char command[64];
    const int64_t leaks = mics_memory_close(*state);
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 && leaks == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seconds),   cmocka_unit_test(test_frozen_weights_are_read_again),
        cmocka_unit_test(test_failures),  cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_simulated), cmocka_unit_test(test_own_interval),
        cmocka_unit_test(test_spot),      cmocka_unit_test(test_straggling),
        cmocka_unit_test(test_offer),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
