// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "quarantine.h"
#include "mics/log.h"
#include "run/save/rewind.h"
#include "share.h"
#include <stdio.h>

static mics_status agree_to_save(void *ctx, mics_status mine)
{
    return mics_engine_agree(ctx, mine);
}

static mics_status save_in(const run_context *context, const mics_optimizer_shard *shards,
                           const char *dir, int64_t step)
{
    const mics_job *job = context->job;
    const int32_t rank = context->rank->comm->rank, writers = job->run->sharding.optimizer;
    const mics_checkpoint_writer writer = {
        .dir = dir,
        .rank = rank,
        .writers = writers,
        .agree = agree_to_save,
        .agree_ctx = context->engine,
    };
    const mics_checkpoint_meta meta = run_share_meta(context, step);
    return mics_checkpoint_save(context->rank->memory, &writer, &meta, shards,
                                rank < writers ? job->model->unit_count : 0);
}

// What a rank finds not finite, all hear of.
static mics_status save_if_finite(const run_context *context, mics_optimizer_shard *shards,
                                  const char *dir, int64_t step)
{
    mics_status status = shards != NULL ? mics_engine_download(context->engine) : MICS_ERR_MEMORY;
    if (status == MICS_OK) {
        const bool muted = mics_log_mute(true);
        run_share_fill(context, 0, 1, shards);
        status = run_share_check_finite(shards, context->job->model->unit_count, step);
        mics_log_mute(muted);
    }
    MICS_TRY(mics_engine_agree(context->engine, status));
    return save_in(context, shards, dir, step);
}

static void save_waiting(const run_context *context, int64_t step, char *text, size_t capacity)
{
    char dir[RUN_PATH_BYTES];
    mics_optimizer_shard *shards = NULL;
    mics_memory *memory = context->rank->memory;
    snprintf(dir, sizeof dir, "%s/aside", context->job->run->out);
    const bool before = mics_log_demote(true);
    (void)MICS_NEW(memory, context->job->model->unit_count, &shards);
    const mics_status status = save_if_finite(context, shards, dir, step);
    mics_log_demote(before);
    mics_engine_release(context->engine);
    mics_free(memory, shards);
    if (status == MICS_OK)
        snprintf(text, capacity,
                 "the state of step %lld is saved: --resume %s/step-%08lld goes on from it",
                 (long long)step, dir, (long long)step);
    else
        snprintf(text, capacity, "the state of step %lld is not saved%s", (long long)step,
                 status == MICS_ERR_NUMERIC ? ", as it is not finite itself" : "");
}

mics_status run_quarantine_save(const run_context *context, int64_t step, char *text,
                                size_t capacity)
{
    mics_divergence found;
    text[0] = '\0';
    run_source newest;
    if (run_rewind_newest_saved(context, &newest) && newest.step == step &&
        newest.path[0] != '\0') {
        snprintf(text, capacity, "the state of step %lld is in %s", (long long)step, newest.path);
        return MICS_OK;
    }
    MICS_TRY(mics_engine_compare(context->engine, &found));
    if (found.found) {
        snprintf(text, capacity, "the state of step %lld is not saved, as replicas differ",
                 (long long)step);
        return MICS_OK;
    }
    MICS_TRY(run_await_files(context));
    save_waiting(context, step, text, capacity);
    return run_await_collectives(context);
}
