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

// Fields of PageHeader, and of the headers in it for data, dictionaries, and data of version 2.
enum { BYTES = 2, PACKED_BYTES, CRC, DATA, DICTIONARY = 7, DATA_V2 };
enum { COUNT = 1, ENCODING, DEF_ENCODING, REP_ENCODING };
enum { ENCODING_V2 = 4, DEF_BYTES_V2, REP_BYTES_V2, IS_PACKED_V2 };

typedef struct header {
    int32_t kind;                     // DATA, DICTIONARY, DATA_V2 or 0
    int64_t bytes, packed_bytes, crc; // of the page; crc: -1: none
    int64_t count, encoding, def_bytes, rep_bytes;
    bool packed, old_levels;
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

// ---- memory ----

static mics_status resize(mics_parquet_leaf *leaf, mics_buffer *buffer, int64_t bytes)
{
    mics_parquet_pages *of = leaf->of;
    of->held -= buffer->bytes;
    buffer->bytes = 0;
    if ((size_t)bytes > of->max_bytes - of->held)
        return REFUSED("its page of %lld bytes and those of other columns take more than %zu MiB; "
                       "write it again with smaller pages",
                       (long long)bytes, of->max_bytes >> 20);
    MICS_TRY(mics_buffer_reserve(buffer, (size_t)bytes));
    buffer->bytes = (size_t)bytes;
    of->held += (size_t)bytes;
    return MICS_OK;
}

// ---- pages ----

static void read_header(mics_thrift *from, header *out)
{
    int64_t of[MICS_THRIFT_NUMBERS] = {[CRC] = -1};
    int64_t in[MICS_THRIFT_NUMBERS] = {[COUNT] = -1, [IS_PACKED_V2] = 1};
    mics_thrift_field field = {0};
    int32_t kind = 0;
    while (mics_thrift_next(from, &field)) {
        if (field.id >= BYTES && field.id <= CRC)
            of[field.id] = field.id == CRC ? (uint32_t)field.number : field.number;
        else if ((field.id == DATA || field.id == DICTIONARY || field.id == DATA_V2) &&
                 mics_thrift_enter(from, &field)) {
            kind = field.id;
            mics_thrift_numbers(from, in);
        }
    }
    const bool is_v2 = kind == DATA_V2;
    *out = (header){.kind = kind,
                    .bytes = of[BYTES],
                    .packed_bytes = of[PACKED_BYTES],
                    .crc = of[CRC],
                    .count = in[COUNT],
                    .encoding = in[is_v2 ? ENCODING_V2 : ENCODING],
                    .def_bytes = is_v2 ? in[DEF_BYTES_V2] : 0,
                    .rep_bytes = is_v2 ? in[REP_BYTES_V2] : 0,
                    .packed = !is_v2 || in[IS_PACKED_V2] != 0,
                    .old_levels = in[DEF_ENCODING] != RLE || in[REP_ENCODING] != RLE};
}

// The header says how long it is by its end alone. Reads the page behind it, too.
static mics_status fetch(mics_parquet_leaf *leaf, header *out)
{
    mics_parquet_pages *of = leaf->of;
    mics_thrift from = {.bad = true};
    for (int64_t bytes = FIRST_HEADER; from.bad; bytes *= 4) {
        const int64_t window = bytes < leaf->end - leaf->at ? bytes : leaf->end - leaf->at;
        MICS_TRY(resize(leaf, &of->packed, window));
        MICS_TRY(mics_file_read_at(of->file, of->path, of->packed.data, (size_t)window, leaf->at));
        from = (mics_thrift){.at = (unsigned char *)of->packed.data};
        from.end = from.at + window;
        read_header(&from, out);
        if (from.bad && (window < bytes || bytes >= MAX_HEADER))
            return DAMAGED("the page header at offset %lld is damaged", (long long)leaf->at);
    }
    leaf->at += from.at - (unsigned char *)of->packed.data;
    if (out->packed_bytes < 0 || out->packed_bytes > leaf->end - leaf->at || out->bytes < 0 ||
        out->def_bytes < 0 || out->rep_bytes < 0 || out->def_bytes > out->packed_bytes ||
        out->rep_bytes > out->packed_bytes - out->def_bytes ||
        out->def_bytes + out->rep_bytes > out->bytes)
        return DAMAGED("the page before offset %lld has sizes that are none", (long long)leaf->at);
    MICS_TRY(resize(leaf, &of->packed, out->packed_bytes));
    MICS_TRY(mics_file_read_at(of->file, of->path, of->packed.data, of->packed.bytes, leaf->at));
    if (out->crc >= 0 &&
        crc32(0, (const Bytef *)of->packed.data, (uInt)of->packed.bytes) != (uLong)out->crc)
        return DAMAGED("the page at offset %lld has another checksum", (long long)leaf->at);
    leaf->at += out->packed_bytes;
    return MICS_OK;
}

// Levels of version 2 are never packed.
static mics_status unpack(mics_parquet_leaf *leaf, const header *head, mics_buffer *into)
{
    const mics_buffer *packed = &leaf->of->packed;
    const size_t levels = (size_t)(head->def_bytes + head->rep_bytes);
    const size_t bytes = (size_t)head->bytes - levels, got = packed->bytes - levels;
    const int32_t codec = head->packed ? leaf->codec : 0;
    if (!mics_parquet_codec_can(codec, got, bytes))
        return DAMAGED("a page of %zu bytes cannot become %zu", got, bytes);
    MICS_TRY(resize(leaf, into, head->bytes));
    if (levels > 0)
        memcpy(into->data, packed->data, levels);
    if (!mics_parquet_codec_unpack(codec, packed->data + levels, got, into->data + levels, bytes))
        return DAMAGED("a page before offset %lld is damaged", (long long)leaf->at);
    return MICS_OK;
}

// Takes a value as PLAIN has it.
static bool take_plain(const mics_parquet_leaf *leaf, const unsigned char **at,
                       const unsigned char *end, mics_parquet_value *out)
{
    static const uint8_t widths[MICS_PARQUET_TYPES] = {[MICS_PARQUET_INT32] = 4,
                                                       [MICS_PARQUET_INT64] = 8,
                                                       [MICS_PARQUET_FLOAT] = 4,
                                                       [MICS_PARQUET_DOUBLE] = 8,
                                                       [MICS_PARQUET_BYTES] = 4};
    const int32_t type = node_of(leaf)->type;
    size_t length = widths[type];
    if (length == 0 || (size_t)(end - *at) < length)
        return false;
    if (type == MICS_PARQUET_BYTES) {
        const unsigned char *b = *at;
        length = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        *at += 4;
        if ((size_t)(end - *at) < length)
            return false;
    }
    *out = (mics_parquet_value){*at, length};
    *at += length;
    return true;
}

static mics_status load_dictionary(mics_parquet_leaf *leaf, const header *head)
{
    mics_parquet_value value;
    if (leaf->entries > 0 || head->count < 0 || head->count > head->bytes)
        return DAMAGED("its dictionary is damaged");
    if (head->encoding != PLAIN && head->encoding != PLAIN_DICTIONARY)
        return REFUSED("its dictionary has encoding %lld; only PLAIN is read",
                       (long long)head->encoding);
    MICS_TRY(unpack(leaf, head, &leaf->dictionary));
    mics_free(leaf->of->memory, leaf->starts);
    leaf->starts = NULL;
    MICS_TRY(MICS_NEW(leaf->of->memory, head->count, &leaf->starts));
    const unsigned char *begin = (unsigned char *)leaf->dictionary.data, *at = begin;
    for (; leaf->entries < head->count; leaf->entries++) {
        leaf->starts[leaf->entries] = (uint32_t)(at - begin);
        if (!take_plain(leaf, &at, begin + head->bytes, &value))
            return DAMAGED("its dictionary ends early");
    }
    return MICS_OK;
}

static int32_t bits_of(int32_t level)
{
    int32_t bits = 0;
    for (; level > 0; level >>= 1)
        bits++;
    return bits;
}

// Takes levels from the page's front; those of version 1 tell their length.
static bool take_levels(const mics_parquet_leaf *leaf, const header *head, int32_t max,
                        int64_t bytes, mics_runs *out, const unsigned char **at)
{
    mics_parquet_value runs = {*at, (size_t)bytes};
    const unsigned char *end = (unsigned char *)leaf->page.data + leaf->page.bytes;
    if (head->kind == DATA && max > 0) {
        if (end - *at < 4)
            return false;
        runs.length =
            (*at)[0] | (size_t)(*at)[1] << 8 | (size_t)(*at)[2] << 16 | (size_t)(*at)[3] << 24;
        runs.bytes = *at += 4;
    }
    if (runs.length > (size_t)(end - *at))
        return false;
    *at += runs.length;
    *out = mics_runs_begin(runs.bytes, max > 0 ? runs.length : 0, bits_of(max));
    return true;
}

static mics_status begin_values(mics_parquet_leaf *leaf, const header *head)
{
    const bool is_bool = node_of(leaf)->type == MICS_PARQUET_BOOL;
    leaf->encoding = (int32_t)head->encoding;
    leaf->bit = 0;
    if (head->encoding == PLAIN)
        return MICS_OK;
    if (head->encoding == RLE && is_bool) { // with its length before it
        const size_t bytes = (size_t)(leaf->value_end - leaf->value);
        leaf->indices =
            mics_runs_begin(leaf->value + (bytes < 4 ? bytes : 4), bytes < 4 ? 0 : bytes - 4, 1);
        return MICS_OK;
    }
    if (head->encoding != PLAIN_DICTIONARY && head->encoding != RLE_DICTIONARY)
        return REFUSED("has encoding %lld; PLAIN, RLE and dictionaries are read: write it again by "
                       "pyarrow, without column_encoding",
                       (long long)head->encoding);
    if (leaf->value == leaf->value_end) // nulls alone
        return MICS_OK;
    const int32_t bits = *leaf->value++;
    if (bits > 32)
        return DAMAGED("indices of %d bits", (int)bits);
    leaf->indices = mics_runs_begin(leaf->value, (size_t)(leaf->value_end - leaf->value), bits);
    return MICS_OK;
}

static mics_status next_page(mics_parquet_leaf *leaf)
{
    header head;
    if (leaf->at == leaf->end)
        return DAMAGED("its pages have %lld entries too few", (long long)leaf->left);
    MICS_TRY(fetch(leaf, &head));
    if (head.kind == DICTIONARY)
        return load_dictionary(leaf, &head);
    if (head.kind == 0) // an index
        return MICS_OK;
    if (head.count < 0 || head.count > leaf->left)
        return DAMAGED("its pages have too many entries");
    if (head.kind == DATA && head.old_levels)
        return REFUSED("its levels are BIT_PACKED, as very old writers do; write it again");
    MICS_TRY(unpack(leaf, &head, &leaf->page));
    const unsigned char *at = (unsigned char *)leaf->page.data;
    leaf->value_end = at + leaf->page.bytes;
    if (!take_levels(leaf, &head, node_of(leaf)->rep, head.rep_bytes, &leaf->reps, &at) ||
        !take_levels(leaf, &head, node_of(leaf)->def, head.def_bytes, &leaf->defs, &at))
        return DAMAGED("the levels of a page are damaged");
    leaf->value = at;
    leaf->in_page = head.count;
    return begin_values(leaf, &head);
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
    uint32_t index = 0;
    bool good = true;
    if (leaf->encoding == PLAIN && node_of(leaf)->type == MICS_PARQUET_BOOL) {
        good = leaf->value < leaf->value_end;
        *value_out = (mics_parquet_value){&bools[good && (*leaf->value >> leaf->bit & 1)], 1};
        leaf->bit = (leaf->bit + 1) % 8;
        leaf->value += leaf->bit == 0;
    } else if (leaf->encoding == PLAIN) {
        good = take_plain(leaf, &leaf->value, leaf->value_end, value_out);
    } else {
        good = mics_runs_next(&leaf->indices, &index);
        if (good && leaf->encoding == RLE)
            *value_out = (mics_parquet_value){&bools[index], 1};
        else {
            const unsigned char *dictionary = (unsigned char *)leaf->dictionary.data;
            good = good && index < leaf->entries;
            const unsigned char *at = good ? dictionary + leaf->starts[index] : NULL;
            good = good && take_plain(leaf, &at, dictionary + leaf->dictionary.bytes, value_out);
        }
    }
    return good ? MICS_OK : DAMAGED("a page has too few values, or an index of none");
}

// ---- row groups ----

mics_status mics_parquet_leaf_begin(mics_parquet_leaf *leaf, mics_thrift *from)
{
    enum { ELSEWHERE = 1, META = 3, ENCRYPTED = 8 };
    enum { META_TYPE = 1, CODEC = 4, VALUES, META_BYTES = 7, FIRST_DATA = 9, DICTIONARY_AT = 11 };
    int64_t meta[MICS_THRIFT_NUMBERS] = {[META_TYPE] = -1};
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
    if (meta[DICTIONARY_AT] > 0 && meta[DICTIONARY_AT] < leaf->at)
        leaf->at = meta[DICTIONARY_AT];
    if (meta[META_TYPE] != node_of(leaf)->type || meta[VALUES] < 0 || leaf->at < 0 ||
        leaf->at > leaf->of->bytes || meta[META_BYTES] < 0 ||
        meta[META_BYTES] > leaf->of->bytes - leaf->at || meta[VALUES] == INT64_MAX)
        return DAMAGED("the footer gives it another type, or a place outside the file");
    leaf->codec = (int32_t)meta[CODEC];
    leaf->end = leaf->at + meta[META_BYTES];
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
