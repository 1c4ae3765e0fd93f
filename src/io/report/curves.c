// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/report/draw.h"
#include <math.h>

// Units of the picture, y downwards; a page shows it as wide as there is place.
enum { WIDTH = 560, HEIGHT = 230, LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 28 };
static const double OUTLIER = 20;  // of the mean
static const double BASELINE = .3; // of the largest value: what goes below is drawn from 0

typedef struct axis {
    double low, high, tick; // logarithms where `powers`
    double from, to;        // places of the ends
    bool powers;
} axis;

typedef struct frame {
    mics_text *text;
    axis x, y;
} frame;

static double at(const axis *of, double value)
{
    value = of->powers ? log10(value) : value;
    return of->from + (of->to - of->from) * (value - of->low) / (of->high - of->low);
}

// ---- axes ----

static void scale(frame *f, const curve *curves, int32_t count)
{
    double low = INFINITY, high = -INFINITY, sum = 0, values = 0, first = INFINITY, last = 0;
    for (int32_t c = 0; c < count; c++) {
        first = fmin(first, (double)curves[c].run->first);
        last = fmax(last, (double)curves[c].run->last);
        for (int32_t i = 0; i < curves[c].run->bucket_count; i++) {
            const history_bucket *bucket = &curves[c].figure->buckets[i];
            if (bucket->count == 0)
                continue;
            low = fmin(low, bucket->min);
            high = fmax(high, bucket->max);
            sum += bucket->sum;
            values += (double)bucket->count;
        }
    }
    last = fmax(last, first + 1);
    f->x = (axis){first, last, fmax(1, draw_tick(last - first)), LEFT, WIDTH - RIGHT, false};
    f->y = (axis){
        .from = HEIGHT - BOTTOM, .to = TOP, .powers = low > 0 && high * values > OUTLIER * sum};
    low = f->y.powers ? floor(log10(low)) : low < BASELINE * high ? fmin(low, 0) : low;
    high = f->y.powers ? ceil(log10(high)) : high;
    high = fmax(high, low + fmax(fabs(low) / 10, 1e-9));
    f->y.tick = f->y.powers ? ceil((high - low) / 6) : draw_tick(high - low);
    f->y.low = f->y.tick * floor(low / f->y.tick);
    f->y.high = f->y.tick * ceil(high / f->y.tick);
}

// "15.3k", "2.41M".
static void put_number(const frame *f, double x, double y, const char *anchor, double value)
{
    static const char units[] = " kMGTP";
    char number[32], attributes[32];
    int unit = 0;
    for (; fabs(value) >= (unit == 0 ? 9999.5 : 999.95) && unit < 5; unit++)
        value /= 1000;
    mics_text_format(number, sizeof number, "%.4g%.*s", value, unit > 0, units + unit);
    mics_text_format(attributes, sizeof attributes, "text-anchor=\"%s\"", anchor);
    draw_text(f->text, x, y, attributes, number);
}

static void put_axes(const frame *f)
{
    const axis *x = &f->x, *y = &f->y;
    for (int32_t i = 0; y->low + i * y->tick <= y->high + y->tick / 2; i++) {
        const double place = fabs(y->low + i * y->tick) < y->tick / 2 ? 0 : y->low + i * y->tick;
        const double value = y->powers ? pow(10, place) : place;
        mics_text_printf(f->text, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, at(y, value),
                         WIDTH - RIGHT);
        put_number(f, LEFT - 6, at(y, value) + 4, "end", value);
    }
    const double first = x->tick * ceil(x->low / x->tick);
    for (int32_t i = 0; first + i * x->tick <= x->high; i++)
        put_number(f, fmin(at(x, first + i * x->tick), WIDTH - 2 * RIGHT), HEIGHT - 9, "middle",
                   first + i * x->tick);
}

// ---- curves ----

typedef enum part { MIN, MEAN, MAX } part;

static double part_of(const history_bucket *bucket, part which)
{
    return which == MIN   ? bucket->min
           : which == MAX ? bucket->max
                          : bucket->sum / (double)bucket->count;
}

// Points from the first bucket on, or back to it.
static void put_points(const frame *f, const curve *c, part which, bool back)
{
    const int32_t count = c->run->bucket_count;
    char letter = back ? 'L' : 'M';
    for (int32_t i = 0; i < count; i++) {
        const int32_t place = back ? count - 1 - i : i;
        const history_bucket *bucket = &c->figure->buckets[place];
        if (bucket->count == 0)
            continue;
        mics_text_printf(f->text, "%c%.1f %.1f", letter, at(&f->x, history_step(c->run, place)),
                         at(&f->y, part_of(bucket, which)));
        letter = 'L';
    }
}

// What the script shows; "-" is a bucket without a value.
static void put_figures(const frame *f, const curve *c, part which)
{
    static const char *const names[] = {[MIN] = "min", [MEAN] = "mean", [MAX] = "max"};
    char digits[32] = "";
    mics_text_printf(f->text, " data-%s=\"", names[which]);
    for (int64_t i = 0; i <= (c->run->last - c->run->first) / c->run->width; i++) {
        const history_bucket *bucket = &c->figure->buckets[i];
        if (bucket->count > 0 && c->run->width == 1)
            draw_digits(part_of(bucket, which), digits);
        else if (bucket->count > 0)
            mics_text_format(digits, sizeof digits, "%.6g", part_of(bucket, which));
        mics_text_printf(f->text, "%s%s", i > 0 ? " " : "", bucket->count > 0 ? digits : "-");
    }
    mics_text_printf(f->text, "\"");
}

static void put_curve(const frame *f, const curve *c)
{
    const bool ranges = c->run->width > 1;
    if (ranges) {
        mics_text_printf(f->text, "<path class=\"band c%d\" d=\"", (int)c->colour);
        put_points(f, c, MAX, false);
        put_points(f, c, MIN, true);
        mics_text_printf(f->text, "Z\"/>\n");
    }
    mics_text_printf(f->text, "<path class=\"line c%d d%d\" d=\"", (int)c->colour, (int)c->dash);
    put_points(f, c, MEAN, false);
    mics_text_printf(f->text, "\" data-first=\"%lld\" data-width=\"%lld\" data-name=\"",
                     (long long)c->run->first, (long long)c->run->width);
    draw_escaped(f->text, c->name);
    mics_text_printf(f->text, "\"");
    for (int which = ranges ? MIN : MEAN; which <= (ranges ? MAX : MEAN); which++)
        put_figures(f, c, (part)which);
    mics_text_printf(f->text, "/>\n");
}

void draw_curves(mics_text *text, const char *title, const curve *curves, int32_t count)
{
    frame f = {.text = text};
    scale(&f, curves, count);
    mics_text_printf(text, "<figure><figcaption>");
    draw_escaped(text, title);
    mics_text_printf(
        text,
        "</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 %d %d\" data-plot=\"%d %d\" "
        "data-steps=\"%.17g %.17g\" role=\"img\" aria-label=\"",
        WIDTH, HEIGHT, LEFT, WIDTH - RIGHT, f.x.low, f.x.high);
    draw_escaped(text, title);
    mics_text_printf(text, "\">\n");
    put_axes(&f);
    for (int32_t i = count - 1; i >= 0; i--) // the first lies on top
        put_curve(&f, &curves[i]);
    mics_text_printf(text, "</svg>\n");
    for (int32_t i = 0; i < count; i++) {
        mics_text_printf(text,
                         "<svg class=\"key\" viewBox=\"0 0 26 8\"><path class=\"line c%d d%d\" "
                         "d=\"M0 4H26\"/></svg>",
                         (int)curves[i].colour, (int)curves[i].dash);
        draw_escaped(text, curves[i].name);
    }
    mics_text_printf(text, "<output></output></figure>\n");
}
