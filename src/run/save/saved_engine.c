// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A saved model in an engine of one rank.
#include "saved_engine.h"
#include "mics/core/device.h"
#include "mics/core/schedule.h"
#include "mics/core/transport.h"

static mics_status open_schedule(const mics_saved *saved, int64_t sequences, int64_t length,
                                 int32_t processes, int32_t threads, const char *what,
                                 mics_schedule **schedule_out)
{
    mics_machine machine;
    MICS_TRY(mics_machine_read(&machine));
    const int32_t share = machine.cores > processes ? machine.cores / processes : 1;
    mics_schedule_spec spec = {
        .model = saved->model,
        .batch = {.sequences = sequences,
                  .length = length,
                  .threads = threads > 0 ? threads : share},
        .micro_steps = 1,
        .recompute = mics_recompute_all(true), // nothing is kept from unit to unit
        .evaluation_only = true,
    };
    MICS_TRY(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    MICS_TRY(mics_schedule_open(saved->memory, &spec, schedule_out));
    return run_saved_check_fits(saved, what, (double)(*schedule_out)->ledger.total * processes);
}

static mics_status open_comm(mics_memory *memory, mics_thread_world **world_out,
                             mics_comm **comm_out)
{
    mics_comm *inner = NULL;
    MICS_TRY(mics_thread_world_open(memory, 1, 1, world_out));
    MICS_TRY(mics_comm_thread_open(memory, *world_out, 0, &inner));
    mics_status status = mics_comm_count_open_take(memory, inner, 1, comm_out);
    if (status != MICS_OK)
        mics_comm_close(inner);
    return status;
}

mics_status run_saved_engine_open(const mics_saved *saved, int64_t sequences, int64_t length,
                                  int32_t processes, int32_t threads, const char *what,
                                  run_saved_engine *self)
{
    MICS_TRY(open_schedule(saved, sequences, length, processes, threads, what, &self->schedule));
    MICS_TRY(open_comm(saved->memory, &self->world, &self->comm));
    const mics_engine_spec spec = {
        .memory = saved->memory, .schedule = self->schedule, .comm = self->comm};
    MICS_TRY(mics_engine_open(&spec, &self->engine));
    return run_saved_fill(saved, self->engine);
}

void run_saved_engine_close(run_saved_engine *self)
{
    mics_engine_close(self->engine);
    mics_comm_close(self->comm);
    mics_thread_world_close(self->world);
    mics_schedule_close(self->schedule);
    *self = (run_saved_engine){0};
}
