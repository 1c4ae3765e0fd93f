// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Masters and moments of a unit change in its update alone. Behind it they are hashed, and before
// the next one again: other hashes mean that memory has changed by itself. All ranks learn it in the
// step's agreement, or where replicas are compared before a save.
//
// Shards that other ranks hold too are compared with theirs (replicas.c) and not hashed here.
//
// Parameters of frozen units never change: they are hashed once, and again where replicas are
// compared.
//
// On a device hashes are enqueued, and copied to page-locked memory; the host reads them once it has
// waited for the stream anyway. So an older hash must stay while the next is stored: there are two.
#include "engine/scrub.h"
#include "base/clock.h"
#include "engine/events.h"
#include "engine/state.h"
#include <math.h>
#include <string.h>

// Hashes of a unit: of masters, then of each state what is held and its scales.
enum { PARTS = 1 + 2 * MICS_OPTIMIZER_STATES };

typedef struct scrub_hashes {
    uint64_t stored[2][PARTS], now[PARTS];
} scrub_hashes;

typedef struct scrub_unit {
    bool hashed;  // no other rank holds it, or it is frozen
    bool valid;   // stored[newest] is what it has to be
    bool checked; // in this run of the streams
    bool open;    // `now` is to be compared with stored[against]
    int32_t newest, against;
} scrub_unit;

struct scrub {
    scrub_unit *units;
    scrub_hashes *hashes; // by unit; page-locked beside a device
    bool fresh;           // the caller wrote the state
    int64_t interval;     // steps between hashes of a unit
    double pass_us;       // of one hash of all units
    double step_us;       // of newest steps
    uint64_t found;
};

// Of a step's time, for run.scrub_every -1.
static const double SHARE = 0.005;

static int32_t unit_count(const mics_engine *engine)
{
    return engine->schedule->spec.model->unit_count;
}

static bool is_hashed(const mics_engine *engine, int32_t unit)
{
    const mics_schedule *schedule = engine->schedule;
    return !mics_schedule_trains(schedule, unit) ||
           schedule->sharding[unit].optimizer * schedule->experts[unit] ==
               schedule->spec.mesh.ranks;
}

static mics_status open_hashes(mics_engine *engine, struct scrub *self)
{
    const mics_device *device = engine->device;
    const size_t bytes = (size_t)unit_count(engine) * sizeof *self->hashes;
    void *block = NULL;
    if (device->is_host)
        return MICS_NEW(engine->spec.memory, unit_count(engine), &self->hashes);
    MICS_TRY(device->ops->alloc_host(device->ctx, bytes, &block));
    memset(block, 0, bytes);
    self->hashes = block;
    return MICS_OK;
}

mics_status scrub_open(mics_engine *engine)
{
    bool any = false;
    if (engine->spec.scrub_every == 0 || engine->schedule->spec.evaluation_only)
        return MICS_OK;
    for (int32_t unit = 0; unit < unit_count(engine); unit++)
        any = any || is_hashed(engine, unit);
    if (!any)
        return MICS_OK;
    MICS_TRY(MICS_NEW(engine->spec.memory, 1, &engine->scrub));
    struct scrub *self = engine->scrub;
    self->fresh = true;
    self->interval = engine->spec.scrub_every > 0 ? engine->spec.scrub_every : 1;
    MICS_TRY(MICS_NEW(engine->spec.memory, unit_count(engine), &self->units));
    for (int32_t unit = 0; unit < unit_count(engine); unit++)
        self->units[unit].hashed = is_hashed(engine, unit);
    return open_hashes(engine, self);
}

void scrub_close(mics_engine *engine)
{
    struct scrub *self = engine->scrub;
    if (self == NULL)
        return;
    if (engine->device->is_host)
        mics_free(engine->spec.memory, self->hashes);
    else if (self->hashes != NULL)
        engine->device->ops->free_host(engine->device->ctx, self->hashes);
    mics_free(engine->spec.memory, self->units);
    mics_free(engine->spec.memory, self);
    engine->scrub = NULL;
}

// Hashes of what was before the caller wrote the state say nothing any more.
static void forget(mics_engine *engine)
{
    struct scrub *self = engine->scrub;
    for (int32_t unit = 0; unit < unit_count(engine); unit++)
        self->units[unit].valid = self->units[unit].open = false;
    self->found = 0;
    self->fresh = true;
    engine->written = false;
}

void scrub_reset(mics_engine *engine)
{
    if (engine->scrub == NULL)
        return;
    if (engine->written)
        forget(engine);
    for (int32_t unit = 0; unit < unit_count(engine); unit++)
        engine->scrub->units[unit].checked = false;
}

// ---- hashes ----

// The losses of a micro-step, whose place a device's hash takes for a moment, are summed up by then.
static void hash_bytes(const mics_engine *engine, const void *x, size_t bytes, uint64_t *hash_out)
{
    const mics_device *device = engine->device;
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    uint64_t *to = device->is_host ? hash_out : (uint64_t *)(void *)engine->losses;
    engine->ops->hash(&at, to, x, bytes);
    if (to != hash_out)
        device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, hash_out, to, sizeof *hash_out);
}

// As they are held, without padding.
static void hash_unit(const mics_engine *engine, int32_t unit, uint64_t hashes_out[PARTS])
{
    const optimizer_shard held = optimizer_shard_of(engine, unit);
    const int64_t elems = held.range.end - held.range.begin;
    const int64_t blocks = (elems + MICS_STATE_BLOCK - 1) / MICS_STATE_BLOCK;
    const mics_state_dtype dtype = engine->schedule->spec.state_dtype;
    const size_t bytes = (size_t)elems * mics_state_elem_bytes(dtype);
    const mics_range shard = param_shard_of(engine, unit);
    if (!mics_schedule_trains(engine->schedule, unit))
        hash_bytes(engine, shard_at(engine, unit),
                   (size_t)(shard.end - shard.begin) * engine->elem_bytes, &hashes_out[0]);
    if (elems == 0)
        return;
    hash_bytes(engine, held.masters, (size_t)elems * sizeof(float), &hashes_out[0]);
    for (int32_t s = 0; s < mics_optimizer_def_get(engine->spec.optimizer.kind)->states; s++) {
        const mics_state_part part = state_part(engine, unit, s, 0, elems);
        hash_bytes(engine, part.held, bytes + bytes % 2, &hashes_out[1 + 2 * s]); // of 16 bytes
        if (dtype == MICS_STATE_8BIT)
            hash_bytes(engine, part.scales, (size_t)blocks * sizeof(float), &hashes_out[2 + 2 * s]);
    }
}

static void store(mics_engine *engine, int32_t unit)
{
    scrub_unit *of = &engine->scrub->units[unit];
    if (!of->open || of->newest == of->against) // that is yet to be compared
        of->newest = 1 - of->newest;
    of->valid = true;
    hash_unit(engine, unit, engine->scrub->hashes[unit].stored[of->newest]);
}

// Another share of the units in each step.
void scrub_store(mics_engine *engine, int32_t unit)
{
    struct scrub *self = engine->scrub;
    if (self == NULL || !self->units[unit].hashed)
        return;
    self->units[unit].valid = false;
    if ((engine->step + unit) % self->interval == 0)
        store(engine, unit);
}

void scrub_check(mics_engine *engine, int32_t unit)
{
    struct scrub *self = engine->scrub;
    if (self == NULL || !self->units[unit].valid || self->units[unit].checked)
        return;
    self->units[unit].checked = self->units[unit].open = true;
    self->units[unit].against = self->units[unit].newest;
    hash_unit(engine, unit, self->hashes[unit].now);
}

void scrub_check_all(mics_engine *engine)
{
    for (int32_t unit = 0; engine->scrub != NULL && unit < unit_count(engine); unit++) {
        if (mics_schedule_trains(engine->schedule, unit))
            scrub_check(engine, unit);
    }
}

// ---- what they say ----

void scrub_settle(mics_engine *engine)
{
    struct scrub *self = engine->scrub;
    for (int32_t unit = 0; self != NULL && unit < unit_count(engine); unit++) {
        scrub_unit *of = &self->units[unit];
        const uint64_t *now = self->hashes[unit].now;
        const uint64_t *stored = self->hashes[unit].stored[of->against];
        const bool differs = of->open && memcmp(now, stored, PARTS * sizeof *now) != 0;
        of->open = false;
        if (differs && self->found == 0)
            self->found = 1 + 2 * (uint64_t)unit + (now[0] == stored[0] ? 1 : 0);
    }
}

mics_status scrub_compare(mics_engine *engine)
{
    if (engine->scrub == NULL)
        return MICS_OK;
    scrub_reset(engine);
    for (int32_t unit = 0; unit < unit_count(engine); unit++)
        scrub_check(engine, unit);
    MICS_TRY(engine->device->ops->synchronize(engine->device->ctx, MICS_STREAM_COMPUTE));
    scrub_settle(engine);
    return MICS_OK;
}

uint64_t scrub_found(const mics_engine *engine)
{
    return engine->scrub != NULL ? engine->scrub->found : 0;
}

// ---- how often ----

static mics_status store_all(mics_engine *engine, bool frozen)
{
    for (int32_t unit = 0; unit < unit_count(engine); unit++) {
        if (engine->scrub->units[unit].hashed &&
            mics_schedule_trains(engine->schedule, unit) != frozen)
            store(engine, unit);
    }
    return engine->device->ops->synchronize(engine->device->ctx, MICS_STREAM_COMPUTE);
}

// A state whose update is due is hashed behind that.
mics_status scrub_begin(mics_engine *engine)
{
    struct scrub *self = engine->scrub;
    if (self == NULL || !self->fresh || engine->pending.left > 0)
        return MICS_OK;
    MICS_TRY(device_drain(engine));
    MICS_TRY(store_all(engine, true));
    const double begin_us = mics_clock_us();
    MICS_TRY(store_all(engine, false));
    self->pass_us = mics_clock_us() - begin_us;
    self->fresh = false;
    return MICS_OK;
}

// The first steps take longer, and do not count for long.
void scrub_pace(mics_engine *engine, double step_us)
{
    static const double NEWEST = 0.2;
    struct scrub *self = engine->scrub;
    if (self == NULL || engine->spec.scrub_every > 0)
        return;
    const bool longer = self->step_us > 0 && step_us > self->step_us;
    self->step_us = longer ? self->step_us + NEWEST * (step_us - self->step_us) : step_us;
    const double steps = ceil(2 * self->pass_us / (SHARE * self->step_us)); // stored, compared
    self->interval = steps > 1 ? (int64_t)fmin(steps, 1e9) : 1;
}
