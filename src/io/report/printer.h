// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The printer of reports. A report is described once, and written as text or as one JSON object.
// Its data are cells: a cell is a value that has a key, by which JSON shows it, or stands in a
// column, where the text shows it, or both. The text alone has sentences between them.
#pragma once

#include "mics/log.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PRINTER_COLUMNS = 120, CELL_BYTES = 160, PRINTER_NESTING = 8 };

typedef enum report_kind {
    CELL_END,
    CELL_NULL,
    CELL_WHOLE,
    CELL_NUMBER,
    CELL_WORDS,
    CELL_TRUTH,
    CELL_JSON,
    CELL_TEXT
} report_kind;

typedef struct report_cell {
    report_kind kind;
    const char *key; // NULL in lists
    int64_t whole;   // of WORDS: their bytes
    double number;
    const char *words;
    const char *heading; // NULL: in JSON alone
    int width;           // of the column; below 0: its texts stand left
    char shown[CELL_BYTES];
} report_cell;

// A short text as a value: text_size(bytes).text holds until the end of the expression.
typedef struct short_text {
    char text[CELL_BYTES];
} short_text;

// Begin with zeros and `json`.
typedef struct printer {
    bool json;
    bool headings; // rows of the text show their headings in place of their values
    int digits;    // of numbers in JSON; 0: as many as give their bits back
    int32_t depth;
    struct {
        char bracket;
        bool lines, any;
    } open[PRINTER_NESTING];
} printer;

// ---- cells ----

report_cell cell_int(const char *key, int64_t value);

/* A number; null where it is none (NAN) or infinite. */
report_cell cell_number(const char *key, double value);

/* A number, rounded to a whole one. */
report_cell cell_rounded(const char *key, double value);

/* A text; null where it is NULL. */
report_cell cell_words(const char *key, const char *value);

/* A text; null where it is NULL or empty. */
report_cell cell_name(const char *key, const char *value);

/* A text of so many bytes, with any in it: those that are no characters become U+FFFD. */
report_cell cell_bytes(const char *key, const char *text, size_t bytes);

/* What is written as JSON already. */
report_cell cell_written(const char *key, const char *json);

report_cell cell_flag(const char *key, bool value);
report_cell cell_null(const char *key);

/* The cell, which also stands in a column of the text, unless `heading` is NULL. */
report_cell cell_column(report_cell cell, int width, const char *heading, const char *format, ...)
    MICS_PRINTF(4, 5);

/* A cell of the text alone. */
#define CELL_SHOWN(...) cell_column((report_cell){.kind = CELL_TEXT}, __VA_ARGS__)

// ---- JSON, and the text's tables ----

/* Members of the object that is open in JSON; in the text columns, without the line's end. */
#define PRINTER_ROW(report, ...) printer_row(report, (const report_cell[]){__VA_ARGS__, {CELL_END}})
void printer_row(printer *report, const report_cell *cells);

/* An object of its own in JSON; as PRINTER_ROW in the text. `key` is NULL in lists. */
#define PRINTER_OBJECT(report, key, ...)                                                           \
    (printer_open(report, key, '{', false), PRINTER_ROW(report, __VA_ARGS__), printer_close(report))

/* Opens an object ('{') or a list ('['), whose parts stand on `lines` of their own. Nothing in the
 * text.   Needs: at most PRINTER_NESTING are open. */
void printer_open(printer *report, const char *key, char bracket, bool lines);
void printer_close(printer *report);

// ---- the text alone ----

void printer_text(const printer *report, const char *format, ...) MICS_PRINTF(2, 3);

/* Lines of at most PRINTER_COLUMNS; all but the first begin with `indent` spaces, as many as were printed
 * before the first. */
void printer_wrapped(const printer *report, int indent, const char *format, ...) MICS_PRINTF(3, 4);

/* A sentence in lines as wide as the terminal, at most PRINTER_COLUMNS, cut behind commas and colons where
 * a line has one; all but the first are indented. */
void printer_phrases(const printer *report, const char *format, ...) MICS_PRINTF(2, 3);

/* A formatted text as a value. */
short_text text_of(const char *format, ...) MICS_PRINTF(1, 2);

/* Bytes as people read them: "37.6 GiB". */
short_text text_size(double bytes);

/* "s", or "" of one. */
const char *text_plural(int64_t count);
