// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which windows of a corpus train and which validate, and reading them.
#pragma once

#include "config/config.h"
#include "io/data/data.h"
#include "io/data/packing.h"
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
    int64_t first_window, windows; // of all parts together, where there are parts; or pairs
    int32_t each;                  // sequences of a sample: 1; of pairs 2
    mics_mixture_part *parts;      // NULL: none
    int32_t part_count;
    // Of chats: which samples a sequence has, by part, or of all.
    mics_packing **packings; // (packing_count); NULL: windows of a stream
    int64_t *firsts;         // (packing_count) the corpus' sample that is number 0 of each
    int32_t packing_count;
    bool packs, drops_long; // several in a sequence; none of those that are longer
    // Of pairs: log-probabilities of the corpus' samples in the reference; borrowed.
    const float *references; // (mics_corpus_samples); NULL: none
    const int64_t *listed;   // pairs that are read instead, by their first samples; NULL: none
    int32_t document;        // token that documents begin with, where attention stays within them
} run_samples;

// The files of a corpus as the run names them.
typedef struct run_sources {
    const char *const *paths;
    const double *weights; // NULL: none, one stream of all
    int32_t count;
} run_sources;

/* How many of so many windows, or samples, are held out for validation. */
static inline int64_t run_samples_held_of(int64_t count)
{
    enum { HOLD_OUT_SHARE = 20 };
    return count / HOLD_OUT_SHARE > 0 ? count / HOLD_OUT_SHARE : 1;
}

/* The seed of validation's order, far from the small numbers that people choose as seeds. */
static inline uint64_t run_samples_validation_seed(uint64_t seed)
{
    return seed ^ UINT64_C(0x76616c6964617465);
}

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

// What reading takes besides. Zeroed it is empty.
typedef struct run_scratch {
    int32_t *row;   // tokens of a sample + 1
    int64_t *items; // as many samples
} run_scratch;

/* Owns: run_scratch_fini, also after a failure. */
mics_status run_scratch_init(mics_memory *memory, int64_t sequence, run_scratch *scratch_out);
void run_scratch_fini(mics_memory *memory, run_scratch *scratch);

/* Reads `count` sequences from number `first` on as inputs and targets, each (count, tokens of
 * a sample). Returns: as mics_corpus_read, mics_packing_row. Threads: any, with scratch of its own. */
mics_status run_samples_read(const run_samples *samples, int64_t first, int64_t count,
                             run_scratch *scratch, int32_t *inputs_out, int32_t *targets_out);

// ---- packed.c: samples of chats ----

/* As run_samples_divide, of chats: the last twentieth of each source's samples is held out. How they
 * stand in sequences is the run's data.packing and data.too_long.
 *
 * Returns: as mics_packing_open; MICS_ERR_INVALID: too few samples, or one that is too long. */
mics_status run_samples_divide_chats(mics_memory *memory, const mics_run *run,
                                     const mics_corpus *train, const mics_corpus *validation,
                                     int64_t sequence, bool hold_out, run_samples *train_out,
                                     run_samples *validation_out);

/* As run_samples_read. */
mics_status run_samples_read_chats(const run_samples *samples, int64_t first, int64_t count,
                                   run_scratch *scratch, int32_t *inputs_out, int32_t *targets_out);

/* Which of the corpus' samples sequence `number` of pairs is.     Returns: as mics_packing_row. */
mics_status run_samples_item(const run_samples *samples, int64_t number, run_scratch *scratch,
                             int64_t *item_out);

/* References of `count` sequences from number `first` on.     Returns: as mics_packing_row. */
mics_status run_samples_references(const run_samples *samples, int64_t first, int64_t count,
                                   run_scratch *scratch, float *references_out);

/* Segments of `count` sequences from number `first` on: each chat's is the place of its first token in
 * the sequence, that of padding -1.
 *
 * Shapes:  segments_out: (count, tokens of a sample). Returns: as mics_packing_row. */
mics_status run_samples_segments(const run_samples *samples, int64_t first, int64_t count,
                                 run_scratch *scratch, int32_t *segments_out);

/* Numbers the documents in each row of tokens: from 0 on, and one more at each token `begin` but the
 * row's first.
 *
 * Shapes:  tokens, documents_out: (rows, length). */
void run_samples_number(int32_t begin, const int32_t *tokens, int64_t rows, int64_t length,
                        int32_t *documents_out);
