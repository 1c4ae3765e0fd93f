// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What pictures of this module share. Units are those of the picture: 900 x 540, y downwards. A
// failing allocation stays in the text's status.
#pragma once

#include "base/text.h"
#include "io/report/history.h"
#include "mics/report.h"

enum { DRAW_WIDTH = 900, DRAW_HEIGHT = 540, DRAW_LEFT = 78, DRAW_TOP = 78, DRAW_BOTTOM = 82 };

// Okabe and Ito, Color Universal Design, 2008; the first is for what matters.
extern const char *const draw_colours[MICS_CHART_SERIES];

/* The head, title and subtitle (NULL: none); and what comes last: the note (NULL: none). */
void draw_begin(mics_text *text, const char *title, const char *subtitle);
void draw_end(mics_text *text, const char *note);

/* A text as XML has it, in elements and in attributes; `count` bytes of one. */
void draw_escaped(mics_text *text, const char *string);
void draw_escaped_bytes(mics_text *text, const char *string, size_t count);

/* A figure with all its digits: counts as metrics.jsonl has them. */
const char *draw_digits(double value, char text[32]);

/* A text at its baseline; `string` is made XML. */
void draw_text(mics_text *text, double x, double y, const char *attributes, const char *string);

/* A series' mark. */
void draw_mark(mics_text *text, int32_t series, double x, double y);

/* 1, 2 or 5 times a power of ten, so that a few of them reach `largest`, which is above 0. */
double draw_tick(double largest);

/* The place of a value on a y axis from 0 to `top`, and that axis, with lines as far as `right`. */
double draw_y(double value, double top);
void draw_y_axis(mics_text *text, const char *label, double tick, double top, double right);

// ---- figures over steps, within a page ----

enum { CURVES_MAX = 64 };

typedef struct curve {
    const history *run;
    const history_figure *figure; // with a value
    char name[128];
    int32_t colour, dash; // below MICS_CHART_SERIES
} curve;

/* curves.c: appends a <figure>, whose colours and dashes are the page's (classes c0, d0 ...). Means of buckets are
 * lines; between their smallest and largest values it is shaded. Lines carry their figures, with all
 * digits where a bucket is a step. The y axis is logarithmic where a few values are far above all
 * others.
 *
 * Shapes:  curves: (count).        Needs: 1 <= count <= CURVES_MAX.
 */
void draw_curves(mics_text *text, const char *title, const curve *curves, int32_t count);
