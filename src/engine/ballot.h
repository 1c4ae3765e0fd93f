// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank tells all others with a step's agreement.
#pragma once

#include "engine/internal.h"

enum { TOLD_HOLD = 1 << 30 }; // the bit of mics_agreement.told that mics_engine_hold sets

/* What this rank tells the others in the step's agreement. */
uint32_t cast_ballot(mics_engine *engine);
