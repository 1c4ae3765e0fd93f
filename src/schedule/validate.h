// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// State of the walk over a finished schedule. Private to validate.c, which has the invariants,
// validate_units.c, validate_copies.c and validate_meetings.c.
#pragma once

#include "mics/core/schedule.h"
#include "schedule/meetings.h"

typedef struct stream_clock {
    int32_t newest[MICS_STREAMS]; // step of each stream; -1: none
} stream_clock;

typedef struct slot_state {
    int32_t unit, micro_step; // whose; -1: nobody's. Of gradients: the first one's of their group
    int32_t filled;           // parameters: the step behind which they are there; -1: none
    stream_clock used;
} slot_state;

// How far a collective of a unit has come.
typedef struct chain_state {
    mics_step_kind kind;
    mics_step_stage stage;
    int32_t last; // step; -1: none
} chain_state;

typedef struct unit_state {
    chain_state back, sync, gather, reduce, hop;
    int32_t reduced; // micro-steps
    int32_t writer;  // newest step that wrote its gradient; -1: none
    int32_t updated; // its update; -1: none
    chain_state meets[MEETING_STATES];
} unit_state;

// A unit's block of one micro-batch in flight. Steps: -1: none.
typedef struct block_state {
    bool there; // the arena has it
    bool lives; // from its forward to its backward
    int32_t touched, stored, fetched;
} block_state;

typedef struct validator {
    const mics_schedule *schedule;
    const mics_step_list *list;
    mics_phase phase;
    int64_t number;          // training step: what is not due in it is passed over
    int32_t index;           // of the step that is looked at
    stream_clock *known;     // by step: what precedes it
    stream_clock begun;      // newest step of each stream so far
    stream_clock readers;    // the same, of those that read parameters
    slot_state *params;      // by slot
    slot_state *grads;       // by slot
    unit_state *units;       // by unit
    int32_t *order;          // units that compute
    int32_t computing;       // how many they are
    int32_t backwards;       // of them, how many have a backward: the last ones
    int32_t *passes;         // by micro-step: computed so far
    int32_t *in_flight;      // by micro-batch in flight: its micro-step; -1: none
    block_state *blocks;     // by unit, by micro-batch in flight
    int32_t norm, agreement; // steps; -1: none
    int32_t world_agreement; // likewise
    int32_t round;           // newest step of the round whose momentum is held; -1: none
    int32_t in_round;        // of its units, those that have had that kind of step
    int32_t pass, exchange;  // newest computation, and all-to-all; -1: none
} validator;

// ---- validate_units.c ----

/* Fails with the number of an invariant (validate.c), the step that is looked at, and why. */
mics_status validator_broken(const validator *v, int number, const char *why);

/* Whether a step (-1: none) is done when the one that is looked at begins. */
bool validator_precedes(const validator *v, int32_t step);

/* Goes on with a collective, or begins a new one; whether all its stages have been. */
mics_status validator_go_on(const validator *v, chain_state *chain);
bool validator_completed(const chain_state *chain);

static inline const mics_sharding *sharding_of(const validator *v, int32_t unit)
{
    return &v->schedule->sharding[unit];
}

static inline const mics_unit *unit_of(const validator *v, int32_t unit)
{
    return &v->schedule->spec.model->units[unit];
}

static inline bool is_training(const validator *v)
{
    return v->phase == MICS_PHASE_TRAIN;
}

static inline int32_t units_of(const validator *v)
{
    return v->schedule->spec.model->unit_count;
}

// Invariants 14 and 15 (validate_copies.c), of a computation and of a copy. Return as below.
mics_status check_blocks(validator *v, const mics_step *step);
mics_status check_copy(validator *v, const mics_step *step);

// Invariants 17 to 20 (validate_meetings.c): of a meeting's step; of any other step that changes, sends
// or reads what meets; of a whole list; of the arena.
mics_status check_meeting(validator *v, const mics_step *step);
mics_status check_world_agreement(validator *v, const mics_step *step);
mics_status check_adopted(const validator *v, const mics_step *step);
mics_status check_meetings_end(const validator *v);
mics_status check_places(const mics_schedule *schedule);

// Invariants 5 to 11, of one step.   Return: MICS_OK; MICS_ERR_INVALID, logged.
mics_status check_replica_gather(validator *v, const mics_step *step);
mics_status check_sync(validator *v, const mics_step *step);
mics_status check_gather(validator *v, const mics_step *step);
mics_status check_uses(validator *v, const mics_step *step); // of computations
mics_status check_reduce(validator *v, const mics_step *step);
mics_status check_hop(validator *v, const mics_step *step);
mics_status check_norm(validator *v);
mics_status check_agree(validator *v);
mics_status check_momentum(validator *v, const mics_step *step);
mics_status check_round_step(validator *v, const mics_step *step);
mics_status check_update(validator *v, const mics_step *step);
