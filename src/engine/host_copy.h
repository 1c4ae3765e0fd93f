// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The host's copies of optimizer shards.
#pragma once

#include "engine/internal.h"

/* Takes the host's copy of a device's optimizer shards, unless it is there; none where the engine
 * computes in the host's memory. */
mics_status host_copy_open(mics_engine *engine);
