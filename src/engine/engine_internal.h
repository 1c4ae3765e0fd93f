// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files of this module share; nobody else includes it.
#ifndef MICS_ENGINE_INTERNAL_H
#define MICS_ENGINE_INTERNAL_H

#include "mics/engine.h"
#include <pthread.h>
#include <stdatomic.h>

// Where units and slots begin in their arenas, elements.
typedef struct arena_map {
    int64_t *params, *grads, *moments; // by unit
    int64_t *param_slots, *grad_slots; // by slot
} arena_map;

// One collective's group, with the block that each member owns.
typedef struct group_ring {
    mics_group group;
    int32_t *block_of; // by member
    int32_t own_block;
} group_ring;

// What a communication thread does, on its stream.
typedef mics_status (*worker_job)(mics_engine *engine, mics_stream stream);

// The communication thread of one stream: runs one job at a time. Guarded by the engine's mutex.
typedef struct worker {
    mics_engine *engine;
    mics_stream stream;
    pthread_t thread;
    bool started, busy, closing;
    worker_job job;
    mics_status job_status;
} worker;

// What a rank does between two lists, or on the way of one.
typedef enum engine_call {
    ENGINE_IDLE, // whatever its caller does: reads, saves, reports
    ENGINE_LIST, // runs a list
    ENGINE_AGREE,
    ENGINE_PUBLISH
} engine_call;

// What the board tells of a rank.
typedef struct engine_note {
    int64_t run;  // calls of the engine so far: all ranks make the same ones
    int64_t step; // of the newest training step
    int32_t call; // engine_call
    int32_t phase;
    int32_t at[MICS_STREAMS]; // ENGINE_LIST: the step that each stream is in, or comes to; -1
    int32_t inside; // bit s: stream s is in that step; else it waits for others, or has ended it
} engine_note;

struct mics_engine {
    mics_engine_spec spec;
    const mics_schedule *schedule;
    int32_t rank;

    // Arenas, one block each.
    float *params;  // by unit: the shard at P, holding the owned piece (master weights) in place
    float *grads;   // by unit: the accumulator at G
    float *moments; // by unit: first moments of the piece at O, then second moments
    float *gather;  // parameter slots
    float *reduce;  // gradient slots
    float *activations;
    float *workspace;         // of ops, then one loss a token
    char *wire[MICS_STREAMS]; // packed blocks of the collective under way; one arena
    float *residual;          // behind them: what int8 lost, by unit
    int32_t *inputs, *targets;

    arena_map map;
    group_ring rings[MICS_GROUP_KINDS];
    mics_agreement *agreements; // by rank
    mics_step_time *times;

    worker workers[MICS_STREAMS]; // none for computation, nor for a stream without steps
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    mics_stream home; // the stream that always has a thread
    bool locks_open;

    // The run of one list. `done`, `failure` and `note` are guarded by `mutex`; note.run stays while
    // any stream works.
    bool all_know; // every rank has found the failure for itself, from the same numbers
    bool stale;    // other ranks' pieces of the parameter shards are older than their masters
    int32_t done[MICS_STREAMS]; // newest step finished on each stream; -1: none
    mics_status failure;        // first failure on any stream
    mics_status agree_mine;     // argument of the agreement job
    mics_phase phase;
    int32_t micro_step_read; // micro-step whose tokens are in inputs and targets; -1: none
    float lr;
    float grad_scale; // clipping; known after AGREE
    _Atomic bool stop_asked;
    const mics_step_list *list;
    const mics_batch_source *source;
    int64_t step;
    engine_note note;
    mics_step_result result;
};

// ---- worker.c ----

/* Starts the communication threads that the schedule needs.   Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status worker_open(mics_engine *engine);
void worker_close(mics_engine *engine);

/* Gives a stream's communication thread a job; waits for it and returns its status (MICS_OK at once
 * where the stream has no thread). One job at a time. */
void worker_start(mics_engine *engine, mics_stream stream, worker_job job);
mics_status worker_join(mics_engine *engine, mics_stream stream);

/* Begins a call of the engine, which every rank makes alike: a new number, and a note of it. */
void note_call(mics_engine *engine, engine_call call);

/* Runs all steps of one stream of engine->list; those of other streams that it must wait for, it
 * waits for. A failure makes every wait of this list fail; the first one stays. */
mics_status stream_run(mics_engine *engine, mics_stream stream,
                       mics_status (*run)(mics_engine *engine, const mics_step *step));

// ---- comm_steps.c, compute_steps.c, run_op.c ----

mics_status run_comm_step(mics_engine *engine, const mics_step *step);
mics_status run_compute_step(mics_engine *engine, const mics_step *step);

/* Mean over all tokens of the list's batch, once AGREE is done. */
double mean_loss(const mics_engine *engine);

/* Takes that into the result.   Returns: MICS_OK; MICS_ERR_NUMERIC on every rank, logged by rank 0. */
mics_status settle_loss(mics_engine *engine);

void run_op_forward(mics_engine *engine, const mics_step *step, int32_t op);
void run_grad_call(mics_engine *engine, const mics_step *step, const mics_grad_call *call);

// ---- watch.c ----

/* The engine's late handler: says which collective is late, who has not entered it, and what those
 * ranks were last seen doing. `ctx` is the engine. */
void watch_explain(void *ctx, const mics_lateness *late);

// ---- state.c ----

/* A rank's group of a kind. The caller frees ring->block_of with mics_free. */
mics_status group_ring_open(mics_memory *memory, const mics_mesh *mesh, mics_group_kind kind,
                            int32_t rank, group_ring *ring);

/* Computes the maps and rings, and takes the arenas as the ledger says. On failure the caller
 * closes the engine. */
mics_status state_open(mics_engine *engine);
void state_close(mics_engine *engine);

/* The owned piece of a unit's accumulator. */
float *owned_grads(const mics_engine *engine, int32_t unit);

/* How a step uses a unit; NULL when it does not. */
const mics_step_use *step_use(const mics_step *step, int32_t unit);

/* The whole flat buffers of a unit in a compute step: its slot, or its persistent buffer. NULL when
 * the step does not use the unit. */
float *used_params(const mics_engine *engine, const mics_step *step, int32_t unit);
float *used_grads(const mics_engine *engine, const mics_step *step, int32_t unit);

#endif
