// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Heartbeats over MPI: a thread of its own sends this rank's newest status to the monitors a
// few times a second, whether the rank computes or is in an exchange.
//
// A rank starts a message to a monitor only when MPI is done with the one before; they are few and
// small, so a monitor that stands still collects little. No synchronous sends: with Open MPI 4.1.4
// over TCP their acknowledgements got lost (2 nodes of 1 rank: in 4 of 4 runs), and closing waited
// for ever. A monitor has one receive posted for each other rank up to that rank's goodbye, its last
// message: after all goodbyes nothing is under way.
#include "comm/mpi/heartbeat.h"
#include "base/clock.h"
#include "base/free.h"
#include "comm/mpi/wait.h"
#include "mics/log.h"
#include <signal.h>
#include <string.h>

enum {
    TAG_HEARTBEAT = 0, // exchanges have those above
    DRAIN_MAX = 4,     // messages of a rank that one round may take in
};

static const double PERIOD_US = 200e3;

enum { MESSAGE_ALIVE, MESSAGE_STATUS, MESSAGE_GOODBYE };

static const char heartbeat_what[] = "sending heartbeats";

// ---- messages, in turns ----

static mics_status post_receive(comm_mpi *self, int32_t from)
{
    comm_heartbeat *beat = &self->heartbeat;
    return comm_mpi_check(MPI_Irecv(&beat->in[from], (int)sizeof beat->in[from], MPI_BYTE, from,
                                    TAG_HEARTBEAT, self->world, &beat->receives[from]),
                          heartbeat_what);
}

static void keep(comm_heartbeat *beat, int32_t from)
{
    const comm_heartbeat_message *message = &beat->in[from];
    comm_heartbeat_seen *place = &beat->places[from];
    pthread_mutex_lock(&beat->mutex);
    place->heard_us = mics_clock_us();
    if (message->kind == MESSAGE_STATUS) {
        place->posted = true;
        place->heartbeat = message->heartbeat;
    }
    pthread_mutex_unlock(&beat->mutex);
}

// Takes in what has come; *left_out: ranks that have not said goodbye.
static mics_status receive_heartbeats(comm_mpi *self, bool *left_out)
{
    comm_heartbeat *beat = &self->heartbeat;
    int arrived = 0;
    *left_out = false;
    for (int round = 0; beat->places != NULL && round < DRAIN_MAX; round++) {
        MICS_TRY(comm_mpi_check(
            MPI_Testsome((int)beat->ranks, beat->receives, &arrived, beat->arrived, beat->statuses),
            heartbeat_what));
        *left_out = arrived != MPI_UNDEFINED;
        for (int i = 0; *left_out && i < arrived; i++) {
            int32_t from = beat->arrived[i];
            keep(beat, from);
            if (beat->in[from].kind != MESSAGE_GOODBYE)
                MICS_TRY(post_receive(self, from));
        }
        if (!*left_out || arrived == 0)
            break;
    }
    return MICS_OK;
}

static void write_message(comm_heartbeat *beat, comm_heartbeat_message *message)
{
    pthread_mutex_lock(&beat->mutex);
    message->kind = beat->posted ? MESSAGE_STATUS : MESSAGE_ALIVE;
    message->heartbeat = beat->mine;
    pthread_mutex_unlock(&beat->mutex);
    if (beat->parting)
        message->kind = MESSAGE_GOODBYE;
}

// Sends to the monitors for which MPI is done with the message before; *left_out: with some goodbye
// it is not.
static mics_status send_heartbeats(comm_mpi *self, bool *left_out)
{
    comm_heartbeat *beat = &self->heartbeat;
    *left_out = false;
    for (int i = 0; i < COMM_MONITORS; i++) {
        bool done = beat->sends[i] == MPI_REQUEST_NULL;
        if (beat->monitors[i] == MICS_RANK_NONE)
            continue;
        MICS_TRY(comm_mpi_test(&beat->sends[i], heartbeat_what, &done));
        *left_out = *left_out || !done || !beat->parted[i];
        if (!done || beat->parted[i])
            continue;
        write_message(beat, &beat->out[i]);
        beat->parted[i] = beat->parting;
        MICS_TRY(comm_mpi_check(MPI_Isend(&beat->out[i], (int)sizeof beat->out[i], MPI_BYTE,
                                          beat->monitors[i], TAG_HEARTBEAT, self->world,
                                          &beat->sends[i]),
                                heartbeat_what));
    }
    return MICS_OK;
}

static mics_status go_on(comm_mpi *self, bool *left_out)
{
    bool hears = false, says = false;
    MICS_TRY(receive_heartbeats(self, &hears));
    MICS_TRY(send_heartbeats(self, &says));
    *left_out = hears || says;
    return MICS_OK;
}

// ---- the thread ----

// Waits for the next round. False: the thread must end.
static bool await_round(comm_heartbeat *beat)
{
    const double begin_us = mics_clock_us();
    double left_us = 0;
    pthread_mutex_lock(&beat->mutex);
    while (!beat->ending && !beat->going)
        pthread_cond_wait(&beat->wake, &beat->mutex);
    while (!beat->ending && (left_us = begin_us + PERIOD_US - mics_clock_us()) > 0)
        mics_condition_wait(&beat->wake, &beat->mutex, left_us);
    bool goes = !beat->ending;
    pthread_mutex_unlock(&beat->mutex);
    return goes;
}

static void *heartbeat_main(void *arg)
{
    comm_mpi *self = arg;
    bool well = true;
    while (well && await_round(&self->heartbeat)) {
        bool left = false;
        mics_log_set_rank(self->base.rank);
        comm_turn_enter(&self->turn);
        if (!self->broken && go_on(self, &left) != MICS_OK)
            self->broken = true;
        well = !self->broken;
        comm_turn_leave(&self->turn);
    }
    return NULL;
}

// With all signals blocked: who waits for them is the program's choice.
static mics_status start_thread(comm_mpi *self)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&self->heartbeat.thread, NULL, heartbeat_main, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return mics_fail(MICS_ERR_MEMORY, "no thread for heartbeats: %s", strerror(code));
    self->heartbeat.thread_exists = true;
    return MICS_OK;
}

// ---- opening and closing ----

static mics_status init_locks(comm_heartbeat *beat)
{
    const mics_status status = mics_locks_init(&beat->mutex, (pthread_cond_t *[]){&beat->wake}, 1);
    beat->ready = status == MICS_OK;
    return status;
}

static mics_status allocate_places(comm_mpi *self, size_t ranks)
{
    comm_heartbeat *beat = &self->heartbeat;
    MICS_TRY(MICS_NEW(self->memory, ranks, &beat->places));
    MICS_TRY(MICS_NEW(self->memory, ranks, &beat->receives));
    MICS_TRY(MICS_NEW(self->memory, ranks, &beat->in));
    MICS_TRY(MICS_NEW(self->memory, ranks, &beat->arrived));
    // Nobody reads them, but gcc takes MPICH's MPI_STATUSES_IGNORE for an array that is too short.
    MICS_TRY(MICS_NEW(self->memory, ranks, &beat->statuses));
    for (size_t i = 0; i < ranks; i++)
        beat->receives[i] = MPI_REQUEST_NULL;
    return MICS_OK;
}

mics_status comm_heartbeat_open(comm_mpi *self, int32_t rank, int32_t ranks)
{
    comm_heartbeat *beat = &self->heartbeat;
    const int32_t monitors[COMM_MONITORS] = {0, ranks - 1};
    bool monitor = false;
    beat->ranks = ranks;
    for (int i = 0; i < COMM_MONITORS; i++) {
        bool mine = monitors[i] == rank;
        monitor = monitor || mine;
        beat->monitors[i] = mine ? MICS_RANK_NONE : monitors[i];
        beat->sends[i] = MPI_REQUEST_NULL;
    }
    MICS_TRY(init_locks(beat));
    if (ranks == 1)
        return MICS_OK;
    if (monitor)
        MICS_TRY(allocate_places(self, (size_t)ranks));
    return start_thread(self);
}

mics_status comm_heartbeat_start(comm_mpi *self)
{
    comm_heartbeat *beat = &self->heartbeat;
    mics_status status = MICS_OK;
    comm_turn_enter(&self->turn);
    for (int32_t from = 0; beat->places != NULL && from < beat->ranks; from++) {
        if (from != self->base.rank && status == MICS_OK)
            status = post_receive(self, from);
    }
    self->broken = status != MICS_OK;
    comm_turn_leave(&self->turn);
    pthread_mutex_lock(&beat->mutex);
    beat->going = status == MICS_OK;
    pthread_cond_signal(&beat->wake);
    pthread_mutex_unlock(&beat->mutex);
    return status;
}

void comm_heartbeat_stop(comm_heartbeat *beat)
{
    if (!beat->thread_exists)
        return;
    pthread_mutex_lock(&beat->mutex);
    beat->ending = true;
    pthread_cond_signal(&beat->wake);
    pthread_mutex_unlock(&beat->mutex);
    pthread_join(beat->thread, NULL);
    beat->thread_exists = false;
}

mics_status comm_heartbeat_part(comm_mpi *self, double timeout_s)
{
    comm_heartbeat *beat = &self->heartbeat;
    if (beat->ranks == 1 || !beat->going)
        return MICS_OK;
    mics_patience patience = mics_patience_begin(timeout_s);
    const double since_us = patience.looked_us;
    bool left = true;
    comm_turn_enter(&self->turn);
    beat->parting = true;
    mics_status status = self->broken ? MICS_ERR_COMM : MICS_OK;
    while (status == MICS_OK && left) {
        status = go_on(self, &left);
        if (status == MICS_OK && left && mics_patience_ends(&patience))
            status =
                mics_fail(MICS_ERR_TIMEOUT, "closing: not all ranks came within %g s", timeout_s);
        if (status == MICS_OK && left)
            comm_mpi_give_way(self, since_us);
    }
    self->broken = status != MICS_OK;
    comm_turn_leave(&self->turn);
    return status;
}

void comm_heartbeat_fini(comm_mpi *self)
{
    comm_heartbeat *beat = &self->heartbeat;
    comm_heartbeat_stop(beat);
    if (beat->ready) {
        pthread_cond_destroy(&beat->wake);
        pthread_mutex_destroy(&beat->mutex);
    }
    MICS_FREE_ALL(self->memory, beat->statuses, beat->arrived, beat->in, beat->receives,
                  beat->places);
    *beat = (comm_heartbeat){0};
}

// ---- status, any thread ----

void comm_mpi_post(void *ctx, const mics_heartbeat *heartbeat)
{
    comm_mpi *self = ctx;
    comm_heartbeat *beat = &self->heartbeat;
    pthread_mutex_lock(&beat->mutex);
    beat->mine = *heartbeat;
    beat->posted = true;
    pthread_mutex_unlock(&beat->mutex);
}

bool comm_mpi_read(void *ctx, int32_t rank, mics_heartbeat *heartbeat_out, double *age_s_out)
{
    comm_mpi *self = ctx;
    comm_heartbeat *beat = &self->heartbeat;
    bool own = rank == self->base.rank, found = false;
    pthread_mutex_lock(&beat->mutex);
    if (own && beat->posted) {
        found = true;
        *heartbeat_out = beat->mine;
        *age_s_out = 0;
    } else if (!own && beat->places != NULL && beat->places[rank].posted) {
        found = true;
        *heartbeat_out = beat->places[rank].heartbeat;
        *age_s_out = (mics_clock_us() - beat->places[rank].heard_us) * 1e-6;
    }
    pthread_mutex_unlock(&beat->mutex);
    return found;
}
