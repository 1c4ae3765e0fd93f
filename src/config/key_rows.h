// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files that list keys write their rows with.
#ifndef MICS_CONFIG_KEY_ROWS_H
#define MICS_CONFIG_KEY_ROWS_H

#include "config/keys.h"

#define FIELD(member) .at = offsetof(config, member), .bytes = sizeof(((config *)0)->member)
#define SHOW(member)                                                                               \
    .show_at = offsetof(config, member), .show_bytes = sizeof(((config *)0)->member)

// A row by its type: path and field; range, choices and default, where the type has them; then the
// rest by name, `.help` at least.
#define SECTION(name, ...)                                                                         \
    {                                                                                              \
        .path = (name), .type = KEY_SECTION, __VA_ARGS__                                           \
    }
#define TEXT(name, field, ...)                                                                     \
    {                                                                                              \
        .path = (name), .type = KEY_TEXT, FIELD(field), __VA_ARGS__                                \
    }
#define CHOICE(name, field, list, usual, ...)                                                      \
    {                                                                                              \
        .path = (name), .type = KEY_CHOICE, FIELD(field), .choices = (list), .text = (usual),      \
        __VA_ARGS__                                                                                \
    }
#define SWITCH(name, field, usual, ...)                                                            \
    {                                                                                              \
        .path = (name), .type = KEY_SWITCH, FIELD(field), .high = 1, .value = (usual), __VA_ARGS__ \
    }
#define NUMBER(name, of, field, from, to, usual, ...)                                              \
    {                                                                                              \
        .path = (name), .type = (of), FIELD(field), .low = (from), .high = (to), .value = (usual), \
        __VA_ARGS__                                                                                \
    }
#define INT(name, ...) NUMBER(name, KEY_INT, __VA_ARGS__)
#define REAL(name, ...) NUMBER(name, KEY_REAL, __VA_ARGS__)
#define BYTES(name, ...) NUMBER(name, KEY_BYTES, __VA_ARGS__)

// Larger than any real run; what lies beyond is a mistake, and products stay far from overflow.
#define MAX_STEPS 1e12
#define MAX_RANKS 1048576
#define MAX_ELEMS 9.3e18 // of a unit; others write the largest integer for "all"

#endif
