// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The thread of a rank that writes checkpoints while the rank trains on.
//
// Two saves may be under way. The one *behind* the steps copies the state while the next step comes
// to its update (mics_engine_spec.before_update), and writes the copy. The *direct*
// one writes from the engine's memory, which stands still then: between steps, or in a step that is
// held (mics_engine_hold). Ranks need no word for one another: rank 0 commits when it finds the
// files of all. A file can be found before its rank is done with it, so what became of a save each
// rank says with the next step, and the save ends when all are done (saving.c).
//
// A direct save that the thread begins by itself, and that cannot end within run.grace_s, goes to
// node memory first (node_memory/alone.h), and then to disk as far as it comes.
//
// Invariants (guarded by the mutex, but for what `state` gives to one side):
//   1. A save is the thread's from QUEUED until it is DONE or FAILED, and else the rank's.
//   2. The thread begins the direct save by itself only while the rank is inside a step that it has
//      held, or validates, and then holds the next one; it is of the step done before.
#ifndef MICS_RUN_SAVE_SAVER_H
#define MICS_RUN_SAVE_SAVER_H

#include "run/context.h"
#include "run/node_memory/copy.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef enum run_save_state {
    RUN_SAVE_NONE,
    RUN_SAVE_QUEUED,
    RUN_SAVE_KEEPING, // in node memory, where it is late for the disk
    RUN_SAVE_COPYING, // the rank's shards; until then nothing may change them
    RUN_SAVE_WRITING,
    RUN_SAVE_WAITING, // rank 0: for the files of others
    RUN_SAVE_DONE,    // written; on rank 0 committed
    RUN_SAVE_FAILED
} run_save_state;

// One save of one rank.
typedef struct run_save {
    run_save_state state;
    bool gives_up; // another rank has failed
    bool written;  // all ranks have said that they have written
    bool hurries;  // KEEPING: the rank waits, so other ranks are not waited for
    bool alone;    // the thread has begun it by itself
    bool kept;     // that brought it into node memory; no rank tries again if `lost`
    bool lost;     // it cannot be brought there
    bool warns;    // a failure is a warning
    bool copies;   // the shards, before it writes them
    int64_t step;
    mics_checkpoint_meta meta;
    mics_optimizer_shard *shards; // by unit: the rank's share
    mics_checkpoint_saving *saving;
    mics_status status; // FAILED: why
} run_save;

typedef struct run_saver {
    const run_context *context; // NULL: not open
    run_copies *copies;         // in node memory
    run_save behind, direct;
    float *copy;         // borrowed: what `behind` writes; NULL: saves wait until it is written
    _Atomic double rate; // bytes a second of the newest write; 0: none yet
    atomic_llong written, to_write; // bytes of the file that is being written; 0: none yet
    bool prunes;                    // rank 0: older checkpoints than that of prune_step may go
    int64_t prune_step;
    double late_asked_us; // the request to stop that `late` is about; 0: none
    bool late;            // as run_share_is_late says
    bool in_step;         // the rank is in mics_engine_step, or validates
    bool closing, started, locks_open;
    double looked_us; // rank 0: when it last looked whether the run is to stop
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} run_saver;

/* Opens a rank's saver, zeroed before but for `copies`, and starts its thread. `copy` (optional) is
 * the job's save_copy_bytes long.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY, logged; then too it is closed with run_saver_close. */
mics_status run_saver_open(const run_context *context, float *copy, run_saver *saver);

/* Ends the thread when it has written what it writes, and frees; a zeroed saver is allowed. */
void run_saver_close(run_saver *saver);

/* Says whether the rank is inside mics_engine_step, or validates. */
void run_saver_in_step(run_saver *saver, bool inside);

/* Gives the thread a save whose step, meta and shards are filled in. Needs: state NONE. */
void run_saver_start(run_saver *saver, run_save *save);

/* What became of a save until now. */
run_save_state run_saver_state(run_saver *saver, const run_save *save);

/* Whether the save behind the steps, of another step than the newest, is still to be written. */
bool run_saver_writes_older(run_saver *saver);

/* Waits until a save reads nothing any more that an update changes. */
void run_saver_await_copied(run_saver *saver, run_save *save);

/* Waits until the thread has done what it can alone to bring a save into node memory. What became of
 * that: save->kept and save->lost. */
void run_saver_await_kept(run_saver *saver, run_save *save);

/* Waits until the rank has written its share. Returns: MICS_OK; why it could not. */
mics_status run_saver_await_written(run_saver *saver, run_save *save);

/* All ranks have said that they have written: rank 0 does not wait long for their files any more. */
void run_saver_all_written(run_saver *saver, run_save *save);

/* Waits until the thread has done with a save, on rank 0 with its commit, unless others have
 * failed. Returns: MICS_OK; why it failed. */
mics_status run_saver_await_done(run_saver *saver, run_save *save, bool others_failed);

/* Lets the thread remove older checkpoints than that of a step, as the run says. */
void run_saver_prune(run_saver *saver, int64_t step);

/* Takes the save back from the thread: state NONE. Needs: DONE, FAILED or NONE. */
void run_saver_end(run_saver *saver, run_save *save, bool failed);

// ---- share.c ----

/* Fills a save with what the rank has now; that one with the direct save. */
void run_share_describe(const run_context *context, run_save *save);
void run_share_fill_direct(run_saver *saver);

/* Copies what the save behind the steps is to write. */
void run_share_copy(run_saver *saver);

/* Removes older checkpoints than that of a step, as the run says. */
void run_share_prune(const run_context *context, int64_t step);

/* Whether what is left of run.grace_s is too short for a save of the rank's share, and of an older
 * one if that is still being written; found and said once for each time that the run is asked to
 * stop. It may write some MiB to find how fast the disk is. Threads: the rank's or the saver's, one
 * at a time. */
bool run_share_is_late(run_saver *saver, bool writes_older);

#endif
