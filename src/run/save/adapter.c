// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "adapter.h"
#include "base/file.h"
#include "base/text.h"
#include "mics/log.h"
#include "tensor_part.h"
#include <stdio.h>
#include <string.h>

static const char prefix[] = "base_model.model.";

static bool is_of_adapter(const char *tensor)
{
    return strncmp(tensor, prefix, sizeof prefix - 1) == 0;
}

int64_t run_adapter_elems(const mics_model *model)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            elems += param->adapter ? param->elems : 0;
        }
    }
    return elems;
}

// ---- names ----

void run_adapter_name(const char *tensor, char name_out[RUN_ADAPTER_NAME_BYTES])
{
    snprintf(name_out, RUN_ADAPTER_NAME_BYTES, "%s%s", is_of_adapter(tensor) ? "" : prefix, tensor);
}

// The tensor of that name, or with the adapter's own before its last part: files of torch.save'd
// states have it so.
static const mics_tensor_info *find_tensor(const mics_safetensors *reader, const char *tensor)
{
    char name[RUN_ADAPTER_NAME_BYTES], other[RUN_ADAPTER_NAME_BYTES];
    const char *wraps = is_of_adapter(tensor) ? "" : ".modules_to_save";
    run_adapter_name(tensor, name);
    const mics_tensor_info *info = mics_safetensors_find(reader, name);
    const char *last = strrchr(name, '.');
    mics_text_format(other, sizeof other, "%.*s%s.default%s", (int)(last - name), name, wraps,
                     last);
    return info != NULL ? info : mics_safetensors_find(reader, other);
}

// ---- what files hold ----

static mics_status check_tensor(const mics_param_tensor *tensor, const mics_safetensors *reader,
                                const char *path)
{
    char name[RUN_ADAPTER_NAME_BYTES];
    const mics_tensor_info *info = find_tensor(reader, tensor->name);
    run_adapter_name(tensor->name, name);
    if (info == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: tensor \"%s\" is missing; is it an adapter of another model, or are "
                         "target_modules and modules_to_save others?",
                         path, name);
    if (info->dims == tensor->dims && info->shape[0] == tensor->shape[0] &&
        (info->dims < 2 || info->shape[1] == tensor->shape[1]))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: tensor \"%s\" is [%lld, %lld], but " MICS_PEFT_CONFIG
                     " and the model make it [%lld, %lld]",
                     path, info->name, (long long)info->shape[0],
                     (long long)(info->dims < 2 ? 1 : info->shape[1]), (long long)tensor->shape[0],
                     (long long)(tensor->dims < 2 ? 1 : tensor->shape[1]));
}

// Calls `check` for all tensors that are trained; they are counted.
static mics_status check_trained(const mics_model *model, const mics_safetensors *reader,
                                 const char *path, int32_t *count_out)
{
    mics_param_tensor tensor;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            for (int32_t part = 0; !param->frozen && mics_param_next_tensor(param, &part, &tensor);
                 ++*count_out)
                MICS_TRY(check_tensor(&tensor, reader, path));
        }
    }
    return MICS_OK;
}

static bool is_trained(const mics_model *model, const mics_safetensors *reader, const char *name)
{
    mics_param_tensor tensor;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            for (int32_t part = 0; !param->frozen && mics_param_next_tensor(param, &part, &tensor);)
                if (strcmp(find_tensor(reader, tensor.name)->name, name) == 0)
                    return true;
        }
    }
    return false;
}

static mics_status check(const mics_model *model, const mics_safetensors *reader, const char *path)
{
    int32_t trained = 0;
    MICS_TRY(check_trained(model, reader, path, &trained));
    for (int32_t i = 0; mics_safetensors_count(reader) != trained; i++) {
        const char *name = mics_safetensors_at(reader, i)->name;
        if (!is_trained(model, reader, name))
            return mics_fail(MICS_ERR_INVALID,
                             "%s: tensor \"%s\" is of nothing that " MICS_PEFT_CONFIG
                             " says is trained; name its module in target_modules or "
                             "modules_to_save there, or remove it",
                             path, name);
    }
    return MICS_OK;
}

mics_status run_adapter_open(mics_memory *memory, const mics_model *model, const char *folder,
                             mics_safetensors **reader_out)
{
    mics_safetensors *reader = NULL;
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, folder, MICS_PEFT_WEIGHTS, &path));
    mics_status status = mics_safetensors_open(memory, path, &reader);
    if (status == MICS_OK)
        status = check(model, reader, path);
    mics_free(memory, path);
    if (status == MICS_OK)
        *reader_out = reader;
    else
        mics_safetensors_close(reader);
    return status;
}

mics_status run_adapter_read(const mics_unit *unit, const mics_safetensors *reader,
                             mics_range range, float *data_out)
{
    for (int32_t i = 0; i < unit->param_count; i++) {
        const mics_param *param = &unit->params[i];
        for (int32_t part = 0; !param->frozen && part < param->part_count; part++)
            MICS_TRY(run_part_read(param, &param->parts[part], reader,
                                   find_tensor(reader, param->parts[part].name)->name, range,
                                   data_out));
    }
    return MICS_OK;
}

// ---- adapter_config.json ----

// The last part of the module's name that a tensor of A is of.
static void module_of(const char *tensor, char name_out[MICS_NAME_BYTES])
{
    const char *end = strstr(tensor, ".lora_"), *begin = end;
    while (begin > tensor && begin[-1] != '.')
        begin--;
    snprintf(name_out, MICS_NAME_BYTES, "%.*s", (int)(end - begin), begin);
}

// Those of all linears, each once.
static void write_all(const mics_model *model, mics_text *text)
{
    char seen[1024] = "|", name[MICS_NAME_BYTES], marked[MICS_NAME_BYTES + 4];
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            for (int32_t part = 0; param->adapter && part < param->part_count; part++) {
                module_of(param->parts[part].name, name);
                snprintf(marked, sizeof marked, "|%s|", name);
                if (strstr(seen, marked) != NULL)
                    continue;
                mics_text_printf(text, seen[1] != '\0' ? ", " : "");
                mics_text_quoted(text, name);
                strncat(seen, marked + 1, sizeof seen - strlen(seen) - 1);
            }
        }
    }
}

static void write_list(const char *const *names, int32_t count, mics_text *text)
{
    for (int32_t i = 0; i < count; i++) {
        mics_text_printf(text, i > 0 ? ", " : "");
        mics_text_quoted(text, names[i]);
    }
}

// A Conv1D of transformers holds its weight (inputs, outputs), which PEFT asks to be told.
static bool is_in_out(const mics_model *model)
{
    bool found = false;
    for (int32_t u = 0; u < model->unit_count; u++)
        for (int32_t o = 0; o < model->units[u].op_count; o++)
            found = found || (model->units[u].ops[o].kind == MICS_OP_LINEAR &&
                              !model->units[u].ops[o].weight_out_in);
    return found;
}

mics_status run_adapter_write_config(mics_memory *memory, const mics_model *model,
                                     const mics_lora_spec *spec, const char *base, const char *dir)
{
    mics_text text = {.memory = memory};
    mics_text_printf(&text, "{\n  \"base_model_name_or_path\": ");
    if (base != NULL)
        mics_text_quoted(&text, base);
    else
        mics_text_printf(&text, "null");
    mics_text_printf(&text,
                     ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n"
                     "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
                     "  \"lora_alpha\": %.15g,\n  \"lora_dropout\": %.15g,\n"
                     "  \"modules_to_save\": ",
                     is_in_out(model) ? "true" : "false", spec->alpha, spec->dropout);
    mics_text_printf(&text, spec->saved_count > 0 ? "[" : "null");
    write_list(spec->saved, spec->saved_count, &text);
    mics_text_printf(&text,
                     "%s,\n  \"peft_type\": \"LORA\",\n  \"r\": %lld,\n  \"target_modules\": [",
                     spec->saved_count > 0 ? "]" : "", (long long)spec->rank);
    if (spec->target_count > 0)
        write_list(spec->targets, spec->target_count, &text);
    else
        write_all(model, &text);
    mics_text_printf(&text, "],\n  \"task_type\": %s,\n  \"use_rslora\": %s\n}\n",
                     model->masked ? "null" : "\"CAUSAL_LM\"", // it has none for encoders
                     spec->rank_stabilized ? "true" : "false");
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_file_replace(memory, dir, MICS_PEFT_CONFIG, text.bytes, text.used);
    mics_text_fini(&text);
    return status;
}
