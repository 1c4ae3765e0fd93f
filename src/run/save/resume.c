// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Whether a run resumes from a checkpoint, and whether that is the same run. The mesh may be
// another; what decides data and mathematics may not.
#include "run/save/resume.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "io/remote/remote.h"
#include "islands.h"
#include "mics/log.h"
#include "newest.h"
#include "run/identity.h"
#include "run/run_json.h"
#include "saved.h"
#include "tier.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_MAX_BYTES = 1 << 20 };

// What may differ, as a phase begins there with it: the keys that --set gives.
typedef struct changes {
    const mics_json *stored; // run
    const char *paths[8];
    int32_t count;
    bool orders; // samples
} changes;

static bool begins_phase(const mics_run *run, const mics_checkpoint_meta *meta)
{
    return run->phase > 0 && run->phase_begin == meta->step;
}

static bool take_change(const mics_job *job, changes *made, const char *path, bool orders)
{
    if (begins_phase(job->run, mics_checkpoint_meta_get(job->checkpoint)))
        return mics_run_phase_gives(job->run, path); // the run file's
    if (!mics_run_sets_other(job->run, made->stored, path))
        return false;
    made->paths[made->count++] = path;
    made->orders = made->orders || orders;
    return true;
}

static const char *advice(const mics_job *job)
{
    return job->run->phase_count > 0 && !job->run->keeps_phases
               ? ", give it in a phase that begins there (\"phases\")"
               : ", begin a phase with it by --set";
}

static mics_status differs(const mics_job *job, const char *what, const char *theirs,
                           const char *ours, const char *or_else)
{
    return mics_fail(MICS_ERR_INVALID,
                     "%s: was made with %s %s, this run has %s; restore it%s, or begin anew with "
                     "another --out",
                     job->checkpoint_path, what, theirs, ours, or_else);
}

static mics_status differs_int(const mics_job *job, changes *made, const char *path, int64_t theirs,
                               int64_t ours)
{
    char left[32], right[32];
    if (theirs == ours || take_change(job, made, path, strcmp(path, "train_batch_size") != 0))
        return MICS_OK;
    snprintf(left, sizeof left, "%lld", (long long)theirs);
    snprintf(right, sizeof right, "%lld", (long long)ours);
    return differs(job, path, left, right, advice(job));
}

// ---- the model's config, key by key: its text may be laid out in another way ----

static bool is_nested(const mics_json_value *value)
{
    const mics_json_type type = mics_json_type_of(value);
    return type == MICS_JSON_ARRAY || type == MICS_JSON_OBJECT;
}

// What is nested says nothing about the mathematics, but for these.
static bool is_nested_remark(const char *key, const mics_json_value *value)
{
    return is_nested(value) && !mics_text_is_among(key, "rope_scaling|rope_parameters|layer_types");
}

bool run_config_is_remark(const char *key)
{
    return mics_text_is_among(key,
                              "_name_or_path|architectures|transformers_version|torch_dtype|dtype");
}

static mics_status compare_configs(const mics_job *job, const mics_json_value *theirs,
                                   const mics_json_value *ours)
{
    const mics_json_value *const walks[] = {theirs, ours};
    for (int walk = 0; walk < 2; walk++) {
        const char *key = NULL;
        const mics_json_value *value;
        while ((value = mics_json_next(walks[walk], &key)) != NULL) {
            const mics_json_value *other = mics_json_get(walks[1 - walk], key);
            if (run_config_is_remark(key) || mics_json_is_same(value, other) ||
                (is_nested_remark(key, value) && is_nested_remark(key, other)))
                continue;
            return mics_fail(MICS_ERR_INVALID,
                             "%s: was made with another \"%s\" in the model's config than %s has; "
                             "restore it, or begin anew with another --out",
                             job->checkpoint_path, key, job->run->model_config);
        }
    }
    return MICS_OK;
}

static mics_status check_model(const mics_job *job, const mics_checkpoint_meta *meta)
{
    mics_json *json = NULL;
    if (strcmp(meta->model_json, mics_json_text(job->config)) == 0)
        return MICS_OK;
    MICS_TRY(mics_json_parse(job->memory, job->checkpoint_path, meta->model_json,
                             strlen(meta->model_json), &json));
    mics_status status = compare_configs(job, mics_json_root(json), mics_json_root(job->config));
    mics_json_close(json);
    return status;
}

// ---- data ----

// The text that this run's tokens were made with, which its file need not hold any more.
static mics_status check_tokenizer(const mics_job *job, const mics_checkpoint_meta *meta)
{
    size_t our_bytes = 0, their_bytes = 0;
    const char *ours = mics_tokenizer_text(job->tokenizer, &our_bytes);
    char *theirs = NULL;
    // What only comes along decides nothing of shards.
    if (job->run->tokenizer_open && mics_corpus_texts(job->train) == 0)
        return MICS_OK;
    if (strcmp(meta->tokenizer, "bytes") != 0)
        MICS_TRY(mics_file_read_whole(job->memory, meta->tokenizer, MICS_FILE_MAX_WHOLE, &theirs,
                                      &their_bytes));
    bool same = (ours == NULL) == (theirs == NULL) && our_bytes == their_bytes &&
                (ours == NULL || memcmp(ours, theirs, our_bytes) == 0);
    mics_free(job->memory, theirs);
    return same ? MICS_OK : differs(job, "tokenizer", meta->tokenizer, job->run->tokenizer, "");
}

// What its pairs are compared with began another run.
static mics_status check_objective(const mics_job *job, const mics_json *stored)
{
    static const char key[] = "objective.type";
    static const char *const names[] = {"lm", "dpo", "ipo"}; // as mics_preference_kind
    const char *theirs = mics_json_string(mics_json_at(stored, key));
    const char *ours = names[job->run->preference.kind];
    theirs = theirs != NULL ? theirs : names[0]; // of before there were others
    return strcmp(theirs, ours) == 0
               ? MICS_OK
               : differs(job, key, theirs, ours,
                         ", export the weights and name their folder in a new run's model.init");
}

static mics_status check_data(const mics_job *job, const mics_checkpoint_meta *meta, changes *made)
{
    if (meta->corpus_hash == run_samples_hash(&job->train_samples) ||
        take_change(job, made, "data", true))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: was made with other training text (data.train) than this run's%s%s; "
                     "restore it%s, or begin anew with another --out",
                     job->checkpoint_path, job->run->rows ? ", or with another chat template" : "",
                     job->run->train_weights != NULL ? ", or with other weights" : "", advice(job));
}

// What is held out for validation does not train, so it decides the order of all that does.
static mics_status check_hold_out(const mics_job *job, changes *made)
{
    const mics_json *theirs = made->stored;
    static const char *const shares[] = {"nothing", "the last twentieth"};
    const mics_run *run = job->run;
    bool held = mics_json_int(mics_json_at(theirs, "run.validation_batches")) > 0 &&
                mics_json_count(mics_json_at(theirs, "data.validation")) == 0;
    bool holds = run->validation_batches > 0 && run->validation_count == 0;
    if (held == holds || take_change(job, made, "data", true))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: was made with %s of data.train held out for validation, this run holds "
                     "out %s; restore run.validation_batches and data.validation, or begin anew "
                     "with another --out",
                     job->checkpoint_path, shares[held], shares[holds]);
}

// What run_json knows, which is for people: which windows of the text train, and the batch.
static mics_status check_stored(const mics_job *job, changes *made)
{
    const mics_json *stored = made->stored;
    const mics_checkpoint_meta *meta = mics_checkpoint_meta_get(job->checkpoint);
    int64_t length = mics_json_int(mics_json_at(stored, "data.sequence_length"));
    int64_t batch = mics_json_int(mics_json_at(stored, "train_batch_size"));
    if (length == 0) // the model's positions
        length = job->model->positions;
    if (batch == 0 && meta->step > 0)
        batch = meta->samples / meta->step;
    MICS_TRY(check_objective(job, stored));
    MICS_TRY(differs_int(job, made, "data.sequence_length", length, run_job_sequence(job)));
    MICS_TRY(check_hold_out(job, made));
    MICS_TRY(differs_int(job, made, "train_batch_size", batch, job->run->global_batch));
    (void)take_change(job, made, "scheduler", false);
    (void)take_change(job, made, "outer", false);
    return MICS_OK;
}

// Version 1 does not say it, and had AdamW alone.
static mics_status check_optimizer(const mics_job *job, const mics_checkpoint_meta *meta)
{
    const char *theirs = meta->optimizer != NULL
                             ? meta->optimizer
                             : mics_optimizer_def_get(MICS_OPTIMIZER_ADAMW)->name;
    const char *ours = mics_optimizer_def_get(job->run->optimizer.kind)->name;
    return strcmp(theirs, ours) == 0 ? MICS_OK : differs(job, "optimizer.type", theirs, ours, "");
}

// Files and --set may have a phase begin at this step, and agree on all that were before.
static mics_status check_phases(const mics_job *job, const mics_checkpoint_meta *meta,
                                const mics_json *stored)
{
    const mics_json_value *before = mics_json_at(stored, "phases");
    int64_t begin = 0, end = 0;
    if (meta->step < job->run->phase_begin)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is at step %lld, in a phase before; --resume %s begins there",
                         job->checkpoint_path, (long long)meta->step, job->checkpoint_path);
    for (int32_t i = 0; i < mics_json_count(before) && end < meta->step; i++) {
        const int64_t steps = mics_json_int(mics_json_get(mics_json_element(before, i), "steps"));
        begin = end;
        end = steps > 0 ? end + steps : INT64_MAX;
    }
    if (job->run->phase_begin == begin || job->run->phase_begin == meta->step)
        return MICS_OK;
    return mics_json_fail(job->run->json, "phases", MICS_ERR_INVALID,
                          "%s was made in a phase from step %lld on, and this one is from step "
                          "%lld on; phases that were must stay as they are",
                          job->checkpoint_path, (long long)begin, (long long)job->run->phase_begin);
}

static mics_status compare_trained(const mics_job *job, const char *path, const mics_json *theirs,
                                   const mics_json *ours)
{
    const mics_json_value *before = mics_json_at(theirs, path), *now = mics_json_at(ours, path);
    mics_text text = {.memory = job->memory};
    if (mics_json_is_same(before, now))
        return MICS_OK;
    mics_json_write(&text, before);
    mics_text_printf(&text, ", this run has ");
    mics_json_write(&text, now);
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_fail(MICS_ERR_INVALID,
                           "%s: was made with %s %s; restore it, or begin anew with another --out",
                           job->checkpoint_path, path, text.bytes);
    mics_text_fini(&text);
    return status;
}

// A checkpoint holds what was trained, and nothing else.
static mics_status check_trained(const mics_job *job, const mics_json *stored)
{
    static const char *const paths[] = {"model.trainable",    "adapter.r",
                                        "adapter.lora_alpha", "adapter.target_modules",
                                        "adapter.use_rslora", "adapter.modules_to_save"};
    char *text = NULL;
    mics_json *own = NULL;
    MICS_TRY(run_run_text(job->memory, job->run, &text));
    mics_status status = mics_json_parse(job->memory, "run", text, strlen(text), &own);
    for (size_t i = 0; i < sizeof paths / sizeof *paths && status == MICS_OK; i++)
        status = compare_trained(job, paths[i], stored, own);
    mics_json_close(own);
    mics_free(job->memory, text);
    return status;
}

static mics_status compare_stored(mics_job *job, const mics_checkpoint_meta *meta,
                                  const mics_json *stored)
{
    mics_run *run = job->run;
    changes made = {.stored = stored};
    if (meta->run_json != NULL)
        MICS_TRY(check_trained(job, stored));
    MICS_TRY(check_phases(job, meta, stored));
    run->phase_orders = run->phase_orders && begins_phase(run, meta);
    MICS_TRY(differs_int(job, &made, "run.seed", (int64_t)meta->seed, (int64_t)job->run->seed));
    MICS_TRY(check_data(job, meta, &made));
    if (meta->run_json != NULL)
        MICS_TRY(check_stored(job, &made));
    if (made.count == 0)
        return MICS_OK;
    MICS_TRY(mics_run_begin_phase(run, meta->step, stored, made.paths, made.count));
    run->phase_orders = made.orders;
    return MICS_OK;
}

static mics_status check_same_run(mics_job *job)
{
    const mics_checkpoint_meta *meta = mics_checkpoint_meta_get(job->checkpoint);
    const char *text = meta->run_json != NULL ? meta->run_json : "{}";
    mics_json *stored = NULL;
    MICS_TRY(check_model(job, meta));
    MICS_TRY(check_optimizer(job, meta));
    MICS_TRY(check_tokenizer(job, meta));
    MICS_TRY(mics_json_parse(job->memory, job->checkpoint_path, text, strlen(text), &stored));
    const mics_status status = compare_stored(job, meta, stored);
    mics_json_close(stored);
    return status;
}

// ---- the decision ----

// Whether the folder at `path` lies directly in `dir`.
static bool lies_in(const char *path, const char *dir)
{
    const size_t bytes = strlen(dir);
    if (mics_remote_is_bucket(path) || mics_remote_is_bucket(dir))
        return strncmp(path, dir, bytes) == 0 && path[bytes] == '/' &&
               strchr(path + bytes + 1, '/') == NULL;
    char *a = realpath(path, NULL), *b = realpath(dir, NULL);
    char *slash = a != NULL ? strrchr(a, '/') : NULL;
    if (slash != NULL)
        *slash = '\0';
    bool same = a != NULL && b != NULL && strcmp(a, b) == 0;
    free(a);
    free(b);
    return same;
}

// Whether what is resumed from is of this run: a checkpoint, or a state in quarantine.
static bool is_own(const mics_job *job)
{
    return lies_in(job->checkpoint_path, job->checkpoints_dir) ||
           lies_in(job->checkpoint_path, job->quarantine_dir);
}

// Sets checkpoint_path when there is something to resume from. An older step of the same folder is
// a way back: the next save is the newest then, whatever its step, and replaces a step of its name.
static mics_status choose(mics_job *job, const char *resume)
{
    const bool named = strcmp(resume, "none") != 0;
    MICS_TRY(mics_checkpoint_latest(job->memory, job->checkpoints_dir, &job->newest_path));
    const char *newest = job->newest_path;
    mics_status status = MICS_OK;
    if (named)
        status = run_checkpoint_find(job->memory, resume, &job->checkpoint_path);
    bool ours = status == MICS_OK && named && is_own(job);
    if (status == MICS_OK && newest != NULL && !ours)
        status = mics_fail(MICS_ERR_INVALID,
                           "%s: holds checkpoints, which are not overwritten%s; use --resume auto "
                           "to go on from the newest (%s), or another --out",
                           job->run->out,
                           job->run->resume == NULL ? "" : ", whatever resume_from_checkpoint says",
                           newest);
    return status;
}

void run_job_advise_older(const mics_job *job)
{
    const int64_t step = run_step_of(job->checkpoint_path);
    char text[RUN_PATH_BYTES + 100], *other = NULL;
    const bool muted = mics_log_mute(true); // what is wrong with others is not asked
    if (lies_in(job->checkpoint_path, job->checkpoints_dir))
        (void)mics_checkpoint_other(job->memory, job->checkpoints_dir, &step, 1, &other);
    mics_log_mute(muted);
    if (other != NULL)
        snprintf(text, sizeof text, "--resume %s goes on from that step", other);
    else
        snprintf(text, sizeof text, "restore it, or resume from another checkpoint");
    mics_free(job->memory, other);
    mics_log_add(text);
}

static mics_status open_chosen(mics_job *job, const char *resume)
{
    MICS_TRY(choose(job, resume));
    if (job->checkpoint_path == NULL)
        return MICS_OK;
    mics_status opened = mics_checkpoint_open(job->memory, job->checkpoint_path, &job->checkpoint);
    if (opened == MICS_ERR_FORMAT)
        run_job_advise_older(job);
    return opened;
}

// A state in quarantine lies where all nodes find it, as checkpoints do.
static mics_status name_dirs(mics_job *job)
{
    const mics_run *run = job->run;
    const char *bucket = run->checkpoint_dir;
    if (strcmp(bucket, "none") == 0) {
        MICS_TRY(mics_file_join(job->memory, run->out, "checkpoints", &job->checkpoints_dir));
        return mics_file_join(job->memory, run->out, "aside", &job->quarantine_dir);
    }
    MICS_TRY(mics_strdup(job->memory, bucket, &job->checkpoints_dir));
    return mics_file_join(job->memory, bucket, "quarantine", &job->quarantine_dir);
}

mics_status run_job_find_checkpoint(mics_job *job, const char *resume)
{
    const bool newest = strcmp(resume, "auto") == 0;
    MICS_TRY(name_dirs(job));
    MICS_TRY(newest ? run_job_open_newest(job) : open_chosen(job, resume));
    if (job->checkpoint == NULL)
        return newest && mics_text_is_among(job->run->resume, "auto")
                   ? mics_json_fail(job->run->json, "resume_from_checkpoint", MICS_ERR_INVALID,
                                    "is given, and %s has no checkpoint; leave it out: a run "
                                    "resumes from the newest where there is one",
                                    job->run->out)
                   : MICS_OK;
    if (job->world->first == 0)
        MICS_TRY(run_identity_check_file(job->memory, job->run));
    const char *stored = mics_checkpoint_meta_get(job->checkpoint)->run_json;
    mics_run_enter(job->run, mics_checkpoint_meta_get(job->checkpoint)->step);
    return mics_run_keep(job->run, job->checkpoint_path, stored != NULL ? stored : "{}");
}

// The checkpoint was chosen before the output folder was locked, as the run's keys depend on it.
// Another run may have saved there in between, and ended.
static mics_status check_newest(const mics_job *job)
{
    char *newest = NULL;
    const bool before = mics_log_mute(true); // what is wrong there was said when it was chosen
    const mics_status status = mics_checkpoint_latest(job->memory, job->checkpoints_dir, &newest);
    mics_log_mute(before);
    if (status != MICS_OK)
        return mics_fail(status, "%s: cannot be looked at again: %s", job->checkpoints_dir,
                         mics_status_text(status));
    const bool same = newest == NULL || job->newest_path == NULL
                          ? newest == job->newest_path
                          : strcmp(newest, job->newest_path) == 0;
    mics_free(job->memory, newest);
    return same ? MICS_OK
                : mics_fail(MICS_ERR_INVALID,
                            "%s: another run saved there while this one started; start it again",
                            job->run->out);
}

mics_status run_job_take_checkpoint(mics_job *job)
{
    const mics_checkpoint_meta *meta = mics_checkpoint_meta_get(job->checkpoint);
    job->start_step = meta->step;
    if (job->start_step <= job->run->steps) {
        MICS_TRY(check_same_run(job));
        MICS_TRY(run_islands_check(job));
    }
    job->start = (run_position){.samples = meta->samples,
                                .sample = job->run->phase_orders ? 0 : meta->sample,
                                .tokens = meta->tokens};
    if (meta->tokens == 0) // of before it was written
        job->start.tokens = meta->samples * run_job_sequence(job);
    job->run->phase_sample = job->start.sample;
    if (job->start_step > job->run->steps)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is at step %lld already, and run.steps is %lld; raise it, or use "
                         "another --out",
                         job->checkpoint_path, (long long)job->start_step,
                         (long long)job->run->steps);
    return MICS_OK;
}

// What ranks write to find how fast the disk is (share.c).
static bool is_speed(const char *file, const char *name)
{
    const size_t begin = strlen(name);
    if (strncmp(file, name, begin) != 0)
        return false;
    const size_t digits = strspn(file + begin, "0123456789");
    return digits > 0 && strcmp(file + begin + digits, ".tmp") == 0;
}

// What a run that was killed left of the files that it writes aside. The folder is locked; others
// may write where else reports go.
static void sweep(const mics_job *job)
{
    static const char *const names[] = {"run.json",      "resolved.json", "run-id",
                                        "metrics.jsonl", "samples.jsonl", "trace.json",
                                        "products.bin"};
    const mics_run *run = job->run;
    if (job->world->first != 0)
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        mics_file_sweep(run->out, names[i]);
    mics_file_sweep_dead(run->out, is_speed, "speed-");
    if (strcmp(run->csv, "none") != 0)
        mics_file_sweep_dead_of(run->csv);
    if (strcmp(run->prometheus, "none") != 0)
        mics_file_sweep_dead_of(run->prometheus);
    const bool before = mics_log_demote(true);
    (void)mics_checkpoint_clean(job->memory, job->quarantine_dir);
    mics_log_demote(before);
}

mics_status run_job_resume(mics_job *job)
{
    sweep(job);
    MICS_TRY(check_newest(job));
    if (job->checkpoint == NULL)
        return MICS_OK;
    MICS_TRY(run_job_take_checkpoint(job));
    // What is in node memory alone is to go to disk.
    job->finished = job->start_step == job->run->steps && !job->node.taken;
    return MICS_OK;
}
