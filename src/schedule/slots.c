// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Slots, taken and given in list order.
#include "schedule/slots.h"

mics_status slots_open(mics_memory *memory, int32_t units, slot_pool *pool_out)
{
    slot_pool pool = {.memory = memory, .units = units};
    void *slot_of = NULL, *retiring = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, (size_t)units * sizeof(int32_t), &slot_of));
    mics_status status = mics_alloc(memory, MICS_MEM_HOST, (size_t)units * sizeof(bool), &retiring);
    if (status != MICS_OK) {
        mics_free(memory, slot_of);
        return status;
    }
    pool.slot_of = slot_of;
    pool.retiring = retiring;
    for (int32_t u = 0; u < units; u++)
        pool.slot_of[u] = -1;
    *pool_out = pool;
    return MICS_OK;
}

void slots_close(slot_pool *pool)
{
    mics_free(pool->memory, pool->slots);
    mics_free(pool->memory, pool->slot_of);
    mics_free(pool->memory, pool->retiring);
}

static int32_t newest_use(const slot *s)
{
    int32_t newest = -1;
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (s->last[stream] > newest)
            newest = s->last[stream];
    }
    return newest;
}

mics_status slots_take(slot_pool *pool, int32_t unit, int64_t elems)
{
    if (pool->slot_of[unit] >= 0) { // retiring: it goes on with the same slot
        pool->retiring[unit] = false;
        return MICS_OK;
    }
    int32_t best = -1;
    for (int32_t i = 0; i < pool->count; i++) {
        const slot *s = &pool->slots[i];
        bool fits = !s->busy && s->elems >= elems && s->elems / 2 <= elems;
        if (fits && (best < 0 || newest_use(s) < newest_use(&pool->slots[best])))
            best = i;
    }
    if (best < 0) {
        void *slots = pool->slots;
        MICS_TRY(mics_realloc(pool->memory, MICS_MEM_HOST, (size_t)(pool->count + 1) * sizeof(slot),
                              &slots));
        pool->slots = slots;
        best = pool->count++;
        pool->slots[best] = (slot){.elems = elems, .last = {-1, -1}};
    }
    pool->slots[best].busy = true;
    pool->slot_of[unit] = best;
    return MICS_OK;
}

void slots_give(slot_pool *pool, int32_t unit)
{
    pool->slots[pool->slot_of[unit]].busy = false;
    pool->slot_of[unit] = -1;
    pool->retiring[unit] = false;
}

void slots_retire(slot_pool *pool, int32_t unit)
{
    pool->retiring[unit] = true;
}

void slots_settle(slot_pool *pool)
{
    for (int32_t u = 0; u < pool->units; u++) {
        if (pool->retiring[u])
            slots_give(pool, u);
    }
}
