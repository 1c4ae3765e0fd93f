// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Jobs that several threads do, and whose results are taken in the order in which they were given.
//
// The jobs are slots of the caller's, used in turn. One thread gives and takes:
//
//     while (there is more) {
//         if (mics_ordered_is_full(queue))
//             use(mics_ordered_take(queue));     waits until that slot's job is done
//         fill(mics_ordered_next(queue));
//         mics_ordered_give(queue);
//     }
//     while (!mics_ordered_is_empty(queue))
//         use(mics_ordered_take(queue));
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct mics_ordered mics_ordered;

typedef struct mics_ordered_jobs {
    void *ctx;
    // Does the job in a slot, on one of the threads (counted from 0), each of which has a job at a
    // time. What fails is kept in the slot; these threads hold their error lines (mics_log_take).
    void (*work)(void *ctx, int32_t thread, int32_t slot);
} mics_ordered_jobs;

/* How many slots so many threads are kept busy with. */
int32_t mics_ordered_slots(int32_t threads);

/* Starts threads; a single one is the caller itself, in mics_ordered_give. Where the system starts
 * fewer than asked for, these do it.
 *
 * Needs:   threads >= 1.
 * Returns: MICS_OK; MICS_ERR_MEMORY.     Owns: mics_ordered_close.
 */
mics_status mics_ordered_open(mics_memory *memory, int32_t threads, mics_ordered_jobs jobs,
                              mics_ordered **queue_out);

/* Waits for the jobs that have begun, and forgets the others; NULL is allowed. */
void mics_ordered_close(mics_ordered *queue);

bool mics_ordered_is_full(const mics_ordered *queue);
bool mics_ordered_is_empty(const mics_ordered *queue);

/* The slot that is given next. Needs a queue that is not full. */
int32_t mics_ordered_next(const mics_ordered *queue);
void mics_ordered_give(mics_ordered *queue);

/* Waits for the oldest job; its slot may be used until the next call. Needs a queue that is not
 * empty. */
int32_t mics_ordered_take(mics_ordered *queue);
