// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A vote among replicas; that on the gradients is taken in a step's agreement.
#include "engine/vote.h"
#include "engine/internal.h"
#include <string.h>

// Boyer and Moore's majority, 1981: what is left over when different votes have been paired off.
vote take_vote(const mics_engine *engine, hash_at at, int32_t unit, mics_replica_state state,
               int32_t first, int32_t stride, int32_t count)
{
    vote result = {.first = first, .stride = stride, .count = count};
    int32_t left = 0, same = 0;
    for (int32_t i = 0; i < result.count; i++) {
        const uint64_t hash = at(engine, first + i * stride, unit, state);
        if (left == 0)
            result.value = hash;
        left += hash == result.value ? 1 : -1;
    }
    for (int32_t i = 0; i < result.count; i++)
        same += at(engine, first + i * stride, unit, state) == result.value;
    result.differ = same < result.count;
    result.majority = 2 * same > result.count;
    if (!result.majority)
        result.value = at(engine, first, unit, state);
    return result;
}

// The first rank that holds something else than `value`.
static int32_t odd_rank(const mics_engine *engine, hash_at at, int32_t unit,
                        mics_replica_state state, const vote *of)
{
    for (int32_t i = 0; i < of->count; i++) {
        const int32_t rank = of->first + i * of->stride;
        if (at(engine, rank, unit, state) != of->value)
            return rank;
    }
    return -1;
}

void note_vote(const mics_engine *engine, hash_at at, int32_t unit, mics_replica_state state,
               const vote *of, mics_divergence *divergence)
{
    if (!of->differ)
        return;
    divergence->majority = (divergence->majority || divergence->count == 0) && of->majority;
    if (divergence->count++ > 0)
        return;
    const int32_t odd = odd_rank(engine, at, unit, state, of);
    divergence->found = true;
    divergence->state = state;
    divergence->unit = unit;
    divergence->rank = of->majority ? odd : of->first;
    divergence->other = of->majority ? -1 : odd;
    divergence->replicas = of->count;
}

// Not a number is not a number, whatever its bits.
static uint64_t grad_sum_at(const mics_engine *engine, int32_t rank, int32_t unit,
                            mics_replica_state state)
{
    const double sum = engine->agreements[rank - engine->first].updated_squares;
    uint64_t bits = UINT64_MAX;
    (void)unit;
    (void)state;
    if (sum == sum)
        memcpy(&bits, &sum, sizeof bits);
    return bits;
}

mics_divergence mics_engine_compare_grads(const mics_engine *engine)
{
    mics_divergence found = {.other = -1};
    const mics_mesh *mesh = &engine->schedule->spec.mesh;
    const int32_t degree = mesh->sharding.optimizer;
    for (int32_t part = 0; part < degree && degree < mesh->ranks; part++) {
        const vote of = take_vote(engine, grad_sum_at, -1, MICS_REPLICA_GRADS, engine->first + part,
                                  degree, mesh->ranks / degree);
        note_vote(engine, grad_sum_at, -1, MICS_REPLICA_GRADS, &of, &found);
    }
    return found;
}
