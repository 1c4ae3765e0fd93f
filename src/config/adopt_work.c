// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Arguments by which scripts around the Trainer decide what they do at all.
//
// Source: transformers/training_args.py and examples/pytorch/language-modeling/run_clm.py of
// transformers 5.23.
#include "config/adopt_work.h"
#include "base/text.h"
#include "config/value.h"
#include <string.h>

// A file with all arguments, as the Trainer logs them: nobody asked for what it has.
static bool is_dump(const config *run)
{
    static const char *const names[] = {"do_predict", "ignore_data_skip", "eval_delay"};
    bool all = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        all = all && mics_json_line(run->run.json, names[i]) > 0;
    return all;
}

static mics_status put_train(config *run, const adopted_key *row, const mics_json_value *value)
{
    bool on = false;
    MICS_TRY(mics_adopt_switch(run, row->path, value, &on));
    return on || mics_json_type_of(value) != MICS_JSON_BOOL || is_dump(run)
               ? MICS_OK
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "must be true, as mics train trains; mics eval measures the "
                                    "loss of a run or a model's folder; leave it out");
}

// With a strategy the Trainer validates whatever do_eval says.
static mics_status put_eval(config *run, const adopted_key *row, const mics_json_value *value)
{
    static const char validation[] = "data.validation";
    const char *strategy = mics_adopt_word(mics_adopt_at(run, "eval_strategy"));
    const char *old = mics_adopt_word(mics_adopt_at(run, "evaluation_strategy"));
    bool on = false;
    MICS_TRY(mics_adopt_switch(run, row->path, value, &on));
    strategy = strategy != NULL ? strategy : old;
    const bool asked = (strategy != NULL && strcmp(strategy, "no") != 0) ||
                       mics_adopt_says(run, "run.validate_every") ||
                       (mics_adopt_has(run, validation) &&
                        mics_json_line(run->run.json, validation) == 0); // by --set
    return on || asked || mics_json_type_of(value) != MICS_JSON_BOOL || is_dump(run)
               ? MICS_OK
               : mics_adopt_put(run, row->target, "0", row->path, row->origin);
}

static mics_status put_resume(config *run, const adopted_key *row, const mics_json_value *value)
{
    const bool on = mics_json_bool(value), is_switch = mics_json_type_of(value) == MICS_JSON_BOOL;
    const char *path = is_switch ? on ? "auto" : "none" : mics_json_string(value);
    if (path == NULL || strlen(path) >= sizeof run->resume)
        return mics_config_refuse(run, row->path, MICS_ERR_FORMAT,
                                  "must be true, false or a checkpoint's folder");
    mics_text_format(run->resume, sizeof run->resume, "%s", path);
    run->run.resume = *path != '\0' ? run->resume : NULL;
    return MICS_OK;
}

static mics_status put_data_seed(config *run, const adopted_key *row, const mics_json_value *value)
{
    static const double DEFAULT_SEED = 42;
    const bool said = mics_adopt_has(run, "seed");
    const mics_json_value *seed = mics_adopt_at(run, said ? "seed" : row->target);
    const double of_run = mics_json_is_number(seed) ? mics_json_real(seed) : DEFAULT_SEED;
    return mics_json_is_number(value) && mics_json_real(value) == of_run
               ? MICS_OK
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "must be as seed, %.15g: one seed draws initial weights, "
                                    "dropout and the order of samples; leave it out",
                                    of_run);
}

static const adopted_key rows[] = {
    ADOPTED("do_train", "run.steps", put_train),
    ADOPTED("do_eval", "run.validation_batches", put_eval),
    ADOPTED("resume_from_checkpoint", "run.out", put_resume),
    ADOPTED("data_seed", "run.seed", put_data_seed),
};

const adopted_keys mics_adopt_work = {rows, sizeof rows / sizeof *rows};
