// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What meetings compute (mics_outer), and where it lies.
#pragma once

#include "engine/internal.h"

/* The message of a unit's masters (state 0), or of state - 1 of the optimizer: what this rank has of
 * it at a degree. */
float *message_at(const mics_engine *engine, int32_t unit, int32_t state, int32_t degree);

/* Elements of a unit's momentum, padding included. */
int64_t met_elems(const mics_engine *engine, int32_t unit);

/* A MEET_ step of computation. */
void run_meeting(mics_engine *engine, const mics_step *step);
