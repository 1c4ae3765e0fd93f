// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What NCCL takes of a GPU: pure functions, so that all ranks, and what sizes a run, say the same.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Ranks that may share a GPU: their kernels wait for each other, so all must fit at once on the 108
// or more multiprocessors of the GPUs that this is for.
enum { MICS_NCCL_MAX_SHARERS = 8 };

/* Whether this process's environment lets NCCL (2.30 or newer) have ranks that share a GPU. */
bool mics_nccl_may_share(void);

// CTAs that a communicator's kernel has at most: of channel 0 (inside nodes), and 1 (between them);
// and of those, how many sends and receives use.
typedef struct mics_nccl_ctas {
    int32_t intra, inter, messages;
} mics_nccl_ctas;

/* CTAs of a rank's two channels, where up to `sharers` ranks are on one GPU and a node's network
 * cards have `node_bytes_per_s` together (base/network.h; 0: not known).
 *
 * Needs:   1 <= sharers <= MICS_NCCL_MAX_SHARERS.
 * Units:   bytes per second.
 * Returns: both at least 1.      Threads: any.
 */
mics_nccl_ctas mics_nccl_choose_ctas(int32_t sharers, double node_bytes_per_s);

/* The same, unless the environment says otherwise: NCCL_MAX_CTAS and NCCL_MAX_P2P_NCHANNELS are
 * NCCL's own, and go before what a configuration says. */
mics_nccl_ctas mics_nccl_read_ctas(int32_t sharers, double node_bytes_per_s);

// What one communicator is used for.
typedef struct mics_nccl_use {
    int32_t ranks, ranks_here; // of the communicator; of them on one node
    int32_t ctas, message_ctas;
    bool rings;    // gathers and sums
    bool messages; // all-to-alls
} mics_nccl_use;

// Once a process: NCCL's kernels, and what it keeps for all communicators (assumed).
#define MICS_NCCL_PROCESS_BYTES ((size_t)128 << 20)

/* Memory of a GPU that NCCL takes for one communicator: buffers by channel and peer.
 *
 * Needs:   1 <= ranks_here <= ranks; ctas, message_ctas >= 1.
 * Units:   bytes.
 * Returns: a bound for rings, NVLS, and sends; not for trees and PAT (NCCL_PAT_ENABLE), which have
 *          more peers.
 * Threads: any.
 */
size_t mics_nccl_bytes(const mics_nccl_use *use);

/* What a rank of a run should leave NCCL of its GPU, before it is known which groups the run has:
 * one communicator of all ranks of a node, and one between nodes.
 *
 * Needs:   ranks >= 1, ranks_per_node >= 1.
 * Units:   bytes.
 * Returns: 0 for one rank, which has no NCCL.      Threads: any.
 */
size_t mics_nccl_reserve(int32_t ranks, int32_t ranks_per_node, const mics_nccl_ctas *ctas);
