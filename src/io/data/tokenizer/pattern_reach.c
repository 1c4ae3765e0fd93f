// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How far a pattern may look ahead.
//
// Note "Reach". Oniguruma does not say that an attempt came to the end of the text, and so might
// have gone on in a longer one. But a bound on where it has been follows from the pattern. A way
// through it takes items one behind the other: single characters, and repeated ones (\p{L}+).
// Where no group is repeated without end, no way has more items than the pattern, `rounds`. From a
// place p every item ends at or before R(p) = max(p + 1 character, the longest run of any repeated
// item from p). R only grows with p: a run from before p that goes beyond p is a run from p as
// well. So R applied `rounds` times bounds what is looked at. Where the reader below is not sure,
// the pattern counts as `far`.
#include "base/utf8.h"
#include "io/data/tokenizer/pattern.h"
#include "mics/log.h"
#include <limits.h>
#include <oniguruma.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ROUNDS = 4096, MAX_RUNS = 64, FOLDED = 3 }; // characters that a fold stands for at most

// A pattern while it is read, from its text's `at`.
typedef struct reader {
    mics_memory *memory;
    const char *text;
    size_t at;
    bool fold, all; // (?i) and (?m) are somewhere
    mics_pattern_reach *reach;
    struct { // what is repeated, as places of the text
        size_t begin, end;
    } repeated[MAX_RUNS];
    int32_t count;
} reader;

static bool is_any(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

// Behind `\x{...}`, `\p{...}`, or the `digits` hexadecimal digits that may stand in its place.
static void skip_braces(reader *r, int digits)
{
    if (r->text[r->at] == '{') {
        while (r->text[r->at] != '\0' && r->text[r->at] != '}')
            r->at++;
        r->at += r->text[r->at] == '}';
        return;
    }
    for (int i = 0; i < digits && is_any(r->text[r->at], "0123456789abcdefABCDEF"); i++)
        r->at++;
}

// Behind an escape, from its backslash. Returns whether it looks at a character: \Z does, at a line
// feed that the end may follow.
static bool skip_escape(reader *r)
{
    const char c = r->text[r->at + 1];
    r->at += c == '\0' ? 1 : 2;
    if (is_any(c, "bBAGKyY"))
        r->reach->behind = true;
    else if (is_any(c, "kgRXQcCM123456789"))
        r->reach->far = true;
    else if (is_any(c, "pPo"))
        skip_braces(r, 0);
    else if (c == 'x')
        skip_braces(r, 2);
    else if (c == 'u')
        skip_braces(r, 4);
    else if (c == '0')
        skip_braces(r, 2);
    else if ((unsigned char)c >= 0xC0)
        r->at += (size_t)mics_utf8_char(r->text + r->at - 1, strlen(r->text + r->at - 1)) - 1;
    return !is_any(c, "zbBAGKyY");
}

// Behind a character class, from its bracket.
static void skip_class(reader *r)
{
    int32_t depth = 0;
    do {
        const char c = r->text[r->at];
        if (c == '\\') {
            (void)skip_escape(r);
            continue;
        }
        if (c == '[' && r->text[r->at + 1] == ':') { // [:alpha:]
            const char *end = strstr(r->text + r->at, ":]");
            r->at = end != NULL ? (size_t)(end - r->text) + 2 : r->at + 2;
            continue;
        }
        r->at++;
        if (c == '[') {
            depth++;
            r->at += r->text[r->at] == '^';
            if (r->text[r->at] == ']') // a letter or the end: Oniguruma decides
                r->reach->far = true;
        } else if (c == ']') {
            depth--;
        }
    } while (depth > 0 && r->text[r->at] != '\0');
}

// Behind the head of a group, from its parenthesis.
static void skip_group_head(reader *r)
{
    mics_pattern_reach *reach = r->reach;
    r->at++;
    if (r->text[r->at] == '*')
        reach->far = true; // a callout
    if (r->text[r->at] != '?')
        return;
    const char c = r->text[++r->at];
    if (is_any(c, ":=!>")) {
        r->at++;
    } else if (c == '<' && is_any(r->text[r->at + 1], "=!")) {
        reach->behind = true;
        r->at += 2;
    } else if (c == '<' || c == '\'') {
        while (!is_any(r->text[++r->at], c == '<' ? ">" : "'") && r->text[r->at] != '\0')
            ;
        r->at += r->text[r->at] != '\0';
    } else if (is_any(c, "im-")) {
        for (; is_any(r->text[r->at], "im-"); r->at++) {
            r->fold = r->fold || r->text[r->at] == 'i';
            r->all = r->all || r->text[r->at] == 'm';
        }
        if (is_any(r->text[r->at], ":)")) // (?i) ends like a group
            r->at += r->text[r->at] == ':';
        else
            reach->far = true;
    } else {
        reach->far = true; // comments, conditions, absence, calls, extended text
    }
}

// A number of an interval, or -1.
static int64_t read_number(reader *r)
{
    int64_t number = -1;
    for (; is_any(r->text[r->at], "0123456789"); r->at++) {
        number = (number < 0 ? 0 : 10 * number) + (r->text[r->at] - '0');
        if (number > MAX_ROUNDS)
            number = MAX_ROUNDS;
    }
    return number;
}

// Behind an interval, from its brace. Returns its upper bound, INT_MAX when there is none, or -1,
// at the brace, when it is none.
static int32_t read_interval(reader *r)
{
    const size_t begin = r->at++;
    const int64_t low = read_number(r);
    int64_t high = low;
    if (r->text[r->at] == ',') {
        r->at++;
        high = read_number(r);
        if (high < 0 && low >= 0)
            high = INT_MAX;
    }
    if (r->text[r->at] != '}' || (low < 0 && high < 0)) {
        r->at = begin;
        return -1;
    }
    r->at++;
    return (int32_t)(high > low ? high : low); // {5,2} is read as {2,5}
}

// Behind all quantifiers. Returns how often they repeat at most: INT_MAX without end, 1 without
// any.
static int32_t read_quantifiers(reader *r)
{
    int32_t most = 1;
    for (bool first = true;; first = false) {
        int32_t times = 1;
        if (r->text[r->at] == '{') {
            times = read_interval(r);
            if (times < 0)
                return most;
        } else if (is_any(r->text[r->at], "*+?")) {
            // A second one makes the first lazy or possessive, but behind an interval it repeats.
            times = r->text[r->at++] != '?' ? INT_MAX : 1;
        } else {
            return most;
        }
        most = first || times == 1 ? (times > most ? times : most) : INT_MAX;
    }
}

static void add_item(reader *r, size_t begin, size_t end)
{
    const int32_t times = read_quantifiers(r);
    mics_pattern_reach *reach = r->reach;
    if (times == INT_MAX && r->count == MAX_RUNS) {
        reach->far = true;
    } else if (times == INT_MAX) {
        r->repeated[r->count].begin = begin;
        r->repeated[r->count++].end = end;
        reach->rounds++;
    } else {
        reach->rounds += r->fold ? times * FOLDED : times;
    }
    reach->far = reach->far || reach->rounds > MAX_ROUNDS;
}

static void read_pattern(reader *r)
{
    while (r->text[r->at] != '\0' && !r->reach->far) {
        const size_t begin = r->at;
        const char c = r->text[begin];
        bool takes = true;
        if (c == '\\') {
            takes = skip_escape(r);
        } else if (c == '[') {
            skip_class(r);
        } else if (c == '(') {
            skip_group_head(r);
            continue;
        } else if (c == ')') {
            r->at++;
            r->reach->far = r->reach->far || read_quantifiers(r) != 1;
            continue;
        } else if (is_any(c, "|$^")) {
            r->reach->behind = r->reach->behind || c == '^';
            r->at++;
            takes = false;
        } else {
            const int32_t length = mics_utf8_char(r->text + begin, strlen(r->text + begin));
            r->at += length > 0 ? (size_t)length : 1;
        }
        if (takes)
            add_item(r, begin, r->at);
    }
    // A group may have been left unread, and what looks behind in it.
    for (; r->reach->far && r->text[r->at] != '\0'; r->at++) {
        const char *here = r->text + r->at;
        r->reach->behind = r->reach->behind || strncmp(here, "(?<=", 4) == 0 ||
                           strncmp(here, "(?<!", 4) == 0 || *here == '^' ||
                           (*here == '\\' && is_any(here[1], "bBAGKyY"));
        r->at += *here == '\\' && here[1] != '\0';
    }
}

// Compiles what takes as many of an item's characters as there are.
static mics_status add_run(reader *r, int32_t index, bool fold)
{
    const size_t bytes = r->repeated[index].end - r->repeated[index].begin;
    char *text = NULL;
    const char *head = fold ? (r->all ? "im" : "i") : (r->all ? "m" : "");
    const size_t capacity = bytes + sizeof "(?>(?im:)*)";
    MICS_TRY(MICS_NEW(r->memory, capacity, &text));
    const int used = snprintf(text, capacity, "(?>(?%s:%.*s)*)", head, (int)bytes,
                              r->text + r->repeated[index].begin);
    regex_t *run = NULL;
    const OnigUChar *begin = (const OnigUChar *)text;
    const int error = onig_new(&run, begin, begin + used, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                               ONIG_SYNTAX_ONIGURUMA, NULL);
    mics_free(r->memory, text);
    if (error == ONIGERR_MEMORY)
        return mics_fail(MICS_ERR_MEMORY, "no memory to compile a pattern");
    if (error != ONIG_NORMAL)
        r->reach->far = true; // cut out of its place it means something else
    else
        r->reach->runs[r->reach->count++] = run;
    return MICS_OK;
}

mics_status mics_pattern_reach_init(mics_memory *memory, const char *text,
                                    mics_pattern_reach *reach_out)
{
    mics_status status = MICS_OK;
    *reach_out = (mics_pattern_reach){0};
    reader *r = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &r));
    *r = (reader){.memory = memory, .text = text, .reach = reach_out};
    read_pattern(r);
    MICS_TRY_OUT(MICS_NEW(memory, 2 * r->count, &reach_out->runs));
    for (int32_t i = 0; i < r->count && !reach_out->far && status == MICS_OK; i++) {
        status = add_run(r, i, false);
        if (status == MICS_OK && r->fold)
            status = add_run(r, i, true);
    }
out:
    mics_free(memory, r);
    return status; // mics_pattern_close frees what there is
}

void mics_pattern_reach_fini(mics_memory *memory, mics_pattern_reach *reach)
{
    for (int32_t i = 0; i < reach->count; i++)
        onig_free(reach->runs[i]);
    mics_free(memory, reach->runs);
    *reach = (mics_pattern_reach){0};
}

size_t mics_pattern_reach_end(const mics_pattern_reach *reach, const char *text, size_t bytes,
                              size_t at)
{
    const OnigUChar *begin = (const OnigUChar *)text, *end = begin + bytes;
    for (int32_t round = 0; round < reach->rounds && at < bytes; round++) {
        const int32_t length = mics_utf8_char(text + at, bytes - at);
        size_t furthest = at + (length > 0 ? (size_t)length : 1);
        for (int32_t i = 0; i < reach->count && furthest < bytes; i++) {
            const int run = onig_match(reach->runs[i], begin, end, begin + at, NULL, 0);
            const size_t there = run >= 0 ? at + (size_t)run : run == ONIG_MISMATCH ? at : bytes;
            furthest = there > furthest ? there : furthest;
        }
        at = furthest;
    }
    return at;
}
