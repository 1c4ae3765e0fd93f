// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where a round's momentum lies, and what its owners do with it (schedule/owners.c says who).
#include "engine/matrices.h"
#include "engine/state.h"
#include "schedule/rules.h"

float *momentum_for(const mics_engine *engine, int32_t unit, int32_t owner)
{
    const mics_schedule *schedule = engine->schedule;
    return engine->momentum +
           owner * (schedule->padded_elems[unit] / schedule->sharding[unit].optimizer);
}

float *owned_momentum(const mics_engine *engine, int32_t unit)
{
    const int32_t owners = engine->schedule->sharding[unit].optimizer;
    return momentum_for(engine, unit, owners > 1 ? owners : 0);
}

void copy_to_owners(const mics_engine *engine, int32_t unit)
{
    const mics_device *device = engine->device;
    const mics_round *round = &engine->schedule->rounds[unit];
    const int32_t owners = engine->schedule->sharding[unit].optimizer;
    const size_t bytes =
        (size_t)(engine->schedule->padded_elems[unit] / owners) * sizeof *engine->momentum;
    for (int32_t owner = round->index + round->count; owner < owners; owner += round->count)
        device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, momentum_for(engine, unit, owner),
                          momentum_for(engine, unit, round->index), bytes);
}

void orthogonalise(const mics_engine *engine, int32_t unit)
{
    const mics_schedule *schedule = engine->schedule;
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_range range = unit_range(engine, unit, schedule->sharding[unit].optimizer);
    const int32_t owner = (int32_t)(range.begin / (range.end - range.begin));
    const int32_t owned = mics_schedule_owned_unit(schedule, unit, owner);
    for (int32_t m = schedule->matrix_at[owned]; m < schedule->matrix_at[owned + 1]; m++) {
        const mics_matrix *matrix = &schedule->matrices[m];
        const mics_optimizer_update call = {.optimizer = &engine->spec.optimizer,
                                            .phase = MICS_UPDATE_ORTHOGONALISE,
                                            .rows = matrix->rows,
                                            .columns = matrix->columns,
                                            .direction =
                                                owned_momentum(engine, unit) + matrix->first};
        if (matrix->owner == owner)
            engine->ops->update[engine->spec.optimizer.kind](&at, &call);
    }
}
