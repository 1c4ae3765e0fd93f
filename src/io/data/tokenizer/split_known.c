// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GPT-2's, Llama 3's and Qwen 2's patterns.
#include "io/data/tokenizer/split_known.h"
#include "base/utf8.h"
#include "io/data/tokenizer/chars.h"
#include <string.h>

enum { KINDS = MICS_CHAR_LETTER | MICS_CHAR_NUMBER | MICS_CHAR_SPACE, END = 0x80 };

typedef struct cursor {
    const uint8_t *classes;
    const unsigned char *text;
    size_t bytes;
    bool open; // the end was looked at
} cursor;

static inline int32_t length_of(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// The kind of the character at a place, and where it ends: letter, number, space, another (0), or
// the end of the text.
static inline uint8_t kind_at(cursor *c, size_t at, size_t *next_out)
{
    if (at >= c->bytes) {
        c->open = true;
        *next_out = at;
        return END;
    }
    const int32_t length = length_of(c->text[at]);
    *next_out = at + (size_t)length;
    if (length == 1)
        return c->classes[c->text[at]] & KINDS;
    return c->classes[mics_utf8_code((const char *)c->text + at, length)] & KINDS;
}

static inline size_t run_end(cursor *c, size_t at, uint8_t kind)
{
    size_t next = 0;
    while (kind_at(c, at, &next) == kind)
        at = next;
    return at;
}

// \s+(?!\S)|\s+
static size_t spaces(cursor *c)
{
    size_t at = 0, next = 0, last = 0;
    uint8_t kind = MICS_CHAR_SPACE;
    for (; (kind = kind_at(c, at, &next)) == MICS_CHAR_SPACE; at = next)
        last = at;
    return kind == END || last == 0 ? at : last;
}

// Whether a letter of a contraction stands at a place, and where it ends.
static bool is_letter(cursor *c, size_t at, char letter, bool fold, size_t *end_out)
{
    if (at >= c->bytes) {
        c->open = true;
        return false;
    }
    *end_out = at + 1;
    if (c->text[at] == (unsigned char)letter ||
        (fold && c->text[at] == (unsigned char)(letter - 'a' + 'A')))
        return true;
    *end_out = at + 2;
    return fold && letter == 's' && c->bytes - at >= 2 && // U+017F folds to s
           c->text[at] == 0xC5 && c->text[at + 1] == 0xBF;
}

// 's|'t|'re|'ve|'m|'ll|'d, or 0.
static size_t contraction(cursor *c, bool fold)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (c->text[0] != '\'')
        return 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t end = 1;
        const char *letter = endings[i];
        while (*letter != '\0' && is_letter(c, end, *letter, fold, &end))
            letter++;
        if (*letter == '\0')
            return end;
    }
    return 0;
}

static size_t gpt2(const uint8_t *classes, const char *text, size_t bytes, bool *open_out)
{
    cursor c = {.classes = classes, .text = (const unsigned char *)text, .bytes = bytes};
    size_t end = contraction(&c, false), next = 0;
    if (end == 0) {
        const size_t begin = text[0] == ' ' ? 1 : 0;
        const uint8_t kind = kind_at(&c, begin, &next);
        const bool space = kind == END || kind == MICS_CHAR_SPACE;
        end = space ? spaces(&c) : run_end(&c, next, kind);
    }
    *open_out = c.open;
    return end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
static size_t lines_or_spaces(cursor *c)
{
    size_t at = 0, next = 0, behind_newline = 0;
    for (; kind_at(c, at, &next) == MICS_CHAR_SPACE; at = next) {
        if (c->text[at] == '\r' || c->text[at] == '\n')
            behind_newline = next;
    }
    return behind_newline != 0 ? behind_newline : spaces(c);
}

static bool is_newline(const cursor *c, size_t at)
{
    return at < c->bytes && (c->text[at] == '\r' || c->text[at] == '\n');
}

//  ?[^\s\p{L}\p{N}]+[\r\n]*
static size_t symbols(cursor *c, size_t at)
{
    at = run_end(c, at, 0);
    while (is_newline(c, at))
        at++;
    c->open = c->open || at == c->bytes;
    return at;
}

static size_t with_digits(cursor *c, int32_t digits)
{
    size_t end = contraction(c, true), next = 0, second_end = 0;
    if (end != 0)
        return end;
    const uint8_t first = kind_at(c, 0, &next);
    if (first == MICS_CHAR_LETTER)
        return run_end(c, next, MICS_CHAR_LETTER);
    if (first == MICS_CHAR_NUMBER) {
        end = next;
        for (int32_t i = 1; i < digits && kind_at(c, end, &next) == MICS_CHAR_NUMBER; i++)
            end = next;
        return end;
    }
    const uint8_t second = kind_at(c, next, &second_end);
    if (second == MICS_CHAR_LETTER && !is_newline(c, 0))
        return run_end(c, second_end, MICS_CHAR_LETTER);
    if (first == 0)
        return symbols(c, next);
    if (second == 0 && c->text[0] == ' ')
        return symbols(c, second_end);
    return lines_or_spaces(c);
}

static size_t llama3(const uint8_t *classes, const char *text, size_t bytes, bool *open_out)
{
    cursor c = {.classes = classes, .text = (const unsigned char *)text, .bytes = bytes};
    const size_t end = with_digits(&c, 3);
    *open_out = c.open;
    return end;
}

static size_t qwen2(const uint8_t *classes, const char *text, size_t bytes, bool *open_out)
{
    cursor c = {.classes = classes, .text = (const unsigned char *)text, .bytes = bytes};
    const size_t end = with_digits(&c, 1);
    *open_out = c.open;
    return end;
}

mics_split_known *mics_split_known_find(const char *pattern)
{
    if (strcmp(pattern, MICS_SPLIT_GPT2) == 0)
        return gpt2;
    if (strcmp(pattern, MICS_SPLIT_LLAMA3) == 0)
        return llama3;
    return strcmp(pattern, MICS_SPLIT_QWEN2) == 0 ? qwen2 : NULL;
}
