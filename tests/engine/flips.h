// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One bit of what one rank holds between steps is flipped, and has to be found and repaired.
#pragma once

#include "fixture.h"

typedef enum flips_place { FLIPS_MASTERS, FLIPS_MOMENTS, FLIPS_PARAMS, FLIPS_PADDING } flips_place;

typedef struct flips_run {
    fixture_run run;
    flips_place place;
    int32_t rank, unit;
    int32_t replicas; // that hold the same; 1: nobody can find it
    mics_divergence found[FIXTURE_RANKS];
} flips_run;

// So high that what the number is held in has it too: bf16, or 8 bits of the dynamic code.
static inline void flips_bit(const flips_run *f, float *value)
{
    const bool coarse = f->place == FLIPS_MOMENTS && f->run.want.state_dtype == MICS_STATE_8BIT;
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    bits ^= 1u << (coarse ? 23 : 16);
    memcpy(value, &bits, sizeof bits);
}

// In the host's copy of a device's shards, too.
static inline mics_status flips_here(const flips_run *f, mics_engine *engine)
{
    MICS_TRY(mics_engine_download_params(engine));
    const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, f->unit);
    const int64_t owned = held.range.end - held.range.begin, own = held.range.begin;
    float *others = held.shard_params;
    if (others == held.params) // the block behind this rank's own
        others += owned;
    RANKS_EXPECT(owned > 0 || f->place == FLIPS_PARAMS);
    if (f->place == FLIPS_MASTERS)
        flips_bit(f, held.params + owned - 1);
    else if (f->place == FLIPS_MOMENTS)
        flips_bit(f, held.states[1] + own % owned);
    else if (f->place == FLIPS_PARAMS)
        flips_bit(f, others);
    else
        flips_bit(f, held.states[0] + owned); // behind the unit's end
    return mics_engine_upload(engine);
}

static inline mics_status flips_check(const flips_run *f, const mics_divergence *found)
{
    static const mics_replica_state states[] = {MICS_REPLICA_MASTERS, MICS_REPLICA_MOMENTS,
                                                MICS_REPLICA_PARAMS};
    RANKS_EXPECT(found->found == (f->replicas > 1 && f->place != FLIPS_PADDING));
    if (!found->found)
        return MICS_OK;
    RANKS_EXPECT(found->unit == f->unit && found->state == states[f->place]);
    RANKS_EXPECT(found->replicas == f->replicas && found->count >= 1);
    RANKS_EXPECT(found->majority == (f->replicas > 2));
    if (f->replicas > 2)
        RANKS_EXPECT(found->rank == f->rank && found->other == -1);
    else
        RANKS_EXPECT(found->rank == f->rank || found->other == f->rank);
    return MICS_OK;
}

static inline mics_status flips_find(flips_run *f, mics_engine *engine, int32_t rank)
{
    mics_divergence found;
    MICS_TRY(mics_engine_complete(engine)); // which would undo a flip of others' parameters
    if (rank == f->rank)
        MICS_TRY(flips_here(f, engine));
    MICS_TRY(mics_engine_agree(engine, MICS_OK));
    MICS_TRY(mics_engine_compare(engine, &found));
    f->found[rank] = found;
    MICS_TRY(mics_engine_agree(engine, flips_check(f, &found)));
    if (!found.majority) {
        const bool muted = mics_log_mute(true);
        const mics_status status = mics_engine_repair(engine);
        mics_log_mute(muted);
        RANKS_EXPECT(status == MICS_ERR_INVALID);
        return MICS_OK;
    }
    MICS_TRY(mics_engine_repair(engine));
    MICS_TRY(mics_engine_compare(engine, &found));
    RANKS_EXPECT(!found.found);
    return MICS_OK;
}

static inline mics_status flips_rank(ranks_self *self)
{
    flips_run *f = (flips_run *)self->arg;
    const int32_t rank = self->comm->rank;
    fixture_source source = {.run = &f->run, .rank = rank, .step = 1};
    const mics_batch_source read = {.read = fixture_read, .ctx = &source};
    mics_engine *engine = NULL;
    mics_step_result result;
    mics_status status = MICS_OK;
    if (f->run.want.open_device != NULL)
        MICS_TRY(f->run.want.open_device(self, f->run.schedule, &f->run.devices[rank]));
    MICS_TRY_OUT(fixture_count(self, &f->run));
    MICS_TRY_OUT(fixture_open_engine(self, &f->run, &engine));
    MICS_TRY_OUT(mics_engine_init_random(engine, 1));
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK));
    MICS_TRY_OUT(mics_engine_step(engine, 1, 3e-3f, &read, &result));
    MICS_TRY_OUT(flips_find(f, engine, rank));
    source.step = 2;
    MICS_TRY_OUT(mics_engine_step(engine, 2, 3e-3f, &read, &result));
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK));
out:
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    mics_comm_close(self->comm); // which may use the device
    self->comm = NULL;
    mics_device_close(f->run.devices[rank]);
    return status;
}

/* One step, then a bit of what `rank` holds of `unit` is flipped, which has so many replicas: it
 * must be found, and repaired where most agree. Fails the test if it is not. */
static inline void flips_go(const fixture_case *want, flips_place where, int32_t rank, int32_t unit,
                            int32_t replicas)
{
    mics_memory *memory = NULL;
    flips_run f = {
        .run.want = *want, .place = where, .rank = rank, .unit = unit, .replicas = replicas};
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    fixture_open(memory, &f.run);
    ranks_run_ok(want->ranks, flips_rank, &f);
    for (int32_t other = 1; other < want->ranks; other++) // all ranks draw the same conclusion
        assert_memory_equal(&f.found[other].count, &f.found[0].count, sizeof(int32_t));
    fixture_close(&f.run);
    assert_int_equal(mics_memory_close(memory), 0);
}
