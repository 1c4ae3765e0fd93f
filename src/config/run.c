// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opening and closing a run file.
#include "base/file.h"
#include "base/free.h"
#include "base/json.h"
#include "base/text.h"
#include "base/yaml.h"
#include "config/adopt_trainer.h"
#include "config/config.h"
#include "config/unread.h"
#include "io/remote/remote.h"
#include "mics/log.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// A model's configuration alone is trained with the Trainer's batch.
enum { MAX_RUN_FILE_BYTES = 1 << 20, PATH_BYTES = 4096, SET_PATH_BYTES = 160, BATCH_OF_MODEL = 8 };

// ---- --set ----

// A text key takes what stands behind the = as it is, so that "run.out=2024" is a folder's name.
static mics_status set_text(config *run, const char *path, const char *text)
{
    mics_text quoted = {.memory = run->memory};
    mics_text_quoted(&quoted, text);
    mics_status status = mics_text_status(&quoted);
    if (status == MICS_OK)
        status = mics_json_set(run->run.json, path, quoted.bytes);
    mics_text_fini(&quoted);
    return status;
}

static mics_status apply_set(config *run, const char *set)
{
    char path[SET_PATH_BYTES];
    const char *equals = strchr(set, '=');
    if (equals == NULL || equals == set || (size_t)(equals - set) >= sizeof path)
        return mics_fail(MICS_ERR_INVALID, "--set %s: must be KEY=VALUE, as in run.steps=20", set);
    snprintf(path, sizeof path, "%.*s", (int)(equals - set), set);
    if (strncmp(path, "sharding.", 9) == 0)
        MICS_TRY(mics_adopt_open_sharding(run));
    int32_t index = mics_config_find(path);
    // null unsets it, as any other key; a folder called null is written in quotes.
    if (index >= 0 && mics_config_key(index)->type == KEY_TEXT && equals[1] != '"' &&
        strcmp(equals + 1, "null") != 0)
        return set_text(run, path, equals + 1);
    return mics_json_set(run->run.json, path, equals + 1);
}

static mics_status apply_sets(config *run)
{
    if (run->set_count > 0 && mics_json_type_of(mics_json_root(run->run.json)) != MICS_JSON_OBJECT)
        return MICS_OK; // mics_config_check says it better
    for (int32_t i = 0; i < run->set_count; i++)
        MICS_TRY(apply_set(run, run->sets[i]));
    return MICS_OK;
}

// ---- files ----

// Length of the folder in a path, with its slash; 0 when there is none.
static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

// A name such as "gpt2" or "Qwen/Qwen3-0.6B", which other programs would fetch.
static bool is_of_hub(const char *key_path, const char *path)
{
    const char *slash = strchr(path, '/');
    const bool model = strncmp(key_path, "model.", 6) == 0;
    return (model || strcmp(key_path, "data.tokenizer") == 0) && *path != '/' && *path != '.' &&
           !mics_text_ends(path, ".json") && !mics_text_ends(path, ".txt") &&
           (slash == NULL || strchr(slash + 1, '/') == NULL);
}

static mics_status check_file(const config *run, const char *key_path, const char *path)
{
    const bool weights = mics_text_ends(key_path, ".init");
    MICS_TRY(mics_remote_complete(run->memory, path,
                                  weights ? MICS_REMOTE_WEIGHTS : MICS_REMOTE_CONFIG));
    if (access(path, R_OK) == 0)
        return MICS_OK;
    int reason = errno;
    const char *run_file = mics_json_name(run->run.json);
    char beside[PATH_BYTES];
    snprintf(beside, sizeof beside, "%.*s%s", (int)folder_bytes(run_file), run_file, path);
    if (*path != '/' && folder_bytes(run_file) != 0 && access(beside, R_OK) == 0)
        return mics_json_fail(run->run.json, key_path, mics_status_of_errno(reason),
                              "%s: %s; paths are relative to the working directory, and there is "
                              "%s: write that",
                              path, strerror(reason), beside);
    return mics_json_fail(
        run->run.json, key_path, mics_status_of_errno(reason), "%s: %s%s%s", path, strerror(reason),
        *path != '/' ? "; paths are relative to the working directory" : "",
        is_of_hub(key_path, path) ? "; hf://ORG/NAME names a model of the Hugging Face hub" : "");
}

static mics_status check_files(const config *run, const char *key_path, const text_list *list)
{
    for (int32_t i = 0; i < list->count; i++) {
        MICS_TRY(mics_remote_complete(run->memory, list->texts[i], MICS_REMOTE_FILES));
        char index[PATH_BYTES]; // Megatron's paths leave the ending away
        snprintf(index, sizeof index, "%s.idx", list->texts[i]);
        if (strpbrk(list->texts[i], "*?[") == NULL && access(index, R_OK) != 0)
            MICS_TRY(check_file(run, key_path, list->texts[i]));
    }
    return MICS_OK;
}

mics_status mics_run_check_files(const mics_run *public_run, bool goes_on)
{
    const config *run = (const config *)public_run; // invariant 1 of keys.h
    if (strcmp(run->run.tokenizer, "bytes") != 0)
        MICS_TRY(check_file(run, "data.tokenizer", run->run.tokenizer));
    const bool part = run->run.lora.rank > 0 || run->run.trainable_count > 0;
    if (strcmp(run->run.model_init, "random") != 0 && !(goes_on && part))
        MICS_TRY(check_file(run, "model.init", run->run.model_init));
    if (strcmp(run->run.adapter_init, "none") != 0 && !goes_on)
        MICS_TRY(check_file(run, "adapter.init", run->run.adapter_init));
    MICS_TRY(check_files(run, "data.train", &run->train));
    return check_files(run, "data.validation", &run->validation);
}

// ---- the run ----

// "configs/demo.json" trains into "runs/demo".
static mics_status name_out(config *run, const char *path)
{
    char out[PATH_BYTES], file[PATH_BYTES];
    size_t whole = strlen(path);
    while (whole > 1 && path[whole - 1] == '/')
        whole--; // of a folder
    snprintf(file, sizeof file, "%.*s", (int)whole, path);
    const char *name = file + folder_bytes(file);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: has no name that the run's folder could have; give --out", path);
    const char *end = strrchr(name, '.');
    const bool known =
        end != NULL && end != name && (strcmp(end, ".json") == 0 || mics_yaml_is_named(end));
    const size_t bytes = known ? (size_t)(end - name) : strlen(name);
    snprintf(out, sizeof out, "runs/%.*s", (int)bytes, name);
    MICS_TRY(mics_strdup(run->memory, out, &run->out));
    run->run.out = run->out;
    return MICS_OK;
}

// Every step that is to be traced must come.
static mics_status check_trace(const config *run)
{
    const int64_t first = run->run.trace_step, last = first + run->run.trace_steps - 1;
    if (first == 0 || last <= run->run.steps)
        return MICS_OK;
    return mics_json_fail(run->run.json, "run.trace_step", MICS_ERR_INVALID,
                          "traces steps %lld to %lld, but the run ends after step %lld; 0 traces "
                          "none",
                          (long long)first, (long long)last, (long long)run->run.steps);
}

// Drops what an earlier filling made.
static void reset(config *run)
{
    mics_free(run->memory, run->config_path);
    mics_free(run->memory, run->tokenizer_path);
    run->config_path = run->tokenizer_path = NULL;
    run->kept_text[0] = '\0';
    MICS_FREE_ALL(run->memory, run->out, run->train.texts, run->train.weights,
                  run->validation.texts, run->trainable.texts, run->targets.texts,
                  run->saved.texts);
    run->out = NULL;
    run->train = run->validation = run->trainable = run->targets = run->saved = (text_list){0};
    memcpy(run->origins, run->adopted, sizeof run->origins);
}

// A folder stands for the file of that name in it, or of the other one where that is there alone.
// `owned` holds the path then.
static mics_status enter_folder(mics_memory *memory, const char **path, const char *name,
                                const char *other, char **owned)
{
    struct stat found;
    mics_status status = MICS_OK;
    char *alone = NULL;
    if (stat(*path, &found) != 0 || !S_ISDIR(found.st_mode))
        return MICS_OK;
    MICS_TRY(mics_file_join(memory, *path, name, owned));
    if (other != NULL && !mics_file_is_there(*owned))
        status = mics_file_join(memory, *path, other, &alone);
    const bool taken = alone != NULL && mics_file_is_there(alone);
    mics_free(memory, taken ? *owned : alone);
    *owned = taken ? alone : *owned;
    *path = *owned;
    return status;
}

// Epochs that are set go before the file's steps.
static mics_status fill_steps(config *run)
{
    uint8_t *state = &run->states[mics_config_find("run.steps")];
    if (run->states[mics_config_find("num_train_epochs")] == KEY_FROM_SET &&
        *state == KEY_FROM_FILE && run->epochs > 0)
        *state = KEY_ABSENT;
    const bool valued = mics_config_valued(run, "run.steps");
    run->run.epochs = valued ? 0 : run->epochs;
    run->run.steps = valued ? run->steps : MICS_STEPS_UNKNOWN;
    if (run->saves_each_epoch && !mics_config_valued(run, "run.checkpoint_every"))
        run->run.checkpoint_every = MICS_STEPS_UNKNOWN;
    if (run->validates_each_epoch && !mics_config_valued(run, "run.validate_every"))
        run->run.validate_every = MICS_STEPS_UNKNOWN;
    if (valued || run->epochs > 0)
        return MICS_OK;
    return mics_json_fail(run->run.json, "run.steps", MICS_ERR_INVALID,
                          "is missing: optimizer steps; give it, with --steps N (train) or --set "
                          "run.steps=N, or num_train_epochs");
}

// The tokenizer of a folder, if it has one.
static mics_status take_tokenizer_of(config *run, const char *folder, const char *origin)
{
    char *owned = NULL;
    const char *path = folder;
    const mics_status status =
        enter_folder(run->memory, &path, "tokenizer.json", "vocab.txt", &owned);
    if (status != MICS_OK || owned == NULL || !mics_file_is_there(owned)) {
        mics_free(run->memory, owned);
        return status;
    }
    run->run.tokenizer = run->tokenizer_path = owned;
    mics_config_set_origin(run, "data.tokenizer", origin);
    return MICS_OK;
}

// A model's folder brings its tokenizer along, where nobody names one; that of its weights, too.
static mics_status take_tokenizer(config *run)
{
    char dir[PATH_BYTES];
    run->run.tokenizer_open = run->states[mics_config_find("data.tokenizer")] == KEY_ABSENT;
    if (!run->run.tokenizer_open)
        return MICS_OK;
    if (run->run.model_folder || run->run.weights_beside) {
        mics_run_folder_of(run->run.model_config, dir);
        MICS_TRY(take_tokenizer_of(run, dir, "auto: that of model.config's folder"));
    }
    if (run->tokenizer_path != NULL || strcmp(run->run.model_init, "random") == 0)
        return MICS_OK;
    return take_tokenizer_of(run, run->run.model_init, "auto: that of model.init's folder");
}

static mics_status enter_model(config *run)
{
    const char *folder = run->run.model_config;
    MICS_TRY(mics_remote_complete(run->memory, folder, MICS_REMOTE_CONFIG));
    if (strcmp(folder, MICS_MODEL_OF_PROGRAM) != 0)
        MICS_TRY(enter_folder(run->memory, &run->run.model_config, "config.json", NULL,
                              &run->config_path));
    return mics_config_take_weights(run, folder);
}

// Everything that the file's values lead to, from the beginning.
static mics_status fill(config *run)
{
    reset(run);
    MICS_TRY(mics_config_enter_phase(run));
    MICS_TRY(mics_config_fetch(run, true));
    MICS_TRY(mics_config_check(run));
    MICS_TRY(mics_config_check_sources(run));
    MICS_TRY(mics_config_join_aliases(run));
    MICS_TRY(mics_config_join_precision(run));
    MICS_TRY(mics_config_fill_adapter(run));
    MICS_TRY(enter_model(run));
    MICS_TRY(fill_steps(run));
    MICS_TRY(check_trace(run));
    MICS_TRY(mics_config_fill_optimizer(run));
    MICS_TRY(mics_config_fill_outer(run));
    run->run.out_of_name = run->run.out == NULL;
    if (run->run.out_of_name)
        MICS_TRY(name_out(run, mics_json_name(run->run.json)));
    run->run.ignore_dropout = mics_config_given(run, "model.dropout");
    run->run.train = run->train.texts;
    run->run.train_weights = run->train.weights;
    run->run.train_count = run->train.count;
    run->run.validation = run->validation.texts;
    run->run.validation_count = run->validation.count;
    if (strcmp(run->run.tokenizer, "bytes") != 0)
        MICS_TRY(enter_folder(run->memory, &run->run.tokenizer, "tokenizer.json", "vocab.txt",
                              &run->tokenizer_path));
    if (strcmp(run->run.model_config, MICS_MODEL_OF_PROGRAM) == 0)
        return MICS_OK;
    MICS_TRY(take_tokenizer(run));
    return check_file(run, "model.config", run->run.model_config);
}

bool mics_run_is_model(const mics_json *json)
{
    return mics_json_at(json, "model_type") != NULL && mics_json_line(json, "model") == 0 &&
           !mics_adopt_names_trainer(json); // run_clm.py has such an argument too
}

static mics_status check_kind(const config *run)
{
    if (!mics_run_is_model(run->run.json))
        return mics_json_line(run->run.json, "run") > 0 ? MICS_OK
                                                        : mics_config_check_program(run->run.json);
    return mics_json_fail(run->run.json, "model_type", MICS_ERR_FORMAT,
                          "this is a model's configuration and no run file; --data FILE trains it "
                          "with --steps N, or give it with --model to a run file");
}

static bool sets_data(const char *const *sets, int32_t set_count)
{
    bool found = false;
    for (int32_t i = 0; i < set_count; i++)
        found = found || strncmp(sets[i], "data.train=", 11) == 0;
    return found;
}

// The run file that a model's configuration stands for, where data is set; else the configuration
// stays what it is.
static mics_status replace_model(mics_memory *memory, const char *name, const char *path,
                                 mics_json **json)
{
    mics_text text = {.memory = memory};
    mics_json *run = NULL;
    mics_text_printf(&text, "{\"model\": {\"config\": ");
    mics_text_quoted(&text, path);
    mics_text_printf(&text, "}, \"train_micro_batch_size_per_gpu\": %d}", BATCH_OF_MODEL);
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_json_parse(memory, name, text.bytes, strlen(text.bytes), &run);
    mics_text_fini(&text);
    MICS_TRY(status);
    mics_json_close(*json);
    *json = run;
    return MICS_OK;
}

// Takes a document.
static mics_status open_take(mics_memory *memory, mics_json *json, const char *const *sets,
                             int32_t set_count, mics_run **run_out)
{
    config *run = NULL;
    mics_status status = MICS_NEW(memory, 1, &run);
    if (status != MICS_OK) {
        mics_json_close(json);
        return status;
    }
    run->memory = memory;
    run->run.json = json;
    run->sets = sets;
    run->set_count = set_count;
    MICS_TRY_OUT(apply_sets(run));
    MICS_TRY_OUT(check_kind(run));
    MICS_TRY_OUT(mics_config_fetch(run, false)); // whose folder tells what program it is for
    MICS_TRY_OUT(mics_config_adopt(run));
    MICS_TRY_OUT(fill(run));
    run->sets = NULL;
    run->set_count = 0;
    *run_out = &run->run;
    run = NULL;
out:
    mics_run_close(run != NULL ? &run->run : NULL);
    return status;
}

// `shown`: what the user named.
static mics_status load(mics_memory *memory, const char *path, const char *shown,
                        const char *const *sets, int32_t set_count, mics_run **run_out)
{
    mics_json *json = NULL;
    const char *file = path;
    char *inside = NULL; // of a model's folder
    MICS_TRY(enter_folder(memory, &file, "config.json", NULL, &inside));
    if (!mics_file_is_there(file) && mics_peft_is_folder(path)) {
        mics_free(memory, inside);
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is an adapter; name the folder of its model, and --adapter %s", path,
                         path);
    }
    if (inside != NULL && !mics_file_is_there(file)) {
        mics_free(memory, inside);
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is a folder without a config.json; name a run file, a model's "
                         "config.json, or the folder of one",
                         path);
    }
    const mics_status script = mics_config_check_script(memory, file);
    if (script != MICS_OK) {
        mics_free(memory, inside);
        return script;
    }
    const mics_status loaded = mics_json_load(memory, file, MAX_RUN_FILE_BYTES, &json);
    mics_free(memory, inside);
    MICS_TRY(loaded);
    if (mics_run_is_model(json) && sets_data(sets, set_count)) {
        const mics_status status = replace_model(memory, shown, path, &json);
        if (status != MICS_OK) {
            mics_json_close(json);
            return status;
        }
    }
    return open_take(memory, json, sets, set_count, run_out);
}

mics_status mics_run_load(mics_memory *memory, const char *path, const char *const *sets,
                          int32_t set_count, mics_run **run_out)
{
    char *local = NULL, *shown = NULL;
    mics_status status = MICS_OK;
    if (!mics_remote_is(path))
        return load(memory, path, path, sets, set_count, run_out);
    MICS_TRY(mics_remote_fetch(memory, path, MICS_REMOTE_CONFIG, &local));
    status = mics_strdup(memory, path, &shown);
    if (status == MICS_OK)
        mics_text_hide_secrets(shown);
    if (status == MICS_OK)
        status = load(memory, local, shown, sets, set_count, run_out);
    MICS_FREE_ALL(memory, local, shown);
    return status;
}

mics_status mics_run_parse(mics_memory *memory, const char *name, const char *text,
                           const char *const *sets, int32_t set_count, mics_run **run_out)
{
    mics_json *json = NULL;
    MICS_TRY(mics_json_parse(memory, name, text, strlen(text), &json));
    return open_take(memory, json, sets, set_count, run_out);
}

mics_status mics_run_keep(mics_run *public_run, const char *name, const char *text)
{
    config *run = (config *)public_run; // invariant 1 of keys.h
    MICS_TRY(mics_json_parse(run->memory, name, text, strlen(text), &run->kept));
    mics_config_begin_keep(run);
    const mics_status status = fill(run);
    mics_json_close(run->kept);
    run->kept = NULL;
    return status;
}

const char *mics_run_program_text(const mics_run *public_run)
{
    const config *run = (const config *)public_run; // invariant 1 of keys.h
    return run->program_text[0] != '\0' ? run->program_text : run->weights_text;
}

const char *mics_run_kept_text(const mics_run *public_run)
{
    return ((const config *)public_run)->kept_text; // invariant 1 of keys.h
}

bool mics_run_keeps_batch(const mics_run *public_run)
{
    return ((const config *)public_run)->keeps_batch; // invariant 1 of keys.h
}

void mics_run_close(mics_run *public_run)
{
    if (public_run == NULL)
        return;
    config *run = (config *)public_run; // invariant 1 of keys.h
    mics_json_close(run->run.json);
    reset(run);
    mics_free(run->memory, run->phases_text);
    mics_free(run->memory, run);
}
