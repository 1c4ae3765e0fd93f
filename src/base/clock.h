// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Monotonic time, and waits that end by it.
#pragma once

#include "mics/status.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Microseconds since an arbitrary start; never runs backwards. Threads: any. */
double mics_clock_us(void);

/* Makes a condition variable for mics_condition_wait.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY, logged (the condition untouched).
 * Owns:    end it with pthread_cond_destroy.      Threads: any.
 */
mics_status mics_condition_init(pthread_cond_t *condition_out);

/* Opens a mutex and the conditions that go with it, as mics_condition_init does: all of them, or
 * none.
 *
 * Shapes:  conditions: (count).
 * Needs:   count >= 0.
 * Returns: MICS_OK; MICS_ERR_MEMORY, logged.
 * Owns:    end them with pthread_mutex_destroy and pthread_cond_destroy.      Threads: any.
 */
mics_status mics_locks_init(pthread_mutex_t *mutex, pthread_cond_t *const *conditions,
                            int32_t count);

/* Waits for a signal, `us` microseconds at most. They pass by the clock of mics_clock_us, so a wait
 * is no longer where somebody sets the machine's time. As any wait for a condition it may end early.
 *
 * Units:   microseconds.
 * Needs:   a condition of mics_condition_init, the mutex locked, us >= 0.
 */
void mics_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, double us);

// How long somebody waits yet. What passes while this process stands still as a whole, because it
// was stopped or its machine suspended, does not count: nobody is late because of it.
typedef struct mics_patience {
    double looked_us, left_us;
} mics_patience;

#define MICS_STOOD_STILL_US 1e6

/* Begins a wait of so many seconds.     Threads: any. */
static inline mics_patience mics_patience_begin(double seconds)
{
    mics_patience patience;
    patience.looked_us = mics_clock_us();
    patience.left_us = seconds * 1e6;
    return patience;
}

/* Looks at the time again. Needs a look every half second or so: after more than a second without
 * one the process counts as having stood still.
 *
 * Returns: whether the wait is over.
 */
static inline bool mics_patience_ends(mics_patience *patience)
{
    const double now_us = mics_clock_us(), passed_us = now_us - patience->looked_us;
    patience->looked_us = now_us;
    if (passed_us < MICS_STOOD_STILL_US)
        patience->left_us -= passed_us;
    return patience->left_us <= 0;
}
