// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What meetings compute (mics_outer).
#pragma once

#include "engine/internal.h"

/* A unit's masters (state 0), or state - 1 of the optimizer, of the optimizer shard. */
float *held_of(const mics_engine *engine, int32_t unit, int32_t state);

/* Parameters of a unit become its masters, rounded. */
void round_params(const mics_engine *engine, int32_t unit);

/* A MEET_ step of computation. */
void run_meeting(mics_engine *engine, const mics_step *step);
