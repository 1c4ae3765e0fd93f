// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank reads: micro-batch m of data rank d = r / S begins at sequence `first` + (m * D + d) *
// micro-batch, so the order of data is the same whatever the mesh. Of each row rank r has positions
// (r mod S) * L / S and on, L / S rounded up. Rows at `end` and beyond, and positions behind a
// sequence, count nothing: their tokens and targets are 0 and -1.
#pragma once

#include "context.h"

typedef struct run_batches {
    const run_context *context;
    run_scratch scratch;
    const run_samples *samples;
    int64_t first, end;        // sequences
    int64_t sequences;         // of a micro-batch
    int64_t begin, own;        // positions of each that this rank has
    int32_t *inputs, *targets; // (sequences, whole length) of the newest; NULL: this rank has all
    bool gave_up; // a batch could not be read, which was said: none of its tokens counts
    bool trains;  // then the run ends behind the step before, saved
} run_batches;

/* Returns: MICS_OK; MICS_ERR_MEMORY.     Owns: close with run_batches_close. */
mics_status run_batches_open(run_batches *self, const run_context *context);
void run_batches_close(run_batches *self);

/* A source of a batch of samples `first` to `end`, of pairs such; good until the next call. Needs: first <= end. */
mics_batch_source run_batches_at(run_batches *self, const run_samples *samples, int64_t first,
                                 int64_t end);
