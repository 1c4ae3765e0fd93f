// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A Parquet file as JSON Lines: a row is an object, with the columns in the schema's order.
//
// Strings, bools, integers and floating-point numbers, lists, structs and maps with strings as keys
// (which become objects) are read, with nulls anywhere. A list and a struct are null, empty or there, as
// in the file. Numbers that are not finite are written as Python's json does. What is not read is one
// error line, if its column is wanted.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct mics_parquet mics_parquet;

enum { MICS_PARQUET_MAX_BYTES = 1 << 30 }; // of all pages in memory, and of a row's text

// What is read. All is borrowed, `columns` while opening and the others until the file is closed.
typedef struct mics_parquet_source {
    const char *path;
    int file; // open for reading; it is read at offsets
    int64_t bytes;
    const char *const *columns; // names of those to be read, and NULL; NULL: all
    size_t max_bytes;           // 0: MICS_PARQUET_MAX_BYTES
} mics_parquet_source;

/* Opens a file. Of the columns that are wanted, one at least must be there.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT: damaged, or no Parquet; MICS_ERR_UNSUPPORTED: which column holds
 *          what, and what would work; MICS_ERR_INVALID: no such column, and which there are;
 *          MICS_ERR_IO; MICS_ERR_MEMORY. Logged.
 * Owns:    close with mics_parquet_close.
 */
mics_status mics_parquet_open(mics_memory *memory, const mics_parquet_source *source,
                              mics_parquet **parquet_out);
void mics_parquet_close(mics_parquet *parquet);

/* Goes back to the first row. */
void mics_parquet_rewind(mics_parquet *parquet);

/* Reads `bytes` of the rows, as lines of JSON, or what is left: less than `bytes` only at the end. A
 * page of each column is in memory.
 *
 * Returns: MICS_OK; as mics_parquet_open.
 */
mics_status mics_parquet_read(mics_parquet *parquet, char *to, size_t bytes, size_t *got_out);

/* About how many of the file's bytes are read: where in it the first column's next page lies. */
int64_t mics_parquet_at(const mics_parquet *parquet);
