// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Run files: DeepSpeed's JSON keys where their meaning is ours too, plus "model", "data", "run" and
// "sharding". One table (src/config/keys.c) knows every key: its type, default, range and what it
// does. Unknown keys are errors that name the nearest known one; a key that is known but cannot be
// honoured is an error that says what would work.
#pragma once

#include "base/json.h"
#include "config/lr.h"
#include "mics/builder.h"
#include "mics/core/dtype.h"
#include "mics/core/mesh.h"
#include "mics/core/optimizer.h"
#include "mics/core/preference.h"
#include "mics/core/schedule.h"
#include "mics/memory.h"
#include "mics/model.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// run.collectives: how gathers and reductions over several ranks run. AUTO is settled by
// mics_run_resolve_collectives.
typedef enum mics_collectives {
    MICS_COLLECTIVES_AUTO,        // gathers as a timing finds, reductions in two stages
    MICS_COLLECTIVES_RING,        // one ring each
    MICS_COLLECTIVES_TWO_STAGE,   // among equal local ranks, and intra-node
    MICS_COLLECTIVES_RING_GATHERS // gathers in one ring, reductions in two stages
} mics_collectives;

// run.device and run.precision. AUTO is settled by mics_run_resolve_device.
typedef enum mics_run_device {
    MICS_RUN_DEVICE_AUTO,
    MICS_RUN_DEVICE_CPU,
    MICS_RUN_DEVICE_CUDA
} mics_run_device;

typedef enum mics_run_precision {
    MICS_RUN_PRECISION_AUTO,
    MICS_RUN_PRECISION_FP32,
    MICS_RUN_PRECISION_TF32, // fp32, but for the factors of matrix products, which have 11 bits
    MICS_RUN_PRECISION_BF16, // with fp32 masters
    MICS_RUN_PRECISION_FP16  // with fp32 masters and loss scaling
} mics_run_precision;

// run.attention, on GPUs. AUTO is settled by mics_run_resolve_attention.
typedef enum mics_run_attention {
    MICS_RUN_ATTENTION_AUTO, // cuDNN where it can, else our own kernels
    MICS_RUN_ATTENTION_OWN,
    MICS_RUN_ATTENTION_CUDNN
} mics_run_attention;

// data.loss_on and data.too_long.
typedef enum mics_run_loss_on {
    MICS_RUN_LOSS_ASSISTANT,
    MICS_RUN_LOSS_LAST,
    MICS_RUN_LOSS_ALL,
    MICS_RUN_LOSS_COMPLETION // of a prompt and its completion this alone; of chats all
} mics_run_loss_on;

typedef enum mics_run_too_long {
    MICS_RUN_TRUNCATE,
    MICS_RUN_DROP,
    MICS_RUN_TOO_LONG_ERROR
} mics_run_too_long;

// How fp16 keeps small gradients: the loss is multiplied by a factor, gradients are divided by it.
// DeepSpeed's rules: a step whose gradients are not finite is left out; after `hysteresis` of them
// the factor halves, after `window` good ones in a row it doubles.
typedef struct mics_loss_scale {
    bool dynamic;                // false: always `initial`
    double initial;              // power of two where dynamic
    double least;                // not below this
    int64_t window;              // steps
    int64_t hysteresis;          // steps
    bool consecutive_hysteresis; // a good step resets what is left of it
} mics_loss_scale;

// What model.config says of a run whose model a program builds by itself (mics/run.h): no file.
#define MICS_MODEL_OF_PROGRAM "the program's model"

// Steps of a run that says epochs, and of an epoch, until its data is known: more than any file may
// give.
#define MICS_STEPS_UNKNOWN 1000000000001

enum { MICS_MAX_PHASES = 64 };

// What a run file says. Texts live as long as the run.
typedef struct mics_run {
    mics_json *json;          // the document, with --set applied; owns most texts below
    const char *model_config; // path of a Hugging Face config.json, or MICS_MODEL_OF_PROGRAM
    const char *model_init;   // "random" or a folder of safetensors
    bool model_folder;        // model.config names a folder, not the file in it
    bool init_open;           // nobody said model.init: "random", or that folder's weights
    bool weights_beside;      // that folder, or the file's, has weights
    bool ignore_dropout;      // model.dropout is 0: dropout in the model's config does not count
    bool add_special_tokens;  // texts stand in the tokenizer's frame, not behind a separator
    bool special_tokens_open; // that is a program's default, for tokenizers that have a frame
    bool tokenizer_open;      // nobody named a tokenizer: a folder's was taken, or "bytes"
    bool out_of_name;         // `out` is runs/ and the run file's name, as the file says none
    bool document_mask;       // attention stays within a document
    mics_lora_spec lora;      // the adapter that is trained; rank 0: none
    const char *adapter_init; // a folder of PEFT's with its first values; "none"
    const char *const
        *trainable; // patterns of what is trained; trainable_count 0: no other is frozen
    int32_t trainable_count;
    bool keep_best;              // the checkpoint of the lowest validation loss stays
    bool recheck;                // suspicious steps are run again
    const char *const *train;    // paths, globs or folders
    const double *train_weights; // of each of them, above 0; NULL: there are none
    const char *const *validation;
    int32_t train_count, validation_count;
    const char *tokenizer;       // "bytes" or a path
    const char *text_field;      // of JSON Lines and tables
    const char *chat_template;   // of chats: a file, or a name; "auto": the tokenizer folder's
    const char *template_date;   // as 2026-11-27; "auto": nobody has said it yet
    const char *messages_key;    // of another program's file: data must be chats by it; NULL: none
    const char *resume;          // of another program's file: as --resume, which goes before, but
                                 // "auto" must find something; NULL: it says nothing
    mics_run_loss_on loss_on;    // which tokens of a chat count
    mics_run_too_long too_long;  // what becomes of chats longer than a sequence
    char today[16];              // of the first start
    bool text_field_open;        // nobody named it
    bool packing;                // of chats into sequences
    bool packing_open;           // nobody has said it
    bool packing_kept;           // the checkpoint has
    bool packing_default;        // false is a program's default, which is of chats alone
    bool alpaca_as_texts;        // that program reads a field of texts in Alpaca's rows
    bool rows;                   // data are rows of chats; found when the run is opened
    mics_preference preference;  // of pairs of answers; NONE: the loss is cross-entropy
    int64_t skip_bad_lines;      // of data files; 0: the first is an error
    const char *special_tokens;  // that texts name: "plain", "parse"
    const char *residual_dtype;  // of mixed precision: "same", "fp32"
    const char *data_dtype;      // of .bin files without a header; "none": there are none
    int64_t sequence_length;     // 0: the model's positions
    int64_t max_sequence_length; // of those; 0: all
    int64_t steps;               // MICS_STEPS_UNKNOWN until mics_run_resolve_epochs
    double epochs;               // over the data, where run.steps is not given; else 0
    uint64_t seed;
    const char *out;                 // folder
    const char *checkpoint_dir;      // s3://BUCKET/PREFIX; "none": OUT/checkpoints
    int64_t checkpoint_every;        // steps; 0: only at the end; MICS_STEPS_UNKNOWN: an epoch's
    int64_t keep_checkpoints;        // 0: all
    int64_t memory_checkpoint_every; // steps; 0: none
    double grace_s;                  // in which a run that is asked to stop has ended
    double max_hours;                // after which it stops by itself; 0: none
    int64_t check_replicas_every;    // steps; 0: only before saves
    int64_t scrub_every;             // steps; 0: never; -1: by its cost
    const char *on_divergence;       // "rewind", "repair", "stop"
    double spike_zscore;             // standard deviations; 0: nothing is a spike
    const char *on_spike;            // "warn", "skip", "stop"
    double straggler_warn;           // part of a step that others wait for one rank; 0: no matter
    int64_t validate_every;          // steps; 0: only before and after
    int64_t validation_batches;
    int64_t stop_after_no_improvement; // validations without a lower loss; 0: never
    int64_t sample_every;              // steps between texts of the model; 0: none
    const char *sample_prompt;
    double peak_tflops;      // of a rank, for MFU; 0: unknown
    int64_t log_every;       // steps between plain lines; 0: by time
    const char *tensorboard; // folder of event files, or "none"
    const char *prometheus;  // file of the newest step's figures, or "none"
    const char *csv;         // file of the figures of metrics.jsonl, or "none"
    const char *cluster;     // file or name that "sharding": "auto" is planned for, or "none"
    const char *cudnn;       // the version that is asked for, or was found: "9.19.0"; "any"
    int64_t trace_step;      // first step of trace.json; 0: none
    int64_t trace_steps;
    double comm_timeout_s;
    int64_t memory_limit_bytes; // a rank; 0: what the machine has
    int32_t min_replicas;       // copies of every state that "sharding": "auto" keeps at least
    int32_t threads;            // a rank; 0: cores / ranks of the node
    int32_t prefetch;           // units gathered ahead
    bool prefetch_auto;      // `prefetch` is the depth that the sharding is chosen with; then the
                             // caller takes the first of mics_prefetch_candidate that fits
    bool early_gathers;      // mics_schedule_spec's
    bool early_gathers_auto; // they are as planned, or by rule, and that is not settled yet
    bool delta_sync;         // run.comm_dtype.params "delta": mics_schedule_spec's
    mics_recompute recompute;
    int32_t offload_units; // mics_schedule_spec's
    bool offload_auto;     // as few as fit: the caller's to find
    bool rounded_sums;     // mics_schedule_spec's, as data_types.grad_accum_dtype
    bool gemm_autotune;    // on GPUs
    bool share_params;     // in memory that the ranks of a node see, where that can be
    mics_collectives collectives;
    int64_t param_persistence_threshold; // elements; smaller units stay whole on every rank
    int64_t coalesce_below;              // elements; smaller units share messages at the boundary
    mics_comm_dtypes params_dtype, grads_dtype, boundary_dtype; // what is sent as which type
    int32_t layered_micro_steps; // micro-batches in flight, at most; 0: "auto", not settled yet
    int32_t layered_kept; // of the checkpoint that mics_run_keep read, taken where it fits; 0: none
    mics_run_device device;
    mics_run_attention attention;
    mics_run_precision precision;
    bool device_auto;    // it was, and is what mics_run_resolve_device made of it
    bool attention_auto; // likewise, of mics_run_resolve_attention
    bool boundary_auto;  // boundary_dtype was, and is what mics_run_resolve made of it
    bool layered_auto;   // layered_micro_steps is found for the sharding (mics_run_resolve_layered)
    bool graphs;         // on GPUs
    bool precision_auto; // it was, in whatever words
    bool fell_back;      // bf16 was asked for, but is slow on the CPUs, so precision is fp32
    mics_run_precision kept_precision; // of the checkpoint that mics_run_keep read; AUTO: none
    mics_run_attention kept_attention; // likewise
    char kept_cudnn[16];               // and its run.cudnn_version
    mics_state_dtype state_dtype;      // the optimizer's states are held in
    mics_loss_scale loss_scale;        // only for fp16
    mics_optimizer optimizer;
    double other_rate; // of what it takes no matrices of, over lr; 0: the same
    double clip;       // 0: no clipping
    // Local steps; outer.every 0: none. R is settled by mics_run_resolve, and 0 without them.
    mics_outer outer;
    int32_t outer_ranks;
    double outer_lr, outer_momentum;
    mics_lr lr;
    // Phases: steps of one batch, data, length, seed and scheduler. All 0 and NULL: there are none.
    int32_t phase, phase_count;     // the one that the run is in, from 0 on
    int64_t phase_begin, phase_end; // steps done before and behind it; end 0: run.steps
    bool phase_orders;              // samples have another order from its begin on
    bool keeps_phases;              // phases are the checkpoint's: the run file has none
    int64_t phase_sample;           // number of the first one behind what the run resumes from
    int64_t lr_begin, lr_end;       // the same of its scheduler
    const char *phases_text;        // the list as JSON
    int32_t sequence;               // ranks that share out the positions of a sequence (S)
    // Set by mics_run_resolve:
    // Sequences, or pairs of these, a step of all ranks; a micro-step of one rank.
    int64_t global_batch, micro_batch;
    int32_t micro_steps; // a step
    bool batch_auto;     // the last two are to be planned
    bool recompute_auto; // so is `recompute`
    bool recompute_open; // or which end of the layers its units are of
    mics_sharding sharding;
    int32_t experts;             // ranks that keep different experts; 1: all have the same
    bool sharding_open;          // the run file leaves it to "auto"
    bool sharding_auto;          // and no checkpoint has one that can stay: the caller plans it
    mics_sharding kept_sharding; // of the checkpoint that mics_run_keep read; params 0: none
    int32_t kept_experts;        // of that; 1: none were spread
    int32_t kept_ranks;          // of that
} mics_run;

/* Reads a run file, applies `sets` ("a.b=v"; --steps, --out and the like are sets too), checks
 * every key and fills the run. Relative paths in it are relative to the working directory;
 * model.config must exist, unless it is MICS_MODEL_OF_PROGRAM.
 *
 * Needs:   sets: (set_count), set_count >= 0.
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_FORMAT, MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED: one line
 *          with file, line, key; MICS_ERR_MEMORY.
 * Owns:    close with mics_run_close.
 */
mics_status mics_run_load(mics_memory *memory, const char *path, const char *const *sets,
                          int32_t set_count, mics_run **run_out);

enum { MICS_FOLDER_BYTES = 4096 };

/* The folder that a path is, or that holds the file there: cut when longer. */
void mics_run_folder_of(const char *path, char folder[MICS_FOLDER_BYTES]);

// Of a step's folder: the file that makes it one.
#define MICS_STEP_MANIFEST "manifest.json"

/* The first file with weights in a folder of Hugging Face's, of the names that it gives them; also
 * that of a step's folder, which has weights, and pytorch_model.bin, though neither can be started from.
 *
 * Returns: MICS_OK, with *name_out NULL where there is none; MICS_ERR_MEMORY.
 * Owns:    the name is static.
 */
mics_status mics_run_find_weights(mics_memory *memory, const char *folder, const char **name_out);

/* Whether a document is a model's configuration (config.json) rather than a run file.
 *
 * Returns: true for one with "model_type", without "model" and without arguments of a Trainer.
 */
bool mics_run_is_model(const mics_json *json);

/* The same as mics_run_load for the text of a run file; error lines call it `name`, and without
 * run.out it trains into runs/`name`.
 *
 * Needs:   as mics_run_load.
 * Returns: as mics_run_load.
 * Owns:    close with mics_run_close.
 */
mics_status mics_run_parse(mics_memory *memory, const char *name, const char *text,
                           const char *const *sets, int32_t set_count, mics_run **run_out);

/* Frees; NULL is allowed. */
void mics_run_close(mics_run *run);

/* For a run that resumes from a checkpoint: takes from `text`, the resolved run that is stored
 * there, what decides the training's numbers and the run file leaves open. So no later
 * default changes a running training. Names of earlier versions are translated. "sharding": "auto"
 * keeps the stored degrees where mics_run_resolve is asked for as many ranks. Rows of explain say
 * "checkpoint".
 *
 * `name`:  stands for the text in errors.
 * Needs:   before mics_run_resolve and mics_run_resolve_device.
 * Returns: MICS_OK; MICS_ERR_FORMAT, MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED, one line;
 *          MICS_ERR_MEMORY. After an error the run can only be closed.
 */
mics_status mics_run_keep(mics_run *run, const char *name, const char *text);

/* What the defaults of a file of Trainer arguments are, or of a start from weights, in words; "":
 * they are the usual ones. Never NULL.
 *
 * Owns: it is the run's.
 */
const char *mics_run_program_text(const mics_run *run);

/* Tokens of a sequence, for a model with so many positions. Needs: positions >= 1. Pure. */
static inline int64_t mics_run_length(const mics_run *run, int64_t positions)
{
    const int64_t most = run->max_sequence_length > 0 && run->max_sequence_length < positions
                             ? run->max_sequence_length
                             : positions;
    return run->sequence_length > 0 ? run->sequence_length : most;
}

/* Positions of a sequence that one rank has, padding included. Needs: positions >= 1. Pure. */
static inline int64_t mics_run_own_length(const mics_run *run, int64_t positions)
{
    return (mics_run_length(run, positions) + run->sequence - 1) / run->sequence;
}

/* Sequences that batch sizes count as one: a pair's two. Pure. */
static inline int64_t mics_run_sequences_each(const mics_run *run)
{
    return run->preference.kind != MICS_PREFERENCE_NONE ? 2 : 1;
}

/* Puts the run in the phase that follows `step` steps: the next mics_run_keep fills it so.
 *
 * Needs: step >= 0.
 */
void mics_run_enter(mics_run *run, int64_t step);

/* Whether the phase that the run is in gives a key, what holds it, or one of that section. Pure. */
bool mics_run_phase_gives(const mics_run *run, const char *path);

/* Whether --set gives a key, or one of a section ("data", "scheduler"), another value than the stored
 * run's, and the run file has no phases that would say otherwise. */
bool mics_run_sets_other(const mics_run *run, const mics_json *stored, const char *path);

/* Begins a phase behind `step`: the keys of `paths` ("data": those of its keys that --set gives) were
 * `stored`'s before, and are as they are from now on.
 *
 * Needs:   mics_run_sets_other of each; paths: (count).
 * Returns: MICS_OK; MICS_ERR_INVALID, one line: no steps are left; MICS_ERR_MEMORY.
 */
mics_status mics_run_begin_phase(mics_run *run, int64_t step, const mics_json *stored,
                                 const char *const *paths, int32_t count);

/* The step with which the phase that the run is in ends. Pure. */
static inline int64_t mics_run_phase_end(const mics_run *run)
{
    return run->phase_end > 0 ? run->phase_end : run->steps;
}

/* "KEY VALUE, ...": what mics_run_keep took that the run file alone would not give; "": nothing.
 *
 * Returns: never NULL.    Owns: it is the run's.
 */
const char *mics_run_kept_text(const mics_run *run);

/* Logs a line "changed: KEY OLD -> NEW" for each key that decides what is computed and is another
 * than in the stored run, and one for the learning rate of the next step, where that jumps.
 *
 * `name`:        stands for the texts in errors.
 * `stored_text`: the resolved run of the checkpoint that this one resumes from; `own_text`: its own.
 * `step`:        the next one.
 * Needs:   a run that is resolved.
 * Returns: MICS_OK; MICS_ERR_FORMAT, one line: the texts are no JSON; MICS_ERR_MEMORY.
 */
mics_status mics_run_log_changes(const mics_run *run, const char *name, const char *stored_text,
                                 const char *own_text, int64_t step);

/* Whether mics_run_resolve left the micro-batch and micro-steps that the run file gives, so that the
 * global batch of the checkpoint stays. */
bool mics_run_keeps_batch(const mics_run *run);

/* Checks that the other files a training run reads exist: tokenizer, model.init, and data paths
 * that are no globs. Says so when one lies beside the run file instead. A run that goes on may have its
 * frozen weights from other ranks.
 *
 * Returns: MICS_OK; MICS_ERR_IO, one line.
 */
mics_status mics_run_check_files(const mics_run *run, bool goes_on);

/* Resolves what depends on the number of ranks: batch sizes (train_batch_size = micro-batch x
 * micro-steps x data ranks, absent and "auto" ones from the others, rounded up where train_batch_size is
 * given; after mics_run_keep the stored train_batch_size stays unless the file gives another, and
 * micro-batch and micro-steps follow) and
 * the sharding (native, or from zero_optimization, or from SageMaker's hints; checked as
 * mics_mesh_init does, and that it keeps run.min_replicas copies). With "auto" it is 1 | 1 | 1
 * until the caller plans it. With local steps it is that of an island (run->outer_ranks), and nothing
 * is planned. In a file without another engine's sharding that gives
 * train_batch_size, micro-batch and micro-steps are to be planned where both are absent, and
 * run.recompute with them where it is; a stored run has them.
 *
 * Needs:   ranks >= 1, nodes >= 1.
 * Returns: MICS_OK; MICS_ERR_INVALID or MICS_ERR_UNSUPPORTED, one line with what would work (the
 *          run's batch and sharding are untouched). May be called again with another mesh.
 */
mics_status mics_run_resolve(mics_run *run, int32_t ranks, int32_t nodes);

// Ranks that train as one, and the nodes that they lie on (1 where a node holds several islands).
typedef struct mics_run_island {
    int32_t ranks, nodes;
} mics_run_island;

/* Those of an island, without local steps all. Needs mics_run_resolve for so many. Pure. */
static inline mics_run_island mics_run_island_of(const mics_run *run, int32_t ranks, int32_t nodes)
{
    const int32_t per_node = ranks / nodes, own = run->outer_ranks > 0 ? run->outer_ranks : ranks;
    return (mics_run_island){own, own > per_node ? own / per_node : 1};
}

/* Settles run.steps, where the run says epochs, and what follows from it, once the data is known:
 * ceil(epochs x ceil(sequences / global batch)); and the steps of what is done once an epoch.
 *
 * `sequences`: of the training data.
 * Needs:   mics_run_resolve; sequences >= 1.
 * Returns: MICS_OK; MICS_ERR_INVALID, one line: too many steps, or what the scheduler refuses.
 */
mics_status mics_run_resolve_epochs(mics_run *run, int64_t sequences);

/* Settles run.device and run.precision, once it is known what can be used. On CPUs that are slow in
 * bf16 a run in bf16 falls back to fp32, unless it resumes from a checkpoint in bf16.
 *
 * `why_not`: NULL when a GPU can be used; else why none can, in one line
 *            (mics_cuda_findings.why_not).
 * `no_bf16`: NULL when the CPUs are fast in bf16; else why not, in one line.
 * Needs:   before mics_run_resolve.
 * Returns: MICS_OK: device is CPU or CUDA, and precision one of its own, as rows of explain say;
 *          MICS_ERR_UNSUPPORTED, one line: "cuda" where none can be used, or a
 *          precision that the CPU lacks. May be called again.
 */
mics_status mics_run_resolve_device(mics_run *run, const char *why_not, const char *no_bf16);

/* Settles run.attention and run.cudnn_version, once run.device is settled and it is known what can
 * be used.
 *
 * `version`: "9.19.0", of the cuDNN that all machines have, as long as the run lives; NULL: nobody
 *            looked, as the run is only sized. "auto" is cuDNN then, which takes more memory.
 * `why_not`: NULL when it can be used; else why it cannot, in one line.
 * Returns: MICS_OK: attention is OWN or CUDNN, as rows of explain say; MICS_ERR_UNSUPPORTED, one
 *          line: "cudnn" that cannot be used, or another version than the run file asks for. May be
 *          called again.
 */
mics_status mics_run_resolve_attention(mics_run *run, const char *version, const char *why_not);

/* Settles run.collectives, where it is "auto", once gathers were timed: rows of explain and the
 * resolved run say what was chosen, so that a run which goes on from there keeps it.
 */
void mics_run_resolve_collectives(mics_run *run, mics_collectives chosen);

/* Settles run.layered_micro_steps, where it is "auto", once the sharding is known: rows of explain
 * and the resolved run say what was chosen, so that a run which goes on from there keeps it.
 *
 * `why`:   static, "auto: ...", for explain.
 * Needs:   run->layered_auto; mics_run_resolve, which asks anew; number >= 1.
 */
void mics_run_resolve_layered(mics_run *run, int32_t number, const char *why);

/* "cpu", "bf16" and the like, as run files say it; never NULL. */
const char *mics_run_device_text(mics_run_device device);
const char *mics_run_precision_text(mics_run_precision precision);
const char *mics_run_attention_text(mics_run_attention attention);

/* Refuses a key of run.comm_dtype that would have no effect with the run's sharding, once that is
 * known. A single rank sends nothing and is refused nothing.
 *
 * Needs:   mics_run_resolve with the same ranks and nodes; run->sharding as chosen.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with what would work.
 */
mics_status mics_run_check_comm_dtypes(const mics_run *run, int32_t ranks, int32_t nodes);

/* mics(p) number `index`: the smallest p first, over the p that the mesh allows.
 *
 * Needs:   index >= 0; a mesh that is none has no candidates.
 * Returns: false when there is no such candidate (sharding_out untouched).      Pure.
 */
bool mics_sharding_candidate(int32_t ranks, int32_t nodes, int32_t index,
                             mics_sharding *sharding_out);

/* Candidate number `index` for run.prefetch where it is "auto": 3, 2, 1, 0. Take the first whose
 * memory fits and store it in run->prefetch.
 *
 * Needs:   nothing: beyond the ends there is none.
 * Returns: false when there is no such candidate (prefetch_out untouched).      Pure.
 */
bool mics_prefetch_candidate(int32_t index, int32_t *prefetch_out);

/* mics_lr_at for a step of the run, whose scheduler may have begun later.
 *
 * Needs: step > run->lr_begin. Units: as mics_lr_at.
 */
static inline double mics_run_lr_at(const mics_run *run, int64_t step)
{
    return mics_lr_at(&run->lr, step - run->lr_begin);
}

// One row of `mics explain`: a key, what it became, and where that came from.
typedef struct mics_run_row {
    const char *key;    // dotted path
    char value[160];    // as JSON, cut when longer
    const char *origin; // "file", "--set", "default", "auto: why"
    const char *help;   // what it does; for another engine's key, what is here in its place
    bool hint;          // another engine's, taken without effect
} mics_run_row;

// What a flag of another program is here: a key of the run file, or one as KEY=VALUE, or else what to
// do. Both NULL: nobody knows it.
typedef struct mics_run_flag {
    const char *key, *says;
} mics_run_flag;

/* Looks a flag up: of torchrun, deepspeed, accelerate, the Trainer, axolotl, LLaMA-Factory and others.
 *
 * Needs:   no dashes before it; in it "-" and "_" are the same.     Pure.
 */
mics_run_flag mics_run_flag_of(const char *flag);

/* The row of the flags' own table of an index from 0 on.
 *
 * Needs:   any index; past the last row both are NULL.
 */
mics_run_flag mics_run_flag_row(size_t index);

// A key of other programs' files that has no counterpart here: what it may say, and what is here.
typedef struct mics_run_foreign_row {
    const char *key, *taken, *why; // taken: "any", "off", "1 or off", or the only value
} mics_run_foreign_row;

/* The row of an index from 0 on.
 *
 * Needs:   any index; past the last row all are NULL.
 */
mics_run_foreign_row mics_run_foreign(int32_t index);

/* Rows of keys that are given or have a value. Values are read from the run, so what the caller
 * stored in run->sharding and run->prefetch shows.
 *
 * Needs:   mics_run_resolve; 0 <= index < mics_run_row_count().
 */
int32_t mics_run_row_count(const mics_run *run);
mics_run_row mics_run_row_at(const mics_run *run, int32_t index);

/* Makes the model's residual stream fp32, where the run says so.
 *
 * Needs:   mixed precision; mics_model_widen_residual.
 * Returns: as mics_model_widen_residual.
 */
mics_status mics_run_widen_residual(const mics_run *run, mics_model *model);

/* Gives the model the run's adapter and freezes what it does not train.
 *
 * Returns: as mics_model_add_lora and mics_model_freeze.
 */
mics_status mics_run_adapt(const mics_run *run, mics_model *model);

/* Says what of the model is trained, where that is not all. */
void mics_run_log_adapter(const mics_run *run, const mics_model *model);

/* Keeps attention of the model within documents, where the run says so.
 *
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED, logged: the model is an encoder.
 */
mics_status mics_run_mask_documents(const mics_run *run, mics_model *model);
