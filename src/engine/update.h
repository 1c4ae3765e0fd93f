// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The optimizer's steps, which do nothing where the newest step left the parameters alone.
#pragma once

#include "engine/internal.h"

/* Adds the squares of what the rank has of a unit's gradients at a degree. */
void add_squares(const mics_engine *engine, int32_t unit, int32_t degree, double *sum);

/* Calls before_update once, before the first number of the state changes in a run of the streams. */
void call_before_update(mics_engine *engine);

/* The momentum of the matrices of a unit that are made orthogonal, and its copies for their owners. */
void run_momentum(mics_engine *engine, int32_t unit);

void run_update(mics_engine *engine, int32_t unit);
