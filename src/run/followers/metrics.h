// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The figures of a step, in all reports (run/report/reports.h): what it took, what it sent, and how
// long computation waited. Each rank checks that it sent what the schedule says.
#pragma once

#include "follower.h"

typedef struct run_metrics {
    const run_context *context;
} run_metrics;
