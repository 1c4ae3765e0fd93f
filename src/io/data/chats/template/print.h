// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str and repr, and JSON.
#pragma once

#include "io/data/chats/template/value.h"

typedef struct mics_json_style {
    bool ensure_ascii, sort_keys;
    mics_value indent; // a string; ABSENT: all on one line
    mics_value comma, colon;
} mics_json_style;

/* Writes str(value) to the output. */
void mics_print(mics_work *work, mics_value value);
/* str(value), as a string; a string is itself. */
mics_value mics_print_str(mics_work *work, mics_value value);
/* Writes json.dumps(value). `level`: how deep it is nested. */
void mics_print_json(mics_work *work, mics_value value, const mics_json_style *style, int level);
