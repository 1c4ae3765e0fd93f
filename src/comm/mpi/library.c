// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// MPI's own all-gather. A kind of group has a communicator a channel, whose ranks are the blocks in
// order, so that MPI's order is the block order, and gathers of the two channels never meet.
#include "comm/mpi/transport.h"
#include "mics/log.h"
#include <string.h>

// In a turn.
static const comm_library_kind *find_kind(const comm_library *library, const mics_comm_group *ring,
                                          uint64_t order)
{
    const mics_group *group = &ring->group;
    for (int32_t i = 0; i < library->kinds; i++) {
        const comm_library_kind *kind = &library->kind[i];
        if (kind->first == group->first && kind->stride == group->stride &&
            kind->size == group->size && kind->order == order)
            return kind;
    }
    return NULL;
}

// ---- opening ----

// Whether the ranks of one of the new communicators are those of the group, in order.
static mics_status check_split(const comm_mpi *self, const mics_comm_group *ring, MPI_Comm comm)
{
    const mics_group *group = &ring->group;
    int size = 0, place = 0;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &place);
    if (size == group->size && place == comm_block_of(ring, group->index))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: rank %d passed a group of %d, but %d ranks passed one from rank %d: all "
                     "ranks must pass groups of one kind",
                     ring->what, (int)self->base.rank, (int)group->size, size, (int)group->first);
}

// In a turn.
static mics_status add_kind(comm_mpi *self, const mics_comm_group *ring, uint64_t order,
                            const MPI_Comm comms[MICS_CHANNELS])
{
    const mics_group *group = &ring->group;
    comm_library_kind *kind = &self->library.kind[self->library.kinds++];
    *kind = (comm_library_kind){
        .first = group->first, .stride = group->stride, .size = group->size, .order = order};
    memcpy(kind->comms, comms, sizeof kind->comms);
    for (int i = 0; i < MICS_CHANNELS; i++)
        MICS_TRY(check_split(self, ring, kind->comms[i]));
    return MICS_OK;
}

static mics_status open_kind(comm_mpi *self, const mics_comm_group *ring, uint64_t order)
{
    MPI_Comm comms[MICS_CHANNELS];
    const comm_mpi_cut cut = {.color = (int)ring->group.first,
                              .key = (int)comm_block_of(ring, ring->group.index),
                              .count = MICS_CHANNELS,
                              .what = ring->what};
    MICS_TRY(comm_mpi_split(self, &cut, comms));
    comm_turn_enter(&self->turn);
    const mics_status status = self->broken ? MICS_ERR_COMM : add_kind(self, ring, order, comms);
    self->broken = self->broken || status != MICS_OK;
    comm_turn_leave(&self->turn);
    return status;
}

mics_status comm_mpi_library_open(void *ctx, const mics_comm_group *ring)
{
    comm_mpi *self = ctx;
    const uint64_t order = comm_order_hash(ring);
    comm_turn_enter(&self->turn);
    const bool open = find_kind(&self->library, ring, order) != NULL;
    const bool full = self->library.kinds == COMM_LIBRARY_KINDS;
    comm_turn_leave(&self->turn);
    if (open)
        return MICS_OK;
    if (full)
        return mics_fail(MICS_ERR_INVALID, "%s: more than %d kinds of groups for library gathers",
                         ring->what, COMM_LIBRARY_KINDS);
    return open_kind(self, ring, order);
}

void comm_mpi_library_close(comm_mpi *self)
{
    comm_library *library = &self->library;
    for (int32_t i = 0; i < library->kinds; i++) {
        for (int c = 0; c < MICS_CHANNELS; c++) {
            if (library->kind[i].comms[c] != MPI_COMM_NULL)
                MPI_Comm_free(&library->kind[i].comms[c]);
        }
    }
    library->kinds = 0;
}

// ---- gathering ----

// One element of a type that is `bytes` long, in pieces that MPI can count. In a turn.
static int make_type(size_t bytes, size_t piece_bytes, MPI_Datatype *type_out)
{
    MPI_Datatype piece = MPI_DATATYPE_NULL;
    size_t pieces = bytes / piece_bytes, rest = bytes % piece_bytes;
    int code = MPI_Type_contiguous((int)piece_bytes, MPI_BYTE, &piece);
    if (code != MPI_SUCCESS)
        return code;
    const int lengths[2] = {(int)pieces, (int)rest};
    const MPI_Aint offsets[2] = {0, (MPI_Aint)(pieces * piece_bytes)};
    const MPI_Datatype types[2] = {piece, MPI_BYTE};
    code = MPI_Type_create_struct(2, lengths, offsets, types, type_out);
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(type_out);
    MPI_Type_free(&piece);
    return code;
}

static int start_gather(comm_mpi *self, MPI_Comm comm, void *buffer, size_t block_bytes,
                        MPI_Request *request_out)
{
    MPI_Datatype type = MPI_BYTE;
    if (block_bytes <= self->library.bytes_max)
        return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, buffer, (int)block_bytes, MPI_BYTE, comm,
                              request_out);
    int code = make_type(block_bytes, self->library.bytes_max, &type);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Iallgather(MPI_IN_PLACE, 0, type, buffer, 1, type, comm, request_out);
    MPI_Type_free(&type); // MPI keeps it while the gather needs it
    return code;
}

mics_status comm_mpi_library_gather(void *ctx, const mics_comm_group *ring, void *buffer,
                                    size_t block_bytes)
{
    comm_mpi *self = ctx;
    const mics_group *group = &ring->group;
    uint64_t order = comm_order_hash(ring);
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    comm_turn_enter(&self->turn);
    const comm_library_kind *kind = find_kind(&self->library, ring, order);
    if (kind != NULL && !self->broken && group->size > 1)
        code = start_gather(self, kind->comms[ring->channel], buffer, block_bytes, &request);
    comm_turn_leave(&self->turn);
    if (kind == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: no library gather was opened for a group of %d from rank %d in steps "
                         "of %d",
                         ring->what, (int)group->size, (int)group->first, (int)group->stride);
    if (group->size == 1)
        return MICS_OK;
    return comm_mpi_await(self, code, &request, ring->what, self->timeout_s, true);
}

void mics_comm_mpi_limit_library(mics_comm *comm, size_t bytes)
{
    comm_mpi *self = comm->ctx;
    self->library.bytes_max = bytes;
}
