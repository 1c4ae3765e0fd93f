// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is measured on a few schedules and holds for all.
#pragma once

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

// Of lists with 1, 2 and PROBED_GROUPS layered groups, as many of them as were asked for. Where
// layered groups differ in length there is one list, with all micro-steps.
typedef struct structures {
    struct structures *next;
    structure_kind kind; // of experts, where ranks keep different ones: all else is gathered
    bool shares;         // partition groups share their parameters
    // What the head of the list brings, where slots follow from it: O < ranks, and over nodes; of a
    // mixture O > P.
    bool defers, far, syncs;
    int32_t prefetch, layered_micro_steps;
    int32_t uneven; // micro-steps, where groups differ in length; 0
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

// Of one micro-batch size, with or without recomputation.
typedef struct batch_probe {
    bool known;
    size_t layered_bytes, activation_bytes; // of each further micro-batch in flight; of the first
    size_t token_bytes;                     // of each
    size_t workspace_bytes;
    double forward_us, backward_us; // of one micro-step, all units
    mics_schedule *schedule;        // that it was taken from, for others to be like it
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
    mics_simulate_options simulate;
    int32_t ranks, ranks_per_node;
    bool mixture; // has units of experts
    double available_bytes;
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
    batch_probe *batches;       // by micro-batch, 2 each
    boundary_probe *boundaries; // by degree, 2 each: [1] with all_reduces
};

/* How a class is sharded: of experts over the ranks that keep the same ones. */
mics_sharding class_sharding(const mics_planner *planner, const unit_class *class,
                             mics_sharding mesh);

/* Each is measured when it is first asked for. */
mics_status probe_structure(mics_planner *planner, const mics_plan_choice *choice,
                            const structures **structures_out);
mics_status probe_batch(mics_planner *planner, const mics_plan_choice *choice,
                        const batch_probe **probe_out);
mics_status probe_boundary(mics_planner *planner, int32_t degree, bool all_reduces, double *us_out,
                           double *update_us_out);

/* Whether runs can have what the request rounds with a choice's sharding and collectives, whatever
 * its batch.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: rounded numbers would be more bytes between nodes than
 *          whole ones; MICS_ERR_MEMORY. */
mics_status probe_rounding(mics_planner *planner, const mics_plan_choice *choice);

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
