// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Traces in Chrome's trace-event format, written as they come.
//
// The file at `path` changes only by a rename of a whole trace that is on disk. Without a failure
// the bytes written and `text` together are whole entries.
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "mics/log.h"
#include "mics/report.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum {
    FLUSH_BYTES = 1 << 16,
    NAME_BYTES = 256, // with the NUL
    MAX_PROCESSES = 1 << 24,
    // Viewers show a thread whose number is that of its process before all others: ours begin above
    // any process, and no two processes share one.
    FIRST_THREAD = MAX_PROCESSES,
};

static const double MAX_US = 1e15;
static const double MAX_EXACT = 9007199254740992.0; // 2^53: integers that a double holds

struct mics_trace {
    mics_memory *memory;
    char *path;
    mics_file_aside aside;
    int fd;          // of `aside`; -1: closed
    int64_t written; // bytes of it
    int64_t entries, arrows;
    mics_text text;    // entries that are not written yet
    mics_text figures; // members of otherData, each behind a comma
    mics_status status;
};

// ---- opening ----

mics_status mics_trace_open(mics_memory *memory, const char *path, mics_trace **trace_out)
{
    mics_trace *trace = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &trace));
    mics_status status = MICS_OK;
    trace->memory = trace->text.memory = trace->figures.memory = memory;
    trace->fd = -1;
    MICS_TRY_OUT(mics_strdup(memory, path, &trace->path));
    MICS_TRY_OUT(mics_file_begin_aside(memory, path, 0, &trace->aside, &trace->fd));
    mics_text_printf(&trace->text, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
    MICS_TRY_OUT(mics_text_status(&trace->text));
    *trace_out = trace;
    trace = NULL;
out:
    mics_trace_close(trace);
    return status;
}

// ---- values ----

// A name as a JSON string, cut and cleaned as the header says.
static void put_name(mics_text *text, const char *name)
{
    char clean[NAME_BYTES];
    size_t used = 0;
    while (*name != '\0') {
        const int32_t bytes = mics_utf8_char(name, strlen(name));
        const size_t taken = bytes > 0 ? (size_t)bytes : 1;
        if (used + taken >= sizeof clean)
            break;
        memcpy(clean + used, bytes > 0 ? name : "?", taken);
        used += taken;
        name += taken;
    }
    clean[used] = '\0';
    mics_text_quoted(text, clean);
}

static void put_real(mics_text *text, double value)
{
    char digits[32];
    if (!isfinite(value))
        mics_text_printf(text, "null");
    else if (value == trunc(value) && fabs(value) < MAX_EXACT)
        mics_text_printf(text, "%" PRId64, (int64_t)value);
    else
        mics_text_printf(text, "%s", mics_text_real(value, digits, sizeof digits));
}

// Begin and end are rounded alike, so that events which meet do not overlap afterwards.
static int64_t ns_of(double us)
{
    return (int64_t)llround(us * 1e3);
}

static void put_time(mics_text *text, const char *key, int64_t ns)
{
    const int64_t positive = ns < 0 ? -ns : ns;
    mics_text_printf(text, ", \"%s\": %s%" PRId64 ".%03d", key, ns < 0 ? "-" : "", positive / 1000,
                     (int)(positive % 1000));
}

// ---- entries ----

static void fail(mics_trace *trace, mics_status status)
{
    if (trace->status == MICS_OK)
        trace->status = status;
}

static void flush(mics_trace *trace)
{
    fail(trace, mics_text_status(&trace->text));
    if (trace->status != MICS_OK || trace->text.used == 0)
        return;
    fail(trace, mics_file_write_at(trace->fd, trace->aside.path, trace->text.bytes,
                                   trace->text.used, trace->written));
    trace->written += (int64_t)trace->text.used;
    trace->text.used = 0;
    trace->text.bytes[0] = '\0';
}

// Begins an entry of a process and, unless it is -1, of one of its tracks. False: write nothing.
static bool begin_entry(mics_trace *trace, const char *phase, int32_t process, int32_t track)
{
    if (trace->status != MICS_OK)
        return false;
    if (process < 0 || process >= MAX_PROCESSES || track < -1 || track >= MICS_TRACE_TRACKS) {
        fail(trace, mics_fail(MICS_ERR_INVALID, "%s: no trace has process %d, track %d",
                              trace->path, (int)process, (int)track));
        return false;
    }
    mics_text_printf(&trace->text, "%s\n{\"ph\": \"%s\", \"pid\": %d",
                     trace->entries++ > 0 ? "," : "", phase, (int)process);
    if (track >= 0)
        mics_text_printf(&trace->text, ", \"tid\": %" PRId64,
                         FIRST_THREAD + (int64_t)process * MICS_TRACE_TRACKS + track);
    return true;
}

static void end_entry(mics_trace *trace)
{
    mics_text_printf(&trace->text, "}");
    if (trace->text.used >= FLUSH_BYTES)
        flush(trace);
    fail(trace, mics_text_status(&trace->text));
}

// A name, and a number that orders it among the others.
static void put_metadata(mics_trace *trace, int32_t process, int32_t track, const char *name)
{
    const char *what = track < 0 ? "process" : "thread";
    mics_text *text = &trace->text;
    if (!begin_entry(trace, "M", process, track))
        return;
    mics_text_printf(text, ", \"name\": \"%s_name\", \"args\": {\"name\": ", what);
    put_name(text, name);
    mics_text_printf(text, "}");
    end_entry(trace);
    if (!begin_entry(trace, "M", process, track))
        return;
    mics_text_printf(text, ", \"name\": \"%s_sort_index\", \"args\": {\"sort_index\": %d}", what,
                     (int)(track < 0 ? process : track));
    end_entry(trace);
}

void mics_trace_name_process(mics_trace *trace, int32_t process, const char *name)
{
    put_metadata(trace, process, -1, name);
}

void mics_trace_name_track(mics_trace *trace, int32_t process, int32_t track, const char *name)
{
    put_metadata(trace, process, track, name);
}

static void put_args(mics_text *text, const mics_trace_arg *args, int32_t count)
{
    mics_text_printf(text, ", \"args\": {");
    for (int32_t i = 0; i < count; i++) {
        mics_text_printf(text, i > 0 ? ", " : "");
        put_name(text, args[i].name);
        mics_text_printf(text, ": ");
        if (args[i].text != NULL)
            put_name(text, args[i].text);
        else
            put_real(text, args[i].value);
    }
    mics_text_printf(text, "}");
}

static bool is_time(double us)
{
    return fabs(us) <= MAX_US; // false for NaN
}

void mics_trace_write(mics_trace *trace, const mics_trace_event *event)
{
    mics_text *text = &trace->text;
    if (trace->status == MICS_OK &&
        !(is_time(event->begin_us) && is_time(event->end_us) && event->begin_us <= event->end_us))
        fail(trace, mics_fail(MICS_ERR_INVALID, "%s: an event that lasts from %g to %g us",
                              trace->path, event->begin_us, event->end_us));
    if (!begin_entry(trace, "X", event->process, event->track))
        return;
    put_time(text, "ts", ns_of(event->begin_us));
    put_time(text, "dur", ns_of(event->end_us) - ns_of(event->begin_us));
    mics_text_printf(text, ", \"name\": ");
    put_name(text, event->name);
    mics_text_printf(text, ", \"cat\": ");
    put_name(text, event->category);
    if (event->arg_count > 0)
        put_args(text, event->args, event->arg_count);
    end_entry(trace);
}

// One end of an arrow; it belongs to the event that is under way at that time.
static void put_arrow_end(mics_trace *trace, const char *phase, const mics_trace_event *event,
                          int64_t ns)
{
    if (!begin_entry(trace, phase, event->process, event->track))
        return;
    put_time(&trace->text, "ts", ns);
    mics_text_printf(&trace->text,
                     ", \"id\": %" PRId64 ", \"name\": \"waits\", \"cat\": \"waits\"%s",
                     trace->arrows, *phase == 'f' ? ", \"bp\": \"e\"" : "");
    end_entry(trace);
}

void mics_trace_arrow(mics_trace *trace, const mics_trace_event *from, const mics_trace_event *to)
{
    const int64_t begin = ns_of(from->begin_us), end = ns_of(from->end_us);
    trace->arrows++;
    put_arrow_end(trace, "s", from, end > begin ? end - 1 : begin);
    put_arrow_end(trace, "f", to, ns_of(to->begin_us));
}

// ---- figures about the whole ----

static mics_text *begin_figure(mics_trace *trace, const char *name)
{
    mics_text_printf(&trace->figures, ",\n");
    put_name(&trace->figures, name);
    mics_text_printf(&trace->figures, ": ");
    return &trace->figures;
}

void mics_trace_note_text(mics_trace *trace, const char *name, const char *text)
{
    put_name(begin_figure(trace, name), text);
}

void mics_trace_note_real(mics_trace *trace, const char *name, double value)
{
    put_real(begin_figure(trace, name), value);
}

void mics_trace_note_reals(mics_trace *trace, const char *name, const double *values, int32_t count)
{
    mics_text *text = begin_figure(trace, name);
    mics_text_printf(text, "[");
    for (int32_t i = 0; i < count; i++) {
        mics_text_printf(text, i > 0 ? ", " : "");
        put_real(text, values[i]);
    }
    mics_text_printf(text, "]");
}

// ---- the end ----

mics_status mics_trace_finish(mics_trace *trace)
{
    fail(trace, mics_text_status(&trace->figures));
    if (trace->status == MICS_OK) {
        mics_text_printf(&trace->text, "\n],\n\"otherData\": {%s\n}}\n",
                         trace->figures.used > 0 ? trace->figures.bytes + 1 : "");
        flush(trace);
    }
    trace->status = mics_file_close_written(trace->fd, trace->aside.path, trace->status);
    trace->fd = -1;
    if (trace->status == MICS_OK)
        trace->status = mics_file_place(trace->memory, &trace->aside, trace->path);
    if (trace->status == MICS_OK)
        return mics_file_sync_dir_of(trace->path);
    mics_file_drop(trace->memory, &trace->aside);
    return trace->status;
}

void mics_trace_close(mics_trace *trace)
{
    if (trace == NULL)
        return;
    if (trace->fd >= 0)
        close(trace->fd);
    mics_file_drop(trace->memory, &trace->aside);
    mics_text_fini(&trace->text);
    mics_text_fini(&trace->figures);
    mics_free(trace->memory, trace->path);
    mics_free(trace->memory, trace);
}
