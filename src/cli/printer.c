// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "printer.h"
#include "base/size.h"
#include "base/text.h"
#include "base/utf8.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

// ---- cells ----

cli_cell cli_int(const char *key, int64_t value)
{
    return (cli_cell){.kind = CLI_WHOLE, .key = key, .whole = value};
}

cli_cell cli_number(const char *key, double value)
{
    return (cli_cell){.kind = isfinite(value) ? CLI_NUMBER : CLI_NULL, .key = key, .number = value};
}

cli_cell cli_rounded(const char *key, double value)
{
    return cli_int(key, llrint(value));
}

cli_cell cli_bytes(const char *key, const char *text, size_t bytes)
{
    return (cli_cell){.kind = CLI_WORDS, .key = key, .words = text, .whole = (int64_t)bytes};
}

cli_cell cli_words(const char *key, const char *value)
{
    return value != NULL ? cli_bytes(key, value, strlen(value)) : cli_null(key);
}

cli_cell cli_name(const char *key, const char *value)
{
    return cli_words(key, value == NULL || value[0] == '\0' ? NULL : value);
}

cli_cell cli_written(const char *key, const char *json)
{
    return (cli_cell){.kind = CLI_JSON, .key = key, .words = json};
}

cli_cell cli_flag(const char *key, bool value)
{
    return (cli_cell){.kind = CLI_TRUTH, .key = key, .whole = value};
}

cli_cell cli_null(const char *key)
{
    return (cli_cell){.kind = CLI_NULL, .key = key};
}

cli_cell cli_column(cli_cell cell, int width, const char *heading, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    mics_text_vformat(cell.shown, sizeof cell.shown, format, args);
    va_end(args);
    cell.width = width;
    cell.heading = heading;
    return cell;
}

// ---- JSON, and the text's tables ----

// What stands before a part of what is open.
static void begin_part(cli_report *r, const char *key)
{
    if (r->depth > 0) {
        const bool lines = r->open[r->depth - 1].lines;
        if (r->open[r->depth - 1].any)
            printf(lines ? "," : ", ");
        if (lines)
            printf("\n%*s", 2 * (int)r->depth, "");
        r->open[r->depth - 1].any = true;
    }
    if (key != NULL)
        printf("\"%s\": ", key);
}

static void print_words(const char *text, size_t bytes)
{
    putchar('"');
    for (size_t at = 0; at < bytes;) {
        const int32_t length = mics_utf8_char(text + at, bytes - at);
        if (text[at] == '"' || text[at] == '\\')
            printf("\\%c", text[at]);
        else if ((unsigned char)text[at] < 0x20)
            printf("\\u%04x", (unsigned char)text[at]);
        else if (length > 0)
            fwrite(text + at, 1, (size_t)length, stdout);
        else
            fputs("\\ufffd", stdout);
        at += length > 0 ? (size_t)length : 1;
    }
    putchar('"');
}

static void print_value(const cli_report *r, const cli_cell *cell)
{
    char text[32];
    if (cell->kind == CLI_WHOLE)
        printf("%lld", (long long)cell->whole);
    else if (cell->kind == CLI_NUMBER && r->digits > 0)
        printf("%.*g", r->digits, cell->number);
    else if (cell->kind == CLI_NUMBER)
        printf("%s", mics_text_real(cell->number, text, sizeof text));
    else if (cell->kind == CLI_WORDS)
        print_words(cell->words, (size_t)cell->whole);
    else if (cell->kind == CLI_JSON)
        printf("%s", cell->words);
    else if (cell->kind == CLI_TRUTH)
        printf(cell->whole != 0 ? "true" : "false");
    else
        printf("null");
}

void cli_row(cli_report *r, const cli_cell *cells)
{
    for (const cli_cell *cell = cells; cell->kind != CLI_END; cell++) {
        if (r->json && cell->kind != CLI_TEXT_ALONE) {
            begin_part(r, cell->key);
            print_value(r, cell);
        } else if (!r->json && cell->heading != NULL) {
            printf("%*s", cell->width, r->headings ? cell->heading : cell->shown);
        }
    }
}

void cli_open(cli_report *r, const char *key, char bracket, bool lines)
{
    if (!r->json)
        return;
    assert(r->depth < CLI_NESTING);
    begin_part(r, key);
    printf("%c", bracket);
    r->open[r->depth].bracket = bracket;
    r->open[r->depth].lines = lines;
    r->open[r->depth++].any = false;
}

void cli_close(cli_report *r)
{
    if (!r->json)
        return;
    r->depth--;
    if (r->open[r->depth].lines)
        printf("\n%*s", 2 * (int)r->depth, "");
    printf(r->open[r->depth].bracket == '{' ? "}" : "]");
    if (r->depth == 0)
        printf("\n");
}

// ---- the text alone ----

void cli_print(const cli_report *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!r->json)
        vprintf(format, args);
    va_end(args);
}

// Columns of the terminal, within reason.
static int terminal_columns(void)
{
    enum { LEAST = 60 };
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
        size.ws_col < LEAST || size.ws_col > CLI_COLUMNS)
        return CLI_COLUMNS;
    return size.ws_col;
}

// Where a line ends that has so many columns at most: at its last space, or the last one behind a
// phrase; where there is none within a word.
static int line_end(const char *text, int columns, bool phrases)
{
    int space = 0;
    for (int at = columns; at > 0; at--) {
        if (text[at] != ' ')
            continue;
        if (!phrases || text[at - 1] == ',' || text[at - 1] == ':')
            return at;
        space = space == 0 ? at : space;
    }
    return space > 0 ? space : columns;
}

// `used` columns of the first line are printed already.
static void print_lines(const char *text, int columns, int used, int indent, bool phrases)
{
    while ((int)strlen(text) > columns - used) {
        const int end = line_end(text, columns - used, phrases);
        printf("%.*s\n%*s", end, text, indent, "");
        text += end + (text[end] == ' ');
        used = indent;
    }
    printf("%s\n", text);
}

void cli_say(const cli_report *r, int indent, const char *format, ...)
{
    enum { TEXT_BYTES = 4096 + 1024 }; // a path, and what is said of it
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    mics_text_vformat(text, sizeof text, format, args);
    va_end(args);
    if (!r->json)
        print_lines(text, CLI_COLUMNS, indent, indent, false);
}

void cli_phrases(const cli_report *r, const char *format, ...)
{
    enum { TEXT_BYTES = 1024, INDENT = 2 };
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    mics_text_vformat(text, sizeof text, format, args);
    va_end(args);
    if (!r->json)
        print_lines(text, terminal_columns(), 0, INDENT, true);
}

cli_word cli_word_of(const char *format, ...)
{
    cli_word word = {""};
    va_list args;
    va_start(args, format);
    mics_text_vformat(word.text, sizeof word.text, format, args);
    va_end(args);
    return word;
}

cli_word cli_size(double bytes)
{
    cli_word word = {""};
    mics_size_text(bytes, word.text, sizeof word.text);
    return word;
}

const char *cli_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}
