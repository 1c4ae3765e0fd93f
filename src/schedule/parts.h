// SPDX-FileCopyrightText: The mics authors
// Parts of passes.
#pragma once

#include "schedule/builder.h"

/* Adds a unit to a set, once. */
static inline void add_unit(int32_t unit, unit_set *set)
{
    for (int32_t i = 0; i < set->count; i++) {
        if (set->units[i] == unit)
            return;
    }
    if (set->count < MICS_STEP_USES)
        set->units[set->count++] = unit;
}

/* Cuts a unit's pass where all-to-alls come between; what it reads and writes goes to its facts. */
void find_parts(builder *b, int32_t u, bool backward);

/* FLOPs of all parts. */
double sum_flops(const unit_facts *facts, bool backward);
