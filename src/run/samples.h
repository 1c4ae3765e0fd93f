// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which windows of a corpus train and which validate, and reading them.
#ifndef MICS_RUN_SAMPLES_H
#define MICS_RUN_SAMPLES_H

#include "mics/data.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

// Windows [first_window, first_window + windows) of a corpus, in the order that `seed` gives.
typedef struct run_samples {
    const mics_corpus *corpus; // borrowed
    uint64_t seed;
    int64_t sequence;
    int64_t first_window, windows;
} run_samples;

/* Divides what there is.
 *
 * With a validation corpus all windows of `train` train, and all of `validation` validate. Without
 * one (NULL) the last twentieth of train's windows, at least one, is held out for validation when
 * `hold_out`. Validation's order has a seed of its own made from `seed`.
 * Returns: MICS_OK; MICS_ERR_INVALID: a text too short for what it must do.
 */
mics_status run_samples_divide(const mics_corpus *train, const mics_corpus *validation,
                               uint64_t seed, int64_t sequence, bool hold_out,
                               run_samples *train_out, run_samples *validation_out);

/* Reads `count` samples from number `first` on as inputs and targets, each (count, sequence).
 * Needs: row: sequence + 1 tokens of scratch. Returns: as mics_corpus_read. Threads: any. */
mics_status run_samples_read(const run_samples *samples, int64_t first, int64_t count, int32_t *row,
                             int32_t *inputs_out, int32_t *targets_out);

#endif
