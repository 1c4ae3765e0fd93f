// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Slots, taken and given in list order.
#include "schedule/slots.h"
#include "base/free.h"

mics_status slots_open(mics_memory *memory, int32_t holders, slot_pool *pool)
{
    *pool = (slot_pool){.memory = memory};
    MICS_TRY(MICS_NEW(memory, holders, &pool->slot_of));
    MICS_TRY(MICS_NEW(memory, holders, &pool->retiring));
    MICS_TRY(MICS_NEW(memory, holders, &pool->held));
    for (int32_t u = 0; u < holders; u++)
        pool->slot_of[u] = -1;
    return MICS_OK;
}

void slots_close(slot_pool *pool)
{
    if (pool->memory == NULL)
        return;
    MICS_FREE_ALL(pool->memory, pool->slots, pool->slot_of, pool->retiring, pool->held);
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

// Slots of another size are left to those whom nothing else fits.
static bool is_better(const slot *s, const slot *than)
{
    return s->elems != than->elems ? s->elems < than->elems : newest_use(s) < newest_use(than);
}

mics_status slots_take(slot_pool *pool, int32_t holder, int64_t elems)
{
    if (pool->slot_of[holder] >= 0) { // retiring: it goes on with the same slot
        pool->retiring[holder] = false;
        return MICS_OK;
    }
    int32_t best = -1;
    for (int32_t i = 0; i < pool->count; i++) {
        const slot *s = &pool->slots[i];
        bool fits = !s->busy && s->elems >= elems && s->elems / 2 <= elems;
        if (fits && (best < 0 || is_better(s, &pool->slots[best])))
            best = i;
    }
    if (best < 0) {
        void *slots = pool->slots;
        MICS_TRY(mics_realloc(pool->memory, MICS_MEM_HOST, (size_t)(pool->count + 1) * sizeof(slot),
                              &slots));
        pool->slots = slots;
        best = pool->count++;
        pool->slots[best] = (slot){.elems = elems};
        for (int stream = 0; stream < MICS_STREAMS; stream++)
            pool->slots[best].last[stream] = -1;
    }
    pool->slots[best].busy = true;
    pool->slot_of[holder] = best;
    pool->held[pool->held_count++] = holder;
    return MICS_OK;
}

void slots_give(slot_pool *pool, int32_t holder)
{
    pool->slots[pool->slot_of[holder]].busy = false;
    pool->slot_of[holder] = -1;
    pool->retiring[holder] = false;
    int32_t at = 0;
    while (pool->held[at] != holder)
        at++;
    pool->held[at] = pool->held[--pool->held_count];
}

void slots_retire(slot_pool *pool, int32_t holder)
{
    pool->retiring[holder] = true;
}

// Backwards, as giving moves the last entry.
void slots_settle(slot_pool *pool)
{
    for (int32_t at = pool->held_count - 1; at >= 0; at--) {
        if (pool->retiring[pool->held[at]])
            slots_give(pool, pool->held[at]);
    }
}
