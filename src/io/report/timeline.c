// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A trace has an event a line, and figures of all ranks behind them; it may be large, so it is read
// line by line, and events of other ranks and steps are passed over.
#include "base/json.h"
#include "io/report/draw.h"
#include "io/report/page.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EVENTS = 5000, MAX_TRACKS = 8, TRACK_HEIGHT = 34, MAX_RANKS = 5 };

typedef struct timeline {
    mics_text bars; // in microseconds, behind `origin`
    mics_text tracks;
    int64_t events, tids[MAX_TRACKS], track_count;
    double step, origin, begin, end;
    mics_json *by_rank[3]; // step_us, compute_busy_us, exposed_us
} timeline;

static const char *const figures[3] = {
    "\"step_us_by_rank\": ", "\"compute_busy_us_by_rank\": ", "\"exposed_us_by_rank\": "};

static void take_track(timeline *t, const mics_json *line)
{
    if (t->track_count == MAX_TRACKS)
        return;
    draw_text(&t->tracks, 4, (double)(t->track_count * TRACK_HEIGHT) + 20, "",
              mics_json_string(mics_json_at(line, "args.name")));
    t->tids[t->track_count++] = mics_json_int(mics_json_at(line, "tid"));
}

static void take_event(timeline *t, const mics_json *line)
{
    const double ts = report_number(line, "ts"), dur = report_number(line, "dur");
    const int64_t tid = mics_json_int(mics_json_at(line, "tid"));
    const char *category = mics_json_string(mics_json_at(line, "cat"));
    int64_t track = 0;
    if (t->events == 0) {
        t->step = report_number(line, "args.step");
        t->origin = ts;
    }
    while (track < t->track_count && t->tids[track] != tid)
        track++;
    if (report_number(line, "args.step") != t->step || track == t->track_count ||
        t->events++ >= MAX_EVENTS)
        return;
    t->begin = fmin(t->begin, ts - t->origin);
    t->end = fmax(t->end, ts - t->origin + dur);
    mics_text_printf(&t->bars,
                     "<rect class=\"%.*s\" x=\"%.1f\" y=\"%lld\" width=\"%.1f\" "
                     "height=\"%d\"><title>",
                     (int)strcspn(category, " "), category, ts - t->origin,
                     (long long)track * TRACK_HEIGHT, dur, TRACK_HEIGHT - 4);
    draw_escaped(&t->bars, mics_json_string(mics_json_at(line, "name")));
    mics_text_printf(&t->bars, ", %.0f us</title></rect>\n", dur);
}

static mics_status take_line(timeline *t, const char *path, char *line, size_t bytes)
{
    mics_json *json = NULL;
    while (bytes > 0 && strchr(",\n", line[bytes - 1]) != NULL)
        bytes--;
    for (int f = 0; f < 3; f++) {
        const size_t name = strlen(figures[f]);
        if (strncmp(line, figures[f], name) == 0 && t->by_rank[f] == NULL)
            return mics_json_parse_line(t->bars.memory, path, line + name, bytes - name,
                                        &t->by_rank[f]);
    }
    const bool event = strncmp(line, "{\"ph\": \"X\", \"pid\": 0,", 21) == 0;
    const bool track = strncmp(line, "{\"ph\": \"M\", \"pid\": 0,", 21) == 0 &&
                       strstr(line, "\"thread_name\"") != NULL;
    if (!event && !track)
        return MICS_OK;
    MICS_TRY(mics_json_parse_line(t->bars.memory, path, line, bytes, &json));
    (event ? take_event : take_track)(t, json);
    mics_json_close(json);
    return MICS_OK;
}

// Who waits least for collectives is who the others wait for.
static void put_ranks(mics_text *page, const timeline *t)
{
    const mics_json_value *of[3];
    for (int f = 0; f < 3; f++)
        of[f] = t->by_rank[f] != NULL ? mics_json_root(t->by_rank[f]) : NULL;
    const int32_t ranks = mics_json_count(of[2]);
    if (ranks < 2)
        return;
    mics_text_printf(page, "<div class=\"wide\"><table><caption>Ranks that wait least, so that the "
                           "others wait for them; ms of a step</caption>\n<tr><th>rank</th><th>"
                           "step</th><th>computes</th><th>waits</th></tr>\n");
    double above = -INFINITY;
    for (int32_t shown = 0; shown < MAX_RANKS && shown < ranks; shown++) {
        int32_t least = -1;
        for (int32_t rank = 0; rank < ranks; rank++) {
            const double waits = mics_json_real(mics_json_element(of[2], rank));
            if (waits > above &&
                (least < 0 || waits < mics_json_real(mics_json_element(of[2], least))))
                least = rank;
        }
        if (least < 0)
            break;
        above = mics_json_real(mics_json_element(of[2], least));
        mics_text_printf(page, "<tr><th>%d</th>", (int)least);
        for (int f = 0; f < 3; f++)
            mics_text_printf(page, "<td>%.3f</td>",
                             mics_json_real(mics_json_element(of[f], least)) / 1e3);
        mics_text_printf(page, "</tr>\n");
    }
    mics_text_printf(page, "</table></div>\n");
}

static void put_streams(mics_text *page, const timeline *t)
{
    const int height = (int)t->track_count * TRACK_HEIGHT;
    if (t->events == 0 || t->bars.used == 0 || t->tracks.used == 0)
        return;
    mics_text_printf(page,
                     "<figure class=\"full\"><figcaption>Step %.0f of rank 0: its streams, "
                     "%.2f ms%s</figcaption>\n<svg class=\"streams\" viewBox=\"0 0 900 %d\" "
                     "role=\"img\" aria-label=\"streams of a step\">%s<svg x=\"80\" "
                     "width=\"820\" height=\"%d\" viewBox=\"%.1f 0 %.1f %d\" "
                     "preserveAspectRatio=\"none\">\n%s</svg></svg></figure>\n",
                     t->step, (t->end - t->begin) / 1e3,
                     t->events > MAX_EVENTS ? " (its first 5000 entries)" : "", height,
                     t->tracks.bytes, height, t->begin, t->end - t->begin, height, t->bars.bytes);
}

mics_status report_timeline(mics_text *page, const char *folder)
{
    timeline t = {.bars.memory = page->memory, .tracks.memory = page->memory};
    char path[4096], *line = NULL;
    size_t capacity = 0;
    ssize_t bytes = 0;
    mics_status status = MICS_OK;
    const bool whole = snprintf(path, sizeof path, "%s/trace.json", folder) < (int)sizeof path;
    FILE *from = whole ? fopen(path, "re") : NULL;
    while (from != NULL && status == MICS_OK && (bytes = getline(&line, &capacity, from)) > 0)
        status = take_line(&t, path, line, (size_t)bytes);
    if (from != NULL)
        fclose(from);
    free(line);
    if (status == MICS_OK) {
        put_streams(page, &t);
        put_ranks(page, &t);
    }
    for (int f = 0; f < 3; f++)
        mics_json_close(t.by_rank[f]);
    mics_text_fini(&t.bars);
    mics_text_fini(&t.tracks);
    return status;
}
