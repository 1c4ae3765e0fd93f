// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the tree of a JSON document no longer knows and its text still does: nesting and lines.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A place in a text, both from 1; the column counts bytes.
typedef struct mics_json_place {
    int32_t line;
    int32_t column;
} mics_json_place;

/* True when arrays and objects nest deeper than `limit`; *place_out is then the first bracket that
 * does. The text may hold anything. */
bool mics_json_text_too_deep(const char *text, size_t bytes, int32_t limit,
                             mics_json_place *place_out);

/* Bytes of memory that a text's tree takes, and no less than that: what jansson 2.13 to 2.14 asks
 * glibc for. The text may hold anything.
 */
uint64_t mics_json_text_tree_bytes(const char *text, size_t bytes);

/* Turns integers beyond int64 into reals of as many characters: 10000000000000000000 into
 * 100000000000000000e2. What that changes is less than half of a double's last bit.
 *
 * Needs:   text that is followed by a NUL, and may hold anything else.
 */
void mics_json_text_widen(char *text, size_t bytes);

/* Copies a text with NaN, Infinity and -Infinity in quotes, and numbers beyond a double's range, such
 * as 1e999: Python's json writes and reads these, and JSON has no such numbers. Lines stay as they are.
 *
 * Needs:   text that is followed by a NUL, and may hold anything else; `out` of 2 * bytes.
 * Returns: bytes of the copy, which has no NUL at its end; as many as the text's if nothing changed.
 */
size_t mics_json_text_quote_nonfinite(const char *text, size_t bytes, char *out);

/* Line of the key at a dotted path; 0 when there is none, or it is written with escapes.
 *
 * Needs:   text that a JSON parser has accepted, and is followed by a NUL.
 */
int32_t mics_json_text_line(const char *text, const char *path, size_t path_bytes);
