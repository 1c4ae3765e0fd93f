// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of other programs about chats. What depends on what the data are is refused once that is
// known (src/run/rows.c).
//
// Source: trl/trainer/sft_config.py and sft_trainer.py of TRL 1.16; axolotl's utils/schemas/
// datasets.py, utils/chat_templates and prompt_strategies/chat_template.py of 0.19; LLaMA-Factory's
// hparams/data_args.py and data/processor/supervised.py of 0.9.5.
#include "base/text.h"
#include "config/adopt_program.h"
#include "config/value.h"
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 4096 };

static mics_status put_string(config *run, const adopted_key *row, const char *target,
                              const char *said)
{
    char text[TEXT_BYTES];
    mics_config_string_text(said, text, sizeof text);
    return mics_adopt_put(run, target, text, row->path, row->origin);
}

// ---- which tokens count, and packing ----

// What is put where a switch says other than its default.
static const struct {
    const char *path, *text;
    bool on;    // the switch's value by which it is put
    bool apart; // it is of messages alone
} switches[] = {{"assistant_only_loss", "\"assistant\"", true, true},
                {"completion_only_loss", "\"all\"", false, false},
                {"train_on_prompt", "\"all\"", true, false},
                {"mask_history", "\"last\"", true, false},
                {"neat_packing", "true", true, true}};

static mics_status put_switch(config *run, const adopted_key *row, const mics_json_value *value)
{
    bool on = false;
    size_t i = 0;
    MICS_TRY(mics_adopt_switch(run, row->path, value, &on));
    while (strcmp(switches[i].path, row->path) != 0)
        i++;
    if (on != switches[i].on)
        return MICS_OK;
    if (switches[i].apart)
        run->run.messages_key = row->path;
    return mics_adopt_put(run, row->target, switches[i].text, row->path, row->origin);
}

// LLaMA-Factory's own lets samples see each other.
static mics_status put_packing(config *run, const adopted_key *row, const mics_json_value *value)
{
    const char *stage = mics_json_string(mics_adopt_at(run, "stage"));
    bool on = false;
    MICS_TRY(mics_adopt_switch(run, row->path, value, &on));
    if (!on || !mics_adopt_is_llama_factory(run))
        return mics_adopt_put(run, row->target, on ? "true" : "false", row->path, row->origin);
    return mics_json_bool(mics_adopt_at(run, "neat_packing")) || mics_text_is_among(stage, "pt")
               ? MICS_OK
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "chats would see each other; write \"neat_packing\": true, or "
                                    "for texts \"stage\": \"pt\"");
}

static mics_status put_stage(config *run, const adopted_key *row, const mics_json_value *value)
{
    const char *stage = mics_json_string(value);
    if (mics_text_is_among(stage, "pt"))
        return mics_adopt_default_of(run, row->target, "\"text\"", row->origin, false);
    if (!mics_text_is_among(stage, "sft"))
        return mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                  "must be \"pt\", for texts, or \"sft\", for chats");
    run->run.messages_key = row->path;
    return MICS_OK;
}

// ---- axolotl's templates and data sets ----

static const char template_key[] = "chat_template", jinja_key[] = "chat_template_jinja";

static const char *word_of(const mics_json_value *set, const char *name)
{
    return mics_json_string(mics_json_get(set, name));
}

// By the names of a data set, or of the file. Two of axolotl's are word by word as here.
static mics_status put_named(config *run, const adopted_key *row, const mics_json_value *from)
{
    const char *name = word_of(from, template_key), *jinja = word_of(from, jinja_key);
    name = name == NULL && jinja != NULL ? "jinja" : name;
    if (name == NULL || strcmp(name, "tokenizer_default") == 0)
        return MICS_OK;
    if (strcmp(name, "jinja") == 0 && jinja != NULL && access(jinja, R_OK) == 0)
        name = jinja;
    return name == jinja || mics_text_is_among(name, "chatml|llama3")
               ? put_string(run, row, "data.chat_template", name)
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "a template must be \"tokenizer_default\", \"chatml\", "
                                    "\"llama3\", or \"jinja\" with a file as "
                                    "chat_template_jinja, not \"%s\"",
                                    name);
}

static mics_status put_template(config *run, const adopted_key *row, const mics_json_value *value)
{
    (void)value;
    return mics_adopt_has(run, "datasets") // each of these has its own, or this one
               ? MICS_OK
               : put_named(run, row, mics_json_root(run->run.json));
}

static mics_status put_special(config *run, const adopted_key *row, const mics_json_value *value)
{
    return mics_json_count(value) == (mics_json_get(value, "pad_token") != NULL)
               ? MICS_OK // nothing is padded with a token
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "others than pad_token are the tokenizer's own; write them "
                                    "into its tokenizer_config.json, and leave them out");
}

// A member that is not read must be what is done here anyway.
static bool is_usual(const char *name, const mics_json_value *value)
{
    char text[TEXT_BYTES];
    mics_config_value_text(value, text, sizeof text);
    if (strcmp(name, "roles_to_train") == 0)
        return strcmp(text, "[\"assistant\"]") == 0;
    if (mics_text_is_among(name, "train_on_eos|train_on_eot|split"))
        return mics_text_is_among(text, strcmp(name, "split") != 0 ? "\"turn\"" : "\"train\"");
    return mics_text_is_among(name, "path|type|ds_type|name|revision|trust_remote_code|field|"
                                    "field_messages|message_property_mappings|message_field_role|"
                                    "message_field_content|chat_template|chat_template_jinja");
}

// Data sets are alike but for their paths, as there is one data.fields for all.
static mics_status check_set(config *run, const adopted_key *row, const mics_json_value *set,
                             const mics_json_value *first)
{
    const char *name = NULL, *odd = NULL;
    const mics_json_value *value = NULL;
    if (word_of(set, "path") == NULL ||
        !mics_text_is_among(word_of(set, "type"), "completion|chat_template"))
        return mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                  "each must have a \"path\" of this machine and \"type\": "
                                  "\"chat_template\", or \"completion\", which is text; for others "
                                  "write data.train instead, with \"chat_template\": \"alpaca\" in "
                                  "data for Alpaca's words");
    while ((value = mics_json_next(set, &name)) != NULL) {
        const bool alike =
            strcmp(name, "path") == 0 || mics_json_is_same(value, mics_json_get(first, name));
        odd = is_usual(name, value) && alike ? odd : name;
    }
    if (odd == NULL && mics_json_count(set) == mics_json_count(first))
        return MICS_OK;
    return mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                              "%s: cannot be honoured: of all rows, which are alike in all data "
                              "sets, the assistant's turns count; leave it out",
                              odd != NULL ? odd : "other keys than the first has");
}

static mics_status put_field(config *run, const adopted_key *row, const char *target,
                             const char *said)
{
    return said == NULL ? MICS_OK : put_string(run, row, target, said);
}

static mics_status put_chats(config *run, const adopted_key *row, const mics_json_value *set)
{
    const mics_json_value *names = mics_json_get(set, "message_property_mappings");
    const char *role = word_of(names, "role"), *content = word_of(names, "content");
    const bool own = word_of(set, template_key) != NULL || word_of(set, jinja_key) != NULL;
    run->run.messages_key = row->path;
    if (mics_json_count(names) != (role != NULL) + (content != NULL))
        return mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                  "message_property_mappings: has others than role and content; "
                                  "leave them out");
    role = role != NULL ? role : word_of(set, "message_field_role"); // as they were called before
    content = content != NULL ? content : word_of(set, "message_field_content");
    MICS_TRY(put_field(run, row, "data.fields.messages", word_of(set, "field_messages")));
    MICS_TRY(put_field(run, row, "data.fields.role", role));
    MICS_TRY(put_field(run, row, "data.fields.content", content));
    return put_named(run, row, own ? set : mics_json_root(run->run.json));
}

static mics_status put_datasets(config *run, const adopted_key *row, const mics_json_value *value)
{
    const mics_json_value *first = mics_json_element(value, 0);
    const char *field = word_of(first, "field");
    const int32_t refused = run->refused.count;
    mics_text paths = {.memory = run->memory};
    for (int32_t i = 0; i < mics_json_count(value); i++)
        MICS_TRY(check_set(run, row, mics_json_element(value, i), first));
    if (first == NULL || run->refused.count > refused)
        return MICS_OK;
    if (strcmp(word_of(first, "type"), "chat_template") == 0)
        MICS_TRY(put_chats(run, row, first));
    else
        MICS_TRY(put_string(run, row, "data.text_field", field != NULL ? field : "text"));
    if (mics_adopt_has(run, row->target))
        return MICS_OK; // --data goes before
    for (int32_t i = 0; i < mics_json_count(value); i++) {
        mics_text_printf(&paths, "%s", i > 0 ? ", " : "[");
        mics_text_quoted(&paths, word_of(mics_json_element(value, i), "path"));
    }
    mics_text_printf(&paths, "]");
    mics_status status = mics_text_status(&paths);
    if (status == MICS_OK)
        status = mics_adopt_put(run, row->target, paths.bytes, row->path, row->origin);
    mics_text_fini(&paths);
    return status;
}

static const adopted_key rows[] = {
    ADOPTED("assistant_only_loss", "data.loss_on", put_switch),
    ADOPTED("completion_only_loss", "data.loss_on", put_switch),
    ADOPTED("train_on_prompt", "data.loss_on", put_switch),
    ADOPTED("mask_history", "data.loss_on", put_switch),
    ADOPTED("packing", "data.packing", put_packing),
    ADOPTED("sample_packing", "data.packing", NULL),
    ADOPTED("neat_packing", "data.packing", put_switch),
    ADOPTED("stage", "data.text_field", put_stage),
    ADOPTED("chat_template_path", "data.chat_template", NULL),
    ADOPTED("chat_template", "data.chat_template", put_template),
    ADOPTED("chat_template_jinja", "data.chat_template", put_template),
    ADOPTED("special_tokens", "data.tokenizer", put_special),
    ADOPTED("datasets", "data.train", put_datasets),
};

const adopted_keys mics_adopt_chats = {rows, sizeof rows / sizeof *rows};
