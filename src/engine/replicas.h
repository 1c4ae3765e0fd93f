// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Comparison of replicas.
#ifndef MICS_ENGINE_REPLICAS_H
#define MICS_ENGINE_REPLICAS_H

#include "engine/internal.h"

/* Takes what comparisons need.     Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status replicas_open(mics_engine *engine);
void replicas_close(mics_engine *engine);

#endif
