// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A schedule in the making. Private to this module.
#ifndef MICS_SCHEDULE_BUILDER_H
#define MICS_SCHEDULE_BUILDER_H

#include "mics/core/schedule.h"
#include "schedule/slots.h"

// One computation of one unit.
typedef struct pass {
    int32_t unit;
    int32_t micro_step;
    int32_t in_flight;
    int32_t visit; // a unit's passes in a row, one a micro-batch in flight, are one visit
    bool backward;
    bool last; // of its visit
} pass;

// Units that a computation touches.
typedef struct unit_set {
    int32_t units[MICS_STEP_USES];
    int32_t count;
} unit_set;

// A pass with its all-to-alls, at most as many as of one mixture, recomputed.
enum { MAX_PARTS = 5 };

// A part of a pass, up to an all-to-all.
typedef struct pass_part {
    mics_step_part range;
    unit_set reads, writes;
    int32_t op;   // of the all-to-all behind it; -1: none
    int32_t call; // the same, if it is of a gradient; -1
    double flops;
} pass_part;

// What is the same for all passes of a unit, forward [0] and backward [1].
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

typedef struct builder {
    mics_schedule *schedule;
    unit_facts *facts; // by unit
    bool spans_nodes[MICS_AXES][MICS_SCOPES];
    mics_step_list *list;
    int32_t capacity;        // of the list
    slot_pool params, grads; // by unit; by grad_key
    pass *passes;
    int32_t pass_count;
    int32_t gathered;      // passes whose gathers are listed
    int32_t brought;       // passes whose replica gathers are listed
    int32_t *ready;        // by unit: the step that made its whole values readable; -1: none
    int32_t *synced;       // by unit: its param sync; -1: none
    int32_t *brought_back; // by unit: its replica gather; -1: none
    int32_t *updated;      // by unit: its update, at the head of the list; -1: none
    int32_t *last_writer;  // by unit: newest backward that wrote its gradient
    int32_t *last_reduced; // by unit: newest reduction into its accumulator; -1: none
    int32_t *ends_with;    // by unit: whose backward writes its gradient last
    int32_t newest[MICS_STREAMS];
    late_reduction late[MICS_STEP_USES]; // their inter-node stages are not listed yet
    int32_t late_count;
    // Of units that are cut alike: [0] as the mesh says, [1] that stay whole, and both of experts.
    coalesce_queue coalescing[4];
} builder;

static inline const mics_unit *unit_of(const builder *b, int32_t unit)
{
    return &b->schedule->spec.model->units[unit];
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

// ---- parts.c ----

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

// ---- listing.c ----

mics_status add_step(builder *b, mics_step step, int32_t *index_out);

/* Makes a step wait for another, if that is on another stream (-1: none): a stream is in order. */
void wait_on(const builder *b, mics_step *step, int32_t index);
void wait_on_all(const builder *b, mics_step *step, const int32_t last[MICS_STREAMS]);

mics_step blank_step(mics_step_kind kind, int32_t unit, int32_t micro_step);

// ---- collectives.c: which stages, group, numbers and algorithm ----

/* Which of a unit's collectives run in stages. */
void find_stages(const builder *b, int32_t unit, bool stages[MICS_STEP_KINDS]);

/* The stages of a unit's collective of some kind, in order. */
typedef struct stage_list {
    mics_step_stage at[2];
    int32_t count;
} stage_list;
stage_list stages_of(const builder *b, mics_step_kind kind, int32_t unit);

/* Along which axis a unit's collective of some kind runs. */
mics_group_axis axis_of(const builder *b, mics_step_kind kind, int32_t unit);

/* The all-to-all of a unit's rows between two tensors, or their gradients; `elems` of one. */
mics_step all_to_all_step(const builder *b, pass p, int64_t from, int64_t to, int64_t elems);

/* A collective of `count` units, which are alike sharded, or a stage of it; or AGREE, of none. */
mics_step comm_step(const builder *b, mics_step_kind kind, mics_step_stage stage,
                    const int32_t *units, int32_t count, int32_t micro_step);

// ---- gathers.c: what makes units readable ----

// Units whose parameters' values the pass reads, and whose gradients it writes.
static inline const unit_set *units_read(const builder *b, pass p)
{
    return &b->facts[p.unit].reads[p.backward];
}

static inline const unit_set *units_written(const builder *b, pass p)
{
    static const unit_set none = {.count = 0};
    return p.backward ? &b->facts[p.unit].writes : &none;
}

/* Ahead of a pass: all units that it reads; of those that are to be updated first, with their
 * updates, the ones that are then sent. */
mics_status list_gathers(builder *b, pass p);

/* Whether the gathers of a pass begin with updates, which are not listed yet. */
bool sends_updated(const builder *b, pass p);

mics_status list_replica_gathers(builder *b, pass p);

/* Directly before a pass: deferred updates of all that it touches. */
mics_status list_late_updates(builder *b, pass p);

// ---- reductions.c: the first hop ----

/* Notes which slots a step uses. */
void mark_slots(builder *b, const mics_step *step, int32_t index);

/* Sums one unit's gradient slot, which has those of a layered group, into the accumulator; the
 * unit's second hop behind that of the last micro-step. An inter-node stage is left for
 * list_late_reductions. */
mics_status list_reduction(builder *b, int32_t unit, pass p);

/* Lists the stages that were left. */
mics_status list_late_reductions(builder *b);

// ---- boundary.c: what happens once a step ----

/* Lists the parameter sync of what was updated last, once a list, before the unit is first read;
 * small units in one message. */
mics_status list_param_sync(builder *b, int32_t unit);

/* Whether the list that is made has the updates of the step before at its head. */
bool defers_updates(const builder *b);

/* Of such a list: a unit's replica gather, with what shares its message, and its update behind its
 * own. Once a list; of other lists nothing. */
mics_status list_replica_gather(builder *b, int32_t unit);
mics_status list_deferred_update(builder *b, int32_t unit);

/* Whether updates are deferred, and what sends the updated units goes between nodes. */
bool sends_far(const builder *b);

/* Whether others wait for a unit's update: its gather, or its parameter sync. */
bool is_sent_when_updated(const builder *b, int32_t unit);

/* Lists the second hop of a unit whose gradient is whole inside its gradient group; or notes it, to
 * share a message with others. */
mics_status list_second_hop(builder *b, int32_t unit);

/* Lists what is left of it, then norm, agreement, and updates where they are not deferred. */
mics_status list_boundary(builder *b);

mics_status list_agreement(builder *b, int32_t *agree_out);

#endif
