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

// The communication thread: runs one job at a time.
typedef struct worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool started, busy, closing;
    mics_status (*job)(mics_engine *engine);
    mics_status job_status;
} worker;

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
    float *workspace; // of ops, then one loss a token
    int32_t *inputs, *targets;

    arena_map map;
    group_ring rings[MICS_GROUP_KINDS];
    mics_agreement *agreements; // by rank
    mics_step_time *times;

    worker worker;

    // The run of one list. `done` and `failure` are guarded by worker.mutex.
    const mics_step_list *list;
    const mics_batch_source *source;
    int32_t done[MICS_STREAMS]; // newest step finished on each stream; -1: none
    bool all_know;           // every rank has found the failure for itself, from the same numbers
    mics_status failure;     // first failure on either stream
    int32_t micro_step_read; // micro-step whose tokens are in inputs and targets; -1: none
    mics_phase phase;
    int64_t step;
    float lr;
    float grad_scale; // clipping; known after AGREE
    _Atomic bool stop_asked;
    double exposed_us;
    mics_step_result result;
    mics_status agree_mine; // argument of the agreement job
};

// ---- worker.c ----

/* Starts the communication thread.   Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status worker_open(mics_engine *engine);
void worker_close(mics_engine *engine);

/* Gives the communication thread a job, and waits for it and returns its status. One job at a time.
 */
void worker_start(mics_engine *engine, mics_status (*job)(mics_engine *engine));
mics_status worker_join(mics_engine *engine);

/* Waits until a step of a stream is done (at once for step < 0).
 *
 * Returns: MICS_OK, or the other stream's failure.
 */
mics_status stream_wait(mics_engine *engine, mics_stream stream, int32_t step);
void stream_done(mics_engine *engine, mics_stream stream, int32_t step);
/* Makes every wait fail; the first failure stays. */
void stream_fail(mics_engine *engine, mics_status status);

/* Runs all steps of one stream of engine->list. */
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

// ---- state.c ----

/* Computes the maps and rings, and takes the arenas as the ledger says. On failure the caller
 * closes the engine. */
mics_status state_open(mics_engine *engine);
void state_close(mics_engine *engine);

/* The owned piece of a unit's accumulator. */
float *owned_grads(const mics_engine *engine, int32_t unit);

/* The whole flat buffers of a unit in a compute step: its slot, or its persistent buffer. NULL when
 * the step does not use the unit. */
float *used_params(const mics_engine *engine, const mics_step *step, int32_t unit);
float *used_grads(const mics_engine *engine, const mics_step *step, int32_t unit);

#endif
