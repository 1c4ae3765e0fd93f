// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Unicode's normalization forms, by utf8proc's tables.
//
// utf8proc's own ordering of marks takes n^2 steps for n of them behind one letter, which a text
// can use to stop a run; the one here is a counting sort.
// Source: Unicode Standard Annex 15.
#include "base/utf8.h"
#include "io/data/tokenizer/normal.h"
#include <string.h>
#include <utf8proc.h>

enum {
    MAX_DECOMPOSITION = 32, // characters; the longest there is has 18
    LONG_SEGMENT = 4096     // bytes
};

static utf8proc_option_t options_of(mics_normal_kind form)
{
    int options = UTF8PROC_STABLE;
    options |=
        form == MICS_NORMAL_NFC || form == MICS_NORMAL_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (form == MICS_NORMAL_NFKC || form == MICS_NORMAL_NFKD)
        options |= UTF8PROC_COMPAT;
    return (utf8proc_option_t)options;
}

bool mics_normal_is_stable(uint32_t code)
{
    static const uint32_t ranges[][2] = {
        {0x20, 0x7E},                       // ASCII
        {0xC0, 0x24F},                      // Latin
        {0x391, 0x3CE},                     // Greek
        {0x410, 0x44F},                     // Cyrillic
        {0x5D0, 0x5EA},                     // Hebrew
        {0x620, 0x64A},                     // Arabic
        {0x904, 0x939},                     // Devanagari
        {0xE01, 0xE30},                     // Thai
        {0x3041, 0x3096},                   // Kana
        {0x30A1, 0x30FA}, {0x4E00, 0x9FFF}, // Han
        {0xAC00, 0xD7A3},                   // Hangul syllables
    };
    if (code < 0x20)
        return code == '\n';
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (code <= ranges[i][1])
            return code >= ranges[i][0];
    }
    return false;
}

static uint8_t class_of(utf8proc_int32_t code)
{
    return (uint8_t)utf8proc_get_property(code)->combining_class;
}

// Sorts marks by their class; equal ones keep their order.
static mics_status sort_marks(mics_buffer *codes, size_t begin, size_t count)
{
    size_t at[256] = {0}, before = 0;
    const size_t bytes = count * sizeof(utf8proc_int32_t);
    MICS_TRY(mics_buffer_reserve(codes, bytes)); // behind the codes: the sorted ones
    utf8proc_int32_t *marks = (utf8proc_int32_t *)(void *)codes->data + begin;
    utf8proc_int32_t *sorted = (utf8proc_int32_t *)(void *)(codes->data + codes->bytes);
    for (size_t i = 0; i < count; i++)
        at[class_of(marks[i])]++;
    for (size_t class = 0; class < 256; class ++) {
        const size_t of_class = at[class];
        at[class] = before;
        before += of_class;
    }
    for (size_t i = 0; i < count; i++)
        sorted[at[class_of(marks[i])]++] = marks[i];
    memcpy(marks, sorted, bytes);
    return MICS_OK;
}

static mics_status sort_all_marks(mics_buffer *codes)
{
    const size_t count = codes->bytes / sizeof(utf8proc_int32_t);
    size_t begin = 0;
    for (size_t i = 0; i <= count; i++) {
        const utf8proc_int32_t *all = (const utf8proc_int32_t *)(const void *)codes->data;
        if (i < count && class_of(all[i]) != 0)
            continue;
        if (i - begin >= 2)
            MICS_TRY(sort_marks(codes, begin, i - begin));
        begin = i + 1;
    }
    return MICS_OK;
}

static mics_status form_segment(mics_normal_kind form, const char *text, size_t bytes,
                                mics_buffer *codes, mics_buffer *out)
{
    const utf8proc_option_t options = options_of(form);
    codes->bytes = 0;
    for (size_t at = 0; at < bytes;) {
        const int32_t length = mics_utf8_char(text + at, bytes - at);
        const uint32_t code = mics_utf8_code(text + at, length);
        MICS_TRY(mics_buffer_reserve(codes, MAX_DECOMPOSITION * sizeof(utf8proc_int32_t)));
        utf8proc_int32_t *to = (utf8proc_int32_t *)(void *)(codes->data + codes->bytes);
        const utf8proc_ssize_t count =
            utf8proc_decompose_char((utf8proc_int32_t)code, to, MAX_DECOMPOSITION, options, NULL);
        codes->bytes += (size_t)count * sizeof(utf8proc_int32_t);
        at += (size_t)length;
    }
    MICS_TRY(sort_all_marks(codes));
    utf8proc_int32_t *all = (utf8proc_int32_t *)(void *)codes->data;
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(all, (utf8proc_ssize_t)(codes->bytes / sizeof *all), options);
    MICS_TRY(mics_buffer_reserve(out, 4 * (size_t)count));
    for (utf8proc_ssize_t i = 0; i < count; i++)
        out->bytes += mics_chars_write((uint32_t)all[i], out->data + out->bytes);
    return MICS_OK;
}

// Where a segment ends that begins at `at` and has a character that is not ASCII at `odd`: before
// ASCII, or where it is long and a form leaves a character alone.
static size_t segment_end(const char *text, size_t bytes, size_t at, size_t odd)
{
    size_t end = odd;
    while (end < bytes) {
        if ((unsigned char)text[end] < 0x80)
            break;
        const int32_t length = mics_utf8_char(text + end, bytes - end);
        if (end - at > LONG_SEGMENT && mics_normal_is_stable(mics_utf8_code(text + end, length)))
            break;
        end += (size_t)length;
    }
    return end;
}

mics_status mics_normal_form(mics_normal_kind form, const char *text, size_t bytes,
                             mics_buffer *codes, mics_buffer *out)
{
    size_t at = 0;
    while (at < bytes) {
        size_t odd = at;
        while (odd < bytes && (unsigned char)text[odd] < 0x80)
            odd++;
        // What follows may be joined with the last character of ASCII.
        const size_t begin = odd < bytes && odd > at ? odd - 1 : odd;
        MICS_TRY(mics_buffer_append(out, text + at, begin - at));
        if (odd == bytes)
            break;
        at = segment_end(text, bytes, begin, odd);
        MICS_TRY(form_segment(form, text + begin, at - begin, codes, out));
    }
    return MICS_OK;
}
