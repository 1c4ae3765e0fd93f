// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Reading the objects of a tokenizer.json: members of a type, or an error with their place.
#pragma once

#include "base/json.h"
#include "io/data/tokenizer/split.h"

/* A member that is true or false. Leaves *value_out as it is when it is absent.
 * Returns: MICS_OK; MICS_ERR_FORMAT (of another type; `path` is the place). */
mics_status mics_read_bool(const mics_json *json, const mics_json_value *object, const char *path,
                           const char *key, bool *value_out);

/* A member that is a text. With `wanted` it must be there, and *text_out is never NULL; else it is
 * NULL when the member is absent or null. */
mics_status mics_read_text(const mics_json *json, const mics_json_value *object, const char *path,
                           const char *key, bool wanted, const char **text_out);

/* A member that is a text of one character. */
mics_status mics_read_char(const mics_json *json, const mics_json_value *object, const char *path,
                           const char *key, const char **text_out);

/* "pattern": {"String": ...} or {"Regex": ...}. */
mics_status mics_read_pattern(const mics_json *json, const mics_json_value *object,
                              const char *path, const char **text_out, bool *regex_out);

/* A Metaspace's "prepend_scheme", which older files call "add_prefix_space". */
mics_status mics_read_prepend(const mics_json *json, const mics_json_value *object,
                              const char *path, mics_split_prepend *prepend_out);

/* Calls `step` for the object at `path`, or for each member of its list `list` where its type is
 * Sequence, one inside the other. `step` gets the object and its type.
 * Returns: MICS_OK; MICS_ERR_FORMAT (no list, over 8 lists inside each other); the step's. */
typedef mics_status mics_read_step(void *ctx, const mics_json_value *object, const char *type);
mics_status mics_read_sequence(const mics_json *json, const char *path, const char *list,
                               mics_read_step *step, void *ctx);
