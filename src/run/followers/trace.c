// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keeping the times of traced steps, and gathering them on rank 0.
//
// Times are kept until the last traced step is done, so that the steps after the first begin as any
// other step does. Then rank 0 takes the ranks one by one: it compares clocks, receives, and
// writes.
//
// Clocks. Each machine's starts anywhere. Rank 0 sends some empty letters to and fro; the answer to
// one carries the other clock's time, which was taken between rank 0's sending and receiving. The
// quickest round trip tells the difference best: to half its time. A difference within that is
// taken as none: ranks of one machine read the same clock, and those of two are never so close.
#include "trace.h"
#include "base/clock.h"
#include <math.h>
#include <string.h>

enum { ROUND_TRIPS = 16 };

// ---- memory ----

static mics_status alloc_kept(mics_memory *memory, int64_t steps, int32_t entries,
                              run_traced_step **steps_out, mics_step_time **times_out)
{
    MICS_TRY(MICS_NEW(memory, steps, steps_out));
    return MICS_NEW(memory, steps * entries, times_out);
}

// What the run file names and is still to come.
static int64_t first_of(const mics_job *job)
{
    const mics_run *run = job->run;
    return run->trace_step > job->start_step ? run->trace_step : job->start_step + 1;
}

static int64_t steps_of(const mics_job *job)
{
    const int64_t end = job->run->trace_step + job->run->trace_steps;
    return job->run->trace_step > 0 && first_of(job) < end ? end - first_of(job) : 0;
}

static void keep(run_trace *trace, int64_t step, const mics_step_result *result)
{
    run_traced_step *kept = &trace->steps[trace->count];
    kept->step = step;
    kept->step_us = result->step_us;
    memcpy(kept->exposed_us, result->exposed_us, sizeof kept->exposed_us);
    memcpy(trace->times + (int64_t)trace->count * trace->entries,
           mics_engine_times(trace->context->engine),
           (size_t)trace->entries * sizeof *trace->times);
    trace->count++;
}

// ---- messages ----

static mics_status send(mics_comm *comm, int32_t to, const void *data, size_t bytes,
                        const char *what)
{
    const mics_exchange exchange = {
        .to = to, .from = MICS_RANK_NONE, .send = data, .bytes = bytes, .what = what};
    return mics_comm_exchange(comm, &exchange);
}

static mics_status receive(mics_comm *comm, int32_t from, void *data, size_t bytes,
                           const char *what)
{
    const mics_exchange exchange = {
        .to = MICS_RANK_NONE, .from = from, .recv = data, .bytes = bytes, .what = what};
    return mics_comm_exchange(comm, &exchange);
}

static const char clock_what[] = "clock of a rank, for the trace";
static const char steps_what[] = "traced steps of a rank";
static const char times_what[] = "times of a rank, for the trace";

static mics_status send_clock(mics_comm *comm)
{
    for (int trip = 0; trip < ROUND_TRIPS; trip++) {
        double us = 0;
        MICS_TRY(receive(comm, 0, &us, sizeof us, clock_what));
        us = mics_clock_us();
        MICS_TRY(send(comm, 0, &us, sizeof us, clock_what));
    }
    return MICS_OK;
}

static mics_status ask_clock(mics_comm *comm, run_traced *traced)
{
    traced->clock_accuracy_us = INFINITY;
    for (int trip = 0; trip < ROUND_TRIPS; trip++) {
        double theirs = 0;
        const double sent_us = mics_clock_us();
        MICS_TRY(send(comm, traced->rank, &sent_us, sizeof sent_us, clock_what));
        MICS_TRY(receive(comm, traced->rank, &theirs, sizeof theirs, clock_what));
        const double half_us = (mics_clock_us() - sent_us) / 2;
        if (half_us < traced->clock_accuracy_us) {
            traced->clock_accuracy_us = half_us;
            traced->clock_ahead_us = theirs - (sent_us + half_us);
        }
    }
    if (fabs(traced->clock_ahead_us) <= traced->clock_accuracy_us)
        traced->clock_ahead_us = 0;
    return MICS_OK;
}

static size_t steps_bytes(const run_trace *trace)
{
    return (size_t)trace->count * sizeof *trace->steps;
}

static size_t times_bytes(const run_trace *trace)
{
    return (size_t)trace->count * (size_t)trace->entries * sizeof *trace->times;
}

static mics_status give(const run_trace *trace)
{
    mics_comm *comm = trace->context->rank->comm;
    MICS_TRY(send_clock(comm));
    MICS_TRY(send(comm, 0, trace->steps, steps_bytes(trace), steps_what));
    return send(comm, 0, trace->times, times_bytes(trace), times_what);
}

// ---- rank 0 ----

// Takes the other ranks, one after another in the same memory.
static mics_status take_others(const run_trace *trace, run_trace_file *file, run_traced_step *steps,
                               mics_step_time *times)
{
    mics_comm *comm = trace->context->rank->comm;
    for (int32_t rank = 1; rank < comm->ranks; rank++) {
        run_traced theirs = {.rank = rank, .count = trace->count, .steps = steps, .times = times};
        MICS_TRY(ask_clock(comm, &theirs));
        MICS_TRY(receive(comm, rank, steps, steps_bytes(trace), steps_what));
        MICS_TRY(receive(comm, rank, times, times_bytes(trace), times_what));
        run_trace_file_add(file, &theirs);
    }
    return MICS_OK;
}

static mics_status take(const run_trace *trace)
{
    mics_memory *memory = trace->context->rank->memory;
    const run_traced mine = {.count = trace->count, .steps = trace->steps, .times = trace->times};
    run_trace_file *file = NULL;
    run_traced_step *steps = NULL;
    mics_step_time *times = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(alloc_kept(memory, trace->count, trace->entries, &steps, &times));
    MICS_TRY_OUT(run_trace_file_open(trace->context->job, memory, trace->count, &file));
    run_trace_file_add(file, &mine);
    MICS_TRY_OUT(take_others(trace, file, steps, times));
    MICS_TRY_OUT(run_trace_file_finish(file));
out:
    run_trace_file_close(file);
    mics_free(memory, times);
    mics_free(memory, steps);
    return status;
}

// ---- the follower ----

static size_t bytes(const mics_job *job)
{
    const size_t steps = (size_t)steps_of(job);
    const size_t entries = (size_t)job->schedule->lists[MICS_PHASE_TRAIN].count;
    return steps * (sizeof(run_traced_step) + entries * sizeof(mics_step_time));
}

static mics_status open_trace(void *state, const run_context *context, void *memory)
{
    const mics_job *job = context->job;
    run_trace *self = state;
    *self = (run_trace){.context = context,
                        .first = first_of(job),
                        .last = first_of(job) + steps_of(job) - 1,
                        .entries = job->schedule->lists[MICS_PHASE_TRAIN].count,
                        .steps = memory};
    if (memory != NULL)
        self->times = (mics_step_time *)(self->steps + steps_of(job));
    return MICS_OK;
}

static mics_status before_complete(void *state, const run_step *step)
{
    run_trace *self = state;
    // A step that a run comes to a second time, having gone back, was kept the first time.
    if (step->number < self->first + self->count || step->number > self->last)
        return MICS_OK;
    keep(self, step->number, &step->result);
    if (step->number < self->last && !step->stops)
        return MICS_OK;
    // The others wait while rank 0 writes.
    MICS_TRY(run_await_files(self->context));
    MICS_TRY(run_is_rank_0(self->context) ? take(self) : give(self));
    return run_await_collectives(self->context);
}

const run_follower run_trace_follower = {
    .name = "trace", .bytes = bytes, .open = open_trace, .before_complete = before_complete};
