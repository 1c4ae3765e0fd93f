// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which program a file of Trainer arguments is for, and what that program takes for what the file
// leaves out.
#pragma once

#include "config/adopt.h"

extern const adopted_keys mics_adopt_programs; // of axolotl and LLaMA-Factory
extern const adopted_keys mics_adopt_chats;    // of these and TRL: what is of chats
extern const adopted_keys mics_adopt_pairs;    // of TRL: what is of pairs

/* Whether the file is one of LLaMA-Factory, where "packing" means something else than in TRL. */
bool mics_adopt_is_llama_factory(const config *run);

/* Whether the file is one of TRL's DPOTrainer, which sets dropout to 0, an adapter's too, unless it is
 * told otherwise. Needs: the keys of mics_adopt_pairs are put. */
bool mics_adopt_disables_dropout(const config *run);

/* What axolotl writes otherwise than all others ("optimizer" as a name), before anything is read. */
mics_status mics_adopt_reform(config *run);

/* The program's defaults, before the Trainer's (mics_adopt_trainer_defaults), and run->program_text
 * for the log. Nothing where it is no file of Trainer arguments. */
mics_status mics_adopt_program_defaults(config *run, bool trainer);

/* Those of fine-tuning, where a model's folder with weights stands for the run file and does not start
 * at random; and their run->program_text. */
mics_status mics_adopt_folder_defaults(config *run);
