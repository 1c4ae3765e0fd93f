// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies in node memory of a rank that trains.
#include "saving_copy.h"
#include "mics/log.h"

// ---- what is read of the engine ----

static mics_status download(run_saving *self)
{
    return self->downloaded ? MICS_OK : mics_engine_download(self->context->engine);
}

// Its memory is released once the save has ended.
mics_status run_saving_hold(run_saving *self)
{
    const mics_status status = download(self);
    self->downloaded = true;
    return status;
}

void run_saving_release(run_saving *self)
{
    mics_engine_release(self->context->engine);
    self->downloaded = false;
}

// ---- copies in node memory ----

static void count_copy(run_saving *self)
{
    self->saver.slot = (self->saver.slot + 1) % MICS_NODE_SLOTS;
    run_progress_keep(self->context->progress);
}

// *kept_out: whether it counts, alike on all ranks. A save that is under way goes on beside it.
mics_status run_saving_copy(run_saving *self, bool to_stop, bool *kept_out)
{
    run_save *copy = save_of(self, RUN_COPY);
    copy->to_stop = to_stop;
    copy->borrows = self->downloaded;
    const mics_status status = run_saver_run(copy, download(self));
    run_saver_end(copy, status != MICS_OK);
    *kept_out = status == MICS_OK;
    MICS_TRY(status == MICS_ERR_PEER ? MICS_OK : status); // some rank could not
    if (*kept_out)
        count_copy(self);
    // A run that resumes from here has none either.
    mics_engine_forget_residual(self->context->engine);
    return MICS_OK;
}

mics_status run_saving_copy_between(run_saving *self, bool to_stop, bool *kept_out)
{
    MICS_TRY(run_await_files(self->context));
    MICS_TRY(run_saving_copy(self, to_stop, kept_out));
    return run_await_collectives(self->context);
}

// Takes over what the savers have made in the middle of a step: *kept_out, alike on all ranks, and on
// this one *lost_out: the others do not come.
mics_status run_saving_take_copy(run_saving *self, bool *kept_out, bool *lost_out)
{
    run_save *copy = save_of(self, RUN_COPY);
    *lost_out = run_saver_await_done(copy, false) == MICS_ERR_PEER;
    const bool kept = run_saver_state(copy) == RUN_SAVE_DONE;
    run_saver_end(copy, !kept);
    MICS_TRY(mics_engine_any(self->context->engine, kept, kept_out));
    if (*kept_out)
        count_copy(self);
    return MICS_OK;
}

bool run_saving_is_safe(const run_saving *self)
{
    const run_progress *progress = self->context->progress;
    return progress->saved == progress->step || progress->kept == progress->step;
}

// While ranks wait for a save. What is not in a good state is not kept (run_saving_settle).
mics_status run_saving_copy_at_half(run_saving *self)
{
    const run_context *context = self->context;
    const long long step = (long long)context->progress->step;
    bool due = false, kept = false, lost = false;
    if (!self->keeps || self->tried == step || run_saving_is_safe(self))
        return MICS_OK;
    MICS_TRY(mics_engine_any(context->engine, run_saver_is_half_over(&self->saver), &due));
    if (!due)
        return MICS_OK;
    self->tried = step;
    MICS_TRY(run_saving_take_copy(self, &kept, &lost));
    if (kept)
        return MICS_OK;
    if (run_is_rank_0(context))
        mics_log(MICS_LOG_WARNING,
                 "step %lld is not on disk at half of run.grace_s (%g s); it goes to node memory, "
                 "too",
                 step, context->job->run->grace_s);
    return run_saving_copy(self, true, &kept);
}
