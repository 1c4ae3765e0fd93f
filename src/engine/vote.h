// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The majority's value of a part among its replicas; private to the engine.
#pragma once

#include "mics/core/engine.h"

// The replicas of one part, and their hashes.
typedef struct vote {
    int32_t first, stride, count; // ranks
    bool differ, majority;
    uint64_t value; // of most; without a majority the first rank's
} vote;

// Hash of a part as a rank has it: of a unit's state, or bits of a gradient's sum.
typedef uint64_t (*hash_at)(const mics_engine *engine, int32_t rank, int32_t unit,
                            mics_replica_state state);

/* Of `count` ranks from `first` on, `stride` apart. */
vote take_vote(const mics_engine *engine, hash_at at, int32_t unit, mics_replica_state state,
               int32_t first, int32_t stride, int32_t count);

/* Adds a vote to a divergence: its first difference is described, all are counted. */
void note_vote(const mics_engine *engine, hash_at at, int32_t unit, mics_replica_state state,
               const vote *of, mics_divergence *divergence);
