// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The first rows of a run's files, as they stand: for whoever has to know what they are before the
// tokens are made.
#pragma once

#include "base/json.h"

typedef struct mics_row {
    const char *name; // "PATH, line N"
    const mics_json_value *value;
    bool last; // set by whoever is given it: no more are wanted
} mics_row;

typedef struct mics_rows_spec { // borrowed
    const char *const *patterns;
    int32_t count;
    const char *const *columns; // of Parquet, as in mics_parquet_source
    int64_t skip_bad_lines;     // so many bad rows, of `take` too, are warnings
} mics_rows_spec;

/* Gives the rows of JSON Lines, JSON arrays and Parquet, file by file; others are passed over.
 *
 * Returns: as mics_files_add, mics_reader_find_content, mics_record_read; or what `take` returned,
 *          if not MICS_OK. */
mics_status mics_rows_walk(mics_memory *memory, const mics_rows_spec *spec,
                           mics_status (*take)(void *ctx, mics_row *row), void *ctx);
