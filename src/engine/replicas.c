// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Replicas: shards that several ranks hold, compared and repaired.
//
// Ranks r and q hold the same part of what is cut into `degree` parts when r % degree == q % degree
// (mesh.h) and they are of one island. So masters and moments, cut by O, have the replicas r, r + O, r + 2 O, ...; parameters
// of a unit, cut by its P, have r, r + P, .... Each rank hashes what it holds, unit by unit. First
// all ranks exchange three hashes of those hashes: of masters and moments, of the parameters that
// are cut by the mesh's P, and of those that are whole on every rank, which have other replicas.
// Only if one of them differs, the units' hashes go round.
#include "engine/replicas.h"
#include "base/free.h"
#include "engine/events.h"
#include "engine/scrub.h"
#include "engine/state.h"
#include "engine/status.h"
#include "engine/streams.h"
#include "engine/vote.h"
#include "mics/log.h"
#include <string.h>
#include <unistd.h>

// States that have the same replicas.
enum { OF_OPTIMIZER, OF_PARAMS, OF_WHOLE, KINDS };

typedef struct unit_hashes {
    uint64_t of[MICS_REPLICA_STATES];
} unit_hashes;

typedef struct rank_hashes {
    uint64_t of[KINDS];
    uint64_t flipped; // scrub_found
} rank_hashes;

struct replicas {
    unit_hashes *units; // by unit, of this rank
    rank_hashes *ranks; // by rank, and all three hashes of every rank once they are exchanged
    uint64_t *hash;     // where a device leaves one; in its memory is `device_hash`
    uint64_t *device_hash;
    uint64_t *anchors; // of islands: hashes, by rank, then by unit
    uint16_t *image;   // scratch for what is compared as bf16; NULL: nothing is
    // After a difference: by rank, then by unit. NULL: none was found.
    unit_hashes *all;
    // Arguments of the job on the communication thread.
    void *buffer;
    char *work; // as large
    size_t block_bytes;
    const char *what;
};

enum { IMAGE_ELEMS = 64 * 1024 };

// ---- what is compared ----

static const mics_mesh *mesh_of(const mics_engine *engine)
{
    return &engine->schedule->spec.mesh;
}

static int32_t unit_count(const mics_engine *engine)
{
    return engine->schedule->spec.model->unit_count;
}

const char *mics_replica_state_text(mics_replica_state state)
{
    static const char *const texts[] = {
        [MICS_REPLICA_MASTERS] = "masters",
        [MICS_REPLICA_MOMENTS] = "moments",
        [MICS_REPLICA_PARAMS] = "parameters",
        [MICS_REPLICA_GRADS] = "gradients after the second hop",
        [MICS_REPLICA_ANCHORS] = "anchors",
    };
    return (unsigned)state <= MICS_REPLICA_ANCHORS ? texts[state] : "unknown state";
}

// Into how many parts a state of a unit is cut, each of which the ranks / degree ranks hold alike;
// the number of ranks: it is not compared.
static int32_t degree_of(const mics_engine *engine, int32_t unit, mics_replica_state state)
{
    const mics_sharding *s = &engine->schedule->sharding[unit];
    const int32_t experts = engine->schedule->experts[unit];
    if (!mics_schedule_trains(engine->schedule, unit))
        return state == MICS_REPLICA_PARAMS ? s->params * experts : mesh_of(engine)->ranks;
    if (state == MICS_REPLICA_PARAMS)
        return s->optimizer > s->params ? s->params * experts : mesh_of(engine)->ranks;
    return s->optimizer * experts;
}

// The hash of all shards of one kind.
static int32_t degree_of_kind(const mics_engine *engine, int kind)
{
    const mics_sharding *s = &mesh_of(engine)->sharding;
    return kind == OF_OPTIMIZER ? s->optimizer : kind == OF_PARAMS ? s->params : 1;
}

static int kind_of(const mics_engine *engine, int32_t unit, mics_replica_state state)
{
    if (state != MICS_REPLICA_PARAMS)
        return OF_OPTIMIZER;
    return degree_of(engine, unit, state) == degree_of_kind(engine, OF_PARAMS) ? OF_PARAMS
                                                                               : OF_WHOLE;
}

static bool is_compared(const mics_engine *engine, int32_t unit, mics_replica_state state)
{
    return degree_of(engine, unit, state) < mesh_of(engine)->ranks;
}

static bool compares(const mics_engine *engine, mics_replica_state state)
{
    bool any = false;
    for (int32_t unit = 0; unit < unit_count(engine); unit++)
        any = any || is_compared(engine, unit, state);
    return any;
}

// Whether a parameter sync rounds what it sends: then owners alone have the whole numbers.
static bool syncs_rounded(const mics_engine *engine)
{
    const mics_step_list *list = &engine->schedule->lists[MICS_PHASE_TRAIN];
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        if (step->kind == MICS_STEP_PARAM_SYNC && step->dtype.sent != step->dtype.held)
            return true;
    }
    return false;
}

// ---- opening ----

// A device's hashes pass through page-locked memory.
static mics_status open_hash(mics_engine *engine, struct replicas *self)
{
    const mics_device *device = engine->device;
    void *block = NULL;
    if (device->is_host)
        return MICS_NEW(engine->spec.memory, 1, &self->hash);
    MICS_TRY(device->ops->alloc_host(device->ctx, sizeof *self->hash, &block));
    self->hash = block;
    // The sums of a step are of no more use between steps.
    self->device_hash = (uint64_t *)(void *)engine->sums;
    return MICS_OK;
}

mics_status replicas_open(mics_engine *engine)
{
    mics_memory *memory = engine->spec.memory;
    struct replicas *self = NULL;
    if (engine->schedule->spec.evaluation_only)
        return MICS_OK;
    MICS_TRY(MICS_NEW(memory, 1, &self));
    engine->replicas = self;
    MICS_TRY(MICS_NEW(memory, unit_count(engine), &self->units));
    MICS_TRY(MICS_NEW(memory, mics_mesh_world(mesh_of(engine)), &self->ranks));
    if (engine->islands != NULL)
        MICS_TRY(MICS_NEW(memory, (int64_t)mics_mesh_world(mesh_of(engine)) * unit_count(engine),
                          &self->anchors));
    if (syncs_rounded(engine))
        MICS_TRY(MICS_NEW(memory, IMAGE_ELEMS, &self->image));
    return open_hash(engine, self);
}

void replicas_close(mics_engine *engine)
{
    mics_memory *memory = engine->spec.memory;
    struct replicas *self = engine->replicas;
    if (self == NULL)
        return;
    if (self->device_hash != NULL)
        engine->device->ops->free_host(engine->device->ctx, self->hash);
    else
        mics_free(memory, self->hash);
    MICS_FREE_ALL(memory, self->units, self->ranks, self->image, self->all, self->anchors, self);
    engine->replicas = NULL;
}

// ---- hashes ----

// One more hash into one of several. The constants are those of SplitMix64.
static uint64_t join(uint64_t all, uint64_t hash)
{
    uint64_t z = (all ^ hash) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 27);
}

static mics_status hash_bytes(const mics_engine *engine, const void *x, size_t bytes,
                              uint64_t *hash_out)
{
    const struct replicas *self = engine->replicas;
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_device *device = engine->device;
    engine->ops->hash(&at, device->is_host ? self->hash : self->device_hash, x, bytes);
    if (!device->is_host) {
        device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, self->hash, self->device_hash,
                          sizeof *self->hash);
        MICS_TRY(device->ops->synchronize(device->ctx, MICS_STREAM_COMPUTE));
    }
    *hash_out = *self->hash;
    return MICS_OK;
}

// Of the CPU alone.
static mics_status hash_rounded(const mics_engine *engine, const float *x, int64_t elems,
                                uint64_t *hash_out)
{
    struct replicas *self = engine->replicas;
    *hash_out = 0;
    for (int64_t begin = 0; begin < elems; begin += IMAGE_ELEMS) {
        const int64_t count = elems - begin < IMAGE_ELEMS ? elems - begin : IMAGE_ELEMS;
        uint64_t hash = 0;
        engine->ops->pack_bf16(self->image, x + begin, count);
        MICS_TRY(hash_bytes(engine, self->image, (size_t)count * sizeof *self->image, &hash));
        *hash_out = join(*hash_out, hash);
    }
    return MICS_OK;
}

// This rank's parameter shard, cut at the unit's own length.
static mics_status hash_params(const mics_engine *engine, int32_t unit, uint64_t *hash_out)
{
    const mics_range shard = param_shard_of(engine, unit);
    const int64_t elems = shard.end - shard.begin;
    if (engine->replicas->image != NULL && mics_schedule_trains(engine->schedule, unit))
        return hash_rounded(engine, shard_at(engine, unit), elems, hash_out);
    return hash_bytes(engine, shard_at(engine, unit), (size_t)elems * engine->elem_bytes, hash_out);
}

// As they are held, without padding.
static mics_status hash_states(const mics_engine *engine, int32_t unit, int64_t elems,
                               uint64_t *hash_out)
{
    const int32_t states = mics_optimizer_def_get(engine->spec.optimizer.kind)->states;
    const mics_state_dtype dtype = engine->schedule->spec.state_dtype;
    const int64_t blocks = (elems + MICS_STATE_BLOCK - 1) / MICS_STATE_BLOCK;
    for (int32_t s = 0; s < states; s++) {
        const mics_state_part part = state_part(engine, unit, s, 0, elems);
        const size_t bytes = (size_t)elems * mics_state_elem_bytes(dtype);
        uint64_t scales = 0, hash = 0;
        if (dtype == MICS_STATE_8BIT)
            MICS_TRY(
                hash_bytes(engine, part.scales, (size_t)blocks * sizeof *part.scales, &scales));
        MICS_TRY(hash_bytes(engine, part.held, bytes + bytes % 2, &hash)); // of 16 bytes
        *hash_out = join(*hash_out, join(scales, hash));
    }
    return MICS_OK;
}

static mics_status hash_unit(const mics_engine *engine, int32_t unit)
{
    unit_hashes *hashes = &engine->replicas->units[unit];
    const optimizer_shard held = optimizer_shard_of(engine, unit);
    const size_t bytes = (size_t)(held.range.end - held.range.begin) * sizeof(float);
    *hashes = (unit_hashes){{0}};
    if (is_compared(engine, unit, MICS_REPLICA_MASTERS)) {
        MICS_TRY(hash_bytes(engine, held.masters, bytes, &hashes->of[MICS_REPLICA_MASTERS]));
        MICS_TRY(hash_states(engine, unit, held.range.end - held.range.begin,
                             &hashes->of[MICS_REPLICA_MOMENTS]));
    }
    if (is_compared(engine, unit, MICS_REPLICA_PARAMS))
        MICS_TRY(hash_params(engine, unit, &hashes->of[MICS_REPLICA_PARAMS]));
    return MICS_OK;
}

static mics_status hash_all(mics_engine *engine)
{
    struct replicas *self = engine->replicas;
    rank_hashes *mine = &self->ranks[engine->rank];
    *mine = (rank_hashes){.flipped = 0};
    mics_op_set_threads(engine->schedule->spec.batch.threads);
    MICS_TRY(device_drain(engine));
    for (int32_t unit = 0; unit < unit_count(engine); unit++) {
        MICS_TRY(hash_unit(engine, unit));
        for (int state = 0; state < MICS_REPLICA_STATES; state++) {
            uint64_t *of = &mine->of[kind_of(engine, unit, (mics_replica_state)state)];
            *of = join(*of, self->units[unit].of[state]);
        }
    }
    return MICS_OK;
}

// ---- exchanging them ----

static mics_status gather_job(mics_engine *engine, mics_stream stream)
{
    (void)stream;
    const struct replicas *self = engine->replicas;
    const mics_comm_group over = {
        .group = mics_mesh_group(mesh_of(engine), MICS_AXIS_WORLD, MICS_SCOPE_WHOLE, engine->rank),
        .what = self->what};
    const mics_status status = mics_comm_all_gather_doubling(engine->spec.comm, &over, self->buffer,
                                                             self->work, self->block_bytes);
    if (status != MICS_OK)
        mics_comm_abort(engine->spec.comm, NULL);
    return status;
}

static mics_status run_job(mics_engine *engine, worker_job job)
{
    engine->all_know = false;
    status_call(engine, ENGINE_AGREE);
    worker_start(engine, engine->home, job);
    const mics_status status = worker_join(engine, engine->home);
    status_call(engine, ENGINE_IDLE);
    return status;
}

// Block r of `buffer` is rank r's.
static mics_status gather_ranks(mics_engine *engine, void *buffer, size_t block_bytes,
                                const char *what)
{
    struct replicas *self = engine->replicas;
    MICS_TRY(MICS_NEW(engine->spec.memory, (size_t)mics_mesh_world(mesh_of(engine)) * block_bytes,
                      &self->work));
    self->buffer = buffer;
    self->block_bytes = block_bytes;
    self->what = what;
    const mics_status status = run_job(engine, gather_job);
    mics_free(engine->spec.memory, self->work);
    return status;
}

static mics_status gather_units(mics_engine *engine)
{
    struct replicas *self = engine->replicas;
    const int32_t units = unit_count(engine);
    MICS_TRY(MICS_NEW(engine->spec.memory, (int64_t)mics_mesh_world(mesh_of(engine)) * units,
                      &self->all));
    memcpy(self->all + (int64_t)engine->rank * units, self->units,
           (size_t)units * sizeof *self->units);
    return gather_ranks(engine, self->all, (size_t)units * sizeof *self->units,
                        "hashes of each unit");
}

mics_status mics_engine_hosts(mics_engine *engine, char (*hosts_out)[MICS_HOST_BYTES])
{
    char mine[MICS_HOST_BYTES] = "";
    if (gethostname(mine, sizeof mine - 1) != 0 || mine[0] == '\0')
        memcpy(mine, "?", sizeof "?");
    memset(hosts_out, 0, (size_t)mics_mesh_world(mesh_of(engine)) * MICS_HOST_BYTES);
    memcpy(hosts_out[engine->rank], mine, sizeof mine);
    return gather_ranks(engine, hosts_out, MICS_HOST_BYTES, "names of machines");
}

// ---- finding them ----

static uint64_t unit_hash_at(const mics_engine *engine, int32_t rank, int32_t unit,
                             mics_replica_state state)
{
    return engine->replicas->all[(int64_t)rank * unit_count(engine) + unit].of[state];
}

// Parts of a state of a unit, of all islands.
static int32_t part_count(const mics_engine *engine, int32_t unit, mics_replica_state state)
{
    return degree_of(engine, unit, state) * mesh_of(engine)->islands;
}

static vote part_vote(const mics_engine *engine, int32_t unit, mics_replica_state state,
                      int32_t part)
{
    const int32_t degree = degree_of(engine, unit, state), ranks = mesh_of(engine)->ranks;
    return take_vote(engine, unit_hash_at, unit, state, part / degree * ranks + part % degree,
                     degree, ranks / degree);
}

static mics_divergence find_units(const mics_engine *engine)
{
    // A wrong moment makes masters wrong, of a matrix's other owners too, and they parameters.
    static const mics_replica_state order[MICS_REPLICA_STATES] = {
        MICS_REPLICA_MOMENTS, MICS_REPLICA_MASTERS, MICS_REPLICA_PARAMS};
    mics_divergence found = {.other = -1};
    for (int32_t unit = 0; unit < unit_count(engine); unit++) {
        for (int s = 0; s < MICS_REPLICA_STATES; s++) {
            const mics_replica_state state = order[s];
            const int32_t parts =
                is_compared(engine, unit, state) ? part_count(engine, unit, state) : 0;
            for (int32_t part = 0; part < parts; part++) {
                const vote of = part_vote(engine, unit, state, part);
                note_vote(engine, unit_hash_at, unit, state, &of, &found);
            }
        }
    }
    return found;
}

// ---- comparing ----

static bool ranks_agree(const mics_engine *engine)
{
    const rank_hashes *ranks = engine->replicas->ranks;
    bool same = true;
    for (int kind = 0; kind < KINDS; kind++) {
        const int32_t degree = degree_of_kind(engine, kind);
        for (int32_t rank = 0; rank < mics_mesh_world(mesh_of(engine)); rank++)
            same = same && (rank % mesh_of(engine)->ranks < degree ||
                            ranks[rank].of[kind] == ranks[rank - degree].of[kind]);
    }
    return same;
}

// A flip that a rank found in its own memory explains a difference between replicas.
static bool find_flip(const mics_engine *engine, mics_divergence *found_out)
{
    for (int32_t rank = 0; rank < mics_mesh_world(mesh_of(engine)); rank++) {
        const uint64_t flipped = engine->replicas->ranks[rank].flipped;
        if (flipped == 0)
            continue;
        const int32_t unit = (int32_t)((flipped - 1) / 2);
        mics_replica_state state =
            (flipped - 1) % 2 == 0 ? MICS_REPLICA_MASTERS : MICS_REPLICA_MOMENTS;
        if (!mics_schedule_trains(engine->schedule, unit))
            state = MICS_REPLICA_PARAMS;
        *found_out = (mics_divergence){.found = true,
                                       .state = state,
                                       .unit = unit,
                                       .rank = rank,
                                       .other = -1,
                                       .replicas = 1,
                                       .count = 1};
        return true;
    }
    return false;
}

// ---- anchors ----

static uint64_t anchor_hash_at(const mics_engine *engine, int32_t rank, int32_t unit,
                               mics_replica_state state)
{
    (void)state;
    return engine->replicas->anchors[(int64_t)rank * unit_count(engine) + unit];
}

static mics_status hash_anchors(mics_engine *engine)
{
    uint64_t *mine = engine->replicas->anchors + (int64_t)engine->rank * unit_count(engine);
    for (int32_t unit = 0; unit < unit_count(engine); unit++) {
        const int64_t at = engine->schedule->meetings[unit].anchor;
        const mics_range range = optimizer_shard_of(engine, unit).range;
        mine[unit] = 0;
        if (at >= 0)
            MICS_TRY(hash_bytes(engine, engine->outer + at,
                                (size_t)(range.end - range.begin) * sizeof(float), &mine[unit]));
    }
    return MICS_OK;
}

// Ranks r, r + O, r + 2 O, ... of the world hold the same. Nothing is repaired: masters followed.
static mics_status compare_anchors(mics_engine *engine, mics_divergence *found_out)
{
    MICS_TRY(hash_anchors(engine));
    MICS_TRY(gather_ranks(engine, engine->replicas->anchors,
                          (size_t)unit_count(engine) * sizeof(uint64_t), "hashes of anchors"));
    for (int32_t unit = 0; unit < unit_count(engine); unit++) {
        const int32_t degree =
            engine->schedule->sharding[unit].optimizer * engine->schedule->experts[unit];
        for (int32_t part = 0; part < degree; part++) {
            const vote of = take_vote(engine, anchor_hash_at, unit, MICS_REPLICA_ANCHORS, part,
                                      degree, mics_mesh_world(mesh_of(engine)) / degree);
            note_vote(engine, anchor_hash_at, unit, MICS_REPLICA_ANCHORS, &of, found_out);
        }
    }
    found_out->majority = false;
    return MICS_OK;
}

mics_status mics_engine_compare(mics_engine *engine, mics_divergence *divergence_out)
{
    struct replicas *self = engine->replicas;
    const bool params = compares(engine, MICS_REPLICA_PARAMS);
    if (self == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "the schedule is for evaluation only; there is no state to compare");
    mics_free(engine->spec.memory, self->all);
    self->all = NULL;
    *divergence_out = (mics_divergence){.other = -1};
    if (!params && !compares(engine, MICS_REPLICA_MASTERS) && engine->scrub == NULL &&
        engine->islands == NULL)
        return MICS_OK;
    const bool due = engine->pending.left > 0 || (params && engine->stale);
    if (engine->islands != NULL ? engine->stale : due) // islands may have left a step out
        MICS_TRY(mics_engine_complete(engine));
    MICS_TRY(hash_all(engine));
    MICS_TRY(scrub_compare(engine));
    self->ranks[engine->rank].flipped = scrub_found(engine);
    MICS_TRY(gather_ranks(engine, self->ranks, sizeof *self->ranks, "hashes of replicas"));
    if (find_flip(engine, divergence_out))
        return MICS_OK;
    if (ranks_agree(engine))
        return engine->islands != NULL ? compare_anchors(engine, divergence_out) : MICS_OK;
    MICS_TRY(gather_units(engine));
    *divergence_out = find_units(engine);
    return MICS_OK;
}

// ---- repairing ----

// One rank gives a part of a unit to another; the others have no part in it.
static mics_status give(const mics_engine *engine, int32_t from, int32_t to, float *data,
                        size_t bytes)
{
    const bool gives = engine->rank == from;
    if (!gives && engine->rank != to)
        return MICS_OK;
    const mics_exchange exchange = {.to = gives ? to : MICS_RANK_NONE,
                                    .from = gives ? MICS_RANK_NONE : from,
                                    .send = gives ? data : NULL,
                                    .recv = gives ? NULL : data,
                                    .bytes = bytes,
                                    .what = "repair of an optimizer shard"};
    return mics_comm_exchange(engine->spec.comm, &exchange);
}

static mics_status give_state(const mics_engine *engine, int32_t unit, mics_replica_state state,
                              int32_t from, int32_t to)
{
    const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, unit);
    const size_t bytes = (size_t)(held.range.end - held.range.begin) * sizeof(float);
    if (state == MICS_REPLICA_PARAMS)
        return give(engine, from, to, held.shard_params,
                    (size_t)(held.shard.end - held.shard.begin) * sizeof(float));
    if (state == MICS_REPLICA_MASTERS)
        return give(engine, from, to, held.params, bytes);
    for (int s = 0; s < MICS_OPTIMIZER_STATES && held.states[s] != NULL; s++)
        MICS_TRY(give(engine, from, to, held.states[s], bytes));
    return MICS_OK;
}

static mics_status repair_part(const mics_engine *engine, int32_t unit, mics_replica_state state,
                               const vote *of)
{
    int32_t from = -1;
    for (int32_t i = 0; i < of->count && from < 0; i++) {
        const int32_t rank = of->first + i * of->stride;
        if (unit_hash_at(engine, rank, unit, state) == of->value)
            from = rank;
    }
    for (int32_t i = 0; i < of->count; i++) {
        const int32_t rank = of->first + i * of->stride;
        if (unit_hash_at(engine, rank, unit, state) != of->value)
            MICS_TRY(give_state(engine, unit, state, from, rank));
    }
    return MICS_OK;
}

// What nothing else is made of: masters and moments, and frozen parameters.
static bool is_repaired(const mics_engine *engine, int32_t unit, mics_replica_state state)
{
    return is_compared(engine, unit, state) &&
           (state != MICS_REPLICA_PARAMS || !mics_schedule_trains(engine->schedule, unit));
}

static mics_status repair_all(const mics_engine *engine)
{
    for (int32_t unit = 0; unit < unit_count(engine); unit++) {
        for (int s = 0; s < MICS_REPLICA_STATES; s++) {
            const mics_replica_state state = (mics_replica_state)s;
            const int32_t parts =
                is_repaired(engine, unit, state) ? part_count(engine, unit, state) : 0;
            for (int32_t part = 0; part < parts; part++) {
                const vote of = part_vote(engine, unit, state, part);
                if (of.differ)
                    MICS_TRY(repair_part(engine, unit, state, &of));
            }
        }
    }
    return MICS_OK;
}

static mics_status repair_job(mics_engine *engine, mics_stream stream)
{
    (void)stream;
    const mics_status status = repair_all(engine);
    if (status != MICS_OK)
        mics_comm_abort(engine->spec.comm, NULL);
    return status;
}

mics_status mics_engine_repair(mics_engine *engine)
{
    if (engine->replicas == NULL || engine->replicas->all == NULL || !find_units(engine).majority)
        return mics_fail(MICS_ERR_INVALID, "there is nothing to repair from: no difference was "
                                           "found in which most replicas agree");
    MICS_TRY(mics_engine_download(engine));
    MICS_TRY(run_job(engine, repair_job));
    MICS_TRY(mics_engine_upload(engine));
    mics_engine_release(engine);
    return mics_engine_complete(engine);
}
