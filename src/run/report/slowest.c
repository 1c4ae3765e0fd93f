// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "slowest.h"
#include "mics/core/agreement.h"

void run_slowest_add(run_slowest *self, const mics_agreement *said, int32_t ranks, double step_us)
{
    double sum = 0;
    int32_t least = 0;
    self->steps += self->steps < RUN_SLOWEST_STEPS;
    self->step_ms += (step_us / 1e3 - self->step_ms) / self->steps;
    for (int32_t rank = 0; rank < ranks; rank++) {
        const double part = said[rank].waited_us < step_us ? said[rank].waited_us / step_us : 1;
        self->waits[rank] += (part - self->waits[rank]) / self->steps;
        sum += self->waits[rank];
        least = self->waits[rank] < self->waits[least] ? rank : least;
    }
    const double least_wait = self->waits[least];
    const bool known = ranks > 1 && sum > 0;
    self->rank = known ? least : -1;
    self->part = known ? (sum - least_wait) / (ranks - 1) - least_wait : 0;
}

bool run_slowest_tells(run_slowest *self, int32_t rank, double warn)
{
    const bool before = self->told;
    if (self->rank != rank || self->part < warn / 2)
        self->told = false;
    else if (self->part >= warn && self->part * self->step_ms >= RUN_SLOWEST_MIN_MS &&
             self->steps == RUN_SLOWEST_STEPS && warn > 0)
        self->told = true;
    return self->told && !before;
}
