// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// str, repr and json.dumps, written to the output and cut off again where a string is wanted.
#include "io/data/chats/template/print.h"
#include "base/text.h"
#include "io/data/chats/template/text.h"
#include "io/data/chats/template/value.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put(mics_work *work, const char *text)
{
    mics_work_write(work, text, strlen(text));
}

// As few digits as give the number back; those of 1e16 and above, or below 1e-4, with an exponent.
static void write_real(mics_work *work, double real, bool json)
{
    char text[40];
    if (!isfinite(real)) {
        put(work, isnan(real) ? (json ? "NaN" : "nan")
                  : real > 0  ? (json ? "Infinity" : "inf")
                              : (json ? "-Infinity" : "-inf"));
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
    put(work, text);
}

static void write_number(mics_work *work, mics_value value, bool json)
{
    char text[32];
    if (value.type == MICS_VALUE_BOOL) {
        put(work, value.truth ? (json ? "true" : "True") : (json ? "false" : "False"));
    } else if (value.type == MICS_VALUE_INT) {
        mics_text_format(text, sizeof text, "%" PRId64, value.integer);
        put(work, text);
    } else {
        write_real(work, value.real, json);
    }
}

static void write_code(mics_work *work, uint32_t code)
{
    char text[16];
    mics_text_format(text, sizeof text,
                     code < 0x100     ? "\\x%02x"
                     : code < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                     (unsigned)code);
    put(work, text);
}

static void write_quoted(mics_work *work, mics_value string)
{
    const bool single = string.bytes > 0 && memchr(string.text, '\'', string.bytes) != NULL;
    const bool both = single && memchr(string.text, '"', string.bytes) != NULL;
    const char *quote = single && !both ? "\"" : "'";
    put(work, quote);
    for (size_t at = 0, length = 0; at < string.bytes; at += length) {
        const uint32_t code = mics_text_code(string.text + at, string.bytes - at, &length);
        if (code == '\\' || code == (unsigned char)*quote)
            put(work, "\\");
        if (code == '\n' || code == '\r' || code == '\t')
            put(work, code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
        else if ((mics_letter(code) & MICS_LETTER_PRINTABLE) == 0)
            write_code(work, code);
        else
            mics_work_write(work, string.text + at, length);
    }
    put(work, quote);
}

static void write_repr(mics_work *work, mics_value value);

static void write_items(mics_work *work, const mics_value_list *items, bool pairs)
{
    for (int64_t i = 0; i < items->count; i++) {
        if (i > 0)
            put(work, pairs && i % 2 == 1 ? ": " : ", ");
        write_repr(work, items->items[i]);
    }
}

static void write_list(mics_work *work, mics_value value)
{
    mics_work_enter(work);
    if (value.type == MICS_VALUE_VIEW) {
        put(work, value.list->label);
        put(work, "([");
        write_items(work, value.list, false);
        put(work, "])");
    } else if (value.type == MICS_VALUE_TUPLE) {
        put(work, "(");
        write_items(work, value.list, false);
        put(work, value.list->count == 1 ? ",)" : ")");
    } else {
        const bool dict = value.type == MICS_VALUE_DICT;
        put(work, dict ? "{" : "[");
        write_items(work, value.list, dict);
        put(work, dict ? "}" : "]");
    }
    work->depth--;
}

static void write_repr(mics_work *work, mics_value value)
{
    mics_work_spend(work, 1);
    if (mics_is_string(value))
        write_quoted(work, value);
    else if (mics_is_number(value))
        write_number(work, value, false);
    else if (value.type == MICS_VALUE_NONE)
        put(work, "None");
    else if (value.type == MICS_VALUE_UNDEFINED)
        put(work, "Undefined");
    else if (value.type == MICS_VALUE_LIST || value.type == MICS_VALUE_TUPLE ||
             value.type == MICS_VALUE_VIEW || value.type == MICS_VALUE_DICT)
        write_list(work, value);
    else
        mics_work_raise(work, MICS_ERR_INVALID, "a %s has no text%s", mics_value_type_text(value),
                        value.type == MICS_VALUE_ITERATOR ? "; make a list of it by | list" : "");
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

typedef struct json_writer {
    mics_work *work;
    const mics_json_style *style;
    int32_t level;
} json_writer;

static void write_json_code(mics_work *work, uint32_t code)
{
    char text[16];
    if (code >= 0x10000) {
        mics_text_format(text, sizeof text, "\\u%04x\\u%04x",
                         (unsigned)(0xD800 + ((code - 0x10000) >> 10)),
                         (unsigned)(0xDC00 + ((code - 0x10000) & 0x3FF)));
    } else {
        mics_text_format(text, sizeof text, "\\u%04x", (unsigned)code);
    }
    put(work, text);
}

static void write_json_string(const json_writer *w, mics_value string)
{
    static const char signs[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    put(w->work, "\"");
    for (size_t at = 0, length = 0; at < string.bytes; at += length) {
        const uint32_t code = mics_text_code(string.text + at, string.bytes - at, &length);
        const char *sign = code > 0 && code < 0x80 ? strchr(signs, (int)code) : NULL;
        if (sign != NULL) {
            put(w->work, "\\");
            mics_work_write(w->work, &letters[sign - signs], 1);
        } else if (code < 0x20 || (w->style->ensure_ascii && code > 0x7E)) {
            write_json_code(w->work, code);
        } else {
            mics_work_write(w->work, string.text + at, length);
        }
    }
    put(w->work, "\"");
}

static void write_json(json_writer *w, mics_value value);

static void write_json_key(json_writer *w, mics_value key)
{
    const bool quoted = !mics_is_string(key);
    if (quoted && !mics_is_number(key) && key.type != MICS_VALUE_NONE)
        mics_work_raise(w->work, MICS_ERR_INVALID, "a %s cannot be a key in JSON",
                        mics_value_type_text(key));
    put(w->work, quoted ? "\"" : "");
    write_json(w, key);
    put(w->work, quoted ? "\"" : "");
}

static void write_json_break(const json_writer *w)
{
    if (!w->style->pretty)
        return;
    put(w->work, "\n");
    for (int32_t i = 0; i < w->level; i++)
        mics_work_write(w->work, w->style->indent.text, w->style->indent.bytes);
}

static mics_value sorted(mics_work *work, mics_value dict)
{
    const mics_value keys = mics_list(work, MICS_VALUE_LIST), values = mics_list(work, keys.type);
    for (int64_t i = 0; i < dict.list->count; i++)
        mics_list_add(work, i % 2 == 0 ? keys : values, dict.list->items[i]);
    mics_value_sort(work, keys.list, values.list, false);
    const mics_value copy = mics_list(work, MICS_VALUE_DICT);
    for (int64_t i = 0; i < keys.list->count; i++) {
        mics_list_add(work, copy, keys.list->items[i]);
        mics_list_add(work, copy, values.list->items[i]);
    }
    return copy;
}

static void write_json_items(json_writer *w, mics_value value)
{
    const bool dict = value.type == MICS_VALUE_DICT;
    put(w->work, dict ? "{" : "[");
    mics_work_enter(w->work);
    w->level++;
    if (dict && w->style->sort_keys)
        value = sorted(w->work, value);
    for (int64_t i = 0; i < value.list->count; i += dict ? 2 : 1) {
        if (i > 0)
            mics_print(w->work, w->style->comma);
        write_json_break(w);
        if (dict) {
            write_json_key(w, value.list->items[i]);
            mics_print(w->work, w->style->colon);
        }
        write_json(w, value.list->items[dict ? i + 1 : i]);
    }
    w->level--;
    w->work->depth--;
    if (value.list->count > 0)
        write_json_break(w);
    put(w->work, dict ? "}" : "]");
}

static void write_json(json_writer *w, mics_value value)
{
    mics_work_spend(w->work, 1);
    if (mics_is_string(value))
        write_json_string(w, value);
    else if (mics_is_number(value))
        write_number(w->work, value, true);
    else if (value.type == MICS_VALUE_NONE)
        put(w->work, "null");
    else if (value.type == MICS_VALUE_LIST || value.type == MICS_VALUE_TUPLE ||
             value.type == MICS_VALUE_DICT)
        write_json_items(w, value);
    else
        mics_work_raise(w->work, MICS_ERR_INVALID, "a %s cannot be written as JSON",
                        mics_value_type_text(value));
}

mics_value mics_print_json(mics_work *work, mics_value value, const mics_json_style *style)
{
    const size_t mark = work->out->bytes;
    json_writer w = {.work = work, .style = style};
    write_json(&w, value);
    return mics_work_cut(work, mark);
}
