// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Libraries that are opened when they are first needed: who trains on local files needs none of them.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { REMOTE_WHY_BYTES = 256 };

typedef struct remote_symbol {
    const char *name;
    void *function_out; // a pointer to a function
} remote_symbol;

/* Opens the library that the environment names in `variable`, else the first of `names` (NULL ends
 * them), and finds `count` symbols. Stays open.
 *
 * Returns: whether all are there; else why not.
 */
bool remote_library_open(const char *variable, const char *const *names,
                         const remote_symbol *symbols, size_t count, char why[REMOTE_WHY_BYTES]);
