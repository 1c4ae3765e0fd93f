// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Comparison of replicas.
#ifndef MICS_ENGINE_REPLICAS_H
#define MICS_ENGINE_REPLICAS_H

#include "engine/internal.h"

/* Takes what comparisons need.     Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status replicas_open(mics_engine *engine);
void replicas_close(mics_engine *engine);

/* Whether another rank holds a unit's masters and moments too, so that they are compared. */
bool replicas_hold(const mics_engine *engine, int32_t unit);

#endif
