// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Momentum of a round that is made orthogonal.
#pragma once

#include "engine/internal.h"

/* This rank's shard of a unit's momentum as an owner (a block of the optimizer group) gets it, or has
 * sent it back. */
float *momentum_for(const mics_engine *engine, int32_t unit, int32_t owner);

/* All momentum of the unit that this rank takes matrices of in a unit's round. Where O = 1, which
 * sends nothing, it is momentum_for. */
float *owned_momentum(const mics_engine *engine, int32_t unit);

/* A unit's momentum, which its first owner has, for its other owners. */
void copy_to_owners(const mics_engine *engine, int32_t unit);

/* Makes the matrices orthogonal that this rank owns in a unit's round. */
void orthogonalise(const mics_engine *engine, int32_t unit);
