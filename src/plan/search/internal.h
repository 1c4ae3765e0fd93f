// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files of this module share; nobody else includes it.
#ifndef MICS_PLAN_INTERNAL_H
#define MICS_PLAN_INTERNAL_H

#include "plan/search/plan.h"

enum { MAX_DEGREES = 256, PROBED_GROUPS = 3 };

// ---- probe.c: what is measured on a few schedules and holds for all ----

// Units of the same length are alike for everything but computation.
typedef struct unit_class {
    int64_t padded_elems;
    bool whole;   // sharded as 1 | 1 | O
    bool experts; // ranks keep different ones: a rank's block of them
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
    bool recompute;
    int32_t probed; // lists measured so far
    structure by_groups[PROBED_GROUPS];
} structures;

// What collectives cost.
typedef struct comm_cost {
    double us;                           // alone
    double intra_us, inter_us;           // of it, by stream
    double intra_slow_us, inter_slow_us; // that computation loses beside it, at least
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

// Of one E: everything that is measured holds for it alone.
struct mics_planner {
    mics_memory *memory;
    mics_plan_request request;
    int32_t experts;            // E; 1 of the first
    mics_planner *first, *next; // the one of E = 1 (there NULL); of another E that was asked for
    mics_simulate_options simulate;
    int32_t ranks, ranks_per_node;
    bool mixture; // has units of experts
    double available_bytes;
    int32_t degrees[MAX_DEGREES]; // that the mesh allows, ascending
    int32_t degree_count;
    int64_t *micro_batches; // divisors of a rank's share of the global batch, ascending
    int32_t micro_batch_count;
    unit_class *classes;
    int32_t class_count;
    int32_t *class_of;          // by unit
    int32_t first_class;        // of the unit that is computed first, and differentiated last
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

// ---- planner.c ----

/* The planner of an E, which is opened when it is first asked for. `planner` may be of any.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: the mesh or the model has no such E; MICS_ERR_MEMORY.
 */
mics_status planner_of(mics_planner *planner, int32_t experts, mics_planner **of_out);

/* Whether runs can have that E, with the right P. */
bool can_spread(const mics_planner *planner, int32_t experts);

// ---- choice.c ----

/* The mesh of a choice's sharding, with this planner's E. */
mics_status choice_mesh(const mics_planner *planner, mics_sharding sharding, mics_mesh *mesh_out);

/* Whether the ranks can share the global batch evenly, as the family needs it.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged, with the batches around it that would work. */
mics_status check_batch(const mics_planner *planner);

/* Whether a choice is one of the planner's: a sharding that the mesh allows, a batch that gives the
 * global batch.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged. */
mics_status check_choice(const mics_planner *planner, const mics_plan_choice *choice);

/* Where a micro-batch stands in the planner's list; the last place where it does not. */
int32_t batch_index(const mics_planner *planner, int64_t micro_batch);

/* What is known of a choice's batch, if it was probed; else zeros. */
batch_probe probed_batch(const mics_planner *planner, const mics_plan_choice *choice);

/* The schedule of a choice with `micro_steps` in place of its own; of one that `probes`, whatever
 * rounding sends (mics_schedule_spec.any_rounding). */
mics_status open_schedule(mics_planner *planner, const mics_plan_choice *choice,
                          int32_t micro_steps, bool probes, mics_schedule **schedule_out);

/* Whether anything is sent as fewer bits than it is held in. Mixed precision sends parameters, and
 * gradients of a micro-step, as they are held. */
bool request_rounds(const mics_plan_request *request);

/* Whether first-hop reductions send each block to its owner directly, and so in two stages wherever
 * their groups have them. */
bool sums_directly(const mics_planner *planner, const mics_plan_choice *choice);

/* Whether partition groups of so many ranks share their parameters
 * (mics_schedule_spec.share_params). */
bool degree_shares(const mics_planner *planner, int32_t degree);

/* Whether the groups that gather or reduce span nodes and have several ranks in each. */
bool degree_has_stages(const mics_planner *planner, int32_t degree);

// ---- evaluate.c ----

/* How long a step takes, and the schedule's ledger (ledger_out may be NULL). */
mics_status time_choice(mics_planner *planner, const mics_plan_choice *choice, double *step_us_out,
                        mics_memory_ledger *ledger_out);

/* Fills what follows from step_us, tokens and FLOPs. */
void fill_rates(const mics_planner *planner, mics_plan_entry *entry);

// ---- bound.c ----

// By class: what repeats with layered groups, and what a step has once.
typedef struct class_cost {
    comm_cost gather, reduce;
    comm_cost head; // once a step: what forward passes wait for, replica gathers and parameter sync
    comm_cost tail; // once a step: what the last gradients are sent with
} class_cost;

/* Prices the collectives of a sharding; `classes` holds all. */
mics_status price_sharding(const mics_planner *planner, const mics_plan_choice *choice,
                           class_cost *classes);

/* Parameters, accumulators and optimizer of a rank. */
size_t choice_state_bytes(const mics_planner *planner, const mics_plan_choice *choice);

mics_status choice_memory(mics_planner *planner, const mics_plan_choice *choice, double *bytes_out);

/* With the sharding's collectives priced. */
mics_status choice_bound(mics_planner *planner, const mics_plan_choice *choice,
                         const class_cost *classes, double *us_out);

// ---- layered.c ----

/* The choice's micro-batches in flight by mics_layered_auto, or the most below that which fit. */
mics_status layered_by_rule(mics_planner *planner, const mics_plan_choice *choice,
                            int32_t *number_out);

/* Whether the search also tries all micro-steps at once: they are not listed anyway, few enough to
 * be simulated, not added too often in 16 bits, and their activations are not beyond the memory. */
mics_status tries_all_layered(mics_planner *planner, const mics_plan_choice *choice,
                              bool *tries_out);

// ---- search.c ----

/* Of a space's choices for one sharding the one with the least memory. */
mics_status least_memory(mics_planner *planner, const mics_plan_space *space,
                         mics_plan_choice *choice_out, double *bytes_out);

// ---- megatron.c ----

/* Whether layers may stay whole: t1 p1, which is ddp or zero1 by another name. */
bool plan_megatron_may_be_whole(const mics_planner *planner, const mics_plan_pipeline *given);

/* `whole`: that row, or NULL where layers are cut in any case. */
mics_status plan_megatron(mics_planner *planner, const mics_plan_space *space,
                          const mics_plan_entry *whole, mics_plan_entry *entry_out);

/* Whether accumulators hold 2 bytes a number. */
static inline bool rounds_sums(const mics_planner *planner, const mics_plan_choice *choice)
{
    const mics_plan_request *request = &planner->request;
    const mics_schedule_spec spec = {
        .precision = request->precision,
        .mesh = {.ranks = planner->ranks, .sharding = choice->sharding},
        .micro_steps = choice->micro_steps,
        .rounded_sums = request->rounded_sums,
        .optimizer = request->optimizer};
    return mics_schedule_rounds_sums(&spec);
}

/* Bytes that the optimizer keeps of a shard. */
static inline size_t kept_bytes(const mics_plan_request *request, int64_t elems)
{
    return mics_optimizer_kept_bytes(request->optimizer, request->state_dtype,
                                     request->precision == MICS_PRECISION_MIXED, elems);
}

#endif
