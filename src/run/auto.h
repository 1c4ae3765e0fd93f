// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A sharding where the run says "auto".
#pragma once

#include "run/sizing.h"

/* What the run file leaves open of sharding, micro-batch with micro-steps, and recomputation: the
 * fastest that keeps run.min_replicas copies (offers_pick), for the run's batch and collectives, on run.cluster or usual links, with the budget's ranks and
 * auto_bytes; where none fits that which lacks the least. It is stored in the run, with the prefetch
 * that it was planned with where that is "auto". A line says what was chosen, why,
 * and what keeping every state twice would cost.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID and others, logged: a cluster that is none, or with other ranks
 *          a node.
 * Owns:    the caller closes *schedule_out, which is of what was chosen.
 */
mics_status run_plan_auto(mics_memory *memory, mics_run *run, const mics_model *model,
                          const run_budget *budget, mics_schedule **schedule_out);
