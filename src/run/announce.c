// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The lines before a run's first step.
#include "announce.h"
#include "base/size.h"
#include "base/text.h"
#include "mics/log.h"
#include "run/model.h"
#include "run/ranks/precision.h"
#include "run/values.h"
#include <string.h>

void run_announce_cores(const mics_job *job, const run_cores *cores)
{
    const int32_t here = job->world->ranks_here, threads = job->run->threads;
    mics_machine machine = {0};
    int32_t own = cores->own;
    if (own == 0 && mics_machine_read(&machine) == MICS_OK)
        own = machine.cores > here ? machine.cores / here : 1;
    if (own > 0 && threads > own)
        mics_log(MICS_LOG_INFO,
                 "run.threads %d is more than the %d of a rank's cores here, which is slow; "
                 "run.threads \"auto\" takes as many as there are",
                 (int)threads, (int)own);
    if (cores->bound > 0 && 2 * cores->bound < cores->machine)
        mics_log(MICS_LOG_INFO,
                 "the launcher leaves the ranks of this machine %d of its %d cores; more: mpirun "
                 "--bind-to none, or --map-by ppr:%d:node:PE=%d; srun --cpus-per-task %d",
                 (int)cores->bound, (int)cores->machine, (int)here, (int)(cores->machine / here),
                 (int)(cores->machine / here));
}

// What the run file says for another engine, and has no effect here, is named once.
static void log_hints(const mics_run *run)
{
    char names[512] = "";
    size_t used = 0;
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        const mics_run_row row = mics_run_row_at(run, i);
        if (row.hint && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used > 0 ? ", " : "", row.key);
    }
    if (used > 0)
        mics_log(MICS_LOG_INFO, "without effect here (mics explain says why): %s%s", names,
                 used < sizeof names ? "" : "...");
}

// Offload that the file asks for is left out: the state fits, which was checked.
static void log_offload(const mics_job *job)
{
    const mics_run *run = job->run;
    char needed[32], there[32];
    bool asked = false;
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        const mics_run_row row = mics_run_row_at(run, i);
        asked = asked || (row.hint && strncmp(row.key, "zero_optimization.offload", 25) == 0 &&
                          strstr(row.value, "\"none\"") == NULL);
    }
    if (asked)
        mics_log(MICS_LOG_INFO, "nothing is offloaded: a rank needs %s of %s",
                 mics_size_text((double)job->schedule->ledger.total, needed, sizeof needed),
                 mics_size_text((double)job->budget.limit_bytes, there, sizeof there));
}

static void log_kept(const mics_job *job, const char *from)
{
    const mics_run *run = job->run;
    const char *kept = mics_run_kept_text(run);
    if (mics_run_keeps_batch(run))
        mics_log(
            MICS_LOG_INFO,
            "train_batch_size %lld kept from %s: micro-batch %lld x %d micro-steps x %d %sranks",
            (long long)run->global_batch, from, (long long)run->micro_batch, (int)run->micro_steps,
            (int)run_job_data_ranks(job), run->sequence > 1 ? "data " : "");
    if (*kept != '\0')
        mics_log(MICS_LOG_INFO, "kept from %s, as the run file does not say it: %s", from, kept);
}

// Ranks that do not divide the batch compute rows beyond it, too.
static void log_rows(const mics_job *job)
{
    const mics_run *run = job->run;
    const int64_t rows = run->micro_batch * run->micro_steps * run_job_data_ranks(job);
    if (rows > run->global_batch)
        mics_log(MICS_LOG_INFO,
                 "%lld of %lld rows of a step count nothing: %lld sequences on %d %sranks",
                 (long long)(rows - run->global_batch), (long long)rows,
                 (long long)run->global_batch, (int)run_job_data_ranks(job),
                 run->sequence > 1 ? "data " : "");
}

// A file twice, as by a name and a glob, counts twice; one that also validates says nothing of others.
static mics_status log_same(const mics_job *job)
{
    mics_corpus_same same;
    MICS_TRY(mics_corpus_find_same(job->train, NULL, &same));
    if (same.files > 0)
        mics_log(MICS_LOG_INFO,
                 "data.train has the same text more than once, which then counts more: %s and %s%s",
                 same.first, same.second,
                 job->validation != NULL || job->run->validation_batches == 0
                     ? ""
                     : "; what is held out may be trained, too");
    if (job->validation == NULL)
        return MICS_OK;
    MICS_TRY(mics_corpus_find_same(job->train, job->validation, &same));
    if (same.files > 0)
        mics_log(MICS_LOG_INFO,
                 "data.validation has a text of data.train, %s, so its loss is of trained text",
                 same.second);
    return MICS_OK;
}

static bool is_given(const mics_run *run, const char *key)
{
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        const mics_run_row row = mics_run_row_at(run, i);
        if (strcmp(row.key, key) == 0)
            return strcmp(row.origin, "default") != 0;
    }
    return false;
}

// A few times cost little.
static void log_repeated(const mics_job *job)
{
    const mics_run *run = job->run;
    const int64_t windows = job->validation_samples.windows;
    const int64_t all = (windows + run->global_batch - 1) / run->global_batch;
    const double times = (double)run->validation_batches * (double)run->global_batch;
    if (windows > 0 && times / (double)windows >= 16.0 && is_given(run, "run.validation_batches"))
        mics_log(MICS_LOG_INFO,
                 "run.validation_batches %lld reads the %lld sequences of validation %.0f times; "
                 "%lld would read all of them",
                 (long long)run->validation_batches, (long long)windows, times / (double)windows,
                 (long long)all);
}

// What would be of validations, where there are none.
static void log_unvalidated(const mics_run *run)
{
    const bool data = run->validation_count > 0, steps = run->validate_every != 0;
    if (run->validation_batches == 0 && (data || steps))
        mics_log(MICS_LOG_INFO, "%s not used: run.validation_batches is 0, so nothing is validated",
                 data && steps ? "data.validation and run.validate_every are"
                 : data        ? "data.validation is"
                               : "run.validate_every is");
}

// What is said of chats, where there are none.
static void log_unused_rows(const mics_run *run)
{
    static const char of_chats[] = "data.chat_template|data.template_variables|"
                                   "data.template_date|data.loss_on|data.too_long";
    char names[160] = "";
    size_t used = 0;
    for (int32_t i = 0; !run->rows && i < mics_run_row_count(run); i++) {
        const mics_run_row row = mics_run_row_at(run, i);
        if (mics_text_is_among(row.key, of_chats) && mics_text_is_among(row.origin, "file|--set"))
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used > 0 ? ", " : "", row.key);
    }
    if (used > 0)
        mics_log(MICS_LOG_INFO, "not used, as data.train has no chats: %s", names);
}

// A schedule that is not as long as the steps that it is for.
static void log_schedule(const mics_run *run)
{
    const mics_lr *lr = &run->lr;
    const int64_t steps = (run->lr_end > 0 ? run->lr_end : run->steps) - run->lr_begin;
    const int64_t end = run->lr_begin + lr->total_steps, run_end = run->lr_begin + steps;
    const double last = mics_lr_at(lr, steps);
    if (lr->peak == 0)
        mics_log(MICS_LOG_WARNING, "optimizer.params.lr is 0, so nothing is learned");
    if (steps == 1) // tries something out
        return;
    if (lr->warmup_steps >= steps && last < lr->peak)
        mics_log(MICS_LOG_INFO,
                 "the warm-up of %lld steps does not end within the %lld of the run: the learning "
                 "rate ends at %.3g, below its peak of %.3g (scheduler.params)",
                 (long long)lr->warmup_steps, (long long)steps, last, lr->peak);
    else if (lr->total_steps > 0 && lr->total_steps < steps)
        mics_log(MICS_LOG_INFO,
                 "the scheduler ends with step %lld of %lld: the last step has a learning rate of "
                 "%.3g (scheduler.params.total_num_steps)",
                 (long long)end, (long long)run_end, last);
}

// What the run takes from the one that it resumes, and what it does otherwise.
static mics_status log_resumed(const mics_job *job)
{
    const char *from = job->node.taken ? "node memory" : job->checkpoint_path;
    if (job->checkpoint == NULL)
        return MICS_OK;
    const mics_checkpoint_meta *meta = mics_checkpoint_meta_get(job->checkpoint);
    log_kept(job, from);
    if (meta->validation_hash != 0 && job->validation != NULL &&
        meta->validation_hash != mics_corpus_hash(job->validation))
        mics_log(MICS_LOG_INFO, "changed: data.validation has another text; its losses are not "
                                "comparable with those before");
    return meta->run_json == NULL ? MICS_OK
                                  : mics_run_log_changes(job->run, from, meta->run_json,
                                                         job->run_json, job->start_step + 1);
}

mics_status run_announce(const mics_job *job)
{
    if (job->world->first != 0)
        return MICS_OK;
    if (job->finished)
        return log_resumed(job);
    if (*mics_run_program_text(job->run) != '\0')
        mics_log(MICS_LOG_INFO, "%s %s", mics_json_name(job->run->json),
                 mics_run_program_text(job->run));
    else if (job->run->max_sequence_length > 0 && job->run->sequence_length < job->model->positions)
        mics_log(MICS_LOG_INFO,
                 "%s: sequences of %lld tokens; the model has %lld positions "
                 "(data.sequence_length)",
                 mics_json_name(job->run->json), (long long)job->run->sequence_length,
                 (long long)job->model->positions);
    mics_run_log_adapter(job->run, job->model);
    log_hints(job->run);
    log_offload(job);
    MICS_TRY(log_resumed(job));
    log_rows(job);
    log_repeated(job);
    log_unvalidated(job->run);
    log_unused_rows(job->run);
    log_schedule(job->run);
    MICS_TRY(log_same(job));
    run_precision_log(job);
    return MICS_OK;
}
