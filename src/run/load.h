// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A checkpoint as one process reads it: for generate, eval, convert and the sample after training.
#ifndef MICS_RUN_LOAD_H
#define MICS_RUN_LOAD_H

#include "mics/checkpoint.h"
#include "mics/data.h"
#include "mics/json.h"
#include "mics/model.h"
#include "mics/status.h"

typedef struct run_saved {
    mics_memory *memory;
    char *path; // the step's folder
    mics_checkpoint *checkpoint;
    const mics_checkpoint_meta *meta;
    mics_json *config;
    mics_model *model;
    mics_tokenizer *tokenizer; // NULL: trained on token shards of which nobody knows the text
    bool only_shards;          // the run's data were token shards
    int64_t sequence; // tokens of a sequence in training: positions from there on are untrained
    float **params;   // by unit, the flat buffers; NULL until run_saved_read_params
} run_saved;

/* Opens what PATH means (see run_checkpoint_find), its model and its tokenizer; no parameters yet.
 *
 * Returns: MICS_OK; what was wrong, logged.
 * Owns:    the caller's storage; end it with run_saved_fini, also after a failure.
 */
mics_status run_saved_init(mics_memory *memory, const char *path, run_saved *saved_out);
void run_saved_fini(run_saved *saved);

/* Writes the error line that mics_log_hold kept back while the checkpoint's data were read; when they
 * are damaged (`status`), with what to do. Returns `status`.
 */
mics_status run_saved_speak(mics_status status);

/* Reads the whole model into memory.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY when the machine has too little (said before any is taken);
 * what reading returned.
 */
mics_status run_saved_read_params(run_saved *saved);

#endif
