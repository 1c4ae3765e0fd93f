// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A trace has an event a line, as trace.c writes them, and may be large. So it is read line by line,
// and what is not of rank 0's first step is passed over.
#include "io/report/draw.h"
#include "io/report/page.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EVENTS = 5000, MAX_ROWS = 8, ROW = 34 };

typedef struct timeline {
    mics_text bars; // in microseconds behind `origin`
    mics_text names;
    uint64_t first_tid, rows;
    int64_t events;
    double step, origin, begin, end;
    double least_us; // that a rank waits for collectives
    int32_t ranks, least;
} timeline;

static double number_of(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    return at != NULL ? strtod(at + strlen(key), NULL) : NAN;
}

// What stands behind `key` before one of `ends`.
static const char *text_of(const char *line, const char *key, const char *ends, char text[128])
{
    const char *at = strstr(line, key);
    at = at != NULL ? at + strlen(key) : "";
    snprintf(text, 128, "%.*s", (int)strcspn(at, ends), at);
    return text;
}

static void take_event(timeline *t, const char *line, uint64_t row)
{
    char text[128];
    const double ts = number_of(line, "\"ts\": "), us = number_of(line, "\"dur\": ");
    const double step = number_of(line, "\"step\": ");
    t->step = t->events == 0 ? step : t->step;
    t->origin = t->events == 0 ? ts : t->origin;
    if (step != t->step || !isfinite(ts + us) || t->events++ >= MAX_EVENTS)
        return;
    t->begin = fmin(t->begin, ts - t->origin);
    t->end = fmax(t->end, ts - t->origin + us);
    mics_text_printf(&t->bars, "<rect class=\"");
    draw_escaped(&t->bars, text_of(line, "\"cat\": \"", " \"", text));
    mics_text_printf(&t->bars, "\" x=\"%.1f\" y=\"%lld\" width=\"%.1f\" height=\"%d\"><title>",
                     ts - t->origin, (long long)row * ROW, us, ROW - 4);
    draw_escaped(&t->bars, text_of(line, "\"name\": \"", "\"", text));
    mics_text_printf(&t->bars, ", %.0f us</title></rect>\n", us);
}

static void take_line(timeline *t, char *line)
{
    char text[128], *at = strchr(line, '[');
    char *tid_at = strstr(line, "\"tid\": ");
    const uint64_t tid = tid_at != NULL ? strtoull(tid_at + 7, NULL, 10) : 0;
    const uint64_t row = t->rows == 0 ? 0 : tid - t->first_tid;
    if (strncmp(line, "{\"ph\": \"X\", \"pid\": 0,", 21) == 0 && row < MAX_ROWS)
        take_event(t, line, row);
    if (strncmp(line, "{\"ph\": \"M\", \"pid\": 0,", 21) == 0 &&
        strstr(line, "\"thread_name\"") != NULL && row < MAX_ROWS) {
        t->first_tid = t->rows == 0 ? tid : t->first_tid;
        t->rows = row + 1;
        draw_text(&t->names, 4, (double)(row * ROW) + 20, "",
                  text_of(line, "{\"name\": \"", "\"", text));
    }
    for (; strncmp(line, "\"exposed_us_by_rank\":", 21) == 0 && at != NULL && *at != ']';
         t->ranks++) {
        const double us = strtod(at + 1, &at);
        at = strpbrk(at, ",]");
        t->least = t->ranks == 0 || us < t->least_us ? t->ranks : t->least;
        t->least_us = t->least == t->ranks ? us : t->least_us;
    }
}

static void put_streams(mics_text *page, const timeline *t)
{
    const int height = (int)t->rows * ROW;
    mics_text_printf(page,
                     "<figure><figcaption>Step %.0f of rank 0 by its streams, %.2f ms%s"
                     "</figcaption>\n<svg class=\"streams\" viewBox=\"0 0 900 %d\" role=\"img\" "
                     "aria-label=\"streams of a step\">%s<svg x=\"80\" width=\"820\" "
                     "height=\"%d\" viewBox=\"%.1f 0 %.1f %d\" preserveAspectRatio=\"none\">"
                     "\n%s</svg></svg></figure>\n",
                     t->step, (t->end - t->begin) / 1e3,
                     t->events > MAX_EVENTS ? " (as far as its first 5000 entries go)" : "", height,
                     t->names.bytes, height, t->begin, t->end - t->begin, height, t->bars.bytes);
    if (t->ranks > 1)
        mics_text_printf(page,
                         "<p>Of %d ranks, number %d waits least for collectives (%.3f ms of a "
                         "step): the others wait for it.</p>\n",
                         (int)t->ranks, (int)t->least, t->least_us / 1e3);
}

void report_timeline(mics_text *page, const char *folder)
{
    timeline t = {.bars.memory = page->memory, .names.memory = page->memory};
    char path[4096], *line = NULL;
    size_t capacity = 0;
    snprintf(path, sizeof path, "%s/trace.json", folder);
    FILE *from = fopen(path, "re");
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(plain);
    while (from != NULL && getline(&line, &capacity, from) > 0)
        take_line(&t, line);
    if (t.bars.used > 0 && t.names.used > 0)
        put_streams(page, &t);
    else
        mics_text_printf(page, "<p>No step was traced (run.trace_step).</p>\n");
    if (t.bars.status != MICS_OK || t.names.status != MICS_OK)
        page->status = MICS_ERR_MEMORY;
    uselocale(before);
    freelocale(plain);
    if (from != NULL)
        fclose(from);
    free(line);
    mics_text_fini(&t.bars);
    mics_text_fini(&t.names);
}
