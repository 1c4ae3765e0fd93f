// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GPUs for ranks: in turn, with NCCL for the groups of a schedule's collectives, or one for all.
#pragma once

#include "mics/core/engine.h"
#include "mics/core/transport.h"
#include "ranks.h"

enum { NCCL_RINGS_MOST = MICS_AXES * MICS_SCOPES, NCCL_RANKS_MOST = 8 };

// This rank's group of each kind, on the channel of its stream. What goes over the world goes by the host.
static inline int32_t nccl_rings(const mics_schedule *schedule, int32_t rank,
                                 mics_comm_group *rings, int32_t *blocks)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    int32_t count = 0;
    for (int i = 0; i < MICS_AXES * MICS_SCOPES; i++) {
        const mics_group_axis axis = (mics_group_axis)(i / MICS_SCOPES);
        const mics_group_scope scope = (mics_group_scope)(i % MICS_SCOPES);
        const mics_group group = mics_mesh_group(mesh, axis, scope, rank);
        const bool part = scope != MICS_SCOPE_WHOLE;
        int32_t *block_of = blocks + count * mics_mesh_world(mesh);
        for (int32_t member = 0; member < group.size; member++)
            block_of[member] = mics_mesh_block(mesh, axis, scope, mics_group_rank(group, member));
        if (group.size > 1 && axis != MICS_AXIS_WORLD &&
            (!part || group.size < mics_mesh_group(mesh, axis, MICS_SCOPE_WHOLE, rank).size))
            rings[count++] =
                (mics_comm_group){.group = group,
                                  .block_of = block_of,
                                  .channel = mics_mesh_spans_nodes(mesh, axis, scope) ? 1 : 0,
                                  .what = mics_group_text(axis, scope)};
    }
    return count;
}

static inline mics_status nccl_open(ranks_self *self, const mics_schedule *schedule,
                                    double timeout_s, mics_device **device_out)
{
    mics_comm_group rings[NCCL_RINGS_MOST];
    int32_t blocks[NCCL_RINGS_MOST * NCCL_RANKS_MOST];
    const int32_t rank = self->comm->rank;
    MICS_TRY(mics_device_cuda_open(rank % mics_cuda_find()->devices, mics_engine_events(schedule),
                                   device_out));
    const mics_device_comm_spec spec = {.device = *device_out,
                                        .transport = MICS_TRANSPORT_NCCL,
                                        .groups = rings,
                                        .group_count = nccl_rings(schedule, rank, rings, blocks),
                                        .piece_bytes = 4096,
                                        .timeout_s = timeout_s};
    return mics_comm_device_open_take(self->memory, self->comm, &spec, &self->comm);
}

static inline mics_status nccl_open_default(ranks_self *self, const mics_schedule *schedule,
                                            mics_device **device_out)
{
    return nccl_open(self, schedule, RANKS_TIMEOUT_S, device_out);
}

// Several ranks on one GPU: through the host.
static inline mics_status staged_open(ranks_self *self, const mics_schedule *schedule,
                                      mics_device **device_out)
{
    MICS_TRY(mics_device_cuda_open(0, mics_engine_events(schedule), device_out));
    const mics_device_comm_spec spec = {.device = *device_out,
                                        .transport = MICS_TRANSPORT_STAGED,
                                        .piece_bytes = 4096,
                                        .timeout_s = RANKS_TIMEOUT_S};
    return mics_comm_device_open_take(self->memory, self->comm, &spec, &self->comm);
}
