// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives outside of a list: agreement, and parameter sync alone.
#include "engine/engine_internal.h"
#include "mics/log.h"

mics_status end_world_unless_ok(mics_engine *engine, mics_status status)
{
    if (status != MICS_OK && !engine->all_know)
        mics_comm_abort(engine->spec.comm, NULL);
    return status;
}

// That other ranks failed is an answer; that the agreement itself failed ends the world.
static mics_status agree_job(mics_engine *engine, mics_stream stream)
{
    (void)stream;
    mics_status status = mics_comm_agree(engine->spec.comm, engine->agree_mine);
    engine->all_know = status == MICS_ERR_PEER || status == engine->agree_mine;
    return end_world_unless_ok(engine, status);
}

mics_status mics_engine_agree(mics_engine *engine, mics_status mine)
{
    engine->agree_mine = mine;
    status_call(engine, ENGINE_AGREE);
    worker_start(engine, engine->home, agree_job);
    mics_status status = worker_join(engine, engine->home);
    status_call(engine, ENGINE_IDLE);
    return status;
}

// The parameter syncs of a thread's streams. They wait for none but their own first stages, between
// nodes, and those have run.
static mics_status sync_job(mics_engine *engine, mics_stream thread)
{
    device_begin_streams(engine, thread);
    for (int32_t i = 0; i < engine->list->count; i++) {
        const mics_step *step = &engine->list->steps[i];
        if (step->kind == MICS_STEP_PARAM_SYNC && stream_served(engine, thread, step->stream))
            MICS_TRY(end_world_unless_ok(engine, stream_run_step(engine, i, run_comm_step)));
    }
    device_end_streams(engine, thread);
    return MICS_OK;
}

mics_status mics_engine_param_sync(mics_engine *engine)
{
    if (engine->schedule->spec.evaluation_only)
        return mics_fail(MICS_ERR_INVALID,
                         "the schedule is for evaluation only; fill the whole shards");
    engine->list = &engine->schedule->lists[MICS_PHASE_TRAIN];
    engine->phase = MICS_PHASE_TRAIN;
    engine->all_know = false;
    engine->failure = MICS_OK;
    engine->syncing = true;
    status_call(engine, ENGINE_SYNC);
    worker_start(engine, MICS_STREAM_INTER, sync_job);
    mics_status status = worker_join(engine, MICS_STREAM_INTER);
    if (status == MICS_OK) {
        worker_start(engine, MICS_STREAM_INTRA, sync_job);
        status = worker_join(engine, MICS_STREAM_INTRA);
    }
    if (status == MICS_OK)
        status = end_world_unless_ok(engine, device_drain(engine));
    engine->syncing = false;
    status_call(engine, ENGINE_IDLE);
    engine->stale = engine->stale && status != MICS_OK;
    return status;
}
