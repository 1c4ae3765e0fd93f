// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Types and functions that the files of this module share; private to the engine.
#pragma once

#include "mics/core/agreement.h"
#include "mics/core/engine.h"
#include "ops/kernels.h"
#include <pthread.h>
#include <stdatomic.h>

// Where units and slots begin in their arenas, elements.
typedef struct arena_map {
    int64_t *params, *grads, *moments; // by unit; `moments`: of a state that is fp32, of masters
    int64_t *states;                   // by unit: of one state as it is held, bytes
    int64_t states_end;                // of one state of all units
    int64_t *copies;                   // by unit: of this rank's shards, side by side
    int64_t params_end;                // of the arena
    int64_t *param_slots, *grad_slots; // by slot
} arena_map;

// One collective's group, with the block that each member owns.
typedef struct engine_group {
    mics_group group;
    int32_t *block_of; // by member
    int32_t own_block;
} engine_group;

// The CUDA graph of what a step enqueues; see graphs.c.
typedef struct step_graph {
    int32_t shared;    // step whose graph this one uses; -1: none
    bool ran;          // as it is
    void *graph;       // NULL: not captured
    double loss_scale; // when it was
} step_graph;

// Enqueues what a step does on the computing stream, and nothing else.
typedef void step_calls(mics_engine *engine, const mics_step *step);

// A job of a communication thread, on its stream.
typedef mics_status (*worker_job)(mics_engine *engine, mics_stream stream);

// The communication thread of one stream: runs one job at a time. Guarded by the engine's mutex.
// The computing stream has no thread of its own: its thread is the engine's caller.
typedef struct worker {
    mics_engine *engine;
    mics_stream stream;
    pthread_t thread;
    pthread_cond_t woken;    // where this thread alone sleeps
    const mics_step *awaits; // it sleeps until what this step waits for is done; NULL: it does not
    bool started, busy, closing;
    worker_job job;
    mics_status job_status;
} worker;

// A rank's state within a list of steps, or between two lists.
typedef enum engine_call {
    ENGINE_IDLE, // whatever its caller does: reads, saves, reports
    ENGINE_LIST, // runs a list
    ENGINE_AGREE,
    ENGINE_COMPLETE // what a step left for the next
} engine_call;

// The newest step's update, from the agreement on. Where it is deferred (mics_schedule_defers), the
// next list has it at its head, or mics_engine_complete runs it.
typedef struct pending_update {
    int32_t left; // units; 0: nothing is due
    int64_t step; // that the optimizer counts
    float lr;
    float grad_scale; // clipping, and the loss scale back
} pending_update;

// A rank's heartbeat.
typedef struct engine_status {
    int64_t run;  // calls of the engine so far: all ranks make the same ones
    int64_t step; // of the newest training step
    int32_t call; // engine_call
    int32_t phase;
    int32_t at[MICS_STREAMS]; // ENGINE_LIST: the step that each stream is in, or comes to; -1
    int32_t inside; // bit s: stream s is in that step; else it waits for others, or has ended it
} engine_status;

// Sums of a step's computation, in the memory where the rank computes.
typedef struct step_sums {
    double loss, sum_squares, updated_squares; // as in mics_agreement
    double router[MICS_ROUTER_SUMS];           // as in mics_step_result
    double preference[MICS_PREFERENCE_SUMS];
} step_sums;
_Static_assert(sizeof(step_sums) <= 2 * MICS_ALIGNMENT, "a device's sums have 2 lines (ledger.c)");

// What a rank says of its island's newest step in AGREE_WORLD, beside what it tells itself.
typedef struct world_record {
    double loss; // sum over the island
    double grad_norm;
    int64_t counted, memory_peak_bytes;
    int64_t step; // that it is in
    uint32_t told;
    uint16_t verdict, fresh; // fresh: nobody has heard of the newest step yet
    double router_sums[MICS_ROUTER_SUMS];
    double preference_sums[MICS_PREFERENCE_SUMS];
} world_record;

// Of an engine of several islands.
struct islands {
    world_record own;      // of the newest step
    world_record *records; // by rank of the world; behind them as much memory to gather them in
    int64_t *counted;      // as in mics_outer_state
    float *weights;        // by window: of this island's changes in the list that runs
    int64_t met;           // as in mics_outer_state
    int64_t number;        // training step whose list's meetings run; 0: none
    int32_t windows;
    int32_t window; // mics_engine_meet: the one that meets; -1
    int32_t left;   // adoptions of the list that runs, or of the next; guarded by the mutex
    uint32_t told;  // by the world in this list
    bool fresh;     // `own` is news
    bool swapped;   // mics_engine_swap_agreed
};

struct mics_engine {
    mics_engine_spec spec;
    const mics_schedule *schedule;
    int32_t rank;
    int32_t first; // rank of its island

    mics_device *device, *own_device; // own_device: opened here, as the spec names none
    const mics_kernels *ops;          // spec.kernels; on the CPU their table of dtype
    mics_dtype dtype;                 // of parameters, activations and gradients of one micro-step
    size_t elem_bytes;                // of one such number
    bool params_booked;               // shared parameters; they are none of the allocator's

    // Arenas, one block each, in the device's memory. Those of `void *` hold numbers of dtype and
    // are walked by elem_at.
    void *params; // by unit: the shard at P; in fp32 with the optimizer shard (masters) in place
    float *grads; // by unit: the accumulator at G; fp32, or numbers of dtype
    // Of the optimizer: by unit, one state of the optimizer shard at O as it is held, then the
    // next; then masters (MIXED).
    void *moments;
    void *gather; // parameter slots
    void *reduce; // gradient slots
    void *activations;
    void *offloaded;  // blocks of activations in host memory
    float *workspace; // of ops; then `losses`, and a device's `sums`
    size_t workspace_bytes;
    float *losses;                // one a token; of pairs behind them as many row_scales
    char *messages[MICS_STREAMS]; // compressed blocks of the collective under way; one arena
    float *residual;              // behind them: what int8 lost, by unit
    // Behind that, of a round: this rank's shards, a block for each owner; then what it owns
    // (matrices.c).
    float *momentum;
    float *outer;    // anchors and meetings (mics_meeting)
    int32_t *tokens; // by micro-batch in flight: in_flight_tokens

    // Where computation adds up what the ranks agree on: in own_sums, or on a device, from where
    // it comes to host_sums.
    step_sums *sums, *host_sums;
    step_sums own_sums;     // the CPU's
    int32_t *staged_tokens; // by micro-step, as `tokens`; page-locked
    int32_t *counts;        // scratch for their order
    float *host_copy;       // of shards that callers cannot use in place; see host_copy.c

    step_graph *graphs[MICS_PHASES]; // by step; NULL: none are used

    arena_map map;
    engine_group groups[MICS_AXES][MICS_SCOPES];
    mics_agreement
        *agreements; // by rank of the island; behind them as much memory to gather them in
    // Of the coded parameter sync under way, bytes by rank; behind them as much memory likewise.
    int64_t *sizes;
    // Coded parameter syncs send numbers: of the next run of a list, and of this one, if this rank has
    // its way; and of the sync under way, by all ranks.
    bool whole_next, wants_whole, sync_whole;
    mics_bytes unsent, unsent_by_all; // of this run
    mics_step_time *times;

    worker workers[MICS_STREAMS]; // not started for computation, nor for a stream without steps
    pthread_mutex_t mutex;
    mics_stream home; // the stream that always has a thread
    bool locks_open;

    // The run of one list. `done`, `failure` and `status` are guarded by `mutex`; status.run stays
    // while any stream works.
    bool all_know;    // every rank has found the failure for itself, from the same numbers
    bool completing;  // mics_engine_complete: not a whole list
    bool changes;     // before_update was called in this run of the streams
    bool brings_back; // the list that runs completes the step before
    bool stale;       // other ranks' parts of the parameter shards are older than their masters
    int32_t done[MICS_STREAMS]; // newest step finished on each stream; -1: none
    mics_status failure;        // first failure on any stream
    mics_status agree_mine;     // argument of the agreement job
    bool any_mine, any_found;   // argument and result of the question to all ranks
    mics_phase phase;
    int32_t
        *micro_step_read;  // by micro-batch in flight: micro-step whose tokens are there; -1: none
    int64_t *counted_rows; // by micro-batch in flight: its tokens that count
    float lr;
    pending_update pending; // `left` is guarded by `mutex` for other threads than the engine's
    mics_completions completions;
    double loss_scale; // losses are differentiated times this
    mics_scaler scaler;
    _Atomic uint32_t telling; // what the next agreement says
    bool written;             // the state, by the caller, since it was hashed last
    // Guarded by `mutex`; see mics_engine_hold.
    bool holding;               // the next agreement says that no rank is to update
    bool ballot_cast;           // in this step's agreement
    bool frozen;                // no update begins
    int64_t updated;            // the newest step whose update has begun
    double begin_us, agreed_us; // of the list; when the ranks had agreed
    double waited_us;           // exposed communication of the newest training step
    const mics_step_list *list;
    const mics_batch_source *source;
    int64_t step;
    engine_status status;
    mics_step_result result;
    mics_world_result world;
    int64_t noted_step; // of the newest result
    mics_step_limits limits;
    struct replicas *replicas; // NULL: for evaluation only
    struct islands *islands;   // NULL: there is one
    struct scrub *scrub;       // NULL: it is not asked for, or no state exists once
};

/* What this rank gives to its island's agreement. */
static inline mics_agreement *own_agreement(const mics_engine *engine)
{
    return &engine->agreements[engine->rank - engine->first];
}

/* This rank's number among those that share its sequences. */
static inline int32_t sequence_member(const mics_engine *engine)
{
    return engine->groups[MICS_AXIS_SEQUENCE][MICS_SCOPE_WHOLE].group.index;
}

/* Whether the loss is of pairs of sequences, else of tokens. */
static inline bool has_pairs(const mics_engine *engine)
{
    return engine->schedule->spec.preference.kind != MICS_PREFERENCE_NONE;
}

/* Tokens of a micro-batch, or pairs: of so many losses of a rank gradients are, if all count. */
static inline int64_t batch_items(const mics_engine *engine)
{
    const mics_batch *batch = &engine->schedule->spec.batch;
    return has_pairs(engine) ? batch->sequences / 2 : batch->sequences * batch->length;
}
