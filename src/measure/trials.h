// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How long something takes typically that now and then takes many times as long: trials of several
// repeats, as many as a time allows.
//
// How many repeats a trial has follows from all trials before it. The figure is the median of the
// trials' means, each weighted by its repeats: what comes often enough to be in most trials counts
// in full, as it is in most training steps too; a trial of few repeats that happened to be slow, or
// quick, says little, and so does one that the machine interrupted.
#ifndef MICS_MEASURE_TRIALS_H
#define MICS_MEASURE_TRIALS_H

#include <stdint.h>

enum { MEASURE_MAX_TRIALS = 32 };

// All zeros but for the budget: no trial yet.
typedef struct measure_trials {
    double budget_us;
    double spent_us;
    int32_t count;
    int32_t repeats[MEASURE_MAX_TRIALS];
    double us[MEASURE_MAX_TRIALS]; // of one repeat, the mean of the trial; ascending
} measure_trials;

/* Repeats of the next trial; 0: enough. */
int32_t measure_trials_next(const measure_trials *self);
/* Needs what `measure_trials_next` said. */
void measure_trials_add(measure_trials *self, int32_t repeats, double us);

/* Of one repeat; 0 before the first trial. */
double measure_trials_us(const measure_trials *self);

#endif
