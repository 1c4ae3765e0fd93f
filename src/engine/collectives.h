// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives of a list.
#pragma once

#include "engine/internal.h"

/* One collective; on a device it is enqueued, but for AGREE, which is done on return. */
mics_status run_comm_step(mics_engine *engine, const mics_step *step);

/* Runs each collective of the schedule that differs in kind or size once on a device, in list
 * order: connections are there then, and kernels loaded, before a step waits for them. Arenas hold
 * zeros before and after.   Collective: over the world. */
mics_status collectives_warm_up(mics_engine *engine);
