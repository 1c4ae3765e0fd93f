// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/data/text_window.h"
#include "base/utf8.h"
#include "io/data/records.h"
#include "mics/log.h"
#include <string.h>

#define NO_UTF8                                                                                    \
    ", is no UTF-8; convert it, as of Latin-1 by iconv -f LATIN1 -t UTF-8, or take the tokenizer " \
    "\"bytes\", which takes any"

mics_status mics_text_window_open(mics_memory *memory, const char *path,
                                  mics_text_window *window_out)
{
    *window_out = (mics_text_window){.capacity = MICS_TEXT_WINDOW_BYTES};
    MICS_TRY(mics_reader_open(memory, path, &window_out->reader));
    return MICS_NEW(memory, MICS_TEXT_WINDOW_BYTES, &window_out->bytes);
}

void mics_text_window_close(mics_text_window *window)
{
    mics_free(window->reader.memory, window->bytes);
    mics_reader_close(&window->reader);
}

mics_status mics_text_window_rewind(mics_text_window *window, uint64_t seed)
{
    window->filled = window->checked = 0;
    window->dropped = window->lines = 0;
    window->ended = false;
    return mics_reader_rewind(&window->reader, seed);
}

mics_status mics_text_window_pass(mics_text_window *window, size_t bytes)
{
    size_t got = 0;
    window->dropped = (int64_t)bytes;
    return mics_reader_read(&window->reader, window->bytes, bytes, &got);
}

mics_status mics_text_window_fill(mics_text_window *window)
{
    size_t got = 0, space = window->capacity - window->filled;
    MICS_TRY(mics_reader_read(&window->reader, window->bytes + window->filled, space, &got));
    window->filled += got;
    window->ended = got < space;
    return MICS_OK;
}

mics_status mics_text_window_check(mics_text_window *window, bool any)
{
    const char *text = window->bytes + window->checked;
    const size_t bytes = window->filled - window->checked;
    const size_t valid = any ? bytes : mics_utf8_valid(text, bytes);
    window->lines += mics_records_lines(text, valid);
    window->checked += valid;
    if (valid == bytes || (!window->ended && mics_utf8_char(text + valid, bytes - valid) < 0))
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT, "%s, line %lld: offset %lld of the file, 0x%02x" NO_UTF8,
                     window->reader.path, (long long)window->lines + 1,
                     (long long)(window->dropped + (int64_t)window->checked),
                     (unsigned)(unsigned char)text[valid]);
}

mics_status mics_text_check(const char *name, const char *text, size_t bytes)
{
    const size_t valid = mics_utf8_valid(text, bytes);
    return valid == bytes ? MICS_OK
                          : mics_fail(MICS_ERR_FORMAT, "%s: byte %zu of its text, 0x%02x" NO_UTF8,
                                      name, valid + 1, (unsigned)(unsigned char)text[valid]);
}

void mics_text_window_drop(mics_text_window *window, size_t bytes)
{
    memmove(window->bytes, window->bytes + bytes, window->filled - bytes);
    window->filled -= bytes;
    window->checked -= bytes < window->checked ? bytes : window->checked;
    window->dropped += (int64_t)bytes;
}

static mics_status resize(mics_text_window *window, size_t capacity)
{
    void *bytes = window->bytes;
    MICS_TRY(mics_realloc(window->reader.memory, MICS_MEM_HOST, capacity, &bytes));
    window->bytes = bytes;
    window->capacity = capacity;
    return MICS_OK;
}

mics_status mics_text_window_widen(mics_text_window *window)
{
    return resize(window, 2 * window->capacity);
}

mics_status mics_text_window_narrow(mics_text_window *window)
{
    if (window->capacity == MICS_TEXT_WINDOW_BYTES || window->filled > MICS_TEXT_WINDOW_BYTES)
        return MICS_OK;
    return resize(window, MICS_TEXT_WINDOW_BYTES);
}
