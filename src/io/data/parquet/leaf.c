// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Invariants: 1. [at, end) lies in the file. 2. `in_page` <= `left`. 3. No buffer is larger than what
// the bytes of its page can become, nor all of them together than `max_bytes`.
#include "io/data/parquet/leaf.h"
#include "base/file.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, RLE_DICTIONARY = 8 };
enum { FIRST_HEADER = 1 << 10, MAX_HEADER = 1 << 24 }; // bytes
enum { LENGTH = sizeof(uint32_t) };                    // of a string or of runs, before it

// Fields of PageHeader; of the headers in it for data and dictionaries, and for data of version 2.
enum { BYTES = 2, PACKED_BYTES, CRC, DATA, DICTIONARY = 7, DATA_V2 };
enum { COUNT = 1, ENCODING, DEF_ENCODING, REP_ENCODING };
enum { ENCODING_V2 = 4, DEF_BYTES_V2, REP_BYTES_V2, IS_PACKED_V2 };

typedef struct header {
    int64_t of[MICS_THRIFT_NUMBERS]; // PageHeader; CRC: -1: none
    int64_t in[MICS_THRIFT_NUMBERS]; // the header in it, which `kind` is
    int32_t kind;                    // DATA, DICTIONARY, DATA_V2; 0: others
} header;

mics_status mics_parquet_leaf_fail(const mics_parquet_leaf *leaf, mics_status status,
                                   const char *format, ...)
{
    char what[512], path[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return mics_fail(status, "%s: column \"%s\", row group %lld: %s", leaf->of->path,
                     mics_parquet_schema_path(&leaf->of->schema, leaf->node, path, sizeof path),
                     (long long)leaf->of->group, what);
}

#define DAMAGED(...) mics_parquet_leaf_fail(leaf, MICS_ERR_FORMAT, __VA_ARGS__)
#define REFUSED(...) mics_parquet_leaf_fail(leaf, MICS_ERR_UNSUPPORTED, __VA_ARGS__)

static const mics_parquet_node *node_of(const mics_parquet_leaf *leaf)
{
    return &leaf->of->schema.nodes[leaf->node];
}

static mics_status resize(mics_parquet_leaf *leaf, mics_buffer *buffer, int64_t bytes)
{
    mics_parquet_pages *of = leaf->of;
    of->held -= buffer->bytes;
    buffer->bytes = 0;
    if ((size_t)bytes > of->max_bytes - of->held)
        return REFUSED("its page of %lld bytes and those of other columns have over %zu MiB; write "
                       "it again with smaller pages",
                       (long long)bytes, of->max_bytes >> 20);
    MICS_TRY(mics_buffer_reserve(buffer, (size_t)bytes + 1)); // an empty page has an address, too
    buffer->bytes = (size_t)bytes;
    of->held += (size_t)bytes;
    return MICS_OK;
}

static mics_status read_packed(mics_parquet_leaf *leaf, int64_t bytes)
{
    mics_buffer *packed = &leaf->of->packed;
    MICS_TRY(resize(leaf, packed, bytes));
    return mics_file_read_at(leaf->of->file, leaf->of->path, packed->data, (size_t)bytes, leaf->at);
}

// ---- pages ----

static void read_header(mics_thrift *from, header *out)
{
    mics_thrift_field field = {0};
    *out = (header){.of = {[CRC] = -1}, .in = {[IS_PACKED_V2] = 1}};
    while (mics_thrift_next(from, &field)) {
        if (field.id >= BYTES && field.id <= CRC)
            out->of[field.id] = field.id == CRC ? (uint32_t)field.number : field.number;
        else if ((field.id == DATA || field.id == DICTIONARY || field.id == DATA_V2) &&
                 mics_thrift_enter(from, &field)) {
            out->kind = field.id;
            mics_thrift_numbers(from, out->in);
        }
    }
    if (out->kind != DATA_V2)
        out->in[DEF_BYTES_V2] = out->in[REP_BYTES_V2] = 0;
}

// Of a page, whose header says by its end alone how long it is.
static mics_status fetch(mics_parquet_leaf *leaf, header *out)
{
    const int64_t *of = out->of, *in = out->in, first = leaf->at;
    mics_thrift from = {.bad = true};
    for (int64_t bytes = FIRST_HEADER; from.bad; bytes *= 4) {
        const int64_t left = leaf->end - leaf->at, window = bytes < left ? bytes : left;
        MICS_TRY(read_packed(leaf, window));
        from = (mics_thrift){.at = (unsigned char *)leaf->of->packed.data};
        from.end = from.at + window;
        read_header(&from, out);
        if (from.bad && (window < bytes || bytes >= MAX_HEADER))
            return DAMAGED("the page header at offset %lld is damaged", (long long)first);
    }
    leaf->at += from.at - (unsigned char *)leaf->of->packed.data;
    if (of[PACKED_BYTES] < 0 || of[PACKED_BYTES] > leaf->end - leaf->at || in[DEF_BYTES_V2] < 0 ||
        in[DEF_BYTES_V2] > of[PACKED_BYTES] || in[REP_BYTES_V2] < 0 ||
        in[REP_BYTES_V2] > of[PACKED_BYTES] - in[DEF_BYTES_V2] ||
        of[BYTES] < in[DEF_BYTES_V2] + in[REP_BYTES_V2] || in[COUNT] < 0)
        return DAMAGED("the page header at offset %lld has impossible sizes", (long long)first);
    MICS_TRY(read_packed(leaf, of[PACKED_BYTES]));
    leaf->at += of[PACKED_BYTES];
    if (of[CRC] >= 0 &&
        crc32(0, (const Bytef *)leaf->of->packed.data, (uInt)of[PACKED_BYTES]) != (uLong)of[CRC])
        return DAMAGED("the page at offset %lld has another checksum", (long long)first);
    return MICS_OK;
}

// Levels of version 2 are never packed.
static mics_status unpack(mics_parquet_leaf *leaf, const header *head, mics_buffer *into)
{
    const mics_buffer *packed = &leaf->of->packed;
    const size_t levels = (size_t)(head->in[DEF_BYTES_V2] + head->in[REP_BYTES_V2]);
    const size_t bytes = (size_t)head->of[BYTES] - levels, got = packed->bytes - levels;
    const int32_t codec = head->kind == DATA_V2 && head->in[IS_PACKED_V2] == 0 ? 0 : leaf->codec;
    if (!mics_parquet_codec_can(codec, got, bytes))
        return DAMAGED("a page of %zu bytes cannot become %zu", got, bytes);
    MICS_TRY(resize(leaf, into, head->of[BYTES]));
    if (levels > 0)
        memcpy(into->data, packed->data, levels);
    if (!mics_parquet_codec_unpack(codec, packed->data + levels, got, into->data + levels, bytes))
        return DAMAGED("the page before offset %lld is damaged", (long long)leaf->at);
    return MICS_OK;
}

// Takes a length, and as many bytes behind it; nothing where they are not there.
static bool take_counted(const unsigned char **at, const unsigned char *end,
                         mics_parquet_value *out)
{
    uint32_t length = 0;
    if (end - *at < LENGTH)
        return false;
    memcpy(&length, *at, LENGTH);
    if ((size_t)(end - *at) - LENGTH < length)
        return false;
    *out = (mics_parquet_value){*at + LENGTH, length};
    *at += LENGTH + length;
    return true;
}

// Takes a value that is no bool.
static bool take_plain(const mics_parquet_leaf *leaf, const unsigned char **at,
                       const unsigned char *end, mics_parquet_value *out)
{
    const int32_t type = node_of(leaf)->type;
    if (type == MICS_PARQUET_BYTES)
        return take_counted(at, end, out);
    const size_t bytes = type == MICS_PARQUET_INT32 || type == MICS_PARQUET_FLOAT ? 4 : 8;
    if ((size_t)(end - *at) < bytes)
        return false;
    *out = (mics_parquet_value){*at, bytes};
    *at += bytes;
    return true;
}

static mics_status load_dictionary(mics_parquet_leaf *leaf, const header *head)
{
    const int64_t count = head->in[COUNT], encoding = head->in[ENCODING];
    mics_parquet_value value;
    if (leaf->entries > 0 || count > head->of[BYTES] / LENGTH ||
        (encoding != PLAIN && encoding != PLAIN_DICTIONARY))
        return DAMAGED("its dictionary is damaged");
    MICS_TRY(unpack(leaf, head, &leaf->dictionary));
    mics_free(leaf->of->memory, leaf->starts);
    leaf->starts = NULL;
    MICS_TRY(MICS_NEW(leaf->of->memory, count, &leaf->starts));
    const unsigned char *begin = (unsigned char *)leaf->dictionary.data, *at = begin;
    for (; leaf->entries < count; leaf->entries++) {
        leaf->starts[leaf->entries] = (uint32_t)(at - begin);
        if (!take_plain(leaf, &at, begin + leaf->dictionary.bytes, &value))
            return DAMAGED("its dictionary ends early");
    }
    return MICS_OK;
}

// Takes levels up to `max` from the page's front; those of version 2 have their length in the header.
static bool take_levels(mics_parquet_leaf *leaf, const header *head, int32_t max, int64_t bytes,
                        mics_runs *out)
{
    mics_parquet_value runs = {leaf->value, (size_t)bytes};
    int32_t bits = 0;
    for (int32_t rest = max; rest > 0; rest >>= 1)
        bits++;
    if (head->kind == DATA_V2)
        leaf->value += bytes; // which are there
    else if (max > 0 && !take_counted(&leaf->value, leaf->value_end, &runs))
        return false;
    *out = mics_runs_begin(runs.bytes, max > 0 ? runs.length : 0, bits);
    return true;
}

static const char *const names[] = {
    "PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
    "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
    "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};

static mics_status begin_values(mics_parquet_leaf *leaf)
{
    const int32_t encoding = leaf->encoding, known = (int32_t)(sizeof names / sizeof *names);
    const bool is_bool = node_of(leaf)->type == MICS_PARQUET_BOOL;
    const unsigned char *at = leaf->value;
    const size_t bytes = (size_t)(leaf->value_end - at);
    mics_parquet_value runs = {at, 0};
    if (encoding == PLAIN && is_bool)
        leaf->indices = mics_runs_packed(at, bytes, 1);
    else if (encoding == RLE && is_bool) {
        (void)take_counted(&at, leaf->value_end, &runs); // of nulls alone there may be none
        leaf->indices = mics_runs_begin(runs.bytes, runs.length, 1);
    } else if ((encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY) && !is_bool) {
        if (bytes > 0 && *at > 32)
            return DAMAGED("indices of %d bits", (int)*at);
        leaf->indices =
            bytes > 0 ? mics_runs_begin(at + 1, bytes - 1, *at) : mics_runs_begin(at, 0, 1);
    } else if (encoding != PLAIN)
        return REFUSED("has encoding %s, and PLAIN and dictionaries are read; write it again as "
                       "pyarrow does by default, or by DuckDB with PARQUET_VERSION V1",
                       encoding > 0 && encoding < known ? names[encoding] : "of a newer kind");
    return MICS_OK;
}

static mics_status next_page(mics_parquet_leaf *leaf)
{
    const mics_parquet_node *node = node_of(leaf);
    header head = {0};
    if (leaf->at == leaf->end)
        return DAMAGED("its pages have %lld entries too few", (long long)leaf->left);
    MICS_TRY(fetch(leaf, &head));
    if (head.kind == DICTIONARY)
        return load_dictionary(leaf, &head);
    if (head.kind == 0) // an index
        return MICS_OK;
    if (head.in[COUNT] > leaf->left)
        return DAMAGED("its pages have too many entries");
    if (head.kind == DATA && (head.in[DEF_ENCODING] != RLE || head.in[REP_ENCODING] != RLE))
        return REFUSED("its levels are BIT_PACKED, as very old writers do; write it again");
    MICS_TRY(unpack(leaf, &head, &leaf->page));
    leaf->value = (unsigned char *)leaf->page.data;
    leaf->value_end = leaf->value + leaf->page.bytes;
    if (!take_levels(leaf, &head, node->rep, head.in[REP_BYTES_V2], &leaf->reps) ||
        !take_levels(leaf, &head, node->def, head.in[DEF_BYTES_V2], &leaf->defs))
        return DAMAGED("the levels of a page are damaged");
    leaf->in_page = head.in[COUNT];
    leaf->encoding = (int32_t)head.in[head.kind == DATA_V2 ? ENCODING_V2 : ENCODING];
    return begin_values(leaf);
}

// ---- entries ----

mics_status mics_parquet_leaf_next(mics_parquet_leaf *leaf)
{
    const mics_parquet_node *node = node_of(leaf);
    if (leaf->left == 0 || --leaf->left == 0)
        return MICS_OK;
    while (leaf->in_page == 0)
        MICS_TRY(next_page(leaf));
    leaf->in_page--;
    if (!mics_runs_next(&leaf->reps, &leaf->rep) || !mics_runs_next(&leaf->defs, &leaf->def) ||
        leaf->rep > (uint32_t)node->rep || leaf->def > (uint32_t)node->def)
        return DAMAGED("the levels of a page are damaged");
    return MICS_OK;
}

mics_status mics_parquet_leaf_value(mics_parquet_leaf *leaf, mics_parquet_value *value_out)
{
    static const unsigned char bools[] = {0, 1};
    const bool is_bool = node_of(leaf)->type == MICS_PARQUET_BOOL;
    const unsigned char **at = &leaf->value, *end = leaf->value_end, *entry = NULL;
    uint32_t index = 0;
    bool good = true;
    if (is_bool || leaf->encoding != PLAIN)
        good = mics_runs_next(&leaf->indices, &index) && index < (is_bool ? 2 : leaf->entries);
    if (good && is_bool)
        *value_out = (mics_parquet_value){&bools[index], 1};
    else if (good && leaf->encoding != PLAIN) {
        entry = (unsigned char *)leaf->dictionary.data + leaf->starts[index];
        at = &entry;
        end = (unsigned char *)leaf->dictionary.data + leaf->dictionary.bytes;
    }
    good = good && (is_bool || take_plain(leaf, at, end, value_out));
    return good ? MICS_OK : DAMAGED("a page has too few values, or a wrong index of one");
}

// ---- row groups ----

mics_status mics_parquet_leaf_begin(mics_parquet_leaf *leaf, mics_thrift *from)
{
    enum { ELSEWHERE = 1, META = 3, ENCRYPTED = 8 };
    enum { TYPE = 1, CODEC = 4, VALUES, CHUNK_BYTES = 7, FIRST_DATA = 9, FIRST_DICTIONARY = 11 };
    int64_t meta[MICS_THRIFT_NUMBERS] = {[TYPE] = -1};
    mics_thrift_field field = {0};
    bool elsewhere = false, encrypted = false;
    while (mics_thrift_next(from, &field)) {
        elsewhere |= field.id == ELSEWHERE;
        encrypted |= field.id >= ENCRYPTED;
        if (field.id == META && mics_thrift_enter(from, &field))
            mics_thrift_numbers(from, meta);
    }
    if (leaf->node == 0 || from->bad)
        return MICS_OK;
    const char *codec = mics_parquet_codec_refused(meta[CODEC]);
    if (encrypted || elsewhere)
        return REFUSED("%s; write it again as one file without encryption",
                       encrypted ? "is encrypted" : "lies in another file");
    if (codec != NULL)
        return REFUSED("is compressed with %s; write it again with compression \"zstd\"", codec);
    leaf->at = meta[FIRST_DATA];
    if (meta[FIRST_DICTIONARY] > 0 && meta[FIRST_DICTIONARY] < leaf->at)
        leaf->at = meta[FIRST_DICTIONARY];
    if (meta[TYPE] != node_of(leaf)->type || meta[VALUES] < 0 || meta[VALUES] == INT64_MAX ||
        leaf->at < 0 || leaf->at > leaf->of->bytes || meta[CHUNK_BYTES] < 0 ||
        meta[CHUNK_BYTES] > leaf->of->bytes - leaf->at)
        return DAMAGED("the footer gives it another type, or a place outside the file");
    leaf->codec = (int32_t)meta[CODEC];
    leaf->end = leaf->at + meta[CHUNK_BYTES];
    leaf->left = meta[VALUES] + 1; // with one before the first
    leaf->in_page = leaf->entries = 0;
    return mics_parquet_leaf_next(leaf);
}

void mics_parquet_leaf_fini(mics_parquet_leaf *leaf)
{
    mics_buffer_fini(&leaf->page);
    mics_buffer_fini(&leaf->dictionary);
    if (leaf->of != NULL)
        mics_free(leaf->of->memory, leaf->starts);
}
