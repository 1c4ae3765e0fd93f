// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A checkpoint as Hugging Face safetensors, tensor by tensor in bounded memory.
#include "base/file.h"
#include "mics/checkpoint.h"
#include "mics/log.h"
#include "saved.h"
#include <string.h>
#include <unistd.h>

enum { CHUNK_ELEMS = 1 << 20 };

// ---- tensors ----

static int32_t count_params(const mics_model *model)
{
    int32_t count = 0;
    for (int32_t unit = 0; unit < model->unit_count; unit++)
        count += model->units[unit].param_count;
    return count;
}

// In the model's order; write_tensors follows it.
static void list_tensors(const mics_model *model, mics_safetensors_entry *entries)
{
    int32_t count = 0;
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        for (int32_t i = 0; i < model->units[unit].param_count; i++) {
            const mics_param *param = &model->units[unit].params[i];
            mics_safetensors_entry entry = {.name = param->name, .dims = param->dims};
            for (int32_t dim = 0; dim < param->dims; dim++)
                entry.shape[dim] = param->shape[dim];
            entries[count++] = entry;
        }
    }
}

static mics_status write_tensor(const mics_saved *saved, const mics_unit *unit,
                                const mics_param *param, mics_safetensors_writer *writer,
                                float *chunk)
{
    int64_t at = param->offset, end = param->offset + param->elems;
    while (at < end) {
        int64_t next = end - at < CHUNK_ELEMS ? end : at + CHUNK_ELEMS;
        MICS_TRY(mics_checkpoint_read(saved->checkpoint, unit->name, unit->elems, MICS_STATE_PARAM,
                                      at, next, chunk));
        MICS_TRY(mics_safetensors_append(writer, chunk, next - at));
        at = next;
    }
    return MICS_OK;
}

static mics_status write_tensors(const mics_saved *saved, mics_safetensors_writer *writer)
{
    float *chunk = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(MICS_NEW(saved->memory, CHUNK_ELEMS, &chunk));
    for (int32_t u = 0; u < saved->model->unit_count && status == MICS_OK; u++) {
        const mics_unit *unit = &saved->model->units[u];
        for (int32_t i = 0; i < unit->param_count && status == MICS_OK; i++)
            status = write_tensor(saved, unit, &unit->params[i], writer, chunk);
    }
    mics_free(saved->memory, chunk);
    return status;
}

// A tensor is never cut, so a file may be larger than what was asked for.
static void warn_large(const mics_safetensors_entry *entries, int32_t count, int64_t max_bytes)
{
    int32_t larger = 0;
    for (int32_t i = 0; i < count && max_bytes > 0; i++) {
        int64_t elems = 1;
        for (int32_t dim = 0; dim < entries[i].dims; dim++)
            elems *= entries[i].shape[dim];
        larger += elems > max_bytes / (int64_t)sizeof(float);
    }
    if (larger > 0)
        mics_log(MICS_LOG_WARNING,
                 "%d tensors are larger than --max-shard-bytes %lld; each has a larger file of its "
                 "own",
                 (int)larger, (long long)max_bytes);
}

static mics_status write_model(const mics_saved *saved, const char *dir, int64_t max_file_bytes)
{
    mics_safetensors_entry *entries = NULL;
    mics_safetensors_writer *writer = NULL;
    int32_t count = count_params(saved->model);
    MICS_TRY(MICS_NEW(saved->memory, count, &entries));
    list_tensors(saved->model, entries);
    warn_large(entries, count, max_file_bytes);
    mics_status status =
        mics_safetensors_create(saved->memory, dir, entries, count, max_file_bytes, &writer);
    if (status == MICS_OK)
        status = mics_safetensors_finish(writer, write_tensors(saved, writer));
    mics_free(saved->memory, entries);
    return status;
}

// ---- what stands beside them ----

static mics_status refuse_existing(mics_memory *memory, const char *dir, const char *name)
{
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, dir, name, &path));
    mics_status status = MICS_OK;
    if (access(path, F_OK) == 0)
        status = mics_fail(MICS_ERR_INVALID,
                           "%s: exists, and is not overwritten; give another folder", path);
    mics_free(memory, path);
    return status;
}

static mics_status write_beside(const mics_saved *saved, const char *dir)
{
    const char *config = saved->meta->model_json;
    size_t bytes = 0;
    const char *tokenizer = mics_tokenizer_text(saved->tokenizer, &bytes);
    MICS_TRY(mics_file_replace(saved->memory, dir, "config.json", config, strlen(config)));
    if (tokenizer != NULL)
        MICS_TRY(mics_file_replace(saved->memory, dir, "tokenizer.json", tokenizer, bytes));
    return mics_file_sync_dir(dir);
}

mics_status mics_saved_export(const mics_saved *saved, const char *dir, int64_t max_file_bytes)
{
    MICS_TRY(refuse_existing(saved->memory, dir, "config.json"));
    MICS_TRY(refuse_existing(saved->memory, dir, "tokenizer.json"));
    MICS_TRY(mics_file_make_dirs(saved->memory, dir));
    mics_log_hold(false);
    MICS_TRY(run_saved_speak(write_model(saved, dir, max_file_bytes)));
    return write_beside(saved, dir);
}
