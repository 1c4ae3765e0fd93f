// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where a run's first parameters come from: safetensors, or a checkpoint; each rank reads only the
// ranges that it holds.
#pragma once

#include "mics/core/checkpoint.h"
#include "mics/core/engine.h"
#include "mics/core/mesh.h"
#include "mics/core/optimizer.h"
#include "mics/log.h"
#include "mics/model.h"
#include "mics/status.h"
#include <stdbool.h>

/* Opens safetensors (a file, an index, or a folder as it is downloaded), and checks that they have
 * every tensor of the model in the right shape and nothing else. Attention masks, rotary
 * frequencies, and a tied LM head that is the same as the embeddings, may be there.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, naming the tensor; MICS_ERR_UNSUPPORTED (a folder with
 *          pytorch_model.bin alone: says how to convert it); what mics_safetensors_open returned.
 * Owns:    close with mics_safetensors_close.
 */
mics_status run_import_open(mics_memory *memory, const mics_model *model, const char *path,
                            mics_safetensors **reader_out);

/* The same of a folder as PEFT saves adapters: its tensors are those that the model trains. Names may
 * have PEFT's ".default".
 *
 * Needs:   a model with the adapter that the folder's config says.
 * Returns: as run_import_open. Owns: close with mics_safetensors_close.
 */
mics_status run_import_open_adapter(mics_memory *memory, const mics_model *model,
                                    const char *folder, mics_safetensors **reader_out);

/* Whether a folder holds safetensors under the names that Hugging Face gives them. Returns:
 * MICS_OK; MICS_ERR_UNSUPPORTED (pytorch_model.bin alone, or a step of a run: says how to convert
 * it); MICS_ERR_MEMORY. */
mics_status run_import_is_folder(mics_memory *memory, const char *path, bool *is_out);

/* Reads the generation_config.json of a folder: an object, whose eos_token_id names tokens.
 *
 * Returns: MICS_OK, with *json_out as it was where there is none; MICS_ERR_IO, MICS_ERR_FORMAT,
 *          MICS_ERR_INVALID (eos_token_id), MICS_ERR_MEMORY, logged.
 * Owns:    close with mics_json_close.
 */
mics_status run_import_generation(mics_memory *memory, const char *folder, mics_json **json_out);

/* Reads elements `range` of a unit's flat buffer; those between parameters, and parameters that such
 * files do not have, are left as they are.
 *
 * adapter: the reader is of run_import_open_adapter, else of run_import_open.
 * Shapes:  data_out: (range.end - range.begin).
 * Returns: MICS_OK; what reading returned.        Threads: any, on one reader.
 */
mics_status run_import_read(const mics_unit *unit, const mics_safetensors *reader, bool adapter,
                            mics_range range, float *data_out);

/* A hash of a range of a unit's elements, each with its place: that of a whole is the sum of those of
 * its parts, modulo 2^64, however it is cut. Pure.
 *
 * Shapes:  data: (range.end - range.begin).
 */
uint64_t run_import_hash(const mics_unit *unit, mics_range range, const float *data);

// What a rank fills.
typedef struct run_import {
    const mics_safetensors *reader; // that run_import_open gave; NULL: what is there stays
    const mics_safetensors
        *adapter; // of run_import_open_adapter, with first values of what trains; NULL: none
    const mics_schedule *schedule;
    int32_t rank;
    bool frozen_alone; // leaves units that train as they are
    mics_work_listener listener;
} run_import;

/* Fills this rank's parameter shards, those of adapters only from the adapter's reader, and tells the listener by units;
 * then call mics_engine_upload. *hash_out: of frozen parameters in the files, what counts of this
 * rank's; the sum over ranks is the same on any mesh.
 *
 * Returns: MICS_OK; what reading returned; MICS_ERR_NUMERIC: a number is not finite, logged with
 *          its tensor.
 * Threads: any, on one reader.        Collective: no.
 */
mics_status run_import_fill(const run_import *import, mics_engine *engine, uint64_t *hash_out);
