// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The adapter_config.json of a folder as PEFT saves adapters.
#pragma once

#include "base/json.h"
#include "mics/builder.h"
#include "mics/model.h"

#define MICS_PEFT_CONFIG "adapter_config.json"
#define MICS_PEFT_WEIGHTS "adapter_model.safetensors"

// "target_modules" for all linears but the LM head's.
#define MICS_PEFT_ALL_LINEAR "all-linear"

enum { MICS_LORA_MAX_RANK = 4096 };

typedef struct mics_peft {
    mics_json *json;
    const char *base;    // base_model_name_or_path; NULL: it says none
    mics_lora_spec spec; // its texts are those of json
    const char **targets, **saved;
} mics_peft;

/* Whether a path is a folder with an adapter_config.json. */
bool mics_peft_is_folder(const char *path);

/* Reads it. Keys that change nothing are passed over, others that are not honoured are errors.
 *
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_FORMAT, MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED, one line
 *          with file, line and key; MICS_ERR_MEMORY.
 * Owns:    mics_peft_fini, also after a failure; a zeroed one may be given to it.
 */
mics_status mics_peft_init(mics_memory *memory, const char *folder, mics_peft *peft_out);
void mics_peft_fini(mics_memory *memory, mics_peft *peft);

/* The same of the "adapter" that a stored run has; `name`: for errors. */
mics_status mics_peft_init_stored(mics_memory *memory, const char *name,
                                  const mics_json_value *adapter, mics_peft *peft_out);

/* The list of modules that "target_modules" or "modules_to_save" is: none of "all-linear" and null.
 *
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED (a regular expression), MICS_ERR_FORMAT, logged with `path`;
 *          MICS_ERR_MEMORY.
 * Owns:    mics_free *texts_out; the texts are json's.
 */
mics_status mics_peft_modules(mics_memory *memory, const mics_json *json, const char *path,
                              const char ***texts_out, int32_t *count_out);

/* Refuses a text in place of a list. Returns: MICS_ERR_UNSUPPORTED, logged. */
mics_status mics_peft_refuse_pattern(const mics_json *json, const char *path);
