// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// MPI's own all-gather. A kind of group has a communicator a channel, whose ranks are the blocks in
// order, so that MPI's order is the block order, and gathers of the two channels never meet.
//
// MPI has no splitting that can be waited for with a deadline: a rank that stands still in it would
// hold all others for ever. So a thread splits, and its rank waits for it as long as for any
// collective. When that is over the rank gives the thread up, which stays in MPI until the program
// ends; and the transport is broken, so nobody else calls MPI but to abort.
#include "mics/clock.h"
#include "mics/log.h"
#include "mpi_internal.h"
#include <string.h>
#include <time.h>

enum {
    SLICE_NS = 50 * 1000 * 1000,
    STOOD_STILL_US = 1000 * 1000, // a slice this long is not one: somebody stopped us
};

// One splitting. The rank has the turn while its thread goes on.
typedef struct splitting {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    MPI_Comm world;
    int color, key;
    // Guarded by the mutex.
    bool goes;  // every rank has its thread
    bool stops; // or some have not
    bool done;
    int code; // MPI's
    MPI_Comm comms[MICS_CHANNELS];
} splitting;

// In a turn.
static const comm_library_kind *find_kind(const comm_library *library, const mics_ring *ring,
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

// ---- splitting ----

static void *split(void *arg)
{
    splitting *self = arg;
    MPI_Comm comms[MICS_CHANNELS];
    int code = MPI_SUCCESS;
    for (int i = 0; i < MICS_CHANNELS; i++)
        comms[i] = MPI_COMM_NULL;
    pthread_mutex_lock(&self->mutex);
    while (!self->goes && !self->stops)
        pthread_cond_wait(&self->changed, &self->mutex);
    const bool goes = self->goes;
    pthread_mutex_unlock(&self->mutex);
    for (int i = 0; goes && code == MPI_SUCCESS && i < MICS_CHANNELS; i++)
        code = MPI_Comm_split(self->world, self->color, self->key, &comms[i]);
    pthread_mutex_lock(&self->mutex);
    self->code = code;
    memcpy(self->comms, comms, sizeof comms);
    self->done = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

static mics_status open_splitting(comm_mpi *self, const mics_ring *ring, splitting **split_out)
{
    void *block = NULL;
    MICS_TRY(mics_alloc(self->memory, MICS_MEM_HOST, sizeof(splitting), &block));
    splitting *made = block;
    made->world = self->world;
    made->color = (int)ring->group.first;
    made->key = (int)comm_block_of(ring, ring->group.index);
    const bool mutex = pthread_mutex_init(&made->mutex, NULL) == 0;
    const bool changed = mutex && pthread_cond_init(&made->changed, NULL) == 0;
    if (changed && pthread_create(&made->thread, NULL, split, made) == 0) {
        *split_out = made;
        return MICS_OK;
    }
    if (changed)
        pthread_cond_destroy(&made->changed);
    if (mutex)
        pthread_mutex_destroy(&made->mutex);
    mics_free(self->memory, made);
    return mics_fail(MICS_ERR_MEMORY, "%s: the system starts no more threads", ring->what);
}

// The thread has ended, or ends now.
static void close_splitting(comm_mpi *self, splitting *made)
{
    if (made == NULL)
        return;
    pthread_mutex_lock(&made->mutex);
    made->stops = true;
    pthread_cond_broadcast(&made->changed);
    pthread_mutex_unlock(&made->mutex);
    pthread_join(made->thread, NULL);
    pthread_cond_destroy(&made->changed);
    pthread_mutex_destroy(&made->mutex);
    mics_free(self->memory, made);
}

// Lets the thread go; false when it has not ended in time. Slices in which this process was stopped
// do not count.
static bool await_splitting(splitting *made, double timeout_s)
{
    double waited_us = 0;
    pthread_mutex_lock(&made->mutex);
    made->goes = true;
    pthread_cond_broadcast(&made->changed);
    while (!made->done && waited_us < timeout_s * 1e6) {
        struct timespec until;
        const double begin_us = mics_clock_us();
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += SLICE_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&made->changed, &made->mutex, &until);
        const double slice_us = mics_clock_us() - begin_us;
        waited_us += slice_us < STOOD_STILL_US ? slice_us : 0;
    }
    const bool done = made->done;
    pthread_mutex_unlock(&made->mutex);
    return done;
}

// In a turn, which others get while the late handler speaks.
static mics_status fail_late(comm_mpi *self, const char *what)
{
    const mics_lateness late = {
        .what = what, .rank = self->base.rank, .peer = MICS_RANK_NONE, .waited_s = self->timeout_s};
    self->broken = true;
    if (self->late_handler != NULL)
        return comm_mpi_tell_late(self, &late);
    return mics_fail(
        MICS_ERR_TIMEOUT,
        "%s: MPI_Comm_split did not end within %g s: some rank stands still in it; see "
        "what the others do, or raise run.comm_timeout_s",
        what, self->timeout_s);
}

// Whether the ranks of one of the new communicators are those of the group, in order.
static mics_status check_split(const comm_mpi *self, const mics_ring *ring, MPI_Comm comm)
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

// In a turn: makes the communicators of one more kind. *made becomes NULL when it is given up: its
// thread may yet write to it.
static mics_status add_kind(comm_mpi *self, const mics_ring *ring, uint64_t order, splitting **made)
{
    const mics_group *group = &ring->group;
    if (!await_splitting(*made, self->timeout_s)) {
        *made = NULL;
        return fail_late(self, ring->what);
    }
    comm_library_kind *kind = &self->library.kind[self->library.kinds++];
    *kind = (comm_library_kind){
        .first = group->first, .stride = group->stride, .size = group->size, .order = order};
    memcpy(kind->comms, (*made)->comms, sizeof kind->comms);
    MICS_TRY(comm_mpi_check((*made)->code, ring->what));
    for (int i = 0; i < MICS_CHANNELS; i++)
        MICS_TRY(check_split(self, ring, kind->comms[i]));
    return MICS_OK;
}

// All meet before, where a late rank is found without a thread that is lost, and where one without
// memory or thread is heard of.
static mics_status agree_to_split(comm_mpi *self, const mics_ring *ring, mics_status mine)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int failed = mine != MICS_OK, any = 0;
    comm_turn_enter(&self->turn);
    const bool broken = self->broken;
    const int code =
        broken ? MPI_SUCCESS
               : MPI_Iallreduce(&failed, &any, 1, MPI_INT, MPI_MAX, self->world, &request);
    comm_turn_leave(&self->turn);
    const mics_status met = comm_mpi_await(self, code, &request, ring->what, self->timeout_s, true);
    if (mine != MICS_OK)
        return mine;
    if (met != MICS_OK)
        return met;
    return any ? MICS_ERR_PEER : MICS_OK;
}

static mics_status open_kind(comm_mpi *self, const mics_ring *ring, uint64_t order)
{
    splitting *made = NULL;
    mics_status status = agree_to_split(self, ring, open_splitting(self, ring, &made));
    if (status == MICS_OK) {
        comm_turn_enter(&self->turn);
        status = self->broken ? MICS_ERR_COMM : add_kind(self, ring, order, &made);
        self->broken = self->broken || status != MICS_OK;
        comm_turn_leave(&self->turn);
    }
    close_splitting(self, made);
    return status;
}

mics_status comm_mpi_library_open(void *ctx, const mics_ring *ring)
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

mics_status comm_mpi_library_gather(void *ctx, const mics_ring *ring, void *buffer,
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
