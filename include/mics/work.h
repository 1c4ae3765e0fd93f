// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How far long work is: what the library tells whoever shows it (mics_progress_work).
#ifndef MICS_WORK_H
#define MICS_WORK_H

#include <stddef.h>
#include <stdint.h>

// Who hears how far long work is: loading, evaluating, exporting, planning. `progress` is called
// now and then, on the thread that does the work, with 0 <= done <= total; done == total is the last.
typedef struct mics_work_listener {
    void *ctx;
    void (*progress)(void *ctx, const char *what, int64_t done, int64_t total); // NULL: nobody
} mics_work_listener;

/* Tells it.        Needs: 0 <= done <= total. */
static inline void mics_work_tell(const mics_work_listener *listener, const char *what,
                                  int64_t done, int64_t total)
{
    if (listener->progress != NULL)
        listener->progress(listener->ctx, what, done, total);
}

#endif
