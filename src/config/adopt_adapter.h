// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Adapters in the words of TRL, axolotl and LLaMA-Factory.
#pragma once

#include "config/adopt.h"

extern const adopted_keys mics_adopt_adapters;

/* Brings what says that an adapter is trained into our form, before anything is read: "adapter":
 * "lora", use_peft, finetuning_type. */
mics_status mics_adopt_adapter_begin(config *run);

/* After their keys: what adapter.init's folder says, else the defaults of TRL and LLaMA-Factory. */
mics_status mics_adopt_adapter_defaults(config *run);
