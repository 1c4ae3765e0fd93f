// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tokens, and the white space around them that trim_blocks, lstrip_blocks, - and + take away.
#include "io/data/chats/template/text.h"
#include "io/data/chats/template/tree.h"
#include "io/data/tokenizer/chars.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BRACKETS = 200 };

typedef struct scanner {
    mics_work *work;
    char *text; // (bytes), with a NUL behind
    size_t bytes, at;
    mics_token *tokens;
    size_t count, capacity;
} scanner;

static void add(scanner *s, char kind, mics_value value)
{
    if (s->count == s->capacity) {
        s->capacity = s->capacity > 0 ? 2 * s->capacity : 64;
        mics_token *tokens = mics_work_alloc(s->work, s->capacity * sizeof *tokens);
        if (s->count > 0)
            memcpy(tokens, s->tokens, s->count * sizeof *tokens);
        s->tokens = tokens;
    }
    s->tokens[s->count++] = (mics_token){.kind = kind, .line = s->work->line, .value = value};
}

static void move(scanner *s, size_t to)
{
    for (; s->at < to; s->at++)
        s->work->line += s->text[s->at] == '\n';
}

static bool sees(const scanner *s, size_t at, const char *what)
{
    return at <= s->bytes && strncmp(s->text + at, what, strlen(what)) == 0;
}

// Byte behind the white space at `at`.
static size_t behind_space(const scanner *s, size_t at)
{
    const mics_value rest = MICS_STRING(s->text + at, s->bytes - at);
    return s->bytes - mics_text_strip(rest, MICS_NONE, true, false).bytes;
}

// Data up to a tag, whose sign says what becomes of the white space before it.
static void add_data(scanner *s, size_t tag, bool variable)
{
    const char sign = s->text[tag + 2];
    mics_value data = MICS_STRING(s->text + s->at, tag - s->at);
    if (sign == '-') {
        data = mics_text_strip(data, MICS_NONE, false, true);
    } else if (sign != '+' && !variable) {
        size_t line = tag;
        while (line > s->at && s->text[line - 1] != '\n')
            line--;
        const bool starts = line > s->at || line == 0 || s->text[line - 1] == '\n';
        if (starts && behind_space(s, line) >= tag)
            data.bytes = line - s->at;
    }
    if (data.bytes > 0)
        add(s, 'D', data);
    move(s, tag);
}

// Length of the end of a tag at `at` ("%}", "-%}", "+%}"), and what it takes away behind; 0: none.
static size_t end_of_tag(const scanner *s, size_t at, const char *end)
{
    const bool minus = s->text[at] == '-';
    const bool plus = s->text[at] == '+' && *end != '}';
    size_t behind = at + (minus || plus);
    if (!sees(s, behind, end))
        return 0;
    behind += 2;
    if (minus)
        behind = behind_space(s, behind);
    else if (!plus && *end != '}' && s->text[behind] == '\n')
        behind++;
    return behind - at;
}

// A backslash and what follows it in a string: writes what it stands for; returns where it ends.
static const char *unescape(scanner *s, const char *at, const char *end)
{
    static const char letters[] = "nrtabfv\\'\"", signs[] = "\n\r\t\a\b\f\v\\'\"";
    const char *letter = strchr(letters, *at);
    char utf8[4], digits[9] = "";
    const size_t wanted = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    if (*at == '\n')
        return at + 1;
    if (letter != NULL) {
        mics_work_write(s->work, &signs[letter - letters], 1);
        return at + 1;
    }
    if (wanted == 0 && (*at < '0' || *at > '7') && *at != 'N') {
        mics_work_write(s->work, "\\", 1);
        return at;
    }
    const char *from = wanted > 0 ? at + 1 : at;
    size_t length = strspn(from, wanted > 0 ? "0123456789abcdefABCDEF" : "01234567");
    length = length > (wanted > 0 ? wanted : 3) ? (wanted > 0 ? wanted : 3) : length;
    memcpy(digits, from, length);
    const unsigned long code = strtoul(digits, NULL, wanted > 0 ? 16 : 8);
    if (length == 0 || length < wanted || from + length > end || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000))
        mics_work_raise(s->work, MICS_ERR_FORMAT, "a string has \\%c with no character", *at);
    mics_work_write(s->work, utf8, mics_chars_write((uint32_t)code, utf8));
    return from + length;
}

static void scan_string(scanner *s)
{
    const size_t mark = s->work->out->bytes;
    const char quote = s->text[s->at];
    const char *at = s->text + s->at + 1, *end = at;
    while (*end != quote && end < s->text + s->bytes)
        end += *end == '\\' && end + 1 < s->text + s->bytes ? 2 : 1;
    if (end >= s->text + s->bytes)
        mics_work_raise(s->work, MICS_ERR_FORMAT, "a string has no end");
    while (at < end) {
        const char *slash = memchr(at, '\\', (size_t)(end - at));
        mics_work_write(s->work, at, (size_t)((slash != NULL ? slash : end) - at));
        at = slash != NULL ? unescape(s, slash + 1, end) : end;
    }
    add(s, 'S', mics_work_cut(s->work, mark));
    move(s, (size_t)(end + 1 - s->text));
}

static void scan_number(scanner *s)
{
    char digits[64] = "";
    size_t count = 0, at = s->at;
    bool real = false;
    const bool index = s->count > 0 && s->tokens[s->count - 1].kind == '.';
    for (;; at++) {
        const char c = s->text[at], next = s->text[at + (c != '\0')];
        const bool dot = c == '.' && !real && !index && next >= '0' && next <= '9';
        const bool exponent = (c == 'e' || c == 'E') && strpbrk(digits, "e") == NULL &&
                              strchr("0123456789+-", next) != NULL && next != '\0' && !index;
        if (!(c >= '0' && c <= '9') && !(c == '_' && next >= '0' && next <= '9') && !dot &&
            !exponent)
            break;
        real = real || dot || exponent;
        if (c != '_' && count + 2 < sizeof digits)
            digits[count++] = c == 'E' ? 'e' : c;
        if (exponent && (next == '+' || next == '-') && count + 2 < sizeof digits)
            digits[count++] = s->text[++at];
        digits[count] = '\0';
    }
    errno = 0;
    const mics_value value =
        real ? MICS_REAL(strtod(digits, NULL)) : MICS_INT(strtoll(digits, NULL, 10));
    if (errno != 0 || count + 2 >= sizeof digits || (digits[0] == '0' && count > 1 && !real))
        mics_work_raise(s->work, MICS_ERR_FORMAT, "the number %s is not known here", digits);
    add(s, real ? 'R' : 'I', value);
    move(s, at);
}

static void scan_operator(scanner *s, char *brackets, int *depth)
{
    static const char pairs[][3] = {"==", "!=", "<=", ">=", "//", "**"}, kinds[] = "enlgfp";
    const char c = s->text[s->at];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (sees(s, s->at, pairs[i])) {
            add(s, kinds[i], MICS_NONE);
            s->at += 2;
            return;
        }
    }
    if (c == '\0' || strchr("+-/*%~[](){}><=.:|,;", c) == NULL)
        mics_work_raise(s->work, MICS_ERR_FORMAT, "an unexpected character: %.*s", c < 0 ? 4 : 1,
                        s->text + s->at);
    if (strchr("([{", c) != NULL) {
        if (*depth == MAX_BRACKETS)
            mics_work_raise(s->work, MICS_ERR_INVALID, "has more than %d brackets in each other",
                            MAX_BRACKETS);
        brackets[(*depth)++] = c == '(' ? ')' : (char)(c + 2);
    } else if (strchr(")]}", c) != NULL && (*depth == 0 || brackets[--*depth] != c)) {
        mics_work_raise(s->work, MICS_ERR_FORMAT, "an unexpected '%c'", c);
    }
    add(s, c, MICS_NONE);
    s->at++;
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c < 0;
}

// What stands between the ends of a tag.
static void scan_tag(scanner *s, const char *end)
{
    char brackets[MAX_BRACKETS];
    int depth = 0;
    add(s, *end == '}' ? 'V' : 'B', MICS_NONE);
    for (;;) {
        const size_t closed = depth == 0 ? end_of_tag(s, s->at, end) : 0;
        if (closed > 0) {
            add(s, *end == '}' ? 'v' : 'b', MICS_NONE);
            move(s, s->at + closed);
            return;
        }
        if (s->at >= s->bytes)
            mics_work_raise(s->work, MICS_ERR_FORMAT,
                            "the template ends inside a tag; %s is missing", end);
        const char c = s->text[s->at];
        size_t word = s->at;
        if (behind_space(s, s->at) > s->at) {
            move(s, behind_space(s, s->at));
        } else if (c >= '0' && c <= '9') {
            scan_number(s);
        } else if (is_word(c)) {
            while (word < s->bytes && is_word(s->text[word]))
                word++;
            add(s, 'N', MICS_STRING(s->text + s->at, word - s->at));
            s->at = word;
        } else if (c == '"' || c == '\'') {
            scan_string(s);
        } else {
            scan_operator(s, brackets, &depth);
        }
    }
}

// At "{% raw %}" or "{% endraw %}": byte behind the word and white space; 0: it is another tag.
static size_t behind_word(const scanner *s, size_t tag, const char *word)
{
    size_t at = tag + 2 + (s->text[tag + 2] == '-' || s->text[tag + 2] == '+');
    at = behind_space(s, at < s->bytes ? at : s->bytes);
    return sees(s, at, word) ? behind_space(s, at + strlen(word)) : 0;
}

// Data between {% raw %} and {% endraw %}, if that is the tag.
static bool scan_raw(scanner *s, size_t tag)
{
    size_t at = behind_word(s, tag, "raw");
    const bool minus = at > 0 && s->text[at] == '-';
    if (at == 0 || !sees(s, at + minus, "%}"))
        return false;
    at += 2 + minus;
    move(s, minus ? behind_space(s, at) : at);
    for (size_t end = s->at; end < s->bytes; end++) {
        const size_t word = sees(s, end, "{%") ? behind_word(s, end, "endraw") : 0;
        const size_t closed = word > 0 ? end_of_tag(s, word, "%}") : 0;
        if (closed == 0)
            continue;
        add_data(s, end, false);
        move(s, word + closed);
        return true;
    }
    mics_work_raise(s->work, MICS_ERR_FORMAT, "{%% raw %%} has no {%% endraw %%}");
}

static void scan_comment(scanner *s)
{
    size_t at = mics_text_find(MICS_STRING(s->text, s->bytes), MICS_LITERAL("#}"), s->at);
    if (at == SIZE_MAX)
        mics_work_raise(s->work, MICS_ERR_FORMAT, "a comment has no #}");
    at -= at > s->at && (s->text[at - 1] == '-' || s->text[at - 1] == '+');
    move(s, at + end_of_tag(s, at, "#}"));
}

// Line ends become \n, and one at the end of the template is dropped.
static void unify_lines(scanner *s)
{
    size_t to = 0;
    for (size_t from = 0; from < s->bytes; from++) {
        if (s->text[from] == '\0')
            mics_work_raise(s->work, MICS_ERR_FORMAT, "the template has a NUL");
        if (s->text[from] == '\n' && from > 0 && s->text[from - 1] == '\r')
            s->text[to - 1] = '\n';
        else
            s->text[to++] = s->text[from];
    }
    for (size_t i = 0; i < to; i++)
        s->text[i] = s->text[i] == '\r' ? '\n' : s->text[i];
    s->bytes = to - (to > 0 && s->text[to - 1] == '\n');
    s->text[s->bytes] = '\0';
}

const mics_token *mics_template_scan(mics_work *work, char *text, size_t bytes)
{
    scanner s = {.work = work, .text = text, .bytes = bytes};
    work->line = 1;
    unify_lines(&s);
    while (s.at < s.bytes) {
        size_t tag = s.at;
        while (tag < s.bytes && !(s.text[tag] == '{' && strchr("{%#", s.text[tag + 1]) != NULL &&
                                  s.text[tag + 1] != '\0'))
            tag++;
        if (tag == s.bytes) {
            add(&s, 'D', MICS_STRING(s.text + s.at, s.bytes - s.at));
            break;
        }
        const char kind = s.text[tag + 1], sign = s.text[tag + 2];
        add_data(&s, tag, kind == '{');
        if (kind == '%' && scan_raw(&s, tag))
            continue;
        s.at += sign == '-' || sign == '+' ? 3 : 2;
        if (kind == '#')
            scan_comment(&s);
        else
            scan_tag(&s, kind == '{' ? "}}" : "%}");
    }
    add(&s, '\0', MICS_NONE);
    return s.tokens;
}
