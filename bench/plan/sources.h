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

/* By whose software a row is: what it says itself, or its source; else "mics". */
const char *sources_software(const source_rules *rules, const mics_json_value *row);

/* The share of layers that it recomputes; NULL: not known. */
const mics_json_value *sources_recompute(const source_rules *rules, const mics_json_value *row);

/* Tokens of a sequence. */
int64_t sources_length(const mics_json_value *row);

/* The row's model: of a name the file in `configs`, else of its shape, which is a GPT-2's with as many
 * FLOPs; a Llama's gated layers have two thirds of such an inner size. */
mics_status sources_model(const source_rules *rules, mics_memory *memory, const char *configs,
                          const mics_json_value *row, mics_model **model_out);
