// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the ranks of one process share: run file, model, schedule, data, and where the run starts
// from. Opened once a process, then only read, but for what its calls ask of the ranks.
#pragma once

#include "base/json.h"
#include "collectives.h"
#include "config/config.h"
#include "folder.h"
#include "io/data/data.h"
#include "mics/core/checkpoint.h"
#include "mics/core/schedule.h"
#include "mics/model.h"
#include "mics/run.h"
#include "model/from_config.h"
#include "progress.h"
#include "references.h"
#include "run/node_memory/node_memory.h"
#include "run/ranks/stop.h"
#include "run/ranks/world.h"
#include "samples.h"
#include "sizing.h"

typedef struct run_trainer run_trainer;

enum { RUN_PATH_BYTES = 4096 };

// What ranks tell one another with a step's agreement (mics_engine_tell).
enum {
    RUN_SENDS_STOP = 1,        // this step is to be the last
    RUN_SENDS_SAVED = 2,       // rank 0: the save behind the steps is on disk
    RUN_SENDS_UNSAVED = 4,     // it failed
    RUN_SENDS_POISONED = 8,    // and that because the state is not finite
    RUN_SENDS_WRITES = 16,     // the rank is not done with its part of it
    RUN_SENDS_UNREADABLE = 32, // it cannot read this step's batch, and has said why
    RUN_SENDS_FULL = 64        // the save failed, as the disk has no space
};

// How far training has come, besides steps. Samples are sequences, or pairs of these.
typedef struct run_position {
    int64_t samples; // trained on
    int64_t sample;  // number of the next one in its order
    int64_t tokens;  // trained on
} run_position;

struct mics_job {
    mics_memory *memory;
    run_world *world; // NULL: a job that is only sized
    mics_run *run;
    mics_json *config;          // the model's, or the description that `builder` reads
    mics_model_builder builder; // build NULL: none
    mics_model *model;
    run_budget budget;
    const mics_kernels *kernels; // of the CPU: those that all machines run
    const char *no_bf16;         // why their CPUs are slow in bf16; NULL: they are not
    mics_schedule *schedule;
    mics_layered_choice layered;     // how many micro-batches are in flight, and why
    run_gather_times gather_times;   // all 0: they were not timed
    mics_tokenizer *tokenizer;       // NULL: token shards of which nobody knows the text
    mics_chats *chats;               // NULL: data are texts
    mics_corpus *train, *validation; // validation NULL: part of train, or none
    run_masking masking;             // of an encoder
    run_samples train_samples, validation_samples;
    run_references references; // of pairs
    mics_safetensors *import;  // NULL: random, or resumed
    mics_safetensors *adapter; // first values of what is trained; NULL: none are given, or resumed
    mics_checkpoint *checkpoint; // NULL: the run starts anew
    char *model_files;           // texts of the model's folder; NULL: those of `checkpoint`
    char *checkpoint_path;       // of `checkpoint`
    char *newest_path;           // in checkpoints_dir when that was chosen; NULL: none
    int64_t *passed;             // steps of those, in the order in which they were found damaged
    char **passed_why;           // and what was found
    int32_t passed_count;
    int64_t passed_first;   // step of the newest state, if that was passed over
    bool resumes_newest;    // what is damaged is passed over for the next older state
    bool times_gathers;     // before it runs (collectives.h)
    bool saves_behind;      // the steps, from a copy of the state
    mics_json *passed_run;  // the stored run from which this one's kept keys are
    char *checkpoints_dir;  // OUT/checkpoints
    char *quarantine_dir;   // OUT/aside
    char *run_json;         // resolved, as text
    size_t save_copy_bytes; // of a rank, if so
    run_stop stop;
    run_standing standing;
    run_node_memory node;                   // copies of the state in the memory of nodes
    int64_t start_step;                     // optimizer steps that were done before
    run_position start;                     // and where that is
    mics_job_phase phases[MICS_MAX_PHASES]; // from that one on
    int32_t phase_count;
    bool finished;        // nothing was left to do
    bool interrupted;     // the newest training ended as it was asked to
    run_folder out;       // the folder, held by the first process
    char device_why[400]; // why it computes where it does
    mics_job_callbacks callbacks;
    run_trainer *trainers; // by rank of this process; NULL until they are loaded
    mics_status failed;    // of a call: nothing works any more
    // What the ranks are asked for, by the calling thread.
    int64_t train_until;                                  // step
    mics_status (*write)(mics_job *job, void *write_ctx); // rank 0 does, while the others wait
    void *write_ctx;
};

/* The model, and what memory and threads this process' ranks may use (job->budget); needs no data
 * and no output folder. `run`, whose device is settled (gpu.h), is resolved.
 *
 * `staging_bytes` is the transport's. Returns: MICS_OK; what was wrong, logged (the job holds what
 * was opened). */
mics_status run_job_open_model(mics_job *job, int32_t ranks, int32_t nodes, int32_t ranks_here,
                               size_t staging_bytes);

/* The schedule for job->budget, which all processes must have alike: an automatic sharding is
 * chosen by it. Returns: as run_job_open_model. */
mics_status run_job_open_schedule(mics_job *job);

/* An exported byte tokenizer that a folder brought along is "bytes" (job->run->tokenizer).
 *
 * `exported_out` says whether it is one. Returns: MICS_OK; why it cannot be read, logged. */
mics_status run_job_find_bytes(mics_job *job, bool *exported_out);

/* The rest, for training: output folder, tokenizer, corpora, resumption, safetensors. Only the
 * first process writes: the folder, its lock and its token cache. */
mics_status run_job_open_data(mics_job *job);

/* Writes OUT/resolved.json, whose text it keeps for checkpoints, and OUT/about.json: again, once
 * run.collectives is settled. */
mics_status run_job_write_resolved(mics_job *job);

/* report/about.c: writes OUT/about.json, for who looks at the run from elsewhere (io/report/page.h):
 * the machine of rank 0, and what the schedule predicts. */
mics_status run_job_write_about(const mics_job *job);

/* Closes what was opened; the job itself is left, with its run, and can be opened again. */
void run_job_close_parts(mics_job *job);

/* Tokens of a sequence, whatever part of it a rank has. */
static inline int64_t run_job_sequence(const mics_job *job)
{
    return mics_run_length(job->run, job->model->positions);
}

/* Ranks that read sequences of their own: D. */
static inline int32_t run_job_data_ranks(const mics_job *job)
{
    return job->budget.ranks / job->run->sequence;
}

/* Islands that train by themselves, and meet; 1 without local steps. */
static inline int32_t run_job_islands(const mics_job *job)
{
    return job->schedule->spec.mesh.islands;
}

/* Where a step of the phase ends. */
static inline run_position run_job_position(const mics_job *job, int64_t step)
{
    const int64_t samples = (step - job->start_step) * job->run->global_batch;
    return (run_position){job->start.samples + samples, job->start.sample + samples,
                          job->start.tokens +
                              samples * mics_run_sequences_each(job->run) * run_job_sequence(job)};
}

/* How long ranks wait for one that reads or writes files: never shorter than for a collective. */
static inline double run_job_files_timeout_s(const mics_job *job)
{
    static const double LEAST_S = 3600, OF_COLLECTIVES = 12;
    const double seconds = OF_COLLECTIVES * job->run->comm_timeout_s;
    return seconds > LEAST_S ? seconds : LEAST_S;
}

/* Tells the program a line. */
void run_job_note(const mics_job *job, const char *format, ...) MICS_PRINTF(2, 3);
