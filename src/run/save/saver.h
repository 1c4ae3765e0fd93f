// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Saves of a rank's state: one way, on two tiers, node memory and disk. The rank takes a save along
// it, or its saver does, two threads that work while the rank trains: one writes to disk, the keeper
// to node memory, so that no disk makes a stop wait.
//
// A rank has four saves. The background save writes a staged copy of the state while the next steps
// run. The direct save, at the end or to stop, writes from the engine's memory, which stands still
// then: between steps, or in a step that is held (mics_engine_hold). The copy goes to node memory.
// A state before a step that cannot be trained goes to quarantine, where no checkpoint is looked for.
//
// In the middle of a step ranks do not communicate. Rank 0 commits a checkpoint when it finds the
// files of all ranks; a copy is committed by notes in files (run/node_memory/notes.h). Each rank says
// with the next step what became of its background save, and the save ends when all are done.
//
// Invariants (guarded by the mutex, but for what `state` gives to one side):
//   1. States follow one another as run_save_moves lists them, and docs/reliability.md shows.
//   2. A save is a thread's from QUEUED until it is DONE, FAILED or IDLE, and else the rank's.
//   3. The keeper begins a save by itself only while the rank is inside a step that it has held, or
//      validates, and then holds the next one; it is of the step done before.
//   4. Where others are lost, or a step does not end that the run is to stop behind, and this rank has
//      cast its ballot, the engine is frozen: the copy that is made then is the last that the rank does.
#pragma once

#include "run/share.h"
#include "tier.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define RUN_SAVE_STATE_LIST(X)                                                                     \
    X(IDLE)       /* no save */                                                                    \
    X(QUEUED)     /* the thread is to take it */                                                   \
    X(STAGING)    /* reads what the next update changes */                                         \
    X(WRITING)    /* the rank's part */                                                            \
    X(WAITING)    /* for the parts of other ranks */                                               \
    X(COMMITTING) /* makes it count */                                                             \
    X(DONE)       /* it counts */                                                                  \
    X(FAILED)

#define RUN_SAVE_ENUM(name) RUN_SAVE_##name,
typedef enum run_save_state { RUN_SAVE_STATE_LIST(RUN_SAVE_ENUM) } run_save_state;

typedef struct run_save_move {
    run_save_state from, to;
} run_save_move;

enum { RUN_SAVE_MOVES = 14 };
extern const run_save_move run_save_moves[RUN_SAVE_MOVES];

enum { RUN_SAVER_THREADS = 2 };

// In the order in which the threads take them.
enum { RUN_BACKGROUND, RUN_COPY, RUN_DIRECT, RUN_QUARANTINE, RUN_SAVES };

// One save of one rank.
struct run_save {
    run_saver *saver;
    const run_tier *tier;
    run_save_state state;
    const char *dir;     // on disk
    int32_t writers;     // the ranks before this one write
    int64_t part, parts; // of the rank's optimizer shards: the one that it writes
    int64_t step;
    bool stages;                  // it writes a staged copy, not from the engine's memory
    bool by_saver;                // the thread began it
    bool due;                     // it is made whatever the disk can do
    bool outlives;                // others may be lost
    bool to_stop;                 // no training follows
    bool borrows;                 // another save reads the engine's memory, too
    bool warns;                   // a failure is a warning
    atomic_bool given_up;         // another rank has failed, or the saver closes
    atomic_bool all_written;      // all ranks have said that they have written
    atomic_bool awaited;          // the rank waits
    mics_status status;           // FAILED: why
    mics_optimizer_shard *shards; // what it writes (run_share_fill)
    int64_t *counted;             // of `meta`
    mics_checkpoint_meta meta;
    mics_checkpoint_saving *file; // on disk
    run_copy copy;                // in node memory
};

struct run_saver {
    const run_context *context; // NULL: not open
    run_save saves[RUN_SAVES];
    float *staging;       // borrowed: what the background save writes; NULL: training waits for it
    int32_t slot;         // in node memory, of the next copy
    _Atomic int64_t good; // newest checkpoint behind which a good step came; RUN_NO_STEP: none
    bool noted;           // the program was told what a copy takes
    _Atomic double rate;  // bytes a second of the newest write to disk; 0: none yet
    atomic_llong written, to_write; // bytes of the file that is being written; 0: none yet
    bool prunes;                    // rank 0: checkpoints that prune_step makes needless go
    int64_t prune_step;
    run_deadline deadline;
    bool stands;  // the rank is in mics_engine_step, or validates
    bool changes; // it loads another state, or repairs its own
    bool closing, locks_open;
    double looked_us;   // rank 0: when it last looked whether the run is to stop
    unsigned int moved; // by run_save_moves: 1 << index of those that were taken
    int started;        // threads
    pthread_t threads[RUN_SAVER_THREADS];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

/* Opens a rank's saver, zeroed before but for the tiers of its saves, and starts its thread. `staging` (optional) is the job's
 * save_copy_bytes long.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY, logged; then too it is closed with run_saver_close. */
mics_status run_saver_open(const run_context *context, float *staging, run_saver *saver);

/* Ends the thread when it has written what it writes, and frees; a zeroed saver is allowed. */
void run_saver_close(run_saver *saver);

/* Says whether the state stands still: the rank is inside mics_engine_step, or validates. */
void run_saver_stands(run_saver *saver, bool still);

/* Says whether the rank changes the state outside of steps: then it is that of no step. */
void run_saver_changes(run_saver *saver, bool changes);

/* Before a failed collective ends the world: keeps the step that was done last in node memory, if the
 * ranks that are left have all of it, and waits for that. A zeroed saver is allowed. Threads: any. */
void run_saver_outlive(run_saver *self);

/* Gives a save, which is IDLE, to the thread: of the step that was done last.
 * Needs: the state on the host (mics_engine_download). */
void run_saver_start(run_save *save);

/* The same on the rank's own thread, to its end, with what `ready` says of the download. Returns:
 * MICS_OK; why it failed. */
mics_status run_saver_run(run_save *save, mics_status ready);

/* What became of a save until now. */
run_save_state run_saver_state(run_save *save);

/* Wait while the thread has the save: until it reads nothing any more that an update changes; until
 * the rank's part is written; until it is DONE or FAILED, on rank 0 with the commit, unless others
 * have failed. Return: MICS_OK; why it failed. */
void run_saver_await_staged(run_save *save);
mics_status run_saver_await_written(run_save *save);
mics_status run_saver_await_done(run_save *save, bool others_failed);

/* Waits for a save to be past a state, IDLE too, for the part of a second. Returns: whether it is. */
bool run_saver_await_briefly(run_save *save, run_save_state last);

/* Whether half of run.grace_s is over since a program asked to stop. */
bool run_saver_is_half_over(const run_saver *saver);

/* Whether the rest of run.grace_s is too short for the direct save. */
bool run_saver_misses_deadline(run_saver *saver);

/* Lets the thread remove the checkpoints that that of a step makes needless. */
void run_saver_prune(run_saver *saver, int64_t step);

/* Takes a save back that is DONE, FAILED or IDLE. */
void run_saver_end(run_save *save, bool failed);

// ---- for tiers ----

/* Moves a save into a state that may follow its own. */
void run_save_enter(run_save *save, run_save_state state);

/* Sleeps between two looks at what other ranks have done; wait_ms: 1 before the first. */
void run_save_sleep(int *wait_ms);
