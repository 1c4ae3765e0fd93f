// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Learning rate schedules: DeepSpeed's, PyTorch's WSD, and Hugging Face's.
#pragma once

#include <stdint.h>

typedef enum mics_lr_kind {
    MICS_LR_CONSTANT,
    MICS_LR_WARMUP,        // DeepSpeed's WarmupLR
    MICS_LR_WARMUP_DECAY,  // DeepSpeed's WarmupDecayLR
    MICS_LR_WARMUP_COSINE, // DeepSpeed's WarmupCosineLR
    MICS_LR_WSD,           // linear warm-up, stable, linear decay
    MICS_LR_ONE_CYCLE,     // DeepSpeed's OneCycle
    // Hugging Face's, by its names:
    MICS_LR_LINEAR,
    MICS_LR_COSINE,
    MICS_LR_COSINE_RESTARTS, // cosine_with_restarts
    MICS_LR_COSINE_MIN,      // cosine_with_min_lr
    MICS_LR_POLYNOMIAL,
    MICS_LR_CONSTANT_WARMUP, // constant_with_warmup
    MICS_LR_INVERSE_SQRT,
    MICS_LR_STABLE_DECAY // warmup_stable_decay
} mics_lr_kind;

// Shapes of a warm-up, and of the decay of warmup_stable_decay, which takes all but the first.
typedef enum mics_warmup_kind {
    MICS_WARMUP_LOG,
    MICS_WARMUP_LINEAR,
    MICS_WARMUP_COSINE,
    MICS_WARMUP_SQRT // "1-sqrt"
} mics_warmup_kind;

// A learning rate schedule; what a kind does not use is 0.
typedef struct mics_lr {
    mics_lr_kind kind;
    mics_warmup_kind warmup, decay; // decay: of MICS_LR_STABLE_DECAY
    double peak;                    // after the warm-up; of MICS_LR_ONE_CYCLE cycle_max_lr
    double start;      // where the warm-up starts (WarmupLR, WarmupDecayLR); cycle_min_lr
    double min_ratio;  // share of the peak where the warm-up starts (WarmupCosineLR)
    double end_ratio;  // share of the peak that is left in the end
    double cycles;     // waves of a cosine
    double power;      // of MICS_LR_POLYNOMIAL
    double decay_rate; // of MICS_LR_ONE_CYCLE
    // MICS_LR_ONE_CYCLE rises for warmup_steps and falls for stable_steps; decay_steps is
    // decay_step_size. MICS_LR_INVERSE_SQRT has its time scale in decay_steps.
    int64_t warmup_steps, stable_steps, decay_steps, total_steps;
} mics_lr;

/* Learning rate of optimizer step number `step`, counted from 1. Pure.
 *
 * DeepSpeed's kinds give what DeepSpeed uses in that step: its schedulers start at iteration -1,
 * so step 1 takes the rate at the start of the warm-up (0 for WarmupCosineLR) and step k that of
 * iteration k - 2. Hugging Face's kinds give what the Trainer uses: step k that of current_step
 * k - 1.
 * Units:   of the optimizer's step, as optimizer.params.lr.
 * Needs:   step >= 1; lr as a run has it.
 * Source:  deepspeed/runtime/lr_schedules.py; transformers/optimization.py.
 */
double mics_lr_at(const mics_lr *lr, int64_t step);
