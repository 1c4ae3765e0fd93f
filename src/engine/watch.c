// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Explains a collective that is late, from the heartbeats: which ranks have not entered it, and
// what each of them was last seen doing.
//
// Who speaks. All ranks of a late collective time out at nearly the same moment, and one report is
// what people read. Rank 0 reads all heartbeats and speaks at once, as do ranks that are threads;
// the last rank, which reads them too, waits for rank 0 to end the world, in case rank 0 is the one
// that hangs; others, who know least, wait longest.
#include "engine/watch.h"
#include "base/text.h"
#include "engine/state.h"
#include "engine/status.h"
#include "mics/core/heartbeat.h"
#include "mics/log.h"
#include <stdarg.h>
#include <string.h>
#include <time.h>

enum { TEXT_BYTES = 900, NAMED_RANKS = 4 };

static const double last_rank_waits_s = 1.5, others_wait_s = 6;
// Signs of life come several times a second over MPI.
static const double alive_s = 0.6, silent_s = 1.5;

typedef struct report {
    const mics_engine *engine;
    char text[TEXT_BYTES];
} report;

MICS_PRINTF(2, 3) static void append(report *r, const char *format, ...)
{
    const size_t used = strlen(r->text);
    va_list args;
    va_start(args, format);
    mics_text_vformat(r->text + used, TEXT_BYTES - used, format, args);
    va_end(args);
}

static bool read_status(const report *r, int32_t rank, engine_status *status_out, double *age_s_out)
{
    mics_heartbeat bytes;
    if (!mics_comm_heartbeat_read(r->engine->spec.comm, rank, &bytes, age_s_out))
        return false;
    memcpy(status_out, bytes.bytes, sizeof *status_out);
    return true;
}

static bool reads_heartbeats(const report *r)
{
    engine_status status;
    double age_s = 0;
    for (int32_t rank = 0; rank < r->engine->spec.comm->ranks; rank++) {
        if (rank != r->engine->rank && read_status(r, rank, &status, &age_s))
            return true;
    }
    return false;
}

static bool is_inside(const engine_status *status, mics_stream stream)
{
    return (status->inside & (1 << stream)) != 0;
}

static bool runs_list(const engine_status *status)
{
    return status->call == ENGINE_LIST && (unsigned)status->phase < MICS_PHASES;
}

// A step that a rank is in.
typedef struct place {
    engine_status status;
    mics_stream stream; // COMPUTE: the collective is none of a list
} place;

static const mics_step *step_at(const report *r, const place *at)
{
    const mics_step_list *list = &r->engine->schedule->lists[at->status.phase];
    const int32_t index = at->status.at[at->stream];
    return runs_list(&at->status) && index >= 0 && index < list->count ? &list->steps[index] : NULL;
}

// Whether a rank has entered a collective, as far as its newest status tells.
static bool has_entered(const place *late, const engine_status *status)
{
    if (status->run != late->status.run)
        return status->run > late->status.run;
    if (late->stream == MICS_STREAM_COMPUTE)
        return status->call == late->status.call;
    const int32_t at = status->at[late->stream], index = late->status.at[late->stream];
    return at > index || (at == index && is_inside(status, late->stream));
}

// The members of a collective that a rank is in.
static mics_group members_of(const report *r, const place *at, int32_t rank)
{
    const mics_step *step = step_at(r, at);
    const mics_mesh *mesh = &r->engine->schedule->spec.mesh;
    if (step == NULL || !mics_step_is_comm(step))
        return mics_mesh_group(mesh, MICS_AXIS_WORLD, MICS_SCOPE_WHOLE, rank);
    return mics_mesh_group(mesh, step->axis, mics_step_scope(step), rank);
}

static void append_step(report *r, const place *at)
{
    const mics_step *step = step_at(r, at);
    if (step == NULL)
        return;
    append(r, "%s %s", is_inside(&at->status, at->stream) ? "in" : "before",
           mics_step_text(step->kind, step->stage));
    if (step->unit >= 0)
        append(r, " of %s", r->engine->schedule->spec.model->units[step->unit].name);
    append(r,
           at->status.phase == MICS_PHASE_TRAIN ? " in step %lld"
                                                : " in an evaluation after step %lld",
           (long long)at->status.step);
    if (step->micro_step >= 0)
        append(r, ", micro-step %d", (int)step->micro_step + 1);
}

// "in backward of h.3 in step 7, micro-step 2": the collective that it is in, else what it
// computes.
static void append_doing(report *r, const engine_status *status)
{
    static const char *const calls[] = {
        [ENGINE_IDLE] = "between steps",
        [ENGINE_LIST] = "beginning the step",
        [ENGINE_AGREE] = "agreeing with the others",
        [ENGINE_COMPLETE] = "completing a step",
    };
    place at = {.status = *status, .stream = MICS_STREAM_COMPUTE};
    for (int s = MICS_STREAM_COMPUTE + 1; s < MICS_STREAMS; s++) {
        if (!is_inside(status, MICS_STREAM_COMPUTE) && is_inside(status, (mics_stream)s))
            at.stream = (mics_stream)s;
    }
    if (step_at(r, &at) != NULL)
        append_step(r, &at);
    else
        append(r, "%s after step %lld",
               calls[(unsigned)status->call <= ENGINE_COMPLETE ? status->call : 0],
               (long long)status->step);
}

static void append_rank(report *r, int32_t rank)
{
    engine_status status;
    double age_s = 0;
    if (!read_status(r, rank, &status, &age_s)) {
        append(r, "rank %d (nothing was ever heard of it)", (int)rank);
        return;
    }
    append(r, "rank %d (", (int)rank);
    if (age_s > alive_s)
        append(r, "last seen %.1f s ago, ", age_s);
    append_doing(r, &status);
    append(r, ")");
}

static bool is_missing(const report *r, const place *late, int32_t rank)
{
    engine_status status;
    double age_s = 0;
    return !read_status(r, rank, &status, &age_s) || !has_entered(late, &status);
}

static bool is_silent(const report *r, int32_t rank)
{
    engine_status status;
    double age_s = 0;
    return !read_status(r, rank, &status, &age_s) || age_s > silent_s;
}

// A member of the collective that has not entered it, from the one behind `rank` on;
// MICS_RANK_NONE: all have.
static int32_t first_missing(const report *r, const place *late, int32_t rank)
{
    const mics_group group = members_of(r, late, rank);
    for (int32_t back = 1; back < group.size; back++) {
        const int32_t member = (group.index + group.size - back) % group.size;
        const int32_t other = mics_group_rank(group, member);
        if (is_missing(r, late, other))
            return other;
    }
    return MICS_RANK_NONE;
}

// A rank that `rank` waits for in some collective; MICS_RANK_NONE: it waits for nobody, or nobody
// knows.
static int32_t waits_for(const report *r, int32_t rank)
{
    place at = {.stream = MICS_STREAM_COMPUTE};
    double age_s = 0;
    if (is_silent(r, rank) || !read_status(r, rank, &at.status, &age_s))
        return MICS_RANK_NONE;
    for (int s = MICS_STREAM_COMPUTE + 1; s < MICS_STREAM_COPY; s++) {
        at.stream = (mics_stream)s;
        const int32_t other = is_inside(&at.status, at.stream) && step_at(r, &at) != NULL
                                  ? first_missing(r, &at, rank)
                                  : MICS_RANK_NONE;
        if (other != MICS_RANK_NONE)
            return other;
    }
    return MICS_RANK_NONE;
}

// Ranks of the late collective that have not entered it, and for whom the first of them waits
// itself.
static int32_t append_missing(report *r, const place *late)
{
    const mics_group group = members_of(r, late, r->engine->rank);
    int32_t found = 0, first = MICS_RANK_NONE;
    for (int32_t member = 0; member < group.size; member++) {
        const int32_t rank = mics_group_rank(group, member);
        if (rank == r->engine->rank || !is_missing(r, late, rank))
            continue;
        if (found < NAMED_RANKS) {
            append(r, "%s", found == 0 ? "; not entered by " : ", ");
            append_rank(r, rank);
        }
        first = found++ == 0 ? rank : first;
    }
    if (found > NAMED_RANKS)
        append(r, " and %d more", (int)(found - NAMED_RANKS));
    int32_t behind = first, last = first;
    for (int32_t hop = 0; behind != MICS_RANK_NONE && hop < r->engine->spec.comm->ranks; hop++) {
        last = behind;
        behind = waits_for(r, last);
    }
    if (last != MICS_RANK_NONE && last != first) {
        append(r, "; behind them all: ");
        append_rank(r, last);
    }
    return found;
}

// Ranks of the world that have given no sign of life.
static int32_t append_silent(report *r)
{
    int32_t found = 0;
    for (int32_t rank = 0; rank < r->engine->spec.comm->ranks; rank++) {
        if (rank == r->engine->rank || !is_silent(r, rank))
            continue;
        if (found < NAMED_RANKS) {
            append(r, "%s", found == 0 ? "; no sign of life from " : ", ");
            append_rank(r, rank);
        }
        found++;
    }
    if (found > NAMED_RANKS)
        append(r, " and %d more", (int)(found - NAMED_RANKS));
    return found;
}

static void append_causes(report *r, const place *late)
{
    const int32_t missing = append_missing(r, late), silent = append_silent(r);
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

// The stream whose communication thread this is, if it is in a collective of a list.
static mics_stream own_stream(const mics_engine *engine, const engine_status *mine)
{
    for (int stream = MICS_STREAM_COMPUTE + 1; stream < MICS_STREAM_COPY; stream++) {
        const bool own = engine->workers[stream].started;
        const worker *w = &engine->workers[own ? stream : (int)engine->home];
        if (w->started && pthread_equal(w->thread, pthread_self()) &&
            is_inside(mine, (mics_stream)stream))
            return (mics_stream)stream;
    }
    return MICS_STREAM_COMPUTE;
}

// The heartbeats are read first: while this rank waits for others to speak, it changes.
static void explain(report *r, const place *at)
{
    const mics_engine *engine = r->engine;
    const bool reads = reads_heartbeats(r);
    if (reads)
        append_causes(r, at);
    if (!reads)
        wait_s(others_wait_s);
    else if (engine->rank > 0 && engine->rank == engine->spec.comm->ranks - 1)
        wait_s(last_rank_waits_s);
    mics_log(MICS_LOG_ERROR, "%s", r->text);
}

static engine_status own_status(mics_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    const engine_status status = engine->status;
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

void watch_explain(void *ctx, const mics_timeout *late)
{
    mics_engine *engine = ctx;
    report r = {.engine = engine};
    place at = {.status = own_status(engine)};
    append(&r, "%s is late: rank %d waited %.1f s", late->what, (int)late->rank, late->waited_s);
    if (late->peer != MICS_RANK_NONE)
        append(&r, " for rank %d to %s", (int)late->peer, late->sending ? "receive" : "send");
    at.stream = own_stream(engine, &at.status);
    explain(&r, &at);
}

void watch_explain_device(mics_engine *engine, mics_stream stream, int32_t index, double waited_s)
{
    report r = {.engine = engine};
    const place at = {.status = own_status(engine), .stream = stream};
    if (index >= 0 && mics_step_is_comm(&engine->list->steps[index])) {
        char what[STEP_NAME_BYTES];
        name_step(engine, &engine->list->steps[index], what, sizeof what);
        append(&r, "%s is late: nothing moved on the device of rank %d for %.1f s", what,
               (int)engine->rank, waited_s);
        explain(&r, &at);
        return;
    }
    append(&r, "nothing moved on the device of rank %d for %.1f s: ", (int)engine->rank, waited_s);
    append_doing(&r, &at.status);
    mics_log(MICS_LOG_ERROR, "%s", r.text);
}
