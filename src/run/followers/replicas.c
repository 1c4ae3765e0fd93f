// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "replicas.h"
#include "mics/log.h"
#include <stdio.h>

// ---- what differs, in words ----

static void describe(const run_context *context, int64_t step, const mics_divergence *found,
                     char (*hosts)[MICS_HOST_BYTES], char *text)
{
    const char *state = mics_replica_state_text(found->state);
    char when[48], of[MICS_NAME_BYTES + 16] = "", more[48] = "";
    if (found->state == MICS_REPLICA_GRADS)
        snprintf(when, sizeof when, "step %lld", (long long)step);
    else
        snprintf(when, sizeof when, "after step %lld", (long long)step);
    if (found->unit >= 0)
        snprintf(of, sizeof of, " of unit %s", context->job->model->units[found->unit].name);
    if (found->count > 1)
        snprintf(more, sizeof more, ", and %d more such differences", (int)found->count - 1);
    if (found->replicas == 1)
        snprintf(text, RUN_REPLICAS_TEXT_BYTES,
                 "%s: %s%s, which only rank %d (%s) holds, changed in memory since their update",
                 when, state, of, (int)found->rank, hosts[found->rank]);
    else if (found->other < 0)
        snprintf(text, RUN_REPLICAS_TEXT_BYTES,
                 "%s: rank %d (%s) holds other %s%s than most of the %d ranks that hold the "
                 "same%s",
                 when, (int)found->rank, hosts[found->rank], state, of, (int)found->replicas, more);
    else
        snprintf(text, RUN_REPLICAS_TEXT_BYTES,
                 "%s: ranks %d (%s) and %d (%s) hold different %s%s, and no majority says "
                 "which is right%s",
                 when, (int)found->rank, hosts[found->rank], (int)found->other, hosts[found->other],
                 state, of, more);
}

mics_status run_replicas_describe(const run_replicas *self, int64_t step,
                                  const mics_divergence *found, char *text)
{
    const run_context *context = self->context;
    char(*hosts)[MICS_HOST_BYTES] = NULL;
    MICS_TRY(MICS_NEW(context->rank->memory, context->rank->comm->ranks, &hosts));
    const mics_status status = mics_engine_hosts(context->engine, hosts);
    if (status == MICS_OK)
        describe(context, step, found, hosts, text);
    mics_free(context->rank->memory, hosts);
    return status;
}

// ---- what they hold ----

mics_status run_replicas_compare(run_replicas *self, mics_divergence *found_out)
{
    run_progress *progress = self->context->progress;
    MICS_TRY(mics_engine_compare(self->context->engine, found_out));
    if (found_out->found)
        return MICS_OK;
    run_progress_agree(progress);
    if (progress->step >= self->seen.diverged_step)
        self->seen.count = 0;
    return MICS_OK;
}

mics_status run_replicas_repair(run_replicas *self, const char *what, bool *repaired_out)
{
    const run_context *context = self->context;
    const int64_t agreed = context->progress->agreed;
    mics_divergence left;
    MICS_TRY(mics_engine_repair(context->engine));
    MICS_TRY(mics_engine_compare(context->engine, &left));
    *repaired_out = !left.found;
    if (left.found)
        return MICS_OK;
    if (run_is_rank_0(context))
        mics_log(MICS_LOG_WARNING,
                 "%s; it has got what most hold; %lld steps since step %lld may have trained with "
                 "what it held",
                 what, (long long)(context->progress->step - agreed), (long long)agreed);
    run_progress_agree(context->progress);
    return MICS_OK;
}

// ---- the follower ----

static mics_status open_replicas(void *state, const run_context *context, void *memory)
{
    (void)memory;
    *(run_replicas *)state = (run_replicas){
        .context = context, .seen = {.diverged_step = RUN_NO_STEP, .rewound_step = RUN_NO_STEP}};
    return MICS_OK;
}

static run_need needs(void *state, const run_step *step)
{
    const run_replicas *self = state;
    const int64_t every = self->context->job->run->check_replicas_every;
    return run_is_due(every, step->number) && !step->begins ? RUN_NEEDS_AGREED : RUN_NEEDS_NOTHING;
}

static mics_status rewind_replicas(void *state, const run_source *source)
{
    ((run_replicas *)state)->seen.rewound_step = source->step;
    return MICS_OK;
}

const run_follower run_replicas_follower = {
    .name = "replicas", .open = open_replicas, .needs = needs, .rewind = rewind_replicas};
