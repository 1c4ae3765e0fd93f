// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Strings of code points. What is cut from a string shares its bytes.
#include "io/data/chats/template/text.h"
#include "base/utf8.h"
#include <string.h>
#include <utf8proc.h>

int mics_letter(uint32_t code)
{
    static const unsigned spaces[][2] = {
        {0x9, 0xD},       {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
    int bits = 0;
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        bits |= code >= spaces[i][0] && code <= spaces[i][1] ? MICS_LETTER_SPACE : 0;
    if ((code >= 0xA && code <= 0xD) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
        code == 0x2028 || code == 0x2029)
        bits |= MICS_LETTER_LINE_END;
    const utf8proc_category_t of = utf8proc_category((utf8proc_int32_t)code);
    if (of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO)
        bits |= MICS_LETTER_ALPHA;
    if (of == UTF8PROC_CATEGORY_ND)
        bits |= MICS_LETTER_DIGIT;
    if (of == UTF8PROC_CATEGORY_LU || of == UTF8PROC_CATEGORY_LT)
        bits |= MICS_LETTER_UPPER;
    if (of == UTF8PROC_CATEGORY_LL)
        bits |= MICS_LETTER_LOWER;
    if (code == ' ' ||
        (of != UTF8PROC_CATEGORY_CN && (of < UTF8PROC_CATEGORY_ZS || of > UTF8PROC_CATEGORY_CO)))
        bits |= MICS_LETTER_PRINTABLE;
    return bits;
}

uint32_t mics_text_code(const char *text, size_t bytes, size_t *length_out)
{
    const int32_t length = mics_utf8_char(text, bytes);
    *length_out = length > 0 ? (size_t)length : 1;
    return length > 0 ? mics_utf8_code(text, length) : 0xFFFD;
}

int64_t mics_text_count(const char *text, size_t bytes)
{
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

size_t mics_text_at(const char *text, size_t bytes, int64_t index)
{
    size_t at = 0;
    for (; at < bytes; at++) {
        if (((unsigned char)text[at] & 0xC0) != 0x80 && index-- == 0)
            return at;
    }
    return bytes;
}

size_t mics_text_find(mics_value text, mics_value needle, size_t from)
{
    if (from > text.bytes || needle.bytes > text.bytes - from)
        return SIZE_MAX;
    if (needle.bytes == 0)
        return from;
    const char *at = memmem(text.text + from, text.bytes - from, needle.text, needle.bytes);
    return at != NULL ? (size_t)(at - text.text) : SIZE_MAX;
}

size_t mics_text_find_last(mics_value text, mics_value needle, size_t end)
{
    if (needle.bytes > end)
        return SIZE_MAX;
    for (size_t at = end - needle.bytes + 1; at-- > 0;) {
        if (needle.bytes == 0 || memcmp(text.text + at, needle.text, needle.bytes) == 0)
            return at;
    }
    return SIZE_MAX;
}

static bool is_stripped(const char *at, size_t length, mics_value chars)
{
    size_t same = 0;
    if (!mics_is_string(chars))
        return (mics_letter(mics_text_code(at, length, &same)) & MICS_LETTER_SPACE) != 0;
    return mics_text_find(chars, mics_string(at, length), 0) != SIZE_MAX;
}

mics_value mics_text_strip(mics_value text, mics_value chars, bool left, bool right)
{
    while (left && text.bytes > 0) {
        size_t length = 0;
        (void)mics_text_code(text.text, text.bytes, &length);
        if (!is_stripped(text.text, length, chars))
            break;
        text.text += length;
        text.bytes -= length;
    }
    while (right && text.bytes > 0) {
        size_t begin = text.bytes - 1;
        while (begin > 0 && ((unsigned char)text.text[begin] & 0xC0) == 0x80)
            begin--;
        if (!is_stripped(text.text + begin, text.bytes - begin, chars))
            break;
        text.bytes = begin;
    }
    return text;
}

bool mics_text_begins(mics_value text, mics_value part)
{
    return part.bytes <= text.bytes &&
           (part.bytes == 0 || memcmp(text.text, part.text, part.bytes) == 0);
}

bool mics_text_has_end(mics_value text, mics_value part)
{
    return part.bytes <= text.bytes &&
           mics_text_begins(mics_string(text.text + (text.bytes - part.bytes), part.bytes), part);
}

// Writes a character in another case.
static void write_case(mics_work *work, uint32_t code, bool upper, bool title)
{
    // SpecialCasing.txt of Unicode: what becomes several characters, or depends on its neighbours.
    static const unsigned special[][2] = {{0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},
                                          {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A},
                                          {0x1F50, 0x1FFC}, {0xFB00, 0xFB17}, {0, 0}};
    char text[4];
    bool refused = !upper && (code == 0x130 || code == 0x3A3);
    for (size_t i = 0; upper && special[i][0] != 0; i++)
        refused = refused || (code >= special[i][0] && code <= special[i][1]);
    if (refused)
        mics_work_raise(work, MICS_ERR_UNSUPPORTED, "U+%04X has no simple %s case here", code,
                        upper ? "upper" : "lower");
    if (upper && code == 0xDF) {
        mics_work_write(work, title ? "Ss" : "SS", 2);
        return;
    }
    const utf8proc_int32_t from = (utf8proc_int32_t)code;
    const utf8proc_int32_t to = !upper  ? utf8proc_tolower(from)
                                : title ? utf8proc_totitle(from)
                                        : utf8proc_toupper(from);
    const utf8proc_ssize_t length = utf8proc_encode_char(to, (utf8proc_uint8_t *)text);
    mics_work_write(work, text, (size_t)length);
}

mics_value mics_text_case(mics_work *work, mics_value text, mics_case to)
{
    const size_t mark = work->out->bytes;
    uint32_t before = ' ';
    for (size_t at = 0, length = 0; at < text.bytes; at += length) {
        const uint32_t code = mics_text_code(text.text + at, text.bytes - at, &length);
        bool upper = to == MICS_CASE_UPPER || (to == MICS_CASE_CAPITALIZE && at == 0);
        if (to == MICS_CASE_TITLE)
            upper = (mics_letter(before) & (MICS_LETTER_UPPER | MICS_LETTER_LOWER)) == 0;
        if (to == MICS_CASE_WORDS)
            upper = (mics_letter(before) & MICS_LETTER_SPACE) != 0 ||
                    (before < 0x80 && strchr("-({[<", (int)before) != NULL);
        write_case(work, code, upper, to == MICS_CASE_TITLE || to == MICS_CASE_CAPITALIZE);
        before = code;
    }
    return mics_work_cut(work, mark);
}

mics_value mics_text_replace(mics_work *work, mics_value text, mics_value from, mics_value to,
                             int64_t most)
{
    const size_t mark = work->out->bytes;
    size_t done = 0;
    for (size_t at = 0; most != 0; most--) {
        at = mics_text_find(text, from, at);
        if (at == SIZE_MAX)
            break;
        mics_work_spend(work, 1);
        mics_work_write(work, text.text + done, at - done);
        mics_work_write(work, to.text, to.bytes);
        done = at + from.bytes;
        at = done;
        if (from.bytes > 0)
            continue;
        if (at == text.bytes)
            break;
        size_t length = 0; // an empty text stands before each character and at the end
        (void)mics_text_code(text.text + at, text.bytes - at, &length);
        at += length;
    }
    mics_work_write(work, text.text + done, text.bytes - done);
    return mics_work_cut(work, mark);
}

mics_value mics_text_concat(mics_work *work, mics_value a, mics_value b)
{
    char *text = mics_work_alloc(work, a.bytes + b.bytes);
    mics_work_spend(work, (int64_t)((a.bytes + b.bytes) / 64));
    if (a.bytes > 0)
        memcpy(text, a.text, a.bytes);
    if (b.bytes > 0)
        memcpy(text + a.bytes, b.text, b.bytes);
    return mics_string(text, a.bytes + b.bytes);
}

mics_value mics_text_lines(mics_work *work, mics_value text)
{
    const mics_value lines = mics_list(work, MICS_VALUE_LIST);
    size_t begin = 0;
    for (size_t at = 0, length = 0; at < text.bytes; at += length) {
        const uint32_t code = mics_text_code(text.text + at, text.bytes - at, &length);
        if ((mics_letter(code) & MICS_LETTER_LINE_END) == 0)
            continue;
        mics_list_add(work, lines, mics_string(text.text + begin, at - begin));
        length += code == '\r' && at + 1 < text.bytes && text.text[at + 1] == '\n';
        begin = at + length;
    }
    if (begin < text.bytes)
        mics_list_add(work, lines, mics_string(text.text + begin, text.bytes - begin));
    return lines;
}

mics_value mics_text_escape(mics_work *work, mics_value text)
{
    static const char signs[] = "&<>'\"";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (text.safe)
        return text;
    const size_t mark = work->out->bytes;
    for (size_t at = 0; at < text.bytes; at++) {
        const char *sign = text.text[at] != '\0' ? strchr(signs, text.text[at]) : NULL;
        const char *written = sign != NULL ? entities[sign - signs] : text.text + at;
        mics_work_write(work, written, sign != NULL ? strlen(written) : 1);
    }
    mics_value escaped = mics_work_cut(work, mark);
    escaped.safe = true;
    return escaped;
}
