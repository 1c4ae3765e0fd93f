// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What an engine holds: arenas as the ledger says, where units and slots lie in them, and the
// groups of this rank.
#include "engine/state.h"
#include "base/free.h"
#include "engine/graphs.h"
#include "mics/core/transport.h"
#include "schedule/rules.h"

static mics_status open_offsets(mics_engine *engine, int32_t count, int64_t **offsets_out)
{
    MICS_TRY(MICS_NEW(engine->spec.memory, count, &*offsets_out));
    return MICS_OK;
}

// A shared arena has all shards of a unit side by side; of units that are whole on every rank, one
// of each member.
static void map_params(mics_engine *engine)
{
    const mics_schedule *schedule = engine->schedule;
    const bool shared = schedule->spec.share_params;
    const engine_group *group = &engine->groups[MICS_AXIS_PARTITION][MICS_SCOPE_WHOLE];
    int64_t end = 0;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        const int32_t degree = schedule->sharding[u].params;
        const int64_t shard = schedule->padded_elems[u] / degree;
        engine->map.params[u] = end;
        if (shared)
            engine->map.params[u] += shard * group->own_block;
        end += shard * (shared ? group->group.size : 1);
    }
    engine->map.params_end = end;
}

static int64_t state_bytes(const mics_engine *engine, int32_t unit)
{
    return (int64_t)mics_state_bytes(engine->schedule->spec.state_dtype, owned_elems(engine, unit));
}

static mics_status map_units(mics_engine *engine)
{
    const mics_schedule *schedule = engine->schedule;
    const int32_t units = schedule->spec.model->unit_count;
    arena_map *map = &engine->map;
    MICS_TRY(open_offsets(engine, units, &map->params));
    MICS_TRY(open_offsets(engine, units, &map->copies));
    MICS_TRY(open_offsets(engine, units, &map->grads));
    MICS_TRY(open_offsets(engine, units, &map->moments));
    MICS_TRY(open_offsets(engine, units, &map->states));
    map_params(engine);
    map->states_end = state_bytes(engine, 0);
    for (int32_t u = 0; u + 1 < units; u++) {
        const mics_sharding *s = &schedule->sharding[u];
        map->copies[u + 1] = map->copies[u] + schedule->padded_elems[u] / s->params;
        map->grads[u + 1] =
            map->grads[u] +
            (mics_schedule_trains(schedule, u) ? schedule->padded_elems[u] / s->grads : 0);
        map->moments[u + 1] = map->moments[u] + owned_elems(engine, u);
        map->states[u + 1] = map->states_end;
        map->states_end += state_bytes(engine, u + 1);
    }
    return MICS_OK;
}

static mics_status map_slots(mics_engine *engine, const int64_t *elems, int32_t count,
                             int64_t **offsets_out)
{
    MICS_TRY(open_offsets(engine, count, offsets_out));
    int64_t end = 0;
    for (int32_t i = 0; i < count; i++) {
        (*offsets_out)[i] = end;
        end += elems[i];
    }
    return MICS_OK;
}

static mics_status open_group(mics_engine *engine, mics_group_axis axis, mics_group_scope scope)
{
    const mics_mesh *mesh = &engine->schedule->spec.mesh;
    engine_group *made = &engine->groups[axis][scope];
    made->group = mics_mesh_group(mesh, axis, scope, engine->rank);
    MICS_TRY(MICS_NEW(engine->spec.memory, made->group.size, &made->block_of));
    for (int32_t member = 0; member < made->group.size; member++)
        made->block_of[member] =
            mics_mesh_block(mesh, axis, scope, mics_group_rank(made->group, member));
    made->own_block = made->block_of[made->group.index];
    return MICS_OK;
}

static mics_status open_groups(mics_engine *engine)
{
    for (int i = 0; i < MICS_AXES * MICS_SCOPES; i++)
        MICS_TRY(open_group(engine, (mics_group_axis)(i / MICS_SCOPES),
                            (mics_group_scope)(i % MICS_SCOPES)));
    return MICS_OK;
}

static bool is_shared(const mics_engine *engine, mics_memory_tag tag)
{
    return tag == MICS_MEM_PARAMS && engine->schedule->spec.share_params;
}

// Takes an arena of the size that the ledger has for a tag, in the memory that the engine computes
// in; none when that is 0.
static mics_status open_arena(mics_engine *engine, mics_memory_tag tag, void **arena_out)
{
    mics_memory *memory = engine->spec.memory;
    const mics_device *device = engine->device;
    const size_t bytes = engine->schedule->ledger.bytes[tag];
    if (bytes == 0)
        return MICS_OK;
    if (is_shared(engine, tag)) { // each member books its own part; state_share brings the rest
        MICS_TRY(mics_memory_book(memory, tag, bytes));
        engine->params_booked = true;
        return MICS_OK;
    }
    if (device->is_host)
        return mics_alloc(memory, tag, bytes, arena_out);
    MICS_TRY(mics_memory_book(memory, tag, bytes));
    mics_status status = (tag == MICS_MEM_OFFLOAD ? device->ops->alloc_host : device->ops->alloc)(
        device->ctx, bytes, arena_out);
    if (status != MICS_OK)
        mics_memory_unbook(memory, tag, bytes);
    return status;
}

static void close_arena(mics_engine *engine, mics_memory_tag tag, void *arena)
{
    if (is_shared(engine, tag)) {
        mics_comm_unshare(engine->spec.comm, arena);
        if (engine->params_booked)
            mics_memory_unbook(engine->spec.memory, tag, engine->schedule->ledger.bytes[tag]);
        return;
    }
    if (arena == NULL)
        return;
    if (engine->device->is_host) {
        mics_free(engine->spec.memory, arena);
        return;
    }
    const mics_device_ops *ops = engine->device->ops;
    (tag == MICS_MEM_OFFLOAD ? ops->free_host : ops->free)(engine->device->ctx, arena);
    mics_memory_unbook(engine->spec.memory, tag, engine->schedule->ledger.bytes[tag]);
}

static void lay_out_messages(mics_engine *engine, char *arena)
{
    engine->messages[0] = arena;
    for (int stream = 0; arena != NULL && stream < MICS_STREAMS; stream++) {
        engine->messages[stream] = arena;
        arena += engine->schedule->message_bytes[stream];
    }
    engine->residual = (float *)(void *)arena;
    engine->momentum = arena == NULL ? NULL : engine->residual + engine->schedule->residual_elems;
}

static mics_status open_arenas(mics_engine *engine)
{
    const mics_schedule *schedule = engine->schedule;
    void *blocks[MICS_MEM_TAGS] = {NULL};
    mics_status status = MICS_OK;
    for (int tag = 0; tag < MICS_MEM_TAGS && status == MICS_OK; tag++) {
        if (tag != MICS_MEM_COMM && tag != MICS_MEM_HOST && tag != MICS_MEM_NODE)
            status = open_arena(engine, (mics_memory_tag)tag, &blocks[tag]);
    }
    engine->params = blocks[MICS_MEM_PARAMS];
    engine->grads = blocks[MICS_MEM_GRADS];
    engine->moments = blocks[MICS_MEM_OPTIMIZER];
    engine->gather = blocks[MICS_MEM_GATHER];
    engine->reduce = blocks[MICS_MEM_REDUCE];
    engine->activations = blocks[MICS_MEM_ACTIVATIONS];
    engine->offloaded = blocks[MICS_MEM_OFFLOAD];
    engine->workspace = blocks[MICS_MEM_WORKSPACE];
    engine->tokens = blocks[MICS_MEM_DATA];
    engine->outer = blocks[MICS_MEM_OUTER];
    lay_out_messages(engine, blocks[MICS_MEM_MESSAGES]);
    MICS_TRY(status);
    engine->losses = engine->workspace + schedule->workspace_losses;
    engine->workspace_bytes = (size_t)schedule->workspace_losses * sizeof(float);
    return MICS_OK;
}

// Page-locked host memory for copies that a device makes during a step.
static mics_status open_host(mics_engine *engine)
{
    const mics_device *device = engine->device;
    const mics_schedule_spec *spec = &engine->schedule->spec;
    const int64_t staged = spec->micro_steps * engine->schedule->data_elems;
    void *block = NULL;
    engine->sums = engine->host_sums = &engine->own_sums;
    if (device->is_host)
        return MICS_OK;
    engine->host_sums = NULL;
    engine->sums = (step_sums *)(void *)(engine->workspace + engine->schedule->workspace_sums);
    MICS_TRY(device->ops->alloc_host(device->ctx, sizeof *engine->host_sums, &block));
    engine->host_sums = block;
    MICS_TRY(device->ops->alloc_host(device->ctx, (size_t)staged * sizeof(int32_t), &block));
    engine->staged_tokens = block;
    MICS_TRY(MICS_NEW(engine->spec.memory, spec->model->vocab + 1, &engine->counts));
    return MICS_OK;
}

mics_status state_open(mics_engine *engine)
{
    const mics_schedule *schedule = engine->schedule;
    arena_map *map = &engine->map;
    MICS_TRY(open_groups(engine));
    MICS_TRY(map_units(engine));
    MICS_TRY(
        map_slots(engine, schedule->param_slots, schedule->param_slot_count, &map->param_slots));
    MICS_TRY(map_slots(engine, schedule->grad_slots, schedule->grad_slot_count, &map->grad_slots));
    engine->first = engine->rank - engine->rank % schedule->spec.mesh.ranks;
    MICS_TRY(
        MICS_NEW(engine->spec.memory, 2 * (int64_t)schedule->spec.mesh.ranks, &engine->agreements));
    MICS_TRY(MICS_NEW(engine->spec.memory, 2 * (int64_t)schedule->spec.mesh.ranks, &engine->sizes));
    MICS_TRY(
        MICS_NEW(engine->spec.memory, schedule->lists[MICS_PHASE_TRAIN].count, &engine->times));
    MICS_TRY(MICS_NEW(engine->spec.memory, schedule->spec.layered_micro_steps,
                      &engine->micro_step_read));
    MICS_TRY(
        MICS_NEW(engine->spec.memory, schedule->spec.layered_micro_steps, &engine->counted_rows));
    MICS_TRY(graphs_open(engine));
    MICS_TRY(open_arenas(engine));
    return open_host(engine);
}

mics_status state_share(mics_engine *engine)
{
    const engine_group *group = &engine->groups[MICS_AXIS_PARTITION][MICS_SCOPE_WHOLE];
    const mics_comm_group over = {
        .group = group->group, .block_of = group->block_of, .what = "sharing parameters in a node"};
    void *block = NULL;
    MICS_TRY(mics_comm_share(engine->spec.comm, &over,
                             (size_t)engine->map.params_end * engine->elem_bytes, &block));
    engine->params = block;
    return MICS_OK;
}

mics_status state_register(mics_engine *engine)
{
    void *const arenas[MICS_MEM_TAGS] = {
        [MICS_MEM_PARAMS] = engine->params,
        [MICS_MEM_GRADS] = engine->grads,
        [MICS_MEM_GATHER] = engine->gather,
        [MICS_MEM_REDUCE] = engine->reduce,
        [MICS_MEM_MESSAGES] = engine->messages[0],
        [MICS_MEM_OUTER] = engine->outer,
        [MICS_MEM_ACTIVATIONS] =
            engine->schedule->spread != NULL ? engine->activations : NULL, // all-to-alls
    };
    mics_comm_buffer buffers[MICS_COMM_MAX_BUFFERS];
    int32_t count = 0;
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (arenas[tag] != NULL)
            buffers[count++] = (mics_comm_buffer){arenas[tag], engine->schedule->ledger.bytes[tag]};
    }
    return mics_comm_register(engine->spec.comm, buffers, count);
}

static void close_arenas(mics_engine *engine)
{
    void *const arenas[MICS_MEM_TAGS] = {
        [MICS_MEM_PARAMS] = engine->params,       [MICS_MEM_GRADS] = engine->grads,
        [MICS_MEM_OPTIMIZER] = engine->moments,   [MICS_MEM_GATHER] = engine->gather,
        [MICS_MEM_REDUCE] = engine->reduce,       [MICS_MEM_ACTIVATIONS] = engine->activations,
        [MICS_MEM_WORKSPACE] = engine->workspace, [MICS_MEM_MESSAGES] = engine->messages[0],
        [MICS_MEM_DATA] = engine->tokens,         [MICS_MEM_OFFLOAD] = engine->offloaded,
        [MICS_MEM_OUTER] = engine->outer,
    };
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++)
        close_arena(engine, (mics_memory_tag)tag, arenas[tag]);
}

// After a failure something may still be under way on a device: what the world's end has stopped.
static void close_device(mics_engine *engine)
{
    mics_device *device = engine->device;
    if (device == NULL)
        return;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        (void)device->ops->synchronize(device->ctx, stream);
    graphs_close(engine);
    mics_comm_unregister(engine->spec.comm);
    close_arenas(engine);
    if (engine->host_sums != engine->sums)
        device->ops->free_host(device->ctx, engine->host_sums);
    if (engine->staged_tokens != NULL)
        device->ops->free_host(device->ctx, engine->staged_tokens);
    mics_device_close(engine->own_device);
}

void state_close(mics_engine *engine)
{
    mics_memory *memory = engine->spec.memory;
    arena_map *map = &engine->map;
    int64_t *const maps[] = {map->params, map->copies,      map->grads,     map->moments,
                             map->states, map->param_slots, map->grad_slots};
    close_device(engine);
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        mics_free(memory, maps[i]);
    for (int i = 0; i < MICS_AXES * MICS_SCOPES; i++)
        mics_free(memory, engine->groups[i / MICS_SCOPES][i % MICS_SCOPES].block_of);
    MICS_FREE_ALL(memory, engine->agreements, engine->sizes, engine->times, engine->micro_step_read,
                  engine->counted_rows, engine->counts, engine->host_copy);
}

// ---- where things are ----

int64_t owned_elems(const mics_engine *engine, int32_t unit)
{
    const mics_schedule *schedule = engine->schedule;
    return mics_schedule_trains(schedule, unit)
               ? schedule->padded_elems[unit] / schedule->sharding[unit].optimizer
               : 0;
}

mics_range unit_range(const mics_engine *engine, int32_t unit, int32_t degree)
{
    return mics_schedule_unit_range(engine->schedule, unit, engine->rank, degree);
}

bool meets(const mics_engine *engine, int32_t unit)
{
    return engine->islands != NULL && engine->schedule->meetings[unit].anchor >= 0;
}

float *anchor_of(const mics_engine *engine, int32_t unit)
{
    return engine->outer + engine->schedule->meetings[unit].anchor;
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

mics_range unit_elems_of(const mics_engine *engine, int32_t unit, mics_range range)
{
    const mics_range block = mics_schedule_unit_block(engine->schedule, unit, engine->rank);
    const int64_t elems = block.end - block.begin;
    return (mics_range){block.begin + (range.begin < elems ? range.begin : elems),
                        block.begin + (range.end < elems ? range.end : elems)};
}

mics_range param_shard_of(const mics_engine *engine, int32_t unit)
{
    const int32_t degree = engine->schedule->sharding[unit].params;
    return unit_elems_of(engine, unit, unit_range(engine, unit, degree));
}

void *grads_at(const mics_engine *engine, int32_t unit, int32_t degree, int64_t at)
{
    const int32_t whole = engine->schedule->sharding[unit].grads;
    const int64_t elems = engine->map.grads[unit] + at + unit_range(engine, unit, degree).begin -
                          unit_range(engine, unit, whole).begin;
    return mics_schedule_rounds_sums(&engine->schedule->spec)
               ? elem_at(engine, engine->grads, elems)
               : (void *)(engine->grads + elems);
}

const mics_step_use *step_use(const mics_step *step, int32_t unit)
{
    for (int32_t i = 0; i < step->use_count; i++) {
        if (step->uses[i].unit == unit)
            return &step->uses[i];
    }
    return NULL;
}

int32_t *in_flight_tokens(const mics_engine *engine, int32_t in_flight)
{
    return engine->tokens + engine->schedule->data_elems * in_flight;
}

void *elem_at(const mics_engine *engine, void *base, int64_t elems)
{
    return (char *)base + elems * (int64_t)engine->elem_bytes;
}

void *shard_at(const mics_engine *engine, int32_t unit)
{
    return elem_at(engine, engine->params, engine->map.params[unit]);
}

mics_exec exec_on(const mics_engine *engine, mics_stream stream)
{
    return (mics_exec){
        .device = engine->device,
        .stream = (int32_t)stream,
        .dtype = engine->dtype,
        .threads = engine->schedule->spec.batch.threads,
        .workspace = stream == MICS_STREAM_COMPUTE ? engine->workspace : NULL,
        .workspace_bytes = stream == MICS_STREAM_COMPUTE ? engine->workspace_bytes : 0,
    };
}

void *used_params(const mics_engine *engine, const mics_step *step, int32_t unit)
{
    const mics_step_use *use = step_use(step, unit);
    if (use == NULL)
        return NULL;
    if (use->param_slot >= 0)
        return elem_at(engine, engine->gather, engine->map.param_slots[use->param_slot]);
    if (engine->schedule->sharding[unit].params > 1 &&
        !mics_schedule_shares(engine->schedule, unit))
        return NULL;
    return elem_at(engine, shard_at(engine, unit),
                   -unit_range(engine, unit, engine->schedule->sharding[unit].params).begin);
}

void *used_grads(const mics_engine *engine, const mics_step *step, int32_t unit)
{
    const mics_step_use *use = step_use(step, unit);
    if (use == NULL || step->kind != MICS_STEP_BACKWARD)
        return NULL;
    if (use->grad_slot >= 0)
        return elem_at(engine, engine->reduce, engine->map.grad_slots[use->grad_slot]);
    return engine->schedule->sharding[unit].grads == 1 &&
                   mics_schedule_trains(engine->schedule, unit)
               ? grads_at(engine, unit, 1, 0)
               : NULL;
}
