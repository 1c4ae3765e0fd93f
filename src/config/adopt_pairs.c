// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of TRL's DPOConfig that have a meaning here: the objective.
//
// Source: trl/trainer/dpo_config.py and dpo_trainer.py of TRL 1.16.
#include "base/text.h"
#include "config/adopt_program.h"

static mics_status put_loss(config *run, const adopted_key *row, const mics_json_value *value)
{
    const bool alone = mics_json_type_of(value) == MICS_JSON_ARRAY && mics_json_count(value) == 1;
    const char *said = mics_json_string(alone ? mics_json_element(value, 0) : value);
    if (mics_text_is_among(said, "nll"))
        return MICS_OK; // of SFTConfig: as objective.type "lm" has it
    if (mics_text_is_among(said, "sigmoid|ipo"))
        return mics_adopt_put(run, row->target, said[0] == 'i' ? "\"ipo\"" : "\"dpo\"", row->path,
                              row->origin);
    return mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                              "must be \"nll\", which is cross-entropy, or of pairs \"sigmoid\" or "
                              "\"ipo\"; no other losses are built");
}

// With "sigmoid" it did something in TRL before 1.0, and does nothing in 1.16.
static mics_status put_smoothing(config *run, const adopted_key *row, const mics_json_value *value)
{
    return mics_json_is_number(value) && mics_json_real(value) == 0
               ? MICS_OK
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "has no effect on \"sigmoid\" in TRL 1.16, and had one before; "
                                    "leave it out, or write \"objective\": {\"label_smoothing\"}, "
                                    "which is the one before");
}

static mics_status put_dropout(config *run, const adopted_key *row, const mics_json_value *value)
{
    bool off = false;
    MICS_TRY(mics_adopt_switch(run, row->path, value, &off));
    return off ? mics_adopt_put(run, row->target, "0", row->path, row->origin) : MICS_OK;
}

static const adopted_key rows[] = {
    ADOPTED("beta", "objective.beta", NULL),
    ADOPTED("loss_type", "objective.type", put_loss),
    ADOPTED("label_smoothing", "objective.label_smoothing", put_smoothing),
    ADOPTED("disable_dropout", "model.dropout", put_dropout),
};

const adopted_keys mics_adopt_pairs = {rows, sizeof rows / sizeof *rows};
