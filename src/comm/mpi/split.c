// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Splitting MPI's world by nodes, with a deadline.
//
// MPI has no splitting that can be waited for with a deadline: a rank that stands still in it would
// hold all others for ever. So a thread splits, and its rank waits for it as long as for any
// collective. When that is over the rank gives the thread up, which stays in MPI until the program
// ends; and the transport is broken, so nobody else calls MPI but to abort.
#include "comm/mpi/split.h"
#include "base/clock.h"
#include "comm/mpi/wait.h"
#include "mics/log.h"

static const char split_what[] = "finding the ranks of a node";

static const double SLICE_US = 50e3;

// One splitting. The rank has the turn while its thread goes on.
typedef struct splitting {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    MPI_Comm world;
    int rank;
    // Guarded by the mutex.
    bool goes;  // every rank has its thread
    bool stops; // or some have not
    bool done;
    int code; // MPI's
    MPI_Comm node;
} splitting;

// ---- the thread ----

static void *split(void *arg)
{
    splitting *self = arg;
    MPI_Comm node = MPI_COMM_NULL;
    int code = MPI_SUCCESS;
    pthread_mutex_lock(&self->mutex);
    while (!self->goes && !self->stops)
        pthread_cond_wait(&self->changed, &self->mutex);
    const bool goes = self->goes;
    pthread_mutex_unlock(&self->mutex);
    if (goes)
        code = MPI_Comm_split_type(self->world, MPI_COMM_TYPE_SHARED, self->rank, MPI_INFO_NULL,
                                   &node);
    pthread_mutex_lock(&self->mutex);
    self->code = code;
    self->node = node;
    self->done = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

static mics_status open_splitting(comm_mpi *self, splitting **split_out)
{
    splitting *made = NULL;
    MICS_TRY(MICS_NEW(self->memory, 1, &made));
    made->world = self->world;
    made->rank = self->base.rank;
    const bool mutex = pthread_mutex_init(&made->mutex, NULL) == 0;
    const bool changed = mutex && mics_condition_init(&made->changed) == MICS_OK;
    if (changed && pthread_create(&made->thread, NULL, split, made) == 0) {
        *split_out = made;
        return MICS_OK;
    }
    if (changed)
        pthread_cond_destroy(&made->changed);
    if (mutex)
        pthread_mutex_destroy(&made->mutex);
    mics_free(self->memory, made);
    return mics_fail(MICS_ERR_MEMORY, "%s: the system starts no more threads", split_what);
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

// Lets the thread go; false when it has not ended in time.
static bool await_splitting(splitting *made, double timeout_s)
{
    mics_patience patience = mics_patience_begin(timeout_s);
    pthread_mutex_lock(&made->mutex);
    made->goes = true;
    pthread_cond_broadcast(&made->changed);
    while (!made->done && !mics_patience_ends(&patience))
        mics_condition_wait(&made->changed, &made->mutex, SLICE_US);
    const bool done = made->done;
    pthread_mutex_unlock(&made->mutex);
    return done;
}

// ---- the rank ----

// In a turn. *made becomes NULL when it is given up: its thread may yet write to it.
static mics_status go_through(comm_mpi *self, splitting **made, MPI_Comm *node_out)
{
    if (!await_splitting(*made, self->timeout_s)) {
        *made = NULL;
        return mics_fail(MICS_ERR_TIMEOUT,
                         "%s: MPI_Comm_split_type did not end within %g s: some rank stands still "
                         "in it; see what the others do, or raise run.comm_timeout_s",
                         split_what, self->timeout_s);
    }
    MICS_TRY(comm_mpi_check((*made)->code, split_what));
    *node_out = (*made)->node;
    return MICS_OK;
}

// A barrier before it, where a late rank is found without a thread that is lost, and where one
// without memory or thread is heard of.
static mics_status agree_to_split(comm_mpi *self, mics_status mine)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int failed = mine != MICS_OK, any = 0;
    comm_turn_enter(&self->turn);
    const bool broken = self->broken;
    const int code =
        broken ? MPI_SUCCESS
               : MPI_Iallreduce(&failed, &any, 1, MPI_INT, MPI_MAX, self->world, &request);
    comm_turn_leave(&self->turn);
    const mics_status came = comm_mpi_await(self, code, &request, split_what, self->timeout_s);
    if (mine != MICS_OK)
        return mine;
    if (came != MICS_OK)
        return came;
    return any ? MICS_ERR_PEER : MICS_OK;
}

mics_status comm_mpi_split_nodes(comm_mpi *self, MPI_Comm *node_out)
{
    splitting *made = NULL;
    mics_status status = agree_to_split(self, open_splitting(self, &made));
    if (status == MICS_OK) {
        comm_turn_enter(&self->turn);
        status = self->broken ? MICS_ERR_COMM : go_through(self, &made, node_out);
        self->broken = self->broken || status != MICS_OK;
        comm_turn_leave(&self->turn);
    }
    close_splitting(self, made);
    return status;
}
