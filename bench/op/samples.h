// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Times a call on a device: the median of several samples, and how far they spread.
#pragma once

#include "mics/core/device.h"

// The device is opened with SAMPLE_EVENTS events or more, of which these are the first.
enum { SAMPLES = 15, SAMPLE_EVENTS = SAMPLES + 1 };

// A sample is `launches` launches behind each other, so that events a microsecond apart or less do
// not tell on it.
typedef struct samples {
    double median_us, least_us, most_us; // of one launch
    int launches;
} samples;

// Enqueues a launch on stream 0; `call` counts from 0.
typedef void (*sample_launch)(void *ctx, int call);

/* Times `launch` after some launches that nobody times.
 *
 * quick: one launch a sample and no more before, to see that it runs.
 * Returns: MICS_OK, samples_out filled; what the device says.
 */
mics_status samples_take(mics_device *device, sample_launch launch, void *ctx, bool quick,
                         samples *samples_out);
