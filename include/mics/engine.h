// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs a schedule on one rank: computation on the caller's thread, collectives on communication
// threads of the engine's, one a stream, which are the only ones that touch the communicator while
// the engine is open.
#ifndef MICS_ENGINE_H
#define MICS_ENGINE_H

#include "mics/comm.h"
#include "mics/memory.h"
#include "mics/op.h"
#include "mics/schedule.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mics_engine mics_engine;

typedef struct mics_engine_spec {
    mics_memory *memory; // all are borrowed and outlive the engine
    const mics_schedule *schedule;
    mics_comm *comm;             // made by mics_comm_count_open_take; of the schedule's mesh
    const mics_kernels *kernels; // NULL: the best this processor runs
    float beta1, beta2, eps, weight_decay; // AdamW
    float clip;                            // largest global gradient norm; 0: no clipping
} mics_engine_spec;

// The tokens of one micro-step of this rank.
typedef struct mics_batch_source {
    // Fills (sequences, length) inputs and targets.
    mics_status (*read)(void *ctx, int32_t micro_step, int32_t *inputs_out, int32_t *targets_out);
    void *ctx;
} mics_batch_source;

typedef struct mics_step_result {
    double loss;            // mean over the global batch's tokens; the same bits on every rank
    double grad_norm;       // global, before clipping; training only
    double exposed_comm_us; // computation waited for communication
    double exposed_us[MICS_STEP_KINDS]; // the same by the kind of collective that it waited for
    double step_us;
    bool stop;       // some rank had asked for it (mics_engine_ask_stop); the same on every rank
    mics_bytes sent; // by this rank, counted
} mics_step_result;

/* Allocates everything that a run needs, as the schedule's ledger says, and starts the
 * communication threads. Parameters and optimizer state are 0.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (comm and mesh disagree); MICS_ERR_UNSUPPORTED (a schedule of
 *          another precision than fp32); MICS_ERR_MEMORY.
 * Owns:    close with mics_engine_close.        Collective: no.
 */
mics_status mics_engine_open(const mics_engine_spec *spec, mics_engine **engine_out);
void mics_engine_close(mics_engine *engine);

/* Draws every parameter by its initialisation: each element a function of (seed, its tensor's name,
 * its index), whatever the mesh.
 */
void mics_engine_init_random(mics_engine *engine, uint64_t seed);

/* One training step: publication of what the step before updated, all micro-steps, both hops,
 * clipping, update.
 *
 * Afterwards each rank's owned pieces are up to date; of the rest of its parameter shards, other
 * ranks' pieces are one step old, until the next step, an evaluation or mics_engine_publish.
 * `step` counts from 1 (bias correction). A loss or norm that is not finite is MICS_ERR_NUMERIC on
 * every rank, before any parameter changes, and the next step may follow. After any other failure
 * the world has ended (mics_comm_abort): a rank that needed nothing more of the one that failed
 * returns MICS_OK, and MICS_ERR_PEER from its next collective.
 * Returns: MICS_OK; MICS_ERR_NUMERIC; what the source or a collective returned; MICS_ERR_PEER;
 *          MICS_ERR_INVALID (the schedule is for evaluation only; alike on every rank).
 * Collective: yes.
 */
mics_status mics_engine_step(mics_engine *engine, int64_t step, float lr,
                             const mics_batch_source *source, mics_step_result *result_out);

/* Asks all ranks to stop: the result of this step, or of the next, says so on every rank.
 *
 * Threads: any.
 */
void mics_engine_ask_stop(mics_engine *engine);

/* Mean loss of one micro-batch a rank, without training. Publishes first, if a step has been.
 *
 * Returns: as mics_engine_step.      Collective: yes.
 */
mics_status mics_engine_eval(mics_engine *engine, const mics_batch_source *source,
                             mics_step_result *result_out);

/* Calls comm's agreement from a communication thread (mics_comm_agree).   Collective: yes. */
mics_status mics_engine_agree(mics_engine *engine, mics_status mine);

// What one rank holds of a unit, in place: elements [begin, end) of the flat buffer, cut at the
// unit's own length.
typedef struct mics_engine_piece {
    mics_range range; // of the optimizer's piece
    float *params;    // master weights: range.end - range.begin floats, inside the parameter shard
    float *moment1, *moment2; // NULL when the schedule is for evaluation only
    mics_range shard;         // of the parameter shard (contains range)
    float *shard_params;      // shard.end - shard.begin floats
} mics_engine_piece;

/* The rank's piece of a unit; valid until close. Between steps the caller may read it, and write it
 * before the first step (all ranks alike). Writers fill `shard_params` whole, or `params` and then
 * call mics_engine_publish.
 */
mics_engine_piece mics_engine_piece_get(const mics_engine *engine, int32_t unit);

/* Brings parameter shards up to date from the owned pieces (after loading a checkpoint, or before
 * whole shards are read).      Collective: yes. */
mics_status mics_engine_publish(mics_engine *engine);

/* Drops what rounding to int8 lost so far (error feedback). A checkpoint does not hold it, so a run
 * that goes on from one begins without; call it whenever one is written, and both give the same
 * bits.
 */
void mics_engine_forget_residual(mics_engine *engine);

/* Times of the newest training step, of mics_clock_us: as many as lists[MICS_PHASE_TRAIN] has
 * steps, by index there. Valid until the next. */
const mics_step_time *mics_engine_times(const mics_engine *engine);

// ---- generation: one process, the whole model ----

typedef struct mics_decoder mics_decoder;

/* Opens a decoder with a key and value cache for `capacity` tokens. params[unit] is the unit's flat
 * buffer.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (capacity beyond the model's positions); MICS_ERR_MEMORY.
 * Owns:    close with mics_decoder_close; borrows model and params.
 */
mics_status mics_decoder_open(mics_memory *memory, const mics_model *model,
                              const float *const *params, const mics_kernels *kernels,
                              int64_t capacity, mics_decoder **decoder_out);
void mics_decoder_close(mics_decoder *decoder);

/* Feeds one token and gives the logits (vocab) of the one after it; valid until the next call.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (token out of range, or the cache is full).
 */
mics_status mics_decoder_feed(mics_decoder *decoder, int32_t token, const float **logits_out);

/* Forgets everything that was fed. */
void mics_decoder_reset(mics_decoder *decoder);

#ifdef __cplusplus
}
#endif
#endif
