// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The ballot: the numbers that a rank sends to all others with a step's agreement.
#pragma once

#include "engine/internal.h"

// Bits of mics_agreement.told: what mics_engine_hold sets, and what scrub_found says.
#define TOLD_HOLD (UINT32_C(1) << 30)
#define TOLD_FLIPPED (UINT32_C(1) << 31)

/* What this rank tells the others in the step's agreement; of several islands in AGREE_WORLD. */
uint32_t cast_ballot(mics_engine *engine);
