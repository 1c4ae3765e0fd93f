// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "rewind.h"
#include "base.h"
#include "mics/log.h"
#include "restore.h"
#include <stdio.h>
#include <string.h>

// ---- where to go back to ----

static bool open_source(const run_context *context, const char *path, run_source *source_out)
{
    mics_checkpoint *checkpoint = NULL;
    const bool muted = mics_log_mute(true);
    const bool good = mics_checkpoint_open(context->rank->memory, path, &checkpoint) == MICS_OK;
    mics_log_mute(muted);
    if (!good)
        return false;
    source_out->step = mics_checkpoint_meta_get(checkpoint)->step;
    snprintf(source_out->path, sizeof source_out->path, "%s", path);
    mics_checkpoint_close(checkpoint);
    return true;
}

// This run's newest checkpoint, whose state was compared before it was saved; or the one that it resumed
// from; or, where it resumed from node memory, the newest one on disk.
static bool newest_saved(const run_context *context, run_source *source_out)
{
    const mics_job *job = context->job;
    const int64_t saved = context->progress->saved;
    const bool resumed =
        job->checkpoint_path != NULL && !job->node.taken && saved == job->start_step;
    if (saved == RUN_NO_STEP)
        return job->node.taken && job->newest_path != NULL &&
               open_source(context, job->newest_path, source_out);
    source_out->step = saved;
    if (resumed)
        snprintf(source_out->path, sizeof source_out->path, "%s", job->checkpoint_path);
    else
        snprintf(source_out->path, sizeof source_out->path, "%s/step-%08lld", job->checkpoints_dir,
                 (long long)saved);
    return true;
}

// The checkpoint before that, in case it is damaged.
static bool saved_before(const run_context *context, const run_source *newest,
                         run_source *source_out)
{
    mics_memory *memory = context->rank->memory;
    char *path = NULL;
    const bool muted = mics_log_mute(true);
    const mics_status status =
        mics_checkpoint_other(memory, context->job->checkpoints_dir, &newest->step, 1, &path);
    mics_log_mute(muted);
    const bool found = status == MICS_OK && path != NULL &&
                       open_source(context, path, source_out) && source_out->step < newest->step;
    mics_free(memory, path);
    return found;
}

// Whether the run's first state can be made again: the safetensors of model.init are open only in a run
// that did not resume.
static bool begins_again(const mics_job *job)
{
    return job->import != NULL || strcmp(job->run->model_init, "random") == 0;
}

bool run_rewind_newest_saved(const run_context *context, run_source *source_out)
{
    *source_out = (run_source){.path = ""};
    return newest_saved(context, source_out) || begins_again(context->job);
}

// ---- going back ----

static void clear_state(const run_context *context)
{
    const mics_optimizer_def *def = mics_optimizer_def_get(context->job->run->optimizer.kind);
    for (int32_t unit = 0; unit < context->job->model->unit_count; unit++) {
        const mics_engine_optimizer_shard held =
            mics_engine_optimizer_shard_get(context->engine, unit);
        memset(held.shard_params, 0,
               (size_t)(held.shard.end - held.shard.begin) * sizeof *held.shard_params);
        for (int32_t state = 0; state < def->states && held.range.begin < held.range.end; state++)
            memset(held.states[state], 0,
                   (size_t)(held.range.end - held.range.begin) * sizeof *held.states[state]);
    }
}

// Parts of a copy in node memory that this node lacks are fetched from other nodes first.
static mics_status open_state(const run_context *context, const run_source *source,
                              mics_checkpoint **checkpoint_out)
{
    const char *path = source->path;
    mics_status fetched = MICS_OK;
    if (source->in_memory && run_is_first_local(context)) {
        fetched = run_node_fetch(context->job);
        run_rank_begin_log(context->rank);
    }
    MICS_TRY(fetched);
    if (source->in_memory)
        path = run_node_memory_path(context->job);
    return path[0] != '\0' ? mics_checkpoint_open(context->rank->memory, path, checkpoint_out)
                           : MICS_OK;
}

static mics_status load_state(const run_context *context, const mics_scaler *scaler,
                              const run_source *source, mics_checkpoint_losses *recent_out)
{
    mics_checkpoint *checkpoint = NULL;
    MICS_TRY(mics_engine_download_params(context->engine)); // as what is written there is uploaded
    clear_state(context);
    mics_engine_set_scaler(context->engine, scaler);
    MICS_TRY(open_state(context, source, &checkpoint));
    const mics_status status = run_restore_fill(context, checkpoint, recent_out);
    mics_checkpoint_close(checkpoint);
    return status;
}

// The states to go back to, newest first.
enum { MAX_SOURCES = 3 };
typedef struct source_list {
    run_source list[MAX_SOURCES];
    int32_t count;
    int32_t read; // the one that the run goes back to
} source_list;

// Rank 0 looks at the disk for all: others might not see the same there.
static mics_status share_saved(const run_context *context, source_list *sources)
{
    run_source *list = sources->list;
    if (run_is_rank_0(context) && run_rewind_newest_saved(context, &list[0]))
        sources->count =
            list[0].path[0] != '\0' && saved_before(context, &list[0], &list[1]) ? 2 : 1;
    return mics_comm_broadcast(context->rank->comm, 0, sources, sizeof *sources);
}

// Copies in node memory were compared before they were made, as saves are. Of the same step as on
// disk, the copy is read.
static void add_copy(const run_context *context, source_list *sources)
{
    const int64_t step = run_node_memory_step(context->job);
    int32_t at = 0;
    if (step < 0)
        return;
    while (at < sources->count && sources->list[at].step > step)
        at++;
    for (int32_t i = sources->count; i > at; i--)
        sources->list[i] = sources->list[i - 1];
    sources->list[at] = (run_source){.step = step, .in_memory = true};
    sources->count++;
}

static mics_status find_sources(const run_context *context, source_list *sources)
{
    mics_status found = MICS_OK;
    MICS_TRY(share_saved(context, sources));
    if (run_is_first_local(context)) {
        found = run_node_memory_find_again(context->job);
        run_rank_begin_log(context->rank);
    }
    MICS_TRY(mics_engine_agree(context->engine, found));
    add_copy(context, sources);
    return MICS_OK;
}

// On this rank, or on another one.
static bool is_unreadable(mics_status status)
{
    return status == MICS_ERR_FORMAT || mics_status_is_io(status) || status == MICS_ERR_NUMERIC ||
           status == MICS_ERR_PEER;
}

// The newest state that can be read, on all ranks alike.
static mics_status load_newest(const run_context *context, const mics_scaler *scaler,
                               source_list *sources, mics_checkpoint_losses *recent_out)
{
    mics_status status = MICS_ERR_IO;
    for (int32_t which = 0; which < sources->count; which++) {
        const run_source *source = &sources->list[which];
        sources->read = which;
        if (which > 0) // of a rank that could not read, the answer does not say it
            MICS_TRY(mics_engine_agree(context->engine, MICS_OK));
        const bool before = mics_log_demote(true);
        status =
            mics_engine_agree(context->engine, load_state(context, scaler, source, recent_out));
        mics_log_demote(before);
        if (status == MICS_OK)
            return MICS_OK;
        if (status == MICS_ERR_ABORTED) // who ended the world has said why
            return status;
        if (!is_unreadable(status))
            return mics_fail(status, "the state of step %lld cannot be loaded: %s",
                             (long long)source->step, mics_status_text(status));
    }
    return run_is_rank_0(context)
               ? mics_fail(MICS_ERR_IO, "%s: holds no state that the run could go back to",
                           context->job->checkpoints_dir)
               : status;
}

// A newer checkpoint that could not be read counts as none: its step is saved again.
static void forget_unreadable(const run_context *context, const source_list *sources)
{
    int32_t at = sources->read;
    if (sources->list[at].step >= context->progress->saved)
        return;
    while (at < sources->count && sources->list[at].in_memory)
        at++;
    const bool saved = at < sources->count && sources->list[at].path[0] != '\0';
    run_progress_lose(context->progress, saved ? sources->list[at].step : RUN_NO_STEP);
}

mics_status run_rewind_load(const run_context *context, const mics_scaler *scaler,
                            mics_checkpoint_losses *recent_out, run_source *source_out)
{
    source_list sources = {.count = 0};
    MICS_TRY(run_await_files(context));
    MICS_TRY(find_sources(context, &sources));
    MICS_TRY(load_newest(context, scaler, &sources, recent_out));
    MICS_TRY(run_base_settle(context));
    forget_unreadable(context, &sources);
    *source_out = sources.list[sources.read];
    if (source_out->in_memory)
        source_out->next_slot = run_node_memory_next_slot(context->job);
    MICS_TRY(mics_engine_agree(context->engine, MICS_OK)); // all have looked at it
    if (run_is_first_local(context))
        run_node_forget_found(context->job);
    mics_engine_release(context->engine);
    mics_engine_forget_residual(context->engine); // a run that resumes has none either
    MICS_TRY(run_await_collectives(context));
    return mics_engine_complete(context->engine);
}

mics_status run_rewind_fail(const run_context *context, const char *what, const char *then)
{
    run_source newest;
    const int64_t kept = context->progress->kept;
    char where[RUN_PATH_BYTES + 64] = "the run's start";
    if (!run_is_rank_0(context))
        return MICS_ERR_NUMERIC;
    (void)run_rewind_newest_saved(context, &newest);
    if (newest.path[0] != '\0')
        snprintf(where, sizeof where, "%s (--resume auto goes on from it)", newest.path);
    if (kept > newest.step)
        snprintf(where, sizeof where,
                 "that of step %lld, in node memory (--resume auto goes on from it)",
                 (long long)kept);
    return mics_fail(MICS_ERR_NUMERIC, "%s; %s; the newest state that agreed is %s", what, then,
                     where);
}
