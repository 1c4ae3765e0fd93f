// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "adapter.h"
#include "base/file.h"
#include "base/text.h"
#include "mics/builder.h"
#include <string.h>

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

void run_adapter_name(const char *tensor, char name_out[RUN_ADAPTER_NAME_BYTES])
{
    const bool own = strncmp(tensor, RUN_ADAPTER_PREFIX, sizeof RUN_ADAPTER_PREFIX - 1) == 0;
    mics_text_format(name_out, RUN_ADAPTER_NAME_BYTES, "%s%s", own ? "" : RUN_ADAPTER_PREFIX,
                     tensor);
}

// ---- adapter_config.json ----

// The last part of a module's name, quoted, of a tensor of its A or B.
static void module_of(const char *tensor, char quoted_out[MICS_NAME_BYTES])
{
    const char *end = strstr(tensor, ".lora_"), *begin = end;
    while (begin > tensor && begin[-1] != '.')
        begin--;
    mics_text_format(quoted_out, MICS_NAME_BYTES, "\"%.*s\"", (int)(end - begin), begin);
}

// Those of all linears, each once.
static void write_all(const mics_model *model, mics_text *text)
{
    char name[MICS_NAME_BYTES];
    const size_t begin = text->used;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            for (int32_t part = 0; param->adapter && part < param->part_count; part++) {
                module_of(param->parts[part].name, name);
                if (text->status == MICS_OK && strstr(text->bytes + begin, name) == NULL)
                    mics_text_printf(text, "%s%s", text->used > begin ? ", " : "", name);
            }
        }
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

mics_status run_adapter_write_config(const mics_saved *saved, const char *dir)
{
    const mics_lora_spec *spec = &saved->peft.spec;
    mics_text text = {.memory = saved->memory};
    mics_text_printf(&text, "{\n  \"base_model_name_or_path\": ");
    if (saved->base != NULL)
        mics_text_quoted(&text, saved->base);
    else
        mics_text_printf(&text, "null");
    mics_text_printf(&text,
                     ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n"
                     "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
                     "  \"lora_alpha\": %.15g,\n  \"lora_dropout\": %.15g,\n"
                     "  \"modules_to_save\": ",
                     is_in_out(saved->model) ? "true" : "false", spec->alpha, spec->dropout);
    mics_json_write(&text, spec->saved_count > 0 ? mics_json_at(saved->peft.json, "modules_to_save")
                                                 : NULL);
    mics_text_printf(&text, ",\n  \"peft_type\": \"LORA\",\n  \"r\": %lld,\n  \"target_modules\": ",
                     (long long)spec->rank);
    if (spec->target_count > 0) {
        mics_json_write(&text, mics_json_at(saved->peft.json, "target_modules"));
    } else {
        mics_text_printf(&text, "[");
        write_all(saved->model, &text);
        mics_text_printf(&text, "]");
    }
    mics_text_printf(&text, ",\n  \"task_type\": %s,\n  \"use_rslora\": %s\n}\n",
                     saved->model->masked ? "null" : "\"CAUSAL_LM\"", // it has none for encoders
                     spec->rank_stabilized ? "true" : "false");
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_file_replace(saved->memory, dir, MICS_PEFT_CONFIG, text.bytes, text.used);
    mics_text_fini(&text);
    return status;
}
