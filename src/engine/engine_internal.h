// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files of this module share; nobody else includes it.
#ifndef MICS_ENGINE_INTERNAL_H
#define MICS_ENGINE_INTERNAL_H

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

// What a step enqueues, as a graph; see graphs.c.
typedef struct step_graph {
    int32_t shared;    // step whose graph this one uses; -1: none
    bool ran;          // as it is
    void *graph;       // NULL: not captured
    double loss_scale; // when it was
} step_graph;

// Enqueues what a step does on the computing stream, and nothing else.
typedef void step_calls(mics_engine *engine, const mics_step *step);

// What a communication thread does, on its stream.
typedef mics_status (*worker_job)(mics_engine *engine, mics_stream stream);

// The communication thread of one stream: runs one job at a time. Guarded by the engine's mutex.
// That of computation has no job: it is the thread which calls the engine.
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

// What a rank does between two lists, or on the way of one.
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
    bool begun;       // before_update was called
} pending_update;

// What a rank's heartbeat tells of it.
typedef struct engine_status {
    int64_t run;  // calls of the engine so far: all ranks make the same ones
    int64_t step; // of the newest training step
    int32_t call; // engine_call
    int32_t phase;
    int32_t at[MICS_STREAMS]; // ENGINE_LIST: the step that each stream is in, or comes to; -1
    int32_t inside; // bit s: stream s is in that step; else it waits for others, or has ended it
} engine_status;

// What a rank's computation adds up in a step, where it computes.
typedef struct step_sums {
    double loss, sum_squares, updated_squares; // as in mics_agreement
    double router[MICS_ROUTER_SUMS];           // as in mics_step_result
} step_sums;
_Static_assert(sizeof(step_sums) <= MICS_ALIGNMENT, "a device's sums have a line (ledger.c)");

struct mics_engine {
    mics_engine_spec spec;
    const mics_schedule *schedule;
    int32_t rank;

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
    float *workspace; // of ops; then `losses`, and a device's `sums`
    size_t workspace_bytes;
    float *losses;                // one a token
    char *messages[MICS_STREAMS]; // compressed blocks of the collective under way; one arena
    float *residual;              // behind them: what int8 lost, by unit
    // Behind that, of a round: this rank's shards, a block for each owner; then what it owns
    // (matrices.c).
    float *momentum;
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
    mics_agreement *agreements; // by rank; behind them as much memory to gather them in
    mics_step_time *times;

    worker workers[MICS_STREAMS]; // not started for computation, nor for a stream without steps
    pthread_mutex_t mutex;
    mics_stream home; // the stream that always has a thread
    bool locks_open;

    // The run of one list. `done`, `failure` and `status` are guarded by `mutex`; status.run stays
    // while any stream works.
    bool all_know;    // every rank has found the failure for itself, from the same numbers
    bool completing;  // mics_engine_complete: not a whole list
    bool brings_back; // the list that runs completes the step before
    bool stale;       // other ranks' parts of the parameter shards are older than their masters
    int32_t done[MICS_STREAMS]; // newest step finished on each stream; -1: none
    mics_status failure;        // first failure on any stream
    mics_status agree_mine;     // argument of the agreement job
    bool any_mine, any_found;   // argument and result of the question to all ranks
    mics_phase phase;
    int32_t
        *micro_step_read; // by micro-batch in flight: micro-step whose tokens are there; -1: none
    float lr;
    pending_update pending; // `left` is guarded by `mutex` for other threads than the engine's
    mics_completions completions;
    double loss_scale; // losses are differentiated times this
    mics_scaler scaler;
    _Atomic uint32_t telling; // what the next agreement says
    // Guarded by `mutex`; see mics_engine_hold.
    bool holding;               // the next agreement says that no rank is to update
    bool word_given;            // in this step's agreement
    double begin_us, agreed_us; // of the list; when the ranks had agreed
    const mics_step_list *list;
    const mics_batch_source *source;
    int64_t step;
    engine_status status;
    mics_step_result result;
    mics_step_limits limits;
    struct replicas *replicas; // NULL: for evaluation only
};

// ---- streams.c ----

/* Starts the communication threads that the schedule needs.   Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status worker_open(mics_engine *engine);
void worker_close(mics_engine *engine);

/* Gives a stream's communication thread a job; waits for it and returns its status (MICS_OK at once
 * where the stream has no thread). One job at a time. */
void worker_start(mics_engine *engine, mics_stream stream, worker_job job);
mics_status worker_join(mics_engine *engine, mics_stream stream);

// What a step does; where it is enqueued, it is done later.
typedef mics_status step_job(mics_engine *engine, const mics_step *step);

/* Runs the steps of a thread's streams of engine->list; those of other threads that they must wait
 * for, it waits for. A failure makes every wait of this list fail; the first one stays. */
mics_status stream_run(mics_engine *engine, mics_stream thread, step_job *run);

// ---- status.c ----

/* Begins a call of the engine, which every rank makes alike: a new number in the heartbeat. */
void status_call(mics_engine *engine, engine_call call);

/* Says in the heartbeat where a stream is. Called with the mutex. */
void status_step(mics_engine *engine, mics_stream stream, int32_t index, bool inside);

/* Says in it where the device is, in place of where the threads are that enqueue. */
void status_device(mics_engine *engine, const int32_t at[MICS_STREAMS], int32_t inside);

/* The first failure on any stream of the list. */
mics_status stream_failure(mics_engine *engine);

/* Whether the thread of one stream runs another's steps, or its own. */
bool stream_served(const mics_engine *engine, mics_stream thread, mics_stream stream);

/* Whether a step runs: of mics_engine_complete only what completes the newest step. */
static inline bool step_runs(const mics_engine *engine, const mics_step *step)
{
    const bool updates = step->kind == MICS_STEP_UPDATE || step->kind == MICS_STEP_MOMENTUM ||
                         step->kind == MICS_STEP_ORTHOGONALISE;
    return !engine->completing || step->kind == MICS_STEP_PARAM_SYNC ||
           mics_schedule_is_left_over(engine->schedule, step->kind) ||
           (updates && mics_schedule_defers(engine->schedule));
}

/* What both ends of an exchange must agree on, and what errors call it. */
enum { STEP_NAME_BYTES = 224 };
void name_step(const mics_engine *engine, const mics_step *step, char *text, size_t capacity);

// ---- agree.c ----

/* Ends the world for a failure, and returns it. Each stream wakes the other ranks itself when it
 * fails, since the other stream of this rank may be busy or have ended well. A failure that every
 * rank has found for itself needs no such thing. */
mics_status end_world_unless_ok(mics_engine *engine, mics_status status);

// ---- complete.c ----

/* Before a run of a phase's list, or of some of its steps. */
void begin_streams(mics_engine *engine, mics_phase phase);

/* Runs all streams to their ends. A failure of this rank's computation also wakes its own
 * communication threads by ending the world.
 *
 * Returns: MICS_OK; the first failure on any stream. */
mics_status run_streams(mics_engine *engine);

// ---- collectives.c, compute_steps.c, run_op.c ----

/* One collective; on a device it is enqueued, but for AGREE, which is done on return. */
mics_status run_comm_step(mics_engine *engine, const mics_step *step);
mics_status run_compute_step(mics_engine *engine, const mics_step *step);

/* Runs each collective of the schedule that differs in kind or size once on a device, in list
 * order: connections are there then, and kernels loaded, before a step waits for them. Arenas hold
 * zeros before and after.   Collective: over the world. */
mics_status collectives_warm_up(mics_engine *engine);

enum { TOLD_HOLD = 1 << 30 }; // the bit of mics_agreement.told that mics_engine_hold sets

/* What this rank tells the others in the step's agreement. */
uint32_t give_word(mics_engine *engine);

/* Concludes from the step's agreement, which is done, what becomes of it: fills the result, and
 * engine->pending of a step that updates.
 *
 * Returns: MICS_OK; MICS_ERR_NUMERIC on every rank. */
mics_status settle_step(mics_engine *engine);

/* Takes the mean loss of an evaluation's batch, once AGREE is done, into the result.
 *
 * Returns: MICS_OK; MICS_ERR_NUMERIC on every rank, logged by rank 0. */
mics_status settle_evaluation(mics_engine *engine);

/* Logs what the newest training step's verdict means, on rank 0.    Returns: MICS_ERR_NUMERIC. */
mics_status fail_verdict(const mics_engine *engine);

// ---- matrices.c: momentum of a round that is made orthogonal ----

/* This rank's shard of a unit's momentum as an owner (a block of the optimizer group) gets it, or has
 * sent it back. */
float *momentum_for(const mics_engine *engine, int32_t unit, int32_t owner);

/* All momentum of the unit that this rank takes matrices of in a unit's round. Where O = 1, which
 * sends nothing, it is momentum_for. */
float *owned_momentum(const mics_engine *engine, int32_t unit);

/* A unit's momentum, which its first owner has, for its other owners. */
void copy_to_owners(const mics_engine *engine, int32_t unit);

/* Makes the matrices orthogonal that this rank owns in a unit's round. */
void orthogonalise(const mics_engine *engine, int32_t unit);

// ---- compute_steps.c, run_op.c ----

void autotune_gemms(mics_engine *engine); // compute_steps.c
void run_op_forward(mics_engine *engine, const mics_step *step, int32_t op);
void run_grad_call(mics_engine *engine, const mics_step *step, const mics_grad_call *call);

/* Op `op` and the next one in one call; call `at` of the unit's and the next one likewise. */
void run_fused_forward(mics_engine *engine, const mics_step *step, int32_t op);
void run_fused_backward(mics_engine *engine, const mics_step *step, int32_t at_call);

// ---- fusion.c ----

/* Whether a unit's op, or gradient call, runs as one call with the next one. */
bool is_fused_forward(const mics_engine *engine, int32_t unit, int32_t op);
bool is_fused_backward(const mics_engine *engine, int32_t unit, int32_t call);

// ---- graphs.c ----

/* Finds which steps have graphs.   Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status graphs_open(mics_engine *engine);
void graphs_close(mics_engine *engine);

/* Enqueues `calls`, or a graph of them. Needs: a device with graphs (engine->graphs). */
void graphs_run(mics_engine *engine, const mics_step *step, step_calls *calls);

// ---- events.c ----
//
// Event 2 i is where step i of the training list began on its stream, 2 i + 1 where it ended. Those
// of the evaluation's list come behind; the last ones tell, by stream, where a list ended.

/* Before the first step of a list of a thread's streams: lets them wait for all that the streams
 * did before; and behind the last one. */
void device_begin_streams(mics_engine *engine, mics_stream thread);
void device_end_streams(mics_engine *engine, mics_stream thread);

/* Around the calls of one step: waits for other streams' steps, events, a range in the profiler. */
void device_begin_step(mics_engine *engine, int32_t index);
void device_end_step(mics_engine *engine, int32_t index);

/* Waits until all streams have reached what step `index` of the list waits for. The device, the
 * comm and the time-out are looked after meanwhile.
 *
 * Returns: MICS_OK; MICS_ERR_TIMEOUT, MICS_ERR_COMM, MICS_ERR_DEVICE, logged. */
mics_status device_wait_step(mics_engine *engine, int32_t index);

/* Waits for the ends of all streams' newest lists in the same way. */
mics_status device_drain(mics_engine *engine);

/* What computation waited for in the list that has run, into the result. */
void device_read_exposed(mics_engine *engine);

/* Times of all steps of the newest training list; waits for the last of them. */
void device_read_times(const mics_engine *engine);

// ---- watch.c ----

/* Says that nothing has moved on this rank's device: it is in step `index` of the list, on `stream`
 * (COMPUTE: in no collective; index -1: in no step). */
void watch_explain_device(mics_engine *engine, mics_stream stream, int32_t index, double waited_s);

/* The engine's time-out handler: says which collective is late, who has not entered it, and what
 * those ranks were last seen doing. `ctx` is the engine. */
void watch_explain(void *ctx, const mics_timeout *late);

// ---- state.c ----

/* The group that a collective of the schedule runs over. */
static inline const engine_group *group_of(const mics_engine *engine, const mics_step *step)
{
    return &engine->groups[step->axis][mics_step_scope(step)];
}

/* Computes the maps and rings, and takes the arenas as the ledger says. On failure the caller
 * closes the engine. */
mics_status state_open(mics_engine *engine);

/* What state_open leaves out: the parameters, where the partition group shares them. Collective:
 * over that. */
mics_status state_share(mics_engine *engine);

/* Registers the arenas of a device that collectives use. Collective: over the world. */
mics_status state_register(mics_engine *engine);
void state_close(mics_engine *engine);

/* Tokens of a micro-batch in flight: inputs, targets, on a device their order; behind them segments
 * (mics_schedule.data_segments) and what the masks of dropout and routers are drawn from
 * (data_draw), where the model has any. */
int32_t *in_flight_tokens(const mics_engine *engine, int32_t in_flight);

/* `range` of this rank's block of a unit, cut at the block's length, as elements of the unit. */
mics_range unit_elems_of(const mics_engine *engine, int32_t unit, mics_range range);

/* This rank's elements of a unit, or of its block of one of experts, at a degree. */
mics_range unit_range(const mics_engine *engine, int32_t unit, int32_t degree);

/* A unit's accumulator where it holds numbers of dtype (mics_schedule_rounds_sums). */
void *rounded_grads(const mics_engine *engine, int32_t unit);

/* Of one that holds fp32 the optimizer shard, and the rank's 1 / ranks, which lies inside: what the
 * second hop leaves. */
float *owned_grads(const mics_engine *engine, int32_t unit);
float *summed_grads(const mics_engine *engine, int32_t unit);

/* How a step uses a unit; NULL when it does not. */
const mics_step_use *step_use(const mics_step *step, int32_t unit);

/* The whole flat buffers of a unit in a compute step: its slot, or its persistent buffer. NULL when
 * the step does not use the unit. */
void *used_params(const mics_engine *engine, const mics_step *step, int32_t unit);
void *used_grads(const mics_engine *engine, const mics_step *step, int32_t unit);

/* Element number `elems` of a buffer of numbers of engine->dtype. */
void *elem_at(const mics_engine *engine, void *base, int64_t elems);

/* A unit's parameter shard. */
void *shard_at(const mics_engine *engine, int32_t unit);

/* Where kernels run that belong to a stream; computation alone has a workspace. */
mics_exec exec_on(const mics_engine *engine, mics_stream stream);

// The optimizer shard of a unit, or a part of it, in the device's memory.
typedef struct optimizer_shard {
    mics_range range; // of the unit's elements (no padding), cut at its own length
    float *masters;
    float *states[MICS_OPTIMIZER_STATES]; // NULL: held in fewer bits (state_part)
    void *params;        // the same numbers of dtype; NULL: the masters are the parameters
    const float *grads;  // of an engine that trains
    void *rounded_grads; // in its place, of dtype (mics_schedule_rounds_sums)
} optimizer_shard;
optimizer_shard optimizer_shard_of(const mics_engine *engine, int32_t unit);

/* Elements of a unit's optimizer shard with padding, and where one of its states is. */
int64_t owned_elems(const mics_engine *engine, int32_t unit);
void *state_at(const mics_engine *engine, int32_t unit, int32_t state);

/* Elements whose states, as fp32, fill the workspace or the device's cache. */
int64_t state_part_elems(const mics_engine *engine);

/* So many elements of a state as it is held, from element `begin` of the shard on; those of padding
 * are neither written nor read.
 * Needs:   begin a multiple of MICS_STATE_BLOCK. */
mics_state_part state_part(const mics_engine *engine, int32_t unit, int32_t state, int64_t begin,
                           int64_t elems);

// ---- replicas.c ----

/* Takes what comparisons need.     Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status replicas_open(mics_engine *engine);
void replicas_close(mics_engine *engine);

// ---- host_copy.c ----

/* Takes the host's copy of a device's optimizer shards, unless it is there; none where the engine
 * computes in the host's memory. */
mics_status host_copy_open(mics_engine *engine);

#endif
