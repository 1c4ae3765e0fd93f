// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The header of one .safetensors file: u64 length, JSON, then the data that its offsets tile.
// Source: https://github.com/huggingface/safetensors, README "Format", version 0.5.
#include "io/checkpoint/safetensors_file.h"
#include "base/file.h"
#include "io/checkpoint/store.h"
#include "mics/log.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define METADATA_KEY "__metadata__"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "checkpoint and safetensors data need a little-endian machine");

// ---- dtypes ----

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// IEEE 754 binary16, subnormals, infinities and NaN payloads included; every value is exact in
// fp32.
static float float_of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 0x1f)
        return float_of_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0)
        return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
}

static void convert_f16(const unsigned char *raw, int64_t count, float *data_out)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, raw + 2 * i, sizeof half);
        data_out[i] = float_of_half(half);
    }
}

static void convert_bf16(const unsigned char *raw, int64_t count, float *data_out)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t high;
        memcpy(&high, raw + 2 * i, sizeof high);
        data_out[i] = float_of_bits((uint32_t)high << 16);
    }
}

static void convert_f64(const unsigned char *raw, int64_t count, float *data_out)
{
    for (int64_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, raw + 8 * i, sizeof value);
        data_out[i] = (float)value;
    }
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// `bits` without the last `dropped` ones, rounded to nearest, ties to even.
static uint32_t round_bits(uint32_t bits, uint32_t dropped)
{
    const uint32_t half = (uint32_t)1 << (dropped - 1), odd = bits >> dropped & 1;
    return (bits + half - 1 + odd) >> dropped;
}

static bool round_bf16(const float *data, int64_t count, uint16_t *raw_out)
{
    bool fits = true;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of_float(data[i]);
        const bool nan = isnan(data[i]);
        raw_out[i] = (uint16_t)(nan ? bits >> 16 | 0x40 : round_bits(bits, 16));
        fits = fits && (nan || isinf(data[i]) || (raw_out[i] & 0x7fff) < 0x7f80);
    }
    return fits;
}

// IEEE half: below 2^-14 its steps are those of 2^-14.
static uint16_t half_of_float(float value)
{
    const uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) // 65520, halfway from the largest half to the next power of two
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x38800000) // 2^-14
        return (uint16_t)(sign | (round_bits(magnitude, 13) - (112 << 10)));
    if (magnitude < 0x33000000) // 2^-25
        return (uint16_t)sign;
    const uint32_t shift = 126 - (magnitude >> 23);
    return (uint16_t)(sign | round_bits((magnitude & 0x7fffff) | 0x800000, shift));
}

static bool round_f16(const float *data, int64_t count, uint16_t *raw_out)
{
    bool fits = true;
    for (int64_t i = 0; i < count; i++) {
        raw_out[i] = half_of_float(data[i]);
        fits = fits && (!isfinite(data[i]) || (raw_out[i] & 0x7fff) < 0x7c00);
    }
    return fits;
}

// Every dtype of the format, as tensors that are never read must still fit.
static const mics_safetensors_dtype DTYPES[] = {
    {"F32", 32, true, NULL, NULL},
    {"F16", 16, true, convert_f16, round_f16},
    {"BF16", 16, true, convert_bf16, round_bf16},
    {"F64", 64, true, convert_f64, NULL},
    {.name = "I64", .bits = 64},
    {.name = "I32", .bits = 32},
    {.name = "I16", .bits = 16},
    {.name = "I8", .bits = 8},
    {.name = "U64", .bits = 64},
    {.name = "U32", .bits = 32},
    {.name = "U16", .bits = 16},
    {.name = "U8", .bits = 8},
    {.name = "BOOL", .bits = 8},
    {.name = "F8_E4M3", .bits = 8},
    {.name = "F8_E5M2", .bits = 8},
    {.name = "F8_E8M0", .bits = 8},
    {.name = "F6_E2M3", .bits = 6},
    {.name = "F6_E3M2", .bits = 6},
    {.name = "F4", .bits = 4},
    {.name = "C64", .bits = 64},
};

const mics_safetensors_dtype *mics_safetensors_dtype_of(mics_dtype dtype)
{
    return &DTYPES[dtype == MICS_DTYPE_FP16 ? 1 : dtype == MICS_DTYPE_BF16 ? 2 : 0];
}

static const mics_safetensors_dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++) {
        if (strcmp(DTYPES[i].name, name) == 0)
            return &DTYPES[i];
    }
    return NULL;
}

// A file being opened.
typedef struct opening {
    const char *path;
    int64_t data_at;    // where the data begins
    int64_t data_bytes; // to the file's end
} opening;

static mics_status bad_tensor(const opening *in, const char *name, const char *what)
{
    return mics_fail(MICS_ERR_FORMAT, "%s: offset %d: tensor \"%.200s\": %s", in->path,
                     MICS_SAFETENSORS_PREFIX, name, what);
}

static const mics_json_value *member(const mics_json_value *object, const char *key,
                                     mics_json_type type)
{
    const mics_json_value *value = mics_json_get(object, key);
    return value != NULL && mics_json_type_of(value) == type ? value : NULL;
}

// Shape and number of elements.
static mics_status read_shape(const opening *in, const mics_json_value *object,
                              mics_tensor_info *info)
{
    const mics_json_value *shape = member(object, "shape", MICS_JSON_ARRAY);
    if (shape == NULL)
        return bad_tensor(in, info->name, "no \"shape\" that is an array");
    if (mics_json_count(shape) > MICS_SAFETENSORS_DIMS)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %d: tensor \"%.200s\" has %d dimensions; at most %d are read",
                         in->path, MICS_SAFETENSORS_PREFIX, info->name, (int)mics_json_count(shape),
                         MICS_SAFETENSORS_DIMS);
    info->dims = mics_json_count(shape);
    info->elems = 1;
    for (int32_t i = 0; i < info->dims; i++) {
        const mics_json_value *dim = mics_json_element(shape, i);
        if (mics_json_type_of(dim) != MICS_JSON_INT || mics_json_int(dim) < 0)
            return bad_tensor(in, info->name, "a dimension is no number from 0 on");
        info->shape[i] = mics_json_int(dim);
        if (__builtin_mul_overflow(info->elems, info->shape[i], &info->elems))
            return bad_tensor(in, info->name, "the shape's product exceeds 63 bits");
    }
    return MICS_OK;
}

// [begin, end) from the data's start, which must be what dtype and shape need.
static mics_status read_offsets(const opening *in, const mics_json_value *object, int32_t bits,
                                mics_safetensors_slot *slot)
{
    const char *name = slot->info.name;
    const mics_json_value *offsets = member(object, "data_offsets", MICS_JSON_ARRAY);
    if (offsets == NULL || mics_json_count(offsets) != 2 ||
        mics_json_type_of(mics_json_element(offsets, 0)) != MICS_JSON_INT ||
        mics_json_type_of(mics_json_element(offsets, 1)) != MICS_JSON_INT)
        return bad_tensor(in, name, "no \"data_offsets\" of two whole numbers");
    int64_t begin = mics_json_int(mics_json_element(offsets, 0));
    int64_t end = mics_json_int(mics_json_element(offsets, 1));
    if (begin < 0 || begin > end || end > in->data_bytes)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %lld: tensor \"%.200s\" lies at %lld to %lld of %lld bytes of "
                         "data",
                         in->path, (long long)in->data_at, name, (long long)begin, (long long)end,
                         (long long)in->data_bytes);
    int64_t data_bits = 0;
    if (__builtin_mul_overflow(slot->info.elems, (int64_t)bits, &data_bits) || data_bits % 8 != 0 ||
        data_bits / 8 != end - begin)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %lld: tensor \"%.200s\" has %lld bytes, but %lld elements of "
                         "%s",
                         in->path, (long long)(in->data_at + begin), name, (long long)(end - begin),
                         (long long)slot->info.elems, slot->info.dtype);
    slot->offset = in->data_at + begin;
    slot->bytes = end - begin;
    return MICS_OK;
}

static mics_status read_tensor(const opening *in, const char *name, const mics_json_value *object,
                               mics_safetensors_slot *slot)
{
    slot->info.name = name;
    if (mics_json_type_of(object) != MICS_JSON_OBJECT)
        return bad_tensor(in, name, "is no object");
    const mics_json_value *type = member(object, "dtype", MICS_JSON_STRING);
    const mics_safetensors_dtype *found = type != NULL ? find_dtype(mics_json_string(type)) : NULL;
    if (found == NULL)
        return bad_tensor(in, name, "no \"dtype\", or one that is not known");
    slot->dtype = found;
    slot->info.dtype = found->name;
    MICS_TRY(read_shape(in, object, &slot->info));
    return read_offsets(in, object, found->bits, slot);
}

static mics_status check_metadata(const opening *in, const mics_json_value *metadata)
{
    const char *key = NULL;
    const mics_json_value *value;
    bool good = mics_json_type_of(metadata) == MICS_JSON_OBJECT;
    while (good && (value = mics_json_next(metadata, &key)) != NULL)
        good = mics_json_type_of(value) == MICS_JSON_STRING;
    if (!good)
        return mics_fail(MICS_ERR_FORMAT, "%s: offset %d: " METADATA_KEY " is no object of strings",
                         in->path, MICS_SAFETENSORS_PREFIX);
    return MICS_OK;
}

// By offset; empty tensors first where they share one, in the header's order.
static int compare_slots(const void *left, const void *right)
{
    const mics_safetensors_slot *a = left;
    const mics_safetensors_slot *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return a->place - b->place;
}

// No byte of the data may belong to two tensors, or to none.
static mics_status check_tiling(const opening *in, const mics_safetensors_file *file)
{
    int64_t done = in->data_at;
    for (int32_t i = 0; i < file->count; i++) {
        const mics_safetensors_slot *slot = &file->slots[i];
        if (slot->offset != done)
            return mics_fail(MICS_ERR_FORMAT, "%s: offset %lld: %s tensor \"%.200s\"", in->path,
                             (long long)(slot->offset < done ? slot->offset : done),
                             slot->offset < done ? "another tensor overlaps" : "a hole before",
                             slot->info.name);
        done += slot->bytes;
    }
    if (done != in->data_at + in->data_bytes)
        return mics_fail(MICS_ERR_FORMAT, "%s: offset %lld: %lld bytes after the last tensor",
                         in->path, (long long)done,
                         (long long)(in->data_at + in->data_bytes - done));
    return MICS_OK;
}

static mics_status read_slots(mics_memory *memory, const opening *in, int32_t number,
                              mics_safetensors_file *file)
{
    const mics_json_value *root = mics_json_root(file->header);
    if (mics_json_type_of(root) != MICS_JSON_OBJECT)
        return mics_fail(MICS_ERR_FORMAT, "%s: offset %d: the header is no object", in->path,
                         MICS_SAFETENSORS_PREFIX);
    int32_t members = mics_json_count(root);
    MICS_TRY(MICS_NEW(memory, members, &file->slots));
    const char *name = NULL;
    const mics_json_value *value;
    while ((value = mics_json_next(root, &name)) != NULL) {
        if (strcmp(name, METADATA_KEY) == 0) {
            MICS_TRY(check_metadata(in, value));
            file->metadata = value;
            continue;
        }
        mics_safetensors_slot *slot = &file->slots[file->count];
        slot->file = number;
        slot->place = file->count++;
        MICS_TRY(read_tensor(in, name, value, slot));
    }
    qsort(file->slots, (size_t)file->count, sizeof *file->slots, compare_slots);
    return check_tiling(in, file);
}

// Reads the header's text and parses it.
enum { HEADER_WINDOW = 256 << 10 }; // bytes of an object, of which a header is read

static mics_status read_header(mics_store_file *from, mics_safetensors_check *check,
                               mics_safetensors_file *file, opening *in_out)
{
    mics_memory *memory = from->memory;
    const char *path = from->path;
    const int64_t size = file->bytes;
    uint64_t bytes = 0;
    MICS_TRY(mics_store_read(from, &bytes, sizeof bytes, 0));
    if (bytes > MICS_SAFETENSORS_MAX_HEADER || (int64_t)bytes > size - MICS_SAFETENSORS_PREFIX)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset 0: a header of %llu bytes in a file of %lld; not a "
                         "safetensors file, or cut short",
                         path, (unsigned long long)bytes, (long long)size);
    char *text = NULL;
    MICS_TRY(MICS_NEW(memory, bytes, &text));
    mics_status status = mics_store_read(from, text, (size_t)bytes, MICS_SAFETENSORS_PREFIX);
    if (status == MICS_OK && check != NULL)
        status = check(path, text, (size_t)bytes);
    if (status == MICS_OK)
        status = mics_json_parse(memory, path, text, (size_t)bytes, &file->header);
    mics_free(memory, text);
    in_out->path = path;
    in_out->data_at = MICS_SAFETENSORS_PREFIX + (int64_t)bytes;
    in_out->data_bytes = size - in_out->data_at;
    return status;
}

mics_status mics_safetensors_file_open(mics_memory *memory, const char *path, int32_t number,
                                       mics_safetensors_check *check,
                                       mics_safetensors_file *file_out)
{
    mics_safetensors_file file = {.fd = -1};
    mics_store_file from = {.fd = -1};
    opening in = {0};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_strdup(memory, path, &file.path));
    MICS_TRY_OUT(mics_store_open(memory, path, 0, HEADER_WINDOW, &from));
    file.bytes = from.bytes;
    MICS_TRY_OUT(read_header(&from, check, &file, &in));
    file.fd = from.fd;
    from.fd = -1;
    MICS_TRY_OUT(read_slots(memory, &in, number, &file));
    *file_out = file;
    file = (mics_safetensors_file){.fd = -1};
out:
    mics_store_close(&from);
    mics_safetensors_file_fini(memory, &file);
    return status;
}

void mics_safetensors_file_fini(mics_memory *memory, mics_safetensors_file *file)
{
    if (file->path != NULL && file->fd >= 0)
        close(file->fd);
    mics_free(memory, file->slots);
    mics_json_close(file->header);
    mics_free(memory, file->path);
    *file = (mics_safetensors_file){0};
}

// ---- headers that are written ----

void mics_safetensors_write_tensor(mics_text *text, const mics_safetensors_entry *entry,
                                   int64_t *offset)
{
    const mics_safetensors_dtype *dtype = mics_safetensors_dtype_of(entry->dtype);
    const int64_t begin = *offset;
    int64_t elems = 1;
    mics_text_printf(text, ",");
    mics_text_quoted(text, entry->name);
    mics_text_printf(text, ":{\"dtype\":\"%s\",\"shape\":[", dtype->name);
    for (int32_t d = 0; d < entry->dims; d++) {
        mics_text_printf(text, "%s%lld", d == 0 ? "" : ",", (long long)entry->shape[d]);
        elems *= entry->shape[d];
    }
    *offset = begin + elems * (dtype->bits / 8);
    mics_text_printf(text, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)*offset);
}

mics_status mics_safetensors_end_header(mics_text *text, const char *path, size_t align)
{
    mics_text_printf(text, "}");
    mics_text_printf(text, "%*s", (int)((align - text->used % align) % align), "");
    MICS_TRY(mics_text_status(text));
    const uint64_t json_bytes = text->used - MICS_SAFETENSORS_PREFIX;
    if (json_bytes > MICS_SAFETENSORS_MAX_HEADER)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: a header of %llu bytes; readers take at most %d: make smaller files",
                         path, (unsigned long long)json_bytes, MICS_SAFETENSORS_MAX_HEADER);
    memcpy(text->bytes, &json_bytes, sizeof json_bytes);
    return MICS_OK;
}
