// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The figures of metrics.jsonl as a table. Rows are whole lines: what a crash leaves of the last
// one goes when the run resumes.
#include "base/file.h"
#include "base/text.h"
#include "io/report/figures.h"
#include "mics/log.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 }; // ours have some 300
enum { MAX_OLD = 9999 };

static const char validation_name[] = "validation_loss";

struct mics_csv {
    mics_memory *memory;
    char *path;
    FILE *stream;
    off_t end; // of the newest row that is whole
};

static void put_header(mics_text *text)
{
    const mics_metrics none = {0};
    metrics_figure figures[METRICS_FIGURES];
    metrics_figures(&none, figures);
    mics_text_printf(text, "step");
    for (int32_t i = 0; i < METRICS_FIGURES; i++)
        mics_text_printf(text, ",%s", figures[i].name);
    mics_text_printf(text, ",%s\n", validation_name);
}

// ---- keeping the rows of a run that is resumed ----

static mics_status read_header(const char *path, const char *header, FILE *from)
{
    char line[LINE_BYTES] = "";
    if (fgets(line, sizeof line, from) == NULL || strcmp(line, header) == 0)
        return MICS_OK; // an empty file is anybody's
    return mics_fail(MICS_ERR_INVALID,
                     "%s: is there, and its first line is not the header of a run's figures; name "
                     "another file, or move it away",
                     path);
}

static mics_status copy_rows(const char *path, FILE *from, const char *header, int64_t last,
                             FILE *to)
{
    char line[LINE_BYTES];
    MICS_TRY(read_header(path, header, from));
    fputs(header, to);
    while (fgets(line, sizeof line, from) != NULL) {
        char *end = NULL;
        const long long step = strtoll(line, &end, 10);
        if (end != line && *end == ',' && step <= last && strchr(line, '\n') != NULL)
            fputs(line, to);
    }
    return ferror(from) == 0 ? MICS_OK : mics_fail(MICS_ERR_IO, "%s: cannot read", path);
}

// `from` NULL: there is no file yet.
static mics_status write_aside(const mics_csv *csv, FILE *from, const char *header, int64_t last)
{
    mics_file_aside aside = {0};
    int fd = -1;
    mics_status status = MICS_OK;
    MICS_TRY(mics_file_begin_aside(csv->memory, csv->path, 0, &aside, &fd));
    FILE *to = fdopen(fd, "w");
    if (to == NULL) {
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot write: %s", aside.path,
                           strerror(errno));
        close(fd);
        goto out;
    }
    if (from != NULL)
        status = copy_rows(csv->path, from, header, last, to);
    else
        fputs(header, to);
    const mics_status closed = mics_file_close_stream(to, aside.path);
    status = status != MICS_OK ? status : closed;
    if (status == MICS_OK)
        status = mics_file_place(csv->memory, &aside, csv->path);
out:
    mics_file_drop(csv->memory, &aside);
    return status;
}

static bool has_rows(const char *header, FILE *from)
{
    char line[LINE_BYTES] = "";
    const bool found = fgets(line, sizeof line, from) != NULL && strcmp(line, header) == 0 &&
                       fgets(line, sizeof line, from) != NULL;
    rewind(from);
    return found;
}

// The first of FILE.old, FILE.old2, ... that is not there.
static mics_status name_old(const mics_csv *csv, char **old_out)
{
    struct stat facts;
    char suffix[32] = ".old";
    for (int32_t i = 2; i <= MAX_OLD; i++) {
        char *old = NULL;
        MICS_TRY(mics_file_suffixed(csv->memory, csv->path, suffix, &old));
        if (lstat(old, &facts) != 0) { // where it cannot be looked at, renaming says why
            *old_out = old;
            return MICS_OK;
        }
        mics_free(csv->memory, old);
        mics_text_format(suffix, sizeof suffix, ".old%d", (int)i);
    }
    return mics_fail(MICS_ERR_IO,
                     "%s: there are %d files of earlier runs beside it; move some away", csv->path,
                     MAX_OLD - 1);
}

// A run that starts anew has no rows there: they are another's, and stay beside its own.
static mics_status keep_old(const mics_csv *csv)
{
    char *old = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(name_old(csv, &old));
    if (rename(csv->path, old) != 0)
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot rename to %s: %s", csv->path,
                           old, strerror(errno));
    else
        mics_log(MICS_LOG_INFO, "%s: the rows of an earlier run are in %s now", csv->path, old);
    mics_free(csv->memory, old);
    return status;
}

static mics_status cut(const mics_csv *csv, const char *header, int64_t last)
{
    struct stat facts;
    FILE *from = fopen(csv->path, "re");
    mics_status status = MICS_OK;
    if (from == NULL && errno != ENOENT)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", csv->path,
                         strerror(errno));
    if (from != NULL && (fstat(fileno(from), &facts) != 0 || !S_ISREG(facts.st_mode)))
        status = mics_fail(MICS_ERR_INVALID, "%s: is not a regular file", csv->path);
    else if (from != NULL && last < 0 && has_rows(header, from))
        status = keep_old(csv);
    if (status == MICS_OK)
        status = write_aside(csv, from, header, last);
    if (from != NULL)
        fclose(from);
    return status;
}

// ---- opening ----

static mics_status make_folder_of(const mics_csv *csv)
{
    const char *name = strrchr(csv->path, '/');
    mics_text folder = {.memory = csv->memory};
    if (name == NULL || name == csv->path)
        return MICS_OK;
    mics_text_printf(&folder, "%.*s", (int)(name - csv->path), csv->path);
    mics_status status = mics_text_status(&folder);
    if (status == MICS_OK)
        status = mics_file_make_dirs(csv->memory, folder.bytes, NULL);
    mics_text_fini(&folder);
    return status;
}

static mics_status open_path(mics_csv *csv, int64_t resume_step)
{
    mics_text header = {.memory = csv->memory};
    MICS_TRY(make_folder_of(csv));
    put_header(&header);
    mics_status status = mics_text_status(&header);
    if (status == MICS_OK)
        status = cut(csv, header.bytes, resume_step);
    mics_text_fini(&header);
    MICS_TRY(status);
    csv->stream = fopen(csv->path, "ae");
    if (csv->stream == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot write: %s", csv->path,
                         strerror(errno));
    csv->end = fseeko(csv->stream, 0, SEEK_END) == 0 ? ftello(csv->stream) : -1;
    return MICS_OK;
}

mics_status mics_csv_open(mics_memory *memory, const char *path, int64_t resume_step,
                          mics_csv **csv_out)
{
    mics_csv *csv = NULL;
    MICS_TRY(mics_file_refuse_special(path));
    MICS_TRY(MICS_NEW(memory, 1, &csv));
    csv->memory = memory;
    mics_status status = mics_strdup(memory, path, &csv->path);
    if (status == MICS_OK)
        status = open_path(csv, resume_step);
    if (status == MICS_OK)
        *csv_out = csv;
    else
        (void)mics_csv_close(csv);
    return status;
}

mics_status mics_csv_close(mics_csv *csv)
{
    mics_status status = MICS_OK;
    if (csv == NULL)
        return MICS_OK;
    if (csv->stream != NULL)
        status = mics_file_close_stream(csv->stream, csv->path);
    mics_free(csv->memory, csv->path);
    mics_free(csv->memory, csv);
    return status;
}

// ---- writing ----

static mics_status end_row(mics_csv *csv, bool written)
{
    if (written && fputc('\n', csv->stream) != EOF && fflush(csv->stream) == 0) {
        csv->end = ftello(csv->stream);
        return MICS_OK;
    }
    const int cause = errno;
    // What has reached the file of this row is taken back, so that a later one stands by itself.
    __fpurge(csv->stream);
    clearerr(csv->stream);
    if (csv->end >= 0 && ftruncate(fileno(csv->stream), csv->end) != 0)
        mics_log(MICS_LOG_WARNING, "%s: holds part of a row: %s", csv->path, strerror(errno));
    return mics_fail(mics_status_of_errno(cause), "%s: cannot write: %s", csv->path,
                     strerror(cause));
}

static bool put_real(FILE *to, double value)
{
    char digits[32];
    const char *text = isfinite(value) ? mics_text_real(value, digits, sizeof digits) : "";
    return fprintf(to, ",%s", text) > 0;
}

mics_status mics_csv_write(mics_csv *csv, const mics_metrics *metrics)
{
    metrics_figure figures[METRICS_FIGURES];
    metrics_figures(metrics, figures);
    bool good = fprintf(csv->stream, "%" PRId64, metrics->step) > 0;
    for (int32_t i = 0; i < METRICS_FIGURES; i++)
        good = good && (figures[i].counted ? fprintf(csv->stream, ",%" PRId64, figures[i].count) > 0
                                           : put_real(csv->stream, figures[i].value));
    return end_row(csv, good && fputc(',', csv->stream) != EOF);
}

mics_status mics_csv_write_validation(mics_csv *csv, int64_t step, double loss)
{
    bool good = fprintf(csv->stream, "%" PRId64, step) > 0;
    for (int32_t i = 0; i < METRICS_FIGURES; i++)
        good = good && fputc(',', csv->stream) != EOF;
    return end_row(csv, good && put_real(csv->stream, loss));
}
