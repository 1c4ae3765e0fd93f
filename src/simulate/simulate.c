// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A simulation from outside.
#include "mics/simulate.h"

void mics_simulation_close(mics_simulation *simulation)
{
    if (simulation == NULL)
        return;
    mics_memory *memory = simulation->memory;
    mics_free(memory, simulation->times);
    mics_free(memory, simulation);
}

const mics_step_time *mics_simulation_times(const mics_simulation *simulation, int32_t rank)
{
    const int64_t at = simulation->ranks == 1 ? 0 : rank;
    return simulation->times + at * simulation->steps;
}
