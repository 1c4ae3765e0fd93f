// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Reading parameters by range into the engine.
#include "import.h"
#include "adapter.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "mics/log.h"
#include "model/from_config.h"
#include "run/job.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COMPARE_ELEMS = 1 << 14, OTHER_NAME_BYTES = RUN_ADAPTER_NAME_BYTES };

// A tied LM head, which some files hold too.
static const char *const lm_heads[] = {"lm_head.weight", "embed_out.weight",
                                       "cls.predictions.decoder.weight", "lm_head.decoder.weight"};
enum { LM_HEADS = sizeof lm_heads / sizeof *lm_heads };

static bool is_lm_head(const char *name)
{
    bool is = false;
    for (int i = 0; i < LM_HEADS; i++)
        is = is || strcmp(name, lm_heads[i]) == 0;
    return is;
}

// The bias of an encoder's logits, by its own name and by that of the module that has it too.
static const char *const head_biases[][2] = {
    {"cls.predictions.bias", "cls.predictions.decoder.bias"},
    {"lm_head.bias", "lm_head.decoder.bias"}};
enum { HEAD_BIASES = sizeof head_biases / sizeof *head_biases };

// What an encoder's pre-training or its other tasks have besides.
static bool is_of_another_task(const char *name)
{
    static const char *const tasks[] = {"bert.pooler.", "roberta.pooler.", "cls.seq_relationship."};
    bool is = mics_text_ends(name, ".embeddings.position_ids");
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        is = is || strncmp(name, tasks[i], strlen(tasks[i])) == 0;
    for (int i = 0; i < HEAD_BIASES; i++)
        is = is || strcmp(name, head_biases[i][1]) == 0;
    return is;
}

// ---- what files hold ----

// Older exports keep causal masks and rotary frequencies as tensors, and some the tied table twice.
static bool is_no_parameter(const mics_model *model, const char *name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".attention.bias",
                                       ".attention.masked_bias", ".rotary_emb.inv_freq"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (mics_text_ends(name, ends[i]))
            return true;
    }
    return (model->masked && is_of_another_task(name)) || (model->tied && is_lm_head(name));
}

// As mics_tensor_other_name, and first those of PEFT's files: with its prefix, and as torch saves its
// modules, with the adapter's own name, "default".
static bool other_name(const char *name, int32_t index, char other_out[OTHER_NAME_BYTES])
{
    const char *last = strrchr(name, '.');
    const bool own = strstr(name, ".lora_") != NULL;
    if (index > 1 || last == NULL)
        return mics_tensor_other_name(name, last == NULL ? index : index - 2, other_out);
    run_adapter_name(name, other_out);
    if (index == 1)
        mics_text_format(other_out, OTHER_NAME_BYTES, "%s%.*s%s.default%s",
                         own ? "" : RUN_ADAPTER_PREFIX, (int)(last - name), name,
                         own ? "" : ".modules_to_save", last);
    return true;
}

// The tensor of this name, or of one of the others that files have for it.
static const mics_tensor_info *find_tensor(const mics_safetensors *reader, const char *name)
{
    char other[OTHER_NAME_BYTES];
    const mics_tensor_info *info = mics_safetensors_find(reader, name);
    for (int32_t i = 0; info == NULL && other_name(name, i, other); i++)
        info = mics_safetensors_find(reader, other);
    return info;
}

// The tensor that a parameter is a slice of, in place of its own ones; NULL: there is none.
static const mics_tensor_info *find_stack(const mics_safetensors *reader, const mics_param *param)
{
    return param->stack_count > 0 ? find_tensor(reader, param->stack) : NULL;
}

static void shape_text(int32_t dims, const int64_t *shape, char *text, size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "[");
    for (int32_t i = 0; i < dims && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)shape[i]);
    if (used < capacity)
        snprintf(text + used, capacity - used, "]");
}

static mics_status check_once(const char *name, const mics_tensor_info *info,
                              const mics_safetensors *reader, const char *path)
{
    char other[OTHER_NAME_BYTES];
    for (int32_t i = 0; other_name(name, i, other); i++) {
        if (strcmp(info->name, other) != 0 && mics_safetensors_find(reader, other) != NULL)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: tensors \"%s\" and \"%s\" are one of the model's; which holds? "
                             "remove the other",
                             path, info->name, other);
    }
    return MICS_OK;
}

static mics_status check_shape(const mics_tensor_info *info, int32_t dims, const int64_t *shape,
                               const char *path)
{
    bool same = info->dims == dims;
    for (int32_t i = 0; same && i < dims; i++)
        same = info->shape[i] == shape[i];
    if (same)
        return MICS_OK;
    char theirs[96], ours[96];
    shape_text(info->dims, info->shape, theirs, sizeof theirs);
    shape_text(dims, shape, ours, sizeof ours);
    return mics_fail(MICS_ERR_INVALID, "%s: tensor \"%s\" is %s, but the model's config says %s",
                     path, info->name, theirs, ours);
}

static mics_status check_tensor(const mics_param_tensor *tensor, const mics_safetensors *reader,
                                const char *path)
{
    const mics_tensor_info *info = find_tensor(reader, tensor->name);
    if (info == NULL)
        return mics_fail(MICS_ERR_INVALID, "%s: tensor \"%s\" is missing; is it the same model?",
                         path, tensor->name);
    MICS_TRY(check_once(tensor->name, info, reader, path));
    return check_shape(info, tensor->dims, tensor->shape, path);
}

static mics_status check_stack(const mics_param *param, const mics_tensor_info *stack,
                               const mics_safetensors *reader, const char *path)
{
    const int64_t shape[] = {param->stack_count, param->shape[0], param->shape[1]};
    MICS_TRY(check_once(param->stack, stack, reader, path));
    for (int32_t part = 0; part < param->part_count; part++) {
        if (find_tensor(reader, param->parts[part].name) != NULL)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: tensor \"%s\" is a part of \"%s\"; which holds? remove the other",
                             path, param->parts[part].name, stack->name);
    }
    return check_shape(stack, 3, shape, path);
}

static mics_status check_param(const mics_param *param, const mics_safetensors *reader,
                               const char *path)
{
    mics_param_tensor tensor;
    const mics_tensor_info *stack = find_stack(reader, param);
    if (stack != NULL)
        return check_stack(param, stack, reader, path);
    for (int32_t part = 0; mics_param_next_tensor(param, &part, &tensor);)
        MICS_TRY(check_tensor(&tensor, reader, path));
    return MICS_OK;
}

static mics_status check_unit(const mics_unit *unit, const mics_safetensors *reader, bool adapter,
                              const char *path)
{
    for (int32_t i = 0; i < unit->param_count; i++) {
        if (run_adapter_is_in(&unit->params[i], adapter))
            MICS_TRY(check_param(&unit->params[i], reader, path));
    }
    return MICS_OK;
}

// ---- a tied LM head that is there too ----

// The table that the LM head shares.
static const mics_param *tied_table(const mics_model *model)
{
    const mics_unit *last = &model->units[model->unit_count - 1];
    return mics_model_param(model, last->ops[last->op_count - 1].params[0]);
}

static mics_status same_elems(const mics_safetensors *reader, const mics_tensor_info *a,
                              const mics_tensor_info *b, bool *same_out)
{
    float left[COMPARE_ELEMS], right[COMPARE_ELEMS];
    *same_out = a->elems == b->elems;
    for (int64_t at = 0; *same_out && at < a->elems; at += COMPARE_ELEMS) {
        const int64_t count = a->elems - at < COMPARE_ELEMS ? a->elems - at : COMPARE_ELEMS;
        MICS_TRY(mics_safetensors_read(reader, a->name, at, count, left));
        MICS_TRY(mics_safetensors_read(reader, b->name, at, count, right));
        *same_out = memcmp(left, right, (size_t)count * sizeof(float)) == 0;
    }
    return MICS_OK;
}

static mics_status check_tied(const mics_model *model, const mics_safetensors *reader,
                              const char *path)
{
    bool same = true;
    if (!model->tied)
        return MICS_OK;
    const mics_tensor_info *table = find_tensor(reader, tied_table(model)->name);
    for (int i = 0; i < LM_HEADS; i++) {
        const mics_tensor_info *head = mics_safetensors_find(reader, lm_heads[i]);
        if (head != NULL)
            MICS_TRY(same_elems(reader, head, table, &same));
        if (!same)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: tensor \"%s\" is not \"%s\", but the model's config ties them; "
                             "set \"tie_word_embeddings\" to false there, or remove the tensor",
                             path, lm_heads[i], table->name);
    }
    return MICS_OK;
}

// ---- all tensors ----

// Marks the file's tensor of exactly this name, if it has one.
static void mark_one(const mics_safetensors *reader, const char *name, bool *known)
{
    int32_t begin = 0, end = mics_safetensors_count(reader);
    while (begin < end) {
        const int32_t middle = begin + (end - begin) / 2;
        const int order = strcmp(name, mics_safetensors_at(reader, middle)->name);
        if (order == 0) {
            known[middle] = true;
            return;
        }
        begin = order > 0 ? middle + 1 : begin;
        end = order < 0 ? middle : end;
    }
}

static void mark(const mics_safetensors *reader, const char *name, bool *known)
{
    char other[OTHER_NAME_BYTES];
    mark_one(reader, name, known);
    for (int32_t i = 0; other_name(name, i, other); i++)
        mark_one(reader, other, known);
}

static void mark_unit(const mics_unit *unit, const mics_safetensors *reader, bool adapter,
                      bool *known)
{
    mics_param_tensor tensor;
    for (int32_t p = 0; p < unit->param_count; p++) {
        for (int32_t part = 0; run_adapter_is_in(&unit->params[p], adapter) &&
                               mics_param_next_tensor(&unit->params[p], &part, &tensor);)
            mark(reader, tensor.name, known);
        if (unit->params[p].stack_count > 0)
            mark(reader, unit->params[p].stack, known);
    }
}

static mics_status refuse_extra(const mics_model *model, bool adapter, const char *path,
                                const char *name)
{
    static const char base[] = "embeddings.";
    const bool headless = model->masked && strncmp(name, base, sizeof base - 1) == 0;
    return mics_fail(
        MICS_ERR_INVALID, "%s: tensor \"%s\" belongs to no parameter of this model%s", path, name,
        adapter    ? " that " MICS_PEFT_CONFIG " says is trained"
        : headless ? ": the encoder was saved without its LM head (BertModel); save it as "
                     "BertForMaskedLM or RobertaForMaskedLM"
                   : "");
}

static mics_status check_extra(const mics_model *model, const mics_safetensors *reader,
                               bool adapter, const char *path)
{
    const int32_t count = mics_safetensors_count(reader);
    bool *known = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(MICS_NEW(model->memory, count, &known));
    for (int32_t u = 0; u < model->unit_count; u++)
        mark_unit(&model->units[u], reader, adapter, known);
    for (int32_t i = 0; i < count && status == MICS_OK; i++) {
        const char *name = mics_safetensors_at(reader, i)->name;
        if (!known[i] && !is_no_parameter(model, name))
            status = refuse_extra(model, adapter, path, name);
    }
    mics_free(model->memory, known);
    return status;
}

static mics_status check_head_bias(const mics_safetensors *reader, const char *path)
{
    for (int i = 0; i < HEAD_BIASES; i++) {
        bool same = true;
        const mics_tensor_info *own = mics_safetensors_find(reader, head_biases[i][0]);
        const mics_tensor_info *again = mics_safetensors_find(reader, head_biases[i][1]);
        if (own != NULL && again != NULL)
            MICS_TRY(same_elems(reader, own, again, &same));
        if (!same)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: tensors \"%s\" and \"%s\" are one of the model's; which holds? "
                             "remove the other",
                             path, own->name, again->name);
    }
    return MICS_OK;
}

static mics_status check(const mics_model *model, const mics_safetensors *reader, bool adapter,
                         const char *path)
{
    MICS_TRY(check_extra(model, reader, adapter, path));
    for (int32_t unit = 0; unit < model->unit_count; unit++)
        MICS_TRY(check_unit(&model->units[unit], reader, adapter, path));
    if (adapter)
        return MICS_OK;
    if (model->masked)
        MICS_TRY(check_head_bias(reader, path));
    return check_tied(model, reader, path);
}

// ---- the whole ----

// Pickled objects run code when they are read.
static mics_status refuse_pickles(const char *path, const char *name)
{
    return mics_fail(
        MICS_ERR_UNSUPPORTED,
        "%s: holds %s and no model.safetensors; only safetensors are read: convert it with python "
        "-c \"from transformers import AutoModelForCausalLM as M; "
        "M.from_pretrained('%s').save_pretrained('OUT')\", and give OUT",
        path, name, path);
}

mics_status run_import_is_folder(mics_memory *memory, const char *path, bool *is_out)
{
    const char *name = NULL;
    *is_out = false;
    MICS_TRY(mics_run_find_weights(memory, path, &name));
    if (name != NULL && strcmp(name, MICS_STEP_MANIFEST) == 0)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "%s: is a step of a run; \"mics convert %s OUT\" writes its weights as "
                         "safetensors: give OUT, or go on with that run by --resume %s",
                         path, path, path);
    if (name != NULL && strncmp(name, "pytorch", 7) == 0)
        return refuse_pickles(path, name);
    *is_out = name != NULL;
    return MICS_OK;
}

static mics_status load_generation(mics_memory *memory, const char *path, mics_json **json_out)
{
    mics_json *json = NULL;
    MICS_TRY(mics_json_load(memory, path, MICS_MODEL_CONFIG_MAX_BYTES, &json));
    mics_status status = MICS_OK;
    if (mics_json_type_of(mics_json_root(json)) != MICS_JSON_OBJECT)
        status = mics_fail(MICS_ERR_FORMAT, "%s: must be an object; correct it or remove it", path);
    else
        status = mics_model_check_ends(json);
    if (status == MICS_OK)
        *json_out = json;
    else
        mics_json_close(json);
    return status;
}

mics_status run_import_generation(mics_memory *memory, const char *folder, mics_json **json_out)
{
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, folder, "generation_config.json", &path));
    const mics_status status =
        mics_file_is_there(path) ? load_generation(memory, path, json_out) : MICS_OK;
    mics_free(memory, path);
    return status;
}

// What the model of this folder ends a text with is read again when text is written, at the end of
// a run; that is late for an error.
static mics_status check_generation(mics_memory *memory, const char *folder)
{
    mics_json *json = NULL;
    MICS_TRY(run_import_generation(memory, folder, &json));
    mics_json_close(json);
    return MICS_OK;
}

static mics_status open_checked(mics_memory *memory, const mics_model *model, bool adapter,
                                const char *path, mics_safetensors **reader_out)
{
    mics_safetensors *reader = NULL;
    MICS_TRY(mics_safetensors_open(memory, path, &reader));
    const mics_status status = check(model, reader, adapter, path);
    if (status == MICS_OK)
        *reader_out = reader;
    else
        mics_safetensors_close(reader);
    return status;
}

mics_status run_import_open(mics_memory *memory, const mics_model *model, const char *path,
                            mics_safetensors **reader_out)
{
    bool is_folder = false;
    MICS_TRY(run_import_is_folder(memory, path, &is_folder));
    MICS_TRY(check_generation(memory, path));
    return open_checked(memory, model, false, path, reader_out);
}

mics_status run_import_open_adapter(mics_memory *memory, const mics_model *model,
                                    const char *folder, mics_safetensors **reader_out)
{
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, folder, MICS_PEFT_WEIGHTS, &path));
    const mics_status status =
        mics_file_is_there(path)
            ? open_checked(memory, model, true, path, reader_out)
            : mics_fail(MICS_ERR_IO,
                        "%s: is missing; of an adapter_model.bin python makes it: import torch, "
                        "safetensors.torch as s; s.save_file(torch.load(BIN), \"%s\")",
                        path, path);
    mics_free(memory, path);
    return status;
}

// ---- reading ----

// What of `range` of the unit's buffer is one part of a parameter; empty where nothing is.
static mics_range part_in(const mics_param *param, const mics_param_part *part, mics_range range)
{
    const int64_t row_elems = mics_param_row_elems(param);
    const int64_t at = param->offset + part->row * row_elems;
    const int64_t end = at + part->rows * row_elems;
    if (range.begin < at)
        range.begin = at;
    if (range.end > end)
        range.end = end;
    return range;
}

// The element of the tensor that stands at `at` of the unit's buffer.
static int64_t tensor_elem(const mics_param *param, const mics_param_part *part, int64_t at)
{
    return (part->tensor_row - part->row) * mics_param_row_elems(param) + at - param->offset;
}

static mics_status read_part(const mics_param *param, const mics_param_part *part,
                             const mics_safetensors *reader, mics_range range, float *data_out)
{
    const mics_range in = part_in(param, part, range);
    if (in.begin >= in.end)
        return MICS_OK;
    return mics_safetensors_read(reader, find_tensor(reader, part->name)->name,
                                 tensor_elem(param, part, in.begin), in.end - in.begin,
                                 data_out + (in.begin - range.begin));
}

static mics_status read_stack(const mics_param *param, const mics_tensor_info *stack,
                              const mics_safetensors *reader, mics_range range, float *data_out)
{
    const mics_param_part whole = {.rows = param->shape[0]};
    const mics_range in = part_in(param, &whole, range);
    const int64_t slice = param->stack_index * param->elems;
    return mics_safetensors_read(reader, stack->name, slice + in.begin - param->offset,
                                 in.end - in.begin, data_out + (in.begin - range.begin));
}

mics_status run_import_read(const mics_unit *unit, const mics_safetensors *reader, bool adapter,
                            mics_range range, float *data_out)
{
    for (int32_t i = 0; i < unit->param_count; i++) {
        const mics_param *param = &unit->params[i];
        if (!run_adapter_is_in(param, adapter) || param->offset >= range.end ||
            param->offset + param->elems <= range.begin)
            continue;
        const mics_tensor_info *stack = find_stack(reader, param);
        if (stack != NULL)
            MICS_TRY(read_stack(param, stack, reader, range, data_out));
        for (int32_t part = 0; stack == NULL && part < param->part_count; part++)
            MICS_TRY(read_part(param, &param->parts[part], reader, range, data_out));
    }
    return MICS_OK;
}

static mics_status check_part(const mics_param *param, const mics_param_part *part,
                              mics_range range, const float *data)
{
    const mics_range in = part_in(param, part, range);
    for (int64_t at = in.begin; at < in.end; at++) {
        const float value = data[at - range.begin];
        if (!isfinite(value))
            return mics_fail(MICS_ERR_NUMERIC,
                             "model.init: element %lld of tensor \"%s\" is %g; give weights whose "
                             "numbers are finite",
                             (long long)tensor_elem(param, part, at), part->name, (double)value);
    }
    return MICS_OK;
}

static mics_status check_finite(const mics_unit *unit, mics_range range, const float *data)
{
    for (int32_t i = 0; i < unit->param_count; i++) {
        const mics_param *param = &unit->params[i];
        for (int32_t part = 0; part < param->part_count; part++)
            MICS_TRY(check_part(param, &param->parts[part], range, data));
    }
    return MICS_OK;
}

// The multipliers are those of SplitMix64.
uint64_t run_import_hash(const mics_unit *unit, mics_range range, const float *data)
{
    const uint64_t key = mics_fnv1a(MICS_FNV1A_BEGIN, unit->name, strlen(unit->name));
    uint64_t sum = 0;
    for (int64_t i = 0; i < range.end - range.begin; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &data[i], sizeof bits);
        uint64_t z = (key ^ bits) + (uint64_t)(range.begin + i) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        sum += z ^ (z >> 27);
    }
    return sum;
}

mics_status run_import_fill(const run_import *import, mics_engine *engine, uint64_t *hash_out)
{
    const mics_schedule *schedule = import->schedule;
    const int32_t units = schedule->spec.model->unit_count;
    *hash_out = 0;
    for (int32_t u = 0; u < units; u++) {
        const mics_unit *unit = &schedule->spec.model->units[u];
        const mics_engine_optimizer_shard owned = mics_engine_optimizer_shard_get(engine, u);
        if (import->frozen_alone && !unit->frozen)
            continue;
        if (import->reader != NULL)
            MICS_TRY(run_import_read(unit, import->reader, false, owned.shard, owned.shard_params));
        if (import->adapter != NULL)
            MICS_TRY(run_import_read(unit, import->adapter, true, owned.shard, owned.shard_params));
        MICS_TRY(check_finite(unit, owned.shard, owned.shard_params));
        if (unit->frozen && import->rank < schedule->sharding[u].params * schedule->experts[u])
            *hash_out += run_import_hash(unit, owned.shard, owned.shard_params);
        mics_work_tell(&import->listener, "loading weights", u + 1, units);
    }
    return MICS_OK;
}
