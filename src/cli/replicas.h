// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run compares of what several ranks hold alike, in words.
#ifndef MICS_CLI_REPLICAS_H
#define MICS_CLI_REPLICAS_H

#include "mics/run.h"
#include <stddef.h>

/* "parameters 4 times, gradients 2, optimizer 2; masters and moments are compared every 100 steps
 * and before each save".   Returns: `text`. */
char *cli_replicas_text(const mics_job *job, char *text, size_t capacity);

#endif
