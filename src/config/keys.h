// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The honoured keys, and the run that a file's values are stored into.
//
// A key's value, or its default, lies in its field after mics_config_check.
//
// Invariants of a config, checked by is_consistent in check.c:
//   1. `run` is its first member, so a mics_run that was handed out is its config.
//   2. states[i] and origins[i] belong to mics_config_key(i), foreign_states[i] to
//      mics_config_foreign(i).
#pragma once

#include "config/config.h"
#include "config/peft.h"

typedef enum key_type {
    KEY_SECTION,   // an object; its keys have rows of their own
    KEY_OBJECT,    // an object of names that are the user's; read from the file (mics_run.json)
    KEY_SWITCH,    // true or false; low and high as 0 and 1
    KEY_INT,       // an integer, also written as 5e8; int32_t or int64_t
    KEY_REAL,      // a number; double
    KEY_BYTES,     // an integer, or "8GiB"; int64_t
    KEY_TEXT,      // a string that is not empty; const char *
    KEY_CHOICE,    // one of `choices`, whatever its case; const char *, as in `choices`
    KEY_TEXTS,     // an array of strings, or one string; text_list
    KEY_SOURCES,   // the same, or an array of {"path", "weight"}
    KEY_RECOMPUTE, // a switch, a number of layers, or a text of these; mics_recompute
    KEY_PHASES,    // an array of objects, which phases.c reads
    KEY_SETTINGS // of the optimizer, from `setting` on: a number or a switch, or an array of `count`
} key_type;

enum {
    KEY_REQUIRED = 1, // must be given
    KEY_KEPT = 2,     // decides what is computed: a resumed run keeps what its checkpoint says
    KEY_OTHERS = 4,   // another system's words: explain shows it only where it is given
    KEY_TOLD = 8,     // decides it too, but is the run file's: a resumed run says that it changed,
                      // as it does of one that is kept and given anew
    KEY_FIXED = 16,   // a resumed run refuses another value, or files with other contents
    // Schedulers that take the key; none of these bits: all.
    KEY_WARMUP = 1 << (8 + MICS_LR_WARMUP),
    KEY_DECAY = 1 << (8 + MICS_LR_WARMUP_DECAY),
    KEY_COSINE = 1 << (8 + MICS_LR_WARMUP_COSINE),
    KEY_WSD = 1 << (8 + MICS_LR_WSD),
    KEY_ONE_CYCLE = 1 << (8 + MICS_LR_ONE_CYCLE),
    KEY_LINEAR = 1 << (8 + MICS_LR_LINEAR),
    KEY_WAVE = 1 << (8 + MICS_LR_COSINE),
    KEY_RESTARTS = 1 << (8 + MICS_LR_COSINE_RESTARTS),
    KEY_WAVE_MIN = 1 << (8 + MICS_LR_COSINE_MIN),
    KEY_POLYNOMIAL = 1 << (8 + MICS_LR_POLYNOMIAL),
    KEY_CONSTANT_WARMUP = 1 << (8 + MICS_LR_CONSTANT_WARMUP),
    KEY_INVERSE_SQRT = 1 << (8 + MICS_LR_INVERSE_SQRT),
    KEY_STABLE_DECAY = 1 << (8 + MICS_LR_STABLE_DECAY),
    KEY_TO_THE_END = KEY_LINEAR | KEY_WAVE | KEY_RESTARTS | KEY_WAVE_MIN | KEY_POLYNOMIAL |
                     KEY_STABLE_DECAY, // Hugging Face's that end at total_num_steps
    KEY_WARMED = KEY_WARMUP | KEY_DECAY | KEY_COSINE | KEY_WSD | KEY_TO_THE_END |
                 KEY_CONSTANT_WARMUP | KEY_INVERSE_SQRT,
    KEY_SCHEDULERS = KEY_WARMED | KEY_ONE_CYCLE
};

typedef struct key {
    const char *path;
    key_type type;
    int flags;
    size_t at, bytes;           // field of config; bytes 0: not stored
    size_t show_at, show_bytes; // field that explain shows, when it is another one
    double value;               // default of numbers and switches
    const char *text;           // default of texts and choices
    double low, high;           // range; of KEY_TEXTS and KEY_SOURCES: how many
    const char
        *setting;  // of KEY_SETTINGS the first; their ranges and defaults are the descriptor's
    int32_t count; // of KEY_SETTINGS: 1 or 2
    const char *const *choices; // ends with NULL
    const char *automatic;      // "auto: what it becomes", when "auto" is allowed; also shown when
                                // the key is absent
    const char *help;           // what it does
    const char *flag;           // of a required key: the program's flag that gives it
    const char *refusal;        // why another value cannot be honoured, and what would work
} key;

typedef enum key_state {
    KEY_ABSENT,
    KEY_FROM_FILE,
    KEY_FROM_SET,
    KEY_FROM_FILE_AUTO, // given as "auto"
    KEY_FROM_SET_AUTO,
    KEY_FROM_CHECKPOINT // absent, and kept by mics_run_keep
} key_state;

// A key of another engine that is known and not honoured: one list of data, in foreign.c.
typedef struct foreign_key {
    const char *path;
    // What it may say: NULL, anything, as it cannot change results (a hint); FOREIGN_OFF, only
    // values that switch it off; FOREIGN_ONE, only those and degrees of 1; FOREIGN_EMPTY, only null,
    // false and what holds nothing, as 0 means something (a layer, a token); else only this value, as
    // JSON. "auto" is always taken: it is the other engine's default, which is off.
    const char *only;
    const char *why; // what is here in its place; for what is not taken also what would work
} foreign_key;

#define FOREIGN_OFF "off"
#define FOREIGN_ONE "1 or off"
#define FOREIGN_EMPTY "empty"

enum {
    CONFIG_MAX_KEYS = 192,
    CONFIG_MAX_FOREIGN = 448,
    CONFIG_PATH_BYTES = 160,
    VALUE_TEXT_BYTES = 160
};

typedef struct text_list {
    const char **texts;
    double *weights; // NULL: none
    int32_t count;
} text_list;

// Keys that cannot be honoured, as far as the file was walked: all are told in one line.
typedef struct refusals {
    int32_t count;
    char path[CONFIG_PATH_BYTES]; // of the first
    mics_status status;           // of the first
    char what[512];               // of the first
    char all[1792];               // every one with its line, cut when longer
} refusals;

typedef struct config {
    mics_run run;
    mics_memory *memory;
    uint8_t states[CONFIG_MAX_KEYS], foreign_states[CONFIG_MAX_FOREIGN];
    const char *const *sets; // of the caller; only while loading
    int32_t set_count;
    char *out;                          // default of run.out
    char *phases_text;                  // mics_run's
    int64_t step;                       // done: the run is in the phase of the next one
    char *config_path, *tokenizer_path; // in the folders that the file names
    mics_json *kept;                    // stored resolved run; only within mics_run_keep
    char program_text[512];  // of a file of Trainer arguments: which program's it is; "": nothing
    char resume[1024];       // mics_run's
    char weights_text[256];  // of a start from weights: the defaults that it has; "": nothing
    char kept_text[512];     // kept values that the file alone would not give; cut when longer
    int64_t kept_train;      // of the stored run: its global batch; 0: none
    int64_t kept_micro;      // its micro-batch
    int64_t kept_ranks;      // its ranks; 0: none
    int64_t kept_sequence;   // its S
    int64_t kept_degrees[4]; // its P, G, O and E; 0: said in other words, and E 1 of before it was
    text_list train, validation, trainable, targets, saved;
    char adapter_base[1024]; // that adapter.init names; "": none
    double dropout;
    const char *device, *precision; // as asked for; after mics_run_resolve_device as they are
    const char *attention;          // the same, by mics_run_resolve_attention
    mics_run_device asked_device;   // in the run file
    mics_run_attention asked_attention;
    mics_run_precision asked_precision;
    const char *asked_origin;               // of that; NULL: the key itself
    bool bf16, fp16;                        // the same as precision, in DeepSpeed's words
    bool by_deepspeed, deepspeed_optimizer; // where DeepSpeed's defaults hold (adopt.h)
    bool saves_each_epoch, validates_each_epoch;
    bool keeps_batch; // batch sizes are not as asked for, but such that the stored global one stays
    double loss_scale; // as asked for
    int64_t scale_power;
    // Batch sizes as asked for; 0: not given.
    int64_t train_batch, micro_batch, micro_steps;
    // Optimizer and scheduler as written; mics_run has what becomes of them.
    const char *optimizer, *scheduler, *warmup_type;
    bool adam_w_mode;
    const char *adjust_lr, *state_dtype, *sum_dtype;
    double adam_lr;
    double lr;
    double warmup_min_lr, warmup_max_lr, warmup_min_ratio, cos_min_ratio, min_ratio;
    int64_t warmup_steps, total_steps, decay_steps, stable_steps, timescale;
    double warmup_ratio, cycles, power, lr_end, min_lr;
    const char *decay_type;
    double cycle_min_lr, cycle_max_lr, decay_lr_rate;
    int64_t cycle_first, cycle_second, cycle_decay_steps;
    int32_t outer_ranks; // as asked for; 0: not given
    const char *outer_type, *outer_dtype;
    int64_t steps; // as asked for; 0: not given
    double epochs; // as asked for; 0: not given
    // Sharding as asked for, in the ways of saying it.
    int64_t params, grads, optimizer_degree; // 0: not given
    int64_t experts;                         // 1: not given
    int64_t zero_stage, shard_size, hpz_size, sdp_degree, hybrid_degree;
    int64_t shard_degree, replicate_degree; // of torchtitan
    const char *fsdp_strategy;              // NULL: not given
    bool hierarchical, sdp_hierarchical, overlap;
    int32_t prefetch;            // as asked for
    bool early_gathers;          // as asked for
    int32_t layered_micro_steps; // as asked for; 0: "auto"
    int64_t zero_threshold, sdp_threshold;
    const char *collectives, *loss_on, *too_long, *objective;
    const char *params_dtype, *grads_dtype, *comm_type;
    const char *boundary_dtype, *asked_boundary; // after mics_run_resolve as it is; as asked for
    bool bf16_intra_node;
    int64_t steps_per_print;
    const char *sharding_origin;          // shown by explain
    const char *origins[CONFIG_MAX_KEYS]; // the same of keys that another one has a say in
    const char *adopted[CONFIG_MAX_KEYS]; // the same of values that are another file's (adopt.h)
    refusals refused;                     // only while loading
} config;

/* The honoured keys, in the order of explain and docs/config.md. */
int32_t mics_config_key_count(void);
const key *mics_config_key(int32_t index);

/* Index of a key by its path, or -1. */
int32_t mics_config_find(const char *path);

/* The foreign keys: the one of an index from 0 on, its path NULL past the last; and the index of a
 * path, or -1. */
foreign_key mics_config_foreign(int32_t index);
int32_t mics_config_find_foreign(const char *path);

/* Whether a foreign key may have a value. */
bool mics_config_foreign_allows(int32_t index, const mics_json_value *value);

/* Last name of a dotted path. */
const char *mics_config_leaf(const char *path);

/* True when the key at `path` (which must be honoured) stands in the file or is set. What is kept
 * of a checkpoint does neither. */
bool mics_config_given(const config *run, const char *path);
/* The same, and not as "auto". */
bool mics_config_valued(const config *run, const char *path);

/* A key got its value from another one: explain shows `origin` (static). */
void mics_config_set_origin(config *run, const char *path, const char *origin);

/* Which kind of schedule a scheduler.type names; NULL: constant. */
mics_lr_kind mics_config_lr_kind(const char *scheduler);
mics_warmup_kind mics_config_warmup_kind(const char *shape);

/* The place of a key's value among its choices: a value of the enum that their order is of. */
int mics_config_choice(const char *path, const char *text);
mics_comm_dtype mics_config_comm_dtype(const char *text);
const char *mics_config_collectives_text(mics_collectives of);

/* Whether CPUs compute in it. */
bool mics_config_is_of_cpu(mics_run_precision precision);

/* take.c: stores a key's default; checks a value and stores it. */
void mics_config_store_default(config *run, const key *row);
mics_status mics_config_take(config *run, const key *row, const mics_json_value *value);

/* sources.c: the same of a KEY_TEXTS or KEY_SOURCES row. */
mics_status mics_config_take_texts(config *run, const key *row, const mics_json_value *value);

/* take.c: where the optimizer has the first setting of a KEY_SETTINGS row; -1: it has none. */
int32_t mics_config_setting(const config *run, const key *row);

/* optimizer.c: which one a document's optimizer.type names; AdamW where it names none. */
mics_optimizer_kind mics_config_optimizer_of(const mics_json *json);

/* Whether a key says something of the run's optimizer: all do that are no other one's. */
bool mics_config_is_of_optimizer(const config *run, const key *row);

/* explain.c: the value in a key's field, as JSON. Needs a key with a field. */
void mics_config_field_text(const config *run, const key *row, char *text, size_t capacity);

/* keep.c: takes sharding and precision of run->kept. */
void mics_config_begin_keep(config *run);

/* keep.c: stores what run->kept says for keys that the file leaves open, or nothing where it is NULL.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT, MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED, MICS_ERR_MEMORY, one
 *          line that names the stored text.
 */
mics_status mics_config_keep(config *run);

/* refuse.c: keeps a key that cannot be honoured, so that the others are told too; MICS_OK. */
mics_status mics_config_refuse(config *run, const char *path, mics_status status,
                               const char *format, ...) MICS_PRINTF(4, 5);
/* MICS_OK when none was kept; else the first one's status, one line with all. */
mics_status mics_config_fail_refused(const config *run);

// ---- the parts of a load, in their order ----

// adopt.c: rewrites files of Hugging Face's Trainer, accelerate and torchtitan, and "auto" values
// of DeepSpeed's, in the document itself; and whether a key at `path` was read by that.
mics_status mics_config_adopt(config *run);
bool mics_config_is_adopted(const char *path);

/* phases.c: gives keys of the document the values of the phase that run->step is in, and fills what
 * run->run says of phases. Returns: MICS_OK; MICS_ERR_INVALID, MICS_ERR_MEMORY, one line. */
mics_status mics_config_enter_phase(config *run);

/* fetch.c: downloads what keys of paths name elsewhere, and gives them the local paths; data and weights of
 * a hub wait for mics_run_check_files. `adopted`: of other URLs nothing secret stays. Returns: MICS_OK;
 * as mics_remote_fetch; MICS_ERR_UNSUPPORTED: what is written would be remote. */
mics_status mics_config_fetch(config *run, bool adopted);

// check.c: applies defaults, then stores and checks every key of run->run.json.
mics_status mics_config_check(config *run);
// resolve.c: what can be said about batch and sharding before the ranks are known.
mics_status mics_config_check_sources(config *run);
// aliases.c: brings keys together that say the same in two ways.
mics_status mics_config_join_aliases(config *run);
// comm_dtype.c: what is sent as which type, once they are; and what run.comm_dtype.boundary "auto"
// comes to, once precision and nodes are known.
void mics_config_fill_comm_dtypes(config *run);
void mics_config_settle_boundary(config *run, int32_t ranks_per_node);
// precision.c: run.device, run.precision and what DeepSpeed says of them, as far as the file knows.
mics_status mics_config_join_precision(config *run);
/* adapter.c: run->run.lora and what is trained. Returns: MICS_OK; MICS_ERR_INVALID,
 * MICS_ERR_UNSUPPORTED, one line; MICS_ERR_MEMORY. */
mics_status mics_config_fill_adapter(config *run);
/* outer.c: what can be said about local steps before the ranks are known; then R, for so many of
 * them. Returns: MICS_OK; MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED, one line with what would work. */
mics_status mics_config_fill_outer(config *run);
mics_status mics_config_resolve_outer(const config *run, int32_t ranks, int32_t nodes,
                                      int32_t *ranks_out);
/* The same of what is left to the planner, for the ranks of an island. */
mics_status mics_config_check_outer(const config *run, int32_t ranks, bool sharding_auto);
/* weights.c: a folder with weights is model.init, where the file says none; and the defaults of a start
 * from weights. `model`: what model.config says. Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status mics_config_take_weights(config *run, const char *model);
// optimizer.c: fills run.lr and the like from what is stored.
mics_status mics_config_fill_optimizer(config *run);
// trainer_lr.c: the schedulers that DeepSpeed's first three and WSD are not.
mics_status mics_config_fill_one_cycle(config *run);
mics_status mics_config_fill_trainer_lr(config *run);
