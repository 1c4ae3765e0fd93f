// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The catalogue: cluster files and accelerators of src/plan/clusters, which the build puts into the
// library byte for byte.
#pragma once

#include "plan/cost/keys.h"

enum { CATALOGUE_NAMES = 4 };

typedef struct catalogue_file {
    const char *names[CATALOGUE_NAMES]; // the first is its own, the rest aliases; NULL ends
    const unsigned char *text;          // JSON, NUL-terminated
    size_t bytes;
} catalogue_file;

extern const catalogue_file catalogue_machines[];
extern const int32_t catalogue_machine_count;
extern const catalogue_file catalogue_accelerators[];
extern const int32_t catalogue_accelerator_count;

/* An entry by one of its names; NULL: there is none. */
const catalogue_file *catalogue_find(bool accelerators, const char *name);

/* "unknown cluster "p4d"; did you mean p4d.24xlarge or p4de.24xlarge?" without the first two words:
 * what to say of a name that is not there. Returns `text`. */
char *catalogue_suggest(bool accelerators, const char *name, char *text, size_t capacity);
