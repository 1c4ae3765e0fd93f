// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a rank that trains.
#include "mics/log.h"
#include "trainer.h"
#include <stdio.h>

// ---- what a rank writes ----

static void add_state(mics_optimizer_shard *shard, const char *name, const float *data)
{
    shard->states[shard->state_count++] =
        (mics_shard_state){.name = name, .dtype = MICS_DTYPE_FP32, .data = data};
}

void run_saving_fill_shards(run_trainer *self)
{
    const mics_model *model = self->job->model;
    const mics_optimizer_def *def = mics_optimizer_def_get(self->job->run->optimizer.kind);
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        const mics_engine_optimizer_shard owned =
            mics_engine_optimizer_shard_get(self->engine, unit);
        mics_optimizer_shard *shard = &self->shards[unit];
        *shard = (mics_optimizer_shard){.unit = model->units[unit].name,
                                        .unit_elems = model->units[unit].elems,
                                        .begin = owned.range.begin,
                                        .end = owned.range.end};
        add_state(shard, MICS_STATE_PARAM, owned.params);
        for (int32_t state = 0; state < def->states; state++)
            add_state(shard, def->state_names[state], owned.states[state]);
    }
}

// ---- saving ----

static mics_status agree_to_save(void *ctx, mics_status mine)
{
    return mics_engine_agree(ctx, mine);
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

static mics_status save_waiting(run_trainer *self, int64_t step)
{
    const mics_job *job = self->job;
    const mics_run *run = job->run;
    int32_t rank = self->rank->comm->rank, writers = run->sharding.optimizer;
    mics_checkpoint_writer writer = {
        .dir = job->checkpoints_dir,
        .rank = rank,
        .writers = writers,
        .keep = (int32_t)run->keep_checkpoints,
        .agree = agree_to_save,
        .agree_ctx = self->engine,
    };
    const mics_checkpoint_meta meta = run_saving_meta(self, step);
    MICS_TRY(mics_engine_download(self->engine));
    run_saving_fill_shards(self);
    mics_status status = mics_checkpoint_save(self->rank->memory, &writer, &meta, self->shards,
                                              rank < writers ? job->model->unit_count : 0);
    mics_engine_release(self->engine);
    return status;
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

mics_status run_saving_save(run_trainer *self, int64_t step)
{
    const mics_job_callbacks *callbacks = &self->job->callbacks;
    const double files_s = run_job_files_timeout_s(self->job);
    if (self->rank->comm->rank == 0 && callbacks->saving != NULL)
        callbacks->saving(callbacks->ctx, step);
    run_trainer_tell_phase(self, step, true, files_s);
    MICS_TRY(mics_comm_set_timeout(self->rank->comm, files_s));
    MICS_TRY(save_waiting(self, step));
    // A run that resumes from here has none either.
    mics_engine_forget_residual(self->engine);
    MICS_TRY(mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s));
    self->saved = true;
    self->saved_step = step;
    run_trainer_tell_phase(self, step, false, 0);
    tell_saved(self, step);
    return MICS_OK;
}
