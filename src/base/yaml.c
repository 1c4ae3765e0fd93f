// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// YAML read by libyaml, event by event, and written as JSON. libyaml's own blocks come from malloc.
#include "base/yaml.h"
#include "base/text.h"
#include "mics/log.h"
#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <yaml.h>

enum { MAX_DEPTH = 64, MAX_NUMBER_BYTES = 40, MAX_INT_DIGITS = 18 };

// A mapping or sequence that is being written.
typedef struct level {
    bool mapping;
    bool filled; // something stands in it
    bool valued; // a key was written, and its value comes next
} level;

typedef struct writer {
    const char *name;
    mics_text json;
    size_t line;       // where `json` ends, from 0
    size_t line_start; // bytes of `json` before that line
    int32_t depth;
    level levels[MAX_DEPTH + 1]; // 0: the document
} writer;

bool mics_yaml_is_named(const char *name)
{
    return mics_text_ends(name, ".yaml") || mics_text_ends(name, ".yml");
}

static mics_status fail_at(const writer *w, yaml_mark_t mark, const char *what)
{
    return mics_fail(MICS_ERR_FORMAT, "%s:%zu:%zu: %s", w->name, mark.line + 1, mark.column + 1,
                     what);
}

// ---- plain words ----

static size_t skip_digits(const char *text, size_t at)
{
    while (isdigit((unsigned char)text[at]))
        at++;
    return at;
}

// A decimal number in its parts: "-007.50e-3" has whole 7, part 50, power e-3.
typedef struct number {
    bool negative, octal, real;
    size_t whole, whole_end, part, part_end, power; // places in the word
} number;

// What is written in another base, in sixties or with underscores is a text, as the versions of YAML
// read it differently.
static bool read_number(const char *word, number *out)
{
    number n = {.negative = *word == '-'};
    const size_t first = *word == '-' || *word == '+' ? 1 : 0;
    n.whole_end = skip_digits(word, first);
    n.whole = first;
    while (n.whole + 1 < n.whole_end && word[n.whole] == '0')
        n.whole++;
    n.octal = n.whole > first;
    n.part = n.whole_end + (word[n.whole_end] == '.' ? 1 : 0);
    n.part_end = n.part > n.whole_end ? skip_digits(word, n.part) : n.part;
    n.power = n.part_end;
    size_t end = n.power;
    if (word[end] == 'e' || word[end] == 'E') {
        const size_t digits = end + (word[end + 1] == '-' || word[end + 1] == '+' ? 2 : 1);
        end = skip_digits(word, digits);
        if (end == digits)
            return false;
    }
    n.real = end > n.whole_end;
    *out = n;
    return word[end] == '\0' && (n.whole_end > first || n.part_end > n.part) &&
           (n.real || (!n.octal && n.whole_end - n.whole <= MAX_INT_DIGITS));
}

// As JSON has it: digits on both sides of the dot, no plus sign, no zeros in front.
static void write_number(mics_text *json, const char *word, const number *n)
{
    const int whole = (int)(n->whole_end - n->whole), part = (int)(n->part_end - n->part);
    mics_text_printf(json, "%s%.*s%s", n->negative ? "-" : "", whole, word + n->whole,
                     whole == 0 ? "0" : "");
    if (n->real)
        mics_text_printf(json, ".%.*s%s%s", part, word + n->part, part == 0 ? "0" : "",
                         word + n->power);
}

static void write_plain(mics_text *json, const char *word)
{
    static const char nulls[] = "|~|null|Null|NULL";
    static const char truths[] = "true|True|TRUE|yes|Yes|YES|on|On|ON";
    static const char lies[] = "false|False|FALSE|no|No|NO|off|Off|OFF";
    number n;
    if (mics_text_is_among(word, nulls))
        mics_text_printf(json, "null");
    else if (mics_text_is_among(word, truths))
        mics_text_printf(json, "true");
    else if (mics_text_is_among(word, lies))
        mics_text_printf(json, "false");
    else if (strlen(word) <= MAX_NUMBER_BYTES && read_number(word, &n))
        write_number(json, word, &n);
    else
        mics_text_quoted(json, word);
}

// ---- the document ----

static bool wants_key(const writer *w)
{
    const level *here = &w->levels[w->depth];
    return here->mapping && !here->valued;
}

// What stands between the value or key before and the next one, and the lines up to it, for keys
// also the columns, so that JSON's errors name the place in the file. Where JSON is longer, the rest
// of the line stands behind its place.
static void write_gap(writer *w, yaml_mark_t mark)
{
    level *here = &w->levels[w->depth];
    if (here->valued)
        mics_text_printf(&w->json, ": ");
    else if (here->filled)
        mics_text_printf(&w->json, ",");
    for (; w->line < mark.line; w->line++) {
        mics_text_printf(&w->json, "\n");
        w->line_start = w->json.used;
    }
    if (wants_key(w) && w->json.used < w->line_start + mark.column)
        mics_text_printf(&w->json, "%*s", (int)(w->line_start + mark.column - w->json.used), "");
    here->valued = here->mapping && !here->valued;
    here->filled = true;
}

static mics_status write_scalar(writer *w, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    const bool key = wants_key(w);
    if (event->data.scalar.tag != NULL)
        return fail_at(w, event->start_mark, "a tag (!) is not read; write the value alone");
    if (strlen(text) != event->data.scalar.length)
        return fail_at(w, event->start_mark, "a NUL in a text");
    write_gap(w, event->start_mark);
    if (key || event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        mics_text_quoted(&w->json, text);
    else
        write_plain(&w->json, text);
    return mics_text_status(&w->json);
}

static mics_status begin_level(writer *w, const yaml_event_t *event, bool mapping)
{
    const yaml_char_t *tag =
        mapping ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    if (tag != NULL)
        return fail_at(w, event->start_mark, "a tag (!) is not read; write the value alone");
    if (wants_key(w))
        return fail_at(w, event->start_mark, "a key must be one word or text");
    if (w->depth == MAX_DEPTH)
        return fail_at(w, event->start_mark, "nested deeper than 64 levels");
    write_gap(w, event->start_mark);
    mics_text_printf(&w->json, mapping ? "{" : "[");
    w->levels[++w->depth] = (level){.mapping = mapping};
    return mics_text_status(&w->json);
}

static mics_status end_level(writer *w)
{
    mics_text_printf(&w->json, w->levels[w->depth--].mapping ? "}" : "]");
    return mics_text_status(&w->json);
}

static mics_status write_event(writer *w, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return write_scalar(w, event);
    case YAML_MAPPING_START_EVENT:
        return begin_level(w, event, true);
    case YAML_SEQUENCE_START_EVENT:
        return begin_level(w, event, false);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        return end_level(w);
    case YAML_ALIAS_EVENT:
        return fail_at(w, event->start_mark, "an alias (*) is not read; write the value itself");
    case YAML_DOCUMENT_START_EVENT:
        return w->json.used == 0 ? MICS_OK
                                 : fail_at(w, event->start_mark, "a second document begins");
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        break;
    }
    return MICS_OK;
}

static mics_status fail_parse(const writer *w, const yaml_parser_t *parser)
{
    const char *what = parser->problem != NULL ? parser->problem : "it cannot be read";
    const char *where = parser->context != NULL ? parser->context : "";
    if (parser->error == YAML_MEMORY_ERROR)
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory to read it", w->name);
    if (parser->error == YAML_READER_ERROR)
        return mics_fail(MICS_ERR_FORMAT, "%s: offset %zu: %s", w->name, parser->problem_offset,
                         what);
    return mics_fail(MICS_ERR_FORMAT, "%s:%zu:%zu: %s%s%s", w->name, parser->problem_mark.line + 1,
                     parser->problem_mark.column + 1, what, *where != '\0' ? " " : "", where);
}

static mics_status write_all(writer *w, yaml_parser_t *parser)
{
    mics_status status = MICS_OK;
    for (bool ended = false; status == MICS_OK && !ended;) {
        yaml_event_t event;
        if (yaml_parser_parse(parser, &event) == 0)
            return fail_parse(w, parser);
        ended = event.type == YAML_STREAM_END_EVENT;
        status = write_event(w, &event);
        yaml_event_delete(&event);
    }
    return status;
}

mics_status mics_yaml_to_json(mics_memory *memory, const char *name, const char *text, size_t bytes,
                              char **json_out, size_t *bytes_out)
{
    writer w = {.name = name, .json = {.memory = memory}};
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0)
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory to read it", name);
    yaml_parser_set_input_string(&parser, (const yaml_char_t *)text, bytes);
    mics_status status = write_all(&w, &parser);
    yaml_parser_delete(&parser);
    if (status == MICS_OK && w.json.used == 0)
        status = mics_fail(MICS_ERR_FORMAT, "%s: holds no document", name);
    if (status == MICS_OK) {
        *json_out = w.json.bytes;
        *bytes_out = w.json.used;
        w.json = (mics_text){0};
    }
    mics_text_fini(&w.json);
    return status;
}
