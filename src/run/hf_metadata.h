// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What stands beside exported weights, so that transformers reads the same model and tokens.
#pragma once

#include "base/text.h"
#include "mics/core/dtype.h"
#include "run/save/saved.h"

/* Whether the value of a key of config.json is a real number, and is written as one. Key: NULL: no. */
bool run_hf_metadata_is_real(const char *key);

/* Sees before training that a config.json has numbers where transformers asks for reals.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged. */
mics_status run_hf_metadata_check_reals(const mics_json *config);

/* Before weights are written: refuses a folder that holds any of these files, and a run's, and reads
 * the tokenizer_config.json that is to be written again.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged; as run_hf_metadata_write. */
mics_status run_hf_metadata_check(const mics_saved *saved, const char *dir);

/* Writes config.json with the weights' dtype, tokenizer.json where the tokenizer is known, the files
 * of the model's folder as they were there, and where it has none generation_config.json and
 * tokenizer_config.json.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (the folder's tokenizer_config.json);
 *          MICS_ERR_MEMORY. */
mics_status run_hf_metadata_write(const mics_saved *saved, const char *dir, mics_dtype dtype);

/* The part of it that is not the model's: what an adapter has beside it. Returns: as the whole. */
mics_status run_hf_metadata_write_tokens(const mics_saved *saved, const char *dir);

/* Removes what run_hf_metadata_write has written into a folder that held none of it. */
void run_hf_metadata_remove(const mics_saved *saved, const char *dir);

/* Appends the byte tokenizer as a tokenizer.json: a byte-level vocabulary without merges. Returns:
 * the text's status. */
mics_status run_hf_metadata_byte_tokenizer(mics_text *text);
