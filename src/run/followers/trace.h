// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The trace of some training steps (run.trace_step): each rank keeps what its engine did when. After
// the last of these steps, and after one that ends the run, rank 0 gets all ranks' times, writes
// OUT/trace.json and says where it is.
#pragma once

#include "follower.h"
#include "run/report/trace_file.h"

typedef struct run_trace {
    const run_context *context;
    int64_t first, last; // steps to trace; none where first > last
    int32_t count;       // of them kept
    int32_t entries;     // of the training list
    run_traced_step *steps;
    mics_step_time *times; // by step, by entry
} run_trace;
