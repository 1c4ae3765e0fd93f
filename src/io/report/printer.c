// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/report/printer.h"
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

report_cell cell_int(const char *key, int64_t value)
{
    return (report_cell){.kind = CELL_WHOLE, .key = key, .whole = value};
}

report_cell cell_number(const char *key, double value)
{
    return (report_cell){
        .kind = isfinite(value) ? CELL_NUMBER : CELL_NULL, .key = key, .number = value};
}

report_cell cell_rounded(const char *key, double value)
{
    return cell_int(key, llrint(value));
}

report_cell cell_bytes(const char *key, const char *text, size_t bytes)
{
    return (report_cell){.kind = CELL_WORDS, .key = key, .words = text, .whole = (int64_t)bytes};
}

report_cell cell_words(const char *key, const char *value)
{
    return value != NULL ? cell_bytes(key, value, strlen(value)) : cell_null(key);
}

report_cell cell_name(const char *key, const char *value)
{
    return cell_words(key, value == NULL || value[0] == '\0' ? NULL : value);
}

report_cell cell_written(const char *key, const char *json)
{
    return (report_cell){.kind = CELL_JSON, .key = key, .words = json};
}

report_cell cell_flag(const char *key, bool value)
{
    return (report_cell){.kind = CELL_TRUTH, .key = key, .whole = value};
}

report_cell cell_null(const char *key)
{
    return (report_cell){.kind = CELL_NULL, .key = key};
}

report_cell cell_column(report_cell cell, int width, const char *heading, const char *format, ...)
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
static void begin_part(printer *r, const char *key)
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

static void print_value(const printer *r, const report_cell *cell)
{
    char text[32];
    if (cell->kind == CELL_WHOLE)
        printf("%lld", (long long)cell->whole);
    else if (cell->kind == CELL_NUMBER && r->digits > 0)
        printf("%.*g", r->digits, cell->number);
    else if (cell->kind == CELL_NUMBER)
        printf("%s", mics_text_real(cell->number, text, sizeof text));
    else if (cell->kind == CELL_WORDS)
        print_words(cell->words, (size_t)cell->whole);
    else if (cell->kind == CELL_JSON)
        printf("%s", cell->words);
    else if (cell->kind == CELL_TRUTH)
        printf(cell->whole != 0 ? "true" : "false");
    else
        printf("null");
}

void printer_row(printer *r, const report_cell *cells)
{
    for (const report_cell *cell = cells; cell->kind != CELL_END; cell++) {
        if (r->json && cell->kind != CELL_TEXT) {
            begin_part(r, cell->key);
            print_value(r, cell);
        } else if (!r->json && cell->heading != NULL) {
            printf("%*s", cell->width, r->headings ? cell->heading : cell->shown);
        }
    }
}

void printer_open(printer *r, const char *key, char bracket, bool lines)
{
    if (!r->json)
        return;
    assert(r->depth < PRINTER_NESTING);
    begin_part(r, key);
    printf("%c", bracket);
    r->open[r->depth].bracket = bracket;
    r->open[r->depth].lines = lines;
    r->open[r->depth++].any = false;
}

void printer_close(printer *r)
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

void printer_text(const printer *r, const char *format, ...)
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
        size.ws_col < LEAST || size.ws_col > PRINTER_COLUMNS)
        return PRINTER_COLUMNS;
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

void printer_wrapped(const printer *r, int indent, const char *format, ...)
{
    enum { TEXT_BYTES = 4096 + 1024 }; // a path, and what is said of it
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    mics_text_vformat(text, sizeof text, format, args);
    va_end(args);
    if (!r->json)
        print_lines(text, PRINTER_COLUMNS, indent, indent, false);
}

void printer_phrases(const printer *r, const char *format, ...)
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

short_text text_of(const char *format, ...)
{
    short_text word = {""};
    va_list args;
    va_start(args, format);
    mics_text_vformat(word.text, sizeof word.text, format, args);
    va_end(args);
    return word;
}

short_text text_size(double bytes)
{
    short_text word = {""};
    mics_size_text(bytes, word.text, sizeof word.text);
    return word;
}

const char *text_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}
