// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "adapter.h"
#include "base/file.h"
#include "base/text.h"
#include <stdio.h>
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
    snprintf(name_out, RUN_ADAPTER_NAME_BYTES, "%s%s", own ? "" : RUN_ADAPTER_PREFIX, tensor);
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
