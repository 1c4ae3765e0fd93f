// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Draws curves over a few sizes.
#include "io/report/draw.h"
#include "mics/log.h"
#include "mics/report.h"
#include <math.h>
#include <string.h>

enum {
    WIDTH = DRAW_WIDTH,
    HEIGHT = DRAW_HEIGHT,
    LEFT = DRAW_LEFT,
    RIGHT = 190, // for the curves' names
    TOP = DRAW_TOP,
    BOTTOM = DRAW_BOTTOM,
    LABEL_HEIGHT = 17
};

static const char *const dashes[MICS_CHART_SERIES] = {"",    "7 4",  "2 3", "10 3 2 3",
                                                      "5 2", "12 4", "1 4", "8 2 2 2"};

typedef struct drawing {
    mics_text text;
    const mics_chart *chart;
    double top; // value at the upper end of the y axis
    double tick;
    int32_t last[MICS_CHART_SERIES]; // last place with a value; -1: none
    double label_y[MICS_CHART_SERIES];
} drawing;

// ---- numbers to places ----

static double x_of(const drawing *d, int32_t at)
{
    const double width = WIDTH - LEFT - RIGHT;
    return d->chart->x_count == 1 ? LEFT + width / 2
                                  : LEFT + 14 + (width - 28) * at / (d->chart->x_count - 1);
}

static double y_of(const drawing *d, double value)
{
    return draw_y(value, d->top);
}

static mics_status scale(drawing *d)
{
    double largest = 0;
    bool any = false;
    for (int32_t s = 0; s < d->chart->series_count; s++) {
        d->last[s] = -1;
        for (int32_t i = 0; i < d->chart->x_count; i++) {
            const double y = d->chart->series[s].y[i];
            if (isnan(y))
                continue;
            if (y < 0 || isinf(y))
                return mics_fail(MICS_ERR_INVALID, "a chart's values begin at 0: %g", y);
            d->last[s] = i;
            any = true;
            largest = fmax(largest, y);
        }
    }
    if (!any)
        return mics_fail(MICS_ERR_INVALID, "there is nothing to draw: no point has a value");
    d->tick = draw_tick(largest > 0 ? largest : 1);
    d->top = d->tick * ceil(1.04 * fmax(largest, d->tick) / d->tick);
    return MICS_OK;
}

// ---- axes ----

// Ticks that would run into each other are left out.
static void draw_x_axis(drawing *d)
{
    const double base = HEIGHT - BOTTOM;
    double free_from = 0;
    for (int32_t i = 0; i < d->chart->x_count; i++) {
        const double x = x_of(d, i), half = 4.5 * (double)strlen(d->chart->x_texts[i]);
        mics_text_printf(
            &d->text,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#333333\"/>\n", x, base,
            x, base + 5);
        if (x - half < free_from)
            continue;
        draw_text(&d->text, x, base + 20, "text-anchor=\"middle\" fill=\"#333333\"",
                  d->chart->x_texts[i]);
        free_from = x + half + 4;
    }
    draw_text(&d->text, LEFT + (WIDTH - LEFT - RIGHT) / 2.0, base + 42,
              "text-anchor=\"middle\" fill=\"#333333\"", d->chart->x_label);
}

// ---- curves ----

// Lines run between neighbours that both have a value.
static void draw_series(drawing *d, int32_t series)
{
    const double *values = d->chart->series[series].y;
    mics_text_printf(&d->text,
                     "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" "
                     "stroke-linejoin=\"round\"%s%s%s d=\"",
                     draw_colours[series], series == 0 ? "3" : "2",
                     *dashes[series] != '\0' ? " stroke-dasharray=\"" : "", dashes[series],
                     *dashes[series] != '\0' ? "\"" : "");
    bool drawn = false;
    for (int32_t i = 0; i < d->chart->x_count; i++) {
        const bool value = !isnan(values[i]);
        if (value)
            mics_text_printf(&d->text, "%c%.1f %.1f", drawn ? 'L' : 'M', x_of(d, i),
                             y_of(d, values[i]));
        drawn = value;
    }
    mics_text_printf(&d->text, "\"/>\n");
    for (int32_t i = 0; i < d->chart->x_count; i++) {
        if (!isnan(values[i]))
            draw_mark(&d->text, series, x_of(d, i), y_of(d, values[i]));
    }
}

// ---- names at the ends of curves ----

// Names in the order of their curves' ends, moved apart until none covers another.
static void place_labels(drawing *d)
{
    int32_t order[MICS_CHART_SERIES], count = 0;
    for (int32_t s = 0; s < d->chart->series_count; s++) {
        if (d->last[s] < 0)
            continue;
        d->label_y[s] = y_of(d, d->chart->series[s].y[d->last[s]]);
        int32_t at = count++;
        for (; at > 0 && d->label_y[order[at - 1]] > d->label_y[s]; at--)
            order[at] = order[at - 1];
        order[at] = s;
    }
    for (int32_t i = 1; i < count; i++)
        d->label_y[order[i]] = fmax(d->label_y[order[i]], d->label_y[order[i - 1]] + LABEL_HEIGHT);
    double lowest = HEIGHT - BOTTOM;
    for (int32_t i = count - 1; i >= 0; i--) {
        d->label_y[order[i]] = fmin(d->label_y[order[i]], lowest);
        lowest = d->label_y[order[i]] - LABEL_HEIGHT;
    }
}

// A thin line from the curve's end to its mark and its name, which is dark: not all of the colours
// can be read as text.
static void draw_label(drawing *d, int32_t series)
{
    const double x = x_of(d, d->last[series]), label_x = WIDTH - RIGHT + 24;
    const double y = y_of(d, d->chart->series[series].y[d->last[series]]);
    mics_text_printf(
        &d->text,
        "<path fill=\"none\" stroke=\"%s\" stroke-width=\"0.8\" stroke-opacity=\"0.6\" "
        "d=\"M%.1f %.1fL%.1f %.1f\"/>\n",
        draw_colours[series], x + 7, y, label_x - 7, d->label_y[series]);
    draw_mark(&d->text, series, label_x, d->label_y[series]);
    draw_text(&d->text, label_x + 10, d->label_y[series] + 4.5,
              series == 0 ? "fill=\"#111111\" font-weight=\"bold\"" : "fill=\"#333333\"",
              d->chart->series[series].name);
}

// ---- the whole ----

static void draw(drawing *d)
{
    const mics_chart *chart = d->chart;
    draw_begin(&d->text, chart->title, chart->subtitle);
    draw_y_axis(&d->text, chart->y_label, d->tick, d->top, WIDTH - RIGHT);
    draw_x_axis(d);
    for (int32_t s = chart->series_count - 1; s >= 0; s--) { // the first lies on top
        if (d->last[s] >= 0)
            draw_series(d, s);
    }
    place_labels(d);
    for (int32_t s = 0; s < chart->series_count; s++) {
        if (d->last[s] >= 0)
            draw_label(d, s);
    }
    draw_end(&d->text, chart->note);
}

mics_status mics_chart_svg(mics_memory *memory, const mics_chart *chart, char **svg_out)
{
    drawing d = {.text = {.memory = memory}, .chart = chart};
    if (chart->x_count < 1 || chart->series_count < 1 || chart->series_count > MICS_CHART_SERIES)
        return mics_fail(
            MICS_ERR_INVALID,
            "a chart of %d places and %d curves: at least 1 of both, at most %d curves",
            (int)chart->x_count, (int)chart->series_count, (int)MICS_CHART_SERIES);
    MICS_TRY(scale(&d));
    draw(&d);
    const mics_status status = mics_text_status(&d.text);
    if (status != MICS_OK)
        mics_text_fini(&d.text);
    else
        *svg_out = d.text.bytes;
    return status;
}
