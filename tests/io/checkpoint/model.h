// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A small model in shards, as any number of ranks would hold it, whose elements tell where they
// belong: what is read back can be checked without a copy.
#pragma once

#include "mics/core/checkpoint.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

typedef struct model_unit {
    const char *name;
    int64_t elems;
} model_unit;

enum { MODEL_SHARDS = 64, MODEL_STATES = 3 };

static const char *const model_states[MODEL_STATES] = {"param", "exp_avg", "exp_avg_sq"};

// What one rank holds; its data is on the heap.
typedef struct model_part {
    mics_optimizer_shard shards[MODEL_SHARDS];
    int32_t count;
} model_part;

// Element `at` of a state in save number `salt`; exact in fp32.
static inline float model_value(int unit, int state, int64_t at, int64_t salt)
{
    return (float)((at * 7 + unit * 1000003 + state * 31337 + salt * 65537) & 0xffffff) / 32;
}

static inline void model_add(model_part *part, const model_unit *units, int unit, int64_t begin,
                             int64_t end, int64_t salt)
{
    mics_optimizer_shard *shard = &part->shards[part->count++];
    *shard = (mics_optimizer_shard){.unit = units[unit].name,
                                    .unit_elems = units[unit].elems,
                                    .begin = begin,
                                    .end = end,
                                    .state_count = MODEL_STATES};
    for (int state = 0; state < MODEL_STATES; state++) {
        float *data = malloc((size_t)(end - begin) * 4 + 4);
        assert_non_null(data);
        for (int64_t i = begin; i < end; i++)
            data[i - begin] = model_value(unit, state, i, salt);
        shard->states[state] = (mics_shard_state){.name = model_states[state], .data = data};
    }
}

// Where rank `rank` of `ranks` begins: unequal shares, and none for the rank after the middle.
static inline int64_t model_begin(int64_t elems, int32_t rank, int32_t ranks)
{
    if (rank >= ranks)
        return elems;
    int64_t even = elems * rank / ranks;
    if (ranks > 2 && rank == ranks / 2 + 1)
        return model_begin(elems, rank + 1, ranks);
    return rank == 0 ? 0 : even + (even < elems ? 1 : 0);
}

// Makes a rank's share of all units; large shares come as two shards.
static inline void model_share(model_part *part, const model_unit *units, int unit_count,
                               int32_t rank, int32_t ranks, int64_t salt)
{
    *part = (model_part){0};
    for (int unit = 0; unit < unit_count; unit++) {
        int64_t begin = model_begin(units[unit].elems, rank, ranks);
        int64_t end = model_begin(units[unit].elems, rank + 1, ranks);
        int64_t middle = end - begin > 100 ? begin + 37 : end;
        model_add(part, units, unit, begin, middle, salt);
        if (middle < end)
            model_add(part, units, unit, middle, end, salt);
    }
}

static inline void model_free(model_part *part)
{
    for (int32_t i = 0; i < part->count; i++) {
        for (int state = 0; state < MODEL_STATES; state++)
            free((void *)part->shards[i].states[state].data);
    }
    part->count = 0;
}

// Says of a save how its run was resolved, which every save must.
static inline mics_checkpoint_meta model_meta(mics_checkpoint_meta meta)
{
    meta.precision = "fp32";
    meta.optimizer = "AdamW";
    meta.sharding = (mics_checkpoint_sharding){2, 4, 8};
    meta.layered_micro_steps = 3;
    return meta;
}

// Reads [begin, end) of a state and compares it.
static inline void model_check_range(const mics_checkpoint *checkpoint, const model_unit *units,
                                     int unit, int state, int64_t begin, int64_t end, int64_t salt)
{
    float *data = malloc((size_t)(end - begin) * 4 + 4);
    assert_non_null(data);
    data[end - begin] = -1.0f; // guard
    ASSERT_OK(mics_checkpoint_read(checkpoint, units[unit].name, units[unit].elems,
                                   model_states[state], begin, end, data));
    for (int64_t i = begin; i < end; i++) {
        if (data[i - begin] != model_value(unit, state, i, salt))
            fail_msg("unit %s state %d element %lld is %g, not %g", units[unit].name, state,
                     (long long)i, (double)data[i - begin],
                     (double)model_value(unit, state, i, salt));
    }
    assert_true(data[end - begin] == -1.0f);
    free(data);
}

static inline void model_check(const mics_checkpoint *checkpoint, const model_unit *units,
                               int unit_count, int64_t salt)
{
    for (int unit = 0; unit < unit_count; unit++) {
        for (int state = 0; state < MODEL_STATES; state++)
            model_check_range(checkpoint, units, unit, state, 0, units[unit].elems, salt);
    }
}
