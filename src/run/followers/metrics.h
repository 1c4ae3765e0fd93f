// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The figures of a step, in all reports (run/report/reports.h): what it took, what it sent, and how
// long computation waited. Each rank checks that it sent what the schedule says.
#pragma once

#include "follower.h"
#include "run/report/slowest.h"

/* Means of sums over so many pairs; nothing where the objective has none.    Needs: pairs > 0. */
void run_metrics_fill_pairs(const mics_run *run, const double sums[MICS_PREFERENCE_SUMS],
                            double pairs, mics_preference_metrics *means_out);

typedef struct run_metrics {
    const run_context *context;
    mics_metrics row; // the newest; it waits to be written until all islands' numbers are known
    bool waits;
    run_slowest slowest;
    int64_t met; // as the step began: the newest one whose meetings were done
} run_metrics;
