// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The disk as a tier: checkpoints in OUT/checkpoints (mics/checkpoint.h).
#include "base/clock.h"
#include "disk_space.h"
#include "mics/log.h"
#include <stdlib.h>
#include <string.h>

static bool is_quarantine(const run_save *save)
{
    return save == &save->saver->saves[RUN_QUARANTINE];
}

// ---- staging and writing ----

static void stage(run_save *save)
{
    float *to = save->saver->staging;
    for (int32_t u = 0; save->stages && u < run_share_count(save->saver->context->job); u++) {
        mics_optimizer_shard *shard = &save->shards[u];
        const size_t elems = (size_t)(shard->end - shard->begin);
        for (int32_t s = 0; s < shard->state_count; s++, to += elems) {
            memcpy(to, shard->states[s].data, elems * sizeof *to);
            shard->states[s].data = to;
        }
    }
}

// On the thread that writes; whoever waits for it tells it on.
static void note_written(void *ctx, const char *what, int64_t done, int64_t total)
{
    run_saver *saver = ctx;
    (void)what;
    atomic_store(&saver->to_write, total);
    atomic_store(&saver->written, done);
}

static void note_rate(const run_save *save, double taken_us)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < run_share_count(save->saver->context->job); u++)
        elems += (save->shards[u].end - save->shards[u].begin) * save->shards[u].state_count;
    if (taken_us > 0)
        atomic_store(&save->saver->rate, (double)elems * sizeof(float) * 1e6 / taken_us);
}

static mics_status write_file(run_save *save, const mics_checkpoint_writer *writer)
{
    const int32_t units = run_share_count(save->saver->context->job);
    if (save->file == NULL)
        MICS_TRY(mics_checkpoint_save_open(save->saver->context->rank->memory, writer, &save->meta,
                                           &save->file));
    return mics_checkpoint_save_write(save->file, save->shards,
                                      writer->rank < writer->writers ? units : 0);
}

// What a rank has written of a file is written again: nobody reads it before it is whole. Where the disk
// is full, an error line is not due before all that can be done about it was done.
static mics_status write_in_space(run_save *save, const mics_checkpoint_writer *writer)
{
    run_disk_space tried = {0};
    mics_status status;
    do {
        mics_log_hold(false);
        status = write_file(save, writer);
        mics_log_release(status != MICS_OK && status != MICS_ERR_FULL, writer->rank);
    } while (status == MICS_ERR_FULL && !is_quarantine(save) && !atomic_load(&save->given_up) &&
             run_disk_space_make(save, &tried));
    return status;
}

static mics_status write_part(run_save *save)
{
    const run_context *context = save->saver->context;
    const mics_checkpoint_writer writer = {.dir = save->dir,
                                           .rank = context->rank->comm->rank,
                                           .writers = save->writers,
                                           .listener = {save->saver, note_written}};
    const double begin_us = mics_clock_us();
    atomic_store(&save->saver->written, 0);
    const bool before = mics_log_demote(false),     // such a state ends the run
        muted = mics_log_mute(is_quarantine(save)); // and another one has
    const mics_status finite = run_share_check_numbers(context, save->shards, save->step);
    mics_log_mute(muted);
    mics_log_demote(before);
    MICS_TRY(finite);
    MICS_TRY(write_in_space(save, &writer));
    note_rate(save, mics_clock_us() - begin_us);
    return MICS_OK;
}

// ---- the commit ----

// Files that are there count, also behind the time limit. Files that all ranks have written can be
// delayed only by a network's file system; the commit names the one that is lost.
static mics_status await_files(run_save *save)
{
    const mics_job *job = save->saver->context->job;
    double begin_us = mics_clock_us(), limit_us = run_job_files_timeout_s(job) * 1e6;
    bool written = false;
    for (int wait_ms = 1; !mics_checkpoint_save_is_written(save->file); run_save_sleep(&wait_ms)) {
        if (atomic_load(&save->given_up))
            return MICS_ERR_PEER;
        if (!written && atomic_load(&save->all_written)) {
            written = true;
            begin_us = mics_clock_us();
            limit_us = job->run->comm_timeout_s * 1e6;
        }
        const bool over = mics_clock_us() - begin_us > limit_us;
        if (over && written)
            return MICS_OK;
        if (over)
            return mics_fail(MICS_ERR_TIMEOUT,
                             "step %lld is not saved: other ranks have not written their parts",
                             (long long)save->step);
    }
    return MICS_OK;
}

static mics_status commit(run_save *save)
{
    mics_job *job = save->saver->context->job;
    if (!run_is_rank_0(save->saver->context))
        return MICS_OK;
    MICS_TRY(await_files(save));
    MICS_TRY(run_folder_check_mark(job->run->out, &job->out));
    run_save_enter(save, RUN_SAVE_COMMITTING);
    run_stop_writes(&job->stop, true);
    run_disk_space tried = {0};
    mics_status status;
    do {
        mics_log_hold(false);
        status = mics_checkpoint_save_commit(save->file);
        mics_log_release(status != MICS_OK && status != MICS_ERR_FULL, -1);
    } while (status == MICS_ERR_FULL && !is_quarantine(save) && run_disk_space_make(save, &tried));
    if (status == MICS_OK && !is_quarantine(save))
        run_standing_save(&job->standing, save->step);
    run_stop_writes(&job->stop, false);
    return status;
}

// ---- finding and removing ----

int64_t run_step_of(const char *path)
{
    const char *dash = path != NULL ? strrchr(path, '-') : NULL;
    return dash != NULL ? strtoll(dash + 1, NULL, 10) : -1;
}

static mics_status find(const mics_job *job, int64_t *step_out, char **path_out)
{
    if (job->passed_count > 0)
        MICS_TRY(mics_checkpoint_other(job->memory, job->checkpoints_dir, job->passed,
                                       job->passed_count, path_out));
    else if (job->newest_path != NULL)
        MICS_TRY(mics_strdup(job->memory, job->newest_path, path_out));
    *step_out = run_step_of(*path_out);
    return MICS_OK;
}

static void prune(run_saver *saver, int64_t step)
{
    const mics_job *job = saver->context->job;
    const bool before = mics_log_demote(true);
    if (mics_checkpoint_prune(saver->context->rank->memory, job->checkpoints_dir,
                              (int32_t)job->run->keep_checkpoints, step) != MICS_OK)
        mics_log(MICS_LOG_WARNING, "%s: old checkpoints were not removed", job->checkpoints_dir);
    mics_log_demote(before);
}

void run_disk_withdraw(run_save *save)
{
    const run_context *context = save->saver->context;
    const char *dir = context->job->checkpoints_dir;
    const bool before = mics_log_demote(true);
    if (mics_checkpoint_withdraw(context->rank->memory, dir, save->step) != MICS_OK)
        mics_log(MICS_LOG_WARNING,
                 "%s/step-%08lld holds a state in which replicas differ; remove the folder before "
                 "the run is started again",
                 dir, (long long)save->step);
    mics_log_demote(before);
}

const run_tier run_disk_tier = {.name = "disk",
                                .stage = stage,
                                .write = write_part,
                                .commit = commit,
                                .find = find,
                                .prune = prune};
