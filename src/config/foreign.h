// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of other engines that are known and not honoured: one list of data, and how its rows are
// checked. A new row needs nothing but its line in foreign.c.
#ifndef MICS_CONFIG_FOREIGN_H
#define MICS_CONFIG_FOREIGN_H

#include <stdint.h>

typedef struct foreign_key {
    const char *path;
    // What it may say: NULL, anything, as it cannot change results (a hint); FOREIGN_OFF, only
    // values that switch it off; else only this value, as JSON. "auto" is always taken: it is the
    // other engine's default, which is off.
    const char *only;
    const char *why; // what is here in its place; for what is not taken also what would work
} foreign_key;

#define FOREIGN_OFF "off"

enum { CONFIG_MAX_FOREIGN = 192 };

/* The list, in the order of explain and docs/config.md, and its length. Returns: static. */
const foreign_key *mics_config_foreign(int32_t *count_out);

/* Index of a foreign key by its path, or -1. */
int32_t mics_config_find_foreign(const char *path);

#endif
