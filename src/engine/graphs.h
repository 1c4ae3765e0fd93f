// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Steps as graphs of the device.
#pragma once

#include "engine/internal.h"

/* Finds which steps have graphs.   Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status graphs_open(mics_engine *engine);
void graphs_close(mics_engine *engine);

/* Enqueues `calls`, or a graph of them. Needs: a device with graphs (engine->graphs). */
void graphs_run(mics_engine *engine, const mics_step *step, step_calls *calls);
