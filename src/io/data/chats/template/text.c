// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Strings of code points. What is cut from a string shares its bytes.
#include "io/data/chats/template/text.h"
#include "base/utf8.h"
#include <string.h>
#include <utf8proc.h>

typedef struct codes {
    uint32_t first, last;
} codes;

static bool is_among(const codes *list, size_t count, uint32_t code)
{
    for (size_t i = 0; i < count; i++) {
        if (code >= list[i].first && code <= list[i].last)
            return true;
    }
    return false;
}
#define IS_AMONG(list, code) is_among(list, sizeof(list) / sizeof *(list), code)

uint32_t mics_text_code(const char *text, size_t bytes, size_t *length_out)
{
    const int32_t length = mics_utf8_char(text, bytes);
    *length_out = length > 0 ? (size_t)length : 1;
    return length > 0 ? mics_utf8_code(text, length) : 0xFFFD;
}

int mics_letter(const char *text, size_t bytes, size_t *length_out)
{
    static const codes spaces[] = {
        {0x9, 0xD},       {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
    static const codes ends[] = {{0xA, 0xD}, {0x1C, 0x1E}, {0x85, 0x85}, {0x2028, 0x2029}};
    const uint32_t code = mics_text_code(text, bytes, length_out);
    const utf8proc_category_t of = utf8proc_category((utf8proc_int32_t)code);
    const bool alpha = of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO;
    const bool upper = of == UTF8PROC_CATEGORY_LU || of == UTF8PROC_CATEGORY_LT;
    const bool printable = of != UTF8PROC_CATEGORY_CN && of < UTF8PROC_CATEGORY_ZS;
    return (alpha ? MICS_LETTER_ALPHA : 0) | (upper ? MICS_LETTER_UPPER : 0) |
           (of == UTF8PROC_CATEGORY_ND ? MICS_LETTER_DIGIT : 0) |
           (of == UTF8PROC_CATEGORY_LL ? MICS_LETTER_LOWER : 0) |
           (IS_AMONG(spaces, code) ? MICS_LETTER_SPACE : 0) |
           (IS_AMONG(ends, code) ? MICS_LETTER_LINE_END : 0) |
           (printable || code == ' ' ? MICS_LETTER_PRINTABLE : 0);
}

int64_t mics_text_count(mics_value text)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.bytes; i++)
        count += ((unsigned char)text.text[i] & 0xC0) != 0x80;
    return count;
}

size_t mics_text_at(mics_value text, int64_t index)
{
    for (size_t at = 0; at < text.bytes; at++) {
        if (((unsigned char)text.text[at] & 0xC0) != 0x80 && index-- == 0)
            return at;
    }
    return text.bytes;
}

mics_value mics_text_part(mics_value text, size_t begin, size_t end)
{
    text.text += begin;
    text.bytes = end - begin;
    return text;
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

bool mics_text_begins(mics_value text, mics_value part)
{
    return part.bytes <= text.bytes &&
           (part.bytes == 0 || memcmp(text.text, part.text, part.bytes) == 0);
}

bool mics_text_has_end(mics_value text, mics_value part)
{
    return part.bytes <= text.bytes &&
           mics_text_begins(mics_text_part(text, text.bytes - part.bytes, text.bytes), part);
}

static bool is_stripped(const char *at, size_t bytes, mics_value chars, size_t *length_out)
{
    const int bits = mics_letter(at, bytes, length_out);
    return mics_is_string(chars)
               ? mics_text_find(chars, MICS_STRING(at, *length_out), 0) != SIZE_MAX
               : (bits & MICS_LETTER_SPACE) != 0;
}

mics_value mics_text_strip(mics_value text, mics_value chars, bool left, bool right)
{
    size_t length = 0;
    while (left && text.bytes > 0 && is_stripped(text.text, text.bytes, chars, &length))
        text = mics_text_part(text, length, text.bytes);
    while (right && text.bytes > 0) {
        size_t begin = text.bytes - 1;
        while (begin > 0 && ((unsigned char)text.text[begin] & 0xC0) == 0x80)
            begin--;
        if (!is_stripped(text.text + begin, text.bytes - begin, chars, &length))
            break;
        text.bytes = begin;
    }
    return text;
}

static void write_case(mics_work *work, uint32_t code, bool upper, bool title)
{
    // SpecialCasing.txt of Unicode: what becomes several characters, or depends on its neighbours.
    static const codes special[] = {{0x149, 0x149},   {0x1F0, 0x1F0},  {0x390, 0x390},
                                    {0x3B0, 0x3B0},   {0x587, 0x587},  {0x1E96, 0x1E9A},
                                    {0x1F50, 0x1FFC}, {0xFB00, 0xFB17}};
    const utf8proc_int32_t from = (utf8proc_int32_t)code;
    char text[4];
    if (upper ? IS_AMONG(special, code) : code == 0x130 || code == 0x3A3)
        mics_work_raise(work, MICS_ERR_UNSUPPORTED, "U+%04X has no simple %s case here", code,
                        upper ? "upper" : "lower");
    if (upper && code == 0xDF) {
        mics_work_put(work, title ? "Ss" : "SS");
        return;
    }
    const utf8proc_int32_t to = !upper  ? utf8proc_tolower(from)
                                : title ? utf8proc_totitle(from)
                                        : utf8proc_toupper(from);
    mics_work_write(work, text, (size_t)utf8proc_encode_char(to, (utf8proc_uint8_t *)text));
}

mics_value mics_text_case(mics_work *work, mics_value text, mics_case to)
{
    static const char openers[] = "-({[<";
    const size_t mark = work->out->bytes;
    int before = MICS_LETTER_SPACE;
    for (size_t at = 0, length = 0; at < text.bytes; at += length) {
        const char *c = text.text + at;
        const int bits = mics_letter(c, text.bytes - at, &length);
        bool upper = to == MICS_CASE_UPPER || (to == MICS_CASE_CAPITALIZE && at == 0);
        if (to == MICS_CASE_TITLE)
            upper = (before & (MICS_LETTER_UPPER | MICS_LETTER_LOWER)) == 0;
        if (to == MICS_CASE_WORDS)
            upper = (before & MICS_LETTER_SPACE) != 0 ||
                    memchr(openers, at > 0 ? c[-1] : 0, sizeof openers - 1);
        write_case(work, mics_text_code(c, text.bytes - at, &length), upper,
                   to == MICS_CASE_TITLE || to == MICS_CASE_CAPITALIZE);
        before = bits;
    }
    return mics_work_cut(work, mark);
}

mics_value mics_text_replace(mics_work *work, mics_value text, mics_value from, mics_value to,
                             int64_t most)
{
    const size_t mark = work->out->bytes;
    size_t done = 0;
    for (size_t at = 0, length = 0; most != 0; most--) {
        at = mics_text_find(text, from, at);
        if (at == SIZE_MAX)
            break;
        mics_work_spend(work, 1);
        mics_work_write(work, text.text + done, at - done);
        mics_work_write(work, to.text, to.bytes);
        done = at + from.bytes;
        at = done;
        if (from.bytes == 0) { // an empty text stands before each character and at the end
            if (at == text.bytes)
                break;
            (void)mics_text_code(text.text + at, text.bytes - at, &length);
            at += length;
        }
    }
    mics_work_write(work, text.text + done, text.bytes - done);
    return mics_work_cut(work, mark);
}

mics_value mics_text_lines(mics_work *work, mics_value text)
{
    const mics_value lines = mics_list(work, MICS_VALUE_LIST);
    size_t begin = 0;
    for (size_t at = 0, length = 0; at < text.bytes; at += length) {
        if ((mics_letter(text.text + at, text.bytes - at, &length) & MICS_LETTER_LINE_END) == 0)
            continue;
        mics_list_add(work, lines, mics_text_part(text, begin, at));
        length += text.text[at] == '\r' && at + 1 < text.bytes && text.text[at + 1] == '\n';
        begin = at + length;
    }
    if (begin < text.bytes)
        mics_list_add(work, lines, mics_text_part(text, begin, text.bytes));
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
        const char *sign = memchr(signs, text.text[at], sizeof signs - 1);
        const char *written = sign != NULL ? entities[sign - signs] : text.text + at;
        mics_work_write(work, written, sign != NULL ? strlen(written) : 1);
    }
    mics_value escaped = mics_work_cut(work, mark);
    escaped.safe = true;
    return escaped;
}
