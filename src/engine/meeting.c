// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What meetings compute: changes, the outer step, and its adoption; and the anchors at rest.
#include "engine/meeting.h"
#include "engine/events.h"
#include "engine/islands.h"
#include "engine/scrub.h"
#include "engine/state.h"
#include "engine/update.h"
#include <string.h>

static bool meets(const mics_engine *engine, int32_t unit)
{
    return engine->islands != NULL && engine->schedule->meetings[unit].anchor >= 0;
}

float *message_at(const mics_engine *engine, int32_t unit, int32_t state, int32_t degree)
{
    const int64_t first =
        unit_range(engine, unit, engine->schedule->sharding[unit].optimizer).begin;
    return engine->outer + engine->schedule->meetings[unit].message +
           state * owned_elems(engine, unit) + unit_range(engine, unit, degree).begin - first;
}

int64_t met_elems(const mics_engine *engine, int32_t unit)
{
    return meets(engine, unit) ? engine->schedule->padded_elems[unit] /
                                     (mics_schedule_unit_ranks(engine->schedule, unit) *
                                      engine->schedule->spec.mesh.islands)
                               : 0;
}

static float *anchor_of(const mics_engine *engine, int32_t unit)
{
    return engine->outer + engine->schedule->meetings[unit].anchor;
}

// ---- steps ----

// Masters, or a state of the optimizer, of the optimizer shard.
static float *held_of(const mics_engine *engine, int32_t unit, int32_t state)
{
    const optimizer_shard held = optimizer_shard_of(engine, unit);
    return state == 0 ? held.masters : held.states[state - 1];
}

static void change(mics_engine *engine, const mics_step *step)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const int32_t unit = step->unit, ranks = mics_schedule_unit_ranks(engine->schedule, unit);
    float *message = message_at(engine, unit, step->state, ranks);
    const int64_t first =
        message - message_at(engine, unit, step->state, engine->schedule->sharding[unit].optimizer);
    const float *anchor = step->state == 0 ? anchor_of(engine, unit) + first : NULL;
    engine->ops->meet_change(&at, message, anchor, held_of(engine, unit, step->state) + first,
                             engine->islands->weights[engine->schedule->meetings[unit].window],
                             engine->schedule->padded_elems[unit] / ranks);
}

// Where no island has trained since the units met, they stay where they are.
static void take_outer_step(mics_engine *engine, const mics_step *step)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_mesh *mesh = &engine->schedule->spec.mesh;
    const int32_t unit = step->unit;
    const int32_t world = mics_schedule_unit_ranks(engine->schedule, unit) * mesh->islands;
    const mics_outer_step call = {
        .message = message_at(engine, unit, step->state, world),
        .momentum =
            step->state == 0 ? engine->outer + engine->schedule->meetings[unit].momentum : NULL,
        .elems = met_elems(engine, unit),
        .weights = islands_weights(engine, unit),
        .lr = engine->spec.outer_lr,
        .decay = engine->spec.outer_momentum};
    if (call.weights > 0)
        engine->ops->meet_step(&at, &call);
}

static void round_params(const mics_engine *engine, int32_t unit)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const optimizer_shard held = optimizer_shard_of(engine, unit);
    if (held.params != NULL)
        engine->ops->round(&at, held.params, held.masters, owned_elems(engine, unit));
}

// States of which nothing is known stay: islands that have not trained have no mean.
static void adopt(mics_engine *engine, const mics_step *step)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_device *device = engine->device;
    const int32_t unit = step->unit, degree = engine->schedule->sharding[unit].optimizer;
    const int64_t elems = owned_elems(engine, unit);
    float *held = held_of(engine, unit, step->state);
    const float *message = message_at(engine, unit, step->state, degree);
    call_before_update(engine);
    scrub_check(engine, unit);
    if (step->state == 0)
        engine->ops->meet_adopt(&at, held, anchor_of(engine, unit), message, elems);
    else if (islands_weights(engine, unit) > 0)
        device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, held, message,
                          (size_t)elems * sizeof(float));
    if (step->state == 0)
        round_params(engine, unit);
    scrub_store(engine, unit);
    pthread_mutex_lock(&engine->mutex);
    engine->islands->left--;
    pthread_mutex_unlock(&engine->mutex);
}

void run_meeting(mics_engine *engine, const mics_step *step)
{
    switch (step->kind) {
    case MICS_STEP_MEET_CHANGE:
        change(engine, step);
        break;
    case MICS_STEP_MEET_UPDATE:
        take_outer_step(engine, step);
        break;
    default:
        adopt(engine, step);
        break;
    }
}

// ---- at rest ----

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
