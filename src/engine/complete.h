// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs of a list, or of what a step left for the next one.
#pragma once

#include "engine/internal.h"

/* Before a run of a phase's list, or of some of its steps. */
void begin_streams(mics_engine *engine, mics_phase phase);

/* Runs all streams to their ends. A failure of this rank's computation also wakes its own
 * communication threads by ending the world.
 *
 * Returns: MICS_OK; the first failure on any stream. */
mics_status run_streams(mics_engine *engine);
