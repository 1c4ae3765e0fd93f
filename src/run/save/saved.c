// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Finding and opening a checkpoint in one process.
#include "saved.h"
#include "adapter.h"
#include "base/file.h"
#include "base/free.h"
#include "base/size.h"
#include "base/text.h"
#include "import.h"
#include "io/checkpoint/store.h"
#include "mics/builder.h"
#include "mics/core/device.h"
#include "mics/log.h"
#include "model/from_config.h"
#include "ops/kernels.h"
#include "run/hf_metadata.h"
#include "run/model.h"
#include "run/model_files.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- finding it ----

// PATH/NAME is there?
static mics_status has(mics_memory *memory, const char *path, const char *name, bool *has_out)
{
    char *joined = NULL;
    MICS_TRY(mics_file_join(memory, path, name, &joined));
    *has_out = mics_store_is_there(joined);
    mics_free(memory, joined);
    return MICS_OK;
}

// A step's folder or a run's, whatever else was put there.
static mics_status is_run(mics_memory *memory, const char *path, bool *is_out)
{
    *is_out = mics_remote_is_bucket(path); // checkpoints alone are read from there
    if (!*is_out)
        MICS_TRY(has(memory, path, "manifest.json", is_out));
    return *is_out ? MICS_OK : has(memory, path, "checkpoints", is_out);
}

// Whether a path is a run's file `best` or `latest`, by its name.
static bool is_name_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    return strcmp(name, "best") == 0 || strcmp(name, "latest") == 0;
}

// The folder that a run's file `best` or `latest` names, which lies beside it; NULL: PATH is no
// such file.
static mics_status find_named(mics_memory *memory, const char *path, char **folder_out)
{
    char *text = NULL, *dir = NULL;
    size_t bytes = 0;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    struct stat facts;
    const bool bucket = mics_remote_is_bucket(path);
    if (!is_name_file(path) || (!bucket && (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode))))
        return MICS_OK;
    MICS_TRY(mics_store_read_whole(memory, path, 64, &text, &bytes));
    text[strcspn(text, "\n")] = '\0';
    mics_status status = MICS_OK;
    if (strncmp(text, "step-", 5) != 0 || !mics_file_plain_name(text))
        status = mics_fail(MICS_ERR_FORMAT, "%s: does not name a step's folder", path);
    else if ((status = mics_strdup(memory, path, &dir)) == MICS_OK) {
        dir[name - path] = '\0';
        status = mics_file_join(memory, *dir != '\0' ? dir : ".", text, folder_out);
    }
    mics_free(memory, dir);
    mics_free(memory, text);
    return status;
}

mics_status run_checkpoint_find(mics_memory *memory, const char *path, char **folder_out)
{
    bool is_checkpoint = false, has_checkpoints = false;
    char *dir = NULL, *found = NULL;
    if (!mics_remote_is_bucket(path) && access(path, F_OK) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: %s", path, strerror(errno));
    MICS_TRY(find_named(memory, path, &found));
    if (found != NULL) {
        *folder_out = found;
        return MICS_OK;
    }
    MICS_TRY(has(memory, path, "manifest.json", &is_checkpoint));
    if (is_checkpoint)
        return mics_strdup(memory, path, folder_out);
    MICS_TRY(has(memory, path, "checkpoints", &has_checkpoints));
    MICS_TRY(mics_file_join(memory, path, has_checkpoints ? "checkpoints" : ".", &dir));
    mics_status status = mics_checkpoint_latest(memory, dir, &found);
    mics_free(memory, dir);
    MICS_TRY(status);
    if (found == NULL)
        return mics_fail(
            MICS_ERR_IO,
            "%s: holds no complete checkpoint; give a step's folder, that of a run, or one "
            "with config.json and model.safetensors",
            path);
    *folder_out = found;
    return MICS_OK;
}

// ---- opening ----

// Neither what was trained on nor what was validated on is a text.
static bool only_shards(const mics_json *run)
{
    const mics_json_value *const lists[] = {mics_json_at(run, "data.train"),
                                            mics_json_at(run, "data.validation")};
    bool shards = mics_json_count(lists[0]) > 0;
    for (int list = 0; list < 2; list++) {
        for (int32_t i = 0; i < mics_json_count(lists[list]); i++) {
            const mics_json_value *element = mics_json_element(lists[list], i);
            const char *path = mics_json_type_of(element) == MICS_JSON_OBJECT
                                   ? mics_json_string(mics_json_get(element, "path"))
                                   : mics_json_string(element);
            shards = shards && path != NULL && run_is_shard(path);
        }
    }
    return shards;
}

// What the checkpoint keeps of the model's folder. Those of older versions leave its generation_config.json
// there.
static mics_status read_files(mics_saved *saved, const char *init)
{
    char *read = NULL;
    const char *text = saved->meta->model_files;
    if (text == NULL && init != NULL && strcmp(init, "random") != 0)
        MICS_TRY(run_model_files_read(saved->memory, &(run_model_folders){.weights = init}, false,
                                      &read));
    const mics_status status = run_model_files_parse(saved->memory, saved->path,
                                                     text != NULL ? text : read, &saved->files);
    mics_free(saved->memory, read);
    MICS_TRY(status);
    text = run_model_files_find(saved->files, "generation_config.json");
    if (text == NULL)
        return MICS_OK;
    MICS_TRY(mics_json_parse(saved->memory, saved->path, text, strlen(text), &saved->generation));
    return mics_model_check_ends(saved->generation);
}

// What the run says: its data, and its sequences, which may use fewer positions than the model has.
static mics_status read_run(mics_saved *saved)
{
    mics_json *run = NULL;
    const char *text = saved->meta->run_json;
    saved->sequence = saved->model->positions;
    if (text == NULL)
        return read_files(saved, NULL);
    MICS_TRY(mics_json_parse(saved->memory, saved->path, text, strlen(text), &run));
    mics_status status = run_saved_open_base(saved, run);
    if (status != MICS_OK) {
        mics_json_close(run);
        return status;
    }
    int64_t trained = mics_json_int(mics_json_at(run, "data.sequence_length"));
    saved->only_shards = only_shards(run);
    saved->frames_texts = mics_json_bool(mics_json_at(run, "data.add_special_tokens"));
    saved->document_mask = mics_json_bool(mics_json_at(run, "data.document_mask"));
    if (saved->document_mask)
        mics_model_set_segments(saved->model);
    const char *specials = mics_json_string(mics_json_at(run, "data.special_tokens"));
    saved->special_tokens = specials != NULL && strcmp(specials, "parse") == 0;
    const char *field = mics_json_string(mics_json_at(run, "data.text_field"));
    if (field != NULL)
        status = mics_strdup(saved->memory, field, &saved->text_field);
    // A fine-tuned model ends its texts as before.
    if (status == MICS_OK)
        status = read_files(saved, mics_json_string(mics_json_at(run, "model.init")));
    mics_json_close(run);
    MICS_TRY(status);
    if (trained > 0 && trained < saved->sequence)
        saved->sequence = trained;
    return MICS_OK;
}

static mics_status load_config(mics_saved *saved, const char *folder)
{
    char *file = NULL;
    MICS_TRY(mics_file_join(saved->memory, folder, "config.json", &file));
    const mics_status status =
        mics_json_load(saved->memory, file, MICS_MODEL_CONFIG_MAX_BYTES, &saved->config);
    mics_free(saved->memory, file);
    return status;
}

// generation_config.json's, or config.json's; both were checked when they were read.
static mics_status read_ends(mics_saved *saved)
{
    static const char key[] = "eos_token_id";
    const bool own = saved->generation != NULL && mics_json_at(saved->generation, key) != NULL;
    const mics_json_value *value = mics_json_at(own ? saved->generation : saved->config, key);
    const bool list = mics_json_type_of(value) == MICS_JSON_ARRAY;
    const bool none = mics_json_type_of(value) == MICS_JSON_NULL;
    saved->end_count = list ? mics_json_count(value) : none ? 0 : 1;
    MICS_TRY(MICS_NEW(saved->memory, saved->end_count, &saved->ends));
    for (int32_t i = 0; i < saved->end_count; i++)
        saved->ends[i] = mics_json_int(list ? mics_json_element(value, i) : value);
    return MICS_OK;
}

static mics_status open_checkpoint(mics_saved *saved, const char *path,
                                   const mics_model_builder *builder)
{
    mics_memory *memory = saved->memory;
    MICS_TRY(run_checkpoint_find(memory, path, &saved->path));
    MICS_TRY(mics_checkpoint_open(memory, saved->path, &saved->checkpoint));
    saved->meta = mics_checkpoint_meta_get(saved->checkpoint);
    const char *config = saved->meta->model_json;
    MICS_TRY(mics_json_parse(memory, saved->path, config, strlen(config), &saved->config));
    // Only training has dropout.
    MICS_TRY(run_model_build(memory, builder, saved->config, true, &saved->model));
    MICS_TRY(read_run(saved));
    if (run_tokens_unknown(saved->meta->tokenizer, saved->only_shards, saved->model->vocab))
        return MICS_OK;
    return mics_tokenizer_open(memory, saved->meta->tokenizer, &saved->tokenizer);
}

// The tokenizer may be missing: then no text is read or written.
static mics_status open_downloaded_tokenizer(mics_saved *saved)
{
    static const char *const names[] = {"tokenizer.json", "vocab.txt"};
    bool there = false;
    int at = 0;
    for (; at < 2 && !there; at++)
        MICS_TRY(has(saved->memory, saved->path, names[at], &there));
    if (!there)
        return MICS_OK;
    MICS_TRY(mics_file_join(saved->memory, saved->path, names[at - 1], &saved->tokenizer_path));
    bool is_bytes = false;
    MICS_TRY(run_is_byte_tokenizer(saved->memory, saved->tokenizer_path, &is_bytes));
    saved->downloaded.tokenizer = is_bytes ? "bytes" : saved->tokenizer_path;
    MICS_TRY(mics_tokenizer_open(saved->memory, saved->downloaded.tokenizer, &saved->tokenizer));
    run_warn_of_frame(saved->memory, saved->path, saved->tokenizer);
    return MICS_OK;
}

// Weights, config.json and tokenizer.json as Hugging Face's folders hold them.
static mics_status open_downloaded(mics_saved *saved, const char *path)
{
    MICS_TRY(mics_strdup(saved->memory, path, &saved->path));
    MICS_TRY(load_config(saved, path));
    MICS_TRY(run_import_generation(saved->memory, path, &saved->generation));
    saved->frames_texts = true;
    saved->downloaded = (mics_checkpoint_meta){.model_json = mics_json_text(saved->config)};
    saved->meta = &saved->downloaded;
    MICS_TRY(run_model_build(saved->memory, NULL, saved->config, true, &saved->model));
    saved->sequence = saved->model->positions;
    if (saved->peft.spec.rank > 0)
        MICS_TRY(run_saved_add_adapter(saved));
    MICS_TRY(run_import_open(saved->memory, saved->model, path, &saved->weights));
    return open_downloaded_tokenizer(saved);
}

// A model's name may be a hub's; two folders that are here are the same or not.
static bool is_other_folder(const char *path, const char *other)
{
    struct stat a, b;
    return path != NULL && other != NULL && stat(path, &a) == 0 && stat(other, &b) == 0 &&
           (a.st_dev != b.st_dev || a.st_ino != b.st_ino);
}

// A folder of PEFT's, on the model that it names or saved->base.
static mics_status open_peft(mics_saved *saved, const char *path)
{
    bool is_folder = false;
    MICS_TRY(mics_peft_init(saved->memory, path, &saved->peft));
    const char *base = saved->base != NULL ? saved->base : saved->peft.base;
    if (base != NULL && access(base, F_OK) == 0)
        MICS_TRY(run_import_is_folder(saved->memory, base, &is_folder));
    if (!is_folder)
        return mics_fail(MICS_ERR_IO,
                         "%s: its model%s%s is no folder with config.json and model.safetensors "
                         "here; --base FOLDER says where that is",
                         path, base != NULL ? " " : ", which it does not name,",
                         base != NULL ? base : "");
    if (saved->base == NULL)
        MICS_TRY(mics_strdup(saved->memory, base, &saved->base));
    if (is_other_folder(saved->peft.base, saved->base))
        mics_log(MICS_LOG_WARNING,
                 "%s: names %s as its model, and is put on %s; an adapter fits its own model alone",
                 path, saved->peft.base, saved->base);
    MICS_TRY(open_downloaded(saved, saved->base));
    MICS_TRY(run_import_open_adapter(saved->memory, saved->model, path, &saved->adapter));
    mics_free(saved->memory, saved->path);
    saved->path = NULL;
    return mics_strdup(saved->memory, path, &saved->path);
}

static mics_status open_saved(mics_saved *saved, const char *path,
                              const mics_model_builder *builder)
{
    bool downloaded = false, run = false;
    MICS_TRY(is_run(saved->memory, path, &run));
    const bool peft = !run && mics_peft_is_folder(path);
    if (!run && !peft)
        MICS_TRY(run_import_is_folder(saved->memory, path, &downloaded));
    if (downloaded && saved->base != NULL)
        return mics_fail(MICS_ERR_INVALID, "%s: is a whole model, and no adapter for one", path);
    MICS_TRY(peft         ? open_peft(saved, path)
             : downloaded ? open_downloaded(saved, path)
                          : open_checkpoint(saved, path, builder));
    return builder == NULL ? read_ends(saved) : MICS_OK; // a program describes models its own way
}

// A run file is easily given in place of the run.
static mics_status check_folder(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode) && !is_name_file(path)
               ? mics_fail(MICS_ERR_INVALID,
                           "%s: is a file; give a folder: a run's (its run.out, as runs/NAME), a "
                           "step's in RUN/checkpoints, or one from Hugging Face",
                           path)
               : MICS_OK;
}

static mics_status open_on(mics_memory *memory, const char *path, const char *base, bool alone,
                           const mics_model_builder *builder, mics_saved **saved_out)
{
    mics_saved *saved = NULL;
    MICS_TRY(check_folder(path));
    MICS_TRY(MICS_NEW(memory, 1, &saved));
    saved->memory = memory;
    saved->alone = alone;
    mics_status status = base != NULL ? mics_strdup(memory, base, &saved->base) : MICS_OK;
    if (status == MICS_OK)
        status = open_saved(saved, path, builder);
    if (status == MICS_OK)
        *saved_out = saved;
    else
        mics_saved_close(saved);
    return status;
}

mics_status mics_saved_open(mics_memory *memory, const char *path,
                            const mics_model_builder *builder, mics_saved **saved_out)
{
    return open_on(memory, path, NULL, false, builder, saved_out);
}

mics_status run_saved_open_alone(mics_memory *memory, const char *path,
                                 const mics_model_builder *builder, mics_saved **saved_out)
{
    return open_on(memory, path, NULL, true, builder, saved_out);
}

mics_status mics_saved_open_adapter(mics_memory *memory, const char *path, const char *base,
                                    mics_saved **saved_out)
{
    return open_on(memory, path, base, false, NULL, saved_out);
}

void mics_saved_listen(mics_saved *saved, const mics_work_listener *listener)
{
    saved->listener = *listener;
}

static void free_params(mics_saved *saved)
{
    for (int32_t unit = 0; saved->params != NULL && unit < saved->model->unit_count; unit++)
        mics_free(saved->memory, saved->params[unit]);
    mics_free(saved->memory, saved->params);
    saved->params = NULL;
}

void mics_saved_close(mics_saved *saved)
{
    if (saved == NULL)
        return;
    free_params(saved);
    mics_tokenizer_close(saved->tokenizer);
    mics_model_close(saved->model);
    mics_json_close(saved->config);
    mics_json_close(saved->generation);
    mics_json_close(saved->files);
    mics_free(saved->memory, saved->ends);
    mics_checkpoint_close(saved->checkpoint);
    mics_safetensors_close(saved->weights);
    mics_safetensors_close(saved->adapter);
    mics_peft_fini(saved->memory, &saved->peft);
    MICS_FREE_ALL(saved->memory, saved->base, saved->tokenizer_path, saved->text_field, saved->path,
                  saved);
}

// bf16 where the files hold it alone: checkpoints hold fp32, and bf16 has not fp16's digits.
static mics_dtype stored_dtype(const mics_saved *saved)
{
    if (saved->weights == NULL || saved->base != NULL)
        return MICS_DTYPE_FP32;
    for (int32_t i = 0; i < mics_safetensors_count(saved->weights); i++) {
        const mics_tensor_info *info = mics_safetensors_at(saved->weights, i);
        if (info->dims > 1 && strcmp(info->dtype, "BF16") != 0)
            return MICS_DTYPE_FP32;
    }
    return MICS_DTYPE_BF16;
}

mics_saved_facts mics_saved_facts_get(const mics_saved *saved)
{
    return (mics_saved_facts){
        .path = saved->path,
        .step = saved->meta->step,
        .sequence = saved->sequence,
        .tokenizer = saved->tokenizer != NULL ? saved->meta->tokenizer : NULL,
        .model = saved->model,
        .dtype = stored_dtype(saved),
        .adapter_elems = run_adapter_elems(saved->model),
    };
}

mics_status run_saved_speak(mics_status status)
{
    if (status == MICS_ERR_FORMAT)
        mics_log_add(RUN_SAVED_ADVICE);
    mics_log_release(status != MICS_OK, -1);
    return status;
}

// ---- parameters ----

static size_t unit_bytes(const mics_unit *unit, mics_dtype dtype)
{
    return mics_decoder_place(unit, unit->param_count, dtype);
}

static double param_bytes(const mics_model *model, mics_dtype dtype)
{
    double bytes = 0;
    for (int32_t unit = 0; unit < model->unit_count; unit++)
        bytes += (double)unit_bytes(&model->units[unit], dtype);
    return bytes;
}

mics_status mics_saved_is_large(const mics_saved *saved, bool *large_out)
{
    mics_machine machine;
    MICS_TRY(mics_machine_read(&machine));
    *large_out =
        param_bytes(saved->model, MICS_DTYPE_FP32) > (double)machine.memory_available_bytes / 4;
    return MICS_OK;
}

mics_status run_saved_check_fits(const mics_saved *saved, const char *what, double bytes)
{
    mics_machine machine;
    char needed[32], there[32];
    MICS_TRY(mics_machine_read(&machine));
    if (bytes <= (double)machine.memory_available_bytes)
        return MICS_OK;
    return mics_fail(MICS_ERR_MEMORY, "%s: %s needs %s of memory, %s are available", saved->path,
                     what, mics_size_text(bytes, needed, sizeof needed),
                     mics_size_text((double)machine.memory_available_bytes, there, sizeof there));
}

mics_status run_saved_read(const mics_saved *saved, int32_t unit, mics_range range, float *data_out)
{
    const mics_unit *of = &saved->model->units[unit];
    if (saved->adapter != NULL && !of->frozen)
        return run_import_read(of, saved->adapter, true, range, data_out);
    if (saved->weights != NULL && (of->frozen || saved->checkpoint == NULL))
        return run_import_read(of, saved->weights, false, range, data_out);
    if (of->frozen) {
        mics_engine_draw(of, saved->meta->seed, false, range, data_out);
        return MICS_OK;
    }
    return mics_checkpoint_read(saved->checkpoint, of->name, of->elems, MICS_STATE_PARAM,
                                range.begin, range.end, data_out);
}

mics_status run_saved_fill(const mics_saved *saved, mics_engine *engine)
{
    for (int32_t unit = 0; unit < saved->model->unit_count; unit++) {
        const int64_t elems = saved->model->units[unit].elems;
        mics_engine_optimizer_shard owned = mics_engine_optimizer_shard_get(engine, unit);
        if (owned.shard.end > elems)
            owned.shard.end = elems;
        if (owned.shard.begin < owned.shard.end)
            MICS_TRY(run_saved_read(saved, unit, owned.shard, owned.shard_params));
    }
    return mics_engine_upload(engine);
}

// To bf16, parameter by parameter.
static void pack_unit(const mics_unit *unit, const float *from, void *to)
{
    const mics_kernels *kernels = mics_kernels_get(NULL);
    for (int32_t p = 0; p < unit->param_count; p++) {
        const mics_param *param = &unit->params[p];
        void *at = (char *)to + mics_decoder_place(unit, p, MICS_DTYPE_BF16);
        if (param->dims > 1)
            kernels->pack_bf16(at, from + param->offset, param->elems);
        else
            memcpy(at, from + param->offset, (size_t)param->elems * sizeof *from);
    }
}

static mics_status open_unit(mics_saved *saved, const mics_unit *unit, mics_dtype dtype,
                             void **params_out)
{
    return mics_alloc(saved->memory, MICS_MEM_PARAMS, unit_bytes(unit, dtype), params_out);
}

// Into its own buffer, or through one of fp32.
static mics_status read_unit(mics_saved *saved, int32_t unit)
{
    const mics_unit *of = &saved->model->units[unit];
    void *read = NULL;
    MICS_TRY(open_unit(saved, of, saved->dtype, &saved->params[unit]));
    if (saved->dtype == MICS_DTYPE_FP32)
        return run_saved_read(saved, unit, (mics_range){0, of->elems}, saved->params[unit]);
    MICS_TRY(open_unit(saved, of, MICS_DTYPE_FP32, &read));
    const mics_status status = run_saved_read(saved, unit, (mics_range){0, of->elems}, read);
    if (status == MICS_OK)
        pack_unit(of, read, saved->params[unit]);
    mics_free(saved->memory, read);
    return status;
}

static mics_status read_params(mics_saved *saved, mics_dtype dtype)
{
    if (saved->params != NULL && saved->dtype == dtype)
        return MICS_OK;
    if (saved->params != NULL)
        return mics_fail(MICS_ERR_INVALID, "%s: its parameters are loaded as %s already",
                         saved->path, mics_dtype_text(saved->dtype));
    saved->dtype = dtype;
    MICS_TRY(run_saved_check_fits(saved, "the model", param_bytes(saved->model, dtype)));
    MICS_TRY(MICS_NEW(saved->memory, saved->model->unit_count, &saved->params));
    mics_status status = MICS_OK;
    for (int32_t unit = 0; unit < saved->model->unit_count && status == MICS_OK; unit++) {
        status = read_unit(saved, unit);
        mics_work_tell(&saved->listener, "loading parameters", unit + 1, saved->model->unit_count);
    }
    if (status != MICS_OK)
        free_params(saved);
    return status;
}

mics_status mics_saved_load(mics_saved *saved, mics_dtype dtype)
{
    if (saved->model->masked)
        return mics_fail(
            MICS_ERR_INVALID,
            "%s: is an encoder, which continues no text; \"mics generate --fill TEXT\" "
            "finds words for the mask tokens of a text",
            saved->path);
    if (saved->tokenizer == NULL && saved->checkpoint == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: holds no tokenizer.json, so nobody knows what text its tokens are; "
                         "transformers' AutoTokenizer.from_pretrained(...).save_pretrained(...) "
                         "writes one",
                         saved->path);
    if (saved->tokenizer == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: was trained on token shards without a data.tokenizer, so nobody "
                         "knows what text its tokens are; name one in the run file",
                         saved->path);
    mics_log_hold(false);
    return run_saved_speak(read_params(saved, dtype));
}
