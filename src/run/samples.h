// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which windows of a corpus train and which validate, and reading them.
#pragma once

#include "io/data/data.h"
#include "masking.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

// Windows [first_window, first_window + windows) of a corpus, in the order that `seed` gives; or a
// mixture, of parts.
typedef struct run_samples {
    const mics_corpus *corpus;  // borrowed
    const run_masking *masking; // borrowed; NULL: targets are the tokens that follow
    uint64_t seed;
    int64_t sequence;              // tokens of a window
    int64_t first_window, windows; // of all parts together, where there are parts
    mics_mixture_part *parts;      // NULL: none
    int32_t part_count;
    // Of chats: which samples a sequence has, by part, or of all.
    mics_packing **packings; // NULL: windows of a stream
    int32_t packing_count;
    bool packs;         // several samples in a sequence
    int64_t *row_items; // (sequence) scratch
    int32_t document; // token that documents begin with, where attention stays within them
} run_samples;

// The files of a corpus as the run names them.
typedef struct run_sources {
    const char *const *paths;
    const double *weights; // NULL: none, one stream of all
    int32_t count;
} run_sources;

/* Divides what there is, and so each source with a weight.
 *
 * With a validation corpus all windows of `train` train, and all of `validation` validate. Without
 * one (NULL) the last twentieth of train's windows, at least one, is held out for validation when
 * `hold_out`. Validation's order has a seed of its own made from `seed`.
 * What is held out of sources with weights is drawn with these weights.
 * With masking a window has as many tokens as a sample of `sequence` tokens leaves to it.
 * Returns: MICS_OK; MICS_ERR_INVALID: a text too short for what it must do; MICS_ERR_MEMORY.
 * Owns:    run_samples_fini for both, also after a failure.
 */
mics_status run_samples_divide(mics_memory *memory, const run_sources *sources,
                               const mics_corpus *train, const mics_corpus *validation,
                               const run_masking *masking, uint64_t seed, int64_t sequence,
                               bool hold_out, run_samples *train_out, run_samples *validation_out);
void run_samples_fini(mics_memory *memory, run_samples *samples);

/* A hash of the tokens and weights: what decides the order of samples besides seed and sequence.
 * Without weights that of the corpus. */
uint64_t run_samples_hash(const run_samples *samples);

/* What share of the samples a part has; needs parts. */
double run_samples_share(const run_samples *samples, int32_t part);

/* Reads `count` samples from number `first` on as inputs and targets, each (count, tokens of
 * a sample). Needs: row: that + 1 tokens of scratch. Returns: as mics_corpus_read. Threads: any. */
mics_status run_samples_read(const run_samples *samples, int64_t first, int64_t count, int32_t *row,
                             int32_t *inputs_out, int32_t *targets_out);

/* Numbers the documents in each row of tokens: from 0 on, and one more at each token `begin` but the
 * row's first.
 *
 * Shapes:  tokens, documents_out: (rows, length). */
void run_samples_number(int32_t begin, const int32_t *tokens, int64_t rows, int64_t length,
                        int32_t *documents_out);
