// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run does when replicas differ: it goes back to a state on which they agreed, takes what
// most of them hold, or ends. The other replicas have trained with the odd one's gradients since
// the newest state that agreed, so only going back gives the bits of an undisturbed run.
#include "base/clock.h"
#include "mics/log.h"
#include "run/guard.h"
#include "run/trainer.h"
#include <stdio.h>
#include <string.h>

// How often a run goes back, or repairs, until it has come past where replicas differed.
enum { MAX_TRIES = 3, TEXT_BYTES = 1024 };

static bool speaks(const run_trainer *self)
{
    return self->rank->comm->rank == 0;
}

// ---- what differs, in words ----

static void describe(const run_trainer *self, int64_t step, const mics_divergence *found,
                     char (*hosts)[MICS_HOST_BYTES], char *text, size_t capacity)
{
    const char *state = mics_replica_state_text(found->state);
    char when[48], of[MICS_NAME_BYTES + 16] = "", more[48] = "";
    if (found->state == MICS_REPLICA_GRADS)
        snprintf(when, sizeof when, "step %lld", (long long)step);
    else
        snprintf(when, sizeof when, "after step %lld", (long long)step);
    if (found->unit >= 0)
        snprintf(of, sizeof of, " of unit %s", self->job->model->units[found->unit].name);
    if (found->count > 1)
        snprintf(more, sizeof more, ", and %d more such differences", (int)found->count - 1);
    if (found->other < 0)
        snprintf(text, capacity,
                 "%s: rank %d (%s) holds other %s%s than most of the %d ranks that hold the "
                 "same%s",
                 when, (int)found->rank, hosts[found->rank], state, of, (int)found->replicas, more);
    else
        snprintf(text, capacity,
                 "%s: ranks %d (%s) and %d (%s) hold different %s%s, and no majority says "
                 "which is right%s",
                 when, (int)found->rank, hosts[found->rank], (int)found->other, hosts[found->other],
                 state, of, more);
}

static mics_status describe_with_hosts(run_trainer *self, int64_t step,
                                       const mics_divergence *found, char *text, size_t capacity)
{
    char(*hosts)[MICS_HOST_BYTES] = NULL;
    MICS_TRY(MICS_NEW(self->rank->memory, self->rank->comm->ranks, &hosts));
    const mics_status status = mics_engine_hosts(self->engine, hosts);
    if (status == MICS_OK)
        describe(self, step, found, hosts, text, capacity);
    mics_free(self->rank->memory, hosts);
    return status;
}

// ---- where to go back to ----

static bool open_source(const run_trainer *self, const char *path, run_guard_source *source_out)
{
    mics_checkpoint *checkpoint = NULL;
    const bool muted = mics_log_mute(true);
    const bool good = mics_checkpoint_open(self->rank->memory, path, &checkpoint) == MICS_OK;
    mics_log_mute(muted);
    if (!good)
        return false;
    source_out->step = mics_checkpoint_meta_get(checkpoint)->step;
    snprintf(source_out->path, sizeof source_out->path, "%s", path);
    mics_checkpoint_close(checkpoint);
    return true;
}

// What this run saved was compared before; so was, or is as good as it gets, what it resumed from.
// Of one that resumed from node memory that is the newest checkpoint on disk.
static bool newest_saved(const run_trainer *self, run_guard_source *source_out)
{
    const mics_job *job = self->job;
    const bool resumed =
        job->checkpoint_path != NULL && !job->node.taken && self->saved_step == job->start_step;
    if (!self->saved)
        return job->node.taken && job->newest_path != NULL &&
               open_source(self, job->newest_path, source_out);
    source_out->step = self->saved_step;
    if (resumed)
        snprintf(source_out->path, sizeof source_out->path, "%s", job->checkpoint_path);
    else
        snprintf(source_out->path, sizeof source_out->path, "%s/step-%08lld", job->checkpoints_dir,
                 (long long)self->saved_step);
    return true;
}

// The one before it, for when it is damaged.
static bool saved_before(const run_trainer *self, const run_guard_source *newest,
                         run_guard_source *source_out)
{
    mics_memory *memory = self->rank->memory;
    char *path = NULL;
    const bool muted = mics_log_mute(true);
    const mics_status status =
        mics_checkpoint_other(memory, self->job->checkpoints_dir, &newest->step, 1, &path);
    mics_log_mute(muted);
    const bool found = status == MICS_OK && path != NULL && open_source(self, path, source_out) &&
                       source_out->step < newest->step;
    mics_free(memory, path);
    return found;
}

// Whether what the run began with can be made again: weights that were read are open only where it
// did not resume.
static bool begins_again(const mics_job *job)
{
    return job->import != NULL || strcmp(job->run->model_init, "random") == 0;
}

bool run_guard_newest_saved(const run_trainer *self, int32_t which, run_guard_source *source_out)
{
    run_guard_source newest = {.path = ""};
    *source_out = newest;
    if (!newest_saved(self, &newest))
        return which == 0 && begins_again(self->job);
    if (which == 0) {
        *source_out = newest;
        return true;
    }
    return which == 1 && saved_before(self, &newest, source_out);
}

// ---- going back ----

static void clear_state(run_trainer *self)
{
    const mics_optimizer_def *def = mics_optimizer_def_get(self->job->run->optimizer.kind);
    for (int32_t unit = 0; unit < self->job->model->unit_count; unit++) {
        const mics_engine_optimizer_shard held =
            mics_engine_optimizer_shard_get(self->engine, unit);
        memset(held.shard_params, 0,
               (size_t)(held.shard.end - held.shard.begin) * sizeof *held.shard_params);
        for (int32_t state = 0; state < def->states; state++)
            memset(held.states[state], 0,
                   (size_t)(held.range.end - held.range.begin) * sizeof *held.states[state]);
    }
}

// One rank a process does what is the process'.
static bool is_first_here(const run_trainer *self)
{
    return self->rank->comm->rank == self->job->world->first;
}

// What this node lacks of a copy in node memory comes from others first.
static mics_status open_state(run_trainer *self, const run_guard_source *source,
                              mics_checkpoint **checkpoint_out)
{
    const char *path = source->path;
    mics_status fetched = MICS_OK;
    if (source->in_memory && is_first_here(self)) {
        fetched = run_node_fetch(self->job);
        run_rank_speaks(self->rank);
    }
    MICS_TRY(fetched);
    if (source->in_memory)
        path = run_node_memory_path(self->job);
    return path[0] != '\0' ? mics_checkpoint_open(self->rank->memory, path, checkpoint_out)
                           : MICS_OK;
}

static mics_status load_state(run_trainer *self, const run_guard_source *source)
{
    mics_checkpoint *checkpoint = NULL;
    MICS_TRY(mics_engine_download_params(self->engine)); // as what is written there is uploaded
    clear_state(self);
    mics_engine_set_scaler(self->engine, &self->guard.scaler);
    MICS_TRY(open_state(self, source, &checkpoint));
    const mics_status status = run_filling_state(self, checkpoint);
    mics_checkpoint_close(checkpoint);
    return status;
}

// The states to go back to, newest first.
enum { MAX_SAVED = 2, MAX_SOURCES = MAX_SAVED + 1 };
typedef struct source_list {
    run_guard_source list[MAX_SOURCES];
    int32_t count;
    int32_t read; // the one that the run goes back to
} source_list;

// Rank 0 looks at the disk for all: others might not see the same there.
static mics_status share_saved(run_trainer *self, source_list *sources)
{
    if (speaks(self)) {
        while (sources->count < MAX_SAVED &&
               run_guard_newest_saved(self, sources->count, &sources->list[sources->count]))
            sources->count++;
    }
    return mics_comm_broadcast(self->rank->comm, 0, sources, sizeof *sources);
}

// Copies in node memory were compared before they were made, as saves are. Of the same step as on
// disk, the copy is read.
static void add_copy(const run_trainer *self, source_list *sources)
{
    const int64_t step = run_node_memory_step(self->job);
    int32_t at = 0;
    if (step < 0)
        return;
    while (at < sources->count && sources->list[at].step > step)
        at++;
    for (int32_t i = sources->count; i > at; i--)
        sources->list[i] = sources->list[i - 1];
    sources->list[at] = (run_guard_source){.step = step, .in_memory = true};
    sources->count++;
}

static mics_status find_sources(run_trainer *self, source_list *sources)
{
    mics_status found = MICS_OK;
    MICS_TRY(share_saved(self, sources));
    if (is_first_here(self)) {
        found = run_node_memory_find_again(self->job);
        run_rank_speaks(self->rank);
    }
    MICS_TRY(mics_engine_agree(self->engine, found));
    add_copy(self, sources);
    return MICS_OK;
}

// On this rank, or on another one.
static bool is_unreadable(mics_status status)
{
    return status == MICS_ERR_FORMAT || mics_status_is_io(status) || status == MICS_ERR_NUMERIC ||
           status == MICS_ERR_PEER;
}

// The newest state that can be read, on all ranks alike.
static mics_status load_newest(run_trainer *self, source_list *sources,
                               run_guard_source *source_out)
{
    mics_status status = MICS_ERR_IO;
    for (int32_t which = 0; which < sources->count; which++) {
        sources->read = which;
        *source_out = sources->list[which];
        if (which > 0) // of a rank that could not read, the answer does not say it
            MICS_TRY(mics_engine_agree(self->engine, MICS_OK));
        const bool before = mics_log_demote(true);
        status = mics_engine_agree(self->engine, load_state(self, source_out));
        mics_log_demote(before);
        if (status == MICS_OK)
            return MICS_OK;
        if (status == MICS_ERR_ABORTED) // who ended the world has said why
            return status;
        if (!is_unreadable(status))
            return mics_fail(status, "the state of step %lld cannot be loaded: %s",
                             (long long)source_out->step, mics_status_text(status));
    }
    return speaks(self) ? mics_fail(MICS_ERR_IO, "%s: holds no state that the run could go back to",
                                    self->job->checkpoints_dir)
                        : status;
}

// A newer checkpoint that could not be read counts as none: its step is saved again.
static void forget_unreadable(run_trainer *self, const source_list *sources)
{
    int32_t at = sources->read;
    if (!self->saved || sources->list[at].step >= self->saved_step)
        return;
    while (at < sources->count && sources->list[at].in_memory)
        at++;
    self->saved = at < sources->count && sources->list[at].path[0] != '\0';
    self->saved_step = self->saved ? sources->list[at].step : 0;
    if (is_first_here(self))
        run_stop_lost(&self->job->stop, self->saved_step, self->saved);
}

static mics_status load(run_trainer *self, run_guard_source *source_out)
{
    source_list sources = {.count = 0};
    MICS_TRY(find_sources(self, &sources));
    MICS_TRY(load_newest(self, &sources, source_out));
    forget_unreadable(self, &sources);
    if (source_out->in_memory) // the next one must not take its place
        self->memory_slot = run_node_memory_next_slot(self->job);
    MICS_TRY(mics_engine_agree(self->engine, MICS_OK)); // all have looked at it
    if (is_first_here(self))
        run_node_forget_found(self->job);
    return MICS_OK;
}

static mics_status go_back(run_trainer *self, run_guard_source *source_out)
{
    mics_comm *comm = self->rank->comm;
    MICS_TRY(mics_comm_set_timeout(comm, run_job_files_timeout_s(self->job)));
    MICS_TRY(load(self, source_out));
    mics_engine_release(self->engine);
    mics_engine_forget_residual(self->engine); // a run that resumes has none either
    MICS_TRY(mics_comm_set_timeout(comm, self->job->run->comm_timeout_s));
    MICS_TRY(mics_engine_complete(self->engine));
    const bool before = mics_log_demote(true); // a line that is lost ends no run
    (void)run_filling_cut_reports(self, source_out->step);
    mics_log_demote(before);
    self->step = source_out->step;
    if (source_out->step < self->prune_due) // what is newer was not gone back to
        self->prune_due = 0;
    self->begin_us = mics_clock_us();
    self->guard.agreed_step = source_out->step;
    return MICS_OK;
}

// ---- what is done ----

static mics_status fail(const run_trainer *self, const char *what, const char *then)
{
    run_guard_source newest;
    char where[RUN_PATH_BYTES + 64] = "the run's start";
    if (!speaks(self))
        return MICS_ERR_NUMERIC;
    (void)run_guard_newest_saved(self, 0, &newest);
    if (newest.path[0] != '\0')
        snprintf(where, sizeof where, "%s (--resume auto goes on from it)", newest.path);
    if (self->kept && self->kept_step > newest.step)
        snprintf(where, sizeof where,
                 "that of step %lld, in node memory (--resume auto goes on from it)",
                 (long long)self->kept_step);
    return mics_fail(MICS_ERR_NUMERIC, "%s; %s; the newest state that agreed is %s", what, then,
                     where);
}

// Whether the same replicas differ again since the same state: then it is no accident.
static bool is_repeated(const run_trainer *self, const mics_divergence *found)
{
    const run_guard *guard = &self->guard;
    return guard->tries > 1 && guard->rewound_step == guard->agreed_step &&
           guard->newest.rank == found->rank && guard->newest.other == found->other &&
           guard->newest.unit == found->unit && guard->newest.state == found->state;
}

static mics_status repair(run_trainer *self, int64_t step, const char *what, bool *repaired_out)
{
    mics_divergence left;
    MICS_TRY(mics_engine_repair(self->engine));
    MICS_TRY(mics_engine_compare(self->engine, &left));
    *repaired_out = !left.found;
    if (left.found)
        return MICS_OK;
    if (speaks(self))
        mics_log(MICS_LOG_WARNING,
                 "%s; it has got what most hold; %lld steps since step %lld may have trained with "
                 "what it held",
                 what, (long long)(step - self->guard.agreed_step),
                 (long long)self->guard.agreed_step);
    self->guard.agreed_step = step;
    return MICS_OK;
}

static mics_status rewind_run(run_trainer *self, const char *what)
{
    run_guard_source source;
    MICS_TRY(go_back(self, &source));
    self->guard.rewound_step = source.step;
    if (speaks(self))
        mics_log(MICS_LOG_WARNING, "%s; the run goes back to step %lld (%s)", what,
                 (long long)source.step,
                 source.in_memory         ? "in node memory"
                 : source.path[0] != '\0' ? source.path
                                          : "what it began with");
    return MICS_OK;
}

mics_status run_guard_diverged(run_trainer *self, int64_t step, const mics_divergence *found)
{
    const char *policy = self->job->run->on_divergence;
    run_guard *guard = &self->guard;
    char what[TEXT_BYTES];
    bool repaired = false;
    MICS_TRY(describe_with_hosts(self, step, found, what, sizeof what));
    run_saving_drop(self); // of this state; and what is copied behind may be written over
    MICS_TRY(run_saving_settle(self));
    guard->tries++;
    if (strcmp(policy, "stop") == 0)
        return fail(self, what, "run.on_divergence is \"stop\"");
    if (is_repeated(self, found) || guard->tries > MAX_TRIES)
        return fail(self, what,
                    "the same happens again and again, so that machine is probably bad: leave it "
                    "out and start again");
    guard->newest = *found;
    guard->diverged_step = step;
    if (strcmp(policy, "repair") == 0 && found->majority && found->state != MICS_REPLICA_GRADS)
        MICS_TRY(repair(self, step, what, &repaired));
    return repaired ? MICS_OK : rewind_run(self, what);
}

mics_status run_guard_check_stop(run_trainer *self)
{
    mics_divergence found;
    char what[TEXT_BYTES];
    MICS_TRY(mics_engine_compare(self->engine, &found));
    if (!found.found)
        return MICS_OK;
    MICS_TRY(describe_with_hosts(self, self->step, &found, what, sizeof what));
    run_saving_drop(self);
    return fail(self, what, "the run is to stop, and does not save that");
}
