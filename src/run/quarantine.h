// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The state before a step that could not be trained, saved where no checkpoint is looked for.
#pragma once

#include "context.h"

/* Saves the state as it is, that of step `step`, as OUT/aside/step-N, if it is finite and replicas
 * agree on it, and not among the checkpoints already. Writes into `text` where it is, or why not.
 *
 * Returns: MICS_OK, also when it could not be saved; as mics_engine_agree. Collective. */
mics_status run_quarantine_save(const run_context *context, int64_t step, char *text,
                                size_t capacity);
