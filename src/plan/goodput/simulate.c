// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A training with failures, event by event. It shares nothing with the closed form, which it checks.
//
// Training and blocked time pass one event at a time; a restart is one event.
//
// Invariant, checked by is_ordered: committed_s <= done_s, and where a save is pending committed_s
// <= pending_s <= done_s.
#include "base/assert.h"
#include "base/rng.h"
#include "plan/goodput/goodput.h"
#include <math.h>
#include <stdbool.h>

enum { FAILURES, PREEMPTIONS, RESTARTS }; // streams of random numbers

typedef struct training {
    const mics_goodput_spec *spec;
    double interval_s;
    uint64_t seed, draws[3];
    int64_t events;
    double now_s;
    double done_s;      // work
    double committed_s; // work that a restart keeps
    double pending_s;   // work that the save under way will keep
    double commit_at_s; // when
    bool pending;
    bool steady;                       // the stretch before was whole, and so was its save
    double blocked_until_s;            // training stands still; in the past: it does not
    double failure_at_s, preempt_at_s; // the next ones
} training;

// Time to the next event of a rate.
static double draw_s(training *self, int stream, double rate)
{
    if (rate <= 0)
        return INFINITY;
    const uint64_t index = self->draws[stream]++;
    return -log1p(-mics_rng_uniform(self->seed, (uint64_t)stream, index)) / rate;
}

static void draw_both(training *self)
{
    self->failure_at_s = self->now_s + draw_s(self, FAILURES, self->spec->failures_per_s);
    self->preempt_at_s = self->now_s + draw_s(self, PREEMPTIONS, self->spec->preemptions_per_s);
}

static void restart(training *self)
{
    const double rate = self->spec->failures_per_s + self->spec->preemptions_per_s;
    double failure_s = 0;
    while ((failure_s = draw_s(self, RESTARTS, rate)) < self->spec->restart_s &&
           self->events < MICS_GOODPUT_MAX_EVENTS) {
        self->now_s += failure_s;
        self->events++;
    }
    self->now_s += self->spec->restart_s;
    self->done_s = self->committed_s;
    self->pending = self->steady = false;
    self->blocked_until_s = self->now_s;
    draw_both(self);
}

// Work at which the next save is due: saves are at multiples of the interval, also after a restart.
static double next_due_s(const training *self)
{
    const double intervals = self->done_s / self->interval_s;
    return (floor(intervals * (1 + 1e-14) + 1e-9) + 1) * self->interval_s;
}

static void begin_save(training *self)
{
    self->pending = true;
    self->pending_s = self->done_s;
    self->commit_at_s = self->now_s + self->spec->commit_s;
    self->blocked_until_s = self->now_s + self->spec->blocked_s;
}

static void commit(training *self)
{
    if (self->pending && self->now_s >= self->commit_at_s) {
        self->committed_s = self->pending_s;
        self->pending = false;
    }
}

// Time passes until `to_s`, or a failure or a preemption before it: then false.
static bool pass(training *self, double to_s, bool trains)
{
    const double stop_s = fmin(self->failure_at_s, self->preempt_at_s);
    const double until_s = fmin(to_s, stop_s);
    if (trains)
        self->done_s += until_s - self->now_s;
    self->now_s = until_s;
    commit(self);
    if (to_s <= stop_s)
        return true;
    if (self->preempt_at_s < self->failure_at_s) {
        self->committed_s = self->done_s;
        self->now_s += self->spec->final_save_s;
    }
    restart(self);
    return false;
}

// Stretches that nothing interrupts are alike: all but the last two are passed at once.
static void skip_whole(training *self, double work_s)
{
    const double beside_s = self->spec->commit_s - self->spec->blocked_s;
    const double cycle_s = fmax(self->interval_s, beside_s) + self->spec->blocked_s;
    const double stop_s = fmin(self->failure_at_s, self->preempt_at_s);
    const double left =
        fmin((stop_s - self->now_s) / cycle_s, (work_s - self->done_s) / self->interval_s);
    const double whole = floor(left) - 2;
    if (!self->steady || whole < 1)
        return;
    self->now_s += whole * cycle_s;
    self->done_s += whole * self->interval_s;
    self->pending = beside_s > 0;
    self->pending_s = self->done_s;
    self->commit_at_s = self->now_s + beside_s;
    self->committed_s = self->pending ? self->done_s - self->interval_s : self->done_s;
    self->blocked_until_s = self->now_s;
}

static bool is_ordered(const training *self)
{
    return self->pending ? self->committed_s <= self->pending_s && self->pending_s <= self->done_s
                         : self->committed_s <= self->done_s;
}

// One stretch of training, and the save behind it.
static void train_on(training *self, double work_s)
{
    skip_whole(self, work_s);
    const double due_s = next_due_s(self), target_s = fmin(due_s, work_s);
    if (!pass(self, self->now_s + (target_s - self->done_s), true))
        return;
    self->done_s = target_s;
    if (target_s >= work_s)
        return;
    if (self->pending && !pass(self, self->commit_at_s, false))
        return;
    begin_save(self);
    self->steady = pass(self, self->blocked_until_s, false);
}

double mics_goodput_simulate(const mics_goodput_spec *spec, double interval_s, double work_s,
                             uint64_t seed)
{
    training self = {.spec = spec, .interval_s = interval_s, .seed = seed};
    draw_both(&self);
    for (; self.events < MICS_GOODPUT_MAX_EVENTS && self.done_s < work_s; self.events++) {
        train_on(&self, work_s);
        MICS_ASSERT(is_ordered(&self));
    }
    return self.done_s >= work_s ? work_s / self.now_s : 0;
}
