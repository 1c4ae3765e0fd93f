// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of a Hugging Face Trainer.
#pragma once

#include "config/adopt.h"

/* True when the file itself holds an argument of the Trainer, and no section `run`. */
bool mics_adopt_names_trainer(const mics_json *json);
extern const adopted_keys mics_adopt_trainer;
/* "bf16": true and the like, which are sections here; before anything else is read. */
mics_status mics_adopt_precision(config *run);
/* DeepSpeed's "bfloat16", and "tf32" where no 16 bits are asked for; once all is lifted. */
mics_status mics_adopt_lifted_precision(config *run);
/* The scheduler and its warm-up, once DeepSpeed's are known, which go before. `linear`: the
 * Trainer's default where nobody says one. */
mics_status mics_adopt_schedule(config *run, bool linear);
/* What the Trainer takes for what nobody says, or for "auto" alone. Of what DeepSpeed's
 * configuration may say (run->by_deepspeed, run->deepspeed_optimizer) it takes only "auto". */
mics_status mics_adopt_trainer_defaults(config *run, bool only_auto);

/* Puts steps between two of a kind, also where they are a share of all. */
mics_status mics_adopt_interval(config *run, const adopted_key *row, const mics_json_value *value);
