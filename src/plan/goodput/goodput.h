// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How much of a training's time is useful when machines fail: checkpoint intervals and goodput.
//
// Failures come at random, at a constant rate (a Poisson process). Each ends all ranks. Training
// restarts from the newest checkpoint that counts, and computes again what came after it. A failure
// during a restart begins the restart anew.
//
// A save stops training for `blocked_s`, and counts `commit_s` after it began. Saves do not
// overlap: while one is being written, the next one waits, and training with it.
#pragma once

#include <stdint.h>

typedef struct mics_goodput_spec {
    double failures_per_s;    // of the whole job
    double preemptions_per_s; // announced in time: the state is saved first, and no work is lost
    double blocked_s;
    double commit_s;     // at least blocked_s; equal to it: a save counts when training goes on
    double restart_s;    // from a failure, or the end of the save before it, until training goes on
    double final_save_s; // of the save before a preemption
    double step_s;       // saves are made between steps; 0: at any time
} mics_goodput_spec;

// What becomes of the time. The four shares add up to 1.
typedef struct mics_goodput {
    double interval_s; // of training between two saves; 0: no save is needed
    int64_t steps;     // the same in steps; 0: there are none
    double goodput;    // share that is useful work
    double saving;     // training stands still for saves
    double restarting;
    double redone; // work that is lost, with the saves in it
} mics_goodput;

/* Expected shares with saves every `interval_s`, over a training that is long against it.
 *
 * Exact without preemptions. With both kinds it is a lower bound: the save before a preemption also
 * spares some work of the next failure.
 * Units:   seconds.
 * Needs:   figures >= 0, commit_s >= blocked_s; interval_s > 0, or 0 for a training without saves
 *          (then failures_per_s is 0).
 * Source:  Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS
 *          22(3), 2006, equation 20; here with saves that count later.
 */
mics_goodput mics_goodput_at(const mics_goodput_spec *spec, double interval_s);

/* The same with the interval that gives the most goodput, in whole steps where step_s > 0.
 *
 * Needs:   as mics_goodput_at.
 */
mics_goodput mics_goodput_best(const mics_goodput_spec *spec);

/* Young's estimate of the best interval, sqrt(2 d M), for saves of d = blocked_s and a mean time M
 * between failures.
 *
 * Needs:   failures_per_s > 0.
 * Source:  Young, CACM 17(9), 1974.
 */
double mics_goodput_young_s(const mics_goodput_spec *spec);

/* Goodput of one simulated training of `work_s` with saves every `interval_s`: every failure,
 * preemption, save and restart is an event on a clock.
 *
 * The same seed gives the same bits. Saves between which nothing happens are passed at once.
 * Units:   seconds.
 * Needs:   as mics_goodput_at, interval_s > 0, work_s > 0; time and events grow with the failures
 *          in it.
 * Returns: work_s over the time it took; 0 if after MICS_GOODPUT_MAX_EVENTS it has not ended.
 */
double mics_goodput_simulate(const mics_goodput_spec *spec, double interval_s, double work_s,
                             uint64_t seed);

enum { MICS_GOODPUT_MAX_EVENTS = 10000000 };
