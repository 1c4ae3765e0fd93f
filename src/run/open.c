// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The calls of a job: what all processes settle before ranks run, and what they are asked for then.
//
// Setup is alike in all processes, each of which holds its error line back; they agree, and one
// speaks.
#include "announce.h"
#include "base/clock.h"
#include "base/size.h"
#include "collectives.h"
#include "job.h"
#include "mics/core/schedule.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include "run/model.h"
#include "run/ranks/cores.h"
#include "run/ranks/gpu.h"
#include "run/ranks/isa.h"
#include "run/ranks/same.h"
#include "run/run_json.h"
#include "run/save/disk_space.h"
#include "run/save/resume.h"
#include "run/values.h"
#include "trainer.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

// How long ranks wait for each other while the run, which says it, could not be read.
static const double SETUP_TIMEOUT_S = 60;

bool mics_job_is_launched(void)
{
    return mics_comm_mpi_launched();
}

static mics_status open_job(mics_memory *memory, mics_job **job_out)
{
    mics_job *job = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &job));
    job->memory = memory;
    job->out = RUN_FOLDER_NONE;
    job->stop.opened_us = mics_clock_us();
    run_standing_begin(&job->standing, 0, false);
    run_standing_keep(&job->standing, RUN_NO_STEP);
    *job_out = job;
    return MICS_OK;
}

static mics_status load_with(const mics_job_spec *spec, const char *const *sets, int32_t set_count,
                             mics_run **run_out)
{
    if (spec->file != NULL)
        return mics_run_load(spec->memory, spec->file, sets, set_count, run_out);
    if (spec->values != NULL)
        return run_values_load(spec->memory, spec->values, sets, set_count, run_out);
    return mics_fail(MICS_ERR_INVALID, "mics_job_spec: neither a file nor values describe a run");
}

// With a set more where the program has a model of its own: that one in place of a file's.
static mics_status load_run(const mics_job_spec *spec, mics_job *job)
{
    const char **sets = NULL;
    MICS_TRY(spec->status);
    MICS_TRY(run_job_take_builder(job, spec));
    if (job->builder.build == NULL)
        return load_with(spec, spec->sets, spec->set_count, &job->run);
    const size_t count = (size_t)spec->set_count;
    MICS_TRY(MICS_NEW(spec->memory, count + 1, &sets));
    for (size_t i = 0; i < count; i++)
        sets[i] = spec->sets[i];
    sets[count] = "model.config=" MICS_MODEL_OF_PROGRAM;
    const mics_status status = load_with(spec, sets, spec->set_count + 1, &job->run);
    mics_free(spec->memory, sets);
    return status;
}

// ---- setup, alike in all processes ----

static mics_status open_model(mics_job *job)
{
    size_t staging = job->world->mpi ? mics_comm_mpi_staging_bytes() : 0;
    MICS_TRY(run_job_open_model(job, job->world->ranks, job->world->nodes, job->world->ranks_here,
                                staging));
    run_node_memory_credit(job);
    job->budget.shares = job->world->shares;
    if (job->run->share_params && !job->budget.shares && !job->budget.accelerator.used &&
        job->world->first == 0 && job->world->ranks > job->world->nodes)
        mics_log(MICS_LOG_INFO, "run.share_params: the processes of a node have no memory in "
                                "common here (or --nodes says otherwise than the launcher), so "
                                "gathers copy");
    return MICS_OK;
}

static void log_saves_wait(const mics_job *job)
{
    char bytes[32];
    mics_log(MICS_LOG_INFO,
             "saves stop training until they are on disk: a rank has no %s more for a copy of its "
             "part of the state",
             mics_size_text((double)job->save_copy_bytes, bytes, sizeof bytes));
}

static mics_status open_schedule(mics_job *job)
{
    MICS_TRY(run_job_open_schedule(job));
    MICS_TRY(run_gpu_check_library(job));
    MICS_TRY(run_check_memory(job->memory, job->run, job->schedule, &job->budget));
    if (job->run->checkpoint_every > 0 && !job->saves_behind && job->world->first == 0)
        log_saves_wait(job);
    return MICS_OK;
}

// Processes read their machines' memory and cores at other moments, or have other machines; the
// poorest decides, so that all choose the same sharding. Launchers bind ranks to cores, of their
// own or shared.
static mics_status share_budget(mics_job *job)
{
    run_cores cores = {0};
    MICS_TRY(run_cores_read(job->world, job->memory, &cores));
    if (job->run->threads == 0 && cores.own > 0)
        job->budget.threads = cores.own;
    if (job->world->first == 0 && job->run->device == MICS_RUN_DEVICE_CPU)
        run_announce_cores(job, &cores);
    int64_t least[] = {-(int64_t)job->budget.limit_bytes, -(int64_t)job->budget.threads,
                       -(int64_t)job->budget.host_bytes, -(int64_t)job->budget.auto_bytes};
    MICS_TRY(run_world_max(job->world, least, 4));
    job->budget.auto_bytes = (size_t)-least[3];
    job->budget.host_bytes = (size_t)-least[2];
    job->budget.limit_bytes = (size_t)-least[0];
    job->budget.threads = (int32_t)-least[1];
    return MICS_OK;
}

static mics_status open_data(void *ctx)
{
    return run_job_open_data(ctx);
}

// Opens the engines.
static mics_status start(mics_job *job)
{
    const int32_t here = job->world->mpi ? 1 : job->world->ranks;
    MICS_TRY(run_collectives_settle(job)); // the schedule is final
    MICS_TRY(run_world_agree(job->world, mics_schedule_validate(job->schedule)));
    MICS_TRY(run_world_agree(job->world, MICS_NEW(job->memory, here, &job->trainers)));
    run_standing_begin(&job->standing, job->start_step,
                       job->checkpoint != NULL && !job->node.taken);
    return run_world_run(job->world, run_trainer_open, job);
}

// A run that has done its last step is not finished if it was killed before what is due behind that:
// rank 0 looks, and all processes hear of it.
static mics_status settle_finished(mics_job *job)
{
    int64_t lacks = job->finished && job->world->first == 0 &&
                    (run_validation_is_left_out(job, job->start_step) || run_texts_lack_last(job));
    MICS_TRY(run_world_max(job->world, &lacks, 1));
    job->finished = job->finished && lacks == 0;
    return MICS_OK;
}

// What is looked for is looked for by all of them.
static mics_status agree_on_resume(const mics_job *job, const char *resume)
{
    const int64_t mine = (int64_t)(XXH3_64bits(resume, strlen(resume)) >> 1);
    int64_t ends[] = {mine, -mine};
    MICS_TRY(run_world_max(job->world, ends, 2));
    return ends[0] == -ends[1] ? MICS_OK
                               : mics_fail(MICS_ERR_INVALID,
                                           "--resume is not the same on all ranks (here %s); start "
                                           "all of them with the same arguments",
                                           resume);
}

// ---- phases to come ----

static void note_phase(mics_job *job, const mics_job *as)
{
    const mics_run *run = as->run;
    const int32_t islands = run->outer.every > 0 ? as->schedule->spec.mesh.islands : 0;
    job->phases[job->phase_count++] = (mics_job_phase){.begin = run->phase_begin,
                                                       .end = mics_run_phase_end(run),
                                                       .global_batch = run->global_batch,
                                                       .length = run_job_sequence(as),
                                                       .memory_bytes = as->schedule->ledger.total,
                                                       .islands = islands,
                                                       .every = run->outer.every};
}

// Fits, and names files that are there, where the job trains. `run_text`: the resolved phase before.
static mics_status size_phase(mics_job *as, const mics_job *job, const char *run_text)
{
    const run_budget *budget = &job->budget;
    MICS_TRY(mics_run_keep(as->run, mics_json_name(job->run->json), run_text));
    as->run->device = job->run->device;
    as->run->attention = job->run->attention;
    as->run->precision = job->run->precision;
    MICS_TRY(job->world != NULL ? mics_run_check_files(as->run, job->checkpoint != NULL) : MICS_OK);
    MICS_TRY(run_job_open_model(as, budget->ranks, budget->nodes, budget->ranks_here,
                                budget->staging_bytes));
    as->budget = *budget;
    MICS_TRY(run_job_open_schedule(as));
    return job->world != NULL ? run_check_memory(as->memory, as->run, as->schedule, &as->budget)
                              : MICS_OK;
}

static mics_status check_phase(mics_job *job, const mics_job_spec *spec, int64_t step,
                               char **run_text)
{
    mics_job *as = NULL;
    char where[64];
    MICS_TRY(open_job(job->memory, &as));
    mics_status status = load_run(spec, as);
    if (status == MICS_OK) {
        mics_run_enter(as->run, step);
        status = size_phase(as, job, *run_text);
    }
    mics_free(job->memory, *run_text);
    *run_text = NULL;
    snprintf(where, sizeof where, "in phase %d", (int)job->phase_count + job->run->phase + 1);
    if (status != MICS_OK) {
        mics_log_add(where);
    } else {
        note_phase(job, as);
        status = run_run_text(job->memory, as->run, run_text);
    }
    (void)mics_job_close(as);
    return status;
}

// All phases are known to be possible before the first one trains.
static mics_status check_phases(mics_job *job, const mics_job_spec *spec)
{
    char *run_text = NULL;
    mics_status status = MICS_OK;
    if (job->run->phase_count == 0)
        return MICS_OK;
    MICS_TRY(run_run_text(job->memory, job->run, &run_text));
    note_phase(job, job);
    mics_log_set_quiet(true);
    while (status == MICS_OK && job->phases[job->phase_count - 1].end < job->run->steps)
        status = check_phase(job, spec, job->phases[job->phase_count - 1].end, &run_text);
    mics_free(job->memory, run_text);
    mics_log_set_quiet(job->world != NULL && job->world->first != 0);
    return status;
}

// `spec`: of the first start; NULL: of a later phase.
static mics_status open_all(mics_job *job, const char *resume, mics_status loaded,
                            const mics_job_spec *spec)
{
    MICS_TRY(run_world_agree(job->world, loaded));
    const char *file_says = job->run->resume != NULL ? job->run->resume : "auto";
    resume = resume != NULL ? resume : file_says;
    MICS_TRY(run_world_agree(job->world, agree_on_resume(job, resume)));
    MICS_TRY(run_node_memory_find(job, resume));
    MICS_TRY(run_world_agree(job->world, run_job_find_checkpoint(job, resume)));
    MICS_TRY(run_gpu_resolve_all(job->world, job->run, &job->no_bf16));
    MICS_TRY(run_world_agree(job->world, open_model(job)));
    MICS_TRY(run_same_run(job));
    MICS_TRY(run_isa_settle(job));
    MICS_TRY(share_budget(job));
    MICS_TRY(run_world_agree(job->world, open_schedule(job)));
    run_gpu_why(job);
    MICS_TRY(run_world_first(job->world, open_data, job));
    MICS_TRY(run_same_data(job));
    MICS_TRY(settle_finished(job));
    MICS_TRY(run_world_agree(job->world, run_job_write_resolved(job)));
    MICS_TRY(run_world_agree(job->world, run_announce(job)));
    if (job->finished)
        return MICS_OK;
    if (spec != NULL)
        MICS_TRY(run_world_agree(job->world, check_phases(job, spec)));
    run_disk_space_warn(job);
    MICS_TRY(run_node_memory_check(job));
    MICS_TRY(start(job));
    return run_node_memory_begin(job);
}

mics_status mics_job_open(const mics_job_spec *spec, mics_job **job_out)
{
    mics_job *job = NULL;
    // Until the world is open this process does not know whether it is the one that speaks.
    if (spec->status == MICS_OK)
        mics_log_hold(mics_comm_mpi_launched());
    mics_status status = open_job(spec->memory, &job), loaded = MICS_OK;
    if (status == MICS_OK) {
        job->callbacks = spec->callbacks;
        loaded = load_run(spec, job);
        const run_world_spec world = {
            .ranks = spec->ranks,
            .nodes = spec->nodes,
            .timeout_s = job->run != NULL ? job->run->comm_timeout_s : SETUP_TIMEOUT_S,
        };
        status = run_world_open(spec->memory, &world, &job->world);
    }
    if (status == MICS_OK)
        status = open_all(job, spec->resume, loaded, spec);
    mics_log_release(status != MICS_OK, -1);
    if (status == MICS_OK) {
        *job_out = job;
        return MICS_OK;
    }
    if (job != NULL)
        job->failed = status;
    if (job != NULL && job->run != NULL && job->run->out != NULL) // NULL: no memory to keep it
        run_folder_forget(job->memory, job->run->out, &job->out);
    (void)mics_job_close(job);
    return status;
}

// ---- a run that is only sized ----

// Each node is taken to be a machine like this one. Threads of one process stage nothing.
static mics_status size(mics_job *job, const mics_job_spec *spec)
{
    const int32_t ranks = spec->ranks > 0 ? spec->ranks : 1;
    const int32_t nodes = spec->nodes > 0 ? spec->nodes : 1;
    MICS_TRY(load_run(spec, job));
    if (ranks % nodes != 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%d nodes do not divide %d ranks; give --nodes a divisor", (int)nodes,
                         (int)ranks);
    MICS_TRY(run_gpu_resolve_unseen(job->run));
    MICS_TRY(run_job_open_model(job, ranks, nodes, ranks / nodes,
                                mics_comm_mpi_launched() ? mics_comm_mpi_staging_bytes() : 0));
    run_gpu_why(job);
    MICS_TRY(run_job_open_schedule(job));
    MICS_TRY(run_gpu_check_library(job));
    return check_phases(job, spec);
}

mics_status mics_job_size(const mics_job_spec *spec, mics_job **job_out)
{
    mics_job *job = NULL;
    MICS_TRY(open_job(spec->memory, &job));
    mics_status status = size(job, spec);
    if (status == MICS_OK)
        *job_out = job;
    else
        (void)mics_job_close(job);
    return status;
}

// ---- the next phase ----

// Each phase is a run of its own, which resumes from what the one before saved.
static mics_status next_phase(mics_job *job)
{
    MICS_TRY(mics_job_save(job));
    MICS_TRY(run_world_run(job->world, run_trainer_close, job));
    mics_free(job->memory, job->trainers);
    job->trainers = NULL;
    run_node_memory_close(job, true);
    run_job_close_parts(job);
    for (int32_t i = 0; i < job->world->here_count; i++)
        mics_memory_reset_peaks(job->world->here[i].rank.memory);
    mics_log_hold(job->world->first != 0);
    const mics_status status = open_all(job, "auto", MICS_OK, NULL);
    mics_log_release(status != MICS_OK, -1);
    return status;
}

// ---- what ranks are asked for ----

static mics_status ask(mics_job *job, mics_status (*rank_main)(void *ctx, run_rank *rank))
{
    MICS_TRY(job->failed);
    mics_status status = job->trainers == NULL ? start(job) : MICS_OK;
    if (status == MICS_OK)
        status = run_world_run(job->world, rank_main, job);
    mics_log_release(status != MICS_OK, -1);
    if (status != MICS_ERR_INTERRUPTED)
        job->failed = status;
    return status;
}

// Of a phase that has ended the next one begins. Trains no further than it, and than asked.
static mics_status enter_phase(mics_job *job, int64_t until)
{
    const int64_t done = mics_job_facts_get(job).step;
    if (done == mics_run_phase_end(job->run) && done < job->run->steps)
        MICS_TRY(job->failed = next_phase(job));
    const int64_t end = mics_run_phase_end(job->run);
    job->train_until = until < end ? until : end;
    return MICS_OK;
}

mics_status mics_job_train(mics_job *job, int64_t steps)
{
    const int64_t done = mics_job_facts_get(job).step, left = job->run->steps - done;
    const int64_t until = steps > 0 && steps < left ? done + steps : job->run->steps;
    mics_status status;
    MICS_TRY(job->failed);
    if (steps < 0)
        return mics_fail(MICS_ERR_INVALID, "mics_job_train: %lld steps; 0 trains to the end",
                         (long long)steps);
    if (mics_job_facts_get(job).finished)
        return MICS_OK;
    if (job->interrupted) // by what was asked then
        atomic_store(&job->stop.reason, RUN_STOP_NONE);
    do {
        status = enter_phase(job, until);
        if (status == MICS_OK)
            status = ask(job, run_trainer_train);
    } while (status == MICS_OK && mics_job_facts_get(job).step == job->train_until &&
             job->train_until < until);
    job->interrupted = status == MICS_ERR_INTERRUPTED;
    return status;
}

mics_status mics_job_evaluate(mics_job *job, double *loss_out)
{
    MICS_TRY(job->failed);
    if (job->run->validation_batches == 0)
        return mics_fail(MICS_ERR_INVALID, "run.validation_batches is 0: nothing is held out");
    MICS_TRY(ask(job, run_trainer_evaluate));
    *loss_out = job->trainers[0].evaluated;
    return MICS_OK;
}

// Whether the newest step is on disk.
static bool is_saved(const mics_job *job)
{
    const run_trainer *trainer = job->trainers; // NULL: finished before, so saved
    return trainer == NULL ? job->finished : trainer->progress.step == trainer->progress.saved;
}

mics_status mics_job_save(mics_job *job)
{
    if (is_saved(job))
        return job->failed;
    job->train_until = mics_job_facts_get(job).step;
    return ask(job, run_trainer_save);
}

// ---- what one rank writes of a saved job ----

typedef struct output {
    const char *from; // checkpoint of the step that was done last
    const char *dir;  // of an export
    const mics_export_spec *spec;
    const char *prompt; // of a text
    const mics_sampling *sampling;
    FILE *out;
} output;

static mics_status write_text(mics_saved *saved, const output *as)
{
    MICS_TRY(mics_saved_load(saved, mics_saved_facts_get(saved).dtype));
    return mics_saved_generate(saved, as->prompt, as->sampling, as->out);
}

static mics_status write_saved(mics_job *job, void *write_ctx)
{
    const output *as = write_ctx;
    mics_saved *saved = NULL;
    MICS_TRY(mics_saved_open(job->memory, as->from, &job->builder, &saved));
    const mics_status status =
        as->dir != NULL ? mics_saved_export(saved, as->dir, as->spec) : write_text(saved, as);
    mics_saved_close(saved);
    return status;
}

// What the job resumed from need not be the newest in its folder, nor be there at all.
static const char *newest_of(const mics_job *job)
{
    const bool resumed = job->checkpoint_path != NULL && !job->node.taken &&
                         mics_job_facts_get(job).step == job->start_step;
    return resumed ? job->checkpoint_path : job->checkpoints_dir;
}

static mics_status save_and_write(mics_job *job, output *as)
{
    MICS_TRY(mics_job_save(job));
    as->from = newest_of(job);
    job->write = write_saved;
    job->write_ctx = as;
    const mics_status status = ask(job, run_trainer_write);
    job->write_ctx = NULL;
    return status;
}

mics_status mics_job_export(mics_job *job, const char *dir, const mics_export_spec *spec)
{
    return save_and_write(job, &(output){.dir = dir, .spec = spec});
}

mics_status mics_job_generate(mics_job *job, const char *prompt, const mics_sampling *sampling,
                              FILE *out)
{
    return save_and_write(job, &(output){.prompt = prompt, .sampling = sampling, .out = out});
}

// ---- the end ----

mics_status mics_job_close(mics_job *job)
{
    mics_status status = MICS_OK;
    if (job == NULL)
        return MICS_OK;
    if (job->trainers != NULL)
        status = run_world_run(job->world, run_trainer_close, job);
    if (job->world != NULL) // with a save that was under way until now
        run_node_memory_close(job, job->failed == MICS_OK && is_saved(job));
    run_world_close(job->world);
    mics_free(job->memory, job->trainers);
    run_job_close_parts(job);
    mics_run_close(job->run);
    mics_free(job->memory, job);
    return status;
}
