// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/data/parquet/thrift.h"

enum { STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 12 };
enum { MAX_DEPTH = 16 }; // of what is passed over; Parquet's own structures nest half as deep

static const unsigned char *take(mics_thrift *from, uint64_t bytes)
{
    if (bytes > (uint64_t)(from->end - from->at))
        from->bad = true;
    if (from->bad)
        return NULL;
    from->at += bytes;
    return from->at - bytes;
}

static uint8_t read_byte(mics_thrift *from)
{
    const unsigned char *byte = take(from, 1);
    return byte != NULL ? *byte : STOP;
}

static uint64_t read_varint(mics_thrift *from)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = read_byte(from);
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return value;
    }
    from->bad = true;
    return 0;
}

static int64_t read_zigzag(mics_thrift *from)
{
    const uint64_t value = read_varint(from);
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

static void read_value(mics_thrift *from, mics_thrift_field *field)
{
    if (field->type == TRUE || field->type == FALSE)
        field->number = field->type == TRUE;
    else if (field->type == BYTE)
        field->number = read_byte(from);
    else if (field->type <= I64)
        field->number = read_zigzag(from);
    else if (field->type == DOUBLE)
        (void)take(from, sizeof(double));
    else if (field->type == BINARY) {
        field->length = (size_t)read_varint(from);
        field->bytes = (const char *)take(from, field->length);
    } else if (field->type == LIST || field->type == STRUCT)
        field->pending = true;
    else
        from->bad = true; // sets and maps, which Parquet has none of
}

// Elements take a byte each, at least.
static int64_t read_list(mics_thrift *from, int32_t *type_out)
{
    const uint8_t head = read_byte(from);
    const uint64_t count = head >> 4 == 15 ? read_varint(from) : head >> 4;
    *type_out = (head & 15) == TRUE || (head & 15) == FALSE ? BYTE : head & 15;
    if (count > (uint64_t)(from->end - from->at))
        from->bad = true;
    return from->bad ? 0 : (int64_t)count;
}

static void pass(mics_thrift *from, const mics_thrift_field *field)
{
    mics_thrift_field inner = {0};
    int32_t type = STOP;
    if (++from->depth > MAX_DEPTH)
        from->bad = true;
    if (field->type == STRUCT) {
        while (mics_thrift_next(from, &inner))
            ;
    } else {
        for (int64_t left = read_list(from, &type); left > 0 && !from->bad; left--) {
            inner = (mics_thrift_field){.type = type};
            read_value(from, &inner);
            if (inner.pending)
                pass(from, &inner);
        }
    }
    from->depth--;
}

bool mics_thrift_next(mics_thrift *from, mics_thrift_field *field)
{
    if (field->pending)
        pass(from, field);
    const uint8_t head = read_byte(from);
    if (head == STOP)
        return false;
    const int64_t id = head >> 4 == 0 ? read_zigzag(from) : field->id + (head >> 4);
    *field = (mics_thrift_field){.id = (int16_t)id, .type = head & 15};
    read_value(from, field);
    return !from->bad;
}

bool mics_thrift_enter(mics_thrift *from, mics_thrift_field *field)
{
    const bool is = field->pending && field->type == STRUCT && !from->bad;
    field->pending &= !is;
    return is;
}

int64_t mics_thrift_enter_list(mics_thrift *from, mics_thrift_field *field)
{
    int32_t type = STRUCT;
    if (!field->pending || field->type != LIST)
        return 0;
    field->pending = false;
    const int64_t count = read_list(from, &type);
    if (count > 0 && type != STRUCT)
        from->bad = true;
    return from->bad ? 0 : count;
}

void mics_thrift_numbers(mics_thrift *from, int64_t *numbers)
{
    mics_thrift_field field = {0};
    while (mics_thrift_next(from, &field)) {
        if (field.id >= 0 && field.id < MICS_THRIFT_NUMBERS)
            numbers[field.id] = field.number;
    }
}
