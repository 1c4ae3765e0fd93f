// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A GPU a rank, with NCCL for the groups of a schedule's collectives.
#ifndef MICS_TEST_NCCL_RINGS_H
#define MICS_TEST_NCCL_RINGS_H

#include "mics/engine.h"
#include "ranks.h"

enum { NCCL_RINGS_MOST = MICS_GROUP_KINDS, NCCL_RANKS_MOST = 8 };

// This rank's group of each kind, on the channel of its stream.
static inline int32_t nccl_rings(const mics_schedule *schedule, int32_t rank, mics_ring *rings,
                                 int32_t *blocks)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    int32_t count = 0;
    for (int kind = 0; kind < MICS_GROUP_KINDS; kind++) {
        const mics_group_kind group_kind = (mics_group_kind)kind;
        const mics_group group = mics_mesh_group(mesh, group_kind, rank);
        int32_t *block_of = blocks + count * mesh->ranks;
        for (int32_t member = 0; member < group.size; member++)
            block_of[member] = mics_mesh_block(mesh, group_kind, mics_group_rank(group, member));
        if (group.size > 1)
            rings[count++] = (mics_ring){.group = group,
                                         .block_of = block_of,
                                         .channel = mics_mesh_spans_nodes(mesh, group_kind) ? 1 : 0,
                                         .what = mics_group_kind_text(group_kind)};
    }
    return count;
}

static inline mics_status nccl_open(ranks_self *self, const mics_schedule *schedule,
                                    double timeout_s, mics_device **device_out)
{
    mics_ring rings[NCCL_RINGS_MOST];
    int32_t blocks[NCCL_RINGS_MOST * NCCL_RANKS_MOST];
    const int32_t rank = self->comm->rank;
    MICS_TRY(mics_device_cuda_open(rank, mics_engine_events(schedule), device_out));
    const mics_device_comm_spec spec = {.device = *device_out,
                                        .transport = MICS_TRANSPORT_NCCL,
                                        .rings = rings,
                                        .ring_count = nccl_rings(schedule, rank, rings, blocks),
                                        .piece_bytes = 4096,
                                        .timeout_s = timeout_s};
    return mics_comm_device_open_take(self->memory, self->comm, &spec, &self->comm);
}

static inline mics_status nccl_open_default(ranks_self *self, const mics_schedule *schedule,
                                            mics_device **device_out)
{
    return nccl_open(self, schedule, RANKS_TIMEOUT_S, device_out);
}

#endif
