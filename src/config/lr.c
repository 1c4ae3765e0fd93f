// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Learning rate schedules.
//
// Source: deepspeed/runtime/lr_schedules.py, whose iteration is -1 in the first optimizer step. Its
// warm-up ends at iteration max(2, warmup_num_steps). transformers/optimization.py, whose
// current_step is 0 in the first optimizer step.
#include "config/lr.h"
#include <math.h>

#define PI 3.14159265358979323846

static double warmup_steps(const mics_lr *lr)
{
    return fmax(2.0, (double)lr->warmup_steps);
}

// Share of the warm-up that is done; needs 0 <= iteration < warmup_steps.
static double warmup_share(const mics_lr *lr, double iteration)
{
    if (lr->warmup == MICS_WARMUP_LINEAR)
        return iteration / warmup_steps(lr);
    return 1.0 / log(warmup_steps(lr)) * log(iteration + 1.0);
}

// WarmupLR, and WarmupDecayLR, which differ after the warm-up.
static double warmup_at(const mics_lr *lr, double iteration)
{
    if (iteration < 0.0)
        return lr->start;
    double steps = warmup_steps(lr), share = 1.0;
    if (iteration < steps)
        share = warmup_share(lr, iteration);
    else if (lr->kind == MICS_LR_WARMUP_DECAY)
        share = fmax(0.0, ((double)lr->total_steps - iteration) /
                              fmax(1.0, (double)lr->total_steps - steps));
    return lr->start + (lr->peak - lr->start) * share;
}

static double cosine_at(const mics_lr *lr, double iteration)
{
    if (iteration < 0.0)
        return 0.0;
    double steps = warmup_steps(lr);
    if (iteration < steps)
        return lr->peak * (lr->min_ratio + warmup_share(lr, iteration) * (1.0 - lr->min_ratio));
    double decay_steps = fmax(1.0, (double)lr->total_steps - steps);
    double progress = fmin(1.0, (iteration - steps + 1.0) / decay_steps);
    double share = (1.0 + cos(PI * progress)) / 2.0;
    return lr->peak * fmax(0.0, lr->end_ratio + (1.0 - lr->end_ratio) * share);
}

// Linear to the peak, which step number warmup_steps is the first to take; stable; linear to the
// end, which step number total_steps is the first to take.
static double wsd_at(const mics_lr *lr, double step)
{
    if (step < (double)lr->warmup_steps)
        return lr->peak * step / (double)lr->warmup_steps;
    double left = fmax(0.0, (double)lr->total_steps - step);
    if (left >= (double)lr->decay_steps) // without decay steps also past the end
        return lr->peak;
    double share = left / (double)lr->decay_steps;
    return lr->peak * (lr->end_ratio + (1.0 - lr->end_ratio) * share);
}

// ---- DeepSpeed's OneCycle, without a cycle of momentum ----

static double one_cycle_at(const mics_lr *lr, double iteration)
{
    const double total = (double)lr->warmup_steps + (double)lr->stable_steps;
    const double rising = (double)lr->warmup_steps / total;
    if (iteration < total) {
        const double at = (iteration + 1.0) / total;
        const double x = at - floor(at);
        const double share = x <= rising ? x / rising : (x - 1.0) / (rising - 1.0);
        return lr->start + (lr->peak - lr->start) * share;
    }
    if (lr->decay_steps == 0 || lr->decay_rate == 0.0)
        return lr->start;
    const double interval = (iteration - total + 1.0) / (double)lr->decay_steps;
    return lr->start / (1.0 + lr->decay_rate * interval);
}

// ---- Hugging Face's ----

// Share of the way from the warm-up to the last step; past that more than 1.
static double decay_progress(const mics_lr *lr, double step)
{
    const double warmup = (double)lr->warmup_steps;
    return (step - warmup) / fmax(1.0, (double)lr->total_steps - warmup);
}

static double cosine_wave(double cycles, double progress)
{
    return 0.5 * (1.0 + cos(PI * cycles * 2.0 * progress));
}

static double restarts_share(const mics_lr *lr, double progress)
{
    return progress >= 1.0 ? 0.0 : 0.5 * (1.0 + cos(PI * fmod(lr->cycles * progress, 1.0)));
}

// A decay of no step at all gives the end at once, where Python divides by 0.
static double polynomial_share(const mics_lr *lr, double step)
{
    if (step > (double)lr->total_steps || lr->total_steps <= lr->warmup_steps)
        return lr->end_ratio;
    return (1.0 - lr->end_ratio) * pow(1.0 - decay_progress(lr, step), lr->power) + lr->end_ratio;
}

static double shaped(mics_warmup_kind shape, double cycles, double progress)
{
    if (shape == MICS_WARMUP_COSINE)
        return cosine_wave(cycles, progress);
    return 1.0 - (shape == MICS_WARMUP_SQRT ? sqrt(progress) : progress);
}

static double stable_decay_share(const mics_lr *lr, double step)
{
    const double warmup = (double)lr->warmup_steps, stable = warmup + (double)lr->stable_steps;
    double share = 0.0;
    if (step < warmup)
        share = lr->warmup == MICS_WARMUP_LINEAR
                    ? step / warmup
                    : shaped(lr->warmup, 0.5, 1.0 - step / warmup); // both mirrored
    else if (step < stable)
        return 1.0;
    else if (step < stable + (double)lr->decay_steps)
        share = shaped(lr->decay, lr->cycles, (step - stable) / (double)lr->decay_steps);
    return fmax(0.0, share * (1.0 - lr->end_ratio) + lr->end_ratio);
}

// Of the peak, after the warm-up.
static double decayed_share(const mics_lr *lr, double step)
{
    const double progress = decay_progress(lr, step);
    switch (lr->kind) {
    case MICS_LR_LINEAR:
        return fmax(0.0, ((double)lr->total_steps - step) /
                             fmax(1.0, (double)lr->total_steps - (double)lr->warmup_steps));
    case MICS_LR_COSINE:
        return fmax(0.0, cosine_wave(lr->cycles, progress));
    case MICS_LR_COSINE_RESTARTS:
        return fmax(0.0, restarts_share(lr, progress));
    case MICS_LR_COSINE_MIN:
        return fmax(0.0, cosine_wave(lr->cycles, progress) * (1.0 - lr->end_ratio) + lr->end_ratio);
    case MICS_LR_POLYNOMIAL:
        return polynomial_share(lr, step);
    case MICS_LR_INVERSE_SQRT:
        return 1.0 / sqrt((step + (double)lr->decay_steps - (double)lr->warmup_steps) /
                          (double)lr->decay_steps);
    default:
        return 1.0;
    }
}

static double trainer_at(const mics_lr *lr, double step)
{
    if (lr->kind == MICS_LR_STABLE_DECAY)
        return lr->peak * stable_decay_share(lr, step);
    if (step < (double)lr->warmup_steps)
        return lr->peak * (step / (double)lr->warmup_steps);
    return lr->peak * decayed_share(lr, step);
}

double mics_lr_at(const mics_lr *lr, int64_t step)
{
    double iteration = (double)step - 2.0;
    switch (lr->kind) {
    case MICS_LR_WARMUP:
    case MICS_LR_WARMUP_DECAY:
        return warmup_at(lr, iteration);
    case MICS_LR_WARMUP_COSINE:
        return cosine_at(lr, iteration);
    case MICS_LR_WSD:
        return wsd_at(lr, (double)step);
    case MICS_LR_ONE_CYCLE:
        return one_cycle_at(lr, iteration);
    case MICS_LR_LINEAR:
    case MICS_LR_COSINE:
    case MICS_LR_COSINE_RESTARTS:
    case MICS_LR_COSINE_MIN:
    case MICS_LR_POLYNOMIAL:
    case MICS_LR_CONSTANT_WARMUP:
    case MICS_LR_INVERSE_SQRT:
    case MICS_LR_STABLE_DECAY:
        return trainer_at(lr, (double)step - 1.0);
    case MICS_LR_CONSTANT:
        break;
    }
    return lr->peak;
}
