// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Draws points by two figures, and the front: those that no other beats in both.
#include "io/report/draw.h"
#include "mics/log.h"
#include <math.h>
#include <string.h>

enum {
    RIGHT = 30,
    MAX_BOXES = 3 * MICS_SCATTER_MAX_POINTS, // names and marks
    LABEL_HEIGHT = 15
};

// Of a letter of 12 units, on the average; and of a mark.
static const double letter_width = 6.4, mark_half = 6;

typedef struct box {
    double left, top, right, bottom;
} box;

typedef struct drawing {
    mics_text text;
    const mics_scatter *scatter;
    double low, high; // decimal logarithms at the ends of the x axis
    double tick, top; // of the y axis
    box boxes[MAX_BOXES];
    int32_t box_count;
} drawing;

// ---- numbers to places ----

static double x_of(const drawing *d, double value)
{
    return DRAW_LEFT +
           (DRAW_WIDTH - DRAW_LEFT - RIGHT) * (log10(value) - d->low) / (d->high - d->low);
}

static double y_of(const drawing *d, double value)
{
    return draw_y(value, d->top);
}

static bool is_drawn(const mics_scatter_point *point)
{
    return !isnan(point->x) && !isnan(point->y);
}

static mics_status scale(drawing *d)
{
    double least = INFINITY, most = 0, largest = 0;
    for (int32_t i = 0; i < d->scatter->count; i++) {
        const mics_scatter_point *point = &d->scatter->points[i];
        if (!is_drawn(point))
            continue;
        if (!(point->x > 0 && point->y >= 0) || isinf(point->x) || isinf(point->y))
            return mics_fail(MICS_ERR_INVALID, "a point at %g, %g: x is above 0, y not below it",
                             point->x, point->y);
        least = fmin(least, point->x);
        most = fmax(most, point->x);
        largest = fmax(largest, point->y);
    }
    if (most == 0)
        return mics_fail(MICS_ERR_INVALID, "there is nothing to draw: no point has both figures");
    // A tenth of a decade at both ends.
    d->low = log10(least) - 0.1;
    d->high = log10(most) + 0.1;
    d->tick = draw_tick(largest > 0 ? largest : 1);
    d->top = d->tick * ceil(1.04 * fmax(largest, d->tick) / d->tick);
    return MICS_OK;
}

// ---- the x axis ----

static void draw_x_tick(drawing *d, double value)
{
    const double x = x_of(d, value), base = DRAW_HEIGHT - DRAW_BOTTOM;
    char number[32];
    mics_text_printf(&d->text,
                     "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#DDDDDD\"/>\n",
                     x, DRAW_TOP, x, base);
    mics_text_format(number, sizeof number, "%.6g", value);
    draw_text(&d->text, x, base + 20, "text-anchor=\"middle\" fill=\"#333333\"", number);
}

// 1, 2 and 5 times powers of ten; over many decades the powers alone.
static void draw_x_axis(drawing *d)
{
    static const double steps[] = {1, 2, 5};
    const int32_t count = d->high - d->low > 3.5 ? 1 : 3;
    for (int32_t power = (int32_t)floor(d->low); power <= d->high; power++) {
        for (int32_t i = 0; i < count; i++) {
            const double value = steps[i] * pow(10, power);
            if (log10(value) >= d->low && log10(value) <= d->high)
                draw_x_tick(d, value);
        }
    }
    draw_text(&d->text, DRAW_LEFT + (DRAW_WIDTH - DRAW_LEFT - RIGHT) / 2.0,
              DRAW_HEIGHT - DRAW_BOTTOM + 42, "text-anchor=\"middle\" fill=\"#333333\"",
              d->scatter->x_label);
}

// ---- names ----

static bool is_free(const drawing *d, const box *b)
{
    if (b->left < DRAW_LEFT || b->right > DRAW_WIDTH || b->top < DRAW_TOP - LABEL_HEIGHT ||
        b->bottom > DRAW_HEIGHT - DRAW_BOTTOM)
        return false;
    for (int32_t i = 0; i < d->box_count; i++) {
        const box *other = &d->boxes[i];
        if (b->left < other->right && other->left < b->right && b->top < other->bottom &&
            other->top < b->bottom)
            return false;
    }
    return true;
}

// Right, left, above or below of the mark: the first that is free. Else the name is left out.
static void draw_name(drawing *d, const mics_scatter_point *point)
{
    const double x = x_of(d, point->x), y = y_of(d, point->y);
    const double width = letter_width * (double)strlen(point->name), half = LABEL_HEIGHT / 2.0;
    const double lefts[] = {x + mark_half + 2, x - mark_half - 2 - width, x - width / 2,
                            x - width / 2};
    const double middles[] = {y, y, y - mark_half - half, y + mark_half + half};
    for (int i = 0; i < 4; i++) {
        const box b = {lefts[i], middles[i] - half, lefts[i] + width, middles[i] + half};
        if (!is_free(d, &b))
            continue;
        d->boxes[d->box_count++] = b;
        draw_text(&d->text, b.left, middles[i] + 4,
                  point->front ? "font-size=\"12\" fill=\"#111111\""
                               : "font-size=\"12\" fill=\"#666666\"",
                  point->name);
        return;
    }
}

// ---- points ----

// The next of the front to the right of `x`; NULL: none.
static const mics_scatter_point *next_of_front(const mics_scatter *scatter, double x)
{
    const mics_scatter_point *next = NULL;
    for (int32_t i = 0; i < scatter->count; i++) {
        const mics_scatter_point *point = &scatter->points[i];
        if (point->front && is_drawn(point) && point->x > x && (next == NULL || point->x < next->x))
            next = point;
    }
    return next;
}

static void draw_front(drawing *d)
{
    const mics_scatter_point *point = next_of_front(d->scatter, 0);
    mics_text_printf(&d->text, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"",
                     draw_colours[0]);
    for (char verb = 'M'; point != NULL; verb = 'L') {
        mics_text_printf(&d->text, "%c%.1f %.1f", verb, x_of(d, point->x), y_of(d, point->y));
        point = next_of_front(d->scatter, point->x);
    }
    mics_text_printf(&d->text, "\"/>\n");
}

static void draw_points(drawing *d, bool front)
{
    for (int32_t i = 0; i < d->scatter->count; i++) {
        const mics_scatter_point *point = &d->scatter->points[i];
        if (!is_drawn(point) || point->front != front)
            continue;
        const double x = x_of(d, point->x), y = y_of(d, point->y);
        d->boxes[d->box_count++] =
            (box){x - mark_half, y - mark_half, x + mark_half, y + mark_half};
        draw_mark(&d->text, front ? 0 : MICS_CHART_SERIES - 1, x, y);
    }
}

// The front's names first: of the others those that still find a place.
static void draw_names(drawing *d)
{
    for (int front = 1; front >= 0; front--) {
        for (int32_t i = 0; i < d->scatter->count; i++) {
            const mics_scatter_point *point = &d->scatter->points[i];
            if (is_drawn(point) && point->front == (front == 1))
                draw_name(d, point);
        }
    }
}

mics_status mics_scatter_svg(mics_memory *memory, const mics_scatter *scatter, char **svg_out)
{
    void *block = NULL;
    if (scatter->count > MICS_SCATTER_MAX_POINTS)
        return mics_fail(MICS_ERR_INVALID, "a picture of %d points: at most %d",
                         (int)scatter->count, (int)MICS_SCATTER_MAX_POINTS);
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(drawing), &block));
    drawing *d = block;
    d->text.memory = memory;
    d->scatter = scatter;
    mics_status status = scale(d);
    if (status == MICS_OK) {
        draw_begin(&d->text, scatter->title, scatter->subtitle);
        draw_y_axis(&d->text, scatter->y_label, d->tick, d->top, DRAW_WIDTH - RIGHT);
        draw_x_axis(d);
        draw_front(d);
        draw_points(d, false);
        draw_points(d, true);
        draw_names(d);
        draw_end(&d->text, scatter->note);
        status = mics_text_status(&d->text);
    }
    if (status == MICS_OK)
        *svg_out = d->text.bytes;
    else
        mics_text_fini(&d->text);
    mics_free(memory, d);
    return status;
}
