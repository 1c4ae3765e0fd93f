// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank writes into checkpoints: its share of the state, and what is said with it.
#pragma once

#include "context.h"

/* Bytes of the copy that a rank saves from while it trains on, for an optimizer of so many states;
 * the largest of all ranks. Pure. */
size_t run_share_copy_bytes(const mics_schedule *schedule, int32_t states);

/* Shards that a rank saves: one of each unit that trains, in the model's order; of several islands of
 * their own states, and then as many of what all agreed on. Pure. */
int32_t run_share_count(const mics_job *job);

/* Fills `shards` with one of `parts` equal parts of what this rank owns, as the engine has it on the
 * host (mics_engine_download, until mics_engine_release); of what islands agreed on with the rank's
 * own part. */
void run_share_fill(const run_context *context, int64_t part, int64_t parts,
                    mics_optimizer_shard *shards);

/* Finds context->largest of the state that a rank begins with, before mics_engine_release.
 * Returns: MICS_OK; MICS_ERR_MEMORY.     Owns: the caller frees *largest_out with mics_free. */
mics_status run_share_open(const run_context *context, _Atomic float **largest_out);

/* Whether all numbers of `shards` are what a save may hold: finite, and no larger than they
 * can be (magnitude.h) behind what was saved before.
 * Returns: MICS_OK; MICS_ERR_NUMERIC, logged with the element of which unit is not.  Threads: any. */
mics_status run_share_check_numbers(const run_context *context, const mics_optimizer_shard *shards,
                                    int64_t step);

/* What is saved with a step, by the rank, between steps where there are several islands.
 *
 * counted: (windows, islands) of mics_outer_state, filled, and borrowed by the result; NULL: one island. */
mics_checkpoint_meta run_share_meta(const run_context *context, int64_t step, int64_t *counted);

// What is known of the time that a stop leaves.
typedef struct run_deadline {
    double asked_us; // the request to stop that `missed` is about; 0: none
    bool missed;     // the disk is too slow for it
} run_deadline;

/* Whether what is left of run.grace_s is too short for a save of the rank's share at `rate` bytes a
 * second (0: not known), and of an older one if that is still being written; found and said once for
 * each time that the run is asked to stop. It may write some MiB to find how fast the disk is.
 * Threads: the rank's or the saver's, one at a time. */
bool run_share_misses_deadline(const run_context *context, double rate, bool writes_older,
                               run_deadline *deadline);
