// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "mics/log.h"
#include <time.h>

double mics_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

mics_status mics_condition_init(pthread_cond_t *condition_out)
{
    pthread_condattr_t monotonic;
    bool ready = false;
    if (pthread_condattr_init(&monotonic) == 0) {
        ready = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(condition_out, &monotonic) == 0;
        pthread_condattr_destroy(&monotonic);
    }
    return ready ? MICS_OK
                 : mics_fail(MICS_ERR_MEMORY, "the system has no condition variable left");
}

mics_status mics_locks_init(pthread_mutex_t *mutex, pthread_cond_t *const *conditions,
                            int32_t count)
{
    mics_status status = MICS_OK;
    int32_t ready = 0;
    if (pthread_mutex_init(mutex, NULL) != 0)
        return mics_fail(MICS_ERR_MEMORY, "the system has no mutex left");
    while (status == MICS_OK && ready < count) {
        status = mics_condition_init(conditions[ready]);
        ready += status == MICS_OK;
    }
    if (status == MICS_OK)
        return MICS_OK;
    while (ready > 0)
        pthread_cond_destroy(conditions[--ready]);
    pthread_mutex_destroy(mutex);
    return status;
}

void mics_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, double us)
{
    const long whole_s = (long)(us * 1e-6);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += whole_s;
    until.tv_nsec += (long)((us - (double)whole_s * 1e6) * 1e3);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(condition, mutex, &until);
}
