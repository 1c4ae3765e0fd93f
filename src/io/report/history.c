// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A million lines are half a gigabyte, so lines are not parsed into trees: ours are flat.
#include "io/report/history.h"
#include "base/file.h"
#include "mics/log.h"
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096 }; // as metrics_file.c has it

// ---- figures ----

const history_figure *history_find(const history *self, const char *name)
{
    for (int32_t i = 0; i < self->figure_count; i++) {
        if (strcmp(self->figures[i].name, name) == 0)
            return isnan(self->figures[i].newest) ? NULL : &self->figures[i];
    }
    return NULL;
}

// The figure of a line's `hint`th name: lines mostly have the same names in the same order. NULL: there
// is no place for more.
static mics_status figure_of(history *self, const char *name, size_t bytes, int32_t hint,
                             history_figure **figure_out)
{
    for (int32_t i = 0; i < self->figure_count; i++) {
        *figure_out = &self->figures[(hint + i) % self->figure_count];
        if (strncmp((*figure_out)->name, name, bytes) == 0 && (*figure_out)->name[bytes] == '\0')
            return MICS_OK;
    }
    *figure_out = NULL;
    if (self->figure_count == HISTORY_MAX_FIGURES || bytes >= HISTORY_NAME_BYTES)
        return MICS_OK;
    history_figure figure = {.newest = NAN};
    memcpy(figure.name, name, bytes);
    MICS_TRY(MICS_NEW(self->memory, (size_t)self->bucket_count, &figure.buckets));
    *figure_out = &self->figures[self->figure_count++];
    **figure_out = figure;
    return MICS_OK;
}

static void add(history_bucket *bucket, history_bucket more)
{
    if (bucket->count > 0 && more.count > 0)
        more = (history_bucket){bucket->count + more.count, fmin(bucket->min, more.min),
                                fmax(bucket->max, more.max), bucket->sum + more.sum};
    *bucket = more.count > 0 ? more : *bucket;
}

// The bucket of a step; until there is one, two buckets become one.
static int64_t place(history *self, int64_t step)
{
    self->first = self->first < 0 ? step : self->first;
    self->last = step > self->last ? step : self->last;
    while ((step - self->first) / self->width >= self->bucket_count) {
        for (int32_t i = 0; i < self->figure_count * self->bucket_count; i++) {
            history_bucket *buckets = self->figures[i / self->bucket_count].buckets;
            const history_bucket from = buckets[i % self->bucket_count];
            buckets[i % self->bucket_count] = (history_bucket){0};
            add(&buckets[i % self->bucket_count / 2], from);
        }
        self->width *= 2;
    }
    return step > self->first ? (step - self->first) / self->width : 0;
}

// ---- lines ----

// A value: a number, null, or a text, which is of no figure. Returns what is behind it; NULL: it is none.
static const char *scan_value(const char *at, locale_t plain, double *value_out)
{
    char *end = NULL;
    *value_out = NAN;
    if (strncmp(at, "null", 4) == 0)
        return at + 4;
    if (*at == '"')
        return at[strcspn(at + 1, "\"") + 1] == '"' ? at + strcspn(at + 1, "\"") + 2 : NULL;
    *value_out = strtod_l(at, &end, plain);
    return end != at && isfinite(*value_out) ? end : NULL;
}

// Takes {"step": N, "name": value, ...}, unless it is none of ours.
static mics_status take_line(history *self, const char *at, locale_t plain, bool *ours_out)
{
    char *behind = NULL;
    const int64_t step = strncmp(at, "{\"step\": ", 9) == 0 ? strtoll(at + 9, &behind, 10) : -1;
    *ours_out = false;
    if (step < 0 || strcmp(at + strlen(at) - 2, "}\n") != 0)
        return MICS_OK;
    const int64_t bucket = place(self, step);
    at = behind;
    self->stopped = strncmp(at, ", \"stopped\"", 11) == 0;
    for (int32_t hint = 0; strncmp(at, ", \"", 3) == 0; hint++) {
        const char *name = at + 3;
        const size_t bytes = strcspn(name, "\"");
        history_figure *figure = NULL;
        double value = 0;
        at = strncmp(name + bytes, "\": ", 3) == 0 ? name + bytes + 3 : "";
        const bool text = *at == '"';
        at = scan_value(at, plain, &value);
        if (at == NULL)
            return MICS_OK;
        if (!text)
            MICS_TRY(figure_of(self, name, bytes, hint, &figure));
        if (figure != NULL && isnan(value)) {
            figure->nulls++;
        } else if (figure != NULL) {
            figure->newest = value;
            add(&figure->buckets[bucket], (history_bucket){1, value, value, value});
        }
    }
    *ours_out = strcmp(at, "}\n") == 0;
    return MICS_OK;
}

static mics_status read_lines(history *self, FILE *from, const char *path, locale_t plain)
{
    char line[LINE_BYTES];
    bool begins = true; // of what fgets gives in parts, the first part
    while (fgets(line, sizeof line, from) != NULL) {
        const size_t bytes = strlen(line);
        const bool newline = bytes > 0 && line[bytes - 1] == '\n';
        const bool ends = newline || bytes < sizeof line - 1; // behind a NUL, too
        bool ours = false;
        if (!newline && feof(from) != 0)
            break; // cut short, or still being written
        if (begins && newline)
            MICS_TRY(take_line(self, line, plain, &ours));
        self->lines += ends;
        self->damaged += ends && !ours;
        begins = ends;
    }
    if (ferror(from) != 0)
        return mics_fail(MICS_ERR_IO, "%s: cannot be read", path);
    return self->damaged == 0 || self->damaged < self->lines
               ? MICS_OK
               : mics_fail(MICS_ERR_FORMAT,
                           "%s: no line is of a run's metrics, which begin with {\"step\": ", path);
}

// ---- the file ----

mics_status history_open(mics_memory *memory, const char *path, int32_t bucket_count,
                         int64_t tail_bytes, history **history_out)
{
    history *self = NULL;
    MICS_TRY(mics_file_refuse_special(path));
    FILE *from = fopen(path, "re");
    if (from == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", path, strerror(errno));
    mics_status status = MICS_NEW(memory, 1, &self);
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (status == MICS_OK) {
        *self = (history){.memory = memory, .bucket_count = bucket_count, .width = 1};
        self->first = self->last = -1;
        // Of a file that is shorter the seek fails; else what it leaves of a line is passed over.
        if (tail_bytes > 0 && fseeko(from, -tail_bytes, SEEK_END) == 0)
            for (int c = 0; c != '\n' && c != EOF;)
                c = getc(from);
        status = read_lines(self, from, path, plain);
    }
    freelocale(plain);
    fclose(from);
    if (status == MICS_OK)
        *history_out = self;
    else
        history_close(self);
    return status;
}

void history_close(history *self)
{
    for (int32_t i = 0; self != NULL && i < self->figure_count; i++)
        mics_free(self->memory, self->figures[i].buckets);
    if (self != NULL)
        mics_free(self->memory, self);
}
