// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A text that grows while it is written, with JSON strings in it; and numbers as text. A failed
// allocation sticks: later calls do nothing, and mics_text_status tells it once at the end.
#pragma once

#include "mics/log.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Begin with {.memory = ...}; end with mics_text_fini. `bytes` is NUL-terminated once used.
typedef struct mics_text {
    mics_memory *memory;
    char *bytes;
    size_t used; // without the NUL
    size_t capacity;
    mics_status status;
} mics_text;

// What is written here has decimal points, whatever locale the program has set.

/* As snprintf, in the locale "C". */
int mics_text_format(char *text, size_t capacity, const char *format, ...) MICS_PRINTF(3, 4);

/* As vsnprintf, in the locale "C". */
int mics_text_vformat(char *text, size_t capacity, const char *format, va_list args);

/* Appends formatted text. */
void mics_text_printf(mics_text *text, const char *format, ...) MICS_PRINTF(2, 3);

/* Appends bytes. */
void mics_text_append(mics_text *text, const char *bytes, size_t count);

/* Appends `string` as a JSON string with its quotes. Bytes from 0x80 on are taken as UTF-8. */
void mics_text_quoted(mics_text *text, const char *string);

/* The same for `count` bytes, with NULs among them. */
void mics_text_quoted_bytes(mics_text *text, const char *string, size_t count);

/* A number with as few digits as give its bits back (but up to 6 in any case, which "%g" shortens);
 * 32 bytes hold any. Returns `text`. */
char *mics_text_real(double value, char *text, size_t capacity);

/* Whether a text ends so. */
bool mics_text_ends(const char *text, const char *end);

/* Whether a text is one of a list's, as in "a|b"; NULL is none. */
bool mics_text_is_among(const char *text, const char *list);

/* Takes user, password and query out of the http:// and https:// URLs in a text. */
void mics_text_hide_secrets(char *text);

/* MICS_OK, or the first failure (already logged). */
mics_status mics_text_status(const mics_text *text);

void mics_text_fini(mics_text *text);
