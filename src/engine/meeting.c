// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What meetings compute: changes, the outer step, and its adoption.
#include "engine/meeting.h"
#include "engine/islands.h"
#include "engine/scrub.h"
#include "engine/state.h"
#include "engine/update.h"

float *held_of(const mics_engine *engine, int32_t unit, int32_t state)
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

// Where no island has trained since the units met, there is no mean. A step that is held is taken again
// from the state before it: what meets beside it counts for nothing.
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
    call_before_update(engine);
    if (call.weights > 0 && !islands_held(engine))
        engine->ops->meet_step(&at, &call);
}

void round_params(const mics_engine *engine, int32_t unit)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const optimizer_shard held = optimizer_shard_of(engine, unit);
    if (held.params != NULL)
        engine->ops->round(&at, held.params, held.masters, owned_elems(engine, unit));
}

// Without a mean anchors and states stay: the message is then what rounding had left over.
static void take_over(mics_engine *engine, const mics_step *step)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_device *device = engine->device;
    const int32_t unit = step->unit, degree = engine->schedule->sharding[unit].optimizer;
    const int64_t elems = owned_elems(engine, unit);
    float *held = held_of(engine, unit, step->state), *anchor = anchor_of(engine, unit);
    const float *message = message_at(engine, unit, step->state, degree);
    const bool trained = islands_weights(engine, unit) > 0;
    call_before_update(engine);
    scrub_check(engine, unit);
    if (step->state == 0 && trained)
        engine->ops->meet_adopt(&at, held, anchor, message, elems);
    else if (step->state == 0 || trained)
        device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, held,
                          step->state == 0 ? anchor : message, (size_t)elems * sizeof(float));
    if (step->state == 0)
        round_params(engine, unit);
    scrub_store(engine, unit);
}

static void adopt(mics_engine *engine, const mics_step *step)
{
    if (!islands_held(engine))
        take_over(engine, step);
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
