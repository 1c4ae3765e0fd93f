// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files that list keys write their rows with.
#ifndef MICS_CONFIG_KEY_ROWS_H
#define MICS_CONFIG_KEY_ROWS_H

#include "config/keys.h"

#define FIELD(member) .at = offsetof(config, member), .bytes = sizeof(((config *)0)->member)
#define SHOW(member)                                                                               \
    .show_at = offsetof(config, member), .show_bytes = sizeof(((config *)0)->member)
#define ANY_SWITCH .low = 0, .high = 1

// Larger than any real run; what lies beyond is a mistake, and products stay far from overflow.
#define MAX_STEPS 1e12
#define MAX_RANKS 1048576
#define MAX_ELEMS 9.3e18 // of a unit; others write the largest integer for "all"

/* Where a text stands in a list of choices, which it was taken from. */
int mics_config_index_of(const char *const *choices, const char *text);

#endif
