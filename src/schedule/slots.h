// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Slots: buffers that holders (units, or their gradients of one micro-batch in flight) take in
// turn. Who takes one waits for the last steps that used it. Private to this module.
#pragma once

#include "mics/core/schedule.h"

typedef struct slot {
    int64_t elems;
    bool busy;
    int32_t last[MICS_STREAMS]; // newest step on each stream that touches it; -1: none
} slot;

typedef struct slot_pool {
    mics_memory *memory;
    slot *slots;
    int32_t count;
    int32_t *slot_of; // by holder; -1: holds none
    bool *retiring;   // by holder: gives its slot up at the next slots_settle
    int32_t *held;    // holders that have a slot, in no order
    int32_t held_count;
} slot_pool;

/* On failure too the pool is closed with slots_close, which takes a zeroed one as well. */
mics_status slots_open(mics_memory *memory, int32_t holders, slot_pool *pool);
void slots_close(slot_pool *pool);

/* Gives a holder a slot, slot_of[holder]: of the free ones of fitting size (to twice the need) the
 * smallest, of these the one idle longest, else a new one. */
mics_status slots_take(slot_pool *pool, int32_t holder, int64_t elems);

/* Frees the holder's slot at once. */
void slots_give(slot_pool *pool, int32_t holder);

/* Frees the holder's slot at the next slots_settle, so that who takes a slot before that need not
 * wait for this one. */
void slots_retire(slot_pool *pool, int32_t holder);
void slots_settle(slot_pool *pool);
