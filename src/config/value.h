// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Single values of a run file: reading numbers and sizes, and writing values as JSON.
#pragma once

#include "base/json.h"

/* A whole number, also one written as a real (5e8) up to 2^53. False: it is none. */
bool mics_config_value_int(const mics_json_value *value, int64_t *number_out);

/* "8GiB", "1.5 GB", "4096": digits, at most one dot, a unit (B, K, M, G, T, each also with B or iB;
 * K to T alone mean 1024s). False: not of that form, or 2^63 and more. */
bool mics_config_bytes_parse(const char *text, int64_t *bytes_out);

/* True when a value switches off what it stands for: null, false, 0, "none", "auto", an object with
 * "enabled" or "device" off, or an object or array that holds nothing else than such values. */
bool mics_config_value_off(const mics_json_value *value);

/* The same of a degree, or of a section with degrees ("autotp_size", "tp_size", "stages"), which may
 * also be 1. A section that is "enabled" is not off. */
bool mics_config_value_one(const mics_json_value *value);

/* Where a text stands in a list of choices, which it was taken from; the list ends with NULL. */
int mics_config_index_of(const char *const *choices, const char *text);

// Writers put at most `capacity` bytes, with a closing NUL, and "..." where they had to cut.

/* A value as JSON on one line. Returns false when it had to be cut. */
bool mics_config_value_whole(const mics_json_value *value, char *text, size_t capacity);
/* The same. Returns `text`. */
char *mics_config_value_text(const mics_json_value *value, char *text, size_t capacity);
/* Strings as JSON: an array of them, or one. */
char *mics_config_string_text(const char *string, char *text, size_t capacity);
char *mics_config_strings_text(const char *const *strings, int32_t count, char *text,
                               size_t capacity);
/* Paths with weights; weights NULL: strings. */
char *mics_config_sources_text(const char *const *paths, const double *weights, int32_t count,
                               char *text, size_t capacity);
