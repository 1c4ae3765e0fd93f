// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the ranks of one process share while they train: run file, model, schedule, data, and where
// the run starts from. Opened once a process, then only read.
#ifndef MICS_CLI_JOB_H
#define MICS_CLI_JOB_H

#include "collectives.h"
#include "launch.h"
#include "mics/checkpoint.h"
#include "mics/config.h"
#include "mics/data.h"
#include "mics/json.h"
#include "mics/model.h"
#include "mics/safetensors.h"
#include "mics/schedule.h"
#include "samples.h"
#include "sizing.h"
#include <stdatomic.h>

typedef struct cli_job {
    mics_memory *memory;
    cli_world *world; // borrowed
    mics_run *run;
    mics_json *config; // the model's
    mics_model *model;
    cli_room room;
    mics_schedule *schedule;
    cli_collectives collectives;     // what was measured for it
    mics_tokenizer *tokenizer;       // NULL: token shards of which nobody knows the text
    mics_corpus *train, *validation; // validation NULL: part of train, or none
    cli_samples train_samples, validation_samples;
    mics_safetensors *import;    // NULL: random, or resumed
    mics_checkpoint *checkpoint; // NULL: the run starts anew
    char *checkpoint_path;       // of `checkpoint`
    char *checkpoints_dir;       // OUT/checkpoints
    char *run_json;              // resolved, as text
    int64_t start_step;          // optimizer steps that were done before
    bool finished;               // nothing is left to do
    int lock_file;               // OUT/lock, held by the first process; -1: none
    atomic_bool running;         // training has begun: what fails now is no configuration error
} cli_job;

/* The model, and what memory and threads this process' ranks may use (job->room); needs no data and
 * no output folder. `run`, whose device is settled (gpu.h), is resolved.
 *
 * `staging_bytes` is the transport's. Returns: MICS_OK; what was wrong, logged (the job holds what
 * was opened; cli_job_close it). For train and explain.
 */
mics_status cli_job_open_model(cli_job *job, int32_t ranks, int32_t nodes, int32_t ranks_here,
                               size_t staging_bytes);

/* The schedule for job->room, which all processes must have alike: an automatic sharding is chosen
 * by it. Returns: as cli_job_open_model.
 */
mics_status cli_job_open_schedule(cli_job *job);

/* The rest, for training: output folder, tokenizer, corpora, resumption, safetensors. Writes only
 * on the first process, and nothing before everything was found to be in order.
 */
mics_status cli_job_open_data(cli_job *job);

void cli_job_close(cli_job *job);

/* Tokens of a sequence, of one micro-step, and so on. */
int64_t cli_job_sequence(const cli_job *job);

/* How long ranks wait for one that reads or writes files: never shorter than for a collective. */
double cli_job_files_timeout_s(const cli_job *job);

// ---- resume.c ----

/* Finds what to resume from, if anything: sets checkpoint, and the run keeps what it has resolved
 * (mics_run_keep). Needs the run, not yet resolved.
 *
 * `resume`: "auto", "none" or a folder.
 */
mics_status cli_job_find_checkpoint(cli_job *job, const char *resume);

/* Checks that `checkpoint` is of the same run: sets start_step and finished. Needs the corpora open.
 */
mics_status cli_job_resume(cli_job *job);

/* Adds to the error line that is kept back from which older step of the run it can go on, after
 * what job->checkpoint holds was found to be damaged.
 */
void cli_job_advise_older(const cli_job *job);

// ---- run_json.c ----

/* The resolved run as a run file that gives the same run again. The caller frees *text_out with
 * mics_free.
 */
mics_status cli_run_text(mics_memory *memory, const mics_run *run, char **text_out);

#endif
