// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The printer of reports. A report is described once, and written as text or as one JSON object.
// Its data are cells: a cell is a value that has a key, by which JSON shows it, or stands in a
// column, where the text shows it, or both. The text alone has sentences between them.
#ifndef MICS_CLI_PRINTER_H
#define MICS_CLI_PRINTER_H

#include "mics/log.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLI_COLUMNS = 120, CLI_SHOWN_BYTES = 160, CLI_NESTING = 8 };

typedef enum cli_kind {
    CLI_END,
    CLI_NULL,
    CLI_WHOLE,
    CLI_NUMBER,
    CLI_WORDS,
    CLI_TRUTH,
    CLI_JSON,
    CLI_TEXT_ALONE
} cli_kind;

typedef struct cli_cell {
    cli_kind kind;
    const char *key; // NULL in lists
    int64_t whole;   // of WORDS: their bytes
    double number;
    const char *words;
    const char *heading; // NULL: in JSON alone
    int width;           // of the column; below 0: its texts stand left
    char shown[CLI_SHOWN_BYTES];
} cli_cell;

// A short text as a value: cli_size(bytes).text holds until the end of the expression.
typedef struct cli_word {
    char text[CLI_SHOWN_BYTES];
} cli_word;

// Begin with zeros and `json`.
typedef struct cli_report {
    bool json;
    bool headings; // rows of the text show their headings in place of their values
    int digits;    // of numbers in JSON; 0: as many as give their bits back
    int32_t depth;
    struct {
        char bracket;
        bool lines, any;
    } open[CLI_NESTING];
} cli_report;

// ---- cells ----

cli_cell cli_int(const char *key, int64_t value);

/* A number; null where it is none (NAN) or infinite. */
cli_cell cli_number(const char *key, double value);

/* A number, rounded to a whole one. */
cli_cell cli_rounded(const char *key, double value);

/* A text; null where it is NULL. */
cli_cell cli_words(const char *key, const char *value);

/* A text; null where it is NULL or empty. */
cli_cell cli_name(const char *key, const char *value);

/* A text of so many bytes, with any in it: those that are no characters become U+FFFD. */
cli_cell cli_bytes(const char *key, const char *text, size_t bytes);

/* What is written as JSON already. */
cli_cell cli_written(const char *key, const char *json);

cli_cell cli_flag(const char *key, bool value);
cli_cell cli_null(const char *key);

/* The cell, which also stands in a column of the text, unless `heading` is NULL. */
cli_cell cli_column(cli_cell cell, int width, const char *heading, const char *format, ...)
    MICS_PRINTF(4, 5);

/* A cell of the text alone. */
#define CLI_SHOWN(...) cli_column((cli_cell){.kind = CLI_TEXT_ALONE}, __VA_ARGS__)

// ---- JSON, and the text's tables ----

/* Members of the object that is open in JSON; in the text columns, without the line's end. */
#define CLI_ROW(report, ...) cli_row(report, (const cli_cell[]){__VA_ARGS__, {CLI_END}})
void cli_row(cli_report *report, const cli_cell *cells);

/* An object of its own in JSON; as CLI_ROW in the text. `key` is NULL in lists. */
#define CLI_OBJECT(report, key, ...)                                                               \
    (cli_open(report, key, '{', false), CLI_ROW(report, __VA_ARGS__), cli_close(report))

/* Opens an object ('{') or a list ('['), whose parts stand on `lines` of their own. Nothing in the
 * text.   Needs: at most CLI_NESTING are open. */
void cli_open(cli_report *report, const char *key, char bracket, bool lines);
void cli_close(cli_report *report);

// ---- the text alone ----

void cli_print(const cli_report *report, const char *format, ...) MICS_PRINTF(2, 3);

/* Lines of at most CLI_COLUMNS; all but the first begin with `indent` spaces, as many as were printed
 * before the first. */
void cli_say(const cli_report *report, int indent, const char *format, ...) MICS_PRINTF(3, 4);

/* A sentence in lines as wide as the terminal, at most CLI_COLUMNS, cut behind commas and colons where
 * a line has one; all but the first are indented. */
void cli_phrases(const cli_report *report, const char *format, ...) MICS_PRINTF(2, 3);

/* A formatted text as a value. */
cli_word cli_word_of(const char *format, ...) MICS_PRINTF(1, 2);

/* Bytes as people read them: "37.6 GiB". */
cli_word cli_size(double bytes);

/* "s", or "" of one. */
const char *cli_plural(int64_t count);

#endif
