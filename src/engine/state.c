// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What an engine holds: arenas as the ledger says, where units and slots lie in them, and the
// groups of this rank.
#include "engine/engine_internal.h"

static mics_status open_offsets(mics_engine *engine, int32_t count, int64_t **offsets_out)
{
    void *block = NULL;
    MICS_TRY(
        mics_alloc(engine->spec.memory, MICS_MEM_HOST, (size_t)count * sizeof(int64_t), &block));
    *offsets_out = block;
    return MICS_OK;
}

static mics_status map_units(mics_engine *engine)
{
    const mics_schedule *schedule = engine->schedule;
    const int32_t units = schedule->spec.model->unit_count;
    arena_map *map = &engine->map;
    MICS_TRY(open_offsets(engine, units, &map->params));
    MICS_TRY(open_offsets(engine, units, &map->grads));
    MICS_TRY(open_offsets(engine, units, &map->moments));
    for (int32_t u = 0; u + 1 < units; u++) {
        const mics_sharding *s = &schedule->sharding[u];
        map->params[u + 1] = map->params[u] + schedule->padded_elems[u] / s->params;
        map->grads[u + 1] = map->grads[u] + schedule->padded_elems[u] / s->grads;
        map->moments[u + 1] = map->moments[u] + schedule->padded_elems[u] / s->optimizer;
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

mics_status group_ring_open(mics_memory *memory, const mics_mesh *mesh, mics_group_kind kind,
                            int32_t rank, group_ring *ring)
{
    ring->group = mics_mesh_group(mesh, kind, rank);
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, (size_t)ring->group.size * sizeof(int32_t), &block));
    ring->block_of = block;
    for (int32_t member = 0; member < ring->group.size; member++)
        ring->block_of[member] = mics_mesh_block(mesh, kind, mics_group_rank(ring->group, member));
    ring->own_block = ring->block_of[ring->group.index];
    return MICS_OK;
}

// Takes an arena of the size that the ledger has for a tag; none when that is 0.
static mics_status open_arena(mics_engine *engine, mics_memory_tag tag, void **arena_out)
{
    size_t bytes = engine->schedule->ledger.bytes[tag];
    return bytes == 0 ? MICS_OK : mics_alloc(engine->spec.memory, tag, bytes, arena_out);
}

static mics_status open_arenas(mics_engine *engine)
{
    float **const arenas[MICS_MEM_TAGS] = {
        [MICS_MEM_PARAMS] = &engine->params,       [MICS_MEM_GRADS] = &engine->grads,
        [MICS_MEM_OPTIMIZER] = &engine->moments,   [MICS_MEM_GATHER] = &engine->gather,
        [MICS_MEM_REDUCE] = &engine->reduce,       [MICS_MEM_ACTIVATIONS] = &engine->activations,
        [MICS_MEM_WORKSPACE] = &engine->workspace,
    };
    char *wire = NULL;
    void *block = NULL;
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (arenas[tag] == NULL)
            continue;
        block = NULL;
        MICS_TRY(open_arena(engine, (mics_memory_tag)tag, &block));
        *arenas[tag] = block;
    }
    block = NULL;
    MICS_TRY(open_arena(engine, MICS_MEM_WIRE, &block));
    engine->wire[0] = wire = block;
    for (int stream = 0; wire != NULL && stream < MICS_STREAMS; stream++) {
        engine->wire[stream] = wire;
        wire += engine->schedule->wire_bytes[stream];
    }
    engine->residual = (float *)(void *)wire;
    block = NULL;
    MICS_TRY(open_arena(engine, MICS_MEM_DATA, &block));
    engine->inputs = block;
    engine->targets = engine->inputs +
                      engine->schedule->spec.batch.sequences * engine->schedule->spec.batch.length;
    return MICS_OK;
}

mics_status state_open(mics_engine *engine)
{
    const mics_schedule *schedule = engine->schedule;
    arena_map *map = &engine->map;
    void *block = NULL;
    MICS_TRY(map_units(engine));
    MICS_TRY(
        map_slots(engine, schedule->param_slots, schedule->param_slot_count, &map->param_slots));
    MICS_TRY(map_slots(engine, schedule->grad_slots, schedule->grad_slot_count, &map->grad_slots));
    for (int kind = 0; kind < MICS_GROUP_KINDS; kind++)
        MICS_TRY(group_ring_open(engine->spec.memory, &schedule->spec.mesh, (mics_group_kind)kind,
                                 engine->rank, &engine->rings[kind]));
    MICS_TRY(mics_alloc(engine->spec.memory, MICS_MEM_HOST,
                        (size_t)schedule->spec.mesh.ranks * sizeof(mics_agreement), &block));
    engine->agreements = block;
    MICS_TRY(mics_alloc(engine->spec.memory, MICS_MEM_HOST,
                        (size_t)schedule->lists[MICS_PHASE_TRAIN].count * sizeof(mics_step_time),
                        &block));
    engine->times = block;
    return open_arenas(engine);
}

void state_close(mics_engine *engine)
{
    mics_memory *memory = engine->spec.memory;
    arena_map *map = &engine->map;
    int64_t *const maps[] = {map->params, map->grads, map->moments, map->param_slots,
                             map->grad_slots};
    float *const arenas[] = {engine->params, engine->grads,       engine->moments,  engine->gather,
                             engine->reduce, engine->activations, engine->workspace};
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        mics_free(memory, maps[i]);
    for (size_t i = 0; i < sizeof arenas / sizeof arenas[0]; i++)
        mics_free(memory, arenas[i]);
    for (int kind = 0; kind < MICS_GROUP_KINDS; kind++)
        mics_free(memory, engine->rings[kind].block_of);
    mics_free(memory, engine->wire[0]);
    mics_free(memory, engine->inputs);
    mics_free(memory, engine->agreements);
    mics_free(memory, engine->times);
}

// ---- where things are ----

static mics_range range_at(const mics_engine *engine, int32_t unit, int32_t degree)
{
    return mics_mesh_range(&engine->schedule->spec.mesh, engine->rank, degree,
                           engine->schedule->padded_elems[unit]);
}

float *owned_grads(const mics_engine *engine, int32_t unit)
{
    const mics_sharding *s = &engine->schedule->sharding[unit];
    return engine->grads + engine->map.grads[unit] + range_at(engine, unit, s->optimizer).begin -
           range_at(engine, unit, s->grads).begin;
}

const mics_step_use *step_use(const mics_step *step, int32_t unit)
{
    for (int32_t i = 0; i < step->use_count; i++) {
        if (step->uses[i].unit == unit)
            return &step->uses[i];
    }
    return NULL;
}

float *used_params(const mics_engine *engine, const mics_step *step, int32_t unit)
{
    const mics_step_use *use = step_use(step, unit);
    if (use == NULL)
        return NULL;
    if (use->param_slot >= 0)
        return engine->gather + engine->map.param_slots[use->param_slot];
    return engine->schedule->sharding[unit].params == 1 ? engine->params + engine->map.params[unit]
                                                        : NULL;
}

float *used_grads(const mics_engine *engine, const mics_step *step, int32_t unit)
{
    const mics_step_use *use = step_use(step, unit);
    if (use == NULL || step->kind != MICS_STEP_BACKWARD)
        return NULL;
    if (use->grad_slot >= 0)
        return engine->reduce + engine->map.grad_slots[use->grad_slot];
    return engine->schedule->sharding[unit].grads == 1 ? engine->grads + engine->map.grads[unit]
                                                       : NULL;
}

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

mics_engine_piece mics_engine_piece_get(const mics_engine *engine, int32_t unit)
{
    const mics_sharding *s = &engine->schedule->sharding[unit];
    const int64_t elems = engine->schedule->spec.model->units[unit].elems;
    const mics_range shard = range_at(engine, unit, s->params),
                     piece = range_at(engine, unit, s->optimizer);
    const int64_t moments_elems =
        (int64_t)(engine->schedule->ledger.bytes[MICS_MEM_OPTIMIZER] / sizeof(float) / 2);
    mics_engine_piece result = {
        .range = {at_most(piece.begin, elems), at_most(piece.end, elems)},
        .shard = {at_most(shard.begin, elems), at_most(shard.end, elems)},
        .shard_params = engine->params + engine->map.params[unit],
    };
    result.params = result.shard_params + (piece.begin - shard.begin);
    if (engine->moments == NULL) // an engine for evaluation
        return result;
    result.moment1 = engine->moments + engine->map.moments[unit];
    result.moment2 = result.moment1 + moments_elems;
    return result;
}
