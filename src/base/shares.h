// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How threads divide work: each takes the next share until none is left, and the work is complete
// when all shares are, whoever computed them. So a thread whose core is busy elsewhere takes fewer,
// and holds up nobody by being late. What a share is depends on sizes alone, and each number is
// computed within one, so results do not depend on the threads.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct mics_shares {
    int64_t taken, complete; // so far, by all threads
    int64_t total;           // 0: nobody has come yet
} mics_shares;

/* Ends the share that *share_in_out is and takes the next; begin with -1.
 *
 * total: of shares, from all threads the same.
 * Returns: whether there was one.     Threads: any.
 */
static inline bool mics_share_next(mics_shares *shares, int64_t total, int64_t *share_in_out)
{
    __atomic_store_n(&shares->total, total, __ATOMIC_RELAXED);
    if (*share_in_out >= 0)
        __atomic_fetch_add(&shares->complete, 1, __ATOMIC_SEQ_CST);
    *share_in_out = __atomic_fetch_add(&shares->taken, 1, __ATOMIC_RELAXED);
    return *share_in_out < total;
}

/* Whether all shares are complete. Needs an own mics_share_next before. Threads: any. */
static inline bool mics_shares_complete(const mics_shares *shares)
{
    return __atomic_load_n(&shares->complete, __ATOMIC_SEQ_CST) >=
           __atomic_load_n(&shares->total, __ATOMIC_RELAXED);
}
