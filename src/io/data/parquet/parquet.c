// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows are put together from the leaves' levels: a node is null, and a list is empty, if the definition
// level of its first leaf says so, and all other leaves below it must agree.
#include "io/data/parquet/parquet.h"
#include "base/file.h"
#include "base/free.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/data/parquet/leaf.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read as they lie on disk");

enum {
    TAIL = 8,              // bytes: of the footer's length and "PAR1"
    MAX_FOOTER = 64 << 20, // bytes
    FILL = 1 << 16         // bytes of rows that are written at once
};

struct mics_parquet {
    mics_parquet_pages pages;
    unsigned char *footer;
    mics_parquet_leaf *leaves;
    mics_thrift first_group, next_group;
    int64_t groups, rows;
    int64_t left, read; // rows of the row group, and of those before it
    mics_text text;     // of rows
    size_t given, row;  // of it; where its last row begins
};

#define DAMAGED(...) mics_fail(MICS_ERR_FORMAT, __VA_ARGS__)
#define REFUSED(...) mics_fail(MICS_ERR_UNSUPPORTED, __VA_ARGS__)

// ---- columns ----

static const char *type_text(const mics_parquet_node *node)
{
    static const char *const types[] = {"bool",   "integer", "integer", "other",
                                        "number", "number",  "string",  "other"};
    static const char *const kinds[] = {NULL, "struct", "list", "map"};
    if (node->refused != NULL)
        return "other";
    return node->kind == MICS_PARQUET_VALUE ? types[node->type] : kinds[node->kind];
}

static bool is_wanted(const mics_parquet_node *node, const char *const *columns)
{
    for (; columns != NULL && *columns != NULL; columns++) {
        if (strlen(*columns) == node->name_bytes &&
            memcmp(*columns, node->name, node->name_bytes) == 0)
            return true;
    }
    return columns == NULL;
}

static mics_status fail_columns(const mics_parquet *self, const char *const *columns)
{
    const mics_parquet_schema *schema = &self->pages.schema;
    const mics_parquet_node *node = NULL;
    char there[480] = "";
    size_t used = 0;
    for (int32_t at = 1; at < schema->count && used < sizeof there; at = node->end) {
        node = &schema->nodes[at];
        used += (size_t)snprintf(
            there + used, sizeof there - used, "%s\"%.*s\" (%s)", at == 1 ? "" : ", ",
            (int)(node->name_bytes < 80 ? node->name_bytes : 80), node->name, type_text(node));
    }
    return mics_fail(MICS_ERR_INVALID,
                     "%s: has no column \"%s\"; it has %s; name the column that holds the text by "
                     "--text-field or in data.text_field",
                     self->pages.path, *columns != NULL ? *columns : "", there);
}

// A column is wanted with all that is below it.
static mics_status choose(mics_parquet *self, const char *const *columns)
{
    const mics_parquet_schema *schema = &self->pages.schema;
    bool some = false, wanted = false;
    char path[512];
    MICS_TRY(MICS_NEW(self->pages.memory, schema->leaves, &self->leaves));
    for (int32_t at = 1, end = 1; at < schema->count; at++) {
        const mics_parquet_node *node = &schema->nodes[at];
        wanted = at == end ? is_wanted(node, columns) : wanted;
        end = at == end ? node->end : end;
        some |= wanted;
        if (wanted && node->refused != NULL)
            return REFUSED("%s: column \"%s\" is %s, which is not read; write it again as "
                           "strings, numbers, lists or structs",
                           self->pages.path,
                           mics_parquet_schema_path(schema, at, path, sizeof path), node->refused);
        if (wanted && node->kind == MICS_PARQUET_VALUE) {
            mics_parquet_leaf *leaf = &self->leaves[node->leaf];
            leaf->of = &self->pages;
            leaf->node = at;
            leaf->page.memory = leaf->dictionary.memory = self->pages.memory;
        }
    }
    return some ? MICS_OK : fail_columns(self, columns);
}

// ---- the footer ----

static mics_status read_footer(mics_parquet *self, size_t bytes)
{
    enum { SCHEMA = 2, ROWS, GROUPS, ENCRYPTION = 8 };
    mics_thrift from = {.at = self->footer, .end = self->footer + bytes};
    mics_thrift_field field = {0};
    while (mics_thrift_next(&from, &field)) {
        if (field.id == SCHEMA)
            MICS_TRY(mics_parquet_schema_read(self->pages.memory, self->pages.path, &from, &field,
                                              &self->pages.schema));
        else if (field.id == ROWS)
            self->rows = field.number;
        else if (field.id == GROUPS) { // the groups' fields are checked, and passed over
            mics_thrift_field list = field;
            self->first_group = from;
            self->groups = mics_thrift_enter_list(&self->first_group, &list);
        } else if (field.id == ENCRYPTION)
            return REFUSED("%s: is encrypted; write it again without encryption", self->pages.path);
    }
    if (from.bad || self->first_group.bad || self->pages.schema.nodes == NULL || self->rows < 0)
        return DAMAGED("%s: its footer is damaged; fetch it again", self->pages.path);
    return MICS_OK;
}

static mics_status open_footer(mics_parquet *self)
{
    const mics_parquet_pages *of = &self->pages;
    struct {
        uint32_t bytes;
        char mark[4];
    } head = {0}, tail = {0};
    if (of->bytes >= TAIL) {
        MICS_TRY(mics_file_read_at(of->file, of->path, head.mark, sizeof head.mark, 0));
        MICS_TRY(mics_file_read_at(of->file, of->path, &tail, TAIL, of->bytes - TAIL));
    }
    if (memcmp(head.mark, "PARE", 4) == 0 && memcmp(tail.mark, "PARE", 4) == 0)
        return REFUSED("%s: is encrypted; write it again without encryption", of->path);
    if (memcmp(head.mark, "PAR1", 4) != 0)
        return DAMAGED("%s: is no Parquet file: it does not begin with \"PAR1\"", of->path);
    if (memcmp(tail.mark, "PAR1", 4) != 0)
        return DAMAGED("%s: is cut short: a Parquet file ends with \"PAR1\"; fetch it again",
                       of->path);
    if (tail.bytes > of->bytes - TAIL || tail.bytes > MAX_FOOTER)
        return DAMAGED("%s: its footer of %" PRIu32 " bytes is longer than the file or %d MiB",
                       of->path, tail.bytes, MAX_FOOTER >> 20);
    MICS_TRY(MICS_NEW(of->memory, tail.bytes, &self->footer));
    MICS_TRY(mics_file_read_at(of->file, of->path, self->footer, tail.bytes,
                               of->bytes - TAIL - tail.bytes));
    return read_footer(self, tail.bytes);
}

mics_status mics_parquet_open(mics_memory *memory, const mics_parquet_source *source,
                              mics_parquet **parquet_out)
{
    mics_parquet *self = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &self));
    self->pages = (mics_parquet_pages){.memory = memory,
                                       .path = source->path,
                                       .file = source->file,
                                       .bytes = source->bytes,
                                       .packed.memory = memory,
                                       .max_bytes = source->max_bytes > 0 ? source->max_bytes
                                                                          : MICS_PARQUET_MAX_BYTES};
    self->text.memory = memory;
    mics_status status = open_footer(self);
    if (status == MICS_OK)
        status = choose(self, source->columns);
    if (status != MICS_OK) {
        mics_parquet_close(self);
        return status;
    }
    mics_parquet_rewind(self);
    *parquet_out = self;
    return MICS_OK;
}

void mics_parquet_close(mics_parquet *parquet)
{
    if (parquet == NULL)
        return;
    mics_memory *memory = parquet->pages.memory;
    for (int32_t i = 0; parquet->leaves != NULL && i < parquet->pages.schema.leaves; i++)
        mics_parquet_leaf_fini(&parquet->leaves[i]);
    mics_buffer_fini(&parquet->pages.packed);
    mics_text_fini(&parquet->text);
    MICS_FREE_ALL(memory, parquet->leaves, parquet->pages.schema.nodes, parquet->footer, parquet);
}

void mics_parquet_rewind(mics_parquet *parquet)
{
    parquet->next_group = parquet->first_group;
    parquet->pages.group = parquet->left = parquet->read = 0;
    parquet->given = parquet->text.used;
}

int64_t mics_parquet_at(const mics_parquet *parquet)
{
    int32_t first = 0;
    while (parquet->leaves[first].node == 0)
        first++;
    return parquet->leaves[first].at;
}

// ---- values ----

static void append(mics_parquet *self, const char *text)
{
    mics_text_append(&self->text, text, strlen(text));
}

static void append_number(mics_parquet *self, const mics_parquet_node *node,
                          mics_parquet_value value)
{
    char text[32];
    double real = 0;
    float single = 0;
    int64_t wide = 0;
    int32_t narrow = 0;
    memcpy(&single, value.bytes, sizeof single);
    memcpy(&narrow, value.bytes, sizeof narrow);
    memcpy(&real, value.bytes, value.length);
    memcpy(&wide, value.bytes, value.length);
    if (node->type == MICS_PARQUET_FLOAT)
        real = (double)single;
    if (node->type == MICS_PARQUET_INT32 && !node->is_unsigned)
        wide = narrow;
    if (node->type == MICS_PARQUET_INT32 || node->type == MICS_PARQUET_INT64)
        snprintf(text, sizeof text, node->is_unsigned ? "%" PRIu64 : "%" PRId64, wide);
    else if (isfinite(real))
        mics_text_real(real, text, sizeof text);
    else
        snprintf(text, sizeof text, "%s%s", real < 0 ? "-" : "", isnan(real) ? "NaN" : "Infinity");
    append(self, text);
}

static mics_status append_value(mics_parquet *self, mics_parquet_leaf *leaf,
                                const mics_parquet_node *node)
{
    mics_parquet_value value;
    MICS_TRY(mics_parquet_leaf_value(leaf, &value));
    const char *text = (const char *)value.bytes;
    if (node->type == MICS_PARQUET_BOOL)
        append(self, *text != 0 ? "true" : "false");
    else if (node->type != MICS_PARQUET_BYTES)
        append_number(self, node, value);
    else if (mics_utf8_valid(text, value.length) == value.length)
        mics_text_quoted_bytes(&self->text, text, value.length);
    else
        return mics_parquet_leaf_fail(leaf, MICS_ERR_FORMAT,
                                      "the string of row %" PRId64 " is not UTF-8", self->read + 1);
    return MICS_OK;
}

// ---- rows ----

// Whether the current entry is what the row has at this place.
static mics_status check(const mics_parquet *self, const mics_parquet_leaf *leaf, bool good)
{
    if (good && leaf->left > 0)
        return MICS_OK;
    return mics_parquet_leaf_fail(leaf, MICS_ERR_FORMAT,
                                  "the levels in row %" PRId64 " contradict the schema",
                                  self->read + 1);
}

// Of a node that is null, or has no elements, each leaf has an entry that says so.
static mics_status append_nothing(mics_parquet *self, const mics_parquet_node *node, uint32_t rep,
                                  int32_t def, const char *text)
{
    append(self, text);
    for (int32_t i = node->leaf; i < node->end_leaf; i++) {
        mics_parquet_leaf *leaf = &self->leaves[i];
        MICS_TRY(check(self, leaf, leaf->rep == rep && leaf->def == (uint32_t)def));
        MICS_TRY(mics_parquet_leaf_next(leaf));
    }
    return MICS_OK;
}

static mics_status append_node(mics_parquet *self, int32_t index, uint32_t rep);

static mics_status append_struct(mics_parquet *self, int32_t index, uint32_t rep)
{
    const mics_parquet_node *nodes = self->pages.schema.nodes;
    const char *before = "{";
    for (int32_t at = index + 1; at < nodes[index].end; at = nodes[at].end) {
        if (self->leaves[nodes[at].leaf].node == 0) // of the root
            continue;
        append(self, before);
        mics_text_quoted_bytes(&self->text, nodes[at].name, nodes[at].name_bytes);
        append(self, ":");
        MICS_TRY(append_node(self, at, rep));
        before = ",";
    }
    append(self, "}");
    return MICS_OK;
}

// Elements of a list, or keys and values of a map.
static mics_status append_items(mics_parquet *self, int32_t index, uint32_t rep)
{
    const mics_parquet_node *nodes = self->pages.schema.nodes, *items = &nodes[index + 1];
    const mics_parquet_leaf *leaf = &self->leaves[items->leaf];
    const bool is_map = nodes[index].kind == MICS_PARQUET_MAP;
    const char *before = is_map ? "{" : "[";
    if (leaf->def < (uint32_t)items->def)
        return append_nothing(self, items, rep, items->def - 1, is_map ? "{}" : "[]");
    do {
        append(self, before);
        MICS_TRY(append_node(self, index + 2, rep));
        if (is_map) {
            append(self, ":");
            MICS_TRY(append_node(self, nodes[index + 2].end, rep));
        }
        rep = (uint32_t)items->rep;
        before = ",";
    } while (leaf->left > 0 && leaf->rep == rep);
    append(self, is_map ? "}" : "]");
    return MICS_OK;
}

// `rep`: the repetition level that an entry has here.
static mics_status append_node(mics_parquet *self, int32_t index, uint32_t rep)
{
    const mics_parquet_node *node = &self->pages.schema.nodes[index];
    mics_parquet_leaf *leaf = &self->leaves[node->leaf];
    MICS_TRY(check(self, leaf, leaf->rep == rep));
    if (self->text.used - self->row > self->pages.max_bytes)
        return mics_parquet_leaf_fail(leaf, MICS_ERR_UNSUPPORTED,
                                      "row %" PRId64 " has more than %zu MiB of text",
                                      self->read + 1, self->pages.max_bytes >> 20);
    if (node->optional && leaf->def < (uint32_t)node->def)
        return append_nothing(self, node, rep, node->def - 1, "null");
    if (node->kind == MICS_PARQUET_STRUCT)
        return append_struct(self, index, rep);
    if (node->kind != MICS_PARQUET_VALUE)
        return append_items(self, index, rep);
    MICS_TRY(check(self, leaf, leaf->def == (uint32_t)node->def));
    MICS_TRY(append_value(self, leaf, node));
    return mics_parquet_leaf_next(leaf);
}

static mics_status begin_group(mics_parquet *self)
{
    enum { COLUMNS = 1, ROWS = 3 };
    mics_thrift *from = &self->next_group;
    mics_thrift_field field = {0};
    int64_t columns = -1;
    self->pages.group++;
    while (mics_thrift_next(from, &field)) {
        if (field.id == COLUMNS && columns < 0) {
            columns = mics_thrift_enter_list(from, &field);
            for (int32_t i = 0; columns == self->pages.schema.leaves && i < columns; i++)
                MICS_TRY(mics_parquet_leaf_begin(&self->leaves[i], from));
        } else if (field.id == ROWS)
            self->left = field.number;
    }
    if (!from->bad && columns == self->pages.schema.leaves && self->left >= 0)
        return MICS_OK;
    return DAMAGED("%s: its footer is damaged, in row group %" PRId64, self->pages.path,
                   self->pages.group);
}

// Begins the next row group with rows, if there is one.
static mics_status next_group(mics_parquet *self)
{
    while (self->left == 0 && self->pages.group < self->groups) {
        for (int32_t i = 0; i < self->pages.schema.leaves; i++) {
            const mics_parquet_leaf *leaf = &self->leaves[i];
            if (leaf->node != 0 && self->pages.group > 0 && leaf->left > 0)
                return check(self, leaf, false);
        }
        MICS_TRY(begin_group(self));
    }
    if (self->left > 0 || self->read == self->rows)
        return MICS_OK;
    return DAMAGED("%s: its row groups have %" PRId64 " rows, but its footer says %" PRId64,
                   self->pages.path, self->read, self->rows);
}

static mics_status fill(mics_parquet *self)
{
    self->given = 0;
    mics_text_fini(&self->text);
    while (self->text.used < FILL) {
        MICS_TRY(next_group(self));
        if (self->left == 0)
            break;
        self->row = self->text.used;
        MICS_TRY(append_struct(self, 0, 0));
        append(self, "\n");
        MICS_TRY(mics_text_status(&self->text));
        self->left--;
        self->read++;
    }
    return MICS_OK;
}

mics_status mics_parquet_read(mics_parquet *parquet, char *to, size_t bytes, size_t *got_out)
{
    for (*got_out = 0; *got_out < bytes;) {
        if (parquet->given == parquet->text.used)
            MICS_TRY(fill(parquet));
        const size_t there = parquet->text.used - parquet->given, space = bytes - *got_out;
        const size_t part = there < space ? there : space;
        if (part == 0)
            break;
        memcpy(to + *got_out, parquet->text.bytes + parquet->given, part);
        parquet->given += part;
        *got_out += part;
    }
    return MICS_OK;
}
