// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A growing text with JSON strings.
//
// Invariant, checked by is_terminated: bytes == NULL, or used < capacity and bytes[used] == '\0'.
#include "base/text.h"
#include "base/assert.h"
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 4096 };

static bool is_terminated(const mics_text *text)
{
    return text->bytes == NULL ? text->used == 0
                               : text->used < text->capacity && text->bytes[text->used] == '\0';
}

// Reserves `more` bytes and the NUL.
static bool reserve(mics_text *text, size_t more)
{
    if (text->status != MICS_OK)
        return false;
    size_t needed = text->used + more + 1;
    if (needed <= text->capacity)
        return true;
    size_t capacity = text->capacity == 0 ? FIRST_CAPACITY : text->capacity * 2;
    if (capacity < needed)
        capacity = needed;
    void *block = text->bytes;
    text->status = mics_realloc(text->memory, MICS_MEM_HOST, capacity, &block);
    if (text->status != MICS_OK)
        return false;
    text->bytes = block;
    text->capacity = capacity;
    return true;
}

void mics_text_append(mics_text *text, const char *bytes, size_t count)
{
    if (!reserve(text, count))
        return;
    memcpy(text->bytes + text->used, bytes, count);
    text->used += count;
    text->bytes[text->used] = '\0';
    MICS_ASSERT(is_terminated(text));
}

void mics_text_printf(mics_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int count = mics_text_vformat(NULL, 0, format, args);
    va_end(args);
    if (count < 0 || !reserve(text, (size_t)count))
        return;
    va_start(args, format);
    mics_text_vformat(text->bytes + text->used, (size_t)count + 1, format, args);
    va_end(args);
    text->used += (size_t)count;
    MICS_ASSERT(is_terminated(text));
}

// The two-character escape of a byte, or NULL.
static const char *short_escape(char c)
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        return NULL;
    }
}

void mics_text_quoted_bytes(mics_text *text, const char *string, size_t count)
{
    mics_text_append(text, "\"", 1);
    const char *plain = string, *end = string + count; // plain: start of what needs no escape
    for (const char *c = string; c < end; c++) {
        const char *escape = short_escape(*c);
        if (escape == NULL && (unsigned char)*c >= 0x20 && *c != 0x7f)
            continue;
        mics_text_append(text, plain, (size_t)(c - plain));
        plain = c + 1;
        if (escape != NULL)
            mics_text_append(text, escape, 2);
        else
            mics_text_printf(text, "\\u%04x", (unsigned)(unsigned char)*c);
    }
    mics_text_append(text, plain, (size_t)(end - plain));
    mics_text_append(text, "\"", 1);
}

void mics_text_quoted(mics_text *text, const char *string)
{
    mics_text_quoted_bytes(text, string, strlen(string));
}

char *mics_text_real(double value, char *text, size_t capacity)
{
    const locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, capacity, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    uselocale(before);
    return text;
}

bool mics_text_ends(const char *text, const char *end)
{
    const size_t bytes = strlen(text), tail = strlen(end);
    return bytes >= tail && strcmp(text + bytes - tail, end) == 0;
}

bool mics_text_is_among(const char *text, const char *list)
{
    const size_t bytes = text != NULL ? strlen(text) : 0;
    while (text != NULL) {
        const size_t option = strcspn(list, "|");
        if (option == bytes && strncmp(text, list, bytes) == 0)
            return true;
        if (list[option] == '\0')
            return false;
        list += option + 1;
    }
    return false;
}

mics_status mics_text_status(const mics_text *text)
{
    return text->status;
}

void mics_text_fini(mics_text *text)
{
    mics_free(text->memory, text->bytes);
    *text = (mics_text){.memory = text->memory};
}
