// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Arguments that stand beside the Trainer's in the files of training scripts: model and data.
//
// Source: transformers/examples/pytorch/language-modeling/run_clm.py of transformers 5.23; TRL's
// ModelConfig, ScriptArguments and SFTConfig of 0.25.
#include "config/adopt_script.h"
#include "base/text.h"
#include "config/value.h"

// What --model, --data and --tokenizer say goes before the file, also where they name another kind.
static mics_status put_unless_said(config *run, const adopted_key *row,
                                   const mics_json_value *value)
{
    char text[CONFIG_PATH_BYTES];
    if (mics_adopt_has(run, row->target))
        return MICS_OK;
    if (!mics_config_value_whole(value, text, sizeof text))
        return mics_config_refuse(run, row->path, MICS_ERR_INVALID, "is too long; write %s",
                                  row->target);
    return mics_adopt_put(run, row->target, text, row->path, row->origin);
}

// Weights too, where a folder is named, also where config_name has the model's configuration, but
// not where --model has it.
static mics_status put_model(config *run, const adopted_key *row, const mics_json_value *value)
{
    adopted_key init = *row;
    const bool named = mics_adopt_at(run, "config_name") != NULL;
    if (mics_adopt_has(run, row->target) && !named)
        return MICS_OK;
    MICS_TRY(put_unless_said(run, row, value));
    if (mics_json_string(value) != NULL && mics_text_ends(mics_json_string(value), ".json"))
        return MICS_OK; // a configuration alone
    init.target = "model.init";
    return put_unless_said(run, &init, value);
}

static mics_status put_dataset(config *run, const adopted_key *row, const mics_json_value *value)
{
    (void)value;
    return mics_adopt_has(run, row->target)
               ? MICS_OK
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "data sets are not downloaded; give their files by --data");
}

static const adopted_key rows[] = {
    ADOPTED("config_name", "model.config", put_unless_said), // before the model's name
    ADOPTED("model_name_or_path", "model.config", put_model),
    ADOPTED("base_model", "model.config", put_model),
    ADOPTED("tokenizer_name", "data.tokenizer", put_unless_said),
    ADOPTED("tokenizer_name_or_path", "data.tokenizer", put_unless_said),
    ADOPTED("train_file", "data.train", put_unless_said),
    ADOPTED("validation_file", "data.validation", put_unless_said),
    ADOPTED("dataset_name", "data.train", put_dataset),
    ADOPTED("dataset_text_field", "data.text_field", put_unless_said),
    ADOPTED("block_size", "data.sequence_length", NULL),
    ADOPTED("max_seq_length", "data.sequence_length", NULL),
    ADOPTED("max_length", "data.sequence_length", NULL),
};

const adopted_keys mics_adopt_script = {rows, sizeof rows / sizeof *rows};
