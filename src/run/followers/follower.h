// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A follower: something that happens around a step. It has a state of its own, and is called by
// trainer.c alone, on all ranks alike, in the order of RUN_FOLLOWER_LIST (followers.h).
#pragma once

#include "run/context.h"
#include "run/guard.h"
#include "run/save/rewind.h"

// A step as the trainer and its followers see it; or, where training begins, the step behind which it
// does: what was due there, and is not done, is made up.
typedef struct run_step {
    int64_t number;
    double lr;
    bool begins;                  // no step was trained: training begins here
    bool first;                   // and for the first time in this process
    bool last;                    // of the run
    bool stops;                   // the run is to stop behind it
    uint32_t told;                // by any rank in any attempt at the step (RUN_SENDS_...)
    bool impossible;              // its numbers are an error (MICS_ERR_NUMERIC)
    mics_step_result result;      // of the newest attempt
    mics_completions completions; // since the step before
    double taken_us, complete_us; // the step; of that, completing it at its end
    double save_us;               // waited for saving since the step before
    double copy_us;               // and in this one, until the copy was made
    double behind_us;             // and behind it: the next one's save_us
    double reported_us;           // taken to report it: the next step's
    bool meets;                   // all units of several islands met behind it
    bool compared;                // replicas agree on its state
    bool validated;               // there is a validation loss
    double validation_loss;
} run_step;

// What a follower needs of the state behind a step before its after_step is called. Each includes
// those before it.
typedef enum run_need {
    RUN_NEEDS_NOTHING,
    RUN_NEEDS_STATE,   // complete (where training begins, by its reader): it stands still
    RUN_NEEDS_AGREED,  // replicas agree on it
    RUN_NEEDS_SAVING,  // a save has begun, behind the steps
    RUN_NEEDS_SETTLED, // and has ended, well or not
    RUN_NEEDS_SAVED,   // it is on disk: who asked waits, and a failure ends the run
    RUN_NEEDS_ENDED    // and as nothing follows, older checkpoints may go
} run_need;

// All but `name` and `open` are optional.
typedef struct run_follower {
    const char *name;
    size_t (*bytes)(const mics_job *job); // of a rank's memory, given to `open`; by default 0
    mics_status (*open)(void *state, const run_context *context, void *memory);
    // Training begins behind progress->step.
    mics_status (*begin)(void *state);
    // Around each attempt at a step: before mics_engine_step, and with what that returned; a step whose
    // numbers are wrong (MICS_ERR_NUMERIC) has a verdict instead.
    void (*before_step)(void *state);
    mics_status (*end_step)(void *state, const run_step *step, mics_status status);
    // Before the state of the step before is updated (mics_engine_spec.before_update).
    void (*before_update)(void *state);
    // A step has been trained. Before what it leaves over is completed.
    mics_status (*before_complete)(void *state, const run_step *step);
    // And then: what is due behind it. `needs` may be called several times.
    run_need (*needs)(void *state, const run_step *step);
    mics_status (*after_step)(void *state, run_step *step);
    // A checkpoint of a step is whole.
    void (*saved)(void *state, int64_t step);
    // The run went back to an older state.
    mics_status (*rewind)(void *state, const run_source *source);
    mics_status (*close)(void *state); // also of a state that is zero, or partly open
} run_follower;

static inline bool run_is_due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}
