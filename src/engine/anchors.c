// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Anchors, and what meetings keep, between steps.
#include "engine/complete.h"
#include "engine/events.h"
#include "engine/islands.h"
#include "engine/meeting.h"
#include "engine/state.h"
#include "engine/update.h"
#include <string.h>

static void zero(const mics_engine *engine, int64_t at, int64_t elems)
{
    const mics_device *device = engine->device;
    if (at >= 0)
        device->ops->zero(device->ctx, MICS_STREAM_COMPUTE, engine->outer + at,
                          (size_t)elems * sizeof(float));
}

static void forget_changes(const mics_engine *engine)
{
    for (int32_t u = 0; u < engine->schedule->spec.model->unit_count; u++) {
        const mics_meeting *m = &engine->schedule->meetings[u];
        const int64_t met = met_elems(engine, u);
        zero(engine, m->sent_residual, met * engine->schedule->spec.mesh.islands);
        zero(engine, m->met_residual, met);
    }
}

static mics_status wait_for_device(const mics_engine *engine)
{
    return engine->device->ops->synchronize(engine->device->ctx, MICS_STREAM_COMPUTE);
}

// Residuals of gradients are the CPU's.
void mics_engine_forget_residual(mics_engine *engine)
{
    if (engine->schedule->residual_elems > 0)
        memset(engine->residual, 0, (size_t)engine->schedule->residual_elems * sizeof(float));
    if (engine->islands == NULL)
        return;
    forget_changes(engine);
    (void)wait_for_device(engine); // its failure is the next step's
}

mics_status mics_engine_set_anchors(mics_engine *engine)
{
    const mics_device *device = engine->device;
    const mics_outer_state state = mics_engine_outer_state(engine);
    if (engine->islands == NULL)
        return MICS_OK;
    MICS_TRY(device_drain(engine));
    for (int32_t u = 0; u < engine->schedule->spec.model->unit_count; u++) {
        if (!meets(engine, u))
            continue;
        device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, anchor_of(engine, u),
                          held_of(engine, u, 0), (size_t)owned_elems(engine, u) * sizeof(float));
        zero(engine, engine->schedule->meetings[u].momentum, met_elems(engine, u));
    }
    for (int32_t i = 0; i < state.windows * state.islands; i++)
        state.counted[i] = 0;
    islands_forget(engine);
    forget_changes(engine);
    return wait_for_device(engine);
}

// By way of the workspace, part by part.
static void swap(const mics_engine *engine, float *a, float *b, int64_t elems)
{
    const mics_device *device = engine->device;
    const int64_t most = (int64_t)(engine->workspace_bytes / sizeof(float));
    for (int64_t begin = 0; begin < elems; begin += most) {
        const int64_t count = elems - begin < most ? elems - begin : most;
        float *const places[] = {engine->workspace, a + begin, b + begin, engine->workspace};
        for (int i = 0; i < 3; i++)
            device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, places[i], places[i + 1],
                              (size_t)count * sizeof(float));
    }
}

mics_status mics_engine_swap_agreed(mics_engine *engine)
{
    if (engine->islands == NULL)
        return MICS_OK;
    MICS_TRY(mics_engine_complete(engine));
    call_before_update(engine);
    for (int32_t u = 0; u < engine->schedule->spec.model->unit_count; u++) {
        if (!meets(engine, u))
            continue;
        swap(engine, anchor_of(engine, u), held_of(engine, u, 0), owned_elems(engine, u));
        round_params(engine, u);
    }
    MICS_TRY(wait_for_device(engine));
    engine->islands->swapped = !engine->islands->swapped;
    engine->written = true;
    return mics_engine_complete(engine);
}
