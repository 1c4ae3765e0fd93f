// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

void run_standing_begin(run_standing *standing, int64_t step, bool saved)
{
    atomic_store(&standing->step, step);
    run_standing_save(standing, saved ? step : RUN_NO_STEP);
}

void run_standing_save(run_standing *standing, int64_t step)
{
    atomic_store(&standing->saved, step);
}

void run_standing_keep(run_standing *standing, int64_t step)
{
    atomic_store(&standing->kept, step);
}

void run_progress_begin(run_progress *progress, run_standing *standing, int64_t step, bool saved)
{
    *progress = (run_progress){.standing = standing,
                               .step = step,
                               .saved = saved ? step : RUN_NO_STEP,
                               .saving = RUN_NO_STEP,
                               .kept = RUN_NO_STEP,
                               .agreed = step,
                               .validated = RUN_NO_STEP,
                               .sampled = RUN_NO_STEP};
    run_standing_begin(standing, step, saved);
}

void run_progress_step(run_progress *progress, int64_t step)
{
    progress->step = step;
    atomic_store(&progress->standing->step, step);
}

void run_progress_go_back(run_progress *progress, int64_t step)
{
    run_progress_step(progress, step);
    progress->agreed = step;
}

void run_progress_agree(run_progress *progress)
{
    progress->agreed = progress->step;
}

void run_progress_begin_save(run_progress *progress)
{
    progress->saving = progress->step;
}

void run_progress_end_save(run_progress *progress, int64_t step, bool saved)
{
    if (progress->saving == step)
        progress->saving = RUN_NO_STEP;
    if (!saved)
        return;
    progress->saved = step;
    run_standing_save(progress->standing, step);
}

void run_progress_lose(run_progress *progress, int64_t saved)
{
    progress->saved = saved;
    run_standing_save(progress->standing, saved);
}

bool run_progress_is_saved(const run_progress *progress)
{
    return progress->saved == progress->step || progress->saving == progress->step;
}

void run_progress_keep(run_progress *progress)
{
    progress->kept = progress->step;
    run_standing_keep(progress->standing, progress->step);
}

void run_progress_validate(run_progress *progress)
{
    progress->validated = progress->step;
}

void run_progress_sample(run_progress *progress)
{
    progress->sampled = progress->step;
}
