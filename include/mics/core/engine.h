// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs a schedule on one rank: computation on the caller's thread, collectives on communication
// threads of the engine's, one a stream, which are the only ones that touch the communicator once
// the engine is open.
#ifndef MICS_ENGINE_H
#define MICS_ENGINE_H

#include "mics/core/agreement.h"
#include "mics/core/comm.h"
#include "mics/core/optimizer.h"
#include "mics/core/schedule.h"
#include "mics/memory.h"
#include "mics/op.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mics_engine mics_engine;
typedef struct mics_kernels mics_kernels; // a device's tables of functions

// ---- loss scaling, for fp16 ----

// How losses are scaled so that gradients stay within fp16's range: DeepSpeed's keys and meaning.
typedef struct mics_loss_scaling {
    double fixed;                // loss_scale: always this; 0: dynamic
    double initial;              // 2 to the initial_scale_power
    int64_t window;              // loss_scale_window: steps without overflow until it doubles
    int32_t hysteresis;          // overflows until it is halved
    bool consecutive_hysteresis; // any step without overflow gives the hysteresis back
    double min;                  // min_loss_scale; an overflow there ends the run
} mics_loss_scaling;

/* Initial scale 2^16, loss_scale_window 1000, hysteresis 2, min_loss_scale 1. Pure. */
mics_loss_scaling mics_loss_scaling_default(void);

// Where dynamic loss scaling is.
typedef struct mics_scaler {
    double scale;
    int64_t steps;         // training steps so far
    int64_t last_overflow; // the newest of them that overflowed; -1: none
    int64_t skipped; // steps that overflowed: no parameter changed, no optimizer step was counted
    int32_t hysteresis; // overflows left until the scale is halved
} mics_scaler;

/* Before the first step. Pure. */
mics_scaler mics_scaler_init(const mics_loss_scaling *scaling);

/* Whether an overflow now would have to make the scale smaller than it may be. Pure. */
bool mics_scaler_is_exhausted(const mics_loss_scaling *scaling, const mics_scaler *state);

/* Takes one step into account: `overflow` says whether its gradients went beyond fp16's range. */
void mics_scaler_update(const mics_loss_scaling *scaling, bool overflow, mics_scaler *state);

// ---- the engine ----

enum { MICS_SCRUB_AUTO = -1 };

typedef struct mics_engine_spec {
    mics_memory *memory; // all are borrowed and outlive the engine
    const mics_schedule *schedule;
    mics_comm *comm; // made by mics_comm_count_open_take; of the schedule's mesh
    // NULL: those of the device, or the best that the CPU runs. Of a CPU its fp32 table, whatever
    // the dtype.
    const mics_kernels *kernels;
    mics_optimizer optimizer; // of the schedule's kind
    // Of an optimizer that takes matrices whole: the rate of all other parameters over theirs. 0:
    // the same.
    double other_rate;
    float clip;                     // largest global gradient norm; 0: no clipping
    float outer_lr, outer_momentum; // of meetings (mics_outer): Nesterov's step
    // Where it computes, opened with mics_engine_events events; NULL: the CPU. A device with memory
    // of its own needs a schedule for accelerators, and a comm whose collectives take its buffers.
    mics_device *device;
    mics_dtype dtype;               // MIXED: BF16, on devices also FP16; else FP32
    mics_loss_scaling loss_scaling; // FP16; all 0: the default
    bool graphs; // what a unit enqueues forward, or backward, is a graph; on a device that has them
    uint64_t seed; // of dropout masks; the run's on all ranks
    // Called before each step's update, for who reads the state until then; NULL: nothing. On the
    // thread that called mics_engine_step, or mics_engine_complete.
    void (*before_update)(void *ctx);
    void *before_update_ctx;
    // Called before a failure of this rank in a collective ends the world for all ranks: none goes on
    // behind it. On whichever of the engine's threads has found it; NULL: nothing.
    void (*world_ends)(void *ctx);
    void *world_ends_ctx;
    double timeout_s; // how long nothing may move on the device while ranks wait for it; 0: 300
    // Steps between hashes of a unit's masters and moments that exist once, which are compared
    // before the next update; 0: there are none; MICS_SCRUB_AUTO: as often as costs 0.5 % of a step.
    int64_t scrub_every;
} mics_engine_spec;

/* Events that an engine needs of its device. Pure. */
int32_t mics_engine_events(const mics_schedule *schedule);

// The tokens of one micro-step of this rank.
typedef struct mics_batch_source {
    // Fills (sequences, length) inputs and targets. A target below 0 does not count: the token has
    // no part in the loss, which is the mean over those of the global batch that count.
    mics_status (*read)(void *ctx, int32_t micro_step, int32_t *inputs_out, int32_t *targets_out);
    // (optional) Of a model that looks at segments: fills those of the inputs that `read` gave last
    // (mics_op_call.segments), of ranks that share sequences those of whole ones: (sequences,
    // mesh.sequence * length); by default all are 0.
    mics_status (*read_segments)(void *ctx, int32_t micro_step, const int32_t *inputs,
                                 int32_t *segments_out);
    // (optional) Of pairs (mics_schedule_spec.preference): fills each sequence's log-probability in
    // the reference (mics_engine_log_probs); by default all are 0.
    mics_status (*read_references)(void *ctx, int32_t micro_step, float *references_out);
    void *ctx;
} mics_batch_source;

// What became of a training step. Every rank draws it from the same numbers.
typedef enum mics_verdict {
    MICS_VERDICT_UPDATED,
    MICS_VERDICT_OVERFLOW, // fp16: left out, not counted by the optimizer; the loss scale follows
    MICS_VERDICT_SPIKE,    // left out: the loss is above mics_step_limits.max_loss
    // Left out: ranks that own the same optimizer shard have updated it, in the step before, with
    // other gradients (mics_engine_compare_grads).
    MICS_VERDICT_DIVERGED,
    MICS_VERDICT_NOT_FINITE, // MICS_ERR_NUMERIC: loss or norm
    // MICS_ERR_NUMERIC: no cross-entropy is below 0, or that far above that of a guess
    MICS_VERDICT_IMPOSSIBLE,
    MICS_VERDICT_HELD,  // left out: a rank asked for it (mics_engine_hold)
    MICS_VERDICT_EMPTY, // left out: no token of the global batch counts
    // Left out: on some rank masters or moments that exist once have changed since the update
    // before (scrub_every). mics_engine_compare says which.
    MICS_VERDICT_FLIPPED,
} mics_verdict;

// How far above ln(vocabulary), what guessing gives, a loss is taken to be one. Nats.
#define MICS_MAX_LOSS_ABOVE_GUESS 20

typedef struct mics_step_result {
    // Mean over the tokens, or pairs, of the global batch that count; the same bits on every rank.
    // NaN where none does.
    double loss;
    double grad_norm; // global, before clipping; training only
    int64_t counted;  // tokens, or pairs with any token that counts, that the loss is the mean of
    double exposed_comm_us;             // computation waited for communication
    double exposed_us[MICS_STEP_KINDS]; // the same by the kind of collective that it waited for
    double step_us;
    bool completes;       // it began with the replica gathers and updates of the step before
    double loss_scale;    // of this step; 1 but in fp16
    bool skipped;         // gradients overflowed fp16: no parameter changed; the same on every rank
    mics_verdict verdict; // training only
    uint32_t told;        // by any rank (mics_engine_tell); the same on every rank
    mics_bytes sent;      // by this rank, counted
    // What coded parameter syncs sent less than the most that the schedule says: this rank, all ranks.
    mics_bytes unsent, unsent_by_all;
    int64_t copied_bytes; // of activations to host memory and back
    // Training only, the same on every rank. The sums are over all ranks' sequences, and 0 in a
    // model without experts.
    int64_t memory_peak_bytes; // of the rank that has held most, up to the agreement
    double router_sums[MICS_ROUTER_SUMS];
    // Over all ranks' pairs, also of an evaluation; the same on every rank.
    double preference_sums[MICS_PREFERENCE_SUMS];
} mics_step_result;

// What a training step is held to, beside what always holds.
typedef struct mics_step_limits {
    double max_loss; // above it no parameter changes; INFINITY: none
    // MICS_ERR_NUMERIC is not logged: the caller does, with mics_engine_explain.
    bool silent;
} mics_step_limits;

// ---- local steps: of a schedule whose mesh has several islands ----

// Verdicts, losses and norms of mics_step_result are an island's. What a rank tells (mics_engine_tell)
// and mics_engine_hold go to the world as a step begins, so their ballot is cast then, and all ranks
// act on it in the same step. All ranks of the world make the same calls, of the same step numbers: a
// step that one island leaves out is taken again by all, or by none.

// What all ranks of the world know together of a training step: as mics_step_result and
// mics_agreement, over all islands. Known one step later (AGREE_WORLD), or by mics_engine_complete.
typedef struct mics_world_result {
    int64_t step;     // 0: none yet
    double loss;      // mean over the tokens, or pairs, of all islands that count
    double grad_norm; // root of the mean of the islands' squared norms
    int64_t counted;
    int64_t memory_peak_bytes;
    uint32_t told;
    int32_t updated; // islands whose verdict was MICS_VERDICT_UPDATED
    double router_sums[MICS_ROUTER_SUMS];
    double preference_sums[MICS_PREFERENCE_SUMS];
} mics_world_result;

/* The newest one: the same on every rank of the world. Of one island: that of the newest step.
 *
 * Returns: never NULL.     Owns: the engine; valid until the next step or completion.
 */
const mics_world_result *mics_engine_world(const mics_engine *engine);

/* All units meet now, of the state after the newest step: where a run ends. Anchors and masters are
 * then the same on all islands. Includes mics_engine_complete. Nothing to do in one island.
 *
 * Returns: as mics_engine_complete.        Collective: over the world.     Blocks: yes.
 */
mics_status mics_engine_meet(mics_engine *engine);

/* Swaps anchors and masters, so that parameters are the agreed ones: to evaluate, export or sample.
 * Called again it swaps back, to the same bits. No step in between. Includes mics_engine_complete,
 * before and after. Nothing to do in one island.
 *
 * Returns: as mics_engine_complete.        Collective: over the world.     Blocks: yes.
 */
mics_status mics_engine_swap_agreed(mics_engine *engine);

// Where meetings stand, for checkpoints. Arrays are the engine's; the caller reads them between
// steps, and before the first step writes them, all ranks alike.
typedef struct mics_outer_state {
    int64_t *met; // the newest training step whose list's meetings are done
    // (windows, islands): tokens that counted, in steps that updated, since those units met
    int64_t *counted;
    int32_t windows, islands;
} mics_outer_state;
mics_outer_state mics_engine_outer_state(const mics_engine *engine);

// What one rank holds for a unit's meetings, in the host's memory or a host copy (as
// mics_engine_download and mics_engine_upload make them), cut at the unit's own length.
typedef struct mics_engine_outer_shard {
    mics_range range; // of the anchor: the optimizer shard's
    float *anchor;
    mics_range met; // of the momentum: 1 / world of the unit
    float *momentum;
} mics_engine_outer_shard;

/* Those of a unit; NULL in place of numbers, and empty ranges, where it does not meet.
 *
 * Needs:   0 <= unit < units of the model.
 * Owns:    as mics_engine_optimizer_shard_get.
 */
mics_engine_outer_shard mics_engine_outer_shard_get(const mics_engine *engine, int32_t unit);

/* Anchors become what masters are, momentum and tokens 0: as training begins from what was loaded, or
 * where a checkpoint of another number of islands is taken over; behind mics_engine_upload.
 * mics_engine_init_random includes it.
 *
 * Returns: MICS_OK; MICS_ERR_DEVICE.       Collective: no. */
mics_status mics_engine_set_anchors(mics_engine *engine);

/* Allocates everything that a run needs, as the schedule's ledger says, and starts the
 * communication threads. Parameters and optimizer state are 0.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (comm and mesh disagree); MICS_ERR_UNSUPPORTED (a schedule of
 *          a precision that the device does not run, or that shares parameters where the transport
 *          cannot); MICS_ERR_MEMORY; MICS_ERR_DEVICE; where opening is collective MICS_ERR_PEER
 *          when another rank could not open its engine, and as mics_comm_share and
 *          mics_comm_register.
 * Owns:    close with mics_engine_close, before the comm is.
 * Collective: over the world, and blocks, where the schedule shares parameters, and on a device
 *          with memory of its own, whose arenas NCCL registers; else no.
 */
mics_status mics_engine_open(const mics_engine_spec *spec, mics_engine **engine_out);

/* Closes; NULL is allowed. */
void mics_engine_close(mics_engine *engine);

/* Draws every parameter by its initialisation: each element a function of (seed, its tensor's name,
 * its index), whatever the mesh. Includes mics_engine_upload.
 *
 * Needs:   no release of optimizer shards since opening; any seed.
 * Returns: as mics_engine_upload.      Collective: no.
 */
mics_status mics_engine_init_random(mics_engine *engine, uint64_t seed);

/* The same of adapters' parameters alone, and without the upload.
 *
 * Needs:   as mics_engine_init_random.    Collective: no.
 */
void mics_engine_init_adapters(mics_engine *engine, uint64_t seed);

/* Elements `range` of a unit as these two draw them, in the host's memory. Others stay.
 *
 * Shapes:  values_out: (elements of the range).       Units: elements.
 * Needs:   a range of the unit's elements.    Threads: any.    Collective: no.
 */
void mics_engine_draw(const mics_unit *unit, uint64_t seed, bool adapters_alone, mics_range range,
                      float *values_out);

/* GEMM autotuning: runs each GEMM of a step once, on whatever the buffers hold: for libraries that
 * load kernels at their first call, and for kernels that learn there how a shape is run best.
 * Parameters and optimizer state stay as they are. Nothing to do on the CPU.
 *
 * Needs:   a schedule that trains; before the first step.
 * Returns: MICS_OK; MICS_ERR_DEVICE.      Collective: no.     Blocks: yes.
 */
mics_status mics_engine_autotune(mics_engine *engine);

/* One training step: what the step before left, all micro-steps, both hops, clipping, update.
 *
 * Where the schedule defers updates (mics_schedule_defers), it leaves its update for the next step:
 * each rank has its 1 / ranks of the summed gradients, and optimizer shards are those of the step
 * before. Else optimizer shards are up to date, and the rest of the parameter shards is not. The
 * next step, an evaluation, a comparison of replicas or mics_engine_complete does what is left.
 * A loss or norm that is not finite, and a loss that is no cross-entropy, are MICS_ERR_NUMERIC on
 * every rank, before any parameter changes, and the next step, or the same one again, may follow;
 * the result is filled. MICS_OK too may leave a step out: see mics_verdict. After any other failure
 * the world has ended (mics_comm_abort): a rank that needed nothing more of the one that failed
 * returns MICS_OK, and MICS_ERR_ABORTED from its next collective.
 * Units:   lr: the optimizer's, a step.
 * Needs:   `step` >= 1 (bias correction counts from 1); step, lr and source the run's on all ranks.
 * Returns: MICS_OK; MICS_ERR_NUMERIC; what the source or a collective returned;
 *          MICS_ERR_INVALID (the schedule is for evaluation only; alike on every rank).
 * Collective: yes.
 */
mics_status mics_engine_step(mics_engine *engine, int64_t step, float lr,
                             const mics_batch_source *source, mics_step_result *result_out);

/* Holds the next training steps to `limits`; at opening there are none, and errors are logged. All
 * ranks give the same ones, between steps. */
void mics_engine_set_limits(mics_engine *engine, const mics_step_limits *limits);

/* What the newest training step's verdict means, in a line; "" of an update.
 *
 * Needs:   capacity >= 1.      Returns: `text`.
 */
char *mics_engine_explain(const mics_engine *engine, char *text, size_t capacity);

/* What each rank of the island gave to the newest step's agreement, by rank from its first one on: the
 * same on all of them.
 *
 * Returns: never NULL.     Owns: the engine; valid until the next step.
 */
const mics_agreement *mics_engine_agreements(const mics_engine *engine);

/* Tells all ranks something: the result of this step, or of the next, has the bits on every rank.
 * Their meaning is the caller's.
 *
 * Needs:   bits < 2^30.
 * Threads: any.
 */
void mics_engine_tell(mics_engine *engine, uint32_t bits);

/* Holds the state of the newest step that is done: on no rank does the step that runs, or else the
 * next one, train anything, and it counts as not done. Until mics_engine_step returns from it,
 * threads may read what optimizer shards hold, where the engine computes in the host's memory. Too
 * late for a step for which this rank has cast its ballot.
 *
 * Returns: whether it is held, and may be read; false only while a step ends, or the update of the
 *          one before is due yet, so that a later call may succeed.
 * Threads: any.      Collective: no.
 */
bool mics_engine_hold(mics_engine *engine);

/* Freezes the state, for who is not to train on: no step begins an update any more, also where this
 * rank has cast its ballot; one that would ends the world. Threads may read what optimizer shards
 * hold, as with mics_engine_hold.
 *
 * Needs:   step >= 0.
 * Returns: whether it is the state after `step`; false while an update is due, so that a later call
 *          may succeed.
 * Threads: any.      Collective: no.
 */
bool mics_engine_freeze(mics_engine *engine, int64_t step);

/* Lets mics_engine_hold be about the next step, before that begins: for who holds steps from another
 * thread, once it has taken note of the step that has ended.
 *
 * Needs:   no step that runs.
 * Threads: that of mics_engine_step.
 */
void mics_engine_next_ballot(mics_engine *engine);

/* Mean loss of one micro-batch a rank, without training. Includes mics_engine_complete.
 *
 * Returns: as mics_engine_step.      Collective: yes.
 */
mics_status mics_engine_eval(mics_engine *engine, const mics_batch_source *source,
                             mics_step_result *result_out);

/* Log-probability of each sequence of one micro-batch a rank: the sum over its tokens that count, as
 * pairs compare it; of ranks that share sequences over this rank's tokens. No dropout.
 * Includes mics_engine_eval.
 *
 * Shapes:  log_probs_out: (sequences of a micro-batch); this rank's.         Units: nats.
 * Returns: as mics_engine_eval.      Collective: yes.     Blocks: yes.
 */
mics_status mics_engine_log_probs(mics_engine *engine, const mics_batch_source *source,
                                  float *log_probs_out);

/* Logits of the newest evaluation: rows [first, first + count) of this rank's tokens.
 *
 * Shapes:  logits_out: (count, vocab).            Units: as the loss takes them, not normalised.
 * Needs:   mics_engine_eval before, and no step since; the LM head's table whole on every rank
 *          (P = 1).
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: a need, or more rows than the workspace holds at
 *          once; MICS_ERR_DEVICE.
 * Collective: no.     Blocks: yes.
 */
mics_status mics_engine_logits(mics_engine *engine, int64_t first, int64_t count,
                               float *logits_out);

/* Agrees as mics_comm_agree does, from a communication thread. If the agreement itself fails, the
 * world ends.
 *
 * Returns: as mics_comm_agree.     Collective: yes.
 */
mics_status mics_engine_agree(mics_engine *engine, mics_status mine);

/* Calls mics_comm_any of the comm from a communication thread.
 *
 * Returns: as mics_comm_any.       Collective: yes.
 */
mics_status mics_engine_any(mics_engine *engine, bool mine, bool *any_out);

// What one rank holds of a unit, in place: elements [begin, end) of the flat buffer, cut at the
// unit's own length.
typedef struct mics_engine_optimizer_shard {
    mics_range range; // of the optimizer shard
    float *params;    // master weights: range.end - range.begin floats, inside the parameter shard
    // Of the optimizer, as many each; NULL where there is none, and for evaluation only.
    float *states[MICS_OPTIMIZER_STATES];
    mics_range shard;    // of the parameter shard (contains range)
    float *shard_params; // shard.end - shard.begin floats
} mics_engine_optimizer_shard;

/* The rank's optimizer shard of a unit. Between steps the caller may read it, and before the first
 * step write it, all ranks alike. Readers call mics_engine_complete, then mics_engine_download.
 * Writers fill `shard_params`, or `params` alone, then call mics_engine_upload and
 * mics_engine_complete.
 *
 * Needs:   0 <= unit < units of the model.
 * Owns:    the engine; valid until close, of host copies until mics_engine_release (then NULL in
 *          place of those numbers).
 */
mics_engine_optimizer_shard mics_engine_optimizer_shard_get(const mics_engine *engine,
                                                            int32_t unit);

/* On a device with memory of its own, the optimizer shards that callers see are host copies, and so
 * they are where states are held in fewer bits (mics_state_dtype); their states are fp32. In
 * mixed precision on the CPU `shard_params` is one, with `params` inside; once it is released,
 * `params` and `states` are seen in place. In fp32 on the CPU the calls copy nothing.
 *   download         copies the device's values to the host copies, at any time between steps; on
 *                    the CPU to those that there are
 *   download_params  the same, and on the CPU too `shard_params` is there
 *   upload           takes what the caller wrote, and rounds it to what is held (what download
 *                    gave, to the same bits); an update that is
 *                    due is dropped, in fp32 on the CPU too
 *   release          frees the host copies; the next download allocates them again
 *
 * Needs:   upload: of such copies no release since the newest download, or since opening.
 * Returns: MICS_OK; MICS_ERR_DEVICE, MICS_ERR_COMM, MICS_ERR_TIMEOUT (of what was enqueued before);
 *          download: MICS_ERR_MEMORY; upload: MICS_ERR_INVALID (a need).
 * Collective: no.   Blocks: yes.
 */
mics_status mics_engine_download(mics_engine *engine);
mics_status mics_engine_download_params(mics_engine *engine);
mics_status mics_engine_upload(mics_engine *engine);
void mics_engine_release(mics_engine *engine);

/* Whether callers see copies of the states, which are there from download to release; otherwise they
 * are seen where computation has them. Pure. */
bool mics_engine_copies_states(const mics_schedule *schedule);

/* Bytes of the host copies of a rank: 4 an element of its parameter shards, and where states are
 * copied 4 an optimizer state of the optimizer shards; none otherwise in fp32. Pure.
 */
size_t mics_engine_copy_bytes(const mics_schedule *schedule);

/* Where loss scaling is, for checkpoints; set: before the first step, all ranks alike. */
mics_scaler mics_engine_scaler(const mics_engine *engine);
void mics_engine_set_scaler(mics_engine *engine, const mics_scaler *state);

/* Does what the newest step left for the next one: replica gathers and updates that are due, which
 * the next step then does not, and the parameter sync. Before the state is read, and after it is
 * written. Of several islands also what the world agrees on, and, where they do not overlap, the
 * meetings that are due at the head of the next step's list.
 *
 * Returns: MICS_OK; as mics_engine_step; MICS_ERR_INVALID (the schedule is for evaluation only).
 * Collective: yes.     Blocks: yes.
 */
mics_status mics_engine_complete(mics_engine *engine);

/* Coded parameter syncs (mics_schedule_spec.delta_sync) of the next step or completion send numbers in
 * place of changes, on all ranks if one of them asks: copies that differ from their owner's are then
 * alike again. So they do behind mics_engine_open and mics_engine_upload; a run asks behind each save.
 *
 * Threads:    the engine's caller.     Collective: no.
 */
void mics_engine_sync_whole(mics_engine *engine);

// What completions did, those within other calls included.
typedef struct mics_completions {
    int32_t count;   // each with the training list's parameter sync
    int32_t updates; // how many of them had an update to do, and so the list's replica gathers
    mics_bytes sent; // by this rank
    mics_bytes unsent, unsent_by_all; // as in mics_step_result
} mics_completions;

/* What was completed since this was called last; the counts are the same on every rank.
 *
 * Owns:       nothing; the engine begins to count anew.     Collective: no.
 */
mics_completions mics_engine_take_completions(mics_engine *engine);

// ---- replicas ----
//
// What several ranks hold alike is compared. Masters and moments: each n / O times, where that is
// more than once. Parameters of a unit: where its O > P, so that they are more than this rank's own
// masters, and n / P > 1; they are compared as a parameter sync leaves them, in the dtype in which
// it sends. With P = n nothing exists twice. mics_mesh_replicas says what there is.

typedef enum mics_replica_state {
    MICS_REPLICA_MASTERS,
    MICS_REPLICA_MOMENTS,
    MICS_REPLICA_PARAMS,
    MICS_REPLICA_STATES,
    MICS_REPLICA_GRADS = MICS_REPLICA_STATES, // after the second hop; mics_engine_compare_grads
    MICS_REPLICA_ANCHORS                      // over islands: what they agreed on
} mics_replica_state;

/* "masters", "moments", "parameters", "gradients after the second hop", "anchors"; never NULL. */
const char *mics_replica_state_text(mics_replica_state state);

// A difference among replicas.
typedef struct mics_divergence {
    bool found; // the rest has a meaning only then
    mics_replica_state state;
    int32_t unit; // the first, in order of units, that differs somewhere; -1 of GRADS
    int32_t rank; // holds something else than most do
    int32_t
        other; // -1; else there is no majority: `rank` and `other` differ, and nobody knows more
    // Ranks that should hold the same as `rank`, itself included. 1: the state exists once, and has
    // changed since the update before (scrub_every).
    int32_t replicas;
    int32_t count; // of differences, of all units, states and replicas' groups
    bool majority; // for each of them more than half hold the same
} mics_divergence;

/* Compares what replicas hold, by hashes of 64 bits of each unit; padding is left out; and what
 * exists once with its hash behind the update, where the spec asks for that. Of several islands each
 * is compared by itself, and the anchors of all, in which a difference has no majority. Sends 32 bytes
 * a rank, of several islands 8 more a unit, and more only after a difference. Includes
 * mics_engine_complete, where an update is due, or parameters are compared, and of several islands.
 *
 * Needs:   between steps.
 * Returns: MICS_OK, with what was found; MICS_ERR_INVALID (the schedule is for evaluation only);
 *          as mics_engine_complete; MICS_ERR_MEMORY. *divergence_out is the same on every rank.
 * Collective: yes.     Blocks: yes.
 */
mics_status mics_engine_compare(mics_engine *engine, mics_divergence *divergence_out);

/* Copies what most replicas hold over what the others do, wherever the newest comparison found
 * masters or moments to differ. Includes mics_engine_complete and mics_engine_release.
 *
 * Needs:   divergence.majority of mics_engine_compare, and no step since.
 * Returns: MICS_OK; MICS_ERR_INVALID (a need); as mics_engine_complete, mics_engine_download and
 *          mics_engine_upload.
 * Collective: yes.     Blocks: yes.
 */
mics_status mics_engine_repair(mics_engine *engine);

/* Compares what replicas gave to the newest step's agreement as sums of squares of the gradients that
 * the updates at its head took: they differ where those of the step before do after the second hop.
 * The engine does so in each step.
 *
 * Returns: what was found, the same on every rank.     Collective: no.
 */
mics_divergence mics_engine_compare_grads(const mics_engine *engine);

enum { MICS_HOST_BYTES = 64 };

/* Names of all ranks' machines, by rank, cut to fit.
 *
 * Shapes:  hosts_out: (ranks, MICS_HOST_BYTES).
 * Returns: as mics_comm_exchange.      Collective: yes.    Blocks: yes.
 */
mics_status mics_engine_hosts(mics_engine *engine, char (*hosts_out)[MICS_HOST_BYTES]);

/* Drops what rounding lost so far (error feedback): of gradients to int8, of changes at meetings. A
 * checkpoint does not hold it, so a run that goes on from one begins without; call it whenever one is
 * written, and both give the same bits.
 */
void mics_engine_forget_residual(mics_engine *engine);

/* Times of the newest training step, of CLOCK_MONOTONIC: as many as lists[MICS_PHASE_TRAIN] has
 * steps, by index there. A step of a meeting that was not due took no time, where its stream passed.
 *
 * Returns: never NULL.     Owns: the engine; valid until the next step.
 */
const mics_step_time *mics_engine_times(const mics_engine *engine);

// ---- generation: one process, the whole model, on the CPU ----

typedef struct mics_decoder mics_decoder;

typedef struct mics_decoder_spec {
    const mics_model *model;     // borrowed
    const void *const *params;   // by unit, its parameters (mics_decoder_place); borrowed
    mics_dtype dtype;            // of parameters of two dimensions: fp32 or bf16; others are fp32
    const mics_kernels *kernels; // NULL: the best that this CPU has
    int64_t sequences;           // that are decoded together, >= 1
    int64_t capacity;            // tokens that each may have
    int32_t threads;             // >= 1; results do not depend on it
} mics_decoder_spec;

/* Where a decoder looks for a parameter among those of its unit. In fp32 that is its offset in the
 * unit's flat buffer.
 *
 * Needs:   0 <= param <= unit->param_count; the latter gives the size of all.
 * Units:   bytes, a multiple of 64.
 */
size_t mics_decoder_place(const mics_unit *unit, int32_t param, mics_dtype dtype);

/* Opens a decoder with a cache of keys and values.
 *
 * Needs:   1 <= capacity <= positions of the model.
 * Returns: MICS_OK; MICS_ERR_INVALID (capacity beyond the model's positions, or a cache too large);
 *          MICS_ERR_UNSUPPORTED (an encoder, whose attention sees later tokens); MICS_ERR_MEMORY.
 * Owns:    close with mics_decoder_close.
 */
mics_status mics_decoder_open(mics_memory *memory, const mics_decoder_spec *spec,
                              mics_decoder **decoder_out);

/* Closes; NULL is allowed. */
void mics_decoder_close(mics_decoder *decoder);

// Tokens for some sequences. One of `sequences` and `count` is 1.
typedef struct mics_decoder_feed_spec {
    const int32_t *tokens; // (sequences, count)
    int64_t first;         // sequence
    int64_t sequences;
    int64_t count;    // tokens of each
    int64_t position; // of the first of them; what stands before it was fed earlier
} mics_decoder_feed_spec;

/* Feeds tokens and gives the logits of what follows the last of them. A sequence's logits do not
 * depend on the others that are fed with it.
 *
 * Shapes:  *logits_out: (sequences, vocab).
 * Needs:   0 <= token < vocab; sequences that there are; position + count <= capacity.
 * Returns: MICS_OK; MICS_ERR_INVALID (a need).
 * Owns:    the logits are the decoder's; valid until the next call.
 */
mics_status mics_decoder_feed(mics_decoder *decoder, const mics_decoder_feed_spec *feed,
                              const float **logits_out);

/* Makes all sequences what the first one is, of which `tokens` are fed.
 *
 * Needs:   0 <= tokens <= capacity.
 */
void mics_decoder_spread(mics_decoder *decoder, int64_t tokens);

#ifdef __cplusplus
}
#endif
#endif
