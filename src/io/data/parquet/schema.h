// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The columns of a Parquet file: a tree whose leaves hold the values, and the definition and
// repetition levels at which its nodes are there (Dremel, Melnik et al., VLDB 2010, section 4).
#pragma once

#include "io/data/parquet/thrift.h"
#include "mics/memory.h"
#include "mics/status.h"

// Physical types, by their numbers in the file.
enum { MICS_PARQUET_BOOL, MICS_PARQUET_INT32, MICS_PARQUET_INT64, MICS_PARQUET_INT96 };
enum { MICS_PARQUET_FLOAT = 4, MICS_PARQUET_DOUBLE, MICS_PARQUET_BYTES, MICS_PARQUET_FIXED };
enum { MICS_PARQUET_TYPES = 8 };

typedef enum mics_parquet_kind {
    MICS_PARQUET_VALUE, // a leaf
    MICS_PARQUET_STRUCT,
    MICS_PARQUET_LIST,
    MICS_PARQUET_MAP
} mics_parquet_kind;

typedef struct mics_parquet_node {
    const char *name; // UTF-8, of the footer's bytes
    size_t name_bytes;
    const char *refused; // what it holds that is not read; NULL: it is
    mics_parquet_kind kind;
    int32_t type;           // of a leaf: physical
    bool is_unsigned;       // of an integer
    bool optional;          // may be null
    bool repeated;          // as a list's and a map's child is
    int32_t def, rep;       // levels at which it is there, and of its repetition
    int32_t end;            // nodes [its index, end) are its subtree
    int32_t leaf, end_leaf; // leaves of its subtree: [leaf, end_leaf)
} mics_parquet_node;

typedef struct mics_parquet_schema {
    mics_parquet_node *nodes; // (count), each before its children; the first is the root
    int32_t count, leaves;
} mics_parquet_schema;

/* Reads the list of a footer that `field` is. The footer's bytes must stay as long as the schema.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT (logged, with `path`); MICS_ERR_MEMORY.
 * Owns:    mics_free of schema->nodes, also after a failure.
 */
mics_status mics_parquet_schema_read(mics_memory *memory, const char *path, mics_thrift *from,
                                     mics_thrift_field *field, mics_parquet_schema *schema);

/* The dotted path of a node, cut to `capacity`. Returns `text`. */
const char *mics_parquet_schema_path(const mics_parquet_schema *schema, int32_t node, char *text,
                                     size_t capacity);
