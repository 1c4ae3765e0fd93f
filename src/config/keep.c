// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a resumed run keeps of the one that its checkpoint is of: resolved values of keys that
// decide what is computed, where the run file leaves them open.
#include "config/keys.h"
#include <stdio.h>
#include <string.h>

static const char precision_key[] = "run.precision", collectives_key[] = "run.collectives",
                  boundary_key[] = "run.comm_dtype.boundary",
                  layered_key[] = "run.layered_micro_steps";

// Precision is open where the file says nothing of it, in our words or DeepSpeed's, nor asks for
// the CPU, which may lack the stored one.
static bool is_precision_open(const config *run)
{
    return strcmp(run->precision, "auto") == 0 &&
           (strcmp(run->device, "cpu") != 0 || mics_config_is_of_cpu(run->run.kept_precision)) &&
           !mics_config_valued(run, "bf16.enabled") && !mics_config_valued(run, "fp16.enabled");
}

// Whether the file asks for another precision than the stored one; then "auto" decides anew.
static bool is_precision_changed(const config *run)
{
    const mics_run_precision own =
        (mics_run_precision)mics_config_choice(precision_key, run->precision);
    const mics_run_precision asked = run->bf16   ? MICS_RUN_PRECISION_BF16
                                     : run->fp16 ? MICS_RUN_PRECISION_FP16
                                                 : own;
    return !is_precision_open(run) && asked != MICS_RUN_PRECISION_AUTO &&
           asked != run->run.kept_precision;
}

// The words of others for run.collectives say it as well.
static bool is_collectives_open(const config *run)
{
    return !mics_config_given(run, collectives_key) &&
           !mics_config_valued(run, "zero_optimization.mics_hierarchical_params_gather") &&
           !mics_config_valued(run, "sdp_hierarchical_allgather");
}

// A phase that gives the section begins here.
static bool begins_with(const config *run, const char *section)
{
    return run->run.phase > 0 && run->run.phase_begin == run->step &&
           mics_run_phase_gives(&run->run, section);
}

// A key of the scheduler belongs to a scheduler of the stored run's kind, one of the optimizer to
// its kind.
static bool is_open(const config *run, const key *row)
{
    if (strcmp(row->path, precision_key) == 0)
        return is_precision_open(run);
    if (strcmp(row->path, collectives_key) == 0)
        return is_collectives_open(run);
    if (strcmp(row->path, boundary_key) == 0)
        return strcmp(run->boundary_dtype, "auto") == 0 && !is_precision_changed(run);
    if (strcmp(row->path, layered_key) == 0) // "auto" was settled then, and sums have that order
        return !mics_config_valued(run, row->path);
    if (strncmp(row->path, "optimizer.params.", 17) == 0 &&
        (mics_config_optimizer_of(run->kept) != run->run.optimizer.kind ||
         !mics_config_is_of_optimizer(run, row)))
        return false;
    if (strncmp(row->path, "outer.", 6) == 0 && begins_with(run, "outer"))
        return false;
    if ((row->flags & KEY_SCHEDULERS) != 0) {
        if (run->run.lr_begin > 0 && run->run.lr_begin == run->step)
            return false; // its own begins
        const char *type = mics_json_string(mics_json_at(run->kept, "scheduler.type"));
        if (type == NULL || run->scheduler == NULL || strcmp(type, run->scheduler) != 0)
            return false;
    }
    if (strcmp(row->path, "scheduler.params.warmup_num_steps") == 0 && run->warmup_ratio > 0.0)
        return false; // the file says it as a share
    return !mics_config_given(run, row->path);
}

// What "auto" would become is not known yet. The second hop follows the precision.
static bool is_what_auto_gives(const config *run, const key *row, const char *value)
{
    const bool mixed = run->run.kept_precision == MICS_RUN_PRECISION_BF16;
    if (strcmp(row->path, boundary_key) == 0)
        return strcmp(value, "\"fp32\"") == 0 || (mixed && strcmp(value, "\"bf16\"") == 0);
    return strcmp(row->path, precision_key) == 0 || strcmp(row->path, layered_key) == 0 ||
           strcmp(row->path, "data.template_date") == 0 ||
           (strcmp(row->path, "data.packing") == 0 && strcmp(value, "true") == 0);
}

// The value as it is asked for, whatever it comes to.
static void asked_text(const config *run, const key *row, char *text, size_t capacity)
{
    key asked = *row;
    asked.show_bytes = 0;
    mics_config_field_text(run, &asked, text, capacity);
}

// Lists the keys whose kept value is not what the run file alone would give.
static void list_kept(config *run, const key *row, const char *before)
{
    char after[VALUE_TEXT_BYTES];
    const size_t used = strlen(run->kept_text);
    asked_text(run, row, after, sizeof after);
    if (strcmp(before, after) != 0 && !is_what_auto_gives(run, row, after))
        snprintf(run->kept_text + used, sizeof run->kept_text - used, "%s%s %s",
                 used > 0 ? ", " : "", row->path, after);
}

static mics_status keep_value(config *run, int32_t index)
{
    const key *row = mics_config_key(index);
    const mics_json_value *value = mics_json_at(run->kept, row->path);
    char before[VALUE_TEXT_BYTES];
    if ((row->flags & KEY_KEPT) == 0 || mics_json_type_of(value) == MICS_JSON_NULL ||
        !is_open(run, row))
        return MICS_OK;
    asked_text(run, row, before, sizeof before);
    MICS_TRY(mics_config_take(run, row, value));
    run->states[index] = KEY_FROM_CHECKPOINT;
    list_kept(run, row, before);
    return MICS_OK;
}

static mics_status keep_values(config *run)
{
    for (int32_t i = 0; i < mics_config_key_count(); i++)
        MICS_TRY(keep_value(run, i));
    return mics_config_fail_refused(run);
}

mics_status mics_config_keep(config *run)
{
    mics_json *file = run->run.json;
    if (run->kept == NULL)
        return MICS_OK;
    run->run.json = run->kept; // errors are of the stored text
    const mics_status status = keep_values(run);
    if (run->run.template_date != run->run.today) // the stored text goes
        snprintf(run->run.today, sizeof run->run.today, "%s", run->run.template_date);
    run->run.template_date = run->run.today;
    run->run.json = file;
    return status;
}

// ---- batch and sharding ----

static int64_t int_at(const mics_json *json, const char *path)
{
    return mics_json_int(mics_json_at(json, path));
}

// The fewest ranks that batch and optimizer degree are of: where some rows count nothing, more may
// have been.
static int64_t ranks_of(int64_t train, int64_t of_rank, int64_t sequence, int64_t degree)
{
    const int64_t ranks = (train / of_rank + (train % of_rank != 0)) * sequence;
    return degree > 1 && ranks % degree != 0 ? ranks + degree - ranks % degree : ranks;
}

// Micro-batch, micro-steps and degrees are of a number of ranks, which the stored batch tells.
static void keep_mesh(config *run)
{
    enum { MAX_MICRO = 1 << 20 }; // as the key's own
    const mics_json *json = run->kept;
    const int64_t train = int_at(json, "train_batch_size");
    const int64_t micro = int_at(json, "train_micro_batch_size_per_gpu");
    const int64_t steps = int_at(json, "gradient_accumulation_steps");
    if (train < 1 || micro < 1 || micro > MAX_MICRO || steps < 1 || steps > INT32_MAX)
        return;
    run->kept_train = train;
    run->kept_micro = micro;
    run->kept_degrees[0] = int_at(json, "sharding.params");
    run->kept_degrees[1] = int_at(json, "sharding.grads");
    run->kept_degrees[2] = int_at(json, "sharding.optimizer");
    run->kept_degrees[3] = int_at(json, "sharding.experts");
    run->kept_sequence = int_at(json, "sharding.sequence");
    run->kept_sequence = run->kept_sequence > 1 ? run->kept_sequence : 1; // earlier ones had none
    run->kept_ranks = ranks_of(train, micro * steps, run->kept_sequence, run->kept_degrees[2]);
}

static void keep_attention(config *run)
{
    const char *text = mics_json_string(mics_json_at(run->kept, "run.attention"));
    run->run.kept_attention = text == NULL || strcmp(text, "cudnn") != 0 ? MICS_RUN_ATTENTION_OWN
                                                                         : MICS_RUN_ATTENTION_CUDNN;
    text = mics_json_string(mics_json_at(run->kept, "run.cudnn_version"));
    snprintf(run->run.kept_cudnn, sizeof run->run.kept_cudnn, "%s", text != NULL ? text : "any");
}

static void keep_precision(config *run)
{
    const char *text = mics_json_string(mics_json_at(run->kept, precision_key));
    for (int of = MICS_RUN_PRECISION_FP32; text != NULL && of <= MICS_RUN_PRECISION_FP16; of++) {
        if (strcmp(text, mics_run_precision_text((mics_run_precision)of)) == 0)
            run->run.kept_precision = (mics_run_precision)of;
    }
}

// ---- the beginning ----

void mics_config_begin_keep(config *run)
{
    keep_mesh(run);
    keep_precision(run);
    keep_attention(run);
}
