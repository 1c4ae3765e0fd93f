// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The step as data: one list of steps for (model, mesh, batch), made once. The engine runs it, the
// ledgers sum it, a simulator can time it, and `mics explain` prints it.
//
// Two streams, each in list order. A step waits for the steps that it names on either stream;
// nothing else orders the streams. All ranks have the same list, so collectives cannot be met in
// different orders.
#ifndef MICS_SCHEDULE_H
#define MICS_SCHEDULE_H

#include "mics/layout.h"
#include "mics/memory.h"
#include "mics/model.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mics_stream { MICS_STREAM_COMPUTE, MICS_STREAM_COMM, MICS_STREAMS } mics_stream;

typedef enum mics_step_kind {
    // comm: first stage of a gather over several nodes, between equal local ranks
    MICS_STEP_GATHER_ACROSS,
    // comm: all-gather a unit's parameters into a slot (partition group), or its second stage, in the node
    MICS_STEP_GATHER,
    MICS_STEP_FORWARD,  // compute
    MICS_STEP_BACKWARD, // compute; with recomputation, or the loss, it runs forward first
    // comm: first stage of a reduction over several nodes, inside each node
    MICS_STEP_REDUCE_INSIDE,
    // comm: reduce-scatter a unit's gradient slot into the accumulator (gradient group), or its second
    // stage, between equal local ranks
    MICS_STEP_REDUCE,
    // comm: second hop, reduce-scatter the accumulator, G down to O (scatter group)
    MICS_STEP_SCATTER,
    MICS_STEP_ALL_REDUCE, // comm: second hop, all-reduce the owned piece (replication group)
    MICS_STEP_NORM,       // compute: sum of squares of the owned gradients
    MICS_STEP_AGREE,      // comm: every rank's loss and sum of squares to all (world)
    MICS_STEP_UPDATE,     // compute: optimizer on a unit's owned piece
    MICS_STEP_PUBLISH,    // comm: all-gather the updated piece, O up to P (publish group)
    MICS_STEP_KINDS
} mics_step_kind;

enum { MICS_STEP_USES = 4 }; // units whose parameters one step may read

typedef struct mics_step_use {
    int32_t unit;
    int32_t param_slot; // -1: the persistent buffer (P = 1), or values not needed
    int32_t grad_slot;  // -1: the accumulator (G = 1), or no gradient
} mics_step_use;

typedef struct mics_step {
    mics_step_kind kind;
    mics_stream stream;
    int32_t unit;                       // -1: none
    int32_t micro_step;                 // -1: at the accumulation boundary
    int32_t wait[MICS_STREAMS];         // steps that must be done first, by index; -1: none
    mics_step_use uses[MICS_STEP_USES]; // compute: units read or differentiated; comm: uses[0]
    int32_t use_count;
    bool accumulate;       // BACKWARD and REDUCE: add to the accumulator instead of overwriting it
    mics_group_kind group; // comm steps
    size_t block_bytes;    // comm steps: each member's block
    double flops;          // compute steps
} mics_step;

typedef struct mics_step_list {
    mics_step *steps;
    int32_t count;
} mics_step_list;

typedef enum mics_phase { MICS_PHASE_TRAIN, MICS_PHASE_EVAL, MICS_PHASES } mics_phase;

// One gradient operation of a unit's backward, in order. Places are offsets in the activation
// arena, floats.
typedef enum mics_grad_kind { MICS_GRAD_OP, MICS_GRAD_COPY, MICS_GRAD_ADD } mics_grad_kind;
typedef struct mics_grad_call {
    mics_grad_kind kind;
    int32_t op;   // GRAD_OP: index in the unit's ops
    int64_t dout; // gradient of the op's output (source of COPY and ADD); -1: none (classifier)
    int64_t din;  // gradient of its input (destination of COPY and ADD); -1: not wanted
    bool add_din; // add to din
    bool add_params[MICS_OP_PARAMS]; // another op of this micro-step wrote this gradient before
    int64_t elems;                   // COPY and ADD
} mics_grad_call;

// Where a unit's tensors and gradients lie.
typedef struct mics_unit_plan {
    int64_t *tensor_at; // by tensor: offset in the activation arena, floats; -1: tokens
    mics_grad_call *grads;
    int32_t grad_count;
    bool loss; // the last unit, whose backward makes the losses; training has no forward of it
    bool forward_in_backward; // recomputed, or the loss
    int32_t forward_again; // how many leading ops backward then runs again: to the last that saves
                           // anything
} mics_unit_plan;

typedef struct mics_schedule_spec {
    const mics_model *model; // outlives the schedule
    mics_mesh mesh;
    mics_batch batch;    // of one micro-step of one rank
    int32_t micro_steps; // a step
    int32_t prefetch;    // units gathered ahead; 0: each backward waits for the reduction before it
    bool recompute;      // keep only each unit's input; run its forward again in backward
    bool hierarchical;   // collectives over several nodes in two stages: fewer bytes between them
    bool evaluation_only;      // no training list, no gradients, no optimizer state
    size_t comm_staging_bytes; // of the transport, a rank
} mics_schedule_spec;

// Bytes a rank, by tag, exactly as the allocator will count them. MICS_MEM_HOST is not predicted
// (0).
typedef struct mics_memory_ledger {
    size_t bytes[MICS_MEM_TAGS];
    size_t total;
} mics_memory_ledger;

typedef struct mics_bytes {
    int64_t intra, inter; // sent inside nodes, between nodes
} mics_bytes;

typedef struct mics_schedule {
    mics_memory *memory;
    mics_schedule_spec spec;
    mics_step_list lists[MICS_PHASES];
    mics_unit_plan *units;
    int64_t *padded_elems; // by unit: flat length with the mesh's padding
    int64_t *param_slots;  // by slot: elements
    int32_t param_slot_count;
    int64_t *grad_slots; // by slot: elements
    int32_t grad_slot_count;
    int64_t activation_elems; // floats of the activation arena
    int64_t workspace_elems;  // floats: the largest op workspace, then one loss a token
    int64_t workspace_losses; // where those losses begin
    mics_memory_ledger ledger;
    mics_bytes kind_bytes[MICS_PHASES][MICS_STEP_KINDS]; // sent by all ranks together
} mics_schedule;

// What AGREE sends to every rank.
typedef struct mics_agreement {
    double loss;        // sum over the rank's tokens
    double sum_squares; // of its owned gradients
    double stop;        // 1: the rank asks for this step to be the last
} mics_agreement;

/* Makes the schedule.
 *
 * Needs:   micro_steps >= 1, prefetch >= 0, batch sizes >= 1, batch.length <= model->positions.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged; MICS_ERR_MEMORY.
 * Owns:    close with mics_schedule_close.        Threads: any.
 */
mics_status mics_schedule_open(mics_memory *memory, const mics_schedule_spec *spec,
                               mics_schedule **schedule_out);
void mics_schedule_close(mics_schedule *schedule);

/* "gather", "forward", ... ; never NULL. */
const char *mics_step_kind_text(mics_step_kind kind);

/* Bytes that `rank` sends in one step of a list; 0 for compute steps. Rings: see comm.h. */
mics_bytes mics_schedule_step_bytes(const mics_schedule *schedule, const mics_step *step,
                                    int32_t rank);

/* Bytes that `rank` sends in one whole run of a list. */
mics_bytes mics_schedule_rank_bytes(const mics_schedule *schedule, mics_phase phase, int32_t rank);

/* The same over all ranks: what metrics.jsonl reports. */
mics_bytes mics_schedule_all_bytes(const mics_schedule *schedule, mics_phase phase);

/* The same for one kind of step only, over all ranks. */
mics_bytes mics_schedule_kind_bytes(const mics_schedule *schedule, mics_phase phase,
                                    mics_step_kind kind);

/* Exchanges (ring messages) that a rank sends in one run of a list: its collectives, counted. */
int64_t mics_schedule_rank_exchanges(const mics_schedule *schedule, mics_phase phase, int32_t rank);

/* FLOPs a rank computes in one run of a list, recomputation included. */
double mics_schedule_flops(const mics_schedule *schedule, mics_phase phase);

#ifdef __cplusplus
}
#endif
#endif
