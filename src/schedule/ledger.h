// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Bytes and memory of a schedule. Private to this module.
#pragma once

#include "mics/core/schedule.h"

/* Fills the sizes of workspace, compressed numbers and residuals, the memory ledger, and the bytes
 * that all ranks send, once lists, slots and activations are known.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY; MICS_ERR_INVALID (compressed sums would send more between
 *          nodes than whole ones).
 */
mics_status fill_ledger(mics_schedule *schedule);

/* What one compressed collective keeps compressed at a time, and the message that units share:
 * bytes in its stream's message buffers. */
size_t step_compressed_bytes(const mics_schedule *schedule, const mics_step *step);
size_t step_coalesced_bytes(const mics_schedule *schedule, const mics_step *step);

// Whether a step is an all-to-all, which goes from one buffer to another and sums nothing.
static inline bool mics_step_exchanges(const mics_step *step)
{
    return step->kind == MICS_STEP_ALL_TO_ALL || step->kind == MICS_STEP_MOMENTUM_TO_OWNERS ||
           step->kind == MICS_STEP_MOMENTUM_BACK;
}
