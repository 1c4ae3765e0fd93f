// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The names that keys had once, as data. A key that is renamed or removed needs its line here.
#ifndef MICS_CONFIG_RENAMED_H
#define MICS_CONFIG_RENAMED_H

#include "mics/json.h"
#include <stdbool.h>
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

/* Gives the values of a stored run.json their keys' names of today; old names stay beside them.
 *
 * *mixed_out: what was sent inside nodes was rounded in part, which no key says any more; then
 * run.comm_dtype.bf16_intra_node is false.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY; MICS_ERR_INVALID, where an old name's section is no object.
 */
mics_status mics_config_translate(mics_json *json, bool *mixed_out);

#endif
