// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Goodput: the closed form against published ones and against simulated trainings, the best interval
// against its neighbours, and what more failures, slower disks and slower restarts do.
#include "plan/goodput/goodput.h"
#include "test.h"
#include <math.h>

static const double hour_s = 3600, day_s = 86400;

// A failure every `hours`, saves that stop training for `blocked` and count after `commit` seconds.
static mics_goodput_spec spec_of(double hours, double blocked_s, double commit_s)
{
    return (mics_goodput_spec){.failures_per_s = 1 / (hours * hour_s),
                               .blocked_s = blocked_s,
                               .commit_s = commit_s,
                               .restart_s = 600};
}

static void assert_close(double value, double expected, double within, const char *what)
{
    if (!(fabs(value - expected) <= within))
        fail_msg("%s: %.9g, expected %.9g within %g", what, value, expected, within);
}

static void assert_whole(const mics_goodput *g)
{
    assert_true(g->goodput >= 0 && g->saving >= 0 && g->restarting >= 0 && g->redone >= 0);
    assert_close(g->goodput + g->saving + g->restarting + g->redone, 1, 1e-9, "shares together");
}

// ---- closed forms ----

// Daly (2006), equation 20: a solution time of M e^(R/M) (e^((t + d)/M) - 1) / t for each second of
// work.
static void test_saves_that_wait(void **state)
{
    (void)state;
    const double hours[] = {0.5, 3, 24, 720}, blocked_s[] = {1, 60, 900};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 3; j++) {
            const mics_goodput_spec spec = spec_of(hours[i], blocked_s[j], blocked_s[j]);
            const double mean_s = hours[i] * hour_s, interval_s = 1800;
            const double daly = mean_s * exp(spec.restart_s / mean_s) *
                                expm1((interval_s + blocked_s[j]) / mean_s) / interval_s;
            const mics_goodput g = mics_goodput_at(&spec, interval_s);
            assert_close(g.goodput, 1 / daly, 1e-12, "goodput");
            assert_whole(&g);
        }
    }
}

static void test_no_failures(void **state)
{
    (void)state;
    mics_goodput_spec spec = spec_of(1, 10, 100);
    spec.failures_per_s = 0;
    const mics_goodput best = mics_goodput_best(&spec);
    assert_close(best.goodput, 1, 0, "goodput without failures");
    assert_close(best.interval_s, 0, 0, "an interval where none is needed");
    assert_close(mics_goodput_at(&spec, 990).goodput, 0.99, 1e-12, "goodput with saves");
    // A save that is still being written is waited for.
    assert_close(mics_goodput_at(&spec, 30).goodput, 0.3, 1e-12, "goodput with too many saves");
    // Where each preemption is a save of 20 s and a restart of 600 s.
    spec.preemptions_per_s = 1 / (100 * hour_s);
    spec.final_save_s = 20;
    const double restart_s = expm1(600 / (100 * hour_s)) * 100 * hour_s;
    assert_close(mics_goodput_best(&spec).goodput, 1 / (1 + (20 + restart_s) / (100 * hour_s)),
                 1e-12, "goodput with preemptions");
}

static void test_never_saved(void **state)
{
    (void)state;
    const mics_goodput_spec spec = spec_of(1e-3, 1e4, 1e4);
    const mics_goodput g = mics_goodput_at(&spec, hour_s);
    assert_close(g.goodput, 0, 1e-9, "goodput where no save ends");
    assert_whole(&g);
    assert_close(mics_goodput_simulate(&spec, hour_s, day_s, 1), 0, 0, "simulated");
}

// ---- the best interval ----

// The series of higher order: Daly, FGCS 22(3), 2006, equation 37.
static double daly_s(const mics_goodput_spec *spec)
{
    const double mean_s = 1 / spec->failures_per_s, half = spec->blocked_s / (2 * mean_s);
    if (half >= 1)
        return mean_s;
    return mics_goodput_young_s(spec) * (1 + sqrt(half) / 3 + half / 9) - spec->blocked_s;
}

static void test_best_interval(void **state)
{
    (void)state;
    const double hours[] = {0.2, 3, 24, 720}, blocked_s[] = {0.1, 5, 60, 600};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            const mics_goodput_spec spec = spec_of(hours[i], blocked_s[j], blocked_s[j]);
            const mics_goodput best = mics_goodput_best(&spec);
            for (double factor = 0.9; factor < 1.15; factor += 0.2)
                assert_true(mics_goodput_at(&spec, best.interval_s * factor).goodput <
                            best.goodput);
            // Daly's series is of the same optimum; Young's is of rare failures.
            const double share = sqrt(blocked_s[j] / (hours[i] * hour_s));
            assert_close(daly_s(&spec) / best.interval_s, 1, 0.01 + share * share,
                         "Daly's interval");
            assert_close(mics_goodput_young_s(&spec) / best.interval_s, 1, 0.01 + share,
                         "Young's interval");
        }
    }
}

static void test_interval_in_steps(void **state)
{
    (void)state;
    mics_goodput_spec spec = spec_of(10, 5, 5);
    const mics_goodput free_of_steps = mics_goodput_best(&spec);
    const double steps_s[] = {0.01, 7, 53, 250, 5000};
    for (int i = 0; i < 5; i++) {
        spec.step_s = steps_s[i];
        const mics_goodput best = mics_goodput_best(&spec);
        assert_close(best.interval_s, (double)best.steps * steps_s[i], 1e-6, "whole steps");
        assert_true(best.steps >= 1 && best.goodput <= free_of_steps.goodput + 1e-12);
        assert_true(mics_goodput_at(&spec, best.interval_s + steps_s[i]).goodput <= best.goodput);
        if (best.steps > 1)
            assert_true(mics_goodput_at(&spec, best.interval_s - steps_s[i]).goodput <=
                        best.goodput);
    }
}

// Saves never overlap, so the interval is at least what a write takes.
static void test_slow_disk(void **state)
{
    (void)state;
    const mics_goodput_spec spec = spec_of(24, 1, 3601);
    assert_close(mics_goodput_best(&spec).interval_s, 3600, 1e-6, "interval");
}

// Failures so rare that rounding hides them from the equation: Young's interval.
static void test_hardly_any(void **state)
{
    (void)state;
    const double rates[] = {1e-14, 1e-18, 1e-300};
    for (int i = 0; i < 3; i++) {
        mics_goodput_spec spec = {.failures_per_s = rates[i], .blocked_s = 10, .commit_s = 10};
        const double young_s = mics_goodput_young_s(&spec);
        assert_close(mics_goodput_best(&spec).interval_s / young_s, 1, 1e-5, "interval");
        spec.step_s = 1e-6; // more steps than an integer holds
        assert_true(mics_goodput_best(&spec).steps > 0);
    }
}

// ---- against simulated trainings ----

static void compare(const mics_goodput_spec *spec, double interval_s, double within,
                    const char *what)
{
    // Some 20000 failures: their count alone varies by 0.7 %, of the time that is lost.
    const mics_goodput g = mics_goodput_at(spec, interval_s);
    const double rate = spec->failures_per_s + spec->preemptions_per_s;
    const double found = mics_goodput_simulate(spec, interval_s, 20000 * g.goodput / rate, 7);
    const double slack = 0.03 * (1 - g.goodput);
    assert_close(found, g.goodput, within + slack, what);
    // The same bits again.
    assert_true(found <= mics_goodput_simulate(spec, interval_s, 20000 * g.goodput / rate, 7) &&
                found >= mics_goodput_simulate(spec, interval_s, 20000 * g.goodput / rate, 7));
}

static void test_simulated(void **state)
{
    (void)state;
    const double hours[] = {0.5, 3, 24};
    for (int i = 0; i < 3; i++) {
        const mics_goodput_spec waiting = spec_of(hours[i], 60, 60),
                                behind = spec_of(hours[i], 3, 400);
        compare(&waiting, mics_goodput_best(&waiting).interval_s, 1e-4, "saves that wait");
        compare(&waiting, 3000, 1e-4, "rare saves that wait");
        compare(&behind, mics_goodput_best(&behind).interval_s, 1e-4, "saves behind steps");
        compare(&behind, 1500, 1e-4, "rare saves behind steps");
        compare(&behind, 100, 1e-4, "saves that wait for the one before");
    }
}

// Failures so rare that thousands of saves lie between them.
static void test_simulated_rare(void **state)
{
    (void)state;
    const mics_goodput_spec waiting = spec_of(2000, 1, 1), behind = spec_of(2000, 0.5, 30);
    compare(&waiting, 300, 1e-6, "rare failures");
    compare(&behind, 300, 1e-6, "rare failures, saves behind steps");
    compare(&behind, 20, 1e-6, "rare failures, saves that wait for the one before");
}

// Intervals around the best one, simulated: none is better.
static void test_simulated_best(void **state)
{
    (void)state;
    const mics_goodput_spec spec = spec_of(2, 20, 200);
    const mics_goodput best = mics_goodput_best(&spec);
    const double work_s = 30000 * 2 * hour_s;
    const double found = mics_goodput_simulate(&spec, best.interval_s, work_s, 3);
    assert_true(mics_goodput_simulate(&spec, best.interval_s * 0.5, work_s, 3) < found);
    assert_true(mics_goodput_simulate(&spec, best.interval_s * 2, work_s, 3) < found);
}

static void test_simulated_preemptions(void **state)
{
    (void)state;
    mics_goodput_spec spec = spec_of(24, 10, 60);
    spec.final_save_s = 60;
    const double preempted_hours[] = {1, 24, 240};
    for (int i = 0; i < 3; i++) {
        spec.preemptions_per_s = 1 / (preempted_hours[i] * hour_s);
        const double interval_s = mics_goodput_best(&spec).interval_s;
        compare(&spec, interval_s, 0.01, "preemptions");
        // A lower bound, but for chance.
        const double bound = mics_goodput_at(&spec, interval_s).goodput;
        const double rate = spec.failures_per_s + spec.preemptions_per_s;
        const double found = mics_goodput_simulate(&spec, interval_s, 20000 * bound / rate, 5);
        assert_true(found > bound - 0.02 * (1 - bound));
    }
}

// ---- what makes it worse ----

static double best_goodput(const mics_goodput_spec *spec)
{
    const mics_goodput best = mics_goodput_best(spec);
    assert_whole(&best);
    return best.goodput;
}

static void test_monotone(void **state)
{
    (void)state;
    double last[5] = {1, 1, 1, 1, 1};
    for (double factor = 1; factor < 1000; factor *= 1.7) {
        mics_goodput_spec specs[5];
        for (int i = 0; i < 5; i++)
            specs[i] = spec_of(100, 2, 50);
        specs[0].failures_per_s *= factor;
        specs[1].blocked_s *= factor;
        specs[1].commit_s = specs[1].blocked_s + 48;
        specs[2].commit_s *= factor;
        specs[3].restart_s *= factor;
        specs[4].preemptions_per_s = factor * 1e-6;
        for (int i = 0; i < 5; i++) {
            const double goodput = best_goodput(&specs[i]);
            if (!(goodput < last[i] || (i == 2 && goodput <= last[i])))
                fail_msg("figure %d x %g: %.9g is not below %.9g", i, factor, goodput, last[i]);
            last[i] = goodput;
        }
    }
}

// Llama 3 405B: 419 interruptions in 54 days on 2048 nodes, more than 90 % of the time useful
// (arXiv:2407.21783, section 3.3.4). 4.86 TB of state at 2 TB/s; restarts of 10 minutes are assumed.
static void test_llama3(void **state)
{
    (void)state;
    const mics_goodput_spec spec = {
        .failures_per_s = 419 / (54 * day_s), .blocked_s = 3, .commit_s = 5.4, .restart_s = 600};
    const double goodput = best_goodput(&spec);
    assert_true(goodput > 0.90 && goodput < 0.95);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saves_that_wait),
        cmocka_unit_test(test_no_failures),
        cmocka_unit_test(test_never_saved),
        cmocka_unit_test(test_best_interval),
        cmocka_unit_test(test_interval_in_steps),
        cmocka_unit_test(test_slow_disk),
        cmocka_unit_test(test_hardly_any),
        cmocka_unit_test(test_simulated),
        cmocka_unit_test(test_simulated_best),
        cmocka_unit_test(test_simulated_preemptions),
        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_simulated_rare),
        cmocka_unit_test(test_llama3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
