// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The ballot: the numbers that a rank sends to all others with a step's agreement.
#include "engine/ballot.h"
#include <stdatomic.h>

void mics_engine_tell(mics_engine *engine, uint32_t bits)
{
    atomic_fetch_or(&engine->telling, bits);
}

uint32_t cast_ballot(mics_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->ballot_cast = true;
    const uint32_t hold = engine->holding ? TOLD_HOLD : 0;
    pthread_mutex_unlock(&engine->mutex);
    return hold | atomic_exchange(&engine->telling, 0);
}

void mics_engine_next_ballot(mics_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->ballot_cast = false;
    pthread_mutex_unlock(&engine->mutex);
}

// Whether nothing is due that changes the state. Called with the mutex.
static bool stands(const mics_engine *engine)
{
    return engine->pending.left == 0 && (engine->islands == NULL || engine->islands->left == 0);
}

bool mics_engine_hold(mics_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    const bool holds = engine->holding || !engine->ballot_cast;
    engine->holding = holds;
    const bool settled = stands(engine);
    pthread_mutex_unlock(&engine->mutex);
    return holds && settled;
}

bool mics_engine_freeze(mics_engine *engine, int64_t step)
{
    pthread_mutex_lock(&engine->mutex);
    engine->frozen = true;
    const bool settled = stands(engine) && engine->updated <= step;
    pthread_mutex_unlock(&engine->mutex);
    return settled;
}
