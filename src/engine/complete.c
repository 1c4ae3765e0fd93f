// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run of all streams: of a whole list for engine.c, or of what completes the newest step.
#include "engine/complete.h"
#include "engine/agree.h"
#include "engine/collectives.h"
#include "engine/compute_steps.h"
#include "engine/deltas.h"
#include "engine/events.h"
#include "engine/islands.h"
#include "engine/scrub.h"
#include "engine/status.h"
#include "engine/streams.h"
#include "mics/core/transport.h"
#include "mics/log.h"

void begin_streams(mics_engine *engine, mics_phase phase)
{
    engine->phase = phase;
    engine->list = &engine->schedule->lists[phase];
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        engine->done[stream] = -1;
    engine->failure = MICS_OK;
    engine->all_know = false;
    engine->changes = false;
    engine->brings_back = engine->pending.left > 0;
    mics_op_set_threads(engine->schedule->spec.batch.threads);
    scrub_reset(engine);
    deltas_begin(engine);
}

static mics_status run_comm_stream(mics_engine *engine, mics_stream stream)
{
    return end_world_unless_ok(engine, stream_run(engine, stream, run_comm_step));
}

// Starts a job on every communication thread.
static void start_workers(mics_engine *engine, worker_job job)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        worker_start(engine, (mics_stream)stream, job);
}

// Waits for all; returns the first failure.
static mics_status join_workers(mics_engine *engine)
{
    mics_status first = MICS_OK;
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        mics_status status = worker_join(engine, (mics_stream)stream);
        if (first == MICS_OK)
            first = status;
    }
    return first;
}

mics_status run_streams(mics_engine *engine)
{
    start_workers(engine, run_comm_stream);
    const mics_status compute =
        end_world_unless_ok(engine, stream_run(engine, MICS_STREAM_COMPUTE, run_compute_step));
    const mics_status comm = join_workers(engine);
    return compute != MICS_OK ? compute : comm;
}

static void count_sent(mics_engine *engine, const mics_traffic *before)
{
    mics_bytes *sent = &engine->completions.sent, *unsent = &engine->completions.unsent,
               *by_all = &engine->completions.unsent_by_all;
    mics_traffic after;
    mics_comm_count_get(engine->spec.comm, &after);
    sent->intra += after.intra_bytes - before->intra_bytes;
    sent->inter += after.inter_bytes - before->inter_bytes;
    unsent->intra += engine->unsent.intra;
    unsent->inter += engine->unsent.inter;
    by_all->intra += engine->unsent_by_all.intra;
    by_all->inter += engine->unsent_by_all.inter;
}

// What completes the newest step, with the meetings of `number`.
static mics_status run_completion(mics_engine *engine, int64_t number)
{
    begin_streams(engine, MICS_PHASE_TRAIN);
    islands_begin(engine, number);
    engine->completing = true;
    status_call(engine, ENGINE_COMPLETE);
    mics_status status = run_streams(engine);
    if (status == MICS_OK)
        status = end_world_unless_ok(engine, device_drain(engine));
    if (status == MICS_OK)
        scrub_settle(engine);
    if (status == MICS_OK)
        islands_end(engine);
    engine->completing = false;
    status_call(engine, ENGINE_IDLE);
    return status;
}

mics_status mics_engine_complete(mics_engine *engine)
{
    mics_traffic before;
    if (engine->schedule->spec.evaluation_only)
        return mics_fail(MICS_ERR_INVALID,
                         "the schedule is for evaluation only; fill the whole shards");
    mics_comm_count_get(engine->spec.comm, &before);
    const bool beside = engine->schedule->spec.outer.overlap_steps > 0;
    const mics_status status = run_completion(engine, beside ? 0 : islands_next_step(engine));
    engine->completions.count++;
    engine->completions.updates += engine->brings_back;
    count_sent(engine, &before);
    engine->stale = engine->stale && status != MICS_OK;
    return status;
}

// Units that never meet in one list share their messages' places, so they meet window by window.
mics_status mics_engine_meet(mics_engine *engine)
{
    struct islands *self = engine->islands;
    mics_traffic before;
    mics_status status = MICS_OK;
    if (self == NULL)
        return MICS_OK;
    MICS_TRY(mics_engine_complete(engine));
    mics_comm_count_get(engine->spec.comm, &before);
    for (self->window = 0; self->window < self->windows && status == MICS_OK; self->window++)
        status = run_completion(engine, 0);
    self->window = -1;
    count_sent(engine, &before);
    MICS_TRY(status);
    const int64_t next = islands_next_step(engine);
    self->met = next > self->met ? next : self->met;
    return mics_engine_complete(engine);
}

mics_completions mics_engine_take_completions(mics_engine *engine)
{
    const mics_completions taken = engine->completions;
    engine->completions = (mics_completions){0};
    return taken;
}
