// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Arguments of Hugging Face's Trainer, and what it takes for those that nobody gives.
//
// Source: transformers/training_args.py and integrations/deepspeed.py of transformers 5.23.
#include "config/adopt_trainer.h"
#include "base/text.h"
#include "config/value.h"
#include <math.h>
#include <string.h>

#define DEFAULT_BETA1 0.9
#define DEFAULT_BETA2 0.999

enum { TEXT_BYTES = 256, MAX_PATH_BYTES = 1024 };

static bool is_text(const mics_json_value *value, const char *text)
{
    const char *said = mics_json_string(value);
    return said != NULL && strcmp(said, text) == 0;
}

static mics_status put_value(config *run, const adopted_key *row, const mics_json_value *value)
{
    char text[TEXT_BYTES];
    mics_config_value_text(value, text, sizeof text);
    return mics_adopt_put(run, row->target, text, row->path, row->origin);
}

// ---- one argument each ----

// -1 and 0 are the Trainer's "not given".
static bool is_given(const mics_json_value *value)
{
    return !mics_json_is_number(value) || mics_json_real(value) > 0.0;
}

static bool is_share(const mics_json_value *value)
{
    return mics_json_is_number(value) && mics_json_real(value) > 0.0 && mics_json_real(value) < 1.0;
}

static mics_status put_steps(config *run, const adopted_key *row, const mics_json_value *value)
{
    if (is_share(value))
        return mics_config_refuse(run, row->path, MICS_ERR_INVALID,
                                  "must be 1 or more steps, or -1 for num_train_epochs");
    return is_given(value) ? put_value(run, row, value) : MICS_OK;
}

// Steps between two of a kind, also as a share of all, which max_steps must say then.
mics_status mics_adopt_interval(config *run, const adopted_key *row, const mics_json_value *value)
{
    const mics_json_value *steps = mics_adopt_at(run, "run.steps");
    char text[TEXT_BYTES];
    if (!is_share(value))
        return is_given(value) ? put_value(run, row, value) : MICS_OK;
    if (!mics_json_is_number(steps))
        return mics_config_refuse(run, row->path, MICS_ERR_INVALID,
                                  "is a share of all steps, which only max_steps says beforehand; "
                                  "give max_steps, or 1 or more steps");
    mics_text_format(text, sizeof text, "%.0f",
                     ceil(mics_json_real(steps) * mics_json_real(value)));
    return mics_adopt_put(run, row->target, text, row->path, row->origin);
}

// 0 and below: all are kept.
static mics_status put_limit(config *run, const adopted_key *row, const mics_json_value *value)
{
    return is_given(value) ? put_value(run, row, value)
                           : mics_adopt_put(run, row->target, "0", row->path, row->origin);
}

static mics_status put_if_true(config *run, const adopted_key *row, const mics_json_value *value)
{
    bool on = false;
    MICS_TRY(mics_adopt_switch(run, row->path, value, &on));
    return on ? mics_adopt_put(run, row->target, "true", row->path, row->origin) : MICS_OK;
}

// DeepSpeed's section of that name is adopted too: it is there to have activations recomputed.
static mics_status put_recompute(config *run, const adopted_key *row, const mics_json_value *value)
{
    if (mics_json_type_of(value) != MICS_JSON_OBJECT)
        return put_if_true(run, row, value);
    return mics_json_count(value) > 0
               ? mics_adopt_put(run, row->target, "true", row->path, row->origin)
               : MICS_OK;
}

static mics_status put_cpu(config *run, const adopted_key *row, const mics_json_value *value)
{
    bool on = false;
    MICS_TRY(mics_adopt_switch(run, row->path, value, &on));
    return on ? mics_adopt_put(run, row->target, "\"cpu\"", row->path, row->origin) : MICS_OK;
}

// Its names for an optimizer here; an implementation makes no difference.
static const struct {
    const char *theirs, *ours, *state_dtype; // NULL: nothing is said
} optimizers[] = {
    {"adamw_torch|adamw_torch_fused|adamw_hf|adamw_apex_fused|adamw_torch_xla|paged_adamw_32bit|"
     "paged_adamw",
     "\"AdamW\"", NULL},
    {"adamw_8bit|adamw_bnb_8bit|paged_adamw_8bit", "\"AdamW\"", "\"8bit\""},
    {"sgd", "\"SGD\"", NULL},
    {"lion_32bit|lion|paged_lion_32bit", "\"Lion\"", NULL},
    {"lion_8bit|paged_lion_8bit", "\"Lion\"", "\"8bit\""},
};

static mics_status put_optimizer(config *run, const adopted_key *row, const mics_json_value *value)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        if (!mics_text_is_among(mics_json_string(value), optimizers[i].theirs))
            continue;
        if (mics_adopt_at(run, "optimizer.type") != NULL) // DeepSpeed's goes before
            return MICS_OK;
        MICS_TRY(mics_adopt_put(run, row->target, optimizers[i].ours, row->path, row->origin));
        return optimizers[i].state_dtype == NULL
                   ? MICS_OK
                   : mics_adopt_put(run, "optimizer.params.state_dtype", optimizers[i].state_dtype,
                                    row->path, row->origin);
    }
    char text[TEXT_BYTES];
    return mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                              "%s is not built; adamw_torch and other names of AdamW in 8 or 32 "
                              "bits, sgd, lion_8bit and lion_32bit are",
                              mics_config_value_text(value, text, sizeof text));
}

// DeepSpeed's rate of Muon's matrices. It goes before lr, which stays that of the rest.
static mics_status put_muon_lr(config *run, const adopted_key *row, const mics_json_value *value)
{
    static const char rest_key[] = "optimizer.params.adam_lr";
    const mics_json_value *lr = mics_adopt_at(run, row->target);
    char text[TEXT_BYTES], rest[TEXT_BYTES];
    if (!mics_json_is_number(value) || !is_text(mics_adopt_at(run, "optimizer.type"), "Muon"))
        return mics_config_refuse(run, row->path, MICS_ERR_INVALID,
                                  "must be a number, and is for optimizer.type \"Muon\" alone");
    if (mics_json_is_number(lr) && mics_json_line(run->run.json, row->target) == 0)
        return MICS_OK; // --set goes before
    const bool keeps = mics_json_is_number(lr) && mics_json_real(lr) != mics_json_real(value) &&
                       !mics_adopt_says(run, rest_key);
    mics_config_value_text(value, text, sizeof text);
    mics_config_value_text(lr, rest, sizeof rest);
    if (keeps)
        MICS_TRY(mics_adopt_put(run, rest_key, rest, row->target, "auto: optimizer.params.lr"));
    run->adopted[mics_config_find(row->target)] = row->origin;
    return mics_json_set_from(run->run.json, row->target, text, row->path);
}

// Whether the optimizer has a number. The Trainer's arguments hold AdamW's, whatever it is.
static bool takes(const config *run, const char *setting)
{
    const mics_optimizer_def *def = mics_optimizer_def_get(mics_config_optimizer_of(run->run.json));
    bool found = false;
    for (int32_t i = 0; i < def->settings; i++)
        found = found || strcmp(def->setting[i].name, setting) == 0;
    return found;
}

static mics_status put_eps(config *run, const adopted_key *row, const mics_json_value *value)
{
    return takes(run, "eps") ? put_value(run, row, value) : MICS_OK;
}

static mics_status put_betas(config *run, const adopted_key *row, const mics_json_value *value)
{
    char text[TEXT_BYTES], first[40], second[40];
    const mics_json_value *beta1 = mics_adopt_at(run, "adam_beta1"),
                          *beta2 = mics_adopt_at(run, "adam_beta2");
    if (strcmp(row->path, "adam_beta2") == 0 && mics_json_type_of(beta1) != MICS_JSON_NULL)
        return MICS_OK; // both were put by the first
    if (!takes(run, "beta1"))
        return MICS_OK;
    if (!mics_json_is_number(value) ||
        (mics_json_type_of(beta2) != MICS_JSON_NULL && !mics_json_is_number(beta2)))
        return mics_config_refuse(run, row->path, MICS_ERR_FORMAT, "must be a number");
    mics_text_real(mics_json_is_number(beta1) ? mics_json_real(beta1) : DEFAULT_BETA1, first,
                   sizeof first);
    mics_text_real(mics_json_is_number(beta2) ? mics_json_real(beta2) : DEFAULT_BETA2, second,
                   sizeof second);
    mics_text_format(text, sizeof text, "[%s, %s]", first, second);
    return mics_adopt_put(run, row->target, text, row->path, row->origin);
}

static bool names(const mics_json_value *value, const char *name)
{
    bool found = is_text(value, name);
    for (int32_t i = 0; i < mics_json_count(value) && mics_json_type_of(value) == MICS_JSON_ARRAY;
         i++)
        found = found || is_text(mics_json_element(value, i), name);
    return found;
}

// "FOLDER" or "FOLDER/NAME.END".
static mics_status put_path(config *run, const adopted_key *row, const char *folder,
                            const char *name, const char *end)
{
    char path[MAX_PATH_BYTES + 1], text[6 * MAX_PATH_BYTES + 8]; // the longest escapes have 6
    const size_t bytes = strlen(folder) + 1 + strlen(name) + strlen(end);
    if (bytes > MAX_PATH_BYTES)
        return mics_config_refuse(run, row->path, MICS_ERR_INVALID,
                                  "gives a path of more than %d bytes; take a shorter one",
                                  MAX_PATH_BYTES);
    mics_text_format(path, sizeof path, "%s%s%s%s", folder, name[0] != '\0' ? "/" : "", name, end);
    mics_config_string_text(path, text, sizeof text);
    return mics_adopt_put(run, row->target, text, row->path, row->origin);
}

// That report_to may name, and nobody sends to.
static const char *const trackers[] = {"wandb",    "mlflow",     "comet_ml", "clearml",
                                       "neptune",  "swanlab",    "trackio",  "dvclive",
                                       "azure_ml", "codecarbon", "dagshub",  "flyte"};

static mics_status put_report(config *run, const adopted_key *row, const mics_json_value *value)
{
    const char *folder = mics_json_string(mics_adopt_at(run, "logging_dir"));
    const char *out = mics_json_string(mics_adopt_at(run, "output_dir"));
    for (size_t i = 0; i < sizeof trackers / sizeof *trackers; i++) // keys that have no effect
        if (names(value, trackers[i]) && !mics_adopt_has(run, trackers[i]))
            MICS_TRY(mics_json_set_from(run->run.json, trackers[i], "true", row->path));
    if (!names(value, "tensorboard") && !is_text(value, "all"))
        return MICS_OK;
    return folder != NULL ? put_path(run, row, folder, "", "")
                          : put_path(run, row, out != NULL ? out : "trainer_output", "runs", "");
}

// DeepSpeed's monitors: {"enabled": true, "output_path": FOLDER, "job_name": NAME}.
static mics_status put_monitor(config *run, const adopted_key *row, const mics_json_value *value)
{
    const char *folder = mics_json_string(mics_json_get(value, "output_path"));
    const char *name = mics_json_string(mics_json_get(value, "job_name"));
    const bool csv = strcmp(row->path, "csv_monitor") == 0;
    if (!mics_json_bool(mics_json_get(value, "enabled")) || mics_config_find(row->target) < 0)
        return MICS_OK;
    return put_path(run, row, folder != NULL && *folder != '\0' ? folder : "runs",
                    name != NULL ? name : "DeepSpeedJobName", csv ? ".csv" : "");
}

// Read by those above, or by mics_adopt_schedule, mics_adopt_precision and mics_adopt_saves.
static mics_status put_nothing(config *run, const adopted_key *row, const mics_json_value *value)
{
    (void)run;
    (void)row;
    (void)value;
    return MICS_OK;
}

// The same of a switch.
static mics_status put_switched(config *run, const adopted_key *row, const mics_json_value *value)
{
    bool on = false;
    return mics_adopt_switch(run, row->path, value, &on);
}

static const adopted_key rows[] = {
    ADOPTED("per_device_train_batch_size", "train_micro_batch_size_per_gpu", NULL),
    ADOPTED("per_gpu_train_batch_size", "train_micro_batch_size_per_gpu", NULL),
    ADOPTED("learning_rate", "optimizer.params.lr", NULL, .deepspeed = "0.001", .trainer = "5e-5"),
    ADOPTED("weight_decay", "optimizer.params.weight_decay", NULL, .deepspeed = "0"),
    ADOPTED("optim", "optimizer.type", put_optimizer), // before its numbers
    ADOPTED("optimizer.params.muon_lr", "optimizer.params.lr", put_muon_lr),
    ADOPTED("adam_epsilon", "optimizer.params.eps", put_eps, .deepspeed = "1e-08"),
    ADOPTED("adam_beta1", "optimizer.params.betas", put_betas, .deepspeed = "0.9"),
    ADOPTED("adam_beta2", "optimizer.params.betas", put_betas, .deepspeed = "0.999"),
    ADOPTED("max_grad_norm", "gradient_clipping", NULL, .null = "0", .deepspeed = "0",
            .trainer = "1"),
    ADOPTED("max_steps", "run.steps", put_steps),
    ADOPTED("seed", "run.seed", NULL),
    ADOPTED("output_dir", "run.out", NULL),
    ADOPTED("logging_steps", "run.log_every", mics_adopt_interval),
    ADOPTED("save_strategy", "run.checkpoint_every", put_nothing),
    ADOPTED("save_steps", "run.checkpoint_every", put_nothing),
    ADOPTED("save_total_limit", "run.keep_checkpoints", put_limit, .null = "0"),
    ADOPTED("eval_strategy", "run.validate_every", put_nothing),
    ADOPTED("evaluation_strategy", "run.validate_every", put_nothing),
    ADOPTED("eval_steps", "run.validate_every", put_nothing),
    ADOPTED("load_best_model_at_end", "run.keep_best", put_nothing),
    ADOPTED("metric_for_best_model", "run.keep_best", put_nothing),
    ADOPTED("greater_is_better", "run.keep_best", put_nothing),
    ADOPTED("early_stopping_patience", "run.stop_after_no_improvement", NULL),
    ADOPTED("gradient_checkpointing", "run.recompute", put_if_true),
    ADOPTED("activation_checkpointing", "run.recompute", put_recompute),
    ADOPTED("use_cpu", "run.device", put_cpu),
    ADOPTED("no_cuda", "run.device", put_cpu),
    ADOPTED("report_to", "run.tensorboard", put_report),
    ADOPTED("tensorboard", "run.tensorboard", put_monitor),
    ADOPTED("csv_monitor", "run.csv", put_monitor),
    ADOPTED("tf32", "run.precision", put_switched),
    ADOPTED("bfloat16", "bf16.enabled", put_nothing),
    ADOPTED("zero_optimization.param_persistence_threshold",
            "zero_optimization.stage3_param_persistence_threshold", NULL),
    ADOPTED("lr_scheduler_type", "scheduler.type", put_nothing),
    ADOPTED("lr_scheduler_kwargs", "scheduler.params", put_nothing),
    ADOPTED("warmup_steps", "scheduler.params.warmup_num_steps", put_nothing),
    ADOPTED("warmup_ratio", "scheduler.params.warmup_ratio", put_nothing),
};

const adopted_keys mics_adopt_trainer = {rows, sizeof rows / sizeof *rows};

bool mics_adopt_names_trainer(const mics_json *json)
{
    static const char *const names[] = {"per_device_train_batch_size",
                                        "num_train_epochs",
                                        "max_steps",
                                        "learning_rate",
                                        "base_model",
                                        "finetuning_type",
                                        "lr_scheduler_type",
                                        "output_dir",
                                        "warmup_ratio",
                                        "warmup_steps",
                                        "max_grad_norm",
                                        "deepspeed",
                                        "optim",
                                        "distributed_type",
                                        "compute_environment"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found = found || (mics_json_type_of(mics_json_at(json, names[i])) != MICS_JSON_NULL &&
                          mics_json_line(json, names[i]) > 0);
    return found && mics_json_line(json, "run") == 0;
}

// ---- precision ----

static mics_status put_switch(config *run, const char *path, const char *origin,
                              const char *section)
{
    char text[TEXT_BYTES], enabled[TEXT_BYTES];
    const mics_json_value *value = mics_adopt_at(run, path);
    if (mics_adopt_is_auto(value))
        return mics_json_set_from(run->run.json, section, "{\"enabled\": \"auto\"}", path);
    if (mics_json_type_of(value) == MICS_JSON_STRING)
        return mics_json_fail(run->run.json, path, MICS_ERR_FORMAT,
                              "must be true or false, without quotes, or an object");
    if (mics_json_type_of(value) != MICS_JSON_BOOL)
        return MICS_OK;
    mics_text_format(text, sizeof text, "{\"enabled\": %s}",
                     mics_json_bool(value) ? "true" : "false");
    mics_text_format(enabled, sizeof enabled, "%s.enabled", section);
    run->adopted[mics_config_find(enabled)] = origin;
    return mics_json_set_from(run->run.json, section, text, path);
}

mics_status mics_adopt_precision(config *run)
{
    const mics_json_value *mixed = mics_adopt_at(run, "mixed_precision");
    MICS_TRY(put_switch(run, "bf16", "auto: bf16", "bf16"));
    MICS_TRY(put_switch(run, "fp16", "auto: fp16", "fp16"));
    if (is_text(mixed, "bf16"))
        MICS_TRY(mics_adopt_put(run, "bf16.enabled", "true", "mixed_precision",
                                "auto: mixed_precision"));
    if (is_text(mixed, "fp16"))
        MICS_TRY(mics_adopt_put(run, "fp16.enabled", "true", "mixed_precision",
                                "auto: mixed_precision"));
    return MICS_OK;
}

// DeepSpeed's old name of the section bf16; what that has no key for is refused there.
static mics_status put_bfloat16(config *run)
{
    static const char old_section[] = "bfloat16";
    const mics_json_value *section = mics_adopt_at(run, old_section), *member = NULL;
    const char *name = NULL;
    char from[CONFIG_PATH_BYTES], to[CONFIG_PATH_BYTES], text[TEXT_BYTES];
    if (mics_json_type_of(section) == MICS_JSON_NULL)
        return MICS_OK;
    if (mics_json_type_of(section) != MICS_JSON_OBJECT)
        return mics_config_refuse(run, old_section, MICS_ERR_FORMAT,
                                  "must be an object, as in {\"enabled\": true}");
    while ((member = mics_json_next(section, &name)) != NULL) {
        bool on = false;
        mics_text_format(from, sizeof from, "%s.%s", old_section, name);
        mics_text_format(to, sizeof to, "bf16.%s", name);
        if (strcmp(name, "enabled") == 0 && !mics_adopt_is_auto(member))
            MICS_TRY(mics_adopt_switch(run, from, member, &on));
        if (mics_json_type_of(member) == MICS_JSON_NULL)
            continue;
        mics_config_value_text(member, text, sizeof text);
        MICS_TRY(mics_adopt_put(run, to, text, from, "auto: bfloat16"));
    }
    return MICS_OK;
}

mics_status mics_adopt_lifted_precision(config *run)
{
    MICS_TRY(put_bfloat16(run));
    const bool halves = mics_json_bool(mics_adopt_at(run, "bf16.enabled")) ||
                        mics_json_bool(mics_adopt_at(run, "fp16.enabled"));
    return mics_json_bool(mics_adopt_at(run, "tf32")) && !halves
               ? mics_adopt_put(run, "run.precision", "\"tf32\"", "tf32", "auto: tf32")
               : MICS_OK;
}

// ---- schedule ----

// Names of lr_scheduler_kwargs, and here.
static const struct {
    const char *theirs, *path, *target, *origin;
} kwargs[] = {
#define KWARG(name, here)                                                                          \
    {                                                                                              \
        name, "lr_scheduler_kwargs." name, "scheduler.params." here, "auto: lr_scheduler_kwargs"   \
    }
    KWARG("num_cycles", "num_cycles"),
    KWARG("lr_end", "lr_end"),
    KWARG("power", "power"),
    KWARG("timescale", "timescale"),
    KWARG("min_lr", "min_lr"),
    KWARG("min_lr_rate", "min_ratio"),
    KWARG("min_lr_ratio", "min_ratio"),
    KWARG("num_decay_steps", "decay_num_steps"),
    KWARG("num_stable_steps", "stable_num_steps"),
    KWARG("warmup_type", "warmup_type"),
    KWARG("decay_type", "decay_type"),
#undef KWARG
};

static mics_status put_kwarg(config *run, const char *name, const mics_json_value *value)
{
    char text[TEXT_BYTES], path[CONFIG_PATH_BYTES];
    mics_config_value_text(value, text, sizeof text);
    for (size_t i = 0; i < sizeof kwargs / sizeof *kwargs; i++) {
        if (strcmp(kwargs[i].theirs, name) == 0)
            return mics_adopt_put(run, kwargs[i].target, text, kwargs[i].path, kwargs[i].origin);
    }
    mics_text_format(path, sizeof path, "lr_scheduler_kwargs.%s", name);
    return mics_config_refuse(run, path, MICS_ERR_INVALID,
                              "is no argument of a scheduler that is built");
}

static mics_status put_kwargs(config *run)
{
    const char *name = NULL;
    const mics_json_value *value = NULL, *object = mics_adopt_at(run, "lr_scheduler_kwargs");
    if (mics_json_type_of(object) != MICS_JSON_OBJECT &&
        mics_json_type_of(object) != MICS_JSON_NULL)
        return mics_config_refuse(run, "lr_scheduler_kwargs", MICS_ERR_FORMAT, "must be an object");
    while ((value = mics_json_next(object, &name)) != NULL) {
        if (mics_json_type_of(value) != MICS_JSON_NULL)
            MICS_TRY(put_kwarg(run, name, value));
    }
    return MICS_OK;
}

static const char warmup_key[] = "scheduler.params.warmup_num_steps";

// As the Trainer does: steps where 1 or more are given, else a share, be it in warmup_steps.
static mics_status put_warmup(config *run)
{
    static const char ratio_key[] = "scheduler.params.warmup_ratio";
    const mics_json_value *steps = mics_adopt_at(run, "warmup_steps"),
                          *ratio = mics_adopt_at(run, "warmup_ratio");
    char text[TEXT_BYTES];
    const bool shares = mics_json_real(steps) > 0.0 && mics_json_real(steps) < 1.0;
    if (mics_adopt_says(run, warmup_key))
        return MICS_OK; // DeepSpeed's goes before
    if (mics_json_real(steps) >= 1.0) {
        mics_text_format(text, sizeof text, "%.15g", floor(mics_json_real(steps)));
        return mics_adopt_put(run, warmup_key, text, "warmup_steps", "auto: warmup_steps");
    }
    if (!shares && mics_json_real(ratio) == 0.0)
        return MICS_OK;
    mics_config_value_text(shares ? steps : ratio, text, sizeof text);
    if (mics_adopt_has(run, warmup_key)) // "auto", which would stand before the share
        MICS_TRY(mics_json_set_from(run->run.json, warmup_key, "null", warmup_key));
    return mics_adopt_put(run, ratio_key, text, shares ? "warmup_steps" : "warmup_ratio",
                          shares ? "auto: warmup_steps" : "auto: warmup_ratio");
}

// Beside a scheduler that DeepSpeed's configuration gives, the Trainer fills in "auto" alone.
static mics_status put_deepspeed_warmup(config *run)
{
    const bool by_steps = mics_json_real(mics_adopt_at(run, "warmup_steps")) > 0.0;
    const bool asks = by_steps || mics_json_real(mics_adopt_at(run, "warmup_ratio")) > 0.0;
    if (mics_adopt_has(run, warmup_key) || !asks)
        return put_warmup(run);
    if (!mics_adopt_has_deepspeed(run))
        return put_warmup(run); // one file, which says the two side by side
    return mics_config_refuse(run, by_steps ? "warmup_steps" : "warmup_ratio", MICS_ERR_INVALID,
                              "has no effect in the Trainer, as DeepSpeed's scheduler has no "
                              "warmup_num_steps; write it there, as \"auto\" (OneCycle has none), "
                              "or leave this out");
}

static mics_status check_number(config *run, const char *path)
{
    const mics_json_value *value = mics_adopt_at(run, path);
    return mics_json_type_of(value) == MICS_JSON_NULL ||
                   (mics_json_is_number(value) && mics_json_real(value) >= 0.0)
               ? MICS_OK
               : mics_config_refuse(run, path, MICS_ERR_FORMAT,
                                    "must be a number, 0 or more and without quotes");
}

mics_status mics_adopt_schedule(config *run, bool linear)
{
    char text[TEXT_BYTES];
    const mics_json_value *type = mics_adopt_at(run, "lr_scheduler_type");
    MICS_TRY(check_number(run, "warmup_steps"));
    MICS_TRY(check_number(run, "warmup_ratio"));
    if (mics_adopt_says(run, "scheduler.type"))
        return put_deepspeed_warmup(run);
    mics_config_value_text(type, text, sizeof text);
    if (mics_json_type_of(type) != MICS_JSON_NULL)
        MICS_TRY(mics_adopt_put(run, "scheduler.type", text, "lr_scheduler_type",
                                "auto: lr_scheduler_type"));
    else if (linear)
        MICS_TRY(mics_adopt_default(run, "scheduler.type", "\"linear\"", false));
    MICS_TRY(put_kwargs(run));
    return is_text(mics_adopt_at(run, "scheduler.type"), "constant") ? MICS_OK : put_warmup(run);
}

// ---- defaults ----

// What stands in "auto" of a warm-up under DeepSpeed, which counts at least 1.
static mics_status default_warmup(config *run)
{
    const char *type = mics_json_string(mics_adopt_at(run, "scheduler.type"));
    const bool deepspeed = type != NULL && strncmp(type, "Warmup", 6) == 0;
    return mics_adopt_default(run, "scheduler.params.warmup_num_steps", deepspeed ? "1" : "0",
                              true);
}

static mics_status default_batch(config *run, bool only_auto)
{
    static const char micro_key[] = "train_micro_batch_size_per_gpu";
    if (mics_adopt_says(run, "train_batch_size")) // the others follow from it
        return MICS_OK;
    // A batch that is all "auto" is the Trainer's, whoever's the file is.
    const bool all_auto =
        only_auto && !mics_adopt_has(run, micro_key) && mics_adopt_has(run, "train_batch_size");
    MICS_TRY(mics_adopt_default(run, micro_key, "8", only_auto && !all_auto));
    return mics_adopt_default(run, "gradient_accumulation_steps", "1", only_auto);
}

static mics_status default_precision(config *run, bool only_auto)
{
    if (only_auto || mics_adopt_says(run, "run.precision"))
        return MICS_OK;
    MICS_TRY(mics_adopt_default(run, "bf16.enabled", "false", false));
    return mics_adopt_default(run, "fp16.enabled", "false", false);
}

// An epoch of data thrice; DeepSpeed's files with a number of steps say that.
static mics_status default_steps(config *run, bool only_auto)
{
    if (only_auto || mics_adopt_says(run, "run.steps"))
        return MICS_OK;
    return mics_adopt_default(run, "num_train_epochs", "3", false);
}

mics_status mics_adopt_trainer_defaults(config *run, bool only_auto)
{
    const bool auto_params = only_auto || run->deepspeed_optimizer;
    MICS_TRY(mics_adopt_default(run, "optimizer.params.lr", "5e-5", auto_params));
    if (takes(run, "beta1"))
        MICS_TRY(mics_adopt_default(run, "optimizer.params.betas", "[0.9, 0.999]", auto_params));
    if (takes(run, "eps"))
        MICS_TRY(mics_adopt_default(run, "optimizer.params.eps", "1e-8", auto_params));
    MICS_TRY(mics_adopt_default(run, "optimizer.params.weight_decay", "0", auto_params));
    MICS_TRY(mics_adopt_default(run, "gradient_clipping", "1", only_auto || run->by_deepspeed));
    MICS_TRY(mics_adopt_default(run, "run.seed", "42", only_auto));
    if (!only_auto && !mics_adopt_has(run, "scheduler"))
        MICS_TRY(mics_adopt_default(run, "scheduler.type", "\"linear\"", false));
    MICS_TRY(default_warmup(run));
    MICS_TRY(default_batch(run, only_auto));
    MICS_TRY(default_precision(run, only_auto));
    return default_steps(run, only_auto);
}
