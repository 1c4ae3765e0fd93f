// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How large the numbers of a saved state can be. A flipped bit of an exponent makes a finite number
// of 1e37, from which no training recovers.
#pragma once

#include <stdint.h>

/* The largest that an element of a state may be: 1e6 of parameters; 1e12, its square, of moments.
 * `before` is the largest parameter of the unit in an older state of the run (0: unknown): of 1000
 * times as much, parameters may be no larger, unless that is below 1. A spike of the gradients makes
 * moments grow as fast, so that their limit does not depend on it. */
float mics_magnitude_limit(const char *state, float before);

/* Index of the first number that is larger than `limit`, either way, or not finite; -1: none. Of all
 * before it, *largest_inout is raised to the largest. */
int64_t mics_magnitude_find(const float *data, int64_t elems, float limit, float *largest_inout);

/* What a number says that mics_magnitude_find has found; never NULL. */
const char *mics_magnitude_text(float value);
