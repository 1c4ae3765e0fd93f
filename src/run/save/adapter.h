// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Adapters in folders as PEFT saves them: adapter_config.json and adapter_model.safetensors.
#pragma once

#include "config/peft.h"
#include "mics/core/checkpoint.h"
#include "mics/core/mesh.h"
#include "mics/model.h"

/* Elements of the parameters of a model that are an adapter's. */
int64_t run_adapter_elems(const mics_model *model);

/* Opens the weights of a folder. Its tensors must be those that the model trains, no other one, and
 * of their shapes; names may have PEFT's ".default".
 *
 * Needs:   a model with the adapter that the folder's config says.
 * Returns: MICS_OK; MICS_ERR_INVALID: tensors are missing, unknown or of other shapes, logged; as
 *          mics_safetensors_open.
 * Owns:    close with mics_safetensors_close.
 */
mics_status run_adapter_open(mics_memory *memory, const mics_model *model, const char *folder,
                             mics_safetensors **reader_out);

/* Reads elements `range` of a unit's trained parameters, as run_import_read.
 *
 * Shapes:  data_out: (range.end - range.begin).
 * Needs:   a reader that run_adapter_open gave.
 * Returns: MICS_OK; what reading returned.
 */
mics_status run_adapter_read(const mics_unit *unit, const mics_safetensors *reader,
                             mics_range range, float *data_out);

enum { RUN_ADAPTER_NAME_BYTES = MICS_NAME_BYTES + 64 };

/* What PEFT's files call a tensor that is trained. */
void run_adapter_name(const char *tensor, char name_out[RUN_ADAPTER_NAME_BYTES]);

/* Writes adapter_config.json. `base`: NULL: unknown.
 *
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_MEMORY.
 */
mics_status run_adapter_write_config(mics_memory *memory, const mics_model *model,
                                     const mics_lora_spec *spec, const char *base, const char *dir);
