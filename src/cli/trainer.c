// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Training on one rank. All ranks take every decision here alike: what they decide by is the run,
// the step's number, or something that a collective told them.
//
// Samples: micro-batch m of rank r in step s starts at sample (s - 1) * global batch + (m * ranks +
// r) * micro-batch, so the order of data is the same whatever the mesh. Validation reads
// validation_batches global batches, always the same ones.
#include "trainer.h"
#include "base/file.h"
#include "cli.h"
#include "files.h"
#include "gpu.h"
#include "import.h"
#include "mics/clock.h"
#include "mics/log.h"
#include "overlap.h"
#include "signals.h"
#include <math.h>
#include <stdio.h>

// ---- batches ----

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    const cli_trainer *self = ctx;
    int64_t count = self->job->run->micro_batch;
    int64_t place = (int64_t)micro_step * self->rank->comm->ranks + self->rank->comm->rank;
    cli_samples_read(self->samples, self->first_sample + place * count, count, self->row,
                     inputs_out, targets_out);
    return MICS_OK;
}

static mics_batch_source source_of(cli_trainer *self, const cli_samples *samples,
                                   int64_t first_sample)
{
    self->samples = samples;
    self->first_sample = first_sample;
    return (mics_batch_source){.read = read_batch, .ctx = self};
}

// ---- opening ----

static mics_status open_pieces(cli_trainer *self)
{
    void *block = NULL;
    MICS_TRY(mics_alloc(self->rank->memory, MICS_MEM_HOST,
                        (size_t)self->job->model->unit_count * sizeof(mics_piece), &block));
    self->pieces = block;
    return MICS_OK;
}

// As long as the engine has them on the host.
static void fill_pieces(cli_trainer *self)
{
    const mics_model *model = self->job->model;
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        mics_engine_piece piece = mics_engine_piece_get(self->engine, unit);
        self->pieces[unit] = (mics_piece){
            .unit = model->units[unit].name,
            .unit_elems = model->units[unit].elems,
            .begin = piece.range.begin,
            .end = piece.range.end,
            .data = {piece.params, piece.states[0], piece.states[1]},
        };
    }
}

static mics_status open_engine(cli_trainer *self)
{
    const cli_job *job = self->job;
    const mics_run *run = job->run;
    mics_engine_spec spec = {
        .memory = self->rank->memory,
        .schedule = job->schedule,
        .comm = self->rank->comm,
        .optimizer = run->optimizer,
        .clip = (float)run->clip,
    };
    void *row = NULL;
    cli_gpu_fill(job, self->rank, &spec);
    MICS_TRY(mics_engine_open(&spec, &self->engine)); // first: ranks may wait for one another in it
    MICS_TRY(mics_alloc(self->rank->memory, MICS_MEM_HOST,
                        (size_t)(cli_job_sequence(job) + 1) * sizeof(int32_t), &row));
    self->row = row;
    return open_pieces(self);
}

// A run that goes on scales its losses as the one did that it goes on from.
static void fill_scaler(cli_trainer *self)
{
    const mics_checkpoint_scaler *saved = &mics_checkpoint_meta_get(self->job->checkpoint)->scaler;
    const mics_scaler scaler = {.scale = saved->scale,
                                .steps = saved->steps,
                                .last_overflow = saved->steps - saved->since_overflow,
                                .skipped = saved->skipped,
                                .hysteresis = (int32_t)saved->hysteresis};
    if (saved->scale > 0 && self->job->run->precision == MICS_RUN_PRECISION_FP16)
        mics_engine_set_scaler(self->engine, &scaler);
}

static mics_status fill_parameters(cli_trainer *self)
{
    const cli_job *job = self->job;
    if (job->checkpoint != NULL) {
        mics_status status = cli_resume_fill(job->model, job->checkpoint, self->engine);
        fill_scaler(self);
        if (status == MICS_ERR_FORMAT)
            cli_job_advise_older(job);
        return status;
    }
    if (job->import != NULL)
        return cli_import_fill(job->model, job->import, self->engine);
    return mics_engine_init_random(self->engine, job->run->seed);
}

static mics_status open_reports(cli_trainer *self)
{
    const cli_job *job = self->job;
    char *path = NULL;
    if (self->rank->comm->rank != 0)
        return MICS_OK;
    MICS_TRY(mics_file_join(self->rank->memory, job->run->out, "metrics.jsonl", &path));
    mics_status status =
        mics_metrics_open(self->rank->memory, path, job->start_step, &self->metrics);
    mics_free(self->rank->memory, path);
    MICS_TRY(status);
    // Launchers give ranks terminals of their own, whatever becomes of their output.
    bool mpi = cli_world_is_mpi(self->rank->world);
    return mics_progress_open(self->rank->memory, NULL,
                              mpi ? MICS_PROGRESS_PLAIN : MICS_PROGRESS_AUTO, job->run->log_every,
                              &self->progress);
}

static mics_status open_all(cli_trainer *self)
{
    MICS_TRY(open_engine(self));
    MICS_TRY(fill_parameters(self));
    mics_engine_release(self->engine);
    MICS_TRY(cli_trace_open(self->job, self->rank, &self->trace));
    return open_reports(self);
}

// The engine's communication threads wait for their first job, so the comm is free for agreement.
static mics_status setup(cli_trainer *self)
{
    MICS_TRY(cli_gpu_open(self->job, self->rank));
    mics_comm *comm = self->rank->comm;
    MICS_TRY(mics_comm_set_timeout(comm, cli_job_files_timeout_s(self->job)));
    MICS_TRY(cli_rank_agree(self->rank, open_all(self)));
    MICS_TRY(cli_gpu_time_products(self->job, self->rank, self->engine));
    return mics_comm_set_timeout(comm, self->job->run->comm_timeout_s);
}

// Frees what the run held; the engine first, as it uses the rest.
static mics_status close_all(cli_trainer *self)
{
    mics_engine_close(self->engine);
    mics_progress_close(self->progress);
    mics_status status = mics_metrics_close(self->metrics);
    cli_trace_close(self->trace);
    mics_free(self->rank->memory, self->pieces);
    mics_free(self->rank->memory, self->row);
    return status;
}

// ---- validation ----

static mics_status validate(cli_trainer *self, int64_t step)
{
    const mics_run *run = self->job->run;
    int64_t calls = run->validation_batches * run->micro_steps;
    int64_t samples = run->micro_batch * self->rank->comm->ranks;
    double sum = 0;
    if (calls == 0)
        return MICS_OK;
    for (int64_t call = 0; call < calls; call++) {
        mics_step_result result;
        mics_batch_source source = source_of(self, &self->job->validation_samples, call * samples);
        MICS_TRY(mics_engine_eval(self->engine, &source, &result));
        sum += result.loss;
    }
    self->validation_last = sum / (double)calls;
    if (isnan(self->validation_first))
        self->validation_first = self->validation_last;
    if (self->progress != NULL && step == 0)
        mics_progress_note(self->progress, "validation loss %.4f before training",
                           self->validation_last);
    else if (self->progress != NULL)
        mics_progress_note(self->progress, "validation loss %.4f after step %lld",
                           self->validation_last, (long long)step);
    return self->metrics != NULL
               ? mics_metrics_write_validation(self->metrics, step, self->validation_last)
               : MICS_OK;
}

// ---- checkpoints ----

static mics_status agree_to_save(void *ctx, mics_status mine)
{
    return mics_engine_agree(ctx, mine);
}

// For who must say, when a signal comes, where the run can go on: one rank a process.
static bool tells_signals(const cli_trainer *self)
{
    return self->rank->comm->rank == 0 || cli_world_is_mpi(self->rank->world);
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

static mics_status save_waiting(cli_trainer *self, int64_t step)
{
    const cli_job *job = self->job;
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
    mics_checkpoint_meta meta = {
        .step = step,
        .samples = step * run->global_batch,
        .seed = run->seed,
        .corpus_hash = mics_corpus_hash(job->train),
        .model_json = mics_json_text(job->config),
        .tokenizer = run->tokenizer,
        .run_json = job->run_json,
    };
    if (job->run->precision == MICS_RUN_PRECISION_FP16)
        meta.scaler = scaler_of(self->engine);
    MICS_TRY(mics_engine_pull(self->engine));
    fill_pieces(self);
    meta.tokenizer_text = cli_tokenizer_text(job->tokenizer, &meta.tokenizer_bytes);
    mics_status status = mics_checkpoint_save(self->rank->memory, &writer, &meta, self->pieces,
                                              rank < writers ? job->model->unit_count : 0);
    mics_engine_release(self->engine);
    return status;
}

static mics_status save(cli_trainer *self, int64_t step)
{
    const double files_s = cli_job_files_timeout_s(self->job);
    if (self->progress != NULL && step == self->job->run->steps)
        mics_progress_note(self->progress, "saving step %lld", (long long)step);
    if (tells_signals(self))
        cli_signals_saving(files_s);
    MICS_TRY(mics_comm_set_timeout(self->rank->comm, files_s));
    MICS_TRY(save_waiting(self, step));
    // Whoever goes on from here has none either.
    mics_engine_forget_residual(self->engine);
    MICS_TRY(mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s));
    self->saved_step = step;
    if (tells_signals(self))
        cli_signals_progress(step, step);
    if (self->progress != NULL)
        mics_progress_note(self->progress, "checkpoint step %lld written to %s/step-%08lld",
                           (long long)step, self->job->checkpoints_dir, (long long)step);
    return MICS_OK;
}

// ---- one step ----

// What this rank sent must be what the schedule says it sends. Each rank checks its own share, so
// the schedule's total over all ranks is a measured one, without a message to gather it.
static mics_status check_sent(const cli_trainer *self, const mics_step_result *result)
{
    mics_bytes expected =
        mics_schedule_rank_bytes(self->job->schedule, MICS_PHASE_TRAIN, self->rank->comm->rank);
    if (result->sent.intra == expected.intra && result->sent.inter == expected.inter)
        return MICS_OK;
    return mics_fail(MICS_ERR_COMM,
                     "sent %lld bytes inside and %lld between nodes in a step, but the schedule "
                     "says %lld and %lld; this is a defect of mics, please report it",
                     (long long)result->sent.intra, (long long)result->sent.inter,
                     (long long)expected.intra, (long long)expected.inter);
}

// Model FLOPs utilisation, recomputation not counted; unknown unless the run file says what a rank's peak is.
static double utilisation(const cli_trainer *self, double tokens_per_s)
{
    const double peak = self->job->run->peak_tflops * 1e12 * self->rank->comm->ranks;
    if (peak <= 0)
        return NAN;
    return mics_model_flops_per_token(self->job->model, cli_job_sequence(self->job)) *
           tokens_per_s / peak;
}

static void fill_exposed(const mics_step_result *result, mics_metrics *metrics)
{
    const cli_exposed exposed = cli_exposed_sum(result->exposed_us);
    metrics->exposed_comm_ms = result->exposed_comm_us / 1e3;
    metrics->exposed_gather_ms = exposed.gather / 1e3;
    metrics->exposed_reduce_ms = exposed.reduce / 1e3;
    metrics->exposed_second_hop_ms = exposed.second_hop / 1e3;
    metrics->exposed_agree_ms = exposed.agree / 1e3;
}

static mics_status report_step(cli_trainer *self, int64_t step, double step_us, double lr,
                               const mics_step_result *result)
{
    if (self->metrics == NULL)
        return MICS_OK;
    const mics_run *run = self->job->run;
    int64_t tokens = run->global_batch * cli_job_sequence(self->job);
    mics_bytes sent = mics_schedule_all_bytes(self->job->schedule, MICS_PHASE_TRAIN);
    mics_memory_stats stats;
    mics_memory_stats_get(self->rank->memory, &stats);
    mics_metrics metrics = {
        .step = step,
        .steps = run->steps,
        .loss = result->loss,
        .lr = lr,
        .grad_norm = result->grad_norm,
        .tokens = step * tokens,
        .tokens_per_s = (double)tokens * 1e6 / step_us,
        .step_ms = step_us / 1e3,
        .mfu = utilisation(self, (double)tokens * 1e6 / step_us),
        .memory_peak_bytes = (int64_t)stats.total_peak,
        .sent_intra_bytes = sent.intra,
        .sent_inter_bytes = sent.inter,
    };
    fill_exposed(result, &metrics);
    MICS_TRY(mics_metrics_write(self->metrics, &metrics));
    mics_progress_step(self->progress, &metrics);
    if (result->skipped)
        mics_progress_note(self->progress,
                           "step %lld is left out: gradients overflowed fp16 at loss scale %g",
                           (long long)step, result->loss_scale);
    return MICS_OK;
}

// From the end of the step before to the end of this one, so that steps leave no time between them; the
// engine's own figure begins with its list.
static double step_us(cli_trainer *self)
{
    const double begin_us = self->begin_us;
    self->begin_us = mics_clock_us();
    return self->begin_us - begin_us;
}

static mics_status run_step(cli_trainer *self, int64_t step)
{
    const mics_run *run = self->job->run;
    double lr = mics_lr_at(&run->lr, step);
    mics_batch_source source =
        source_of(self, &self->job->train_samples, (step - 1) * run->global_batch);
    MICS_TRY(mics_engine_step(self->engine, step, (float)lr, &source, &self->newest));
    const double taken_us = step_us(self);
    MICS_TRY(check_sent(self, &self->newest));
    return report_step(self, step, taken_us, lr, &self->newest);
}

// ---- stopping ----

static mics_status interrupted(cli_trainer *self, int64_t step)
{
    self->rank->agreed = true;
    cli_signals_done();
    if (self->rank->comm->rank != 0)
        return MICS_ERR_INTERRUPTED;
    mics_progress_break(self->progress);
    const char *by = cli_signals_asked();
    mics_log_set_rank(-1); // all ranks stopped, as they were asked to: nobody's error
    mics_log(
        MICS_LOG_INFO, "stopped by %s after step %lld, which is saved in %s; --resume auto goes on",
        by != NULL ? by : "a signal to another rank", (long long)step, self->job->checkpoints_dir);
    return MICS_ERR_INTERRUPTED;
}

// ---- the loop ----

static bool is_due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

// What is due after a step. Its time is neither that step's nor the next one's.
static mics_status follow_step(cli_trainer *self, int64_t step)
{
    const mics_run *run = self->job->run;
    const bool last = step == run->steps, stop = self->newest.stop;
    const double end_us = mics_clock_us();
    MICS_TRY(cli_trace_step(self->trace, self->engine, step, &self->newest, self->progress));
    if (last || stop || is_due(run->checkpoint_every, step))
        MICS_TRY(save(self, step));
    if (last || (is_due(run->validate_every, step) && !stop))
        MICS_TRY(validate(self, step));
    self->begin_us += mics_clock_us() - end_us;
    return MICS_OK;
}

static mics_status run_steps(cli_trainer *self)
{
    const mics_run *run = self->job->run;
    self->begin_us = mics_clock_us();
    for (int64_t step = self->job->start_step + 1; step <= run->steps; step++) {
        if (tells_signals(self))
            cli_signals_progress(step, self->saved_step);
        if (cli_signals_asked() != NULL) // a signal may reach one process and not the next
            mics_engine_ask_stop(self->engine);
        MICS_TRY(run_step(self, step));
        MICS_TRY(follow_step(self, step));
        if (self->newest.stop && step < run->steps)
            return interrupted(self, step);
    }
    if (tells_signals(self))
        cli_signals_done();
    return MICS_OK;
}

static mics_status train(cli_trainer *self)
{
    mics_status status = MICS_OK;
    atomic_store(&self->job->running, true);
    if (self->job->checkpoint != NULL)
        status = mics_engine_publish(self->engine);
    if (status == MICS_OK)
        status = validate(self, self->job->start_step);
    if (status == MICS_OK)
        status = run_steps(self);
    // Every rank found the same numbers, so nobody waits for another.
    if (status == MICS_ERR_NUMERIC)
        self->rank->agreed = true;
    return status;
}

// The largest of all ranks, by tag and in total.
static mics_status measure_memory(cli_trainer *self, int64_t measured[MICS_MEM_TAGS + 1])
{
    mics_memory_stats stats;
    mics_memory_stats_get(self->rank->memory, &stats);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++)
        measured[tag] = (int64_t)stats.peak[tag];
    measured[MICS_MEM_TAGS] = (int64_t)stats.total_peak;
    return cli_rank_max(self->rank, measured, MICS_MEM_TAGS + 1);
}

mics_status cli_train_rank(void *ctx, cli_rank *rank)
{
    cli_job *job = ctx;
    cli_trainer self = {.job = job,
                        .rank = rank,
                        .saved_step = job->start_step,
                        .validation_first = NAN,
                        .validation_last = NAN};
    int64_t measured[MICS_MEM_TAGS + 1];
    if (rank->comm->rank == 0)
        cli_print_beginning(job);
    mics_status status = setup(&self);
    if (status == MICS_OK)
        status = train(&self);
    mics_status closed = close_all(&self);
    MICS_TRY(status);
    MICS_TRY(closed);
    MICS_TRY(measure_memory(&self, measured));
    // Rank 0 now writes text with the whole model, and the others wait for it in their end.
    MICS_TRY(mics_comm_set_timeout(rank->comm, cli_job_files_timeout_s(job)));
    return rank->comm->rank == 0 ? cli_print_end(&self, measured) : MICS_OK;
}
