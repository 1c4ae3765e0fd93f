// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A checkpoint as Hugging Face safetensors, tensor by tensor in bounded memory: whole, with its adapter
// merged, or the adapter alone.
#include "adapter.h"
#include "base/file.h"
#include "merge.h"
#include "mics/core/checkpoint.h"
#include "mics/log.h"
#include "run/hf_metadata.h"
#include "run/model_files.h"
#include "saved.h"

enum { WINDOW_ELEMS = 1 << 20 };

// ---- tensors ----

// Of which parameters an export is.
typedef enum contents { WHOLE, MERGED, ADAPTER } contents;

static mics_safetensors_entry entry_of(const mics_param_tensor *tensor, mics_dtype dtype)
{
    mics_safetensors_entry entry = {.name = tensor->name, .dims = tensor->dims, .dtype = dtype};
    for (int32_t dim = 0; dim < tensor->dims; dim++)
        entry.shape[dim] = tensor->shape[dim];
    return entry;
}

// Counts them, in the model's order, which write_tensors follows; entries NULL: they are counted alone.
static int32_t list_tensors(const mics_model *model, contents of, mics_dtype dtype,
                            mics_safetensors_entry *entries)
{
    mics_param_tensor tensor;
    int32_t count = 0;
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        for (int32_t i = 0; i < model->units[unit].param_count; i++) {
            const mics_param *param = &model->units[unit].params[i];
            for (int32_t part = 0; run_adapter_is_in(param, of == ADAPTER) &&
                                   mics_param_next_tensor(param, &part, &tensor);
                 count++) {
                if (entries != NULL)
                    entries[count] = entry_of(&tensor, dtype);
            }
        }
    }
    return count;
}

// What was read last of a parameter: small parts of one, such as the heads of a bias, are read
// together.
typedef struct read_window {
    const mics_saved *saved;
    contents of;
    int32_t unit;
    mics_range range; // of the unit
    run_merge merge;  // of the parameter
    float *elems;     // (WINDOW_ELEMS)
    int64_t written;  // parameters, so far
} read_window;

// Moves the window to `at` unless it is there; it ends with the parameter at the latest.
static mics_status move_window(read_window *window, const mics_param *param, int64_t at)
{
    const int64_t end = param->offset + param->elems;
    if (at >= window->range.begin && at < window->range.end)
        return MICS_OK;
    window->range = (mics_range){at, end - at < WINDOW_ELEMS ? end : at + WINDOW_ELEMS};
    MICS_TRY(run_saved_read(window->saved, window->unit, window->range, window->elems));
    run_merge_add(&window->merge, param, at - param->offset,
                  window->range.end - window->range.begin, window->elems);
    return MICS_OK;
}

static mics_status write_part(read_window *window, const mics_param *param,
                              const mics_param_part *part, mics_safetensors_writer *writer)
{
    const int64_t row_elems = mics_param_row_elems(param);
    int64_t at = param->offset + part->row * row_elems;
    const int64_t end = at + part->rows * row_elems;
    while (at < end) {
        MICS_TRY(move_window(window, param, at));
        const int64_t next = end < window->range.end ? end : window->range.end;
        MICS_TRY(
            mics_safetensors_append(writer, window->elems + (at - window->range.begin), next - at));
        window->written += next - at;
        mics_work_tell(&window->saved->listener, "writing parameters", window->written,
                       mics_model_param_count(window->saved->model));
        at = next;
    }
    return MICS_OK;
}

// A parameter's parts are in the order of its tensors.
static mics_status write_param(read_window *window, int32_t index, mics_safetensors_writer *writer)
{
    const mics_param *param = &window->saved->model->units[window->unit].params[index];
    mics_status status = MICS_OK;
    if (window->of == MERGED)
        status =
            run_merge_init(window->saved, (mics_param_ref){window->unit, index}, &window->merge);
    for (int32_t part = 0; part < param->part_count && status == MICS_OK; part++)
        status = write_part(window, param, &param->parts[part], writer);
    run_merge_fini(window->saved, &window->merge);
    return status;
}

static mics_status write_unit(read_window *window, int32_t index, mics_safetensors_writer *writer)
{
    const mics_unit *unit = &window->saved->model->units[index];
    window->unit = index;
    window->range = (mics_range){0, 0};
    for (int32_t i = 0; i < unit->param_count; i++) {
        if (run_adapter_is_in(&unit->params[i], window->of == ADAPTER))
            MICS_TRY(write_param(window, i, writer));
    }
    return MICS_OK;
}

static mics_status write_tensors(const mics_saved *saved, contents of,
                                 mics_safetensors_writer *writer)
{
    read_window window = {.saved = saved, .of = of};
    MICS_TRY(MICS_NEW(saved->memory, WINDOW_ELEMS, &window.elems));
    mics_status status = MICS_OK;
    for (int32_t u = 0; u < saved->model->unit_count && status == MICS_OK; u++)
        status = write_unit(&window, u, writer);
    mics_free(saved->memory, window.elems);
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
        larger += elems > max_bytes / (int64_t)mics_dtype_bytes(entries[i].dtype);
    }
    if (larger > 0)
        mics_log(MICS_LOG_WARNING,
                 "%d tensors are larger than --max-shard-bytes %lld; each has a larger file of its "
                 "own",
                 (int)larger, (long long)max_bytes);
}

static mics_status open_adapter(const mics_saved *saved, const char *dir,
                                mics_safetensors_entry *entries, int32_t count,
                                mics_safetensors_writer **writer_out)
{
    char(*names)[RUN_ADAPTER_NAME_BYTES] = NULL;
    MICS_TRY(MICS_NEW(saved->memory, count, &names));
    for (int32_t i = 0; i < count; i++) {
        run_adapter_name(entries[i].name, names[i]);
        entries[i].name = names[i];
    }
    const mics_status status =
        mics_safetensors_create_adapter(saved->memory, dir, entries, count, writer_out);
    mics_free(saved->memory, names);
    return status;
}

static mics_status open_writer(const mics_saved *saved, contents of, const char *dir,
                               const mics_export_spec *spec, mics_safetensors_writer **writer_out)
{
    mics_safetensors_entry *entries = NULL;
    const int32_t count = list_tensors(saved->model, of, spec->dtype, NULL);
    MICS_TRY(MICS_NEW(saved->memory, count, &entries));
    (void)list_tensors(saved->model, of, spec->dtype, entries);
    if (of != ADAPTER)
        warn_large(entries, count, spec->max_file_bytes);
    const mics_status status = of == ADAPTER
                                   ? open_adapter(saved, dir, entries, count, writer_out)
                                   : mics_safetensors_create(saved->memory, dir, entries, count,
                                                             spec->max_file_bytes, writer_out);
    mics_free(saved->memory, entries);
    return status;
}

static mics_status write_beside(const mics_saved *saved, contents of, const char *dir,
                                mics_dtype dtype)
{
    if (of != ADAPTER)
        return run_hf_metadata_write(saved, dir, dtype);
    if (saved->base == NULL)
        mics_log(
            MICS_LOG_WARNING,
            "%s: is an adapter of random weights, which are in no folder; --merge exports them "
            "with it",
            dir);
    MICS_TRY(run_adapter_write_config(saved, dir));
    return run_hf_metadata_write_tokens(saved, dir);
}

// The weights are renamed into place last: where they stand, all stands.
static mics_status write_model(const mics_saved *saved, const char *dir,
                               const mics_export_spec *spec)
{
    mics_safetensors_writer *writer = NULL;
    const contents of = saved->peft.spec.rank == 0 ? WHOLE : spec->merge ? MERGED : ADAPTER;
    MICS_TRY(open_writer(saved, of, dir, spec, &writer));
    mics_log_hold(false);
    mics_status status = run_saved_speak(write_tensors(saved, of, writer));
    if (status == MICS_OK)
        status = write_beside(saved, of, dir, spec->dtype);
    status = mics_safetensors_finish(writer, status);
    if (status != MICS_OK)
        run_hf_metadata_remove(saved, dir);
    return status;
}

static mics_status export_all(const mics_saved *saved, const char *dir,
                              const mics_export_spec *spec)
{
    int32_t made_dirs = 0;
    MICS_TRY(run_hf_metadata_check(saved, dir));
    mics_status status = mics_file_make_dirs(saved->memory, dir, &made_dirs);
    if (status == MICS_OK)
        status = write_model(saved, dir, spec);
    if (status != MICS_OK)
        mics_file_remove_dirs(saved->memory, dir, made_dirs);
    return status;
}

mics_status mics_saved_export(const mics_saved *saved, const char *dir,
                              const mics_export_spec *spec)
{
    static const mics_export_spec plain = {.dtype = MICS_DTYPE_FP32};
    mics_saved with = *saved; // and a folder's files
    char *text = NULL;
    spec = spec != NULL ? spec : &plain;
    if (spec->merge && saved->peft.spec.rank == 0)
        return mics_fail(MICS_ERR_INVALID, "%s: has no adapter that could be merged", saved->path);
    if (spec->max_file_bytes > 0 && !spec->merge && saved->peft.spec.rank > 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is an adapter, which PEFT reads from one file; leave "
                         "--max-shard-bytes out, or add --merge",
                         saved->path);
    const char *folder =
        saved->checkpoint == NULL && saved->base != NULL ? saved->base : saved->path;
    if (saved->files != NULL)
        return export_all(saved, dir, spec);
    const run_model_folders from = {
        .tokens = folder, .weights = folder, .vocabulary = saved->tokenizer == NULL};
    MICS_TRY(run_model_files_read(saved->memory, &from, false, &text));
    mics_status status = run_model_files_parse(saved->memory, saved->path, text, &with.files);
    mics_free(saved->memory, text);
    if (status == MICS_OK)
        status = export_all(&with, dir, spec);
    mics_json_close(with.files);
    return status;
}
