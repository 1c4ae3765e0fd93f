// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The compact protocol of Apache Thrift, as far as Parquet's footers and page headers use it. Fields
// of other types than are asked for read as zero, so hostile bytes give wrong numbers at worst.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes that are read. `bad` sticks: they ended early, or are no Thrift.
typedef struct mics_thrift {
    const unsigned char *at, *end;
    bool bad;
    int32_t depth; // of what is passed over
} mics_thrift;

// A field of a structure. Zeroed before the first.
typedef struct mics_thrift_field {
    int32_t id, type;
    bool pending;      // a list or structure that nobody has entered
    int64_t number;    // of a bool or integer
    const char *bytes; // of a binary, else NULL; not NUL-terminated
    size_t length;
} mics_thrift_field;

/* Reads the next field of a structure, and passes over the last one if it was not entered. False:
 * there is none, or the bytes are bad. */
bool mics_thrift_next(mics_thrift *from, mics_thrift_field *field);

/* Enters a field that is a structure, whose fields come next. False: it is none. */
bool mics_thrift_enter(mics_thrift *from, mics_thrift_field *field);

/* Enters a list of structures, which come next, one behind the other. Returns: how many, at most as
 * many as bytes are left; 0: it is no such list. */
int64_t mics_thrift_enter_list(mics_thrift *from, mics_thrift_field *field);

/* Reads a structure of which only numbers matter, by their ids; those of others are left. */
enum { MICS_THRIFT_NUMBERS = 16 };
void mics_thrift_numbers(mics_thrift *from, int64_t *numbers);
