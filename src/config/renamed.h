// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The names that keys had once, as data. A key that is renamed or removed needs its line here.
#ifndef MICS_CONFIG_RENAMED_H
#define MICS_CONFIG_RENAMED_H

#include <stdint.h>

typedef enum renamed_form {
    RENAMED_AS_IT_IS,    // the value stays
    RENAMED_BF16_SWITCH, // "bf16" becomes true; other values are to be left out
    RENAMED_SECTION,     // an object whose keys have rows of their own
    RENAMED_GONE         // there is no such key any more
} renamed_form;

typedef struct renamed_key {
    const char *old_path, *new_path; // new_path NULL: RENAMED_GONE
    renamed_form form;
    const char *note; // what else is to be known; may be NULL
} renamed_key;

/* The list and its length. Returns: static. */
const renamed_key *mics_config_renamed(int32_t *count_out);

#endif
