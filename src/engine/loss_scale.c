// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Loss scaling for fp16, step by step as DeepSpeed's DynamicLossScaler does it
// (deepspeed/runtime/fp16/ loss_scaler.py), so that a run file of that project means the same here.
#include "mics/core/engine.h"
#include <math.h>

static const double FACTOR = 2;

mics_loss_scaling mics_loss_scaling_default(void)
{
    return (mics_loss_scaling){.initial = 65536, .window = 1000, .hysteresis = 2, .min = 1};
}

mics_scaler mics_scaler_init(const mics_loss_scaling *scaling)
{
    return (mics_scaler){
        .scale = scaling->fixed > 0 ? scaling->fixed : scaling->initial,
        .last_overflow = -1,
        .hysteresis = scaling->hysteresis,
    };
}

static bool halves(const mics_loss_scaling *scaling, const mics_scaler *state)
{
    return scaling->fixed <= 0 && (scaling->hysteresis <= 1 || state->hysteresis <= 1);
}

bool mics_scaler_is_exhausted(const mics_loss_scaling *scaling, const mics_scaler *state)
{
    return halves(scaling, state) && state->scale <= scaling->min;
}

void mics_scaler_update(const mics_loss_scaling *scaling, bool overflow, mics_scaler *state)
{
    const int64_t step = state->steps++;
    state->skipped += overflow;
    if (scaling->fixed > 0)
        return;
    if (overflow) {
        if (halves(scaling, state))
            state->scale = fmax(state->scale / FACTOR, scaling->min);
        else
            state->hysteresis--;
        state->last_overflow = step;
        return;
    }
    if (scaling->consecutive_hysteresis)
        state->hysteresis = scaling->hysteresis;
    if ((step - state->last_overflow) % scaling->window == 0) {
        state->hysteresis = scaling->hysteresis;
        state->scale *= FACTOR;
    }
}
