// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "base.h"
#include "import.h"
#include "mics/log.h"
#include <inttypes.h>
#include <string.h>

bool run_base_is_frozen(const mics_model *model)
{
    bool any = false;
    for (int32_t unit = 0; unit < model->unit_count; unit++)
        any = any || model->units[unit].frozen;
    return any;
}

mics_status run_base_differs(const char *checkpoint, uint64_t before, const char *base,
                             uint64_t hash)
{
    return mics_fail(MICS_ERR_INVALID,
                     "%s: was trained on other frozen weights (%016" PRIx64 ") than those of %s "
                     "(%016" PRIx64 "); restore them, or name their folder (model.init, --base)",
                     checkpoint, before, base, hash);
}

mics_status run_base_fill(const run_context *context, bool frozen_alone)
{
    const mics_job *job = context->job;
    const run_import import = {
        .reader = job->import,
        .adapter = frozen_alone ? NULL : job->adapter,
        .schedule = job->schedule,
        .rank = context->rank->comm->rank,
        .frozen_alone = frozen_alone,
        .listener = {.ctx = job->callbacks.ctx,
                     .progress = run_is_rank_0(context) ? job->callbacks.work : NULL},
    };
    context->rank->base_hash = 0;
    if (strcmp(job->run->model_init, "random") == 0)
        MICS_TRY(mics_engine_init_random(context->engine, job->run->seed));
    else if (!frozen_alone)
        mics_engine_init_adapters(context->engine, job->run->seed);
    return import.reader == NULL && import.adapter == NULL
               ? MICS_OK
               : run_import_fill(&import, context->engine, &context->rank->base_hash);
}

// ---- ranks without the weights ----

// The first rank with the weights that holds the same part as `to` of what is cut into `degree`.
static int32_t owner_like(const bool *has, int32_t ranks, int32_t to, int32_t degree)
{
    for (int32_t rank = to % degree; rank < ranks; rank += degree) {
        if (has[rank])
            return rank;
    }
    return -1;
}

static mics_status give_unit(const run_context *context, int32_t unit, int32_t degree, int32_t from,
                             int32_t to)
{
    mics_comm *comm = context->rank->comm;
    const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(context->engine, unit);
    const bool gives = comm->rank == from;
    const mics_exchange exchange = {.to = gives ? to : MICS_RANK_NONE,
                                    .from = gives ? MICS_RANK_NONE : from,
                                    .send = gives ? held.shard_params : NULL,
                                    .recv = gives ? NULL : held.shard_params,
                                    .bytes = (size_t)(held.shard.end - held.shard.begin) *
                                             sizeof *held.shard_params,
                                    .what = "frozen parameters for a rank without them"};
    if (!gives && comm->rank != to)
        return MICS_OK;
    MICS_TRY(mics_comm_exchange(comm, &exchange));
    if (!gives && to < degree)
        context->rank->base_hash +=
            run_import_hash(&context->job->model->units[unit], held.shard, held.shard_params);
    return MICS_OK;
}

// All ranks walk the same list, and wait for their own entries alone.
static mics_status give_units(const run_context *context, const bool *has, int32_t to)
{
    const mics_schedule *schedule = context->job->schedule;
    for (int32_t unit = 0; unit < schedule->spec.model->unit_count; unit++) {
        const int32_t degree = schedule->sharding[unit].params * schedule->experts[unit];
        const int32_t from = owner_like(has, context->rank->comm->ranks, to, degree);
        if (!schedule->spec.model->units[unit].frozen)
            continue;
        if (from < 0)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: is not there on rank %d, and no other rank holds the same of its "
                             "frozen weights; restore it, or name its folder in model.init",
                             context->job->run->model_init, (int)to);
        MICS_TRY(give_unit(context, unit, degree, from, to));
    }
    return MICS_OK;
}

static mics_status share_base(const run_context *context)
{
    const int32_t ranks = context->rank->comm->ranks;
    bool *has = NULL; // by rank, the weights
    int32_t lacking = 0;
    MICS_TRY(MICS_NEW(context->rank->memory, ranks, &has));
    has[context->rank->comm->rank] = context->job->import != NULL;
    mics_status status = run_rank_gather(context->rank, has, sizeof *has);
    for (int32_t to = 0; to < ranks && status == MICS_OK; to++) {
        lacking += !has[to];
        if (!has[to])
            status = give_units(context, has, to);
    }
    if (status == MICS_OK && lacking > 0 && run_is_rank_0(context))
        mics_log(MICS_LOG_WARNING,
                 "%s: is not there on %d of %d ranks; their frozen weights come from others",
                 context->job->run->model_init, (int)lacking, (int)ranks);
    mics_free(context->rank->memory, has);
    return status == MICS_OK && lacking > 0 ? mics_engine_upload(context->engine) : status;
}

mics_status run_base_settle(const run_context *context)
{
    const mics_job *job = context->job;
    const uint64_t before =
        job->checkpoint != NULL ? mics_checkpoint_meta_get(job->checkpoint)->base_hash : 0;
    uint64_t *hash = &context->rank->base_hash;
    if (!run_base_is_frozen(job->model) || strcmp(job->run->model_init, "random") == 0)
        return MICS_OK;
    MICS_TRY(share_base(context));
    MICS_TRY(run_rank_sum(context->rank, hash));
    if (before == 0 || before == *hash)
        return MICS_OK;
    return run_base_differs(job->checkpoint_path, before, job->run->model_init, *hash);
}
