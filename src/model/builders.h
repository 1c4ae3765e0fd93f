// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One builder a family; from_config.c chooses by model_type. Private to this module.
#ifndef MICS_MODEL_BUILDERS_H
#define MICS_MODEL_BUILDERS_H

#include "mics/model.h"

// What every builder reads from a Hugging Face configuration; errors name file, line and key.
typedef struct config_reader {
    const mics_json *json;
    mics_status status; // first failure; later reads do nothing
} config_reader;

/* An integer within [min, max]; `fallback` when absent, or an error when fallback < min. */
int64_t config_int(config_reader *reader, const char *key, int64_t min, int64_t max,
                   int64_t fallback);
double config_real(config_reader *reader, const char *key, double min, double max, double fallback);
bool config_bool(config_reader *reader, const char *key, bool fallback);
/* Fails unless the key is absent or holds one of the texts, which are separated by '|'. */
void config_require(config_reader *reader, const char *key, const char *texts);

// The families, X(model_type): build_<model_type> is the builder.
#define MODEL_FAMILIES(X) X(gpt2)

/* Each builds a model, not finished yet. Owns: *model_out is the caller's, also after a failure;
 * NULL where it was not opened.
 */
#define MODEL_DECLARE_(type)                                                                       \
    mics_status build_##type(mics_memory *memory, config_reader *reader, bool allow_dropout,       \
                             mics_model **model_out);
MODEL_FAMILIES(MODEL_DECLARE_)
#undef MODEL_DECLARE_

#endif
