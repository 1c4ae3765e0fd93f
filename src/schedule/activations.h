// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Places every activation and every activation gradient of a model in one arena. Private to this
// module.
#pragma once

#include "mics/core/schedule.h"

/* Fills schedule->units and schedule->activation_elems from schedule->spec. On failure the caller
 * closes the schedule. */
mics_status place_activations(mics_schedule *schedule);

/* Places the units' blocks of kept_elems, in the arena and in host memory, and in them inputs: each
 * unit's output is the next one's input. Returns where those of a micro-batch in flight end, or
 * MICS_ERR_INVALID (more units in host memory than can be; logged). */
mics_status place_blocks(mics_schedule *schedule, int64_t *end_out);

// How long a tensor that a unit's forward makes lives.
typedef enum lifetime {
    LIFETIME_STEP,  // within forward, or what backward runs of it
    LIFETIME_SAVED, // from forward to backward
    LIFETIME_AGAIN  // made in backward for backward (in forward it lives as long as that)
} lifetime;

// Whether an op has a backward: something trained leads to what it makes.
static inline bool has_backward(const mics_unit *unit, const mics_op *op)
{
    return op->out < 0 || !unit->tensors[op->out].fixed;
}

/* Fills plan->again and plan->forward_in_backward of a unit that computes.
 *
 * Needs:   plan->loss; plan->again, all false; `lives`: one for each of the unit's tensors. */
void choose_again(const mics_schedule_spec *spec, int32_t unit, mics_unit_plan *plan,
                  lifetime *lives);

/* Checks a finished schedule against the invariants of recompute.c.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged; MICS_ERR_MEMORY. */
mics_status check_again(const mics_schedule *schedule);

/* Elements of the arena that a tensor takes which an op makes as its output, or as its statistics. */
int64_t made_elems(const mics_schedule_spec *spec, const mics_unit *unit, int32_t tensor,
                   bool stats);

/* By tensor of a unit, of those that its ops make; the output's place is the next unit's. */
void find_lifetimes(const mics_schedule_spec *spec, int32_t unit, const bool *again,
                    lifetime *lives_out);
