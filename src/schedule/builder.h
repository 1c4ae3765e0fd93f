// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A schedule in the making. Private to this module.
#pragma once

#include "mics/core/schedule.h"
#include "schedule/meetings.h"
#include "schedule/slots.h"

// One computation of one unit.
typedef struct pass {
    int32_t unit;
    int32_t micro_step;
    int32_t in_flight;
    int32_t visit; // a unit's passes in a row, one a micro-batch in flight, are one visit
    bool backward;
    bool last;    // of its visit
    double flops; // of all passes before it
} pass;

// Units that a computation touches.
typedef struct unit_set {
    int32_t units[MICS_STEP_USES];
    int32_t count;
} unit_set;

// A pass with its all-to-alls: of one attention, one router and one mixture, recomputed.
enum { MAX_PARTS = 10 };

// A part of a pass, up to an all-to-all.
typedef struct pass_part {
    mics_step_part range;
    unit_set reads, writes;
    int32_t op;   // of the all-to-all behind it; -1: none
    int32_t call; // the same, if it is of a gradient; -1
    double flops;
} pass_part;

// Facts that all passes of a unit share, forward [0] and backward [1].
typedef struct unit_facts {
    unit_set reads[2]; // parameters' values
    unit_set writes;   // gradients, in backward
    pass_part parts[2][MAX_PARTS];
    int32_t part_count[2];
    bool stages[MICS_STEP_KINDS]; // whether its collectives of a kind run in stages
} unit_facts;

// Units whose second hop will share a message, in order.
typedef struct coalesce_queue {
    int32_t *units;
    int32_t count;
    int64_t elems;
} coalesce_queue;

// A reduction that is being listed.
typedef struct late_reduction {
    int32_t unit;
    int32_t before; // the step that its next stage waits for
    pass of;        // the backward that wrote the gradient
} late_reduction;

// A unit's meeting in the making.
typedef struct unit_meeting {
    mics_step_kind newest;        // MICS_STEP_KINDS: it has not begun
    int32_t last[MEETING_STATES]; // newest step, by state; -1: none
    double begun;                 // FLOPs before its sum
} unit_meeting;

// Units that meet in the same lists.
typedef struct meeting_window {
    double elems, begun; // all, and the share of them whose sum is listed
    double begin;        // FLOPs before the first one's change; -1: none yet
} meeting_window;

typedef struct builder {
    mics_schedule *schedule;
    unit_facts *facts; // by unit
    bool spans_nodes[MICS_AXES][MICS_SCOPES];
    mics_step_list *list;
    int32_t capacity;        // of the list
    slot_pool params, grads; // by unit; by grad_key
    pass *passes;
    int32_t pass_count;
    double flops;            // of all
    int32_t gathered;        // passes whose gathers are listed
    int32_t brought;         // passes whose replica gathers are listed
    int32_t *ready;          // by unit: the step that made its whole values readable; -1: none
    int32_t *synced;         // by unit: its param sync; -1: none
    int32_t *brought_back;   // by unit: its replica gather; -1: none
    int32_t *updated;        // by unit: the newest step that changed its masters; -1: none
    int32_t *last_writer;    // by unit: newest backward that wrote its gradient
    int32_t *last_reduced;   // by unit: newest reduction into its accumulator; -1: none
    int32_t *ends_with;      // by unit: whose backward writes its gradient last
    unit_meeting *meetings;  // by unit
    meeting_window *windows; // by number
    int32_t world_agreed;    // AGREE_WORLD; -1: none
    int32_t newest[MICS_STREAMS];
    int32_t *copied; // by unit, by micro-batch in flight: the newest copy of its block; -1: none
    late_reduction late[MICS_STEP_USES]; // their inter-node stages are not listed yet
    int32_t late_count;
    // Of units that are cut alike: [0] as the mesh says, [1] that stay whole, and both of experts.
    coalesce_queue coalescing[4];
} builder;

static inline const mics_unit *unit_of(const builder *b, int32_t unit)
{
    return &b->schedule->spec.model->units[unit];
}

static inline bool is_training(const builder *b)
{
    return b->list == &b->schedule->lists[MICS_PHASE_TRAIN];
}

static inline const mics_sharding *sharding_of(const builder *b, int32_t unit)
{
    return &b->schedule->sharding[unit];
}

/* Into how many shards the mesh cuts a unit (of experts: a block) at its degrees, if it does not stay
 * whole. */
static inline mics_sharding mesh_sharding_of(const builder *b, int32_t unit)
{
    const mics_sharding s = b->schedule->spec.mesh.sharding;
    const int32_t experts = b->schedule->experts[unit];
    return (mics_sharding){s.params / experts, s.grads / experts, s.optimizer / experts};
}

/* Who holds a gradient slot: micro-batches in flight share one where they are reduced together;
 * where each goes to the accumulator by itself (G = 1), they have one each. */
static inline int32_t grad_key(const builder *b, int32_t unit, int32_t in_flight)
{
    return unit * b->schedule->spec.layered_micro_steps +
           (sharding_of(b, unit)->grads > 1 ? 0 : in_flight);
}
