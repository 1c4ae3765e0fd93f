// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one object a line, each handed to the system before the next step.
//
// The file at `path` is a sequence of whole lines, but for the last ones after a crash. A resume drops
// lines by renaming a complete file over the old one.
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/report/figures.h"
#include "mics/log.h"
#include "mics/report.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 }; // ours have some 600

struct mics_metrics_file {
    mics_memory *memory;
    char *path;
    FILE *stream;
    off_t end; // of the newest line that is whole
};

// ---- keeping the lines of a run that is resumed ----

// Step of one line without its newline, or MICS_ERR_FORMAT.
static mics_status read_step(mics_memory *memory, const char *name, const char *line, size_t bytes,
                             int64_t *step_out)
{
    mics_json *json = NULL;
    MICS_TRY(mics_json_parse_line(memory, name, line, bytes, &json));
    const mics_json_value *step = mics_json_get(mics_json_root(json), "step");
    mics_status status = MICS_OK;
    if (mics_json_type_of(step) != MICS_JSON_INT || mics_json_int(step) < 0)
        status = mics_fail(MICS_ERR_FORMAT,
                           "%s: no \"step\" that counts; this is none of our metrics.jsonl: move "
                           "the file away",
                           name);
    else
        *step_out = mics_json_int(step);
    mics_json_close(json);
    return status;
}

// One line, or as much of it as fits, as fgets gave it.
typedef struct text_line {
    char text[LINE_BYTES];
    size_t bytes; // before the newline, or before what stands in its place
    bool whole;   // it ends in a newline
    bool zeros;   // it has a NUL: blocks of them are what a file system leaves after a power loss
} text_line;

static bool next_line(FILE *from, text_line *line_out)
{
    if (fgets(line_out->text, sizeof line_out->text, from) == NULL)
        return false;
    line_out->bytes = strcspn(line_out->text, "\n");
    line_out->whole = line_out->text[line_out->bytes] == '\n';
    line_out->zeros = !line_out->whole && line_out->bytes < sizeof line_out->text - 1;
    return true;
}

static mics_status read_line(mics_memory *memory, const char *name, const text_line *line,
                             int64_t *step_out)
{
    if (line->whole)
        return read_step(memory, name, line->text, line->bytes, step_out);
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: has a NUL, or more than %d bytes; this is none of our metrics.jsonl: "
                     "move the file away",
                     name, LINE_BYTES);
}

// The same for a file that has shown to be ours: damage is a warning, and gives step INT64_MAX.
static mics_status read_own_line(mics_memory *memory, const char *name, const text_line *line,
                                 int64_t *step_out)
{
    *step_out = INT64_MAX;
    if (line->zeros) // there may be many; counted by the caller
        return MICS_OK;
    bool before = mics_log_demote(true);
    mics_status status = read_line(memory, name, line, step_out);
    mics_log_demote(before);
    if (status == MICS_OK || status == MICS_ERR_FORMAT)
        return MICS_OK;
    return mics_fail(status, "%s: cannot be read: %s", name, mics_status_text(status));
}

// Copies the lines of steps up to `last` that are whole. A file without a line of ours is refused;
// in one of ours damage is left out, as it must not keep a run from going on.
static mics_status copy_lines(mics_memory *memory, const char *path, FILE *from, int64_t last,
                              FILE *to)
{
    text_line line;
    char name[LINE_BYTES];
    bool ours = false, zeros = false;
    for (int64_t number = 1; next_line(from, &line); number += line.whole ? 1 : 0) {
        int64_t step = 0;
        snprintf(name, sizeof name, "%s, line %" PRId64, path, number);
        if (!line.whole && feof(from) != 0)
            break; // cut short by a crash
        if (ours || line.zeros)
            MICS_TRY(read_own_line(memory, name, &line, &step));
        else
            MICS_TRY(read_line(memory, name, &line, &step));
        ours = ours || step < INT64_MAX;
        zeros = zeros || line.zeros;
        if (step <= last)
            fputs(line.text, to);
    }
    if (ferror(from) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot read: %s", path, strerror(errno));
    if (zeros)
        mics_log(MICS_LOG_WARNING, "%s: lines with NULs in them are left out", path);
    return MICS_OK;
}

static mics_status write_aside(mics_memory *memory, const char *path, FILE *from, int64_t last)
{
    mics_file_aside aside = {0};
    int fd = -1;
    mics_status status = MICS_OK;
    MICS_TRY(mics_file_begin_aside(memory, path, 0, &aside, &fd));
    FILE *to = fdopen(fd, "w");
    if (to == NULL) {
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot write: %s", aside.path,
                           strerror(errno));
        close(fd);
        goto out;
    }
    status = copy_lines(memory, path, from, last, to);
    if (status == MICS_OK)
        status = mics_file_close_stream(to, aside.path);
    else
        fclose(to);
    if (status == MICS_OK)
        status = mics_file_place(memory, &aside, path);
out:
    mics_file_drop(memory, &aside);
    return status == MICS_OK ? mics_file_sync_dir_of(path) : status;
}

// Drops what a resume at step `last` will write again.
static mics_status cut(mics_memory *memory, const char *path, int64_t last)
{
    struct stat facts;
    mics_status status = MICS_OK;
    FILE *from = fopen(path, "re");
    if (from == NULL && errno == ENOENT)
        return MICS_OK;
    if (from == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fileno(from), &facts) != 0 || !S_ISREG(facts.st_mode)) {
        status = mics_fail(MICS_ERR_IO, "%s: is not a regular file", path);
        goto out;
    }
    MICS_TRY_OUT(write_aside(memory, path, from, last));
out:
    fclose(from);
    return status;
}

// ---- verifying ----

enum { MAX_TOLD = 20 };

typedef struct metrics_reader {
    mics_memory *memory;
    const char *path;
    void (*problem)(void *ctx, const char *line);
    void *ctx;
    int64_t lines, step; // of the newest line
    bool trained;        // that line was a step's
    int64_t problems;
} metrics_reader;

static void tell(metrics_reader *r, const char *what)
{
    if (r->problems++ < MAX_TOLD)
        r->problem(r->ctx, what);
}

// A step's line stands behind those of steps before it, a validation's behind its step's.
static void check_order(metrics_reader *r, const char *name, const text_line *line, int64_t step)
{
    char what[LINE_BYTES + 100];
    const bool trained = strstr(line->text, "\"validation_loss\"") == NULL;
    if (step < r->step || (step == r->step && trained && r->trained)) {
        snprintf(what, sizeof what, "%s: step %" PRId64 " stands behind step %" PRId64, name, step,
                 r->step);
        tell(r, what);
    }
    r->step = step;
    r->trained = trained;
}

static mics_status verify_line(metrics_reader *r, const char *name, const text_line *line,
                               bool last)
{
    char what[LINE_BYTES + 100];
    int64_t step = 0;
    if (last && !line->whole) {
        snprintf(what, sizeof what,
                 "%s: is cut short, as a crash leaves it; a run that resumes drops it", name);
        tell(r, what);
        return MICS_OK;
    }
    const mics_status status = read_line(r->memory, name, line, &step);
    if (status == MICS_OK)
        check_order(r, name, line, step);
    else if (status == MICS_ERR_FORMAT && mics_log_take(what, sizeof what))
        tell(r, what);
    return status == MICS_ERR_FORMAT ? MICS_OK : status;
}

static mics_status verify_lines(metrics_reader *r, FILE *from)
{
    text_line line;
    char name[LINE_BYTES];
    bool begins = true; // of what fgets gives in parts, the first part
    while (next_line(from, &line)) {
        snprintf(name, sizeof name, "%s, line %" PRId64, r->path, r->lines + 1);
        if (begins)
            MICS_TRY(verify_line(r, name, &line, feof(from) != 0));
        begins = line.whole || line.zeros;
        r->lines += line.whole || line.zeros ? 1 : 0;
    }
    if (ferror(from) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot read: %s", r->path,
                         strerror(errno));
    return MICS_OK;
}

mics_status mics_metrics_verify(mics_memory *memory, const char *path,
                                void (*problem)(void *ctx, const char *line), void *ctx,
                                int64_t *lines_out)
{
    metrics_reader reader = {
        .memory = memory, .path = path, .problem = problem, .ctx = ctx, .step = -1};
    char more[LINE_BYTES + 100];
    FILE *from = fopen(path, "re");
    if (from == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", path, strerror(errno));
    mics_log_hold(false);
    const mics_status status = verify_lines(&reader, from);
    mics_log_release(status != MICS_OK, -1);
    fclose(from);
    if (reader.problems > MAX_TOLD) {
        snprintf(more, sizeof more, "%s: %" PRId64 " more lines like these", path,
                 reader.problems - MAX_TOLD);
        problem(ctx, more);
    }
    if (status == MICS_OK)
        *lines_out = reader.lines;
    return status;
}

// ---- validations ----

static bool is_validation(const text_line *line)
{
    return line->whole && strstr(line->text, "\"validation_loss\"") != NULL;
}

mics_status mics_metrics_validations(mics_memory *memory, const char *path, int64_t last,
                                     void (*each)(void *ctx, int64_t step, double loss), void *ctx)
{
    text_line line;
    FILE *from = fopen(path, "re");
    if (from == NULL && errno == ENOENT)
        return MICS_OK;
    if (from == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", path, strerror(errno));
    const bool muted = mics_log_mute(true); // damage was told when the file was opened for writing
    while (next_line(from, &line)) {
        mics_json *json = NULL;
        if (!is_validation(&line) ||
            mics_json_parse(memory, path, line.text, line.bytes, &json) != MICS_OK)
            continue;
        const mics_json_value *step = mics_json_at(json, "step");
        const mics_json_value *loss = mics_json_at(json, "validation_loss");
        if (mics_json_type_of(step) == MICS_JSON_INT && mics_json_int(step) <= last)
            each(ctx, mics_json_int(step), mics_json_is_number(loss) ? mics_json_real(loss) : NAN);
        mics_json_close(json);
    }
    mics_log_mute(muted);
    const bool failed = ferror(from) != 0;
    fclose(from);
    return failed ? mics_fail(MICS_ERR_IO, "%s: cannot read", path) : MICS_OK;
}

mics_status mics_metrics_newest(mics_memory *memory, const char *path, const char *key,
                                int64_t *step_out)
{
    text_line line;
    FILE *from = fopen(path, "re");
    *step_out = -1;
    if (from == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", path, strerror(errno));
    const bool muted = mics_log_mute(true); // damage is told when the file is opened for writing
    while (next_line(from, &line)) {
        mics_json *json = NULL;
        if (!line.whole || strstr(line.text, key) == NULL ||
            mics_json_parse(memory, path, line.text, line.bytes, &json) != MICS_OK)
            continue;
        const mics_json_value *step = mics_json_at(json, "step");
        if (mics_json_at(json, key) != NULL && mics_json_type_of(step) == MICS_JSON_INT &&
            mics_json_int(step) > *step_out)
            *step_out = mics_json_int(step);
        mics_json_close(json);
    }
    mics_log_mute(muted);
    const bool failed = ferror(from) != 0;
    fclose(from);
    return failed ? mics_fail(MICS_ERR_IO, "%s: cannot read", path) : MICS_OK;
}

// ---- writing ----

mics_status mics_metrics_open(mics_memory *memory, const char *path, int64_t resume_step,
                              mics_metrics_file **file_out)
{
    mics_metrics_file *file = NULL;
    MICS_TRY(mics_file_refuse_special(path));
    MICS_TRY(MICS_NEW(memory, 1, &file));
    mics_status status = MICS_OK;
    file->memory = memory;
    MICS_TRY_OUT(mics_strdup(memory, path, &file->path));
    MICS_TRY_OUT(cut(memory, path, resume_step > 0 ? resume_step : -1));
    file->stream = fopen(path, "ae");
    if (file->stream == NULL) {
        status =
            mics_fail(mics_status_of_errno(errno), "%s: cannot write: %s", path, strerror(errno));
        goto out;
    }
    file->end = fseeko(file->stream, 0, SEEK_END) == 0 ? ftello(file->stream) : -1;
    *file_out = file;
    file = NULL;
out:
    mics_metrics_close(file);
    return status;
}

static mics_status flush_line(mics_metrics_file *file, bool written)
{
    if (written && fflush(file->stream) == 0) {
        file->end = ftello(file->stream);
        return MICS_OK;
    }
    const int cause = errno;
    // What has reached the file of this line is taken back, so that a later one stands by itself.
    __fpurge(file->stream);
    clearerr(file->stream);
    if (file->end >= 0 && ftruncate(fileno(file->stream), file->end) != 0)
        mics_log(MICS_LOG_WARNING, "%s: holds part of a line: %s", file->path, strerror(errno));
    return mics_fail(mics_status_of_errno(cause), "%s: cannot write: %s", file->path,
                     strerror(cause));
}

// Writes `, "name": value` with as many digits as give its bits back, so that runs can be compared;
// null when it is no number of JSON's.
static bool put_real(FILE *stream, const char *name, double value)
{
    char digits[32];
    const char *text = isfinite(value) ? mics_text_real(value, digits, sizeof digits) : "null";
    return fprintf(stream, ", \"%s\": %s", name, text) > 0;
}

static bool put_int(FILE *stream, const char *name, int64_t value)
{
    return fprintf(stream, ", \"%s\": %" PRId64, name, value) > 0;
}

static bool put_router(FILE *stream, const mics_router_metrics *router)
{
    return !router->any || (put_real(stream, "router_entropy", router->entropy) &&
                            put_real(stream, "router_fullest", router->fullest) &&
                            put_real(stream, "router_balance", router->balance) &&
                            put_real(stream, "router_dropped", router->dropped));
}

static bool put_preference(FILE *stream, const char *prefix, const mics_preference_metrics *of)
{
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"rewards/chosen", of->chosen},         {"rewards/rejected", of->rejected},
        {"rewards/accuracies", of->accuracies}, {"rewards/margins", of->chosen - of->rejected},
        {"logps/chosen", of->logps_chosen},     {"logps/rejected", of->logps_rejected}};
    bool good = true;
    for (size_t i = 0; of->any && i < sizeof rows / sizeof *rows; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", prefix, rows[i].name);
        good = good && put_real(stream, name, rows[i].value);
    }
    return good;
}

static bool put_islands(FILE *stream, const mics_island_metrics *of)
{
    return of->islands == 0 || (put_int(stream, "islands_updated", of->updated) &&
                                put_int(stream, "meeting_intra_bytes", of->meeting_intra_bytes) &&
                                put_int(stream, "meeting_inter_bytes", of->meeting_inter_bytes) &&
                                put_real(stream, "exposed_meeting_ms", of->exposed_meeting_ms));
}

static bool put_step(FILE *to, const mics_metrics *metrics)
{
    metrics_figure figures[METRICS_FIGURES];
    metrics_figures(metrics, figures);
    bool good = fprintf(to, "{\"step\": %" PRId64, metrics->step) > 0;
    for (int32_t i = 0; i < METRICS_FIGURES; i++)
        good = good && (figures[i].counted ? put_int(to, figures[i].name, figures[i].count)
                                           : put_real(to, figures[i].name, figures[i].value));
    good = good && put_router(to, &metrics->router) &&
           put_preference(to, "", &metrics->preference) && put_islands(to, &metrics->islands) &&
           (metrics->phase == 0 || put_int(to, "phase", metrics->phase));
    return good && fputc('}', to) != EOF;
}

mics_status mics_metrics_write(mics_metrics_file *file, const mics_metrics *metrics)
{
    FILE *to = file->stream;
    return flush_line(file, put_step(to, metrics) && fputc('\n', to) != EOF);
}

mics_status mics_metrics_text(const mics_metrics *metrics, char *text, size_t capacity)
{
    FILE *to = fmemopen(text, capacity, "w");
    if (to == NULL)
        return mics_fail(MICS_ERR_MEMORY, "no memory for the figures of a step");
    setbuf(to, NULL);
    const bool good = put_step(to, metrics) && fputc('\0', to) != EOF;
    return fclose(to) == 0 && good
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID, "the figures of a step take more than %zu bytes",
                           capacity);
}

mics_status mics_metrics_write_validation(mics_metrics_file *file, int64_t step, double loss,
                                          const mics_preference_metrics *preference)
{
    bool good = fprintf(file->stream, "{\"step\": %" PRId64, step) > 0 &&
                put_real(file->stream, "validation_loss", loss) &&
                put_preference(file->stream, "eval_", preference);
    return flush_line(file, good && fputs("}\n", file->stream) != EOF);
}

mics_status mics_metrics_write_stop(mics_metrics_file *file, int64_t step, int64_t best_step,
                                    double best_loss)
{
    bool good = fprintf(file->stream, "{\"step\": %" PRId64 ", \"stopped\": \"no improvement\"",
                        step) > 0 &&
                put_int(file->stream, "best_step", best_step) &&
                put_real(file->stream, "best_validation_loss", best_loss);
    return flush_line(file, good && fputs("}\n", file->stream) != EOF);
}

mics_status mics_metrics_write_sample(mics_metrics_file *file, int64_t step, const char *prompt,
                                      const char *text)
{
    enum { TEXT_BYTES = LINE_BYTES - 256 };
    mics_text line = {.memory = file->memory};
    size_t bytes = strlen(text);
    mics_status status = MICS_OK;
    // A line that the next start can read: what does not fit is cut, at a whole character.
    do {
        char *head = NULL;
        bytes = mics_utf8_valid(text, bytes);
        MICS_TRY(mics_strdup(file->memory, text, &head));
        head[bytes] = '\0';
        mics_text_fini(&line);
        line = (mics_text){.memory = file->memory};
        mics_text_printf(&line, "{\"step\": %" PRId64 ", \"prompt\": ", step);
        mics_text_quoted(&line, prompt);
        mics_text_printf(&line, ", \"text\": ");
        mics_text_quoted(&line, head);
        mics_text_printf(&line, "}\n");
        mics_free(file->memory, head);
        MICS_TRY_OUT(mics_text_status(&line));
        bytes -= bytes / 4;
    } while (line.used > TEXT_BYTES && bytes > 8);
    status = flush_line(file, fputs(line.bytes, file->stream) != EOF);
out:
    mics_text_fini(&line);
    return status;
}

mics_status mics_metrics_close(mics_metrics_file *file)
{
    if (file == NULL)
        return MICS_OK;
    mics_status status = MICS_OK;
    if (file->stream != NULL)
        status = mics_file_close_stream(file->stream, file->path);
    mics_free(file->memory, file->path);
    mics_free(file->memory, file);
    return status;
}
