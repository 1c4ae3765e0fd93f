// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checks of mics_comm_collective on buffers of a device, or the host's. The same call on every rank.
#pragma once

#include "mics/core/comm.h"
#include "mics/memory.h"

typedef struct call_case {
    mics_comm *comm;
    mics_memory *memory;
    mics_device *device; // NULL: host memory
    mics_group group;
    const int32_t *block_of; // NULL: identity
    int32_t channel;
    int64_t elems; // of a block
    // Ranks share the device, on which freeing waits for all that is enqueued: nobody goes on before
    // all have freed.
    bool frees_together;
} call_case;

/* Each kind of collective once, in each number format that it takes, between guards. Terms are whole numbers, so that sums do
 * not depend on their order. Wrong bits and writes outside the buffers are errors. */
mics_status checks_calls(const call_case *at);
