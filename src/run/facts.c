// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is known of a job.
#include "io/data/chats.h"
#include "job.h"
#include "mics/core/device.h"
#include "mics/core/ledger.h"
#include "run/ranks/gpu.h"
#include "run/ranks/precision.h"
#include "run/settings.h"
#include "trainer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

const mics_run *mics_job_run(const mics_job *job)
{
    return job->run;
}

const char *mics_job_out(const mics_job *job)
{
    return job->run->out;
}

const mics_model *mics_job_model(const mics_job *job)
{
    return job->model;
}

const mics_schedule *mics_job_schedule(const mics_job *job)
{
    return job->schedule;
}

static void fill_world(const mics_job *job, mics_job_facts *facts)
{
    facts->ranks = job->budget.ranks;
    facts->nodes = job->budget.nodes;
    facts->ranks_here = job->budget.ranks_here;
    facts->layered = job->layered;
    facts->threads = job->budget.threads;
    if (job->world == NULL)
        return;
    facts->mpi = job->world->mpi;
    facts->first_rank = job->world->first;
}

static void fill_device(const mics_job *job, mics_job_facts *facts)
{
    const run_accelerator *accelerator = &job->budget.accelerator;
    mics_device_info info = {.name = "GPU"};
    facts->accelerator = accelerator->used;
    facts->device = mics_run_device_text(job->run->device);
    facts->numbers = run_gpu_numbers(job->run->precision);
    facts->device_why = job->device_why;
    facts->hint = run_precision_hint(job);
    facts->devices = accelerator->devices;
    facts->limit_bytes = job->budget.limit_bytes;
    facts->limit_is_set = job->budget.limit_is_set;
    facts->save_copy_bytes = job->saves_behind ? job->save_copy_bytes : 0;
    if (job->schedule != NULL && job->run->memory_checkpoint_every > 0)
        facts->node_memory_bytes = mics_schedule_node_bytes(job->schedule);
    if (job->schedule != NULL && mics_engine_copies_states(job->schedule))
        facts->host_copy_bytes = mics_engine_copy_bytes(job->schedule);
    if (!accelerator->used) {
        // A build without the plugin is not worth a word each time; one whose GPUs cannot be used
        // is.
        if (job->run->device_auto && mics_cuda_find()->plugin)
            facts->no_device = mics_cuda_find()->why_not;
        return;
    }
    if (accelerator->devices > 0)
        (void)mics_cuda_device_info(0, &info);
    snprintf(facts->device_name, sizeof facts->device_name, "%s", info.name);
    facts->device_memory_bytes = info.memory_total_bytes;
}

// Of the order that the run is in.
static double all_samples(const mics_job *job)
{
    return (double)run_job_position(job, mics_run_phase_end(job->run)).sample;
}

mics_job_source mics_job_source_get(const mics_job *job, int32_t source)
{
    const run_samples *samples = &job->train_samples;
    mics_job_source of = {.path = job->run->train[source],
                          .share = run_samples_share(samples, source)};
    int64_t begin = 0;
    mics_corpus_source(job->train, source, &begin, &of.tokens);
    of.epochs = all_samples(job) * of.share / (double)samples->parts[source].windows;
    return of;
}

mics_job_phase mics_job_phase_get(const mics_job *job, int32_t phase)
{
    return job->phases[phase];
}

static void fill_samples(const mics_job *job, mics_job_facts *facts)
{
    const run_samples *samples = &job->train_samples;
    if (job->chats == NULL)
        return;
    facts->chat_template = mics_chats_template_from(job->chats);
    for (int32_t i = 0; i < job->run->train_count; i++) {
        const mics_corpus_share share = mics_corpus_share_get(job->train, i);
        facts->kept_tokens += share.tokens;
        facts->counted_tokens += share.counted;
        facts->silent += share.silent;
    }
    for (int32_t i = 0; i < samples->packing_count; i++) {
        const mics_packing_facts of = mics_packing_facts_get(samples->packings[i]);
        facts->samples += of.samples;
        facts->sequences += of.rows * samples->each;
        facts->sequence_tokens += of.tokens;
        facts->cut += of.cut;
        facts->left_out += of.left_out;
    }
}

static void fill_data(const mics_job *job, mics_job_facts *facts)
{
    if (job->train == NULL)
        return;
    facts->tokenizer = job->tokenizer != NULL ? job->run->tokenizer : NULL;
    facts->train_tokens = mics_corpus_tokens(job->train);
    facts->train_epochs = all_samples(job) / (double)job->train_samples.windows;
    facts->sources = job->train_samples.part_count;
    fill_samples(job, facts);
    if (job->validation != NULL)
        facts->validation_tokens = mics_corpus_tokens(job->validation);
    else
        facts->held_out_windows = job->validation_samples.windows;
}

static void fill_progress(const mics_job *job, mics_job_facts *facts)
{
    facts->checkpoint = job->checkpoint_path;
    facts->from_memory = job->node.taken;
    facts->checkpoints_dir = job->checkpoints_dir;
    facts->imported = job->import != NULL && job->checkpoint == NULL;
    facts->start_step = facts->step = facts->saved_step = job->start_step;
    facts->validation_first = facts->validation_last = NAN;
    bool ended = job->finished;
    // Before a rank is open it has done nothing.
    const run_trainer *trainer = job->trainers;
    if (trainer != NULL && trainer->context.job != NULL) {
        const run_progress *progress = &trainer->progress;
        facts->step = progress->step;
        facts->saved_step = progress->saved != RUN_NO_STEP ? progress->saved : 0;
    }
    if (trainer != NULL && trainer->open) {
        const run_followers *followers = &trainer->followers;
        facts->validation_first = followers->validation.loss_first;
        facts->validation_last = followers->validation.loss_last;
        facts->best_step = followers->best.found.step;
        facts->best_loss = followers->best.found.loss;
        facts->no_improvement = run_best_stops_early(&followers->best);
        ended = ended || trainer->begun;
        memcpy(facts->peak_bytes, trainer->peak_bytes, sizeof facts->peak_bytes);
    }
    facts->finished = ended && facts->step == job->run->steps;
}

mics_job_facts mics_job_facts_get(const mics_job *job)
{
    mics_job_facts facts = {0};
    fill_world(job, &facts);
    fill_device(job, &facts);
    fill_data(job, &facts);
    fill_progress(job, &facts);
    facts.phases = job->phase_count;
    return facts;
}
