// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// str, repr and json.dumps.
#include "base/text.h"
#include "io/data/chats/template/text.h"
#include "io/data/chats/template/value.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// As few digits as give the number back; those of 1e16 and above, or below 1e-4, with an exponent.
static void write_real(mics_work *work, double real, bool json)
{
    char text[40];
    if (!isfinite(real)) {
        mics_work_put(work, real < 0 ? "-" : "");
        mics_work_put(work, isnan(real) ? (json ? "NaN" : "nan") : json ? "Infinity" : "inf");
        return;
    }
    int precision = 0;
    do
        mics_text_format(text, sizeof text, "%.*e", precision, real);
    while (strtod(text, NULL) != real && ++precision < 17);
    const int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16)
        mics_text_format(text, sizeof text, "%.*f", precision > exponent ? precision - exponent : 1,
                         real);
    mics_work_put(work, text);
}

// True, false, none and numbers; returns whether it is one of them.
static bool write_plain(mics_work *work, mics_value value, bool json)
{
    char text[32];
    if (value.type == MICS_VALUE_NONE) {
        mics_work_put(work, json ? "null" : "None");
    } else if (value.type == MICS_VALUE_BOOL) {
        mics_work_put(work, value.truth ? (json ? "true" : "True") : (json ? "false" : "False"));
    } else if (value.type == MICS_VALUE_INT) {
        mics_text_format(text, sizeof text, "%" PRId64, value.integer);
        mics_work_put(work, text);
    } else if (value.type == MICS_VALUE_REAL) {
        write_real(work, value.real, json);
    } else {
        return false;
    }
    return true;
}

// Signs that are written as a backslash and the letter of the same place.
static bool write_escaped(mics_work *work, uint32_t code, const char *signs, const char *letters)
{
    const char *sign = code > 0 && code < 0x80 ? strchr(signs, (int)code) : NULL;
    if (sign == NULL)
        return false;
    mics_work_put(work, "\\");
    mics_work_write(work, &letters[sign - signs], 1);
    return true;
}

static void write_code(mics_work *work, const char *format, uint32_t code)
{
    char text[16];
    snprintf(text, sizeof text, format, (unsigned)code);
    mics_work_put(work, text);
}

static void write_quoted(mics_work *work, mics_value string)
{
    const bool single = mics_text_find(string, MICS_LITERAL("'"), 0) != SIZE_MAX;
    const bool both = single && mics_text_find(string, MICS_LITERAL("\""), 0) != SIZE_MAX;
    const char *quote = single && !both ? "\"" : "'";
    mics_work_put(work, quote);
    for (size_t at = 0, length = 0; at < string.bytes; at += length) {
        const char *c = string.text + at;
        const int bits = mics_letter(c, string.bytes - at, &length);
        const uint32_t code = mics_text_code(c, string.bytes - at, &length);
        if (code == (unsigned char)*quote)
            mics_work_put(work, "\\");
        if (write_escaped(work, code, "\\\n\r\t", "\\nrt"))
            continue;
        if ((bits & MICS_LETTER_PRINTABLE) != 0)
            mics_work_write(work, c, length);
        else
            write_code(work,
                       code < 0x100     ? "\\x%02x"
                       : code < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                       code);
    }
    mics_work_put(work, quote);
}

static void write_repr(mics_work *work, mics_value value)
{
    const bool dict = value.type == MICS_VALUE_DICT, tuple = value.type == MICS_VALUE_TUPLE;
    mics_work_spend(work, 1);
    if (mics_is_string(value)) {
        mics_work_put(work, value.safe ? "Markup(" : "");
        write_quoted(work, value);
        mics_work_put(work, value.safe ? ")" : "");
    } else if (value.type == MICS_VALUE_UNDEFINED) {
        mics_work_put(work, "Undefined");
    } else if (!write_plain(work, value, false)) {
        if (value.type < MICS_VALUE_LIST || value.type > MICS_VALUE_DICT ||
            value.type == MICS_VALUE_RANGE)
            mics_value_raise(work, "has no text", value);
        const bool view = value.type == MICS_VALUE_VIEW;
        mics_work_enter(work);
        mics_work_put(work, view ? value.list->label : "");
        mics_work_put(work, dict ? "{" : tuple ? "(" : view ? "([" : "[");
        for (int64_t i = 0; i < value.list->count; i++) {
            mics_work_put(work, i == 0 ? "" : dict && i % 2 == 1 ? ": " : ", ");
            write_repr(work, value.list->items[i]);
        }
        mics_work_put(work, tuple && value.list->count == 1 ? "," : "");
        mics_work_put(work, dict ? "}" : tuple ? ")" : view ? "])" : "]");
        work->depth--;
    }
}

void mics_print(mics_work *work, mics_value value)
{
    if (mics_is_string(value))
        mics_work_write(work, value.text, value.bytes);
    else if (value.type != MICS_VALUE_UNDEFINED)
        write_repr(work, value);
}

mics_value mics_print_str(mics_work *work, mics_value value)
{
    const size_t mark = work->out->bytes;
    if (mics_is_string(value))
        return value;
    mics_print(work, value);
    return mics_work_cut(work, mark);
}

// ---- JSON ----

static void write_json_string(mics_work *work, mics_value string, bool ensure_ascii)
{
    mics_work_put(work, "\"");
    for (size_t at = 0, length = 0; at < string.bytes; at += length) {
        const uint32_t code = mics_text_code(string.text + at, string.bytes - at, &length);
        if (write_escaped(work, code, "\"\\\n\r\t\f\b", "\"\\nrtfb"))
            continue;
        if (ensure_ascii && code >= 0x10000) {
            write_code(work, "\\u%04x", 0xD800 + ((code - 0x10000) >> 10));
            write_code(work, "\\u%04x", 0xDC00 + ((code - 0x10000) & 0x3FF));
        } else if (code < 0x20 || (ensure_ascii && code > 0x7E)) {
            write_code(work, "\\u%04x", code);
        } else {
            mics_work_write(work, string.text + at, length);
        }
    }
    mics_work_put(work, "\"");
}

static mics_value sorted(mics_work *work, mics_value dict)
{
    const mics_value keys = mics_list(work, MICS_VALUE_LIST), values = mics_list(work, keys.type);
    const mics_value copy = mics_list(work, MICS_VALUE_DICT);
    for (int64_t i = 0; i < dict.list->count; i++)
        mics_list_add(work, i % 2 == 0 ? keys : values, dict.list->items[i]);
    mics_value_sort(work, keys.list, values.list, false);
    for (int64_t i = 0; i < keys.list->count; i++) {
        mics_list_add(work, copy, keys.list->items[i]);
        mics_list_add(work, copy, values.list->items[i]);
    }
    return copy;
}

static void break_line(mics_work *work, const mics_json_style *style, int level)
{
    if (!mics_is_string(style->indent))
        return;
    mics_work_put(work, "\n");
    for (int i = 0; i < level; i++)
        mics_print(work, style->indent);
}

static void write_json_items(mics_work *work, mics_value value, const mics_json_style *style,
                             int level)
{
    const bool dict = value.type == MICS_VALUE_DICT;
    mics_work_enter(work);
    mics_work_put(work, dict ? "{" : "[");
    for (int64_t i = 0; i < value.list->count; i++) {
        const mics_value item = value.list->items[i];
        const bool key = dict && i % 2 == 0, quoted = key && !mics_is_string(item);
        if (key && !mics_is_string(item) && !mics_is_number(item) && item.type != MICS_VALUE_NONE)
            mics_value_raise(work, "cannot be a key in JSON", item);
        if (i > 0)
            mics_print(work, dict && !key ? style->colon : style->comma);
        if (!dict || key)
            break_line(work, style, level + 1);
        mics_work_put(work, quoted ? "\"" : "");
        mics_print_json(work, item, style, level + 1);
        mics_work_put(work, quoted ? "\"" : "");
    }
    if (value.list->count > 0)
        break_line(work, style, level);
    mics_work_put(work, dict ? "}" : "]");
    work->depth--;
}

void mics_print_json(mics_work *work, mics_value value, const mics_json_style *style, int level)
{
    const bool dict = value.type == MICS_VALUE_DICT;
    mics_work_spend(work, 1);
    if (mics_is_string(value))
        write_json_string(work, value, style->ensure_ascii);
    else if (dict || value.type == MICS_VALUE_LIST || value.type == MICS_VALUE_TUPLE)
        write_json_items(work, dict && style->sort_keys ? sorted(work, value) : value, style,
                         level);
    else if (!write_plain(work, value, true))
        mics_value_raise(work, "cannot be written as JSON", value);
}
