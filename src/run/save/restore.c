// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The ranks' part of resuming from the newest checkpoint that is good (newest.h). The first rank of
// each process changes the job, while the others wait for it in the next agreement.
#include "restore.h"
#include "base.h"
#include "islands.h"
#include "mics/log.h"
#include "newest.h"
#include "run/save/resume.h"
#include <stdio.h>
#include <string.h>

// ---- what a rank begins with ----

static void take_scaler(const run_context *context, const mics_checkpoint *checkpoint)
{
    const mics_checkpoint_scaler *saved = &mics_checkpoint_meta_get(checkpoint)->scaler;
    const mics_scaler scaler = {.scale = saved->scale,
                                .steps = saved->steps,
                                .last_overflow = saved->steps - saved->since_overflow,
                                .skipped = saved->skipped,
                                .hysteresis = (int32_t)saved->hysteresis};
    if (saved->scale > 0 && context->job->run->precision == MICS_RUN_PRECISION_FP16)
        mics_engine_set_scaler(context->engine, &scaler);
}

mics_status run_restore_fill(const run_context *context, const mics_checkpoint *checkpoint,
                             mics_checkpoint_losses *recent_out)
{
    const mics_job *job = context->job;
    const mics_work_listener listener = {
        .ctx = job->callbacks.ctx,
        .progress = run_is_rank_0(context) ? job->callbacks.work : NULL,
    };
    *recent_out = (mics_checkpoint_losses){0};
    if (checkpoint == NULL) {
        MICS_TRY(run_base_fill(context, false));
        return mics_engine_upload(context->engine);
    }
    *recent_out = mics_checkpoint_meta_get(checkpoint)->recent;
    take_scaler(context, checkpoint);
    if (run_base_is_frozen(job->model))
        MICS_TRY(run_base_fill(context, true));
    return run_islands_fill(context, checkpoint, &listener);
}

// ---- resuming ----

static mics_status settle_ranks(const mics_job *job, run_rank *rank, mics_status mine,
                                run_outcome *outcome_out, char *why_out)
{
    int64_t values[RUN_SAYS];
    mics_comm *comm = rank->comm;
    const bool first = comm->rank == rank->world->first; // another one does not look at the job now
    run_newest_send(job, mine, comm->rank, comm->ranks, first, values);
    MICS_TRY(run_rank_max(rank, values, RUN_SAYS));
    return run_newest_recv(job, values, comm, outcome_out, why_out);
}

// A key that the run file leaves open was taken from the checkpoint that turned out to be damaged;
// an older one that resolved it otherwise would go on as another run.
static mics_status check_kept(const mics_job *job, const mics_json *from, const mics_json *older,
                              const char *older_path)
{
    for (int32_t i = 0; i < mics_run_row_count(job->run); i++) {
        const mics_run_row row = mics_run_row_at(job->run, i);
        const mics_json_value *theirs = mics_json_at(from, row.key),
                              *ours = mics_json_at(older, row.key);
        const bool none = mics_json_type_of(theirs) == MICS_JSON_NULL &&
                          mics_json_type_of(ours) == MICS_JSON_NULL;
        if (strcmp(row.origin, "checkpoint") != 0 || none || mics_json_is_same(theirs, ours))
            continue;
        return mics_fail(MICS_ERR_INVALID,
                         "%s: has another %s than the newer checkpoint, which is damaged; --resume "
                         "%s resumes with it, or give %s in the run file",
                         older_path, row.key, older_path, row.key);
    }
    return MICS_OK;
}

static mics_status parse_run(const mics_job *job, const mics_checkpoint *checkpoint,
                             mics_json **json_out)
{
    const char *text = checkpoint != NULL ? mics_checkpoint_meta_get(checkpoint)->run_json : NULL;
    if (text == NULL)
        text = "{}";
    return mics_json_parse(job->memory, job->checkpoint_path, text, strlen(text), json_out);
}

// Once a process: the next older state, and that it is of the same run.
static mics_status take_older(mics_job *job, const char *why)
{
    mics_json *older = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(run_newest_pass_over(job, why));
    if (job->passed_run == NULL)
        MICS_TRY_OUT(parse_run(job, job->checkpoint, &job->passed_run));
    MICS_TRY_OUT(run_newest_open_next(job));
    MICS_TRY_OUT(parse_run(job, job->checkpoint, &older));
    MICS_TRY_OUT(check_kept(job, job->passed_run, older, job->checkpoint_path));
    MICS_TRY_OUT(run_job_take_checkpoint(job));
out:
    mics_json_close(older);
    return status;
}

// The marks keep what is damaged from counting as a way back when old checkpoints are removed. A
// checkpoint that is good has none: somebody may have restored it.
static void set_marks(const mics_job *job)
{
    const bool before = mics_log_demote(true); // the run goes on without them
    for (int32_t i = 0; i < job->passed_count; i++) {
        char path[RUN_PATH_BYTES];
        snprintf(path, sizeof path, "%s/step-%08lld", job->checkpoints_dir,
                 (long long)job->passed[i]);
        (void)mics_checkpoint_mark(job->memory, path, job->passed_why[i]);
    }
    if (!job->node.taken)
        (void)mics_checkpoint_mark(job->memory, job->checkpoint_path, NULL);
    mics_log_demote(before);
}

// All ranks have read a good state; `older`: than the first candidate.
static void begin_there(const run_context *context, bool older)
{
    mics_job *job = context->job;
    run_progress_begin(context->progress, &job->standing, job->start_step, !job->node.taken);
    if (!run_is_rank_0(context))
        return;
    if (older)
        run_newest_log_instead(job);
    set_marks(job);
}

// Parts of a copy in node memory that this node lacks are fetched from other nodes first.
static mics_status fill(const run_context *context, mics_checkpoint_losses *recent_out)
{
    mics_job *job = context->job;
    if (job->node.taken && run_is_first_local(context))
        MICS_TRY(run_node_fetch(job));
    return run_restore_fill(context, job->checkpoint, recent_out);
}

mics_status run_restore(const run_context *context, mics_checkpoint_losses *recent_out)
{
    mics_job *job = context->job;
    run_rank *rank = context->rank;
    bool older = false;
    char why[RUN_WHY_BYTES] = "";
    run_outcome found = RUN_GOOD;
    mics_status mine = fill(context, recent_out);
    if (!job->resumes_newest) {
        if (run_newest_is_damage(job, mine))
            run_job_advise_older(job);
        return mine;
    }
    MICS_TRY(settle_ranks(job, rank, mine, &found, why));
    while (found == RUN_DAMAGED) {
        older = true;
        mine = run_is_first_local(context) ? take_older(job, why) : MICS_OK;
        MICS_TRY(settle_ranks(job, rank, mine, &found, why));
        if (found != RUN_GOOD)
            continue;
        mine = fill(context, recent_out);
        MICS_TRY(settle_ranks(job, rank, mine, &found, why));
    }
    if (found == RUN_FAILED)
        return mine;
    begin_there(context, older);
    return MICS_OK;
}
