// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Source: trl/trainer/model_config.py of TRL 1.16; src/axolotl/utils/schemas/peft.py of axolotl at
// 002a637c; src/llamafactory/hparams/finetuning_args.py of LLaMA-Factory at 072bfe29.
#include "config/adopt_adapter.h"
#include "base/text.h"
#include "config/adopt_program.h"
#include "config/value.h"
#include <string.h>

enum { TEXT_BYTES = 4096 };

static const char section[] = "adapter", switch_key[] = "use_peft", type_key[] = "finetuning_type";

static bool is_text(const config *run, const char *path, const char *text)
{
    const char *said = mics_json_string(mics_adopt_at(run, path));
    return said != NULL && strcmp(said, text) == 0;
}

static bool adapts(const config *run)
{
    return mics_json_type_of(mics_adopt_at(run, section)) == MICS_JSON_OBJECT;
}

// ---- whether one is trained ----

mics_status mics_adopt_adapter_begin(config *run)
{
    const mics_json_value *named = mics_adopt_at(run, section); // axolotl's
    if (mics_json_type_of(named) == MICS_JSON_STRING && !mics_config_value_off(named) &&
        !is_text(run, section, "lora"))
        return mics_json_fail(run->run.json, section, MICS_ERR_UNSUPPORTED,
                              "must be \"lora\" or an object, as in {\"r\": 16}: other adapters "
                              "are not built, and weights are not quantised");
    if (mics_json_type_of(named) == MICS_JSON_STRING)
        return mics_json_set_from(run->run.json, section,
                                  mics_config_value_off(named) ? "null" : "{}", section);
    const bool asked =
        mics_json_bool(mics_adopt_at(run, switch_key)) || is_text(run, type_key, "lora");
    return asked && !adapts(run)
               ? mics_json_set_from(run->run.json, section, "{}",
                                    mics_adopt_has(run, switch_key) ? switch_key : type_key)
               : MICS_OK;
}

// ---- key by key ----

static mics_status put_switch(config *run, const adopted_key *row, const mics_json_value *value)
{
    bool on = false; // read before
    return mics_adopt_switch(run, row->path, value, &on);
}

static mics_status put_type(config *run, const adopted_key *row, const mics_json_value *value)
{
    (void)value;
    return is_text(run, row->path, "full") || is_text(run, row->path, "lora")
               ? MICS_OK
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "must be \"full\" or \"lora\"; model.trainable names what is "
                                    "trained of the model itself");
}

static mics_status put_text(config *run, const adopted_key *row, const char *text)
{
    return adapts(run)
               ? mics_adopt_put(run, row->target, text, row->path, row->origin)
               : mics_config_refuse(run, row->path, MICS_ERR_INVALID,
                                    "has no effect, as nothing says that an adapter is trained; "
                                    "--lora R trains one, or leave it out");
}

static mics_status put(config *run, const adopted_key *row, const mics_json_value *value)
{
    char text[TEXT_BYTES];
    return put_text(run, row, mics_config_value_text(value, text, sizeof text));
}

static mics_status put_dropout(config *run, const adopted_key *row, const mics_json_value *value)
{
    return mics_adopt_disables_dropout(run) ? put_text(run, row, "0") : put(run, row, value);
}

// A list, axolotl's true for all, or LLaMA-Factory's "all" and "q_proj,v_proj".
static mics_status put_modules(config *run, const adopted_key *row, const mics_json_value *value)
{
    mics_text list = {.memory = run->memory};
    const char *names = mics_json_string(value);
    const bool is_switch = mics_json_type_of(value) == MICS_JSON_BOOL;
    if (is_switch && !mics_json_bool(value))
        return MICS_OK;
    if (names == NULL && !is_switch)
        return put(run, row, value);
    if (is_switch || mics_text_is_among(names, "all|all-linear"))
        return put_text(run, row, "\"" MICS_PEFT_ALL_LINEAR "\"");
    for (const char *at = names; *at != '\0';) {
        char name[MICS_NAME_BYTES];
        const size_t bytes = strcspn(at, ",");
        mics_text_format(name, sizeof name, "%.*s", (int)bytes, at);
        mics_text_printf(&list, at == names ? "[" : ", ");
        mics_text_quoted(&list, name);
        at += bytes + strspn(at + bytes, ", ");
    }
    mics_text_printf(&list, "]");
    mics_status status = mics_text_status(&list);
    if (status == MICS_OK)
        status = put_text(run, row, list.bytes);
    mics_text_fini(&list);
    return status;
}

static const adopted_key rows[] = {
    ADOPTED("use_peft", "adapter", put_switch),
    ADOPTED("finetuning_type", "adapter", put_type),
    ADOPTED("lora_r", "adapter.r", put),
    ADOPTED("lora_rank", "adapter.r", put),
    ADOPTED("lora_alpha", "adapter.lora_alpha", put),
    ADOPTED("lora_dropout", "adapter.lora_dropout", put_dropout),
    ADOPTED("lora_target_modules", "adapter.target_modules", put_modules),
    ADOPTED("lora_target", "adapter.target_modules", put_modules),
    ADOPTED("lora_target_linear", "adapter.target_modules", put_modules),
    ADOPTED("lora_modules_to_save", "adapter.modules_to_save", put_modules),
    ADOPTED("additional_target", "adapter.modules_to_save", put_modules),
    ADOPTED("use_rslora", "adapter.use_rslora", put),
    ADOPTED("peft_use_rslora", "adapter.use_rslora", put),
    ADOPTED("lora_model_dir", "adapter.init", put),
    ADOPTED("adapter_name_or_path", "adapter.init", put),
};

const adopted_keys mics_adopt_adapters = {rows, sizeof rows / sizeof *rows};

// ---- a folder of PEFT's ----

// A key that the run file also gives must say the same, but for what is of training alone.
static mics_status put_of_folder(config *run, const mics_peft *peft, const char *name)
{
    char path[CONFIG_PATH_BYTES];
    mics_text text = {.memory = run->memory};
    mics_text_format(path, sizeof path, "adapter.%s", name);
    const mics_json_value *theirs = mics_json_at(peft->json, name);
    if (mics_adopt_has(run, path))
        return mics_json_is_same(theirs, mics_adopt_at(run, path)) ||
                       strcmp(name, "lora_dropout") == 0
                   ? MICS_OK
                   : mics_json_fail(run->run.json, path, MICS_ERR_INVALID,
                                    "is another one in %s; leave it out, or begin without "
                                    "adapter.init",
                                    mics_json_name(peft->json));
    mics_json_write(&text, theirs);
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_json_set_from(run->run.json, path, text.bytes, "adapter.init");
    run->adopted[mics_config_find(path)] = "auto: of adapter.init";
    mics_text_fini(&text);
    return status;
}

static mics_status put_folder(config *run)
{
    static const char *const names[] = {"r",          "lora_alpha",     "lora_dropout",
                                        "use_rslora", "target_modules", "modules_to_save"};
    const char *folder = mics_json_string(mics_adopt_at(run, "adapter.init"));
    mics_peft peft;
    if (folder == NULL || strcmp(folder, "none") == 0)
        return MICS_OK;
    if (!mics_peft_is_folder(folder))
        return mics_json_fail(run->run.json, "adapter.init", MICS_ERR_IO,
                              "%s: holds no " MICS_PEFT_CONFIG "; folders of PEFT's have one, and "
                              "OUT/adapter-STEP of a run; mics convert writes one of a checkpoint",
                              folder);
    mics_status status = mics_peft_init(run->memory, folder, &peft);
    if (status == MICS_OK && peft.base != NULL)
        mics_text_format(run->adapter_base, sizeof run->adapter_base, "%s", peft.base);
    for (size_t i = 0; i < sizeof names / sizeof *names && status == MICS_OK; i++)
        status = put_of_folder(run, &peft, names[i]);
    mics_peft_fini(run->memory, &peft);
    return status;
}

// ---- defaults ----

mics_status mics_adopt_adapter_defaults(config *run)
{
    static const char trl[] = "auto: default of TRL's ModelConfig",
                      factory[] = "auto: default of LLaMA-Factory";
    const bool by_trl = mics_json_bool(mics_adopt_at(run, switch_key));
    char alpha[32];
    MICS_TRY(put_folder(run));
    if (!adapts(run) || mics_adopt_says(run, "adapter.init") ||
        (!by_trl && !is_text(run, type_key, "lora")))
        return MICS_OK;
    MICS_TRY(mics_adopt_default_of(run, "adapter.r", by_trl ? "16" : "8", by_trl ? trl : factory,
                                   false));
    mics_text_format(alpha, sizeof alpha, "%.0f",
                     by_trl ? 32.0 : 2 * mics_json_real(mics_adopt_at(run, "adapter.r")));
    MICS_TRY(
        mics_adopt_default_of(run, "adapter.lora_alpha", alpha, by_trl ? trl : factory, false));
    return mics_adopt_default_of(run, "adapter.lora_dropout",
                                 by_trl && !mics_adopt_disables_dropout(run) ? "0.05" : "0",
                                 by_trl ? trl : factory, false);
}
