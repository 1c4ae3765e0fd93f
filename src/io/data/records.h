// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of several texts: lines of JSON Lines, elements of a JSON array, rows of a table; of plain text,
// lines with their ends. A record is the bytes of one of them, with what stands before it or ends it.
#pragma once

#include "base/json.h"
#include "io/data/buffer.h"
#include "io/data/reader.h"

typedef struct mics_records {
    mics_memory *memory;
    const char *path, *field; // which member or column is the text; NULL: rows are whole
    mics_text_kind kind;
    bool rows;               // lines are those of Parquet
    int32_t column, columns; // of a table
} mics_records;

/* Bytes of the record at the head of a text; 0: more of the file is needed. `ended`: there is none.
 *
 * Needs:   bytes >= 1.
 */
size_t mics_records_next(const mics_records *records, const char *text, size_t bytes, bool ended);

/* Line ends in a text. */
int64_t mics_records_lines(const char *text, size_t bytes);

enum { MICS_RECORD_NAME = 4096 + 32 }; // bytes of "PATH, line N"
void mics_records_name(const mics_records *records, int64_t line, char *name, size_t capacity);

/* Finds the column by a table's first row.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (there is none: the columns are named); MICS_ERR_MEMORY.
 */
mics_status mics_records_read_header(mics_records *records, const char *row, size_t bytes);

// The text of a record: NULL: it has none, or rows are whole. `json` is closed with mics_record_fini.
typedef struct mics_record {
    const char *text;
    size_t bytes;
    mics_json *json;
} mics_record;

/* Reads a record, whose first line is number `line` (from 1), of several of the file; `first`: it is
 * the first of the file. `space` may hold its text.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT, MICS_ERR_INVALID: what is wrong in which line; MICS_ERR_MEMORY.
 * Owns:    mics_record_fini, also after a failure.
 */
mics_status mics_record_read(const mics_records *records, const char *bytes_of, size_t bytes,
                             int64_t line, bool first, mics_buffer *space, mics_record *record_out);
void mics_record_fini(mics_record *record);
