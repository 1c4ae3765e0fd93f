// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ends of the world.
#pragma once

#include "engine/internal.h"

/* Ends the world for a failure, and returns it. Each stream wakes the other ranks itself when it
 * fails, since the other stream of this rank may be busy or have ended well. A failure that every
 * rank has found for itself needs no such thing. */
mics_status end_world_unless_ok(mics_engine *engine, mics_status status);
