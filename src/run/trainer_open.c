// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opening and closing a rank that trains.
#include "mics/log.h"
#include "run/ranks/gpu.h"
#include "run/save/base.h"
#include "run/save/restore.h"
#include "share.h"
#include "trainer.h"

static void world_ends(void *ctx)
{
    run_saver_outlive(ctx);
}

static mics_status open_engine(run_trainer *self)
{
    const mics_job *job = self->context.job;
    const mics_run *run = job->run;
    run_rank *rank = self->context.rank;
    mics_engine_spec spec = {
        .memory = rank->memory,
        .schedule = job->schedule,
        .comm = rank->comm,
        .kernels = job->kernels,
        .dtype = job->budget.dtype,
        .optimizer = run->optimizer,
        .other_rate = run->other_rate,
        .clip = (float)run->clip,
        .outer_lr = (float)run->outer_lr,
        .outer_momentum = (float)run->outer_momentum,
        .seed = run->seed,
        .scrub_every = run->scrub_every,
        .before_update = run_trainer_before_update,
        .before_update_ctx = self,
        .world_ends = world_ends,
        .world_ends_ctx = &self->followers.saving.saver,
    };
    run_gpu_fill(job, rank, &spec);
    MICS_TRY(mics_engine_open(&spec, &self->context.engine)); // first: ranks may wait in it
    return run_batches_open(&self->batches, &self->context);
}

static mics_status fill_start(run_trainer *self)
{
    MICS_TRY(run_restore_fill(&self->context, NULL, &self->judge.recent));
    return mics_engine_set_anchors(self->context.engine);
}

static mics_status fill_state(run_trainer *self)
{
    const mics_job *job = self->context.job;
    if (job->checkpoint != NULL)
        return run_restore(&self->context, &self->judge.recent);
    return job->references.lacking_count > 0 ? MICS_OK : fill_start(self); // it was filled for them
}

static mics_status open_follower(run_trainer *self, int32_t index)
{
    const run_follower_row *row = &run_follower_rows[index];
    const mics_job *job = self->context.job;
    const size_t bytes = row->follower->bytes != NULL ? row->follower->bytes(job) : 0;
    if (bytes > 0)
        MICS_TRY(
            mics_alloc(self->context.rank->memory, MICS_MEM_HOST, bytes, &self->memory[index]));
    return row->follower->open(run_follower_state(&self->followers, row), &self->context,
                               self->memory[index]);
}

static mics_status open_rest(run_trainer *self)
{
    MICS_TRY(run_share_open(&self->context, &self->context.largest));
    mics_engine_release(self->context.engine);
    self->scaler = mics_engine_scaler(self->context.engine);
    MICS_TRY(run_judge_open(&self->judge, &self->context));
    // The others begin to save when all have opened.
    if (run_is_rank_0(&self->context))
        MICS_TRY(
            mics_checkpoint_clean(self->context.rank->memory, self->context.job->checkpoints_dir));
    for (int32_t i = 0; i < RUN_FOLLOWERS; i++)
        MICS_TRY(open_follower(self, i));
    self->open = true;
    return MICS_OK;
}

// What follows is no rank's own as long as all go on: one line speaks for all again.
static mics_status agree(run_trainer *self, mics_status mine)
{
    MICS_TRY(run_rank_agree(self->context.rank, mine));
    mics_log_hold(!run_is_rank_0(&self->context));
    return MICS_OK;
}

// The engine's communication threads wait for their first job, so the comm is free for agreement.
static mics_status setup(run_trainer *self)
{
    const mics_job *job = self->context.job;
    run_rank *rank = self->context.rank;
    MICS_TRY(run_gpu_open(job, rank));
    MICS_TRY(run_await_files(&self->context));
    MICS_TRY(agree(self, open_engine(self)));
    if (job->references.lacking_count > 0) {
        MICS_TRY(agree(self, fill_start(self)));
        MICS_TRY(run_references_compute(&self->context));
    }
    MICS_TRY(agree(self, fill_state(self)));
    MICS_TRY(agree(self, run_base_settle(&self->context)));
    MICS_TRY(run_rank_agree(rank, open_rest(self)));
    MICS_TRY(run_gpu_autotune(job, rank, self->context.engine));
    MICS_TRY(run_await_collectives(&self->context));
    if (job->checkpoint != NULL)
        MICS_TRY(mics_engine_complete(self->context.engine));
    (void)mics_engine_take_completions(self->context.engine); // no step's
    return MICS_OK;
}

mics_status run_trainer_open(void *ctx, run_rank *rank)
{
    mics_job *job = ctx;
    run_trainer *self = run_trainer_of(job, rank);
    *self = (run_trainer){.context = {.job = job,
                                      .rank = rank,
                                      .progress = &self->progress,
                                      .recent = &self->judge.recent,
                                      .reports = &self->reports,
                                      .saving = &self->followers.saving},
                          .followers.saving = {.saved = run_trainer_saved, .saved_ctx = self}};
    run_progress_begin(&self->progress, &job->standing, job->start_step,
                       job->checkpoint != NULL && !job->node.taken);
    if (run_is_rank_0(&self->context) && job->callbacks.start != NULL)
        job->callbacks.start(job->callbacks.ctx, job);
    return setup(self);
}

mics_status run_trainer_close(void *ctx, run_rank *rank)
{
    mics_job *job = ctx;
    run_trainer *self = run_trainer_of(job, rank);
    mics_status status = MICS_OK;
    if (self->context.rank == NULL)
        return MICS_OK;
    for (int32_t i = RUN_FOLLOWERS - 1; i >= 0; i--) { // a save's failure says more than a report's
        const run_follower_row *row = &run_follower_rows[i];
        mics_status closed = MICS_OK;
        if (row->follower->close != NULL)
            closed = row->follower->close(run_follower_state(&self->followers, row));
        status = status != MICS_OK ? status : closed;
    }
    for (int32_t i = 0; i < RUN_FOLLOWERS; i++)
        mics_free(rank->memory, self->memory[i]);
    run_batches_close(&self->batches);
    mics_engine_close(self->context.engine); // followers use it, and it uses the rest
    run_judge_close(&self->judge);
    mics_free(rank->memory, self->context.largest);
    self->context.rank = NULL;
    if (status == MICS_OK && job->failed == MICS_OK)
        status = mics_comm_set_timeout(rank->comm, run_job_files_timeout_s(job));
    return status;
}
