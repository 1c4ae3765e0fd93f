// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of pairs in the reference, which is what training begins with. They are computed
// once, without dropout, before the first step: of all pairs that a run's steps and validations read,
// and kept in OUT/references, so that a resumed run has them.
#pragma once

#include "mics/status.h"
#include <stdint.h>

typedef struct mics_job mics_job;
typedef struct run_context run_context;

// OUT/references, little-endian.
typedef struct run_references_file {
    char magic[8];
    uint64_t data, weights;    // hashes of what they are computed of
    int64_t train, validation; // samples of data.train, of data.validation
    uint64_t hash;             // of the values
    float values[];            // (train + validation); NaN: not known
} run_references_file;

// Where a job's objective has pairs; else all is 0.
typedef struct run_references {
    run_references_file *file;
    // (lacking_count) First samples of pairs that are read and not known: lacking_train of data.train,
    // then those of data.validation.
    int64_t *lacking;
    int64_t lacking_count, lacking_train;
} run_references;

/* Takes what OUT/references has of this data and these weights, gives it to the job's samples, and
 * finds what is lacking. A file of others is passed over, with a line.
 *
 * Needs:   data, schedule, and what the run resumes from, or begins with.
 * Returns: MICS_OK; as mics_packing_row; MICS_ERR_MEMORY.
 * Owns:    run_references_close. */
mics_status run_references_open(mics_job *job);
void run_references_close(mics_job *job);

/* Computes what is lacking, each rank a part of it, by the parameters that the engine has: those that
 * training begins with.
 *
 * Returns: MICS_OK; as mics_engine_log_probs; MICS_ERR_INTERRUPTED: it is to stop, and what it has is
 *          kept; MICS_ERR_NUMERIC; MICS_ERR_IO; MICS_ERR_INVALID: what is there is of other weights.
 *          Collective: over ranks. */
mics_status run_references_compute(const run_context *context);
