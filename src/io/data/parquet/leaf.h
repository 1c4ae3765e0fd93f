// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The entries of one column of a row group: a page of them is in memory at a time, and its dictionary.
#pragma once

#include "io/data/buffer.h"
#include "io/data/parquet/coding.h"
#include "io/data/parquet/schema.h"
#include "mics/log.h"

// What the leaves of a file share.
typedef struct mics_parquet_pages {
    mics_memory *memory;
    const char *path;
    int file;
    int64_t bytes; // of it
    mics_parquet_schema schema;
    int64_t group;          // number of the row group, from 1
    size_t held, max_bytes; // of pages and dictionaries in memory
    mics_buffer packed;     // a page as it lies in the file
} mics_parquet_pages;

// Zeroed it is a column that nobody reads.
typedef struct mics_parquet_leaf {
    mics_parquet_pages *of;
    int32_t node; // 0: nobody reads it
    int32_t codec;
    int64_t at, end; // offsets in the file: of the next page, and behind the last one
    int64_t left;    // entries of the row group, with the current one
    int64_t in_page; // of these, those that the page still has
    mics_buffer page, dictionary;
    uint32_t *starts;              // (entries) of strings in the dictionary
    int64_t entries;               // of the dictionary
    int32_t encoding;              // of the page's values
    mics_runs reps, defs, indices; // the last also bools
    const unsigned char *value, *value_end;
    uint32_t rep, def; // of the current entry; it has a value if `def` is the node's
} mics_parquet_leaf;

/* Begins with a row group. `from` stands before the ColumnChunk of the leaf.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT, MICS_ERR_UNSUPPORTED: logged, with file and column; as
 *          mics_parquet_leaf_next.
 */
mics_status mics_parquet_leaf_begin(mics_parquet_leaf *leaf, mics_thrift *from);

/* Goes on to the next entry, if `left` is not 0.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT; MICS_ERR_UNSUPPORTED; MICS_ERR_IO; MICS_ERR_MEMORY.
 */
mics_status mics_parquet_leaf_next(mics_parquet_leaf *leaf);

// A value as PLAIN has it, but for a string's length, and for a bool, which is a byte.
typedef struct mics_parquet_value {
    const unsigned char *bytes;
    size_t length;
} mics_parquet_value;

/* Takes the value of the current entry, which must have one, once. It holds until the next entry. */
mics_status mics_parquet_leaf_value(mics_parquet_leaf *leaf, mics_parquet_value *value_out);

/* Logs what is wrong with a column, and returns `status`. */
mics_status mics_parquet_leaf_fail(const mics_parquet_leaf *leaf, mics_status status,
                                   const char *format, ...) MICS_PRINTF(3, 4);

void mics_parquet_leaf_fini(mics_parquet_leaf *leaf);
