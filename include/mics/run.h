// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The front door: whole trainings, from a run file or from a structure filled in C. Open a job,
// train with a callback a step, evaluate, save, export, generate, close. Ranks are threads of this
// process, or MPI's processes; with GPUs their collectives are NCCL's. A saved job is opened by
// mics_saved_open.
//
//     mics_job_spec spec = {.memory = memory, .file = "run.json", .ranks = 4};
//     mics_job *job = NULL;
//     mics_status status = mics_job_open(&spec, &job);
//     if (status == MICS_OK)
//         status = mics_job_train(job, 0);
//     mics_job_close(job);
//
// Under MPI each process makes the same calls in the same order.
#ifndef MICS_RUN_H
#define MICS_RUN_H

#include "mics/core/checkpoint.h"
#include "mics/core/dtype.h"
#include "mics/core/mesh.h"
#include "mics/core/schedule.h"
#include "mics/log.h"
#include "mics/model.h"
#include "mics/report.h"

#ifdef __cplusplus
extern "C" {
#endif

// One process' part of a run: its ranks, their engines, and what they share.
typedef struct mics_job mics_job;

// ---- what a job is made from ----

// A run described in C. What is 0 or NULL takes the default that a run file would; docs/config.md
// has each key's meaning beside the name that follows it here.
typedef struct mics_run_values {
    const char *model_config; // model.config
    const char *model_init; // model.init: "random" or a folder of safetensors; NULL: model.config's
    const char *const *train; // data.train
    int32_t train_count;
    const char *const *validation; // data.validation
    int32_t validation_count;
    const char *tokenizer;    // data.tokenizer: "bytes" or a file
    int64_t sequence_length;  // data.sequence_length, in tokens
    int64_t steps;            // run.steps
    uint64_t seed;            // run.seed
    const char *out;          // run.out
    int64_t checkpoint_every; // run.checkpoint_every, in steps
    int64_t micro_batch;      // train_micro_batch_size_per_gpu, in sequences
    int64_t micro_steps;      // gradient_accumulation_steps
    double learning_rate;     // optimizer.params.lr, of AdamW
    mics_sharding sharding;   // all 0: "auto"
} mics_run_values;

// Builds a model of the program's own, with the calls of model.h. A description in JSON says which:
// what the builder would read from a file. Checkpoints and exports hold it as config.json.
typedef struct mics_model_builder {
    void *ctx;
    // Opens a model and adds all of it; what it returns counts only where no builder call failed.
    // Runs once in each process that opens the job or the checkpoint, and must do the same in all.
    // On failure it leaves *model_out alone.
    mics_status (*build)(void *ctx, mics_memory *memory, const mics_json *description,
                         mics_model **model_out);
} mics_model_builder;

// What a program may hear of its job. All are optional, and get `ctx`. They are called on the
// thread of rank 0, in the first process, but for `should_stop`: on one rank of each process. They
// must not call functions of run.h that change the job, other than mics_job_stop.
typedef struct mics_job_callbacks {
    void *ctx;
    // What is trained on what is settled, and nothing is loaded yet; mics_job_facts_get works.
    void (*start)(void *ctx, const mics_job *job);
    void (*step)(void *ctx, const mics_metrics *metrics);          // a step is done
    void (*validation)(void *ctx, int64_t step, double loss);      // step 0: before training
    void (*saving)(void *ctx, int64_t step);                       // a checkpoint is begun
    void (*checkpoint)(void *ctx, int64_t step, const char *path); // it is on disk
    void (*note)(void *ctx, const char *line);                     // what else is worth a line
    // Asked before each step: true saves that step and ends training.
    bool (*should_stop)(void *ctx);
    void (*sample)(void *ctx, int64_t step, const char *text, size_t bytes); // run.sample_every
    // How far loading is, as mics_work_listener.
    void (*work)(void *ctx, const char *what, int64_t done, int64_t total);
} mics_job_callbacks;

// How a job is opened.
typedef struct mics_job_spec {
    mics_memory *memory;     // borrowed until close; ranks count theirs by themselves
    const char *file;        // a run file, or NULL: `values`
    const char *const *sets; // "run.steps=20": override single keys
    int32_t set_count;
    const mics_run_values *values; // borrowed for the call
    // A model of the program's own, in place of model.config; build NULL: none. `description` is an
    // object; its numbers, texts and bools are what a run that resumes must have alike.
    mics_model_builder builder;
    const char *description; // borrowed for the call
    int32_t ranks;           // 0: MPI's under its launcher, else 1 thread
    int32_t nodes;           // as how many nodes ranks count; 0: what MPI finds, or 1
    // "auto": the output folder's newest checkpoint; "none"; a folder. NULL: what the file's
    // resume_from_checkpoint says, else "auto".
    const char *resume;
    mics_job_callbacks callbacks;
    // What this process came to before: a failure (its line kept back by mics_log_hold) is then
    // agreed on by all processes, and said once.
    mics_status status;
} mics_job_spec;

/* Whether an MPI launcher started this process, so that ranks are processes.
 *
 * Threads: any.                    Pure.
 */
bool mics_job_is_launched(void);

// How text is drawn.
typedef struct mics_sampling {
    int64_t tokens;     // to draw
    double temperature; // 0: always the most likely token
    int64_t top_k;      // tokens to draw among; 0: all
    double top_p;       // of these among the likeliest with this share of probability; 0 or 1: all
    double min_p;       // of these among those with this share of the likeliest's; 0: all
    // Logits of tokens that the text has, prompt included, are divided by it where positive, else
    // multiplied; 0 or 1: they are not.
    double repetition_penalty;
    const char *const *stops; // (stop_count) texts that end the text, and are not written
    int32_t stop_count;
    uint64_t seed;   // the same one gives the same text
    int32_t threads; // 0: all cores that the process may use; the text does not depend on it
    // Special tokens that the prompt names are taken as such; else they are text like any other.
    bool special_tokens;
} mics_sampling;

// ---- a job ----

/* Opens a run: reads what describes it, settles ranks, sharding and memory, opens data, finds what
 * to resume from, and loads parameters on every rank. Processes compare all of that before anything
 * is loaded, and take the instruction set that all machines have (MICS_ISA: no more than that). A
 * run that is finished already loads nothing until something needs it (mics_job_facts.finished).
 *
 * Needs:   SIGINT and SIGTERM blocked or handled on an alternate stack (docs/architecture.md,
 *          Failure).
 * Returns: MICS_OK; else what was wrong, logged once by one of all processes, and the same on all:
 *          MICS_ERR_INVALID (also: processes were not given the same job, or another run writes
 *          into the folder), MICS_ERR_UNSUPPORTED, MICS_ERR_FORMAT, MICS_ERR_IO, MICS_ERR_MEMORY
 *          (with what would fit), MICS_ERR_COMM, MICS_ERR_ABORTED.
 * Owns:    close with mics_job_close.    Threads: one job a process under MPI.
 * Collective: over processes.
 */
mics_status mics_job_open(const mics_job_spec *spec, mics_job **job_out);

/* Resolves and sizes a run on spec->ranks ranks of machines like this one, and runs nothing: no
 * data are read, no folder is written, and "cuda" needs no GPU. What comes out answers
 * mics_job_model, _schedule and _facts_get, and nothing else.
 *
 * Needs:   spec->ranks and spec->nodes as meant; 0 is 1. callbacks and resume are not used.
 * Returns: as mics_job_open; what does not fit is no error.    Owns: close with mics_job_close.
 */
mics_status mics_job_size(const mics_job_spec *spec, mics_job **job_out);

// A row of fine-tuning data as tokens. Lives during the call that gives it.
typedef struct mics_job_sample {
    const char *name;      // of its file and line
    const int32_t *tokens; // (count)
    const bool *counts;    // (count) whether its prediction is trained; never that of the first
    int64_t count;
    // The text of tokens in turn, each part of those that count or of others.
    const struct mics_job_sample_part {
        const char *text; // NUL-terminated; any bytes
        bool counts;
    } * parts;
    int64_t part_count;
} mics_job_sample;

/* Gives the first `count` rows of the data of a job that is sized, as tokens that count or not.
 *
 * Needs:   a job of mics_job_size.
 * Returns: MICS_OK; MICS_ERR_INVALID (data are no rows, or a bad one); as mics_job_open. */
mics_status mics_job_samples(mics_job *job, int64_t count,
                             void (*show)(void *ctx, const mics_job_sample *sample), void *ctx);

/* Trains `steps` steps more, or to the run's end: 0 says so, and so does any number past it.
 * Validates and saves as the run says, and always at its end; what was due behind the step that it
 * begins with, and was left out by a stop or a kill, comes first. Where replicas are found to differ it
 * goes back to an older state and trains on from there, so callbacks may hear of a step again. A phase
 * of the run file opens model, schedule and data anew: what was asked of them before is gone then.
 *
 * Units:   optimizer steps.       Needs: steps >= 0.
 * Returns: MICS_OK, at once when the run is finished, or ended early as validation did not improve
 *          (mics_job_facts.no_improvement); MICS_ERR_INTERRUPTED: a rank was told to
 *          stop, the step that was done last is saved, and training may go on; MICS_ERR_NUMERIC: a
 *          loss or norm cannot be right, or replicas differ again and again; MICS_ERR_COMM,
 *          MICS_ERR_ABORTED, MICS_ERR_IO, MICS_ERR_MEMORY, logged by a rank that failed. After a failure only mics_job_close has an effect; other
 *          calls return that status again.
 * Collective: over processes.     Blocks: while it trains.
 */
mics_status mics_job_train(mics_job *job, int64_t steps);

/* Asks training to stop: the step that was done last is saved, and mics_job_train returns
 * MICS_ERR_INTERRUPTED. Where ranks compute on CPUs, each begins to write at once, in the middle of
 * a step. The step that runs is dropped. Also asked by the file OUT/stop and run.max_hours.
 *
 * Threads: any.       Collective: no; one process is enough.       Blocks: no.
 */
void mics_job_stop(mics_job *job);

// Where a job stands, for who may have to end its process.
typedef struct mics_job_standing {
    int32_t rank;       // of this process; -1: all ranks are its threads
    int64_t step;       // that was done last
    bool saved;         // there is a checkpoint
    int64_t saved_step; // of the newest, as this process knows; as soon as it is whole on rank 0
    bool kept;          // there is a copy in the memory of the nodes
    int64_t kept_step;  // of the newest, which is whole on all of them
    bool writing;       // ranks of this process write one, or wait for others that do
    double save_s;      // that the newest save took; 0: none yet
    const char *asked_by_run; // what asks to stop, if not mics_job_stop: "run.max_hours"; NULL
} mics_job_standing;

/* Where a job stands now.
 *
 * Threads: any, while the job is open.
 */
mics_job_standing mics_job_standing_get(const mics_job *job);

/* The mean loss over the run's validation batches, with the parameters as they are.
 *
 * Units:   nats a token.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: the run holds nothing out for validation (loss_out
 *          untouched); as mics_job_train.
 * Collective: over processes.
 */
mics_status mics_job_evaluate(mics_job *job, double *loss_out);

/* Saves a checkpoint of the step that was done last, 0 before training; nothing when that is saved
 * already.
 *
 * Returns: MICS_OK: it survives the loss of any process; as mics_job_train.
 * Collective: over processes.
 */
mics_status mics_job_save(mics_job *job);

// How parameters are exported.
typedef struct mics_export_spec {
    // Several files, none larger than this unless one tensor is; 0: one file.
    int64_t max_file_bytes;
    mics_dtype dtype; // of the tensors
    bool merge;       // an adapter is added to the weights; else it is written alone, as PEFT does
} mics_export_spec;

/* Saves, and writes the parameters as Hugging Face safetensors, as mics_saved_export does.
 *
 * Needs:   as mics_saved_export.
 * Returns: as mics_job_save and mics_saved_export.
 * Collective: over processes; the first one writes.
 */
mics_status mics_job_export(mics_job *job, const char *dir, const mics_export_spec *spec);

/* Saves, and writes text that continues a prompt to a stream, as mics_saved_generate does: with the
 * whole model in the first process.
 *
 * Needs:   out in the first process; others may give NULL.
 * Returns: as mics_job_save, mics_saved_load and mics_saved_generate.
 * Collective: over processes.
 */
mics_status mics_job_generate(mics_job *job, const char *prompt, const mics_sampling *sampling,
                              FILE *out);

/* Ends the ranks and frees; NULL is allowed.
 *
 * Returns: MICS_OK; MICS_ERR_IO, logged: the last lines of metrics.jsonl did not reach the disk.
 * Collective: over processes, also after a failure.
 */
mics_status mics_job_close(mics_job *job);

// ---- what is known of a job ----

// What run.layered_micro_steps "auto" came to, what it brings and what it costs. `automatic` is
// false where the run file says the number, or a checkpoint does and it fits; then the rest is 0.
typedef struct mics_layered_choice {
    bool automatic;
    int32_t number;             // micro-batches in flight
    int32_t wanted;             // where memory did not matter; above `number`: it did
    const char *why;            // static, "auto: ..."
    int64_t inter_bytes;        // that all ranks send between nodes in a step
    int64_t inter_bytes_of_one; // the same with one micro-batch in flight
    size_t more_bytes;          // memory of a rank, more than with one
    size_t each_bytes;          // that a further micro-batch in flight takes
    size_t state_bytes;         // a rank's parameters, accumulators and optimizer
    size_t save_copy_bytes; // left for saves while training goes on; 0: they stop it, or are none
} mics_layered_choice;

// Texts and what is behind pointers live as long as the job.
typedef struct mics_job_facts {
    int32_t ranks, nodes;
    int32_t first_rank; // of this process; 0: it is the first
    int32_t ranks_here; // that share this machine
    bool mpi;           // ranks are processes
    int32_t threads;    // of a rank
    // What ranks compute with.
    bool accelerator;           // GPUs
    const char *device;         // "cpu", "cuda"
    const char *numbers;        // "bf16 with fp32 masters"
    const char *device_why;     // why that device
    const char *hint;           // what another precision would bring; NULL: nothing
    int32_t devices;            // GPUs of this machine
    char device_name[128];      // of the first
    size_t device_memory_bytes; // of the first
    const char *no_device;      // why no GPU is used although there is a plugin for them; NULL
    // Memory of a rank.
    size_t limit_bytes;       // that it may have; SIZE_MAX: nobody knows
    bool limit_is_set;        // by run.memory_limit
    size_t host_copy_bytes;   // on the host, to load and save: of a GPU, or of states in fewer bits
    size_t node_memory_bytes; // of copies in node memory, of the host's; 0: none are made
    // Beside all that, on the host: saves are written from it while training goes on; 0: they stop
    // it.
    size_t save_copy_bytes;
    mics_layered_choice layered;
    // Measured by training: the largest of all ranks, by tag and in all.
    int64_t peak_bytes[MICS_MEM_TAGS + 1];
    // Data.
    const char *tokenizer; // NULL: token shards of which nobody knows the text
    int64_t train_tokens;
    double train_epochs; // passes over it until run.steps; of a mixture over all parts together
    int32_t sources;     // parts of a mixture (mics_job_source_get); 0: it is none
    int32_t phases; // that it is in or that are to come (mics_job_phase_get); 0: the run has none
    int64_t validation_tokens; // of data of its own; 0: none
    int64_t held_out_windows;  // of the training data, where validation has none of its own
    // Of chats; samples 0: data are texts.
    int64_t samples, silent;   // that train; of all, those of which no token counts
    int64_t kept_tokens;       // of train_tokens, in samples no longer than a sequence
    int64_t counted_tokens;    // of these
    int64_t sequences;         // of the samples, in their first epoch
    int64_t sequence_tokens;   // of samples in these; the rest is padding
    int64_t cut, left_out;     // samples longer than a sequence: shortened, or dropped
    const char *chat_template; // where it is from; NULL: no row has needed one
    // Where it stands.
    const char *checkpoint; // resumed from; NULL
    const char *checkpoints_dir;
    bool from_memory;    // resumed from a copy in node memory, which is no more
    bool imported;       // began with safetensors
    bool finished;       // no step is left, and nothing that is due behind the last
    bool no_improvement; // the run has ended before its last step; training again does nothing
    int64_t start_step;  // optimizer steps that were done before
    int64_t step;        // that are done
    int64_t saved_step;  // in the newest checkpoint; 0: none, or of step 0
    double validation_first, validation_last; // losses; NaN: none
    // With run.keep_best or run.stop_after_no_improvement, once it trains.
    int64_t best_step; // of the lowest validation loss after a step; 0: none yet
    double best_loss;  // that
} mics_job_facts;

/* What is known now.
 *
 * Needs:   no other call that runs, but from a callback.
 * Owns:    nothing; see mics_job_facts.
 */
mics_job_facts mics_job_facts_get(const mics_job *job);

// A part of a mixture.
typedef struct mics_job_source {
    const char *path; // as data.train names it; the job's
    double share;     // of the samples
    int64_t tokens;
    double epochs; // passes over its windows until run.steps
} mics_job_source;

/* A part of the data that the job trains on, in the order of data.train.
 *
 * Needs:   0 <= source < mics_job_facts' sources; see mics_job_facts_get.
 */
mics_job_source mics_job_source_get(const mics_job *job, int32_t source);

// A phase of the run.
typedef struct mics_job_phase {
    int64_t begin, end;           // steps done before and behind it
    int64_t global_batch, length; // sequences of a step, tokens of a sequence
    size_t memory_bytes;          // of a rank
    int32_t islands, every;       // that train by themselves, and meet every so many steps; 0: none
} mics_job_phase;

/* A phase that the job is in or that is to come, as it was sized when the job was opened.
 *
 * Needs:   0 <= phase < mics_job_facts' phases; see mics_job_facts_get.
 */
mics_job_phase mics_job_phase_get(const mics_job *job, int32_t phase);

/* The folder that the run writes: run.out, as it was resolved.
 *
 * Returns: never NULL.    Owns: it is the job's.
 */
const char *mics_job_out(const mics_job *job);

/* The model that is trained.
 *
 * Returns: never NULL.    Owns: it is the job's.
 */
const mics_model *mics_job_model(const mics_job *job);

/* The schedule that runs, with its ledger of memory.
 *
 * Returns: never NULL.    Owns: it is the job's.
 */
const mics_schedule *mics_job_schedule(const mics_job *job);

// ---- what was saved ----

// A checkpoint, or a folder as Hugging Face has it, as one process reads it.
typedef struct mics_saved mics_saved;

typedef struct mics_saved_facts {
    const char *path; // the step's folder, or Hugging Face's
    int64_t step;     // 0 of Hugging Face's
    int64_t sequence; // tokens of a sequence in training: positions from there on are untrained
    const char *tokenizer; // NULL: nobody knows what text the tokens are
    const mics_model *model;
    mics_dtype dtype;      // that holds its parameters of two dimensions as they are stored
    int64_t adapter_elems; // of its parameters those of an adapter's matrices; 0: it has none
} mics_saved_facts;

typedef struct mics_evaluation {
    double loss;      // mean over predicted tokens
    int64_t tokens;   // that were predicted
    int64_t sequence; // tokens of a window
    int64_t stride;   // from one to the next
    int32_t ranks;    // that shared the work
    bool first;       // this process is the first of them
} mics_evaluation;

// What an evaluation reads.
typedef struct mics_evaluation_spec {
    const char *const *files; // (file_count) texts or token shards
    int32_t file_count;
    const char *text_field; // of JSON Lines and tables; NULL: as in training, or "text"
    bool special_tokens;    // that the texts name are taken as such, also if not so in training
    int64_t sequence;       // tokens of a window; 0: as in training
    int64_t stride;         // tokens from one window to the next; 0: sequence
    // What this process came to before, as in mics_job_spec.
    mics_status status;
} mics_evaluation_spec;

/* Opens a checkpoint: a step's folder, or the newest in that of a run; or a folder with config.json
 * and safetensors as it is downloaded. Reads no parameters yet.
 *
 * builder: of the program that trained it, which gets the description that was saved; NULL: a model
 *          of a Hugging Face config.json.
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_FORMAT, MICS_ERR_UNSUPPORTED, MICS_ERR_MEMORY, logged;
 *          what the builder returns.
 * Owns:    close with mics_saved_close; borrows memory, and the builder for the call.
 */
mics_status mics_saved_open(mics_memory *memory, const char *path,
                            const mics_model_builder *builder, mics_saved **saved_out);

/* Opens an adapter on its base: a folder as PEFT saves it (adapter_config.json and
 * adapter_model.safetensors), or a checkpoint of a run that trained one.
 *
 * base:    folder of the model; NULL: the one that the adapter names, as mics_saved_open takes.
 * Returns: as mics_saved_open; MICS_ERR_INVALID: it is no adapter, or one of another model.
 * Owns:    close with mics_saved_close; borrows memory.
 */
mics_status mics_saved_open_adapter(mics_memory *memory, const char *path, const char *base,
                                    mics_saved **saved_out);

/* Frees; NULL is allowed. */
void mics_saved_close(mics_saved *saved);

/* From now on loading, evaluating and exporting tell this listener, which is copied. */
void mics_saved_listen(mics_saved *saved, const mics_work_listener *listener);

/* What is known of it.       Owns: nothing; all of it is the checkpoint's. */
mics_saved_facts mics_saved_facts_get(const mics_saved *saved);

/* Whether the whole model takes more than a quarter of the memory that this machine has available:
 * too much to load it unasked.
 *
 * Returns: MICS_OK; MICS_ERR_IO.
 */
mics_status mics_saved_is_large(const mics_saved *saved, bool *large_out);

/* Reads all parameters, as mics_saved_generate needs them; nothing when they are read so. Those of
 * two dimensions are held in `dtype`, others in fp32.
 *
 * Needs:   MICS_DTYPE_FP32 or MICS_DTYPE_BF16. mics_saved_facts.dtype rounds nothing.
 * Returns: MICS_OK; MICS_ERR_INVALID: nobody knows its text, it is an encoder, or they are read in
 *          another dtype;
 *          MICS_ERR_MEMORY: the machine has too little, which is said before any is taken;
 *          MICS_ERR_FORMAT: they are damaged; MICS_ERR_IO. Logged.
 */
mics_status mics_saved_load(mics_saved *saved, mics_dtype dtype);

// A token that may stand in place of a mask token.
typedef struct mics_fill_choice {
    int32_t token;
    double probability;
    char text[64]; // what it stands for, NUL-terminated; a longer one is cut
} mics_fill_choice;

/* Of an encoder: the likeliest tokens for each mask token ([MASK], <mask>) of a text, which stands
 * in the tokenizer's frame.
 *
 * threads: 0: all cores that the process may use.
 * Shapes:  *choices_out: (*masks_out, count), the likeliest first.
 * Needs:   1 <= count <= 100.
 * Returns: MICS_OK; MICS_ERR_INVALID: no encoder, no mask token in the text, more tokens than
 *          training had; MICS_ERR_NUMERIC; MICS_ERR_MEMORY; MICS_ERR_FORMAT, MICS_ERR_IO: reading.
 * Owns:    the caller frees *choices_out with mics_free.
 */
mics_status mics_saved_fill(const mics_saved *saved, const char *text, int32_t count,
                            int32_t threads, mics_fill_choice **choices_out, int32_t *masks_out);

/* Writes text that continues a prompt to a stream, token by token.
 *
 * Text may grow past the positions that training used: when they are used up, the newer half of
 * what stands there is fed again, and generation goes on from that. A longer prompt counts with its
 * end. What the tokenizer's template puts before a text stands before the prompt, if the run was
 * trained with data.add_special_tokens, and of a downloaded folder always; without it, an empty
 * prompt starts from the separator. A token that eos_token_id names ends the text:
 * generation_config.json's (of a run that in model.init), else config.json's.
 * Needs:   mics_saved_load.
 * Returns: MICS_OK; MICS_ERR_IO (the stream); MICS_ERR_INVALID (a token that the model does not
 *          have); MICS_ERR_UNSUPPORTED (a tokenizer.json's post-processor); MICS_ERR_MEMORY.
 */
mics_status mics_saved_generate(const mics_saved *saved, const char *prompt,
                                const mics_sampling *sampling, FILE *out);

// What a generation did.
typedef struct mics_generated {
    int64_t prompt_tokens; // that were fed
    int64_t tokens;        // drawn, of all texts
    double first_s;        // from the call to the first of them
    double rest_s;         // from there to the last
} mics_generated;

/* Writes several texts that continue a prompt, decoded together, so that parameters are read once
 * for all of them. Text k is what mics_saved_generate writes alone with seed + k.
 *
 * Shapes:  outs: (texts).
 * Needs:   texts >= 1; else as mics_saved_generate.
 * generated_out: NULL is allowed.
 * Returns: as mics_saved_generate.
 */
mics_status mics_saved_generate_many(const mics_saved *saved, const char *prompt,
                                     const mics_sampling *sampling, int32_t texts,
                                     FILE *const *outs, mics_generated *generated_out);

/* Loss on texts or token shards, taken as one stream of windows of `sequence` tokens (0: as in
 * training, and at most 2048 for a downloaded folder, which does not say). Every token but the
 * first is predicted exactly once. Texts are framed as in training, and as its tokenizer.json says
 * for a downloaded folder (mics_tokenizer_frame_texts).
 *
 * Under an MPI launcher the ranks share the windows, each with the whole model and the whole text.
 * The loss has the bits of one rank's with as many threads, as it is summed in the same order.
 *
 * saved:   NULL where spec->status is a failure.
 * Needs:   file_count >= 1, sequence >= 0.
 * begun_out: whether it got as far as computing (also after a failure); NULL is allowed.
 * Returns: MICS_OK; MICS_ERR_INVALID (too few tokens, too long a sequence, a text where nobody
 *          knows the tokens), MICS_ERR_IO, MICS_ERR_FORMAT, MICS_ERR_MEMORY, logged; of several
 *          processes by one, and the same on all.
 * Collective: over processes.
 */
mics_status mics_saved_evaluate(const mics_saved *saved, const mics_evaluation_spec *spec,
                                bool *begun_out, mics_evaluation *evaluation_out);

/* Writes the parameters as Hugging Face safetensors into a folder, tensor by tensor, in bounded
 * memory; with config.json and generation_config.json, and where the tokenizer is known
 * tokenizer.json and tokenizer_config.json (docs/formats.md). transformers reads the same model and
 * the same tokens from it. An adapter is written as PEFT does, in one file with adapter_config.json and
 * the tokenizer, unless it is merged. After a failure nothing of it is left.
 *
 * spec:    NULL: one file of fp32.
 * Needs:   none of these files in the folder, which is made if need be; max_file_bytes >= 0.
 * Returns: MICS_OK; MICS_ERR_INVALID (they exist, the folder is a run's, a parameter is too large for
 *          the dtype, or there is no adapter to merge), MICS_ERR_IO, MICS_ERR_FORMAT (the checkpoint
 *          is damaged, or a folder's tokenizer_config.json is), MICS_ERR_MEMORY, logged.
 */
mics_status mics_saved_export(const mics_saved *saved, const char *dir,
                              const mics_export_spec *spec);

// ---- verifying ----

// What one checkpoint, or one file of a run, was found to be.
typedef struct mics_verified {
    const char *path; // lives for the call
    int64_t step;     // of a checkpoint; -1: none
    int32_t files;    // of a checkpoint; else 1
    int64_t bytes;    // of a checkpoint, read; else 0
    int64_t lines;    // of metrics.jsonl; else 0
    int64_t problems;
} mics_verified;

typedef struct mics_verification {
    int32_t checkpoints, good; // looked at; of them without a problem
    int64_t bytes;             // of checkpoints, read
    int64_t problems;          // of all
} mics_verification;

/* Verifies a checkpoint (mics_checkpoint_verify), or a run: all its checkpoints that have a
 * manifest, oldest first, what `latest` names, metrics.jsonl, and that the resolved run is JSON.
 * A run that writes there now is not disturbed, but what it is about to write may look wrong.
 *
 * path:     a step's folder, a run's, or a run's checkpoints folder.
 * verified: (optional) told of each after its problems, with listener->ctx.
 * Needs:    listener->problem.
 * Returns:  MICS_OK, whatever was found; MICS_ERR_IO (no such path), MICS_ERR_INVALID (it holds no
 *           checkpoint), MICS_ERR_MEMORY, logged.
 */
mics_status mics_verify(mics_memory *memory, const char *path, const mics_verify_listener *listener,
                        void (*verified)(void *ctx, const mics_verified *what),
                        mics_verification *found_out);

#ifdef __cplusplus
}
#endif
#endif
