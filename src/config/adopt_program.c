// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Programs around Hugging Face's Trainer, with defaults of their own.
//
// Source: trl/trainer/base_config.py and sft_config.py of TRL 1.16; transformers/examples/pytorch/
// language-modeling/run_clm.py of transformers 5.23; src/axolotl/utils/schemas of axolotl at
// 002a637c; src/llamafactory/hparams of LLaMA-Factory at 072bfe29.
#include "config/adopt_program.h"
#include "base/text.h"
#include "config/value.h"
#include "io/remote/remote.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_NAMES = 24, MAX_DEFAULTS = 8, TEXT_BYTES = 4096 };

typedef struct program {
    const char *name, *origin;
    const char *const names[MAX_NAMES]; // keys that it has and those below it do not
    struct {
        const char *target, *value;
        bool deepspeed; // DeepSpeed's configuration goes before, where it has an optimizer
    } defaults[MAX_DEFAULTS];
    // (optional) The key that says the length, and what it is where the file says none, but for
    // models with fewer positions; a null is a length where `null_is_none`.
    const char *const length[3];
    int64_t most;
    bool null_is_none, alpaca_as_texts; // a field of texts is read in rows of Alpaca's fields
    const char *packing;   // (optional) key whose default there, false, is refused here for texts
    const char *otherwise; // (optional) what is done here in another way, whatever the file says
} program;

#define NAMED(text) .name = (text), .origin = "auto: default of " text

// In this order: a file with keys of several is the first one's.
static const program programs[] = {
    {NAMED("axolotl"),
     .names = {"base_model", "sequence_len", "micro_batch_size", "num_epochs", "sample_packing",
               "val_set_size", "dataset_prepared_path"},
     .defaults = {{"train_micro_batch_size_per_gpu", "1", false},
                  {"num_train_epochs", "1", false},
                  {"scheduler.type", "\"cosine\"", false},
                  {"bf16.enabled", "true", false},
                  {"data.packing", "false", false},
                  {"data.too_long", "\"drop\"", false}},
     .length = {"sequence_len"}, .packing = "sample_packing", .most = 512,
     .otherwise =
         "of a chat all of the assistant's turns counts, not their text and eos_token alone"},
    {NAMED("LLaMA-Factory"),
     .names = {"finetuning_type", "stage", "cutoff_len", "dataset_dir", "template", "neat_packing"},
     .defaults = {{"data.packing", "false", false}}, .length = {"cutoff_len"}, .most = 2048,
     .otherwise = "chats longer than cutoff_len lose their end, not a share of each turn"},
    {NAMED("run_mlm.py"), .names = {"mlm_probability", "line_by_line", "pad_to_max_length"},
     .defaults = {{"data.text_field", "\"text\"", false}}, .length = {"max_seq_length"},
     .most = 1024},
    {NAMED("TRL's DPOConfig"),
     .names = {"beta", "precompute_ref_log_probs", "precompute_ref_batch_size", "reference_free",
               "f_divergence_type", "f_alpha_divergence_coef", "sync_ref_model",
               "ref_model_mixup_alpha", "ref_model_sync_steps", "max_prompt_length", "ld_alpha",
               "rpo_alpha", "discopop_tau", "use_weighting", "loss_weights", "disable_dropout",
               "use_logits_to_keep", "generate_during_eval"},
     .defaults = {{"objective.type", "\"dpo\"", false},
                  {"optimizer.params.lr", "1e-6", true},
                  {"run.log_every", "10", false},
                  {"bf16.enabled", "true", false},
                  {"run.recompute", "true", false},
                  {"model.dropout", "0", false}},
     .length = {"max_length"}, .most = 1024, .null_is_none = true,
     .otherwise = "pairs whose prompt fills a sequence count nothing, where TRL leaves them out"},
    {NAMED("TRL's SFTConfig"),
     .names = {"dataset_text_field", "max_length", "packing", "packing_strategy", "eval_packing",
               "padding_free", "assistant_only_loss", "completion_only_loss", "chat_template_path",
               "dataset_kwargs", "dataset_num_proc", "eos_token", "shuffle_dataset",
               "dataset_train_split", "dataset_test_split", "use_peft", "model_init_kwargs",
               "activation_offloading", "loss_type"},
     .defaults = {{"optimizer.params.lr", "2e-5", true},
                  {"run.log_every", "10", false},
                  {"bf16.enabled", "true", false},
                  {"run.recompute", "true", false},
                  {"data.add_special_tokens", "true", false},
                  {"data.packing", "false", false},
                  {"data.loss_on", "\"completion\"", false}},
     .length = {"max_length", "max_seq_length"}, .most = 1024, .null_is_none = true,
     .packing = "packing", .alpaca_as_texts = true,
     .otherwise = "no end of text is put behind texts unless tokenizer.json's post_processor does"},
    {NAMED("run_clm.py"),
     .names = {"block_size", "train_file", "validation_file", "validation_split_percentage",
               "preprocessing_num_workers", "config_overrides", "keep_linebreaks",
               "max_train_samples", "max_eval_samples", "config_name"},
     .defaults = {{"data.add_special_tokens", "true", false},
                  {"data.text_field", "\"text\"", false}},
     .length = {"block_size"}, .most = 1024},
};

enum { LLAMA_FACTORY = 1, PREFERENCES = 3, PROGRAMS = sizeof programs / sizeof *programs };

// ---- which it is ----

// The first of the program's keys that the file has.
static const char *find_key(const config *run, const program *of)
{
    for (int i = 0; i < MAX_NAMES && of->names[i] != NULL; i++) {
        if (mics_adopt_at(run, of->names[i]) != NULL && mics_json_line(run->run.json, of->names[i]))
            return of->names[i];
    }
    return NULL;
}

static bool has_pairs(const config *run)
{
    const char *type = mics_json_string(mics_adopt_at(run, "objective.type"));
    return type != NULL && (strcasecmp(type, "dpo") == 0 || strcasecmp(type, "ipo") == 0);
}

static const program *program_of(const config *run, const char **key_out)
{
    for (int i = 0; i < PROGRAMS; i++) {
        *key_out = find_key(run, &programs[i]);
        if (*key_out == NULL && i == PREFERENCES && has_pairs(run))
            *key_out = "objective.type";
        if (*key_out != NULL)
            return &programs[i];
    }
    return NULL;
}

static bool is_axolotl(const config *run)
{
    return find_key(run, &programs[0]) != NULL;
}

bool mics_adopt_is_llama_factory(const config *run)
{
    const char *said = NULL;
    return program_of(run, &said) == &programs[LLAMA_FACTORY];
}

bool mics_adopt_disables_dropout(const config *run)
{
    const char *said = NULL;
    const mics_json_value *told = mics_adopt_at(run, "disable_dropout");
    return program_of(run, &said) == &programs[PREFERENCES] &&
           (told == NULL || mics_json_bool(told));
}

// ---- what is written in another way ----

mics_status mics_adopt_reform(config *run)
{
    char text[CONFIG_PATH_BYTES];
    const mics_json_value *name = mics_adopt_at(run, "optimizer");
    if (!is_axolotl(run) || mics_json_type_of(name) != MICS_JSON_STRING)
        return MICS_OK;
    mics_config_value_text(name, text, sizeof text);
    MICS_TRY(mics_json_set_from(run->run.json, "optim", text, "optimizer"));
    return mics_json_set_from(run->run.json, "optimizer", "{}", "optimizer");
}

static mics_status put_scheduler(config *run, const adopted_key *row, const mics_json_value *value)
{
    char text[CONFIG_PATH_BYTES];
    return mics_json_set_from(run->run.json, row->target,
                              mics_config_value_text(value, text, sizeof text), row->path);
}

// A share of the data, which is drawn there and the end of the data here.
static mics_status put_held_out(config *run, const adopted_key *row, const mics_json_value *value)
{
    static const double LAST_TWENTIETH = 0.05;
    if (mics_json_is_number(value) && mics_json_real(value) == 0.0)
        return mics_adopt_put(run, row->target, "0", row->path, row->origin);
    return mics_json_is_number(value) && mics_json_real(value) == LAST_TWENTIETH
               ? MICS_OK
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "must be 0.05, as the last twentieth is held out, or 0; or "
                                    "give data.validation");
}

// Names of LLaMA-Factory's own list of data sets.
static mics_status put_named(config *run, const adopted_key *row, const mics_json_value *value)
{
    (void)value;
    return mics_adopt_has(run, row->target)
               ? MICS_OK
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "names an entry of dataset_info.json, which is not read; give "
                                    "its files by --data");
}

static const adopted_key rows[] = {
    ADOPTED("sequence_len", "data.sequence_length", NULL),
    ADOPTED("micro_batch_size", "train_micro_batch_size_per_gpu", NULL),
    ADOPTED("num_epochs", "num_train_epochs", NULL),
    ADOPTED("lr_scheduler", "lr_scheduler_type", put_scheduler),
    ADOPTED("val_set_size", "run.validation_batches", put_held_out),
    ADOPTED("cutoff_len", "data.sequence_length", NULL),
    ADOPTED("val_size", "run.validation_batches", put_held_out),
    ADOPTED("dataset", "data.train", put_named),
};

const adopted_keys mics_adopt_programs = {rows, sizeof rows / sizeof *rows};

// ---- defaults ----

static bool halves(const config *run)
{
    return mics_json_bool(mics_adopt_at(run, "fp16.enabled")) ||
           mics_adopt_says(run, "run.precision");
}

// Whether the file says in another place what a default would.
static bool says_elsewhere(const config *run, const char *target)
{
    if (strcmp(target, "bf16.enabled") == 0)
        return halves(run);
    if (strcmp(target, "num_train_epochs") == 0)
        return mics_adopt_says(run, "run.steps");
    if (strcmp(target, "model.dropout") == 0)
        return mics_adopt_has(run, "disable_dropout"); // the same
    if (strcmp(target, "run.recompute") == 0)
        return mics_adopt_has(run, "gradient_checkpointing"); // false is not put
    return strcmp(target, "scheduler.type") == 0 && mics_adopt_has(run, "lr_scheduler_type");
}

static mics_status fill_in(config *run, const program *of)
{
    for (int i = 0; i < MAX_DEFAULTS && of->defaults[i].target != NULL; i++) {
        const char *target = of->defaults[i].target, *origin = of->origin;
        if (says_elsewhere(run, target))
            continue;
        if (strcmp(target, "data.packing") == 0)
            run->run.packing_default = !mics_adopt_says(run, target);
        if (strcmp(target, "data.add_special_tokens") == 0 && !mics_adopt_has(run, target)) {
            run->run.special_tokens_open = true;
            origin = "auto: where the tokenizer puts something around a text, as TRL and "
                     "run_clm.py do";
        }
        MICS_TRY(mics_adopt_default_of(run, target, of->defaults[i].value, origin,
                                       of->defaults[i].deepspeed && run->deepspeed_optimizer));
    }
    return MICS_OK;
}

static void limit_length(config *run, const program *of)
{
    bool none = false;
    for (int i = 0; i < 3 && of->length[i] != NULL; i++)
        none = none || mics_adopt_at(run, of->length[i]) != NULL; // a null, as others were put
    if (mics_adopt_says(run, "data.sequence_length") || (none && of->null_is_none))
        return;
    run->run.max_sequence_length = of->most;
    run->adopted[mics_config_find("data.sequence_length")] = of->origin;
}

static void remark(config *run, const program *of, const char *said)
{
    const char *other = NULL;
    for (int i = (int)(of - programs) + 1; i < PROGRAMS && other == NULL; i++)
        other = find_key(run, &programs[i]);
    const bool packs = of->packing != NULL && !mics_adopt_has(run, of->packing);
    mics_text_format(run->program_text, sizeof run->program_text,
                     "is taken as a file of %s, which has %s%s%s%s: what it leaves out has that "
                     "program's defaults%s%s%s%s%s",
                     of->name, said, other != NULL ? " (though not " : "",
                     other != NULL ? other : "", other != NULL ? ")" : "",
                     packs ? ", but for " : "", packs ? of->packing : "",
                     packs ? " of texts: its default false is refused here, as they are cut from "
                             "one stream of tokens"
                           : "",
                     of->otherwise != NULL ? "; " : "", of->otherwise != NULL ? of->otherwise : "");
}

// What a file says that may be a script's of any of them.
static void remark_open(config *run)
{
    const bool rate = !mics_adopt_says(run, "optimizer.params.lr"),
               precision = !mics_adopt_says(run, "bf16.enabled") && !halves(run);
    if (run->by_deepspeed || (!rate && !precision))
        return;
    mics_text_format(run->program_text, sizeof run->program_text,
                     "leaves %s to the program that it is for: taken as of transformers' Trainer "
                     "(learning_rate 5e-5, fp32); TRL's SFTConfig has 2e-5, bf16 and "
                     "gradient_checkpointing; say them",
                     rate && precision ? "learning_rate and bf16"
                     : rate            ? "learning_rate"
                                       : "bf16");
}

mics_status mics_adopt_program_defaults(config *run, bool trainer)
{
    const char *said = NULL;
    const program *of = trainer ? program_of(run, &said) : NULL;
    if (of == NULL) {
        if (trainer)
            remark_open(run);
        return MICS_OK;
    }
    MICS_TRY(fill_in(run, of));
    run->run.alpaca_as_texts = of->alpaca_as_texts;
    limit_length(run, of);
    remark(run, of, said);
    return MICS_OK;
}

// Of a folder's defaults those that no flag replaces; before they are filled in.
static void remark_tuned(config *run, bool adapts, bool pairs)
{
    const char *rate = pairs    ? adapts ? "lr 1e-5, of an adapter" : "lr 1e-6"
                       : adapts ? "lr 2e-4, of an adapter"
                                : "lr 2e-5";
    const struct {
        const char *path, *says;
    } told[] = {{"optimizer.params.lr", rate},
                {"scheduler.type", "a scheduler that falls linearly"},
                {"num_train_epochs", "3 epochs"},
                {"train_micro_batch_size_per_gpu", pairs ? "8 pairs a rank" : "8 sequences a rank"},
                {"gradient_clipping", "gradient_clipping 1"},
                {"data.sequence_length", "at most 1024 tokens a sequence"}};
    const char *batch = told[3].path;
    size_t used = (size_t)snprintf(run->program_text, sizeof run->program_text, "is fine-tuned");
    const char *between = pairs ? "; what no flag says is as in TRL's DPOConfig: "
                                : "; what no flag says is as in TRL's SFTConfig: ";
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        const char *path = told[i].path;
        const bool said = path == batch ? mics_json_line(run->run.json, path) == 0 // by --set
                                        : mics_adopt_says(run, path) || says_elsewhere(run, path);
        if (said)
            continue;
        used += (size_t)snprintf(run->program_text + used, sizeof run->program_text - used, "%s%s",
                                 between, told[i].says);
        between = ", ";
    }
}

mics_status mics_adopt_folder_defaults(config *run)
{
    static const program tuned = {.origin = "auto: of fine-tuning",
                                  .defaults = {{"num_train_epochs", "3", false},
                                               {"gradient_clipping", "1", false},
                                               {"scheduler.type", "\"linear\"", false}},
                                  .most = 1024};
    static const program fresh = {.origin = "auto: the model's positions, at most 1024",
                                  .most = 1024};
    const char *init = mics_json_string(mics_adopt_at(run, "model.init")), *weights = NULL;
    const char *folder = mics_json_name(run->run.json);
    if (mics_remote_is(folder))
        folder = mics_json_string(mics_adopt_at(run, "model.config")); // where that lies
    if (mics_json_line(run->run.json, "data") > 0)
        return MICS_OK; // it stands in a file, or is planned
    MICS_TRY(mics_run_find_weights(run->memory, folder, &weights));
    if (weights == NULL || (init != NULL && strcmp(init, "random") == 0)) {
        limit_length(run, &fresh);
        return MICS_OK;
    }
    remark_tuned(run, mics_adopt_has(run, "adapter"), has_pairs(run));
    MICS_TRY(fill_in(run, &tuned));
    limit_length(run, &tuned);
    return MICS_OK;
}
