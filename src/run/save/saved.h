// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A checkpoint, or a folder of Hugging Face's, as one process reads it: for generating, evaluating
// and exporting.
#pragma once

#include "base/json.h"
#include "config/peft.h"
#include "io/data/data.h"
#include "mics/core/checkpoint.h"
#include "mics/core/engine.h"
#include "mics/model.h"
#include "mics/run.h"
#include "mics/status.h"

struct mics_saved {
    mics_memory *memory;
    char *path; // the step's folder, or Hugging Face's
    mics_checkpoint *checkpoint;
    mics_safetensors *weights;       // in place of a checkpoint, or of what it froze; else NULL
    mics_safetensors *adapter;       // of a folder of PEFT's, what that trains; else NULL
    mics_peft peft;                  // rank 0: no adapter
    char *base;                      // folder of `weights`, where they are not all; else NULL
    bool alone;                      // weights are not opened then
    mics_checkpoint_meta downloaded; // what stands for a checkpoint's then
    char *tokenizer_path;            // there
    const mics_checkpoint_meta *meta;
    mics_json *config;
    mics_json *generation; // generation_config.json, of a run that of model.init; NULL: none
    mics_json
        *files; // texts of the model's folder by name, as the checkpoint keeps them; NULL: a folder
    mics_model *model;
    mics_tokenizer *tokenizer; // NULL: nobody knows what text the tokens are
    bool only_shards;          // the run's data were token shards
    bool frames_texts;         // texts and prompts stand in the tokenizer's frame
    bool document_mask;        // attention stays within a document, as in training
    bool special_tokens;       // that texts named were taken as such in training
    char *text_field;          // of JSON Lines in training; NULL: nobody said
    int64_t *ends;             // (end_count) tokens that end a text, as config.json has them, or
    int32_t end_count;         // generation_config.json, where there is one
    int64_t sequence; // tokens of a sequence in training: positions from there on are untrained
    void **params;    // by unit, as mics_decoder_place says; NULL until mics_saved_load
    mics_dtype dtype; // of those of two dimensions there
    mics_work_listener listener;
};

/* As mics_saved_open, of a checkpoint of an adapter that is exported alone: its base may be gone. */
mics_status run_saved_open_alone(mics_memory *memory, const char *path,
                                 const mics_model_builder *builder, mics_saved **saved_out);

/* Reads elements `range` of a unit's flat buffer of parameters.
 *
 * Shapes:  data_out: (range.end - range.begin).
 * Returns: MICS_OK; what reading the checkpoint or the weights returned. */
mics_status run_saved_read(const mics_saved *saved, int32_t unit, mics_range range,
                           float *data_out);

/* Fills an engine's parameter shards. Returns: as run_saved_read. Collective: no. */
mics_status run_saved_fill(const mics_saved *saved, mics_engine *engine);

/* Whether what needs so many bytes has them on this machine: MICS_OK; MICS_ERR_MEMORY, MICS_ERR_IO,
 * logged. */
mics_status run_saved_check_fits(const mics_saved *saved, const char *what, double bytes);

#define RUN_SAVED_ADVICE "restore it, or give another step's folder (RUN/checkpoints/step-N)"

/* Adds to the error line that was kept back since mics_log_hold what to do when the checkpoint's
 * data are damaged, and writes it. Returns `status`. */
mics_status run_saved_speak(mics_status status);

/* Gives the model the adapter that saved->peft says. Returns: as mics_model_add_lora. */
mics_status run_saved_add_adapter(mics_saved *saved);

/* Gives the model of a checkpoint what its run trained, where that is not all, and opens the rest: in
 * saved->base, or where the run says.
 *
 * run:     as the checkpoint has it.
 * Returns: MICS_OK; MICS_ERR_IO: it is gone; MICS_ERR_INVALID: there is a base and no need of it; as
 *          run_import_open. Logged. */
mics_status run_saved_open_base(mics_saved *saved, const mics_json *run);

/* Finds the checkpoint folder that PATH means: itself, or the newest in it or in its checkpoints/.
 * Returns: MICS_OK; MICS_ERR_IO, logged, when there is none. Owns: mics_free *folder_out. */
mics_status run_checkpoint_find(mics_memory *memory, const char *path, char **folder_out);

/* What stands around texts and prompts: the tokenizer's frame where the run trained so, and in a
 * downloaded folder as its tokenizer.json says; else nothing.
 *
 * Needs:   a tokenizer.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED: a downloaded folder asks for what is not known, logged.
 * Owns:    the tokens are the tokenizer's.
 */
mics_status run_saved_frame(const mics_saved *saved, mics_token_frame *frame_out);

/* Warns where a folder's tokenizer_config.json has a token put around texts, and its tokenizer.json none. */
void run_warn_of_frame(mics_memory *memory, const char *folder, const mics_tokenizer *tokenizer);

/* Whether a file is a token shard by its name, or a path by the .idx beside it. */
bool run_is_shard(const char *path);

/* Whether a tokenizer.json is that of an export of a run with the byte tokenizer, which has a
 * separator that no tokenizer.json can have. Returns: as mics_file_read_whole. */
mics_status run_is_byte_tokenizer(mics_memory *memory, const char *path, bool *is_out);

/* Whether nobody can say what text a run's tokens are: all of its data are token shards
 * (`only_shards`), and no tokenizer.json was given for them. Then data.tokenizer's default has no
 * say. A model of exactly 256 tokens is taken to be one of bytes.
 */
bool run_tokens_unknown(const char *tokenizer, bool only_shards, int64_t vocab);
