// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What measure.c asks of measure_plan.c beside the public part. All pure.
#ifndef MICS_ENGINE_MEASURE_PLAN_H
#define MICS_ENGINE_MEASURE_PLAN_H

#include "mics/measure.h"

enum { MEASURE_PLACES = MICS_CHOICES * MICS_MEASURE_OPS };

// One timing of a table.
typedef struct measure_place {
    int32_t row;
    mics_measure_op op;
} measure_place;

/* The timings that are wanted, in the order in which they are taken: those first whose units have
 * the most bytes together; gathers before reductions unless `ops_alike`.
 *
 * Returns: how many.
 */
int32_t measure_order(const mics_timings *timings, bool ops_alike,
                      measure_place places_out[MEASURE_PLACES]);

/* What was timed at the size, by ratio, that is nearest to a unit's; NULL: nothing of this
 * operation. */
const mics_timing *measure_nearest(const mics_timings *timings, mics_measure_op op,
                                   size_t unit_bytes);

/* Gives every timing that is wanted the times of the size nearest to its units' that was timed. */
void measure_follow(mics_timings *timings);

#endif
