// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a rank that trains.
//
// Every rank writes: of the n / O ranks that hold an optimizer shard alike, each a part. A save
// that the run asks for is copied and written behind the next steps (saver.h). Ranks say in each
// step's agreement what became of it, so all take alike what follows: whether it is there, whether
// it failed, and whether older checkpoints may go. Saves that somebody waits for, at the end or to
// stop, are written from the engine's memory.
//
// Older checkpoints are removed once a step after the newer one was good, or the run has ended.
#include "base/clock.h"
#include "base/file.h"
#include "base/size.h"
#include "mics/log.h"
#include "trainer.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ---- what a rank writes ----

// Element where part `part` of `parts` of so many elements begins: whole cache lines.
static int64_t cut(int64_t elems, int64_t parts, int64_t part)
{
    const int64_t each = mics_size_round_up((elems + parts - 1) / parts, 16);
    return each * part < elems ? each * part : elems;
}

size_t run_saving_copy_bytes(const mics_schedule *schedule, int32_t states)
{
    const mics_sharding *all = &schedule->spec.mesh.sharding;
    const int64_t replicas = schedule->spec.mesh.ranks / all->optimizer;
    int64_t elems = 0;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++)
        elems += cut(schedule->padded_elems[u] / schedule->sharding[u].optimizer, replicas, 1);
    return (size_t)(elems * (1 + states)) * sizeof(float);
}

static void add_state(mics_optimizer_shard *shard, const char *name, const float *data)
{
    shard->states[shard->state_count++] =
        (mics_shard_state){.name = name, .dtype = MICS_DTYPE_FP32, .data = data};
}

void run_saving_fill_shards(const run_trainer *self, int64_t part, int64_t parts,
                            mics_optimizer_shard *shards)
{
    const mics_model *model = self->job->model;
    const mics_optimizer_def *def = mics_optimizer_def_get(self->job->run->optimizer.kind);
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        const mics_engine_optimizer_shard owned =
            mics_engine_optimizer_shard_get(self->engine, unit);
        const int64_t elems = owned.range.end - owned.range.begin;
        const int64_t from = cut(elems, parts, part);
        mics_optimizer_shard *shard = &shards[unit];
        *shard = (mics_optimizer_shard){.unit = model->units[unit].name,
                                        .unit_elems = model->units[unit].elems,
                                        .begin = owned.range.begin + from,
                                        .end = owned.range.begin + cut(elems, parts, part + 1)};
        add_state(shard, MICS_STATE_PARAM, owned.params + from);
        for (int32_t state = 0; state < def->states; state++)
            add_state(shard, def->state_names[state], owned.states[state] + from);
    }
}

void run_saving_copy(const run_trainer *self)
{
    float *to = self->saver.copy;
    for (int32_t u = 0; u < self->job->model->unit_count; u++) {
        mics_optimizer_shard *shard = &self->saver.behind.shards[u];
        const size_t elems = (size_t)(shard->end - shard->begin);
        for (int32_t s = 0; s < shard->state_count; s++, to += elems) {
            memcpy(to, shard->states[s].data, elems * sizeof *to);
            shard->states[s].data = to;
        }
    }
}

static mics_checkpoint_scaler scaler_of(const mics_engine *engine)
{
    const mics_scaler scaler = mics_engine_scaler(engine);
    return (mics_checkpoint_scaler){.scale = scaler.scale,
                                    .steps = scaler.steps,
                                    .since_overflow = scaler.steps - scaler.last_overflow,
                                    .skipped = scaler.skipped,
                                    .hysteresis = scaler.hysteresis};
}

mics_checkpoint_meta run_saving_meta(const run_trainer *self, int64_t step)
{
    const mics_job *job = self->job;
    const mics_run *run = job->run;
    mics_checkpoint_meta meta = {
        .step = step,
        .samples = step * run->global_batch,
        .seed = run->seed,
        .corpus_hash = mics_corpus_hash(job->train),
        .model_json = mics_json_text(job->config),
        .tokenizer = run->tokenizer,
        .run_json = job->run_json,
        .precision = mics_run_precision_text(run->precision),
        .optimizer = mics_optimizer_def_get(run->optimizer.kind)->name,
        .sharding = {run->sharding.params, run->sharding.grads, run->sharding.optimizer},
        .layered_micro_steps =
            mics_schedule_layered_micro_steps(run->micro_steps, run->layered_micro_steps),
    };
    if (job->run->precision == MICS_RUN_PRECISION_FP16)
        meta.scaler = scaler_of(self->engine);
    meta.tokenizer_text = mics_tokenizer_text(job->tokenizer, &meta.tokenizer_bytes);
    return meta;
}

static void describe(const run_trainer *self, run_save *save)
{
    const int32_t owners = self->job->run->sharding.optimizer;
    save->step = self->step;
    save->meta = run_saving_meta(self, self->step);
    run_saving_fill_shards(self, self->rank->comm->rank / owners, self->rank->comm->ranks / owners,
                           save->shards);
}

void run_saving_fill_direct(run_trainer *self)
{
    self->saver.direct.warns = false;
    describe(self, &self->saver.direct);
}

bool run_saving_has(const run_trainer *self)
{
    return (self->saved && self->saved_step == self->step) ||
           (self->pending && self->saver.behind.step == self->step);
}

// ---- when a save has ended, on all ranks alike ----

void run_saving_prune(const run_trainer *self, int64_t step)
{
    const bool before = mics_log_demote(true);
    if (mics_checkpoint_prune(self->rank->memory, self->job->checkpoints_dir,
                              (int32_t)self->job->run->keep_checkpoints, step) != MICS_OK)
        mics_log(MICS_LOG_WARNING, "%s: old checkpoints were not removed",
                 self->job->checkpoints_dir);
    mics_log_demote(before);
}

static void tell_saved(const run_trainer *self, int64_t step)
{
    const mics_job *job = self->job;
    char path[RUN_PATH_BYTES];
    if (self->rank->comm->rank != 0 || job->callbacks.checkpoint == NULL)
        return;
    snprintf(path, sizeof path, "%s/step-%08lld", job->checkpoints_dir, (long long)step);
    job->callbacks.checkpoint(job->callbacks.ctx, step, path);
}

static void end_save(run_trainer *self, run_save *save, bool failed)
{
    const int64_t step = save->step;
    run_saver_end(&self->saver, save, failed);
    if (save == &self->saver.behind)
        self->pending = false;
    if (failed)
        return;
    self->saved = true;
    self->saved_step = step;
    run_stop_saved(&self->job->stop, step);
    tell_saved(self, step);
}

// One line of all ranks; those that failed have said why.
static void warn_unsaved(const run_trainer *self, int64_t step)
{
    if (self->rank->comm->rank != 0)
        return;
    if (self->saved)
        mics_log(MICS_LOG_WARNING,
                 "step %lld could not be saved; training goes on, and saves when it is due next; "
                 "until then --resume auto goes on from step %lld",
                 (long long)step, (long long)self->saved_step);
    else
        mics_log(MICS_LOG_WARNING,
                 "step %lld could not be saved; training goes on, and saves when it is due next; "
                 "nothing is saved yet",
                 (long long)step);
}

// Waits for a save on all ranks: their files first, then the commit.
static mics_status await_save(run_trainer *self, run_save *save)
{
    run_saver *saver = &self->saver;
    mics_status mine = run_saver_await_written(saver, save);
    mics_status status = mics_engine_agree(self->engine, mine);
    mine = run_saver_await_done(saver, save, status != MICS_OK);
    if (status == MICS_OK)
        status = mics_engine_agree(self->engine, mine);
    return status;
}

// The save behind, if there is one. Its failure is no error.
static mics_status settle_behind(run_trainer *self)
{
    const int64_t step = self->saver.behind.step;
    const double begin_us = mics_clock_us();
    if (!self->pending)
        return MICS_OK;
    const mics_status status = await_save(self, &self->saver.behind);
    end_save(self, &self->saver.behind, status != MICS_OK);
    if (status != MICS_OK) {
        // A state that is not finite ends the run, on all ranks; nothing else does.
        const bool poisoned = status == MICS_ERR_NUMERIC;
        if (mics_engine_agree(self->engine, poisoned ? status : MICS_OK) != MICS_OK)
            return MICS_ERR_NUMERIC;
        warn_unsaved(self, step);
    }
    const double waited_s = (mics_clock_us() - begin_us) / 1e6;
    if (waited_s > 1 && self->rank->comm->rank == 0)
        run_job_note(self->job,
                     "training waited %.1f s for the save of step %lld; a larger "
                     "run.checkpoint_every would not",
                     waited_s, (long long)step);
    return MICS_OK;
}

// ---- saves that somebody waits for ----

// What a short write to the run's folder says of the disk.
static double probe_rate(const run_trainer *self)
{
    enum { PROBE_BYTES = 8 << 20 };
    char path[RUN_PATH_BYTES];
    void *block = NULL;
    snprintf(path, sizeof path, "%s/speed-%d.tmp", self->job->run->out,
             (int)self->rank->comm->rank);
    const bool muted = mics_log_mute(true); // whoever saves finds the same mistakes
    const double begin_us = mics_clock_us();
    mics_status status = mics_alloc(self->rank->memory, MICS_MEM_HOST, PROBE_BYTES, &block);
    if (status == MICS_OK)
        status = mics_file_write_whole(path, block, PROBE_BYTES);
    const double taken_us = mics_clock_us() - begin_us;
    mics_log_mute(muted);
    unlink(path);
    mics_free(self->rank->memory, block);
    return status == MICS_OK && taken_us > 0 ? PROBE_BYTES * 1e6 / taken_us : 0;
}

static double share_bytes(const run_trainer *self)
{
    const int32_t states = mics_optimizer_def_get(self->job->run->optimizer.kind)->states;
    return (double)run_saving_copy_bytes(self->job->schedule, states);
}

bool run_saving_is_late(run_trainer *self)
{
    const run_stop *stop = &self->job->stop;
    char bytes[32];
    if (atomic_load(&stop->reason) != RUN_STOP_PROGRAM || self->saver.grace_checked)
        return false;
    self->saver.grace_checked = true;
    const double rate = self->saver.rate > 0 ? self->saver.rate : probe_rate(self);
    const double asked_s = (mics_clock_us() - atomic_load(&stop->asked_us)) / 1e6,
                 left_s = self->job->run->grace_s - asked_s, needed_s = share_bytes(self) / rate;
    if (rate <= 0 || needed_s <= left_s)
        return false;
    if (self->rank->comm->rank != 0)
        return true;
    mics_log(MICS_LOG_WARNING,
             "saving step %lld takes some %.0f s, as each rank has %s to write, and %.0f s of "
             "run.grace_s are left; it goes on for as long as it is let",
             (long long)self->step, needed_s,
             mics_size_text(share_bytes(self), bytes, sizeof bytes), left_s > 0 ? left_s : 0);
    return true;
}

// What some rank cannot write in time goes to node memory first, where the run has copies there.
static mics_status copy_if_late(run_trainer *self, bool late)
{
    bool kept = false;
    if (mics_engine_agree(self->engine, late ? MICS_ERR_TIMEOUT : MICS_OK) == MICS_OK)
        return MICS_OK;
    MICS_TRY(run_node_memory_copy(self, self->step, &kept));
    if (kept && self->rank->comm->rank == 0)
        run_job_note(self->job, "step %lld is in node memory", (long long)self->step);
    return mics_comm_set_timeout(self->rank->comm, run_job_files_timeout_s(self->job));
}

// What this rank has not begun by itself (saver.h), it begins now.
static mics_status save_direct(run_trainer *self)
{
    run_saver *saver = &self->saver;
    const bool begun = run_saver_state(saver, &saver->direct) != RUN_SAVE_NONE;
    MICS_TRY(mics_engine_agree(self->engine, begun ? MICS_OK : mics_engine_download(self->engine)));
    MICS_TRY(copy_if_late(self, !begun && run_saving_is_late(self)));
    if (!begun) {
        run_saving_fill_direct(self);
        run_saver_start(saver, &saver->direct);
    }
    const mics_status status = await_save(self, &saver->direct);
    end_save(self, &saver->direct, status != MICS_OK);
    mics_engine_release(self->engine);
    return status;
}

static mics_status save_now(run_trainer *self)
{
    const mics_job_callbacks *callbacks = &self->job->callbacks;
    MICS_TRY(settle_behind(self));
    if (self->saved && self->saved_step == self->step)
        return MICS_OK;
    if (self->rank->comm->rank == 0 && callbacks->saving != NULL)
        callbacks->saving(callbacks->ctx, self->step);
    MICS_TRY(save_direct(self));
    // A run that resumes from here has none either.
    mics_engine_forget_residual(self->engine);
    return MICS_OK;
}

mics_status run_saving_save(run_trainer *self)
{
    MICS_TRY(mics_comm_set_timeout(self->rank->comm, run_job_files_timeout_s(self->job)));
    run_stop_writes(&self->job->stop, true);
    const mics_status status = save_now(self);
    run_stop_writes(&self->job->stop, false);
    MICS_TRY(status);
    return mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s);
}

mics_status run_saving_end(run_trainer *self)
{
    MICS_TRY(run_saving_save(self));
    run_saver_prune(&self->saver, self->step);
    return MICS_OK;
}

mics_status run_saving_settle(run_trainer *self)
{
    if (!self->pending)
        return MICS_OK;
    MICS_TRY(mics_comm_set_timeout(self->rank->comm, run_job_files_timeout_s(self->job)));
    MICS_TRY(settle_behind(self));
    return mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s);
}

// ---- saves behind steps ----

// Where there is no memory for a copy, the ranks wait, and a failure is still no error.
static mics_status save_waiting(run_trainer *self)
{
    self->saver.behind.warns = true;
    MICS_TRY(mics_engine_download(self->engine));
    describe(self, &self->saver.behind);
    self->pending = true;
    run_saver_start(&self->saver, &self->saver.behind);
    const mics_status status = settle_behind(self);
    mics_engine_release(self->engine);
    return status;
}

mics_status run_saving_begin(run_trainer *self)
{
    const mics_job_callbacks *callbacks = &self->job->callbacks;
    run_saver *saver = &self->saver;
    if (self->pending || saver->copy == NULL)
        MICS_TRY(mics_comm_set_timeout(self->rank->comm, run_job_files_timeout_s(self->job)));
    MICS_TRY(settle_behind(self));
    if (self->rank->comm->rank == 0 && callbacks->saving != NULL)
        callbacks->saving(callbacks->ctx, self->step);
    mics_engine_forget_residual(self->engine);
    if (saver->copy == NULL) {
        MICS_TRY(save_waiting(self));
        return mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s);
    }
    MICS_TRY(mics_engine_download(self->engine));
    saver->behind.warns = true;
    // A device's shards are copied at once, as others may ask for host copies.
    saver->behind.copies = !self->job->budget.accelerator.used;
    describe(self, &saver->behind);
    if (!saver->behind.copies)
        run_saving_copy(self);
    mics_engine_release(self->engine);
    self->pending = true;
    run_saver_start(saver, &saver->behind);
    return mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s);
}

// ---- around a step ----

void run_saving_before_update(void *ctx)
{
    run_trainer *self = ctx;
    const double begin_us = mics_clock_us();
    run_saver_await_copied(&self->saver, &self->saver.behind);
    self->copy_us = mics_clock_us() - begin_us;
}

void run_saving_enter_step(run_trainer *self)
{
    const run_save *behind = &self->saver.behind;
    const run_save_state state = run_saver_state(&self->saver, behind);
    if (self->pending && state == RUN_SAVE_FAILED)
        mics_engine_tell(self->engine,
                         RUN_TELL_UNSAVED |
                             (behind->status == MICS_ERR_NUMERIC ? RUN_TELL_POISONED : 0));
    if (self->pending && state == RUN_SAVE_DONE && self->rank->comm->rank == 0)
        mics_engine_tell(self->engine, RUN_TELL_SAVED);
    if (run_stop_is_asked(&self->job->stop))
        (void)mics_engine_hold(self->engine);
    run_saver_in_step(&self->saver, true);
}

mics_status run_saving_leave_step(run_trainer *self, mics_status status)
{
    run_save *behind = &self->saver.behind;
    const int64_t step = behind->step;
    run_saver_in_step(&self->saver, false);
    MICS_TRY(status);
    if (!self->pending)
        return MICS_OK;
    if ((self->newest.told & RUN_TELL_UNSAVED) != 0) {
        (void)run_saver_await_done(&self->saver, behind, true);
        end_save(self, behind, true);
        if ((self->newest.told & RUN_TELL_POISONED) != 0)
            return MICS_ERR_NUMERIC; // a rank has said which state
        warn_unsaved(self, step);
    } else if ((self->newest.told & RUN_TELL_SAVED) != 0) {
        end_save(self, behind, false);
        if (self->newest.verdict != MICS_VERDICT_HELD) // this step was good, and it came after
            run_saver_prune(&self->saver, step);
    }
    return MICS_OK;
}
