// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where islands go on as they were, each takes its own state, whatever the mesh is now. Where they had
// agreed, any number of islands begins there with the parameters of all: island i has the moments of
// island i modulo those that there were.
#include "islands.h"
#include "mics/core/ledger.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

static int32_t islands_in(const mics_checkpoint_meta *meta)
{
    return meta->outer.islands > 1 ? meta->outer.islands : 1;
}

// As many islands, whose units meet in the same steps.
static bool go_on(const mics_job *job, const mics_checkpoint_meta *meta)
{
    const mics_checkpoint_outer *then = &meta->outer;
    const mics_outer *now = &job->schedule->spec.outer;
    if (run_job_islands(job) != islands_in(meta))
        return false;
    return then->islands <= 1 || (then->every == now->every && then->fragments == now->fragments &&
                                  then->overlap_steps == now->overlap_steps &&
                                  then->windows == mics_schedule_windows(job->schedule));
}

// ---- whether they can ----

// All units meet at once only where one fragment meets at the head of a list.
static void describe_agreed(const mics_checkpoint_meta *meta, char *text, size_t capacity)
{
    const mics_checkpoint_outer *outer = &meta->outer;
    const int64_t last = meta->step / outer->every * outer->every, next = last + outer->every;
    if (outer->fragments > 1 || outer->overlap_steps > 0)
        snprintf(text, capacity,
                 "they agree where a run or a phase ends: train to such a step (run.steps) with "
                 "%d islands",
                 (int)outer->islands);
    else if (last > 0)
        snprintf(text, capacity,
                 "they agreed at step %lld: resume from that, or train to step %lld (run.steps) "
                 "with %d islands",
                 (long long)last, (long long)next, (int)outer->islands);
    else
        snprintf(text, capacity, "they agree at step %lld: train to it (run.steps) with %d islands",
                 (long long)next, (int)outer->islands);
}

mics_status run_islands_check(const mics_job *job)
{
    const mics_checkpoint_meta *meta = mics_checkpoint_meta_get(job->checkpoint);
    const int32_t now = run_job_islands(job);
    char agreed[160], what[96];
    if (go_on(job, meta) || mics_checkpoint_is_agreed(&meta->outer))
        return MICS_OK;
    describe_agreed(meta, agreed, sizeof agreed);
    if (now != islands_in(meta))
        snprintf(what, sizeof what, "this run has %d (outer.ranks)", (int)now);
    else
        snprintf(what, sizeof what,
                 "this run has another outer.every, outer.fragments or outer.overlap_steps");
    return mics_fail(
        MICS_ERR_INVALID, "%s: step %lld is between meetings of its %d islands, and %s; %s",
        job->checkpoint_path, (long long)meta->step, (int)meta->outer.islands, what, agreed);
}

// ---- what is read ----

typedef struct source {
    const run_context *context;
    const mics_checkpoint *checkpoint;
    const mics_checkpoint_meta *meta;
    bool goes_on;
    int32_t island; // whose own state this rank takes
} source;

static mics_status fill_state(const source *from, const mics_unit *unit, const char *name,
                              const char *state, mics_range range, float *data_out)
{
    if (range.begin == range.end)
        return MICS_OK;
    MICS_TRY(mics_checkpoint_read(from->checkpoint, name, unit->elems, state, range.begin,
                                  range.end, data_out));
    return mics_checkpoint_check_numbers(from->checkpoint, name, state, range.begin, range.end,
                                         data_out);
}

// `own`: the name of the island's own state.
static mics_status fill_own(const source *from, int32_t index, const char *own)
{
    const run_context *context = from->context;
    const mics_unit *unit = &context->job->model->units[index];
    const mics_optimizer_def *def = mics_optimizer_def_get(context->job->run->optimizer.kind);
    const mics_engine_optimizer_shard owned =
        mics_engine_optimizer_shard_get(context->engine, index);
    MICS_TRY(fill_state(from, unit, from->goes_on ? own : unit->name, MICS_STATE_PARAM, owned.range,
                        owned.params));
    for (int32_t state = 0; state < def->states; state++)
        MICS_TRY(
            fill_state(from, unit, own, def->state_names[state], owned.range, owned.states[state]));
    return MICS_OK;
}

static mics_status fill_agreed(const source *from, int32_t index)
{
    const mics_unit *unit = &from->context->job->model->units[index];
    const mics_engine_outer_shard shard = mics_engine_outer_shard_get(from->context->engine, index);
    MICS_TRY(fill_state(from, unit, unit->name, MICS_STATE_PARAM, shard.range, shard.anchor));
    if (islands_in(from->meta) > 1)
        return fill_state(from, unit, unit->name, MICS_STATE_OUTER_MOMENTUM, shard.met,
                          shard.momentum);
    for (int64_t i = 0; i < shard.met.end - shard.met.begin; i++)
        shard.momentum[i] = 0;
    return MICS_OK;
}

static mics_status fill_unit(const source *from, int32_t index)
{
    mics_memory *memory = from->context->rank->memory;
    const char *name = from->context->job->model->units[index].name;
    char *own = NULL;
    if (islands_in(from->meta) > 1)
        MICS_TRY(mics_checkpoint_island_unit(memory, name, from->island, &own));
    mics_status status = fill_own(from, index, own != NULL ? own : name);
    mics_free(memory, own);
    if (status == MICS_OK && run_job_islands(from->context->job) > 1)
        status = fill_agreed(from, index);
    return status;
}

// Who had agreed begins a period.
static void fill_windows(const source *from)
{
    const mics_outer_state state = mics_engine_outer_state(from->context->engine);
    const mics_checkpoint_outer *then = &from->meta->outer;
    if (state.islands == 1)
        return;
    *state.met = from->goes_on ? then->met : from->meta->step + 1;
    for (int32_t i = 0; i < state.windows * state.islands; i++)
        state.counted[i] = from->goes_on ? then->counted[i] : 0;
}

static void note_others(const source *from)
{
    const mics_job *job = from->context->job;
    const int then = (int)islands_in(from->meta), now = (int)run_job_islands(job);
    const long long step = (long long)from->meta->step;
    if (from->goes_on || !run_is_rank_0(from->context))
        return;
    if (then == 1)
        run_job_note(job, "step %lld is of one island: %d begin with its parameters and moments",
                     step, now);
    else if (now == 1)
        run_job_note(job,
                     "%d islands had agreed at step %lld: the run resumes from there as one, with "
                     "the moments of the first and without outer momentum",
                     then, step);
    else
        run_job_note(job,
                     "%d islands had agreed at step %lld: %d resume from there with their outer "
                     "momentum, island i with the moments of island i modulo %d",
                     then, step, now, then);
}

mics_status run_islands_fill(const run_context *context, const mics_checkpoint *checkpoint,
                             const mics_work_listener *listener)
{
    const mics_checkpoint_meta *meta = mics_checkpoint_meta_get(checkpoint);
    const int32_t units = context->job->model->unit_count;
    const source from = {.context = context,
                         .checkpoint = checkpoint,
                         .meta = meta,
                         .goes_on = go_on(context->job, meta),
                         .island = run_island(context) % islands_in(meta)};
    for (int32_t unit = 0; unit < units; unit++) {
        MICS_TRY(fill_unit(&from, unit));
        mics_work_tell(listener, "loading the checkpoint", unit + 1, units);
    }
    MICS_TRY(mics_engine_upload(context->engine));
    fill_windows(&from);
    note_others(&from);
    return MICS_OK;
}
