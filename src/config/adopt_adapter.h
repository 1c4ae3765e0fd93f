// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Adapters in the words of TRL, axolotl and LLaMA-Factory.
#pragma once

#include "config/adopt.h"

extern const adopted_keys mics_adopt_adapters;

/* Brings what says that an adapter is trained into our form, before anything is read: "adapter":
 * "lora", use_peft, finetuning_type. */
mics_status mics_adopt_adapter_begin(config *run);

/* The defaults that TRL and LLaMA-Factory have for it, after their keys. */
mics_status mics_adopt_adapter_defaults(config *run);
