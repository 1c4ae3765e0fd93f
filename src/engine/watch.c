// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Explains a collective that is late, from the board: which ranks have not entered it, and what each
// of them was last seen doing.
//
// Who speaks. All ranks of a late collective time out at nearly the same moment, and one report is
// what people read. Rank 0 reads all notes and speaks at once, as do ranks that are threads; the last
// rank, which reads them too, waits for rank 0 to end the world, in case rank 0 is the one that
// hangs; others, who know least, wait longest.
#include "engine/engine_internal.h"
#include "mics/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TEXT_BYTES = 900, NAMED_RANKS = 4 };

static const double last_rank_waits_s = 1.5, others_wait_s = 6;
// Signs of life come several times a second over MPI.
static const double alive_s = 0.6, silent_s = 1.5;

typedef struct report {
    const mics_engine *engine;
    engine_note mine;   // as this rank's late collective stands
    mics_stream stream; // that it runs on
    char text[TEXT_BYTES];
} report;

MICS_PRINTF(2, 3) static void append(report *r, const char *format, ...)
{
    const size_t used = strlen(r->text);
    va_list args;
    va_start(args, format);
    vsnprintf(r->text + used, TEXT_BYTES - used, format, args);
    va_end(args);
}

static bool read_note(const report *r, int32_t rank, engine_note *note_out, double *age_s_out)
{
    mics_note bytes;
    if (!mics_comm_read(r->engine->spec.comm, rank, &bytes, age_s_out))
        return false;
    memcpy(note_out, bytes.bytes, sizeof *note_out);
    return true;
}

static bool reads_board(const report *r)
{
    engine_note note;
    double age_s = 0;
    for (int32_t rank = 0; rank < r->engine->spec.comm->ranks; rank++) {
        if (rank != r->engine->rank && read_note(r, rank, &note, &age_s))
            return true;
    }
    return false;
}

static bool is_inside(const engine_note *note, mics_stream stream)
{
    return (note->inside & (1 << stream)) != 0;
}

// Whether a rank has entered the late collective, as far as its newest note tells.
static bool has_entered(const report *r, const engine_note *note)
{
    if (note->step != r->mine.step || note->phase != r->mine.phase)
        return note->step > r->mine.step;
    const int32_t at = note->at[r->stream], late = r->mine.at[r->stream];
    return at > late || (at == late && is_inside(note, r->stream));
}

// "in backward of h.3 (micro-step 2)", "waiting to begin gather of h.4": the collective that it is in,
// else what computes.
static void append_doing(report *r, const engine_note *note)
{
    mics_stream stream = MICS_STREAM_COMPUTE;
    for (int s = MICS_STREAM_COMPUTE + 1; s < MICS_STREAMS; s++) {
        if (!is_inside(note, MICS_STREAM_COMPUTE) && is_inside(note, (mics_stream)s))
            stream = (mics_stream)s;
    }
    const mics_schedule *schedule = r->engine->schedule;
    if ((unsigned)note->phase >= MICS_PHASES || note->at[stream] < 0 ||
        note->at[stream] >= schedule->lists[note->phase].count)
        return;
    const mics_step *step = &schedule->lists[note->phase].steps[note->at[stream]];
    append(r, "%s %s", is_inside(note, stream) ? "in" : "waiting to begin",
           mics_step_kind_text(step->kind));
    if (step->unit >= 0)
        append(r, " of %s", schedule->spec.model->units[step->unit].name);
    append(r,
           note->phase == MICS_PHASE_TRAIN ? " in step %lld" : " in the evaluation after step %lld",
           (long long)note->step);
    if (step->micro_step >= 0)
        append(r, ", micro-step %d", (int)step->micro_step + 1);
}

static void append_rank(report *r, int32_t rank)
{
    engine_note note;
    double age_s = 0;
    if (!read_note(r, rank, &note, &age_s)) {
        append(r, "rank %d (nothing was ever heard of it)", (int)rank);
        return;
    }
    append(r, "rank %d (", (int)rank);
    if (age_s > alive_s)
        append(r, "last seen %.1f s ago, ", age_s);
    append_doing(r, &note);
    append(r, ")");
}

// Which ranks a report names.
typedef bool (*rank_test)(const report *r, int32_t rank);

static bool is_missing(const report *r, int32_t rank)
{
    engine_note note;
    double age_s = 0;
    return !read_note(r, rank, &note, &age_s) || !has_entered(r, &note);
}

static bool is_silent(const report *r, int32_t rank)
{
    engine_note note;
    double age_s = 0;
    return !read_note(r, rank, &note, &age_s) || age_s > silent_s;
}

// Appends the ranks of a group that a test finds; returns how many those are.
static int32_t append_ranks(report *r, mics_group group, rank_test test, const char *before)
{
    int32_t found = 0;
    for (int32_t member = 0; member < group.size; member++) {
        const int32_t rank = mics_group_rank(group, member);
        if (rank == r->engine->rank || !test(r, rank))
            continue;
        if (found < NAMED_RANKS) {
            append(r, "%s", found == 0 ? before : ", ");
            append_rank(r, rank);
        }
        found++;
    }
    if (found > NAMED_RANKS)
        append(r, " and %d more", (int)(found - NAMED_RANKS));
    return found;
}

static void append_causes(report *r)
{
    const mics_engine *engine = r->engine;
    const mics_step *step = &engine->schedule->lists[r->mine.phase].steps[r->mine.at[r->stream]];
    const mics_group world =
        mics_mesh_group(&engine->schedule->spec.mesh, MICS_GROUP_WORLD, engine->rank);
    const int32_t missing =
        append_ranks(r, engine->rings[step->group].group, is_missing, "; not entered by ");
    const int32_t silent = append_ranks(r, world, is_silent, "; no sign of life from ");
    if (missing == 0 && silent == 0)
        append(r, "; every rank has entered it: the network between them stands still");
}

static void wait_s(double seconds)
{
    const time_t whole = (time_t)seconds;
    nanosleep(
        &(struct timespec){.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)},
        NULL);
}

void watch_explain(void *ctx, const mics_lateness *late)
{
    mics_engine *engine = ctx;
    report r = {.engine = engine};
    const bool reads = reads_board(&r);
    append(&r, "%s is late: rank %d waited %.1f s", late->what, (int)late->rank, late->waited_s);
    if (late->peer != MICS_RANK_NONE)
        append(&r, " for rank %d to %s", (int)late->peer, late->sending ? "receive" : "send");
    pthread_mutex_lock(&engine->mutex);
    r.mine = engine->note;
    pthread_mutex_unlock(&engine->mutex);
    r.stream = MICS_STREAM_COMPUTE;
    for (int stream = MICS_STREAM_COMPUTE + 1; stream < MICS_STREAMS; stream++) {
        const worker *w = &engine->workers[stream];
        if (w->started && pthread_equal(w->thread, pthread_self()) &&
            is_inside(&r.mine, (mics_stream)stream))
            r.stream = (mics_stream)stream;
    }
    if (reads && r.stream != MICS_STREAM_COMPUTE)
        append_causes(&r);
    if (!reads)
        wait_s(others_wait_s);
    else if (engine->rank > 0 && engine->rank == engine->spec.comm->ranks - 1)
        wait_s(last_rank_waits_s);
    mics_log(MICS_LOG_ERROR, "%s", r.text);
}
