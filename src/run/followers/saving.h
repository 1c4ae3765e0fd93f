// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Saves of a rank that trains: checkpoints that other followers need (run_need), copies in node memory
// (run.memory_checkpoint_every), and what becomes of both around steps.
#pragma once

#include "follower.h"
#include "run/save/saver.h"

struct run_saving {
    const run_context *context;             // NULL: not open
    void (*saved)(void *ctx, int64_t step); // set before it is opened: a checkpoint is whole
    void *saved_ctx;
    run_saver saver;
    size_t booked;     // bytes of node memory that are counted
    int64_t updated;   // the newest good step
    int64_t prune_due; // older checkpoints than this go after the next good step; RUN_NO_STEP: none
    int64_t tried; // step that was to be kept in node memory for want of time; RUN_NO_STEP: none
    bool keeps; // the step that was done last is good, and may be kept while a save is waited for
    bool lacks_space; // the newest save found none: the state goes to node memory
    bool downloaded;  // a save reads what the engine has on the host
};

/* Saves the step that was done last as far as `need` says (RUN_NEEDS_SAVING and more), unless it is
 * saved.
 *
 * Returns: MICS_OK, also where a save that nobody waits for fails; MICS_ERR_NUMERIC: what was to be
 *          saved is not finite; why it is not on disk (RUN_NEEDS_SAVED); what a collective returned.
 * Collective: over ranks. */
mics_status run_saving_provide(run_saving *self, run_need need);

/* Waits for a save that is under way. Returns: as run_saving_provide.   Collective: over ranks. */
mics_status run_saving_settle(run_saving *self);

/* Ends what savers have begun by themselves to save of the step that was done last, which is not to
 * count: on return it does on no node. Savers of some ranks may have begun, and others not. */
void run_saving_drop(run_saving *self);

/* Saves the step that was done last where no checkpoint is looked for (OUT/aside).
 *
 * Returns: MICS_OK; MICS_ERR_NUMERIC: it is not finite; why it is not on disk; what a collective
 *          returned.    Collective: over ranks. */
mics_status run_saving_quarantine(run_saving *self);

/* Says whether the state stands still for a while: then the rank's saver may read it. */
void run_saving_allow_reading(run_saving *self, bool still);
