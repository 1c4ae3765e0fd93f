// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Heads, texts, marks and the y axis of pictures.
#include "io/report/draw.h"
#include <math.h>
#include <string.h>

enum { MAX_TICKS = 7 };

const char *const draw_colours[MICS_CHART_SERIES] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                     "#E69F00", "#000000", "#56B4E9", "#7A7A7A"};

// ---- text ----

void draw_escaped(mics_text *text, const char *string)
{
    draw_escaped_bytes(text, string, strlen(string));
}

void draw_escaped_bytes(mics_text *text, const char *string, size_t count)
{
    for (const char *c = string; c < string + count; c++) {
        switch (*c) {
        case '&':
            mics_text_printf(text, "&amp;");
            break;
        case '<':
            mics_text_printf(text, "&lt;");
            break;
        case '>':
            mics_text_printf(text, "&gt;");
            break;
        case '"':
            mics_text_printf(text, "&quot;");
            break;
        default: // other control characters are not XML's
            mics_text_append(text, (unsigned char)*c < ' ' && *c != '\n' ? " " : c, 1);
            break;
        }
    }
}

const char *draw_digits(double value, char text[32])
{
    if (value == trunc(value) && fabs(value) < 1e15)
        mics_text_format(text, 32, "%.0f", value);
    else
        mics_text_real(value, text, 32);
    return text;
}

void draw_text(mics_text *text, double x, double y, const char *attributes, const char *string)
{
    mics_text_printf(text, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    draw_escaped(text, string);
    mics_text_printf(text, "</text>\n");
}

void draw_begin(mics_text *text, const char *title, const char *subtitle)
{
    mics_text_printf(text,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                     "viewBox=\"0 0 %d %d\" font-family=\"Helvetica, Arial, sans-serif\" "
                     "font-size=\"13\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
                     DRAW_WIDTH, DRAW_HEIGHT, DRAW_WIDTH, DRAW_HEIGHT, DRAW_WIDTH, DRAW_HEIGHT);
    draw_text(text, DRAW_LEFT, 32, "font-size=\"18\" font-weight=\"bold\" fill=\"#111111\"", title);
    if (subtitle != NULL)
        draw_text(text, DRAW_LEFT, 54, "fill=\"#444444\"", subtitle);
}

void draw_end(mics_text *text, const char *note)
{
    if (note != NULL)
        draw_text(text, DRAW_LEFT, DRAW_HEIGHT - 14, "font-size=\"11\" fill=\"#666666\"", note);
    mics_text_printf(text, "</svg>\n");
}

// ---- the y axis ----

double draw_tick(double largest)
{
    double tick = pow(10, floor(log10(largest)) - 1);
    const double steps[] = {2, 2.5, 2};
    for (int i = 0; largest / tick > MAX_TICKS; i++)
        tick *= steps[i % 3];
    return tick;
}

double draw_y(double value, double top)
{
    return DRAW_HEIGHT - DRAW_BOTTOM - (DRAW_HEIGHT - DRAW_TOP - DRAW_BOTTOM) * value / top;
}

void draw_y_axis(mics_text *text, const char *label, double tick, double top, double right)
{
    char number[32];
    for (int32_t i = 0; i * tick <= top * (1 + 1e-9); i++) {
        const double y = draw_y(i * tick, top);
        mics_text_printf(text,
                         "<line x1=\"%d\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                         DRAW_LEFT, y, right, y, i == 0 ? "#333333" : "#DDDDDD");
        mics_text_format(number, sizeof number, "%.6g", i * tick);
        draw_text(text, DRAW_LEFT - 8, y + 4.5, "text-anchor=\"end\" fill=\"#333333\"", number);
    }
    mics_text_printf(text,
                     "<text transform=\"translate(22 %.1f) rotate(-90)\" "
                     "text-anchor=\"middle\" fill=\"#333333\">",
                     DRAW_TOP + (DRAW_HEIGHT - DRAW_TOP - DRAW_BOTTOM) / 2.0);
    draw_escaped(text, label);
    mics_text_printf(text, "</text>\n");
}

// ---- marks ----

void draw_mark(mics_text *text, int32_t series, double x, double y)
{
    const char *colour = draw_colours[series];
    switch (series % 4) {
    case 0:
        mics_text_printf(text, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\"/>\n", x, y,
                         colour);
        break;
    case 1:
        mics_text_printf(text,
                         "<rect x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\" fill=\"%s\"/>\n",
                         x - 4, y - 4, colour);
        break;
    case 2:
        mics_text_printf(text, "<path d=\"M%.1f %.1fl5 8.5h-10z\" fill=\"%s\"/>\n", x, y - 5.5,
                         colour);
        break;
    default:
        mics_text_printf(text,
                         "<path d=\"M%.1f %.1fl5 5l-5 5l-5 -5z\" fill=\"white\" stroke=\"%s\" "
                         "stroke-width=\"1.6\"/>\n",
                         x, y - 5, colour);
        break;
    }
}
