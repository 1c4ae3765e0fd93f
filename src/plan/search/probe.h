// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is measured on a few schedules and holds for all.
#pragma once

#include "mics/core/ledger.h"
#include "plan/search/plan.h"

enum { MAX_DEGREES = 256, PROBED_GROUPS = 3 };

// Units of the same length are alike for everything but computation.
typedef struct unit_class {
    int64_t padded_elems;
    bool whole;   // sharded as 1 | 1 | O
    bool experts; // ranks keep different ones: a rank's block of them
    bool frozen;  // gathered, and that is all: P | P | P
    int32_t units;
    int32_t held;      // of them, those of mics_layered_holds
    int32_t forwarded; // of them, those that a forward pass reads: the loss has none in training
} unit_class;

// What is sharded, whatever the degrees: decides which steps a list has and which slots they need.
typedef enum structure_kind {
    STRUCTURE_WHOLE, // P = G = E
    STRUCTURE_GRADS, // P = E < G
    STRUCTURE_PARAMS // E < P
} structure_kind;

// Collectives of a list that are counted. A phase is all forwards, or all backwards, of a layered
// group; what is inside one waits for a pass of it and is waited for by another. Those of the first
// forward and of the last backward are left out: the bound looks at these two by themselves.
typedef enum list_count {
    COUNT_GATHERS,        // all
    COUNT_BARE,           // gathers that wait for one pass and are waited for by the next
    COUNT_FORWARD_GATHER, // inside a forward
    COUNT_BACKWARD_GATHER,
    COUNT_BACKWARD_REDUCE,
    COUNTS
} list_count;

// Of one list.
typedef struct structure {
    size_t gather_bytes, reduce_bytes; // of slots
    int32_t *counts[COUNTS];           // by class
} structure;

// Of lists with 1, 2 and PROBED_GROUPS layered groups, as many of them as were asked for.
typedef struct structures {
    struct structures *next;
    structure_kind kind; // of experts, where ranks keep different ones: all else is gathered
    bool shares;         // partition groups share their parameters
    // What the head of the list brings, where slots follow from it: O < ranks, and over nodes; of a
    // mixture O > P.
    bool defers, far, syncs;
    int32_t prefetch, layered_micro_steps;
    bool uneven; // groups differ in length
    mics_recompute recompute;
    int32_t probed; // lists measured so far
    structure by_groups[PROBED_GROUPS];
} structures;

// What collectives cost.
typedef struct comm_cost {
    double us;                             // alone
    double intra_us, inter_us;             // of it, by stream
    double intra_slow_us, inter_slow_us;   // that computation loses beside it alone, at least
    double intra_slowdown, inter_slowdown; // of computation beside it, at most
    double busy_us[MICS_CLUSTER_TIERS];
    double core_us;
} comm_cost;

// Of one micro-batch size and form of recomputation.
typedef struct batch_probe {
    struct batch_probe *next; // of the same micro-batch
    mics_recompute recompute;
    size_t layered_bytes;               // of each micro-batch in flight
    size_t shared_bytes, scratch_bytes; // of the others of the arena
    size_t token_bytes;                 // of each
    size_t workspace_bytes;
    double forward_us, backward_us; // of one micro-step, all units
    double *unit_us;                // of backward, by unit
    mics_schedule *schedule;        // that it was taken from, for others to be like it
    mics_offload *offloads;         // of probe_offloads: by units, to schedule->offload_max
    double *pass_us[2];             // of mics_simulate_options: G = E, G > E
    comm_cost all_to_alls;          // of one micro-step, where has_all_to_alls
    bool has_all_to_alls;
} batch_probe;

// Of one optimizer degree.
typedef struct boundary_probe {
    bool known;
    double us; // norm and agreement
    double update_us;
} boundary_probe;

// Of one E and S: everything that is measured holds for them alone.
struct mics_planner {
    mics_memory *memory;
    mics_plan_request request;
    int32_t experts, sequence;  // E and S; 1 of the first
    mics_planner *first, *next; // the one of E = S = 1 (there NULL); of others that were asked for
    mics_planner *whole;        // of S = 1, which lists have the same gathers as; there NULL
    mics_simulate_options simulate;
    int32_t world, ranks_per_node;
    int32_t ranks; // of an island of local steps; else all
    bool mixture;  // has units of experts
    double available_bytes;
    double limit_bytes;           // of the first one: that plans may take which are searched
    int32_t degrees[MAX_DEGREES]; // that the mesh allows, ascending
    int32_t degree_count;
    int64_t *micro_batches; // of a rank's share of the global batch, ascending
    int32_t micro_batch_count;
    unit_class *classes;
    int32_t class_count;
    int32_t *class_of;          // by unit
    int32_t first_class;        // of the unit that is computed first
    int32_t last_class;         // of what the last backward writes
    structures *structures;     // those that were probed
    bool reads_alike;           // backward reads the same parameters whatever it runs again
    batch_probe **batches;      // by micro-batch
    boundary_probe *boundaries; // by degree, 2 each: [1] with all_reduces
};

/* What searched plans may take: all that a rank may use, or less where they leave a margin. */
static inline double limit_of(const mics_planner *planner)
{
    return planner->first != NULL ? planner->first->limit_bytes : planner->limit_bytes;
}

/* How a class is sharded: of experts over the ranks that keep the same ones. */
mics_sharding class_sharding(const mics_planner *planner, const unit_class *class,
                             mics_sharding mesh);

/* Each is measured when it is first asked for. */
mics_status probe_structure(mics_planner *planner, const mics_plan_choice *choice,
                            const structures **structures_out);
mics_status probe_batch(mics_planner *planner, const mics_plan_choice *choice,
                        const batch_probe **probe_out);
mics_status probe_offloads(mics_planner *planner, const mics_plan_choice *choice,
                           const batch_probe **probe_out);
mics_status probe_boundary(mics_planner *planner, int32_t degree, bool all_reduces, double *us_out,
                           double *update_us_out);

/* Whether some layers are recomputed whole, and others not. */
static inline bool recomputes_some(mics_recompute recompute)
{
    return recompute.units > 0 && recompute.units != MICS_RECOMPUTE_ALL;
}

/* The same of any form, made up of that without layers that are recomputed whole and that of all, and
 * without a schedule of its own; `batch_out` borrows theirs. */
mics_status batch_of(mics_planner *planner, const mics_plan_choice *choice, batch_probe *batch_out);

/* Makes a unit of a form one that is recomputed whole, as it is in `all`. */
void add_whole(const mics_planner *planner, const batch_probe *all, int32_t unit, batch_probe *at);

/* Activations with so many micro-batches in flight. */
static inline size_t activation_bytes(const batch_probe *batch, size_t in_flight)
{
    return in_flight * batch->layered_bytes + batch->shared_bytes + batch->scratch_bytes;
}

/* What is known of a form at a micro-batch, where it was probed; else NULL. */
batch_probe *find_batch(const mics_planner *planner, int64_t micro_batch, mics_recompute recompute);

/* Whether runs can have what the request rounds with a choice's sharding and collectives, whatever
 * its batch; and what one with the smallest batch, which is one micro-step, takes. 0: nothing is rounded.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: rounded numbers would be more bytes between nodes than
 *          whole ones; MICS_ERR_MEMORY. */
mics_status probe_rounding(mics_planner *planner, const mics_plan_choice *choice,
                           double *bytes_out);

/* Sorts units into classes. */
mics_status probe_classes(mics_planner *planner);

void close_structures(mics_planner *planner);
void close_batches(mics_planner *planner);

/* Turns of a choice. */
int32_t choice_groups(const mics_plan_choice *choice);

/* Collectives of a class in a step of so many layered groups. */
double structure_count(const structures *s, list_count what, int32_t class, int32_t groups);

/* The structure of a list with so many layered groups. */
const structure *structure_at(const structures *s, int32_t groups);
