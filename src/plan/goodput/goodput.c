// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Expected shares of a training's time, in closed form.
//
// Note 1: the formula. A cycle is the training between two saves, then the time that the second
// blocks it: c = max(interval, w) + blocked, where w = commit - blocked is how long a save is
// written beside training. Let failures have the rate r, and each cost the time R until training
// goes on. From a state that is saved, a cycle takes h = (e^(rc) - 1) (1/r + R). In a cycle that
// begins while the save before it is still written, a failure within w goes back one cycle more:
//     g = c e^(-rc) + E[time until a failure within c] + (1 - e^(-rc)) (R + h) + (1 - e^(-rw)) g,
// which is g = e^(rw) (e^(rc) - 1) (1/r + R). So per cycle there are F = e^(rw) (e^(rc) - 1)
// failures, F / r of training, and F R of restarts. That R holds restarts which fail themselves:
// R = (e^(qs) - 1) / q for a restart of s and interruptions of any kind at the rate q. Preemptions
// come during training, at their own rate, and cost their save and R each.
//
// Note 2: the best interval. Restarts and w multiply the time of every interval alike. What is left
// to minimise is (e^(r (t + b)) - 1) / t for t >= w, whose minimum solves 1 - rt = e^(-r (t + b)).
// Below w every interval has cycles of the same length, so the longest is best.
#include "plan/goodput/goodput.h"
#include <math.h>

static const double max_steps = 9e18; // what an int64_t holds

// (e^(rate x s) - 1) / rate: the time that s without a failure takes, where each begins it anew.
static double uninterrupted_s(double rate, double s)
{
    return rate > 0 ? expm1(rate * s) / rate : s;
}

mics_goodput mics_goodput_at(const mics_goodput_spec *spec, double interval_s)
{
    const double rate = spec->failures_per_s;
    const double restart_s =
        uninterrupted_s(rate + spec->preemptions_per_s, spec->restart_s); // R of note 1
    const double per_training_s =
        rate * restart_s + spec->preemptions_per_s * (spec->final_save_s + restart_s);
    mics_goodput result = {.interval_s = interval_s, .redone = 1};
    if (spec->step_s > 0)
        result.steps = (int64_t)fmin(interval_s / spec->step_s + 0.5, max_steps);
    if (interval_s <= 0) {
        result.goodput = 1 / (1 + per_training_s);
        result.restarting = 1 - result.goodput;
        result.redone = 0;
        return result;
    }
    const double beside_s = spec->commit_s - spec->blocked_s; // w
    const double cycle_s = fmax(interval_s, beside_s) + spec->blocked_s;
    const double training_s = exp(rate * beside_s) * uninterrupted_s(rate, cycle_s);
    const double all_s = training_s * (1 + per_training_s);
    if (!isfinite(all_s))
        return result; // nothing is ever saved
    result.goodput = interval_s / all_s;
    result.saving = (cycle_s - interval_s) / all_s;
    result.restarting = training_s * per_training_s / all_s;
    result.redone = fmax(1 - result.goodput - result.saving - result.restarting, 0);
    return result;
}

// Below it the two sides differ by less than rounding, and the series' first term is exact to that.
static const double least_solved = 1e-12;

// rt of note 2, by bisection: 1 - e^(-(x + rb)) - x is positive at 0, negative at 1, and concave.
static double solve_interval(double rate_blocked)
{
    double low = 0, high = 1;
    if (rate_blocked < least_solved)
        return sqrt(2 * rate_blocked);
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        if (-expm1(-(middle + rate_blocked)) - middle > 0)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static mics_goodput best_of(const mics_goodput *a, const mics_goodput *b)
{
    return a->goodput >= b->goodput ? *a : *b;
}

mics_goodput mics_goodput_best(const mics_goodput_spec *spec)
{
    const double rate = spec->failures_per_s, step_s = spec->step_s;
    if (rate <= 0)
        return mics_goodput_at(spec, 0);
    const double interval_s =
        fmax(solve_interval(rate * spec->blocked_s) / rate, spec->commit_s - spec->blocked_s);
    if (step_s <= 0)
        return mics_goodput_at(spec, interval_s);
    const double steps = fmax(floor(interval_s / step_s), 1);
    const mics_goodput fewer = mics_goodput_at(spec, steps * step_s),
                       more = mics_goodput_at(spec, (steps + 1) * step_s);
    return best_of(&fewer, &more);
}

double mics_goodput_young_s(const mics_goodput_spec *spec)
{
    return sqrt(2 * spec->blocked_s / spec->failures_per_s);
}
