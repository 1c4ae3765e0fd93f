// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A checkpoint as one process reads it: for generating, evaluating and exporting.
#ifndef MICS_RUN_SAVED_H
#define MICS_RUN_SAVED_H

#include "mics/checkpoint.h"
#include "mics/data.h"
#include "mics/json.h"
#include "mics/model.h"
#include "mics/run.h"
#include "mics/status.h"

struct mics_saved {
    mics_memory *memory;
    char *path; // the step's folder
    mics_checkpoint *checkpoint;
    const mics_checkpoint_meta *meta;
    mics_json *config;
    mics_model *model;
    mics_tokenizer *tokenizer; // NULL: trained on token shards of which nobody knows the text
    bool only_shards;          // the run's data were token shards
    int64_t sequence; // tokens of a sequence in training: positions from there on are untrained
    float **params;   // by unit, the flat buffers; NULL until mics_saved_load
};

/* Whether what needs so many bytes has them on this machine: MICS_OK; MICS_ERR_MEMORY, MICS_ERR_IO,
 * logged. */
mics_status run_saved_check_fits(const mics_saved *saved, const char *what, double bytes);

/* Adds to the error line that was kept back since mics_log_hold what to do when the checkpoint's
 * data are damaged, and writes it. Returns `status`. */
mics_status run_saved_speak(mics_status status);

#endif
