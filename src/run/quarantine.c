// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "quarantine.h"
#include "run/followers/saving.h"
#include "run/save/rewind.h"
#include <stdio.h>

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
    const mics_status status = run_saving_quarantine(context->saving);
    if (status == MICS_OK)
        snprintf(text, capacity,
                 "the state of step %lld is saved: --resume %s/step-%08lld goes on from it",
                 (long long)step, context->job->quarantine_dir, (long long)step);
    else
        snprintf(text, capacity, "the state of step %lld is not saved%s", (long long)step,
                 status == MICS_ERR_NUMERIC ? ", as it holds numbers that cannot be" : "");
    return run_await_collectives(context);
}
