// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How long something takes typically that now and then takes many times as long: trials of several repeats, as many
// as a time allows.
//
// How many repeats a trial has follows from all trials before it. The figure is the median of the trials' means, each
// weighted by its repeats: what comes often enough to be in most trials counts in full, as it is in most training
// steps too; a trial of few repeats that happened to be slow, or quick, says little, and so does one that the
// machine interrupted.
#ifndef MICS_CLI_BENCH_TRIALS_H
#define MICS_CLI_BENCH_TRIALS_H

#include <stdint.h>

enum { BENCH_TRIALS_MAX = 32 };

// All zeros but for the budget: no trial yet.
typedef struct bench_trials {
    double budget_us;
    double spent_us;
    int32_t count;
    int32_t repeats[BENCH_TRIALS_MAX];
    double us[BENCH_TRIALS_MAX]; // of one repeat, the mean of the trial; ascending
} bench_trials;

/* Repeats of the next trial; 0: enough. */
int32_t bench_trials_next(const bench_trials *self);
/* Needs what `bench_trials_next` said. */
void bench_trials_add(bench_trials *self, int32_t repeats, double us);

/* Of one repeat; 0 before the first trial. */
double bench_trials_us(const bench_trials *self);

#endif
