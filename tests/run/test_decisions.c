// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is decided about steps and replicas, as functions of what is known; where a run stands; and the
// order in which followers are served.
#include "run/followers/followers.h"
#include "test.h"
#include <math.h>
#include <string.h>

// ---- a step ----

static run_rules rules_of(const char *on_spike, const char *on_divergence, bool recheck,
                          bool repeats)
{
    return (run_rules){.on_spike = on_spike,
                       .on_divergence = on_divergence,
                       .spike_zscore = 4,
                       .recheck = recheck,
                       .repeats = repeats};
}

static void expect(const run_rules *rules, run_evidence known, run_action action)
{
    const run_action found = run_guard_step(rules, &known);
    if (found != action)
        fail_msg("verdict %d: action %d, expected %d", (int)known.verdict, (int)found, (int)action);
}

// Whatever the rules say: a good step is accepted, and one that is held counts as not done.
static void test_plain_steps(void **state)
{
    (void)state;
    static const mics_verdict good[] = {MICS_VERDICT_UPDATED, MICS_VERDICT_OVERFLOW,
                                        MICS_VERDICT_EMPTY};
    for (int i = 0; i < 8; i++) {
        const run_rules rules =
            rules_of(i & 1 ? "stop" : "skip", i & 2 ? "stop" : "rewind", (i & 4) != 0, true);
        for (size_t v = 0; v < sizeof good / sizeof *good; v++) {
            expect(&rules, (run_evidence){.verdict = good[v]}, RUN_ACCEPT);
            expect(&rules, (run_evidence){.verdict = good[v], .again = true}, RUN_ACCEPT);
        }
        expect(&rules, (run_evidence){.verdict = MICS_VERDICT_HELD}, RUN_HOLD);
        expect(&rules, (run_evidence){.verdict = MICS_VERDICT_HELD, .again = true}, RUN_HOLD);
    }
}

// The three questions, in their order: replicas, then the step again, then the data.
static void test_suspicious_steps(void **state)
{
    (void)state;
    static const mics_verdict bad[] = {MICS_VERDICT_NOT_FINITE, MICS_VERDICT_IMPOSSIBLE};
    const run_rules plain = rules_of("stop", "rewind", false, true),
                    checks = rules_of("stop", "rewind", true, true),
                    changes = rules_of("stop", "rewind", true, false);
    for (size_t v = 0; v < sizeof bad / sizeof *bad; v++) {
        run_evidence known = {.verdict = bad[v], .impossible = true};
        expect(&plain, known, RUN_COMPARE);
        expect(&checks, known, RUN_COMPARE);
        known.compared = known.differs = true;
        expect(&plain, known, RUN_GO_BACK);
        expect(&checks, known, RUN_GO_BACK);
        known.differs = false;
        expect(&plain, known, RUN_GIVE_UP);
        expect(&checks, known, RUN_RECHECK);
        expect(&changes, known, RUN_GIVE_UP);
        known.again = true;
        expect(&checks, known, RUN_GIVE_UP);
    }
}

// Of several islands one can neither compare nor go back while the others train on.
static void test_islands(void **state)
{
    (void)state;
    static const mics_verdict bad[] = {MICS_VERDICT_NOT_FINITE, MICS_VERDICT_IMPOSSIBLE,
                                       MICS_VERDICT_DIVERGED, MICS_VERDICT_FLIPPED};
    run_rules skips = rules_of("skip", "rewind", false, true),
              stops = rules_of("stop", "repair", false, true);
    skips.apart = stops.apart = true;
    for (size_t v = 0; v < sizeof bad / sizeof *bad; v++)
        expect(&skips, (run_evidence){.verdict = bad[v], .impossible = v < 2}, RUN_GIVE_UP);
    expect(&skips, (run_evidence){.verdict = MICS_VERDICT_SPIKE}, RUN_ACCEPT);
    expect(&stops, (run_evidence){.verdict = MICS_VERDICT_SPIKE}, RUN_GIVE_UP);
    expect(&stops, (run_evidence){.verdict = MICS_VERDICT_EMPTY}, RUN_ACCEPT);
    expect(&stops, (run_evidence){.verdict = MICS_VERDICT_HELD}, RUN_HOLD);
}

static void test_spikes(void **state)
{
    (void)state;
    const run_evidence spike = {.verdict = MICS_VERDICT_SPIKE, .compared = true};
    const run_rules skips = rules_of("skip", "rewind", false, true),
                    stops = rules_of("stop", "rewind", false, true),
                    checks = rules_of("skip", "rewind", true, true);
    expect(&skips, (run_evidence){.verdict = MICS_VERDICT_SPIKE}, RUN_COMPARE);
    expect(&skips, spike, RUN_ACCEPT);
    expect(&stops, spike, RUN_GIVE_UP);
    expect(&checks, spike, RUN_RECHECK);
    run_evidence again = spike;
    again.again = true;
    expect(&checks, again, RUN_ACCEPT);
}

// What has changed in memory is gone back from, also where a step is run again.
static void test_flips(void **state)
{
    (void)state;
    const run_rules rules = rules_of("warn", "rewind", true, true);
    run_evidence known = {.verdict = MICS_VERDICT_FLIPPED};
    for (int again = 0; again < 2; again++) {
        known = (run_evidence){.verdict = MICS_VERDICT_FLIPPED, .again = again == 1};
        expect(&rules, known, RUN_COMPARE);
        known.compared = known.differs = true;
        expect(&rules, known, RUN_GO_BACK);
    }
}

// Replicas hold the same, but had other gradients: the step is taken again, unless that gives other bits
// or the run is to end.
static void test_other_gradients(void **state)
{
    (void)state;
    const run_evidence known = {.verdict = MICS_VERDICT_DIVERGED, .compared = true};
    const run_rules again = rules_of("warn", "rewind", true, true),
                    changes = rules_of("warn", "rewind", true, false),
                    stops = rules_of("warn", "stop", true, true);
    expect(&again, known, RUN_RETAKE);
    expect(&changes, known, RUN_GO_BACK);
    expect(&stops, known, RUN_GO_BACK);
}

// ---- replicas ----

static run_action diverge(const char *policy, const run_divergences *before, int64_t agreed,
                          const mics_divergence *found, bool *repeated)
{
    const run_rules rules = rules_of("warn", policy, false, true);
    return run_guard_divergence(&rules, before, agreed, found, repeated);
}

static void test_divergences(void **state)
{
    (void)state;
    bool repeated = false;
    const mics_divergence masters = {
        .found = true, .majority = true, .rank = 1, .other = -1, .state = MICS_REPLICA_MASTERS};
    mics_divergence grads = masters, tie = masters, other = masters;
    grads.state = MICS_REPLICA_GRADS;
    tie.majority = false;
    other.rank = 2;
    run_divergences before = {.count = 1, .rewound_step = RUN_NO_STEP};
    assert_int_equal(diverge("rewind", &before, 5, &masters, &repeated), RUN_GO_BACK);
    assert_int_equal(diverge("repair", &before, 5, &masters, &repeated), RUN_REPAIR);
    assert_int_equal(diverge("repair", &before, 5, &tie, &repeated), RUN_GO_BACK);
    assert_int_equal(diverge("repair", &before, 5, &grads, &repeated), RUN_GO_BACK);
    assert_false(repeated);
    assert_int_equal(diverge("stop", &before, 5, &masters, &repeated), RUN_GIVE_UP);
    assert_false(repeated);
    // The same again since the same state; not another rank's, nor since a newer state.
    before = (run_divergences){.count = 2, .rewound_step = 5, .newest = masters};
    assert_int_equal(diverge("rewind", &before, 5, &other, &repeated), RUN_GO_BACK);
    assert_int_equal(diverge("rewind", &before, 6, &masters, &repeated), RUN_GO_BACK);
    assert_false(repeated);
    assert_int_equal(diverge("rewind", &before, 5, &masters, &repeated), RUN_GIVE_UP);
    assert_true(repeated);
    // Or whatever it is, too often.
    before.count = 3;
    assert_int_equal(diverge("rewind", &before, 5, &other, &repeated), RUN_GO_BACK);
    before.count = 4;
    assert_int_equal(diverge("rewind", &before, 5, &other, &repeated), RUN_GIVE_UP);
    assert_true(repeated);
}

// ---- losses ----

static void test_losses(void **state)
{
    (void)state;
    mics_checkpoint_losses recent = {.count = 0};
    run_rules rules = rules_of("warn", "rewind", false, true);
    for (int i = 0; i < 19; i++)
        run_guard_add_loss(&recent, i % 2 == 0 ? 1 : 3);
    assert_true(isinf(run_guard_spike_loss(&rules, &recent))); // too few
    run_guard_add_loss(&recent, 3);
    assert_true(run_guard_spread(&recent).mean == 2);
    assert_true(run_guard_spread(&recent).deviation == 1);
    assert_true(run_guard_spike_loss(&rules, &recent) == 6);
    rules.spike_zscore = 0;
    assert_true(isinf(run_guard_spike_loss(&rules, &recent)));
    for (int i = 0; i < MICS_CHECKPOINT_LOSSES; i++)
        run_guard_add_loss(&recent, i);
    assert_int_equal(recent.count, MICS_CHECKPOINT_LOSSES);
    assert_true(recent.list[0] == 0 && recent.list[recent.count - 1] == recent.count - 1);
    rules.spike_zscore = 4;
    for (int i = 0; i < MICS_CHECKPOINT_LOSSES; i++)
        run_guard_add_loss(&recent, 2);
    assert_true(isinf(run_guard_spike_loss(&rules, &recent))); // nothing deviates
}

// ---- progress ----

static void test_progress(void **state)
{
    (void)state;
    run_standing seen = {0};
    run_progress progress;
    run_standing_keep(&seen, RUN_NO_STEP);
    run_progress_begin(&progress, &seen, 4, false);
    assert_int_equal(atomic_load(&seen.step), 4);
    assert_int_equal(atomic_load(&seen.saved), RUN_NO_STEP);
    assert_false(run_progress_is_saved(&progress));
    run_progress_step(&progress, 5);
    run_progress_begin_save(&progress);
    assert_true(run_progress_is_saved(&progress));
    run_progress_step(&progress, 6);
    assert_false(run_progress_is_saved(&progress));
    run_progress_end_save(&progress, 5, false); // it failed
    assert_int_equal(progress.saving, RUN_NO_STEP);
    assert_int_equal(progress.saved, RUN_NO_STEP);
    run_progress_agree(&progress);
    run_progress_keep(&progress);
    run_progress_end_save(&progress, 6, true);
    assert_true(run_progress_is_saved(&progress));
    assert_int_equal(atomic_load(&seen.saved), 6);
    assert_int_equal(atomic_load(&seen.kept), 6);
    run_progress_step(&progress, 7);
    run_progress_go_back(&progress, 5);
    assert_int_equal(progress.step, 5);
    assert_int_equal(progress.agreed, 5);
    assert_int_equal(progress.saved, 6); // until that proves to be unreadable
    run_progress_lose(&progress, RUN_NO_STEP);
    assert_int_equal(atomic_load(&seen.saved), RUN_NO_STEP);
}

// ---- followers ----

static void check_before(int first, int second)
{
    if (first >= second)
        fail_msg("%s is served behind %s", run_follower_rows[first].follower->name,
                 run_follower_rows[second].follower->name);
}

static void test_order(void **state)
{
    (void)state;
    // The figures of a step are its own.
    check_before(RUN_FOLLOWER_trace, RUN_FOLLOWER_metrics);
    for (int row = RUN_FOLLOWER_metrics + 1; row < RUN_FOLLOWERS; row++)
        check_before(RUN_FOLLOWER_metrics, row);
    // No state is kept or shown that replicas differ on; and none is shown that is not kept.
    check_before(RUN_FOLLOWER_replicas, RUN_FOLLOWER_saving);
    check_before(RUN_FOLLOWER_saving, RUN_FOLLOWER_validation);
    check_before(RUN_FOLLOWER_validation, RUN_FOLLOWER_best);
    check_before(RUN_FOLLOWER_best, RUN_FOLLOWER_texts);
    // Lines of reports are cut before others are read from what is left.
    check_before(RUN_FOLLOWER_metrics, RUN_FOLLOWER_best);
}

// Each row has the state that is its own: no two overlap, and the functions that all must have.
static void test_rows(void **state)
{
    (void)state;
    for (int row = 0; row < RUN_FOLLOWERS; row++) {
        assert_non_null(run_follower_rows[row].follower->name);
        assert_non_null(run_follower_rows[row].follower->open);
        if (row > 0)
            assert_true(run_follower_rows[row].at > run_follower_rows[row - 1].at);
    }
    assert_string_equal(run_follower_rows[RUN_FOLLOWER_saving].follower->name, "saving");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_steps), cmocka_unit_test(test_suspicious_steps),
        cmocka_unit_test(test_spikes),      cmocka_unit_test(test_other_gradients),
        cmocka_unit_test(test_divergences), cmocka_unit_test(test_losses),
        cmocka_unit_test(test_progress),    cmocka_unit_test(test_order),
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_islands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
