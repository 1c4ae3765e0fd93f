// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The agreement of all ranks outside of a list, and questions to all of them.
#include "engine/agree.h"
#include "engine/status.h"
#include "engine/streams.h"

// A collective failed, as some other rank did not come or has ended the world.
static bool is_of_others(mics_status status)
{
    return status == MICS_ERR_PEER || status == MICS_ERR_ABORTED || status == MICS_ERR_COMM ||
           status == MICS_ERR_TIMEOUT;
}

mics_status end_world_unless_ok(mics_engine *engine, mics_status status)
{
    if (status == MICS_OK || engine->all_know)
        return status;
    if (is_of_others(status) && engine->spec.world_ends != NULL)
        engine->spec.world_ends(engine->spec.world_ends_ctx);
    mics_comm_abort(engine->spec.comm, NULL);
    return status;
}

// A failed rank is an answer of the agreement. A failed agreement ends the world.
static mics_status agree_job(mics_engine *engine, mics_stream stream)
{
    (void)stream;
    const mics_status mine = engine->agree_mine;
    bool failed = false;
    const mics_status asked = mics_comm_any(engine->spec.comm, mine != MICS_OK, &failed);
    engine->all_know = asked == MICS_OK;
    (void)end_world_unless_ok(engine, asked);
    if (mine != MICS_OK || asked != MICS_OK)
        return mine != MICS_OK ? mine : asked;
    return failed ? MICS_ERR_PEER : MICS_OK;
}

static mics_status any_job(mics_engine *engine, mics_stream stream)
{
    (void)stream;
    const mics_status status =
        mics_comm_any(engine->spec.comm, engine->any_mine, &engine->any_found);
    engine->all_know = false;
    return end_world_unless_ok(engine, status);
}

static mics_status run_agreement(mics_engine *engine, worker_job job)
{
    status_call(engine, ENGINE_AGREE);
    worker_start(engine, engine->home, job);
    const mics_status status = worker_join(engine, engine->home);
    status_call(engine, ENGINE_IDLE);
    return status;
}

mics_status mics_engine_agree(mics_engine *engine, mics_status mine)
{
    engine->agree_mine = mine;
    return run_agreement(engine, agree_job);
}

mics_status mics_engine_any(mics_engine *engine, bool mine, bool *any_out)
{
    engine->any_mine = mine;
    MICS_TRY(run_agreement(engine, any_job));
    *any_out = engine->any_found;
    return MICS_OK;
}
