// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// When the Trainer saves and validates, and which checkpoint it keeps.
//
// Source: transformers/training_args.py of transformers 5.23.
#include "config/adopt_saves.h"
#include "config/adopt_trainer.h"
#include <stddef.h>
#include <string.h>

// Two arguments that say when something is done. Steps that nobody says are those of `or_steps`,
// and the Trainer's default where that says none.
typedef struct timing {
    const char *strategy, *old_strategy, *or_steps;
    adopted_key steps;
    size_t each_epoch;    // offset of the flag in config
    const char *by_epoch; // origin
} timing;

static const timing saves = {.strategy = "save_strategy",
                             .steps = ADOPTED("save_steps", "run.checkpoint_every", NULL),
                             .each_epoch = offsetof(config, saves_each_epoch),
                             .by_epoch = "auto: save_strategy"};
static const timing validations = {.strategy = "eval_strategy",
                                   .old_strategy = "evaluation_strategy",
                                   .or_steps = "logging_steps",
                                   .steps = ADOPTED("eval_steps", "run.validate_every", NULL),
                                   .each_epoch = offsetof(config, validates_each_epoch),
                                   .by_epoch = "auto: eval_strategy"};

// ---- when ----

static mics_status put_steps(config *run, const timing *of, bool trainer)
{
    adopted_key row = of->steps;
    if (!mics_adopt_has(run, row.path) && of->or_steps != NULL && mics_adopt_has(run, of->or_steps))
        row.path = of->or_steps;
    if (mics_adopt_has(run, row.path))
        return mics_adopt_interval(run, &row, mics_adopt_at(run, row.path));
    return trainer ? mics_adopt_default(run, row.target, "500", false) : MICS_OK;
}

// Nobody knows the steps of an epoch yet.
static mics_status put_epoch(config *run, const timing *of, const char *path)
{
    const char *target = of->steps.target;
    if (mics_adopt_says(run, target)) // which --set may, and the file may not
        return mics_adopt_put(run, target, "\"epoch\"", path, of->by_epoch);
    *(bool *)((char *)run + of->each_epoch) = true;
    run->adopted[mics_config_find(target)] = of->by_epoch;
    return MICS_OK;
}

static mics_status put_timing(config *run, const timing *of, const char *usual, bool trainer)
{
    const bool old = !mics_adopt_has(run, of->strategy) && of->old_strategy != NULL;
    const char *path = old ? of->old_strategy : of->strategy;
    const char *said =
        mics_adopt_has(run, path) ? mics_adopt_word(mics_adopt_at(run, path)) : usual;
    if (said != NULL && strcmp(said, "no") == 0)
        return MICS_OK;
    if (said != NULL && strcmp(said, "steps") == 0)
        return put_steps(run, of, trainer);
    if (said != NULL && strcmp(said, "epoch") == 0)
        return put_epoch(run, of, path);
    if (said != NULL && strcmp(said, "best") == 0 && of == &saves)
        return mics_adopt_put(run, "run.keep_best", "true", path, of->by_epoch);
    return mics_config_refuse(run, path, MICS_ERR_INVALID,
                              "must be \"no\", \"epoch\" or \"steps\"%s",
                              of == &saves ? ", or \"best\"" : "");
}

// ---- the best ----

static bool is_loss(const mics_json_value *metric)
{
    const char *name = mics_json_string(metric);
    return mics_json_type_of(metric) == MICS_JSON_NULL ||
           (name != NULL && (strcmp(name, "loss") == 0 || strcmp(name, "eval_loss") == 0));
}

static mics_status put_best(config *run)
{
    bool on = false;
    const char *strategy = mics_json_string(mics_adopt_at(run, "save_strategy"));
    MICS_TRY(mics_adopt_switch(run, "load_best_model_at_end",
                               mics_adopt_at(run, "load_best_model_at_end"), &on));
    if (on)
        MICS_TRY(mics_adopt_put(run, "run.keep_best", "true", "load_best_model_at_end",
                                "auto: load_best_model_at_end"));
    if (!on && (strategy == NULL || strcmp(strategy, "best") != 0))
        return MICS_OK; // the others have no effect then
    if (!is_loss(mics_adopt_at(run, "metric_for_best_model")))
        return mics_config_refuse(run, "metric_for_best_model", MICS_ERR_UNSUPPORTED,
                                  "must be \"eval_loss\": the validation loss is what is measured");
    return mics_json_bool(mics_adopt_at(run, "greater_is_better"))
               ? mics_config_refuse(run, "greater_is_better", MICS_ERR_UNSUPPORTED,
                                    "must be false: the best validation loss is the lowest")
               : MICS_OK;
}

mics_status mics_adopt_saves(config *run, bool trainer)
{
    MICS_TRY(put_timing(run, &saves, "steps", trainer));
    MICS_TRY(put_timing(run, &validations, "no", trainer));
    MICS_TRY(put_best(run));
    return trainer ? mics_adopt_default(run, "run.keep_checkpoints", "0", false) : MICS_OK;
}
