// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A scanner over JSON text. It trusts the parser for the grammar and only keeps its place, yet it
// never steps over the NUL that ends the text.
#include "base/json_text.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    const char *at;
    int32_t line;
} cursor;

static void step(cursor *c)
{
    if (*c->at == '\n')
        c->line++;
    if (*c->at != '\0')
        c->at++;
}

static void skip_space(cursor *c)
{
    while (*c->at == ' ' || *c->at == '\t' || *c->at == '\r' || *c->at == '\n')
        step(c);
}

// From an opening quote to behind the closing one.
static void skip_string(cursor *c)
{
    step(c);
    while (*c->at != '\0' && *c->at != '"') {
        if (*c->at == '\\')
            step(c);
        step(c);
    }
    step(c);
}

// From a value's first character to behind its last.
static void skip_value(cursor *c)
{
    int64_t depth = 0;
    do {
        if (*c->at == '"') {
            skip_string(c);
            continue;
        }
        if (*c->at == '{' || *c->at == '[')
            depth++;
        if (*c->at == '}' || *c->at == ']') {
            if (depth == 0)
                return; // the bracket that holds a number or a literal
            depth--;
        }
        if (depth == 0 && *c->at == ',')
            return;
        step(c);
    } while (*c->at != '\0' && (depth > 0 || (*c->at != ',' && *c->at != '}' && *c->at != ']')));
}

// Moves from an object's brace to the value of `key`. Returns the key's line, 0 when absent.
static int32_t find_key(cursor *c, const char *key, size_t key_bytes)
{
    step(c);
    for (;;) {
        skip_space(c);
        if (*c->at != '"')
            return 0;
        const char *name = c->at + 1;
        int32_t line = c->line;
        skip_string(c);
        size_t name_bytes = (size_t)(c->at - name) - 1;
        skip_space(c);
        step(c); // the colon
        skip_space(c);
        if (name_bytes == key_bytes && memcmp(name, key, key_bytes) == 0)
            return line;
        skip_value(c);
        skip_space(c);
        if (*c->at != ',')
            return 0;
        step(c);
    }
}

int32_t mics_json_text_line(const char *text, const char *path, size_t path_bytes)
{
    cursor c = {.at = text, .line = 1};
    const char *end = path + path_bytes;
    for (;;) {
        skip_space(&c);
        if (*c.at != '{')
            return 0;
        const char *dot = memchr(path, '.', (size_t)(end - path));
        const char *key_end = dot != NULL ? dot : end;
        int32_t line = find_key(&c, path, (size_t)(key_end - path));
        if (line == 0 || dot == NULL)
            return line;
        path = dot + 1;
    }
}

bool mics_json_text_too_deep(const char *text, size_t bytes, int32_t limit,
                             mics_json_place *place_out)
{
    int32_t depth = 0;
    bool in_string = false;
    mics_json_place place = {.line = 1, .column = 0};
    for (size_t i = 0; i < bytes; i++) {
        place.column++;
        if (text[i] == '\n') {
            place.line++;
            place.column = 0;
        } else if (in_string && text[i] == '\\') {
            i++;
            place.column++;
        } else if (text[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && (text[i] == '{' || text[i] == '[')) {
            if (++depth > limit) {
                *place_out = place;
                return true;
            }
        } else if (!in_string && (text[i] == '}' || text[i] == ']')) {
            depth--;
        }
    }
    return false;
}

// Bytes of jansson's blocks, as glibc rounds them up (jansson 2.14, glibc 2.36, 64 bits, 2026-11).
enum {
    OBJECT_BYTES = 80 + 144, // with its first 8 buckets
    MEMBER_BYTES = 48,       // its share of the buckets, while their table doubles
    ARRAY_BYTES = 48 + 80,   // with its first 8 elements
    ELEMENT_BYTES = 24,      // its share of the table, while that doubles
    STRING_BYTES = 80,       // beyond its length: a value's two blocks; a key's one is no larger
    NUMBER_BYTES = 32
};

static bool is_digit(char c)
{
    return (c >= '0' && c <= '9') || c == '-';
}

uint64_t mics_json_text_tree_bytes(const char *text, size_t bytes)
{
    uint64_t tree = 0;
    bool in_string = false, in_number = false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (in_string) {
            tree += 1;
            i += c == '\\' ? 1 : 0;
            in_string = c != '"';
            continue;
        }
        if (c == '"')
            tree += STRING_BYTES;
        else if (c == '{')
            tree += OBJECT_BYTES;
        else if (c == '[')
            tree += ARRAY_BYTES;
        else if (c == ':')
            tree += MEMBER_BYTES;
        else if (c == ',')
            tree += ELEMENT_BYTES;
        else if (is_digit(c) && !in_number)
            tree += NUMBER_BYTES;
        in_number = is_digit(c) || (in_number && strchr(".eE+", c) != NULL);
        in_string = c == '"';
    }
    return tree;
}

// Widens the integer at `digits` if it is one that int64 does not hold; returns what is behind it.
static char *widen(char *digits)
{
    char *end = digits;
    errno = 0;
    (void)strtoll(digits, &end, 10);
    if (errno == ERANGE && strchr(".eE", *end) == NULL) {
        end[-2] = 'e'; // no double has as many digits as stay
        end[-1] = '2';
    }
    return end > digits ? end : digits + 1; // a sign alone
}

void mics_json_text_widen(char *text, size_t bytes)
{
    bool in_string = false;
    for (char *at = text; at < text + bytes;) {
        if (!in_string && is_digit(*at)) {
            at = widen(at);
            at += strspn(at, "0123456789.eE+-"); // the rest of a real
            continue;
        }
        if (in_string && *at == '\\')
            at++;
        else if (*at == '"')
            in_string = !in_string;
        at++;
    }
}

// Length of the number at `at`; 0: there is none.
static size_t number(const char *at)
{
    return is_digit(*at) || (*at == '-' && is_digit(at[1])) ? strspn(at, "0123456789.eE+-") : 0;
}

// Length of the word at `at` that Python's json writes for a number that is not finite, or of a
// number beyond a double's range, which it reads as infinity; 0: none.
static size_t nonfinite(const char *at)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t length = strlen(words[i]);
        const char *behind = at + length;
        if (strncmp(at, words[i], length) == 0)
            return behind[strspn(behind, " \t\r\n")] == ':' ? 0 : length; // a key is no number
    }
    return number(at) > 0 && isinf(strtod(at, NULL)) ? number(at) : 0;
}

size_t mics_json_text_quote_nonfinite(const char *text, size_t bytes, char *out)
{
    bool in_string = false;
    char *to = out;
    for (const char *at = text; at < text + bytes;) {
        const size_t word = in_string ? 0 : nonfinite(at);
        if (word > 0) {
            *to++ = '"';
            memcpy(to, at, word);
            to += word;
            *to++ = '"';
            at += word;
            continue;
        }
        if (in_string && *at == '\\' && at + 1 < text + bytes)
            *to++ = *at++;
        else if (*at == '"')
            in_string = !in_string;
        size_t whole = in_string ? 1 : number(at); // not from within a number
        for (whole = whole > 0 ? whole : 1; whole > 0; whole--)
            *to++ = *at++;
    }
    return (size_t)(to - out);
}
