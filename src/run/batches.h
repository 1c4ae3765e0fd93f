// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank reads: micro-batch m of rank r begins at sequence `first` + (m * ranks + r) * micro-batch,
// so the order of data is the same whatever the mesh. Rows at `end` and beyond count nothing: their
// tokens and targets are 0 and -1.
#pragma once

#include "context.h"

typedef struct run_batches {
    const run_context *context;
    run_scratch scratch;
    const run_samples *samples;
    int64_t first, end; // sequences
    bool gave_up;       // a batch could not be read, which was said: none of its tokens counts
    bool trains;        // then the run ends behind the step before, saved
} run_batches;

/* Returns: MICS_OK; MICS_ERR_MEMORY.     Owns: close with run_batches_close. */
mics_status run_batches_open(run_batches *self, const run_context *context);
void run_batches_close(run_batches *self);

/* A source of a batch of samples `first` to `end`, of pairs such; good until the next call. Needs: first <= end. */
mics_batch_source run_batches_at(run_batches *self, const run_samples *samples, int64_t first,
                                 int64_t end);
