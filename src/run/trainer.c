// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Training on one rank. All ranks take every decision here alike: what they decide by is the run,
// the step's number, or something that a collective told them.
//
// Samples: micro-batch m of rank r in step s starts at sample (s - 1) * global batch + (m * ranks +
// r) * micro-batch, so the order of data is the same whatever the mesh. Validation reads
// validation_batches global batches, always the same ones.
#include "trainer.h"
#include "base/clock.h"
#include "mics/log.h"
#include "run/ranks/gpu.h"
#include "run/report/overlap.h"
#include "run/save/restore.h"
#include "run/text/sample_text.h"
#include <math.h>

// ---- batches ----

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    const run_trainer *self = ctx;
    int64_t count = self->job->run->micro_batch;
    int64_t place = (int64_t)micro_step * self->rank->comm->ranks + self->rank->comm->rank;
    return run_samples_read(self->samples, self->first_sample + place * count, count, self->row,
                            inputs_out, targets_out);
}

static mics_status read_documents(void *ctx, int32_t micro_step, const int32_t *inputs,
                                  int32_t *segments_out)
{
    const run_trainer *self = ctx;
    const run_samples *samples = self->samples;
    (void)micro_step;
    run_samples_number(samples->document, inputs, self->job->run->micro_batch, samples->sequence,
                       segments_out);
    return MICS_OK;
}

static mics_batch_source source_of(run_trainer *self, const run_samples *samples,
                                   int64_t first_sample)
{
    const bool masked = self->job->run->document_mask;
    self->samples = samples;
    self->first_sample = first_sample;
    return (mics_batch_source){
        .read = read_batch, .read_segments = masked ? read_documents : NULL, .ctx = self};
}

// ---- opening ----

static mics_status open_engine(run_trainer *self)
{
    const mics_job *job = self->job;
    const mics_run *run = job->run;
    mics_engine_spec spec = {
        .memory = self->rank->memory,
        .schedule = job->schedule,
        .comm = self->rank->comm,
        .kernels = job->kernels,
        .dtype = job->budget.dtype,
        .optimizer = run->optimizer,
        .other_rate = run->other_rate,
        .clip = (float)run->clip,
        .seed = run->seed,
        .before_update = run_saving_before_update,
        .before_update_ctx = self,
    };
    run_gpu_fill(job, self->rank, &spec);
    MICS_TRY(mics_engine_open(&spec, &self->engine)); // first: ranks may wait for one another in it
    MICS_TRY(MICS_NEW(self->rank->memory, run_job_sequence(job) + 1, &self->row));
    return MICS_NEW(self->rank->memory, job->model->unit_count, &self->shards);
}

static mics_status fill_state(run_trainer *self)
{
    return self->job->checkpoint != NULL ? run_trainer_restore(self)
                                         : run_filling_state(self, NULL);
}

static mics_status open_rest(run_trainer *self)
{
    mics_engine_release(self->engine);
    MICS_TRY(run_node_memory_book(self));
    MICS_TRY(run_trace_open(self->job, self->rank, &self->trace));
    MICS_TRY(run_filling_reports(self, self->job->start_step));
    MICS_TRY(run_guard_open(self));
    // The others begin to save when all have opened.
    if (self->rank->comm->rank == 0)
        MICS_TRY(mics_checkpoint_clean(self->rank->memory, self->job->checkpoints_dir));
    return run_saver_open(self, &self->saver);
}

// What follows is no rank's own as long as all go on: one line speaks for all again.
static mics_status agree(run_trainer *self, mics_status mine)
{
    MICS_TRY(run_rank_agree(self->rank, mine));
    mics_log_hold(self->rank->comm->rank != 0);
    return MICS_OK;
}

// The engine's communication threads wait for their first job, so the comm is free for agreement.
static mics_status setup(run_trainer *self)
{
    MICS_TRY(run_gpu_open(self->job, self->rank));
    mics_comm *comm = self->rank->comm;
    MICS_TRY(mics_comm_set_timeout(comm, run_job_files_timeout_s(self->job)));
    MICS_TRY(agree(self, open_engine(self)));
    MICS_TRY(agree(self, fill_state(self)));
    MICS_TRY(run_rank_agree(self->rank, open_rest(self)));
    MICS_TRY(run_gpu_autotune(self->job, self->rank, self->engine));
    MICS_TRY(mics_comm_set_timeout(comm, self->job->run->comm_timeout_s));
    if (self->job->checkpoint != NULL)
        MICS_TRY(mics_engine_complete(self->engine));
    (void)mics_engine_take_completions(self->engine); // no step's
    return MICS_OK;
}

static run_trainer *trainer_of(mics_job *job, const run_rank *rank)
{
    return &job->trainers[rank->comm->rank - job->world->first];
}

mics_status run_trainer_open(void *ctx, run_rank *rank)
{
    mics_job *job = ctx;
    run_trainer *self = trainer_of(job, rank);
    *self = (run_trainer){.job = job,
                          .rank = rank,
                          .step = job->start_step,
                          .saved = job->checkpoint != NULL && !job->node.taken,
                          .saved_step = job->node.taken ? 0 : job->start_step,
                          .memory_slot = job->node.slot,
                          .validated = -1,
                          .sampled = -1,
                          .validation_first = NAN,
                          .validation_last = NAN};
    if (rank->comm->rank == 0 && job->callbacks.start != NULL)
        job->callbacks.start(job->callbacks.ctx, job);
    return setup(self);
}

mics_status run_trainer_close(void *ctx, run_rank *rank)
{
    run_trainer *self = trainer_of(ctx, rank);
    if (self->rank == NULL)
        return MICS_OK;
    mics_status settled = MICS_OK;
    if (((mics_job *)ctx)->failed == MICS_OK)
        settled = run_saving_settle(self);
    run_saver_close(&self->saver);   // it uses the engine
    mics_engine_close(self->engine); // and that uses the rest
    run_node_memory_unbook(self);
    mics_status status = run_reports_close(&self->reports);
    run_trace_close(self->trace);
    run_guard_close(self);
    mics_free(rank->memory, self->shards);
    mics_free(rank->memory, self->row);
    self->rank = NULL;
    if (settled != MICS_OK)
        return settled;
    if (status == MICS_OK && ((mics_job *)ctx)->failed == MICS_OK)
        status = mics_comm_set_timeout(rank->comm, run_job_files_timeout_s(ctx));
    return status;
}

// ---- validation ----

static mics_status find_loss(run_trainer *self, double *loss_out)
{
    const mics_run *run = self->job->run;
    int64_t calls = run->validation_batches * run->micro_steps;
    int64_t samples = run->micro_batch * self->rank->comm->ranks;
    double sum = 0, counted = 0;
    for (int64_t call = 0; call < calls; call++) {
        mics_step_result result;
        mics_batch_source source = source_of(self, &self->job->validation_samples, call * samples);
        MICS_TRY(mics_engine_eval(self->engine, &source, &result));
        sum += result.counted > 0 ? result.loss * (double)result.counted : 0;
        counted += (double)result.counted;
    }
    if (counted == 0)
        return mics_fail(MICS_ERR_INVALID, "data.validation: no token counts: all are special "
                                           "tokens, which are not hidden");
    *loss_out = sum / counted;
    return MICS_OK;
}

static mics_status validate(run_trainer *self, int64_t step)
{
    const mics_job_callbacks *callbacks = &self->job->callbacks;
    if (self->job->run->validation_batches == 0)
        return MICS_OK;
    run_saver_in_step(&self->saver, true); // the state stands still here too
    const mics_status status = find_loss(self, &self->validation_last);
    run_saver_in_step(&self->saver, false);
    MICS_TRY(status);
    self->validated = step;
    if (isnan(self->validation_first))
        self->validation_first = self->validation_last;
    if (self->rank->comm->rank != 0)
        return MICS_OK;
    if (callbacks->validation != NULL)
        callbacks->validation(callbacks->ctx, step, self->validation_last);
    run_reports_validation(&self->reports, step, self->validation_last);
    return MICS_OK;
}

mics_status run_trainer_evaluate(void *ctx, run_rank *rank)
{
    run_trainer *self = trainer_of(ctx, rank);
    mics_log_release(false, -1);
    return find_loss(self, &self->evaluated);
}

// One rank a process hears what is asked of the process.
static bool hears(const run_trainer *self)
{
    return self->rank->comm->rank == self->rank->world->first;
}

mics_status run_trainer_write(void *ctx, run_rank *rank)
{
    mics_job *job = ctx;
    mics_status status = MICS_OK;
    MICS_TRY(mics_comm_set_timeout(rank->comm, run_job_files_timeout_s(job)));
    if (rank->comm->rank == 0)
        status = job->write(job, job->write_ctx);
    MICS_TRY(run_rank_agree(rank, status));
    return mics_comm_set_timeout(rank->comm, job->run->comm_timeout_s);
}

// ---- one step ----

// What this rank sends in all steps of a kind in the training list.
static mics_bytes kind_sent(const run_trainer *self, mics_step_kind kind)
{
    const mics_schedule *schedule = self->job->schedule;
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    mics_bytes sum = {0, 0};
    for (int32_t i = 0; i < list->count; i++) {
        if (list->steps[i].kind != kind)
            continue;
        const mics_bytes bytes =
            mics_schedule_step_bytes(schedule, &list->steps[i], self->rank->comm->rank);
        sum.intra += bytes.intra;
        sum.inter += bytes.inter;
    }
    return sum;
}

// The same of all ranks.
static mics_bytes kind_sent_by_all(const run_trainer *self, mics_step_kind kind)
{
    mics_bytes sum = {0, 0};
    for (int stage = 0; stage < MICS_STAGES; stage++) {
        const mics_bytes bytes = mics_schedule_kind_bytes(self->job->schedule, MICS_PHASE_TRAIN,
                                                          kind, (mics_step_stage)stage);
        sum.intra += bytes.intra;
        sum.inter += bytes.inter;
    }
    return sum;
}

static void add_bytes(mics_bytes *sum, int32_t times, mics_bytes bytes)
{
    sum->intra += times * bytes.intra;
    sum->inter += times * bytes.inter;
}

static mics_status check_bytes(const char *what, mics_bytes sent, mics_bytes expected)
{
    if (sent.intra == expected.intra && sent.inter == expected.inter)
        return MICS_OK;
    return mics_fail(MICS_ERR_COMM,
                     "sent %lld bytes intra-node and %lld inter-node in %s, but the schedule says "
                     "%lld and %lld; this is a defect of mics, please report it",
                     (long long)sent.intra, (long long)sent.inter, what, (long long)expected.intra,
                     (long long)expected.inter);
}

// What is sent of what the step before left (mics_schedule_is_left_over).
static mics_bytes left_over(const run_trainer *self,
                            mics_bytes (*sent)(const run_trainer *self, mics_step_kind kind))
{
    mics_bytes sum = {0, 0};
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++) {
        if (mics_schedule_is_left_over(self->job->schedule, (mics_step_kind)kind))
            add_bytes(&sum, 1, sent(self, (mics_step_kind)kind));
    }
    return sum;
}

// What this rank sent must be what the schedule says it sends. Each rank checks its own share, so
// the schedule's total over all ranks is a measured one, without a message to gather it. A step
// that has nothing to complete sends none of what is left over.
static mics_status check_sent(const run_trainer *self)
{
    const mics_completions *done = &self->completions;
    const mics_bytes gathers = left_over(self, kind_sent);
    mics_bytes completed = {0, 0},
               step = mics_schedule_rank_bytes(self->job->schedule, MICS_PHASE_TRAIN,
                                               self->rank->comm->rank);
    add_bytes(&step, self->newest.completes ? 0 : -1, gathers);
    add_bytes(&completed, done->updates, gathers);
    add_bytes(&completed, done->count, kind_sent(self, MICS_STEP_PARAM_SYNC));
    MICS_TRY(check_bytes("a step", self->newest.sent, step));
    return check_bytes("completions of steps", done->sent, completed);
}

// What all ranks sent in the step, and in completions since the one before.
static mics_bytes sent_by_all(const run_trainer *self)
{
    const mics_completions *done = &self->completions;
    mics_bytes sum = mics_schedule_all_bytes(self->job->schedule, MICS_PHASE_TRAIN);
    add_bytes(&sum, (self->newest.completes ? 0 : -1) + done->updates,
              left_over(self, kind_sent_by_all));
    add_bytes(&sum, done->count, kind_sent_by_all(self, MICS_STEP_PARAM_SYNC));
    return sum;
}

// Model FLOPs utilisation, recomputation not counted; unknown unless the run file says what a
// rank's peak is.
static double utilisation(const run_trainer *self, double tokens_per_s)
{
    const double peak = self->job->run->peak_tflops * 1e12 * self->rank->comm->ranks;
    if (peak <= 0)
        return NAN;
    return mics_model_flops_per_token(self->job->model, run_job_sequence(self->job)) *
           tokens_per_s / peak;
}

// Nothing hides what is completed behind the step: that counts as the second hop's, or where no
// update is due as the parameter sync that it is.
static void fill_exposed(const run_trainer *self, const mics_step_result *result,
                         mics_metrics *metrics)
{
    const run_exposed exposed = run_exposed_sum(result->exposed_us);
    const bool defers = mics_schedule_defers(self->job->schedule);
    metrics->exposed_comm_ms = (result->exposed_comm_us + self->complete_us) / 1e3;
    metrics->exposed_gather_ms = (exposed.gather + (defers ? 0 : self->complete_us)) / 1e3;
    metrics->exposed_reduce_ms = exposed.reduce / 1e3;
    metrics->exposed_second_hop_ms = (exposed.second_hop + (defers ? self->complete_us : 0)) / 1e3;
    metrics->exposed_agree_ms = exposed.agree / 1e3;
}

static void fill_router(const double sums[MICS_ROUTER_SUMS], mics_router_metrics *router)
{
    const double sequences = sums[MICS_ROUTER_SEQUENCES];
    if (sequences > 0)
        *router = (mics_router_metrics){.any = true,
                                        .entropy = sums[MICS_ROUTER_ENTROPY] / sequences,
                                        .fullest = sums[MICS_ROUTER_FULLEST] / sequences,
                                        .balance = sums[MICS_ROUTER_BALANCE] / sequences,
                                        .dropped = sums[MICS_ROUTER_DROPPED] / sequences};
}

static mics_status report_step(run_trainer *self, int64_t step, double step_us, double lr,
                               const mics_step_result *result)
{
    if (!run_reports_opened(&self->reports))
        return MICS_OK;
    const mics_run *run = self->job->run;
    int64_t tokens = run->global_batch * run_job_sequence(self->job);
    const mics_bytes sent = sent_by_all(self);
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
        .memory_peak_bytes = result->memory_peak_bytes,
        .sent_intra_bytes = sent.intra,
        .sent_inter_bytes = sent.inter,
        .save_ms = (self->save_us + self->copy_us) / 1e3,
    };
    fill_exposed(self, result, &metrics);
    fill_router(result->router_sums, &metrics.router);
    run_reports_step(&self->reports, &metrics);
    if (self->job->callbacks.step != NULL)
        self->job->callbacks.step(self->job->callbacks.ctx, &metrics);
    if (result->skipped)
        run_job_note(self->job, "step %lld is left out: gradients overflowed fp16 at loss scale %g",
                     (long long)step, result->loss_scale);
    if (result->verdict == MICS_VERDICT_EMPTY)
        run_job_note(self->job, "step %lld is left out: no token of its batch counts",
                     (long long)step);
    return MICS_OK;
}

// From the end of the step before to the end of this one, so that steps leave no time between them;
// the engine's own figure begins with its list.
static double step_us(run_trainer *self)
{
    const double begin_us = self->begin_us;
    self->begin_us = mics_clock_us();
    return self->begin_us - begin_us;
}

static bool is_due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

// Whether the state of a step is read behind it: saved, copied, compared or evaluated.
static bool is_read(const run_trainer *self, int64_t step)
{
    const mics_run *run = self->job->run;
    return step == run->steps || (self->newest.told & RUN_TELL_STOP) != 0 ||
           is_due(run->checkpoint_every, step) || is_due(run->memory_checkpoint_every, step) ||
           is_due(run->check_replicas_every, step) ||
           (run->validation_batches > 0 && is_due(run->validate_every, step));
}

// Completes a step whose state is read behind it, so that the time and bytes of that are in the
// step's metrics.
static mics_status complete_step(run_trainer *self, int64_t step)
{
    const double traced_us = mics_clock_us();
    MICS_TRY(
        run_trace_step(self->trace, self->engine, step, &self->newest)); // its times, not these
    const double begin_us = mics_clock_us(), copy_us = self->copy_us;
    self->begin_us += begin_us - traced_us;
    if (is_read(self, step))
        MICS_TRY(mics_engine_complete(self->engine));
    self->complete_us = mics_clock_us() - begin_us - (self->copy_us - copy_us);
    self->completions = mics_engine_take_completions(self->engine);
    return MICS_OK;
}

static mics_status run_step(run_trainer *self, int64_t step)
{
    const mics_run *run = self->job->run;
    double lr = mics_lr_at(&run->lr, step);
    mics_batch_source source =
        source_of(self, &self->job->train_samples, (step - 1) * run->global_batch);
    self->copy_us = 0;
    MICS_TRY(run_guard_step(self, step, (float)lr, &source));
    if (self->step != step) // it has to be run again, or a rank has to stop
        return MICS_OK;
    MICS_TRY(complete_step(self, step));
    const double taken_us = step_us(self) - self->copy_us;
    atomic_store(&self->job->stop.step_s, taken_us / 1e6);
    MICS_TRY(check_sent(self));
    return report_step(self, step, taken_us, lr, &self->newest);
}

// ---- the loop ----

static bool must_stop(const run_trainer *self)
{
    const mics_job_callbacks *callbacks = &self->job->callbacks;
    return hears(self) && callbacks->should_stop != NULL && callbacks->should_stop(callbacks->ctx);
}

// What is due after a step. Its time is neither that step's nor the next one's.
static mics_status follow_step(run_trainer *self, int64_t step)
{
    const mics_run *run = self->job->run;
    const bool last = step == run->steps, stop = (self->newest.told & RUN_TELL_STOP) != 0;
    const double end_us = mics_clock_us();
    const bool saves = last || stop || is_due(run->checkpoint_every, step);
    // A copy in node memory is a state to go on from, too.
    const bool copies = is_due(run->memory_checkpoint_every, step);
    MICS_TRY(run_guard_check(self, step, saves || copies));
    if (self->step != step)
        return MICS_OK;
    const double save_us = mics_clock_us();
    if (last)
        MICS_TRY(run_saving_end(self));
    else if (stop)
        MICS_TRY(run_saving_save(self));
    else if (saves)
        MICS_TRY(run_saving_begin(self));
    self->save_us = mics_clock_us() - save_us;
    if (!last && !stop)
        MICS_TRY(run_node_memory_follow(self, step));
    if (last || (is_due(run->validate_every, step) && !stop)) {
        MICS_TRY(validate(self, step));
        MICS_TRY(run_best_follow(self, step));
    }
    if (self->step == step && !stop)
        MICS_TRY(run_sample_follow(self, step));
    self->begin_us += mics_clock_us() - end_us;
    return MICS_OK;
}

static mics_status train_step(run_trainer *self, int64_t step)
{
    if (must_stop(self)) // one process may be told to, and not the next
        mics_engine_tell(self->engine, RUN_TELL_STOP);
    MICS_TRY(run_step(self, step));
    atomic_store(&self->job->stop.step, self->step);
    if (self->step == step)
        MICS_TRY(follow_step(self, step));
    const bool held = self->newest.verdict == MICS_VERDICT_HELD;
    if ((!held && (self->newest.told & RUN_TELL_STOP) == 0) || self->step == self->job->run->steps)
        return MICS_OK;
    if (held) // a rank has to stop: the step before is saved, by all
        MICS_TRY(run_guard_check_stop(self));
    MICS_TRY(run_saving_save(self)); // also what the run has gone back to
    return MICS_ERR_INTERRUPTED;
}

// Where a run begins, and where it goes on behind a step with which it stopped before validating it.
static bool validates_first(const run_trainer *self)
{
    return !self->begun ||
           (is_due(self->job->run->validate_every, self->step) && self->validated != self->step);
}

static mics_status train(run_trainer *self, int64_t until)
{
    MICS_TRY(run_best_load(self));
    if (validates_first(self)) {
        MICS_TRY(validate(self, self->step));
        MICS_TRY(run_best_begin(self));
    }
    if (self->begun || self->job->resumes_newest)
        MICS_TRY(run_sample_make_up(self));
    if (self->step == self->job->run->steps) // the run was killed behind its last step
        MICS_TRY(run_saving_end(self));
    self->begun = true;
    self->begin_us = mics_clock_us();
    while (self->step < until && !run_best_ended(self))
        MICS_TRY(train_step(self, self->step + 1));
    return MICS_OK;
}

// The largest of all ranks, by tag and in total.
static mics_status measure_memory(run_trainer *self)
{
    mics_memory_stats stats;
    mics_memory_stats_get(self->rank->memory, &stats);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++)
        self->peak_bytes[tag] = (int64_t)stats.peak[tag];
    self->peak_bytes[MICS_MEM_TAGS] = (int64_t)stats.total_peak;
    return run_rank_max(self->rank, self->peak_bytes, MICS_MEM_TAGS + 1);
}

mics_status run_trainer_train(void *ctx, run_rank *rank)
{
    mics_job *job = ctx;
    run_trainer *self = trainer_of(job, rank);
    mics_log_release(false, -1);
    mics_status status = train(self, job->train_until);
    if (status == MICS_ERR_NUMERIC) // what is being saved was good
        (void)run_saving_settle(self);
    if (status == MICS_OK || status == MICS_ERR_INTERRUPTED)
        MICS_TRY(measure_memory(self));
    // Every rank was told to stop, or found the same numbers, so nobody waits for another.
    rank->agreed = status == MICS_ERR_INTERRUPTED || status == MICS_ERR_NUMERIC;
    return status;
}

// If the run has to go back for it, it trains up to this step again.
static mics_status save_checked(run_trainer *self, int64_t step)
{
    MICS_TRY(run_guard_check(self, step, true));
    if (self->step != step)
        MICS_TRY(train(self, step));
    return run_saving_save(self);
}

mics_status run_trainer_save(void *ctx, run_rank *rank)
{
    run_trainer *self = trainer_of(ctx, rank);
    mics_log_release(false, -1);
    const mics_status status = save_checked(self, self->step);
    rank->agreed = status == MICS_ERR_INTERRUPTED || status == MICS_ERR_NUMERIC;
    return status;
}
