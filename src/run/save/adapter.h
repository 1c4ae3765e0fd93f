// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Adapters in folders as PEFT saves them: names of tensors, and adapter_config.json.
#pragma once

#include "saved.h"

/* Elements of the parameters of a model that are an adapter's. */
int64_t run_adapter_elems(const mics_model *model);

/* Whether files of a model have a parameter; `adapter`: or those of an adapter on it. */
static inline bool run_adapter_is_in(const mics_param *param, bool adapter)
{
    return adapter ? !param->frozen : !param->adapter;
}

#define RUN_ADAPTER_PREFIX "base_model.model."

enum { RUN_ADAPTER_NAME_BYTES = MICS_NAME_BYTES + 64 };

/* What PEFT's files call a tensor that is trained. */
void run_adapter_name(const char *tensor, char name_out[RUN_ADAPTER_NAME_BYTES]);

/* Writes adapter_config.json of what was saved.   Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_MEMORY. */
mics_status run_adapter_write_config(const mics_saved *saved, const char *dir);
