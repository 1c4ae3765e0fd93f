// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The comparison of replicas: when it is due (run.check_replicas_every), what was found so far, and
// how that reads.
#pragma once

#include "follower.h"

enum { RUN_REPLICAS_TEXT_BYTES = 1024 };

typedef struct run_replicas {
    const run_context *context;
    run_divergences seen;
} run_replicas;

/* Compares what replicas hold of the step that was done last. Where they agree, that is the newest
 * state that is good.
 *
 * Returns: as mics_engine_compare.     Collective: over ranks. */
mics_status run_replicas_compare(run_replicas *self, mics_divergence *found_out);

/* Writes into `text` (RUN_REPLICAS_TEXT_BYTES) who differs in what, of `step` or after it.
 *
 * Returns: MICS_OK; as mics_engine_hosts.     Collective: over ranks. */
mics_status run_replicas_describe(const run_replicas *self, int64_t step,
                                  const mics_divergence *found, char *text);

/* Gives each replica what most hold, and compares again. `what` says what was found.
 *
 * repaired_out: they agree now.
 * Returns: as mics_engine_repair.     Collective: over ranks. */
mics_status run_replicas_repair(run_replicas *self, const char *what, bool *repaired_out);
