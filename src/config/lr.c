// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Learning rate schedules.
//
// Source: deepspeed/runtime/lr_schedules.py, whose iteration is -1 in the first optimizer step. Its
// warm-up ends at iteration max(2, warmup_num_steps).
#include "mics/config.h"
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
    case MICS_LR_CONSTANT:
        break;
    }
    return lr->peak;
}
