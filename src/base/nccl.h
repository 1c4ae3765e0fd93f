// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What NCCL takes of a GPU: pure functions, so that all ranks, and what sizes a run, say the same.
#ifndef MICS_BASE_NCCL_H
#define MICS_BASE_NCCL_H

#include <stdint.h>

// Ranks that may share a GPU: their kernels wait for each other, so all must fit at once on the 108
// or more multiprocessors of the GPUs that this is for.
enum { MICS_NCCL_MAX_SHARERS = 8 };

// CTAs that a communicator's kernel has at most: of channel 0 (inside nodes), and 1 (between them).
typedef struct mics_nccl_ctas {
    int32_t intra, inter;
} mics_nccl_ctas;

/* CTAs of a rank's two channels, where up to `sharers` ranks are on one GPU and a node's network
 * cards have `node_bytes_per_s` together (base/network.h; 0: not known).
 *
 * Needs:   1 <= sharers <= MICS_NCCL_MAX_SHARERS.
 * Units:   bytes per second.
 * Returns: both at least 1.      Threads: any.
 */
mics_nccl_ctas mics_nccl_choose_ctas(int32_t sharers, double node_bytes_per_s);

#endif
