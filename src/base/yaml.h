// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// YAML as JSON, for the files that other programs keep so.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>

/* True for a name that ends as YAML's files do. */
bool mics_yaml_is_named(const char *name);

/* The one document of a text, as JSON in which every key and value stands on the line that it has
 * in the text, so that a line in the one is a line in the other.
 *
 * Plain words are what PyYAML takes them for, since it reads the same files elsewhere: null, true,
 * yes, on, numbers in decimal; "1e-5" is a number too, and other forms (010, 1_000, 0x10, .inf) are
 * texts. Refused are aliases, tags, keys that are no
 * single words, nesting over 64 levels and a second document. Keys that stand twice are left to the
 * reader of JSON.
 * Needs:   `text` has `bytes` bytes; `name` stands for the file in errors.
 * Returns: MICS_OK; MICS_ERR_FORMAT ("NAME:LINE:COLUMN: what"); MICS_ERR_MEMORY.
 * Owns:    the caller frees *json_out, which has a NUL behind its bytes, with mics_free.
 * Threads: any.
 */
mics_status mics_yaml_to_json(mics_memory *memory, const char *name, const char *text, size_t bytes,
                              char **json_out, size_t *bytes_out);
