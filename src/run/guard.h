// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is done about a step, or about replicas that differ, as a function of what is known. Pure:
// every rank knows the same and decides alike. judge.c finds out, trainer.c acts.
//
// A step is suspicious if its loss or norm is not finite, if its loss is no cross-entropy, or a spike
// that must not train, or if replicas updated the step before with different gradients. The engine
// updates with none of its own gradients then, so there are three questions, in this order:
//   1. Do replicas hold the same? If not, that explains every number.
//   2. Does the step give the same numbers again (run.recheck)? If not, a machine is bad.
//   3. Else it is the data or the hyperparameters: the run ends, or goes on without the step.
// Masters or moments that have changed at rest (run.scrub_every) are never trained on: the run goes
// back.
#pragma once

#include "mics/core/checkpoint.h"
#include "mics/core/engine.h"

// What the run file says.
typedef struct run_rules {
    const char *on_spike, *on_divergence;
    double spike_zscore;
    bool recheck;
    bool repeats; // a step can be run again with the same bits
    bool apart;   // other islands train on meanwhile: nothing is compared or run again with them
} run_rules;

// What is known of a step.
typedef struct run_evidence {
    mics_verdict verdict;
    bool impossible; // the engine counts its numbers as an error
    bool compared;   // replicas, behind it
    bool differs;    // and what they hold differs
    bool again;      // it was run a second time
} run_evidence;

typedef enum run_action {
    RUN_ACCEPT,
    RUN_HOLD,    // a rank has to stop: the step counts as not done
    RUN_COMPARE, // replicas first
    RUN_RECHECK, // run the step again and compare its numbers
    RUN_RETAKE,  // take the step again: nothing was trained
    RUN_GO_BACK, // to the newest state on which replicas agreed
    RUN_REPAIR,  // give the odd replica what most hold
    RUN_GIVE_UP  // end the run
} run_action;

/* What is done about a step. */
run_action run_guard_step(const run_rules *rules, const run_evidence *known);

// Differences between replicas since a state behind the newest one agreed.
typedef struct run_divergences {
    mics_divergence newest;
    int64_t diverged_step; // of the newest; RUN_NO_STEP: none
    int64_t rewound_step;  // that the run went back to; RUN_NO_STEP: it has not
    int32_t count;         // with the one that was just found
} run_divergences;

/* What is done about replicas that differ, by what was found before: RUN_GO_BACK, RUN_REPAIR or
 * RUN_GIVE_UP. `agreed_step` is the newest state on which they agreed. */
run_action run_guard_divergence(const run_rules *rules, const run_divergences *before,
                                int64_t agreed_step, const mics_divergence *found,
                                bool *repeated_out);

// ---- spikes ----

typedef struct run_spread {
    double mean, deviation;
} run_spread;

/* Of the newest losses, summed from the oldest on, so that a run that resumes has the same bits. */
run_spread run_guard_spread(const mics_checkpoint_losses *recent);

/* The loss from where on a step is a spike; INFINITY: none is. */
double run_guard_spike_loss(const run_rules *rules, const mics_checkpoint_losses *recent);

/* Adds a loss, in place of the oldest where there are enough. */
void run_guard_add_loss(mics_checkpoint_losses *recent, double loss);
