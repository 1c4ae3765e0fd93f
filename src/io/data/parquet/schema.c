// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The shapes of lists and maps are those of Parquet's LogicalTypes.md.
#include "io/data/parquet/schema.h"
#include "base/utf8.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

enum { MAX_NODES = 1 << 16, MAX_DEPTH = 64 }; // of JSON here, too
enum { OPTIONAL = 1, REPEATED };

// What values mean, by LogicalType's numbers: those that are told apart.
enum { PLAIN, STRING, MAP, LIST, ENUM, INTEGER = 10, ONLY_NULLS, JSON, UNKNOWN = 17 };

// The meanings of the older ConvertedType; 16 is its INTERVAL.
static const int8_t converted[] = {1,  2,  2,  3,  4,  5,  6,  7,  7,  8,  8,
                                   10, 10, 10, 10, 10, 10, 10, 10, 12, 13, 16};
enum { UINT_8 = 11, UINT_64 = 14 }; // of it

typedef struct reading {
    const char *path;
    mics_thrift *from;
    mics_parquet_schema *schema;
    int32_t total;
} reading;

// Reads LogicalType, of which one field is there. Returns what it means.
static int32_t read_logical(mics_thrift *from, bool *is_unsigned)
{
    int64_t numbers[MICS_THRIFT_NUMBERS] = {[2] = 1}; // 2: of an integer, whether it is signed
    mics_thrift_field field = {0};
    int32_t meaning = PLAIN;
    while (mics_thrift_next(from, &field)) {
        meaning = field.id > 0 && field.id < UNKNOWN - 1 ? field.id : UNKNOWN;
        if (meaning == INTEGER && mics_thrift_enter(from, &field))
            mics_thrift_numbers(from, numbers);
    }
    *is_unsigned = numbers[2] == 0;
    return meaning;
}

// Reads SchemaElement. Returns what its values mean.
static int32_t read_element(mics_thrift *from, mics_parquet_node *node, int64_t *children_out)
{
    enum { TYPE = 1, REPETITION = 3, NAME, CHILDREN, CONVERTED, LOGICAL = 10 };
    int64_t numbers[MICS_THRIFT_NUMBERS] = {[TYPE] = -1, [CONVERTED] = -1};
    int32_t meaning = PLAIN;
    mics_thrift_field field = {0};
    while (mics_thrift_next(from, &field)) {
        if (field.id >= TYPE && field.id <= CONVERTED)
            numbers[field.id] = field.number;
        if (field.id == NAME) {
            node->name = field.bytes;
            node->name_bytes = field.length;
        } else if (field.id == LOGICAL && mics_thrift_enter(from, &field))
            meaning = read_logical(from, &node->is_unsigned);
    }
    const int64_t old = numbers[CONVERTED], type = numbers[TYPE];
    if (meaning == PLAIN && old >= 0) {
        meaning = old < (int64_t)sizeof converted ? converted[old] : UNKNOWN;
        node->is_unsigned = old >= UINT_8 && old <= UINT_64;
    }
    node->type = type < MICS_PARQUET_TYPES ? (int32_t)type : MICS_PARQUET_TYPES;
    node->kind = type < 0 ? MICS_PARQUET_STRUCT : MICS_PARQUET_VALUE;
    node->optional = numbers[REPETITION] == OPTIONAL;
    node->repeated = numbers[REPETITION] == REPEATED;
    *children_out = numbers[CHILDREN];
    return meaning;
}

// What is not read, by its meaning.
static const char *const refused[UNKNOWN + 1] = {[MAP] = "a MAP of nothing",
                                                 [LIST] = "a LIST of nothing",
                                                 [5] = "a DECIMAL",
                                                 [6] = "a DATE",
                                                 [7] = "a TIME",
                                                 [8] = "a TIMESTAMP",
                                                 [13] = "BSON",
                                                 [14] = "a UUID",
                                                 [15] = "a FLOAT16",
                                                 [16] = "an INTERVAL",
                                                 [UNKNOWN] =
                                                     "a type that this version does not know"};

static const char *refuse_value(int32_t type, int32_t meaning)
{
    if (refused[meaning] != NULL)
        return refused[meaning];
    if (type == MICS_PARQUET_INT96)
        return "an INT96, the timestamp of older writers";
    if (type == MICS_PARQUET_BYTES && (meaning == PLAIN || meaning == INTEGER))
        return "binary data, and not marked as strings";
    return type == MICS_PARQUET_FIXED   ? "binary data of a fixed length"
           : type == MICS_PARQUET_TYPES ? refused[UNKNOWN]
                                        : NULL;
}

// Of a group whose children are read. `node` + 1 is the first.
static void settle_group(mics_parquet_node *nodes, mics_parquet_node *node, int32_t meaning)
{
    static const char list[] = "list";
    const mics_parquet_node *child = node + 1, *first = node + 2;
    const bool wraps =
        child->repeated && child->kind == MICS_PARQUET_STRUCT && child->end == node->end;
    // Of another name, the child may be the element itself.
    if (meaning == LIST && wraps && first->end == child->end && !first->repeated &&
        child->name_bytes == sizeof list - 1 && memcmp(child->name, list, sizeof list - 1) == 0)
        node->kind = MICS_PARQUET_LIST;
    else if (meaning == LIST)
        node->refused = "a LIST of another shape than the standard's";
    else if (meaning == MAP && wraps && first->kind == MICS_PARQUET_VALUE && !first->optional &&
             first->type == MICS_PARQUET_BYTES && first->end < child->end &&
             nodes[first->end].end == child->end && !first->repeated && !nodes[first->end].repeated)
        node->kind = MICS_PARQUET_MAP;
    else if (meaning == MAP)
        node->refused = "a MAP of another shape than the standard's, or whose keys are no strings";
    else if (meaning != PLAIN)
        node->refused = "a type that this version does not know";
    for (int32_t at = (int32_t)(child - nodes); node->kind == MICS_PARQUET_STRUCT && at < node->end;
         at = nodes[at].end) {
        if (nodes[at].repeated && !node->repeated)
            nodes[at].refused = "a repeated column, and no LIST";
    }
}

static mics_status read_node(reading *self, int32_t def, int32_t rep, int depth)
{
    mics_parquet_schema *schema = self->schema;
    int64_t children = 0;
    if (schema->count == self->total || depth > MAX_DEPTH)
        return mics_fail(MICS_ERR_FORMAT, "%s: its schema is damaged, or nests over %d levels",
                         self->path, MAX_DEPTH);
    const int32_t index = schema->count++;
    mics_parquet_node *node = &schema->nodes[index];
    const int32_t meaning = read_element(self->from, node, &children);
    const bool leaf = node->kind == MICS_PARQUET_VALUE;
    if (self->from->bad || node->name == NULL || leaf != (children <= 0) ||
        mics_utf8_valid(node->name, node->name_bytes) != node->name_bytes)
        return mics_fail(MICS_ERR_FORMAT, "%s: its schema is damaged, in node %d", self->path,
                         (int)index);
    node->optional &= index > 0;
    node->repeated &= index > 0;
    node->def = def + node->optional + node->repeated;
    node->rep = rep + node->repeated;
    node->leaf = schema->leaves;
    schema->leaves += leaf;
    for (int64_t i = 0; i < children; i++)
        MICS_TRY(read_node(self, node->def, node->rep, depth + 1));
    node->end = schema->count;
    node->end_leaf = schema->leaves;
    if (leaf)
        node->refused = refuse_value(node->type, meaning);
    else
        settle_group(schema->nodes, node, index > 0 ? meaning : PLAIN);
    return MICS_OK;
}

mics_status mics_parquet_schema_read(mics_memory *memory, const char *path, mics_thrift *from,
                                     mics_thrift_field *field, mics_parquet_schema *schema)
{
    const int64_t total = mics_thrift_enter_list(from, field);
    reading self = {.path = path, .from = from, .schema = schema, .total = (int32_t)total};
    if (total < 2 || total > MAX_NODES || schema->nodes != NULL)
        return mics_fail(MICS_ERR_FORMAT, "%s: its schema is damaged, or has over %d nodes", path,
                         MAX_NODES);
    MICS_TRY(MICS_NEW(memory, total, &schema->nodes));
    MICS_TRY(read_node(&self, 0, 0, 0));
    if (schema->count == self.total)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT, "%s: its schema is damaged: nodes without a parent", path);
}

const char *mics_parquet_schema_path(const mics_parquet_schema *schema, int32_t node, char *text,
                                     size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t at = 1; at <= node && used < capacity;) {
        const mics_parquet_node *next = &schema->nodes[at];
        if (next->end > node)
            used += (size_t)snprintf(text + used, capacity - used, "%s%.*s", used > 0 ? "." : "",
                                     next->name_bytes < capacity ? (int)next->name_bytes : 256,
                                     next->name);
        at = next->end > node ? at + 1 : next->end;
    }
    return text;
}
