// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Run files: DeepSpeed's JSON keys where their meaning is ours too, plus "model", "data", "run" and
// "sharding". One table knows every key: its type, default, range and what it does. Unknown keys
// are errors that name the nearest known one.
#ifndef MICS_CONFIG_H
#define MICS_CONFIG_H

#include "mics/json.h"
#include "mics/layout.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mics_lr_kind {
    MICS_LR_CONSTANT,
    MICS_LR_WARMUP,
    MICS_LR_WARMUP_DECAY,
    MICS_LR_WARMUP_COSINE,
    MICS_LR_WSD
} mics_lr_kind;

typedef struct mics_lr {
    mics_lr_kind kind;
    double peak, min_ratio;
    int64_t warmup_steps, decay_steps, total_steps;
} mics_lr;

typedef struct mics_run {
    mics_json *json; // the document, with --set applied; owns every text below
    const char *model_config, *model_init; // path; "random" or a folder of safetensors
    bool ignore_dropout;
    const char *const *train;
    int32_t train_count;
    const char *const *validation;
    int32_t validation_count;
    const char *tokenizer; // "bytes" or a path
    int64_t sequence_length;
    int64_t steps;
    uint64_t seed;
    const char *out;
    int64_t checkpoint_every, keep_checkpoints, validate_every, validation_batches;
    double comm_timeout_s;
    int64_t memory_limit_bytes; // a rank; 0: what the machine has
    int32_t threads;            // a rank; 0: cores / ranks of the node
    int32_t prefetch;
    bool recompute;
    int64_t micro_batch;
    int32_t micro_steps;
    mics_sharding sharding;
    double beta1, beta2, eps, weight_decay, clip;
    mics_lr lr;
} mics_run;

/* Reads a run file, applies `sets` ("a.b=v"), checks every key and fills the run. Relative paths in
 * it are relative to the working directory. --steps, --out and the like are sets too.
 *
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_FORMAT, MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED: one line
 * with file, line, key. Owns:    close with mics_run_close.
 */
mics_status mics_run_load(mics_memory *memory, const char *path, const char *const *sets,
                          int32_t set_count, mics_run **run_out);
void mics_run_close(mics_run *run);

/* Resolves what depends on the number of ranks: batch sizes (train_batch_size = micro-batch x
 * micro-steps x ranks, "auto" ones from the others) and the sharding (native, or from
 * zero_optimization).
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged (with the sizes that would work).
 */
mics_status mics_run_resolve(mics_run *run, int32_t ranks, int32_t nodes);

/* Learning rate of optimizer step number `step`, counted from 1. Pure. */
double mics_lr_at(const mics_lr *lr, int64_t step);

// One row of `mics explain`: a key, what it became, and where that came from.
typedef struct mics_run_row {
    const char *key;
    char value[160];
    const char *origin; // "file", "--set", "default", "auto: ..."
    const char *help;
} mics_run_row;

int32_t mics_run_row_count(void);
mics_run_row mics_run_row_at(const mics_run *run, int32_t index);

#ifdef __cplusplus
}
#endif
#endif
