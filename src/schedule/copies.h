// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of blocks of activations to host memory, and back.
#pragma once

#include "schedule/builder.h"

/* Makes a pass wait for the copies that it needs: forward for that of the block that it overwrites,
 * backward for that of its own. */
void wait_for_copies(const builder *b, pass p, mics_step *step);

/* Lists what is copied directly behind a pass: forward's block to host memory, or back the one that
 * forward displaced. */
mics_status list_copy(builder *b, pass p);
