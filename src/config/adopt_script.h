// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of a script.
#pragma once

#include "config/adopt.h"

/* Model and data, as training scripts name them. */
extern const adopted_keys mics_adopt_script;
