// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "base.h"
#include "import.h"
#include "mics/log.h"
#include <inttypes.h>

bool run_base_is_frozen(const mics_model *model)
{
    bool any = false;
    for (int32_t unit = 0; unit < model->unit_count; unit++)
        any = any || model->units[unit].frozen;
    return any;
}

mics_status run_base_fill(const run_context *context, bool frozen_alone)
{
    const mics_job *job = context->job;
    const run_import import = {
        .reader = job->import,
        .schedule = job->schedule,
        .rank = context->rank->comm->rank,
        .frozen_alone = frozen_alone,
        .listener = {.ctx = job->callbacks.ctx,
                     .progress = run_is_rank_0(context) ? job->callbacks.work : NULL},
    };
    context->rank->base_hash = 0;
    if (job->import == NULL)
        return mics_engine_init_random(context->engine, job->run->seed);
    if (!frozen_alone)
        mics_engine_init_adapters(context->engine, job->run->seed);
    return run_import_fill(&import, context->engine, &context->rank->base_hash);
}

mics_status run_base_check(const run_context *context)
{
    const mics_job *job = context->job;
    const uint64_t before =
        job->checkpoint != NULL ? mics_checkpoint_meta_get(job->checkpoint)->base_hash : 0;
    uint64_t *hash = &context->rank->base_hash;
    if (!run_base_is_frozen(job->model) || job->import == NULL)
        return MICS_OK;
    MICS_TRY(run_rank_sum(context->rank, hash));
    if (before == 0 || before == *hash)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: was trained on other frozen weights (%016" PRIx64 ") than those of %s "
                     "(%016" PRIx64 "); restore them, or name their folder in model.init",
                     job->checkpoint_path, before, job->run->model_init, *hash);
}
