// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How long something takes typically that now and then takes many times as long: trials of several
// repeats, as many as a time allows.
//
// How many repeats a trial has follows from all trials before it. The figure is the median of the
// trials' means, each weighted by its repeats: what comes often enough to be in most trials counts
// in full, as it is in most training steps too; a trial of few repeats that happened to be slow, or
// quick, says little, and so does one that the machine interrupted.
#include "measure/internal.h"
#include <math.h>

enum {
    TRIALS = 8,     // in the time that there is
    MIN_TRIALS = 5, // whatever they take
    MAX_REPEATS = 1 << 16
};

int32_t measure_trials_next(const measure_trials *self)
{
    if (self->count == MEASURE_MAX_TRIALS ||
        (self->count >= MIN_TRIALS && self->spent_us >= self->budget_us))
        return 0;
    if (self->count == 0)
        return 1;
    const double repeats = self->budget_us / TRIALS / fmax(measure_trials_us(self), 1e-3);
    return (int32_t)fmin(fmax(repeats, 1), MAX_REPEATS);
}

void measure_trials_add(measure_trials *self, int32_t repeats, double us)
{
    int32_t at = self->count++;
    for (; at > 0 && self->us[at - 1] > us; at--) {
        self->us[at] = self->us[at - 1];
        self->repeats[at] = self->repeats[at - 1];
    }
    self->us[at] = us;
    self->repeats[at] = repeats;
    self->spent_us += us * repeats;
}

double measure_trials_us(const measure_trials *self)
{
    int64_t all = 0, below = 0;
    for (int32_t i = 0; i < self->count; i++)
        all += self->repeats[i];
    for (int32_t i = 0; i < self->count; i++) {
        below += self->repeats[i];
        if (2 * below == all) // the middle lies between two trials
            return (self->us[i] + self->us[i + 1]) / 2;
        if (2 * below > all)
            return self->us[i];
    }
    return 0;
}
