// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The step as data: one list of steps for (model, mesh, batch), made once. The engine runs it, the
// ledgers sum it, a simulator can time it, and `mics explain` prints it.
//
// Four streams run in list order: computation, intra-node collectives, inter-node collectives, copies
// of activations to host memory and back. The inter-node hop of one unit thus runs beside the
// intra-node hop of another. A step waits for the earlier steps that it names, on any stream; nothing
// else orders the streams. All ranks have the same list, so all meet collectives in one order, and
// no two streams wait for each other.
//
// If the optimizer state has replicas (O < ranks), a training list ends with each rank's 1 / ranks
// of the summed gradients, their norm and the agreement. Replica gathers and updates are the head of
// the next list, beside its forward (mics_schedule_defers). Replica gathers may also be in the list
// itself, beside its backward (mics_schedule_spec.early_gathers).
#ifndef MICS_SCHEDULE_H
#define MICS_SCHEDULE_H

#include "mics/core/dtype.h"
#include "mics/core/mesh.h"
#include "mics/core/optimizer.h"
#include "mics/core/preference.h"
#include "mics/core/recompute.h"
#include "mics/memory.h"
#include "mics/model.h"
#include "mics/op.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mics_stream {
    MICS_STREAM_COMPUTE,
    MICS_STREAM_INTRA, // intra-node collectives
    MICS_STREAM_INTER, // inter-node ones: their groups span nodes
    MICS_STREAM_COPY,  // between the activation arena and host memory
    MICS_STREAMS
} mics_stream;

// What a step does.
typedef enum mics_step_kind {
    // comm: second hop, all-gather of the previous step's summed gradients over the replicas of an
    // optimizer shard; before the unit's update
    MICS_STEP_REPLICA_GATHER,
    // comm: all-gather of the updated optimizer shard, O up to P, at the head of the next list
    // beside forward; see mics_engine_complete
    MICS_STEP_PARAM_SYNC,
    // comm: all-gather of a unit's parameters into a slot; of shared parameters a barrier without
    // bytes, behind which all members' shards are up to date
    MICS_STEP_GATHER,
    MICS_STEP_FORWARD,  // compute
    MICS_STEP_BACKWARD, // compute; behind the forward of all that it runs again, or of the loss
    // comm: reduce-scatter a unit's gradient slot into the accumulator, once a layered group
    MICS_STEP_REDUCE,
    // comm: all-to-all of rows of tokens in the expert group, between two parts of a computation
    MICS_STEP_ALL_TO_ALL,
    MICS_STEP_SCATTER, // comm: second hop, reduce-scatter the accumulator, G down to O
    // comm: second hop, reduce-scatter the optimizer shard over its replicas
    MICS_STEP_REPLICA_SCATTER,
    MICS_STEP_NORM,  // compute: sum of squares of the rank's 1 / ranks of the gradients
    MICS_STEP_AGREE, // comm: every rank's loss and sum of squares to all
    // Of an optimizer that orthogonalises, in rounds of several units (mics_round). MOMENTUM and
    // UPDATE are of each unit; the three between them name a round's first unit.
    MICS_STEP_MOMENTUM,           // compute: the rank's part of a unit's momentum
    MICS_STEP_MOMENTUM_TO_OWNERS, // comm: all-to-all of momentum in the optimizer group
    MICS_STEP_ORTHOGONALISE,      // compute: the matrices that the rank owns
    MICS_STEP_MOMENTUM_BACK,      // comm: all-to-all of the orthogonal matrices, back to shards
    MICS_STEP_UPDATE,             // compute: optimizer on a unit's shard
    MICS_STEP_STORE, // copy: what a unit keeps for its backward, to host memory, behind its forward
    MICS_STEP_FETCH, // copy: the same back to its place in the arena, ahead of its backward
    // comm: directly ahead of a parameter sync as changes (mics_schedule_spec.delta_sync): codes this
    // rank's block; the bytes of each rank's coded block to all ranks
    MICS_STEP_SIZES,
    // Local steps (mics_outer): what became of the step before, from every rank of the world to all
    // (comm); then what a unit's meeting takes, all in one list.
    MICS_STEP_AGREE_WORLD,
    MICS_STEP_MEET_CHANGE,  // compute: anchor less masters, times the island's tokens, in a message
    MICS_STEP_MEET_SCATTER, // comm: reduce-scatter of the rank's 1 / ranks of it over islands
    MICS_STEP_MEET_UPDATE,  // compute: outer step on the rank's 1 / world, into the message
    MICS_STEP_MEET_GATHER,  // comm: all-gather of that over islands
    MICS_STEP_MEET_SPREAD,  // comm: all-gather over the optimizer shard's replicas in the island
    MICS_STEP_MEET_ADOPT,   // compute: anchor and masters become the new anchor
    MICS_STEP_KINDS
} mics_step_kind;

// Which stage of its collective a step is. Over several nodes of several members, a gather has its
// inter-node stage first and a sum its intra-node stage.
typedef enum mics_step_stage {
    MICS_STAGE_WHOLE, // there is only one
    MICS_STAGE_INTRA, // inside each node
    MICS_STAGE_INTER, // between equal local ranks
    MICS_STAGES
} mics_step_stage;

// How a collective over a unit runs, or one stage of it.
typedef enum mics_algorithm {
    MICS_ALGORITHM_RING,      // one ring over the whole group
    MICS_ALGORITHM_TWO_STAGE, // between equal local ranks and inside each node; a ring in one node
    MICS_ALGORITHMS,          // number of those to choose from; the others follow from the data:
    MICS_ALGORITHM_DIRECT,    // sums: each block goes to its owner, which adds in fp32
    MICS_ALGORITHM_SHARED,    // gathers of shared parameters: a barrier
    MICS_ALGORITHM_DOUBLING   // agreements: mics_comm_all_gather_doubling
} mics_algorithm;

// Units in the arena that units in host memory share their places with: one is computed, the output
// of another is written, and a third one is copied.
enum { MICS_OFFLOAD_PLACES = 3 };

enum { MICS_STEP_USES = 4 }; // units whose parameters one step may read

typedef struct mics_step_use {
    int32_t unit;
    int32_t param_slot; // -1: the persistent buffer (P = 1, or shared), or not needed
    int32_t grad_slot;  // -1: the accumulator, or no gradient
    bool accumulate;    // BACKWARD and REDUCE: add to the gradient in the slot (of earlier
                        // micro-batches in flight), or in the accumulator
    bool fold;          // BACKWARD, MIXED with G = 1: then add the whole slot to the accumulator
} mics_step_use;

// Dtypes of a collective's numbers, in memory and on the link. If they differ, numbers are rounded
// to be sent.
typedef struct mics_step_dtypes {
    mics_comm_dtype held, sent;
} mics_step_dtypes;

typedef struct mics_step_part {
    int32_t op, op_end;     // ops [op, op_end)
    int32_t call, call_end; // mics_unit_plan.grads
} mics_step_part;

typedef struct mics_step {
    mics_step_kind kind;
    mics_stream stream;
    int32_t unit; // -1: none
    // In which training steps it runs, see mics_step_is_due: every `period` ones; 0: in each.
    int32_t period, offset;
    int32_t state; // MEET_*: 0: what the anchor is of; k: state k - 1 of the optimizer
    // PARAM_SYNC: blocks travel as changes, of the bytes that SIZES before it told, at most block_bytes
    bool coded;
    int32_t micro_step;                 // -1: at the accumulation boundary
    int32_t wait[MICS_STREAMS];         // steps that must be done first, by index; -1: none
    mics_step_use uses[MICS_STEP_USES]; // compute: units read or differentiated; comm: uses[0]
    int32_t use_count;
    int32_t in_flight; // of a unit's pass, with its all-to-alls and copies: which micro-batch
    // FORWARD and BACKWARD: the unit's ops to run forward (in BACKWARD of them those that
    // mics_unit_plan.again says), then its gradient calls. Only a part of them where all-to-alls cut a
    // pass; the first part begins at 0.
    mics_step_part part;
    double flops; // compute steps
    // ALL_TO_ALL: block b at `from` goes to member b, whose block comes to block b at `to`. Offsets
    // in the activation arena of the first micro-batch in flight. STORE and FETCH: one of them is
    // an offset in host memory, likewise of the first micro-batch in flight.
    int64_t from, to;
    // comm steps: the group along `axis`, at the stage's scope, and each member's block; of a copy
    // block_elems and block_bytes alone.
    mics_step_stage stage;
    mics_group_axis axis;
    mics_algorithm algorithm; // of this stage
    mics_step_dtypes dtype;
    int64_t block_elems;
    size_t block_bytes; // as it travels
    // Small units that share the message: schedule->members[member_at ...], `unit` the first; count
    // 0: `unit` alone. A member's block of the message is its blocks of all units, in their order.
    int32_t member_at, member_count;
} mics_step;

/* Whether a step of the list runs in training step number `number` (from 1 on). A meeting is of what
 * the training step before left, so there is none in the first one. A stream passes over a step that
 * does not run, without its waits: who waits for it waits for those before it on its stream. Pure.
 *
 * Needs:   number >= 1.
 */
static inline bool mics_step_is_due(const mics_step *step, int64_t number)
{
    return step->period == 0 || (number > 1 && (number - 1) % step->period == step->offset);
}

/* Whether a step is a part of a unit's meeting. Pure. */
static inline bool mics_step_meets(const mics_step *step)
{
    return step->kind >= MICS_STEP_MEET_CHANGE && step->kind <= MICS_STEP_MEET_ADOPT;
}

/* Whether a kind of step sends what meets. Pure. */
static inline bool mics_step_kind_sends_meeting(mics_step_kind kind)
{
    return kind == MICS_STEP_MEET_SCATTER || kind == MICS_STEP_MEET_GATHER ||
           kind == MICS_STEP_MEET_SPREAD;
}

/* Whether a step is a computation. Pure. */
static inline bool mics_step_is_compute(const mics_step *step)
{
    return step->stream == MICS_STREAM_COMPUTE;
}

/* Whether a step is a copy between the activation arena and host memory. Pure. */
static inline bool mics_step_is_copy(const mics_step *step)
{
    return step->stream == MICS_STREAM_COPY;
}

/* Whether a step is a collective: no computation, and no copy. Pure. */
static inline bool mics_step_is_comm(const mics_step *step)
{
    return !mics_step_is_compute(step) && !mics_step_is_copy(step);
}

/* How much of its group along `axis` a collective runs over. Pure. */
static inline mics_group_scope mics_step_scope(const mics_step *step)
{
    return step->stage == MICS_STAGE_WHOLE   ? MICS_SCOPE_WHOLE
           : step->stage == MICS_STAGE_INTER ? MICS_SCOPE_INTER
                                             : MICS_SCOPE_INTRA;
}

// Whether a step sums: gradients, or what meets.
static inline bool mics_step_sums(const mics_step *step)
{
    return step->kind == MICS_STEP_REDUCE || step->kind == MICS_STEP_SCATTER ||
           step->kind == MICS_STEP_REPLICA_SCATTER || step->kind == MICS_STEP_MEET_SCATTER;
}

// Whether a step is of the second hop: on accumulators, in fp32.
static inline bool mics_step_is_second_hop(const mics_step *step)
{
    return step->kind == MICS_STEP_SCATTER || step->kind == MICS_STEP_REPLICA_SCATTER ||
           step->kind == MICS_STEP_REPLICA_GATHER;
}

typedef struct mics_step_list {
    mics_step *steps;
    int32_t count;
} mics_step_list;

// When a step of a list began and ended.
typedef struct mics_step_time {
    double begin_us, end_us;
} mics_step_time;

typedef enum mics_phase { MICS_PHASE_TRAIN, MICS_PHASE_EVAL, MICS_PHASES } mics_phase;

// One gradient operation of a unit's backward, in order. Places are offsets in the activation
// arena as a unit's plan has them, floats.
typedef enum mics_grad_kind { MICS_GRAD_OP, MICS_GRAD_COPY, MICS_GRAD_ADD } mics_grad_kind;
typedef struct mics_grad_call {
    mics_grad_kind kind;
    int32_t op;         // GRAD_OP: index in the unit's ops
    int64_t dout;       // gradient of the op's output (source of COPY and ADD); -1: none (LM head)
    int64_t din;        // gradient of its input (destination of COPY and ADD); -1: not wanted
    bool add_din;       // add to din
    int64_t din_second; // gradient of its second input, overwritten; -1: none
    bool add_params[MICS_OP_PARAMS]; // another op of this micro-step wrote this gradient before
    int64_t elems;                   // COPY and ADD: of the arena
    bool wide;                       // ADD: of fp32 numbers
} mics_grad_call;

// Where a unit's tensors and gradients lie: offsets in the activation arena, of the first
// micro-batch in flight. Offsets below in_flight_elems are of this micro-batch alone; those of
// micro-batch i are i * in_flight_elems further on.
typedef struct mics_unit_plan {
    int64_t *tensor_at; // by tensor: floats; -1: tokens
    // What it keeps from forward to backward: its input, and behind it what it saves.
    int64_t kept_at, kept_elems;
    int64_t host_at; // where that is in host memory meanwhile; -1: it stays in the arena
    // The unit in host memory whose place this unit's output takes, or -1. Forward waits until that is
    // stored, and behind this unit's backward it is fetched.
    int32_t displaced;
    mics_grad_call *grads;
    int32_t grad_count;
    bool loss; // the last unit: backward computes the losses, and training lists no forward of it
    // By op: backward runs its forward again. What it makes for backward lies where only one unit's
    // lies at a time.
    bool *again;
    bool forward_in_backward; // nothing is kept but the input: recomputed whole, or the loss
    // Of the arena: what lies in the part that is one unit's at a time, and what lives inside one
    // step.
    int64_t shared_elems, scratch_elems;
    double flops[2]; // of a forward, and of a backward
} mics_unit_plan;

// What numbers are held in.
typedef enum mics_precision {
    MICS_PRECISION_FP32, // everything in fp32; the optimizer shard of the parameters is the master
    // Parameters, gathered parameters, gradients of one micro-step and activations in 2 bytes (bf16
    // or fp16), and so they travel; accumulators in fp32; the optimizer holds fp32 masters beside
    // its moments. Row statistics and losses stay fp32.
    MICS_PRECISION_MIXED,
    MICS_PRECISIONS
} mics_precision;

// Local steps: islands (mics_mesh.islands) train for themselves, and meet. An *anchor* is what they
// agreed on last. In its meeting a unit's change since then, anchor less masters, is averaged over
// the islands by the tokens that counted in them; an outer Nesterov step with that as its gradient
// gives the new anchor, and masters become it.
// A unit meets every `every` steps. Fragment f of the units begins after every / fragments * f steps
// of a period (rounded down); its units follow each other over `overlap_steps` lists, about as many
// elements in each. Each meeting is in one list, of the training step behind the state that meets:
// behind the update that this list has at its head; or, where there is none, at its head. If
// overlap_steps is 0, forward waits for it. Else it runs beside computation, and masters become the
// new anchor ahead of that training step's own update: its gradients are of the masters that met.
// Source: DiLoCo, arXiv:2311.08105; Streaming DiLoCo, arXiv:2501.18512; moments: DES-LOC,
// arXiv:2505.22549.
typedef struct mics_outer {
    int32_t every;         // 0: no local steps
    int32_t fragments;     // 1 to every
    int32_t overlap_steps; // 0 to every
    int32_t moments_every; // periods between two means of the optimizer's states; 0: none
    mics_comm_dtype dtype; // of changes on the link; below FP32 with error feedback
} mics_outer;

typedef struct mics_schedule_spec {
    // Outlives the schedule; the schedule's own spec has it as `mesh` spreads its experts
    // (mics_model_spread).
    const mics_model *model;
    mics_mesh mesh;
    // Of one micro-step of one rank, of whose sequences it has 1 / mesh.sequence: tokens from (rank %
    // mesh.sequence) * length on. Its accelerator_bytes follow from the rest.
    mics_batch batch;
    int32_t micro_steps; // a step
    int32_t prefetch;    // units gathered ahead; 0: each backward waits for the reduction before it
    mics_recompute recompute;
    // Of so many units, spread over those that have a backward, host memory holds what they keep
    // between forward and backward. They share places with MICS_OFFLOAD_PLACES others.
    int32_t offload_units;
    // Micro-batches in flight, a layered group: a unit runs for the whole group before the next unit
    // does. So it is gathered once a group, and its second hop runs beside the backwards of the
    // units before it. Each micro-batch has its own activations and tokens. If G > 1, gradients of
    // a group are added in one slot, which is reduced once: sums are over a rank's micro-batches of
    // a group, then over ranks, then over groups. A slot of 2-byte numbers rounds at each addition.
    // 0: 1. The schedule's own spec has the number in use (schedule/layered.h; evaluations: 1).
    int32_t layered_micro_steps;
    // RING, or TWO_STAGE for groups of several members a node and several nodes. Of gathers in the
    // partition group; of reductions in the gradient group; of second hop and parameter sync.
    mics_algorithm gather, reduce, boundary;
    // Units of fewer elements stay whole on every rank: they are sharded as 1 | 1 | O.
    int64_t param_persistence_threshold;
    // Units of fewer padded elements share messages of at most so many, in second hop and parameter
    // sync. 0: none.
    int64_t coalesce_below;
    // MIXED: parameters and gradients are sent as BF16, whatever is given. First-hop reductions are
    // DIRECT, rounded once a stage; over several nodes of several ranks they run in two stages.
    mics_precision precision;
    // Such a DIRECT sum sends blocks of more elements in chunks of so many, with the same bits: those of
    // all members are held at once. 0: 2^26, which is 128 MiB; else a multiple of MICS_ALIGNMENT.
    int64_t sum_chunk_elems;
    mics_comm_dtypes params_dtype; // of parameters: gathers and parameter sync; FP32 or BF16
    mics_comm_dtypes grads_dtype;  // of gradients, inside the gradient group; FP32 or BF16
    // Of gradients at the accumulation boundary. INT8: of the first reduction, with error feedback;
    // BF16 for the collectives after it. On several nodes inter-node alone, and FP32 intra-node.
    mics_comm_dtypes boundary_dtype;
    // Members of a partition group map one copy of the parameters (mics_comm_share). A unit is read
    // there, in no slot, and its gather, once a list, is a barrier. Needs 1 < P <= ranks of a node,
    // parameters that are sent as they are held, and no device memory; else the schedule's own spec
    // says false.
    bool share_params;
    bool evaluation_only;      // no training list, no gradients, no optimizer state
    size_t comm_staging_bytes; // of the transport, a rank
    bool node_memory;          // copies of the state are kept in the memory of nodes
    // For ranks on devices with memory of their own (mics_engine_spec.device): the ledger is of
    // that memory.
    bool accelerator;
    bool sums_by_ring; // MIXED reductions by ring, as other systems have them: to plan, not to run
    // The second hop over replicas as other systems run it: each replica gather directly behind its
    // replica scatter, which is an all-reduce, and updates at the end. To plan, not to run.
    bool all_reduces;
    // Each replica gather directly behind its replica scatter, beside backward. Bits are the same. Not
    // where mics_schedule_may_gather_early says no.
    bool early_gathers;
    // Also rounded sums that send more inter-node bytes than fp32 sums, else refused. To plan, not
    // to run.
    bool any_rounding;
    bool rounded_sums;             // see mics_schedule_rounds_sums
    mics_optimizer_kind optimizer; // whose states are counted
    mics_state_dtype state_dtype;  // of the states; FP32 for an optimizer that orthogonalises
    // Of pairs: the micro-batch is even, and backward of the last unit first computes both rows'
    // losses.
    mics_preference preference;
    mics_outer outer; // of a mesh of several islands
    // Inter-node parameter sync sends changes of bf16 numbers, coded without loss (comm/delta): bits
    // are the same. Needs MIXED; else the schedule's own spec says false. Not with islands; to run, not on
    // accelerators.
    bool delta_sync;
    // (optional) A schedule of the same model, batch, precision, accelerator, recompute, offload_units,
    // optimizer, state_dtype, preference and evaluation_only, whose activation offsets are taken over: most
    // of the work of short lists. Read by mics_schedule_open alone; NULL in the schedule's own spec.
    const struct mics_schedule *like;
} mics_schedule_spec;

// Bytes a rank, by tag, exactly as the allocator will count them, and the total likewise: without
// MICS_MEM_OFFLOAD. MICS_MEM_HOST is not predicted (0).
typedef struct mics_memory_ledger {
    size_t bytes[MICS_MEM_TAGS];
    size_t total;
} mics_memory_ledger;

typedef struct mics_bytes {
    int64_t intra, inter; // sent intra-node, inter-node
} mics_bytes;

// A matrix that the optimizer makes orthogonal.
typedef struct mics_matrix {
    int64_t first, rows, columns; // its first element in the unit's block
    double flops;                 // of making it orthogonal
    int32_t param;                // of the block's
    int32_t owner;                // block of the optimizer group whose owner does that
} mics_matrix;

// Units whose matrices are made orthogonal together (owners.c): at most O, all of one length.
typedef struct mics_round {
    int32_t at, count; // they are schedule->members from `at` on; none where a unit has no matrices
    int32_t index;     // of the unit among them
    int32_t busiest;   // owner with the most FLOPs
} mics_round;

// What a unit's meetings take: places in the arena of MICS_MEM_OUTER, floats; -1: none.
typedef struct mics_meeting {
    int64_t anchor;   // of the optimizer shard
    int64_t momentum; // the outer one, of the rank's 1 / world of the unit
    // Error feedback below FP32: of what the scatter sends, 1 / ranks; of what the gather sends,
    // 1 / world.
    int64_t sent_residual, met_residual;
    // Of the optimizer shard, and behind it as much for each state of the optimizer where these meet;
    // units that never meet in one list share places.
    int64_t message;
    int32_t offset; // in the period: mics_step.offset
    int32_t window; // number of that offset among all that units have, from 0 on
} mics_meeting;

typedef struct mics_schedule {
    mics_memory *memory;
    mics_schedule_spec spec;
    mics_step_list lists[MICS_PHASES];
    mics_unit_plan *units;
    mics_model *spread; // NULL: the model is as it was given
    int64_t
        *padded_elems; // by unit: flat length with the mesh's padding; of experts a rank's block
    mics_sharding
        *sharding;        // by unit: the mesh's, or 1 | 1 | O; of experts over E; frozen: P | P | P
    int32_t *experts;     // by unit: the mesh's E of units of experts, else 1
    int64_t *param_slots; // by slot: elements
    int32_t param_slot_count;
    int64_t *grad_slots; // by slot: elements
    int32_t grad_slot_count;
    int64_t activation_elems; // of the activation arena; floats, unless MIXED
    int64_t in_flight_elems;  // of them, those of one micro-batch in flight
    int64_t offload_elems;    // in host memory, of one micro-batch in flight
    int32_t offload_max;      // the most that spec.offload_units may be
    int64_t workspace_elems;  // floats: the largest op workspace, then one loss a token
    int64_t workspace_losses; // where those losses begin; of pairs behind them as many row_scales
    // int32 of a micro-batch in flight: inputs, targets, on accelerators their order, and all
    // rows, those that count first; segments, and behind them, where ranks share sequences, those of
    // whole ones; of pairs each sequence's reference (a float), and a mics_dropout_draw, where there
    // are any; and where these three begin.
    int64_t data_elems, data_segments, data_references, data_draw;
    // accelerator: where the device's sums of a step lie behind them, twice MICS_ALIGNMENT bytes
    int64_t workspace_sums;
    // By stream, on 64: rounded blocks of one collective, and behind them, within the same bytes,
    // the message that small units share.
    size_t message_bytes[MICS_STREAMS], coalesced_bytes[MICS_STREAMS];
    mics_round *rounds;     // by unit
    mics_matrix *matrices;  // by unit, largest first
    int32_t *matrix_at;     // by unit, and behind the last one: where they begin
    int64_t momentum_elems; // floats: momentum of the largest round; 0: none
    int64_t *residual_at;   // by unit: int8's rounding errors (error feedback), floats; -1: none
    int64_t residual_elems;
    mics_meeting *meetings; // by unit; NULL: no local steps
    int64_t outer_elems;    // of the arena of MICS_MEM_OUTER, floats
    int32_t *members;       // units of steps that stand for several
    int32_t member_count;
    mics_memory_ledger ledger;
    // Sent by all ranks together; of MEET_* in all training steps of a period behind the first.
    mics_bytes kind_bytes[MICS_PHASES][MICS_STEP_KINDS][MICS_STAGES];
} mics_schedule;

/* Ranks that together hold a unit's block once or several times: 1 / E of all for experts. Pure.
 *
 * Needs:   0 <= unit < units of the model.
 */
static inline int32_t mics_schedule_unit_ranks(const mics_schedule *schedule, int32_t unit)
{
    return schedule->spec.mesh.ranks / schedule->experts[unit];
}

/* Whether a unit has gradients, optimizer state and updates. Pure.
 *
 * Needs:   0 <= unit < units of the model.
 */
static inline bool mics_schedule_trains(const mics_schedule *schedule, int32_t unit)
{
    return !schedule->spec.model->units[unit].frozen;
}

/* Whether a unit has a backward: it is the last one, or something trained leads to what it makes.
 * Pure.
 *
 * Needs:   0 <= unit < units of the model.
 */
static inline bool mics_schedule_has_backward(const mics_schedule *schedule, int32_t unit)
{
    const mics_unit *of = &schedule->spec.model->units[unit];
    return mics_unit_computes(of) && (of->out < 0 || !of->tensors[of->out].fixed);
}

/* What a rank has of a unit at a degree of the unit's own sharding (or mics_schedule_unit_ranks), of
 * the padded elements: for experts those of its block, which mics_schedule_unit_block says. Pure.
 *
 * Needs:   0 <= rank < ranks of the mesh.
 */
mics_range mics_schedule_unit_range(const mics_schedule *schedule, int32_t unit, int32_t rank,
                                    int32_t degree);

/* Which of a unit's elements (no padding) a rank's block is: of experts 1 / E of them, else all.
 * Pure.
 *
 * Needs:   0 <= unit < units of the model, 0 <= rank < ranks of the mesh.
 */
mics_range mics_schedule_unit_block(const mics_schedule *schedule, int32_t unit, int32_t rank);

/* The same as parameters. Pure.
 *
 * Needs:   as mics_schedule_unit_block.
 */
mics_range mics_schedule_unit_params(const mics_schedule *schedule, int32_t unit, int32_t rank);

/* Whether a step is the last part of its computation. Pure.
 *
 * Needs:   a step of kind FORWARD or BACKWARD.
 * Returns: true where the computation is one step.
 */
bool mics_schedule_ends_pass(const mics_schedule *schedule, const mics_step *step);

/* Whether FORWARD or BACKWARD runs an op of its unit forward. Pure.
 *
 * Needs:   op >= 0.
 */
static inline bool mics_schedule_runs(const mics_schedule *schedule, const mics_step *step,
                                      int32_t op)
{
    return op >= step->part.op && op < step->part.op_end &&
           (step->kind == MICS_STEP_FORWARD || schedule->units[step->unit].again[op]);
}

/* Whether a unit is read where its shards lie (mics_schedule_spec.share_params). Pure.
 *
 * Needs:   0 <= unit < units of the model.
 */
static inline bool mics_schedule_shares(const mics_schedule *schedule, int32_t unit)
{
    return schedule->spec.share_params && schedule->sharding[unit].params > 1;
}

/* Whether the updates of a step are the head of the next list, and its replica gathers, unless they
 * are early: O < ranks, and no all_reduces. Pure.
 */
static inline bool mics_schedule_defers(const mics_schedule *schedule)
{
    return schedule->spec.mesh.sharding.optimizer < schedule->spec.mesh.ranks &&
           !schedule->spec.all_reduces;
}

/* Makes the schedule.
 *
 * Needs:   micro_steps >= 1, prefetch >= 0, layered_micro_steps >= 0, batch sizes >= 1,
 *          mesh.sequence * batch.length <= model->positions; parameter sync is rounded only where gathers are
 *          (P > 1), as replicas must agree.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged (also: rounded sums would send more between nodes than
 *          whole ones, as they may where groups have several members a node); MICS_ERR_MEMORY.
 * Owns:    close with mics_schedule_close; borrows the model.        Threads: any.
 */
mics_status mics_schedule_open(mics_memory *memory, const mics_schedule_spec *spec,
                               mics_schedule **schedule_out);

/* Closes; NULL is allowed. */
void mics_schedule_close(mics_schedule *schedule);

/* Checks a finished schedule against the numbered invariants of src/schedule/validate.c; a break is
 * a defect of mics. A run's start does so once, planning never.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with the invariant's number and the step;
 *          MICS_ERR_MEMORY.
 * Threads: any.
 */
mics_status mics_schedule_validate(const mics_schedule *schedule);

/* "fp32", "mixed"; never NULL. */
const char *mics_precision_text(mics_precision precision);

/* "gather", "gather inter", "forward", ... ; never NULL. */
const char *mics_step_text(mics_step_kind kind, mics_step_stage stage);

/* "compute", "intra", "inter", "copy"; never NULL. */
const char *mics_stream_text(mics_stream stream);

/* Name of an algorithm: "ring", "two-stage", "direct"; never NULL. */
const char *mics_algorithm_text(mics_algorithm algorithm);

/* "ring", "direct", ..., and "two-stage" for what runs in stages; never NULL. */
const char *mics_step_algorithm_text(const mics_step *step);

/* The units of a collective: &step->unit where it is one alone. Pure.
 *
 * Returns: never NULL; `*count_out` of them.     Owns: they are the schedule's.
 */
const int32_t *mics_schedule_members(const mics_schedule *schedule, const mics_step *step,
                                     int32_t *count_out);

#ifdef __cplusplus
}
#endif
#endif
