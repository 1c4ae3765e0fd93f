// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is known of the software behind published throughputs, by their source: one rule a line of
// sources.jsonl, for rows that do not say it themselves.
#pragma once

#include "base/json.h"
#include "mics/model.h"
#include <stdint.h>
#include <stdio.h>

enum { MAX_RULES = 64 };

typedef struct source_rules {
    mics_json *rules[MAX_RULES];
    int32_t count;
} source_rules;

/* Reads sources.jsonl. Owns: rules_out, until sources_close, also after a failure. */
mics_status sources_open(mics_memory *memory, const char *path, source_rules *rules_out);

void sources_close(source_rules *rules);

/* Changes figures of a row's cluster file as the rules say that match its id, source or note; what
 * the file has itself stays. Of several rules the first that names a figure counts. */
mics_status sources_set(const source_rules *rules, const mics_json_value *row, mics_json *cluster);

/* Which Megatron a row ran; 0: not known. */
int64_t sources_era(const source_rules *rules, const mics_json_value *row);

/* The row's model. Its shape is a GPT-2's with as many FLOPs; a Llama's gated layers have two
 * thirds of such an inner size. */
mics_status sources_model(const source_rules *rules, mics_memory *memory,
                          const mics_json_value *row, mics_model **model_out);
