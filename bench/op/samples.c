// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "samples.h"
#include <stdlib.h>

// Of a sample: 1000 times what times of events are rounded to (src/device/cuda.c).
#define SAMPLE_US 1000.0
enum { WARM_UPS = 3, MAX_LAUNCHES = 200 };

typedef struct timing {
    const mics_device_ops *ops;
    void *device;
    sample_launch launch;
    void *ctx;
    int calls; // made
} timing;

static void launch(timing *t, int count)
{
    for (int i = 0; i < count; ++i)
        t->launch(t->ctx, t->calls++);
}

// So many launches that a sample of them lasts long enough.
static mics_status choose_launches(timing *t, int *launches_out)
{
    launch(t, WARM_UPS);
    t->ops->record(t->device, 0, 0);
    launch(t, WARM_UPS);
    t->ops->record(t->device, 0, 1);
    MICS_TRY(t->ops->synchronize(t->device, 0));
    const double end_us = t->ops->event_us(t->device, 1);
    const double us = (end_us - t->ops->event_us(t->device, 0)) / WARM_UPS;
    *launches_out = us * MAX_LAUNCHES < SAMPLE_US ? MAX_LAUNCHES : (int)(SAMPLE_US / us) + 1;
    return MICS_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

mics_status samples_take(mics_device *device, sample_launch launch_one, void *ctx, bool quick,
                         samples *samples_out)
{
    timing t = {device->ops, device->ctx, launch_one, ctx, 0};
    double at_us[SAMPLE_EVENTS], us[SAMPLES];
    int launches = 1;
    if (!quick)
        MICS_TRY(choose_launches(&t, &launches));
    t.ops->record(t.device, 0, 0);
    for (int i = 1; i < SAMPLE_EVENTS; ++i) {
        launch(&t, launches);
        t.ops->record(t.device, 0, i);
    }
    MICS_TRY(t.ops->synchronize(t.device, 0));
    // The last first: a device that has to renew the event that it measures from does so at the
    // oldest distance.
    for (int i = SAMPLE_EVENTS - 1; i >= 0; --i)
        at_us[i] = t.ops->event_us(t.device, i);
    for (int i = 0; i < SAMPLES; ++i)
        us[i] = (at_us[i + 1] - at_us[i]) / launches;
    qsort(us, SAMPLES, sizeof *us, compare);
    *samples_out = (samples){us[SAMPLES / 2], us[0], us[SAMPLES - 1], launches};
    return MICS_OK;
}
