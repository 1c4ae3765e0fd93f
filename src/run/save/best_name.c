// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The name of the best checkpoint. Apart from best.c, which saves: what saves calls this.
#include "best.h"
#include "mics/checkpoint.h"
#include "mics/log.h"
#include "run/trainer.h"
#include <stdio.h>

static bool is_there(const run_trainer *self, int64_t step)
{
    char path[RUN_PATH_BYTES];
    mics_checkpoint *checkpoint = NULL;
    snprintf(path, sizeof path, "%s/step-%08lld", self->job->checkpoints_dir, (long long)step);
    const bool muted = mics_log_mute(true);
    const bool there = mics_checkpoint_open(self->rank->memory, path, &checkpoint) == MICS_OK;
    mics_log_mute(muted);
    mics_checkpoint_close(checkpoint);
    return there;
}

static void name(const run_trainer *self, int64_t step)
{
    const bool before = mics_log_demote(true);
    if (mics_checkpoint_name_best(self->rank->memory, self->job->checkpoints_dir, step) != MICS_OK)
        mics_log(MICS_LOG_WARNING, "%s/best does not name the best checkpoint; training goes on",
                 self->job->checkpoints_dir);
    mics_log_demote(before);
}

// A run that begins at an older step than the one that is named knows nothing of that any more.
void run_best_name_again(const run_trainer *self)
{
    int64_t named = -1;
    const int64_t best = self->best.step > 0 ? self->best.step : -1;
    const bool before = mics_log_demote(true);
    (void)mics_checkpoint_best(self->rank->memory, self->job->checkpoints_dir, &named);
    mics_log_demote(before);
    if (named == best)
        return;
    if (best > 0 && is_there(self, best))
        name(self, best);
    else if (named > self->step)
        name(self, -1);
}

void run_best_saved(run_trainer *self, int64_t step)
{
    if (self->job->run->keep_best && self->best.known && self->best.step == step &&
        self->rank->comm->rank == 0)
        name(self, step);
}
