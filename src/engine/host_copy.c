// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Optimizer shards, parameters and states: where computation has them, and where callers do.
//
// In fp32 on the CPU that is the same memory. Otherwise callers see a copy on the host, which is
// there from opening on until it is released: the parameter shards in fp32 with the masters inside,
// then the optimizer's states, of a device with memory of its own or where they are held in fewer
// bits. In bf16 on the CPU masters and states have their place in fp32, which callers see once the
// copy is released, so that saves copy nothing.
#include "engine/host_copy.h"
#include "engine/events.h"
#include "engine/islands.h"
#include "engine/state.h"
#include "mics/log.h"
#include "schedule/rules.h"

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

// Floats of one state of all optimizer shards.
static int64_t all_owned_elems(const mics_engine *engine)
{
    const int32_t last = engine->schedule->spec.model->unit_count - 1;
    return engine->map.moments[last] + owned_elems(engine, last);
}

static int32_t state_count(const mics_engine *engine)
{
    return mics_optimizer_def_get(engine->spec.optimizer.kind)->states;
}

static int64_t shard_elems(const mics_engine *engine, int32_t unit)
{
    return engine->schedule->padded_elems[unit] / engine->schedule->sharding[unit].params;
}

// Of all units.
static int64_t all_shard_elems(const mics_engine *engine)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < engine->schedule->spec.model->unit_count; u++)
        elems += shard_elems(engine, u);
    return elems;
}

static bool is_remote(const mics_engine *engine)
{
    return !engine->device->is_host;
}

// Whether states are held in fewer bits.
static bool is_packed(const mics_schedule_spec *spec)
{
    return spec->state_dtype != MICS_STATE_FP32 && !spec->evaluation_only;
}

bool mics_engine_copies_states(const mics_schedule *schedule)
{
    return schedule->spec.accelerator || is_packed(&schedule->spec);
}

static bool is_mixed(const mics_engine *engine)
{
    return engine->schedule->spec.precision == MICS_PRECISION_MIXED;
}

// Whether callers see a copy, and not the memory that computation uses.
static bool is_copied(const mics_engine *engine)
{
    return mics_engine_copies_states(engine->schedule) || is_mixed(engine);
}

// A frozen unit has none.
static mics_range owned_range(const mics_engine *engine, int32_t unit)
{
    mics_range range = unit_range(engine, unit, engine->schedule->sharding[unit].optimizer);
    if (!mics_schedule_trains(engine->schedule, unit))
        range.end = range.begin;
    return range;
}

// Elements by which the optimizer shard begins behind the parameter shard.
static int64_t offset_in_shard(const mics_engine *engine, int32_t unit)
{
    const mics_sharding *s = &engine->schedule->sharding[unit];
    return unit_range(engine, unit, s->optimizer).begin - unit_range(engine, unit, s->params).begin;
}

void *state_at(const mics_engine *engine, int32_t unit, int32_t state)
{
    return (char *)engine->moments + state * engine->map.states_end + engine->map.states[unit];
}

int64_t state_part_elems(const mics_engine *engine)
{
    const int64_t capacity = (int64_t)(engine->workspace_bytes / sizeof(float));
    return at_most(mics_state_part_elems(engine->schedule->spec.accelerator),
                   capacity / state_count(engine) / MICS_STATE_BLOCK * MICS_STATE_BLOCK);
}

mics_state_part state_part(const mics_engine *engine, int32_t unit, int32_t state, int64_t begin,
                           int64_t elems)
{
    const mics_state_dtype dtype = engine->schedule->spec.state_dtype;
    const size_t scales = mics_state_scale_bytes(dtype, owned_elems(engine, unit));
    char *at = state_at(engine, unit, state);
    return (mics_state_part){
        .dtype = dtype,
        .squares = mics_optimizer_def_get(engine->spec.optimizer.kind)->squares[state],
        .scales = (float *)(void *)at + begin / MICS_STATE_BLOCK,
        .held = at + scales + begin * (int64_t)mics_state_elem_bytes(dtype),
        .elems = elems};
}

optimizer_shard optimizer_shard_of(const mics_engine *engine, int32_t unit)
{
    const mics_range range = owned_range(engine, unit);
    void *params = elem_at(engine, shard_at(engine, unit), offset_in_shard(engine, unit));
    optimizer_shard held = {.range = unit_elems_of(engine, unit, range),
                            .params = is_mixed(engine) ? params : NULL,
                            .masters = is_mixed(engine) ? NULL : params};
    if (engine->moments == NULL || !mics_schedule_trains(engine->schedule, unit))
        return held; // of an engine for evaluation, too
    void *grads = grads_at(engine, unit, engine->schedule->sharding[unit].optimizer, 0);
    if (mics_schedule_rounds_sums(&engine->schedule->spec))
        held.rounded_grads = grads;
    else
        held.grads = grads;
    for (int32_t s = 0; s < state_count(engine) && !is_packed(&engine->schedule->spec); s++)
        held.states[s] = state_at(engine, unit, s);
    if (is_mixed(engine)) {
        char *masters = (char *)engine->moments + state_count(engine) * engine->map.states_end;
        held.masters = (float *)(void *)masters + engine->map.moments[unit];
    }
    return held;
}

static float *copied_state(const mics_engine *engine, int32_t unit, int32_t state)
{
    return engine->host_copy + all_shard_elems(engine) + engine->map.moments[unit] +
           state * all_owned_elems(engine);
}

// The optimizer states of a unit's shard, in place or in the host's copy.
static void place_states(const mics_engine *engine, int32_t unit,
                         mics_engine_optimizer_shard *result)
{
    if (engine->moments == NULL) // an engine for evaluation
        return;
    const bool copied = mics_engine_copies_states(engine->schedule);
    for (int32_t s = 0; s < state_count(engine); s++)
        result->states[s] = copied ? copied_state(engine, unit, s) : state_at(engine, unit, s);
}

mics_engine_optimizer_shard mics_engine_optimizer_shard_get(const mics_engine *engine, int32_t unit)
{
    const bool copied = is_copied(engine), released = copied && engine->host_copy == NULL;
    mics_engine_optimizer_shard result = {
        .range = unit_elems_of(engine, unit, owned_range(engine, unit)),
        .shard = param_shard_of(engine, unit),
    };
    if (released && is_remote(engine))
        return result;
    if (!released || !mics_engine_copies_states(engine->schedule))
        place_states(engine, unit, &result);
    if (released) {
        result.params = optimizer_shard_of(engine, unit).masters;
        return result;
    }
    result.shard_params =
        copied ? engine->host_copy + engine->map.copies[unit] : shard_at(engine, unit);
    result.params = result.shard_params + offset_in_shard(engine, unit);
    return result;
}

// ---- the copy ----

// Floats of a unit's anchor and momentum.
static int64_t outer_elems(const mics_schedule *schedule, int32_t unit)
{
    if (schedule->meetings == NULL || schedule->meetings[unit].anchor < 0)
        return 0;
    return schedule->padded_elems[unit] / schedule->sharding[unit].optimizer +
           schedule->padded_elems[unit] /
               (mics_schedule_unit_ranks(schedule, unit) * schedule->spec.mesh.islands);
}

size_t mics_engine_copy_bytes(const mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const bool states = mics_engine_copies_states(schedule) && !spec->evaluation_only;
    const int64_t count = states ? mics_optimizer_def_get(spec->optimizer)->states : 0;
    int64_t elems = 0;
    if (!mics_engine_copies_states(schedule) && spec->precision == MICS_PRECISION_FP32)
        return 0;
    for (int32_t u = 0; u < spec->model->unit_count; u++) {
        const mics_sharding *s = &schedule->sharding[u];
        elems += schedule->padded_elems[u] / s->params;
        if (mics_schedule_trains(schedule, u))
            elems += count * (schedule->padded_elems[u] / s->optimizer);
        elems += spec->accelerator ? outer_elems(schedule, u) : 0;
    }
    return (size_t)elems * sizeof(float);
}

mics_status host_copy_open(mics_engine *engine)
{
    void *block = NULL;
    if (!is_copied(engine) || engine->host_copy != NULL)
        return MICS_OK;
    MICS_TRY(mics_alloc(engine->spec.memory, MICS_MEM_HOST,
                        mics_engine_copy_bytes(engine->schedule), &block));
    engine->host_copy = block;
    return MICS_OK;
}

void mics_engine_release(mics_engine *engine)
{
    mics_free(engine->spec.memory, engine->host_copy);
    engine->host_copy = NULL;
}

static void copy_floats(const mics_engine *engine, float *to, const float *from, int64_t elems)
{
    engine->device->ops->copy(engine->device->ctx, MICS_STREAM_COMPUTE, to, from,
                              (size_t)elems * sizeof(float));
}

// A part of a state that is held in fewer bits; of a device by way of the ops' workspace.
static void convert_state_part(const mics_engine *engine, const mics_state_part *part, float *here,
                               bool upload)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    float *values = is_remote(engine) ? engine->workspace : here;
    if (upload && values != here)
        copy_floats(engine, values, here, part->elems);
    if (upload)
        engine->ops->pack_state(&at, part, values, NULL);
    else
        engine->ops->unpack_state(&at, values, part);
    if (!upload && values != here)
        copy_floats(engine, here, values, part->elems);
}

static void convert_states(const mics_engine *engine, int32_t unit, bool upload)
{
    const mics_range range = optimizer_shard_of(engine, unit).range;
    const int64_t elems = range.end - range.begin;
    const int64_t most = is_remote(engine) ? state_part_elems(engine) : elems;
    for (int32_t s = 0; s < state_count(engine); s++) {
        float *here = copied_state(engine, unit, s);
        for (int64_t begin = 0; begin < elems; begin += most) {
            const mics_state_part part =
                state_part(engine, unit, s, begin, at_most(most, elems - begin));
            convert_state_part(engine, &part, here + begin, upload);
        }
    }
}

// All states of all units lie one behind the other, here and there.
static void copy_moments(const mics_engine *engine, bool upload)
{
    float *here = engine->host_copy + all_shard_elems(engine), *there = engine->moments;
    if (there == NULL || !mics_engine_copies_states(engine->schedule))
        return;
    if (!is_packed(&engine->schedule->spec)) {
        copy_floats(engine, upload ? there : here, upload ? here : there,
                    state_count(engine) * all_owned_elems(engine));
        return;
    }
    for (int32_t unit = 0; unit < engine->schedule->spec.model->unit_count; unit++)
        convert_states(engine, unit, upload);
}

// Numbers of a device go through the ops' workspace, where they are rounded (upload) or widened.
static void convert_remote(const mics_engine *engine, void *there, float *here, int64_t elems,
                           bool upload)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const int64_t capacity = (int64_t)(engine->workspace_bytes / sizeof(float));
    for (int64_t begin = 0; begin < elems; begin += capacity) {
        const int64_t count = at_most(capacity, elems - begin);
        if (upload) {
            copy_floats(engine, engine->workspace, here + begin, count);
            engine->ops->round(&at, elem_at(engine, there, begin), engine->workspace, count);
        } else {
            engine->ops->widen(&at, engine->workspace, elem_at(engine, there, begin), count);
            copy_floats(engine, here + begin, engine->workspace, count);
        }
    }
}

static void convert(const mics_engine *engine, void *there, float *here, int64_t elems, bool upload)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    if (is_remote(engine))
        convert_remote(engine, there, here, elems, upload);
    else if (upload)
        engine->ops->round(&at, there, here, elems);
    else
        engine->ops->widen(&at, here, there, elems);
}

// The masters are not rounded: they lie over what is.
static void copy_masters(const mics_engine *engine, int32_t unit, bool upload)
{
    const int64_t elems = owned_elems(engine, unit);
    float *here = engine->host_copy + engine->map.copies[unit] + offset_in_shard(engine, unit);
    float *there = optimizer_shard_of(engine, unit).masters;
    if (there != NULL)
        copy_floats(engine, upload ? there : here, upload ? here : there, elems);
}

static void copy_unit(const mics_engine *engine, int32_t unit, bool upload)
{
    float *here = engine->host_copy + engine->map.copies[unit], *there = shard_at(engine, unit);
    if (!is_mixed(engine)) {
        copy_floats(engine, upload ? there : here, upload ? here : there,
                    shard_elems(engine, unit));
        return;
    }
    convert(engine, there, here, shard_elems(engine, unit), upload);
    copy_masters(engine, unit, upload);
}

// Anchors and momenta stand behind all else, unit by unit.
static float *copied_anchor(const mics_engine *engine, int32_t unit)
{
    float *at = engine->host_copy + all_shard_elems(engine) +
                (engine->moments == NULL ? 0 : state_count(engine) * all_owned_elems(engine));
    for (int32_t u = 0; u < unit; u++)
        at += outer_elems(engine->schedule, u);
    return at;
}

static void copy_outer(const mics_engine *engine, int32_t unit, bool upload)
{
    if (!is_remote(engine) || outer_elems(engine->schedule, unit) == 0)
        return;
    const mics_meeting *m = &engine->schedule->meetings[unit];
    float *here = copied_anchor(engine, unit), *there = engine->outer + m->anchor;
    const int64_t anchor = owned_elems(engine, unit);
    copy_floats(engine, upload ? there : here, upload ? here : there, anchor);
    here += anchor;
    there = engine->outer + m->momentum;
    copy_floats(engine, upload ? there : here, upload ? here : there, met_elems(engine, unit));
}

mics_engine_outer_shard mics_engine_outer_shard_get(const mics_engine *engine, int32_t unit)
{
    mics_engine_outer_shard result = {.anchor = NULL};
    if (engine->islands == NULL || outer_elems(engine->schedule, unit) == 0)
        return result;
    const mics_meeting *m = &engine->schedule->meetings[unit];
    const int32_t world =
        mics_schedule_unit_ranks(engine->schedule, unit) * engine->schedule->spec.mesh.islands;
    result.range = unit_elems_of(engine, unit, owned_range(engine, unit));
    result.met = unit_elems_of(engine, unit, unit_range(engine, unit, world));
    if (is_remote(engine) && engine->host_copy == NULL)
        return result;
    result.anchor = is_remote(engine) ? copied_anchor(engine, unit) : engine->outer + m->anchor;
    result.momentum =
        is_remote(engine) ? result.anchor + owned_elems(engine, unit) : engine->outer + m->momentum;
    return result;
}

static mics_status copy_shards(mics_engine *engine, bool upload)
{
    MICS_TRY(device_drain(engine));
    mics_op_set_threads(engine->schedule->spec.batch.threads);
    copy_moments(engine, upload);
    for (int32_t unit = 0; unit < engine->schedule->spec.model->unit_count; unit++) {
        copy_unit(engine, unit, upload);
        copy_outer(engine, unit, upload);
    }
    return engine->device->ops->synchronize(engine->device->ctx, MICS_STREAM_COMPUTE);
}

mics_status mics_engine_download(mics_engine *engine)
{
    const bool copies = mics_engine_copies_states(engine->schedule);
    return copies || engine->host_copy != NULL ? mics_engine_download_params(engine) : MICS_OK;
}

mics_status mics_engine_download_params(mics_engine *engine)
{
    if (!is_copied(engine))
        return MICS_OK;
    MICS_TRY(host_copy_open(engine));
    return copy_shards(engine, false);
}

// Takes over states that a caller wrote in place.
static void round_masters(const mics_engine *engine)
{
    for (int32_t unit = 0; unit < engine->schedule->spec.model->unit_count; unit++) {
        const optimizer_shard held = optimizer_shard_of(engine, unit);
        if (held.masters != NULL)
            convert(engine, held.params, held.masters, held.range.end - held.range.begin, true);
    }
}

// The caller's values are the state now, so no update of the earlier one is due.
static void drop_update(mics_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->pending.left = 0;
    engine->updated = 0;
    pthread_mutex_unlock(&engine->mutex);
    islands_forget(engine);
}

mics_status mics_engine_upload(mics_engine *engine)
{
    drop_update(engine);
    engine->written = true;
    engine->whole_next = true;
    if (!is_copied(engine))
        return MICS_OK;
    if (engine->host_copy != NULL)
        return copy_shards(engine, true);
    if (mics_engine_copies_states(engine->schedule))
        return mics_fail(MICS_ERR_INVALID,
                         "optimizer shards were released, so there is nothing to upload; "
                         "call mics_engine_download first");
    round_masters(engine);
    return MICS_OK;
}
