// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Monotonic time.
#ifndef MICS_BASE_CLOCK_H
#define MICS_BASE_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Microseconds since an arbitrary start; never runs backwards. Threads: any. */
double mics_clock_us(void);

#ifdef __cplusplus
}
#endif
#endif
