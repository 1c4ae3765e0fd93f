// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The board over MPI: a thread of its own sends this rank's newest note to the monitors a few times
// a second, whether the rank computes or is in an exchange.
//
// Invariants:
//   1. A rank starts a message to a monitor only when MPI is done with the one before. They are few
//      and small, so a monitor that stands still collects little. Not synchronous sends: with Open MPI
//      4.1.4 over TCP their acknowledgements got lost (2 nodes of 1 rank: in 4 of 4 runs), and closing
//      waited for ever.
//   2. A monitor has one receive posted for each other rank that has not said goodbye.
//   3. A rank's last message is its goodbye; so when all have parted, nothing is under way.
#include "comm/mpi/transport.h"
#include "mics/clock.h"
#include "mics/log.h"
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
    TAG_BOARD = 0, // exchanges have those above
    PERIOD_NS = 200 * 1000 * 1000,
    DRAIN_MAX = 4, // messages of a rank that one round may take in
};

enum { MESSAGE_ALIVE, MESSAGE_NOTE, MESSAGE_GOODBYE };

static const char board_what[] = "sending notes";

// ---- messages, in turns ----

static mics_status post_receive(comm_mpi *self, int32_t from)
{
    comm_board *board = &self->board;
    return comm_mpi_check(MPI_Irecv(&board->in[from], (int)sizeof board->in[from], MPI_BYTE, from,
                                    TAG_BOARD, self->world, &board->receives[from]),
                          board_what);
}

static void keep(comm_board *board, int32_t from)
{
    const comm_board_message *message = &board->in[from];
    comm_board_place *place = &board->places[from];
    pthread_mutex_lock(&board->mutex);
    place->heard_us = mics_clock_us();
    if (message->kind == MESSAGE_NOTE) {
        place->posted = true;
        place->note = message->note;
    }
    pthread_mutex_unlock(&board->mutex);
}

// Takes in what has come; *left_out: ranks that have not said goodbye.
static mics_status take_notes(comm_mpi *self, bool *left_out)
{
    comm_board *board = &self->board;
    int arrived = 0;
    *left_out = false;
    for (int round = 0; board->places != NULL && round < DRAIN_MAX; round++) {
        MICS_TRY(comm_mpi_check(MPI_Testsome((int)board->ranks, board->receives, &arrived,
                                             board->arrived, board->statuses),
                                board_what));
        *left_out = arrived != MPI_UNDEFINED;
        for (int i = 0; *left_out && i < arrived; i++) {
            int32_t from = board->arrived[i];
            keep(board, from);
            if (board->in[from].kind != MESSAGE_GOODBYE)
                MICS_TRY(post_receive(self, from));
        }
        if (!*left_out || arrived == 0)
            break;
    }
    return MICS_OK;
}

static void write_message(comm_board *board, comm_board_message *message)
{
    pthread_mutex_lock(&board->mutex);
    message->kind = board->posted ? MESSAGE_NOTE : MESSAGE_ALIVE;
    message->note = board->mine;
    pthread_mutex_unlock(&board->mutex);
    if (board->parting)
        message->kind = MESSAGE_GOODBYE;
}

// Sends to the monitors for which MPI is done with the message before; *left_out: with some goodbye it
// is not.
static mics_status send_notes(comm_mpi *self, bool *left_out)
{
    comm_board *board = &self->board;
    *left_out = false;
    for (int i = 0; i < COMM_MONITORS; i++) {
        bool done = board->sends[i] == MPI_REQUEST_NULL;
        if (board->monitors[i] == MICS_RANK_NONE)
            continue;
        MICS_TRY(comm_mpi_test(&board->sends[i], board_what, &done));
        *left_out = *left_out || !done || !board->parted[i];
        if (!done || board->parted[i])
            continue;
        write_message(board, &board->out[i]);
        board->parted[i] = board->parting;
        MICS_TRY(
            comm_mpi_check(MPI_Isend(&board->out[i], (int)sizeof board->out[i], MPI_BYTE,
                                     board->monitors[i], TAG_BOARD, self->world, &board->sends[i]),
                           board_what));
    }
    return MICS_OK;
}

static mics_status go_on(comm_mpi *self, bool *left_out)
{
    bool hears = false, says = false;
    MICS_TRY(take_notes(self, &hears));
    MICS_TRY(send_notes(self, &says));
    *left_out = hears || says;
    return MICS_OK;
}

// ---- the thread ----

// Waits for the next round. False: the thread must end.
static bool await_round(comm_board *board)
{
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    next.tv_nsec += PERIOD_NS;
    if (next.tv_nsec >= 1000000000L) {
        next.tv_sec++;
        next.tv_nsec -= 1000000000L;
    }
    int late = 0;
    pthread_mutex_lock(&board->mutex);
    while (!board->ending && !board->going)
        pthread_cond_wait(&board->wake, &board->mutex);
    while (!board->ending && late == 0)
        late = pthread_cond_timedwait(&board->wake, &board->mutex, &next);
    bool goes = !board->ending;
    pthread_mutex_unlock(&board->mutex);
    return goes;
}

static void *board_main(void *arg)
{
    comm_mpi *self = arg;
    bool well = true;
    while (well && await_round(&self->board)) {
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
    int code = pthread_create(&self->board.thread, NULL, board_main, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return mics_fail(MICS_ERR_MEMORY, "no thread for notes: %s", strerror(code));
    self->board.thread_exists = true;
    return MICS_OK;
}

// ---- opening and closing ----

static mics_status init_locks(comm_board *board)
{
    pthread_condattr_t monotonic;
    bool mutex = pthread_mutex_init(&board->mutex, NULL) == 0;
    bool attributes = mutex && pthread_condattr_init(&monotonic) == 0;
    if (attributes) {
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        board->ready = pthread_cond_init(&board->wake, &monotonic) == 0;
        pthread_condattr_destroy(&monotonic);
    }
    if (board->ready)
        return MICS_OK;
    if (mutex)
        pthread_mutex_destroy(&board->mutex);
    return mics_fail(MICS_ERR_MEMORY, "no mutex or condition variable for notes");
}

static mics_status allocate_places(comm_mpi *self, size_t ranks)
{
    comm_board *board = &self->board;
    void *block = NULL;
    MICS_TRY(mics_alloc(self->memory, MICS_MEM_HOST, ranks * sizeof *board->places, &block));
    board->places = block;
    MICS_TRY(mics_alloc(self->memory, MICS_MEM_HOST, ranks * sizeof(MPI_Request), &block));
    board->receives = block;
    MICS_TRY(mics_alloc(self->memory, MICS_MEM_HOST, ranks * sizeof *board->in, &block));
    board->in = block;
    MICS_TRY(mics_alloc(self->memory, MICS_MEM_HOST, ranks * sizeof *board->arrived, &block));
    board->arrived = block;
    // Nobody reads them, but gcc takes MPICH's MPI_STATUSES_IGNORE for an array that is too short.
    MICS_TRY(mics_alloc(self->memory, MICS_MEM_HOST, ranks * sizeof *board->statuses, &block));
    board->statuses = block;
    for (size_t i = 0; i < ranks; i++)
        board->receives[i] = MPI_REQUEST_NULL;
    return MICS_OK;
}

mics_status comm_board_open(comm_mpi *self, int32_t rank, int32_t ranks)
{
    comm_board *board = &self->board;
    const int32_t monitors[COMM_MONITORS] = {0, ranks - 1};
    bool monitor = false;
    board->ranks = ranks;
    for (int i = 0; i < COMM_MONITORS; i++) {
        bool mine = monitors[i] == rank;
        monitor = monitor || mine;
        board->monitors[i] = mine ? MICS_RANK_NONE : monitors[i];
        board->sends[i] = MPI_REQUEST_NULL;
    }
    MICS_TRY(init_locks(board));
    if (ranks == 1)
        return MICS_OK;
    if (monitor)
        MICS_TRY(allocate_places(self, (size_t)ranks));
    return start_thread(self);
}

mics_status comm_board_start(comm_mpi *self)
{
    comm_board *board = &self->board;
    mics_status status = MICS_OK;
    comm_turn_enter(&self->turn);
    for (int32_t from = 0; board->places != NULL && from < board->ranks; from++) {
        if (from != self->base.rank && status == MICS_OK)
            status = post_receive(self, from);
    }
    self->broken = status != MICS_OK;
    comm_turn_leave(&self->turn);
    pthread_mutex_lock(&board->mutex);
    board->going = status == MICS_OK;
    pthread_cond_signal(&board->wake);
    pthread_mutex_unlock(&board->mutex);
    return status;
}

void comm_board_stop(comm_board *board)
{
    if (!board->thread_exists)
        return;
    pthread_mutex_lock(&board->mutex);
    board->ending = true;
    pthread_cond_signal(&board->wake);
    pthread_mutex_unlock(&board->mutex);
    pthread_join(board->thread, NULL);
    board->thread_exists = false;
}

mics_status comm_board_part(comm_mpi *self, double timeout_s)
{
    comm_board *board = &self->board;
    if (board->ranks == 1 || !board->going)
        return MICS_OK;
    double since_us = mics_clock_us();
    bool left = true;
    comm_turn_enter(&self->turn);
    board->parting = true;
    mics_status status = self->broken ? MICS_ERR_COMM : MICS_OK;
    while (status == MICS_OK && left) {
        status = go_on(self, &left);
        if (status == MICS_OK && left && comm_mpi_is_late(since_us, timeout_s))
            status =
                mics_fail(MICS_ERR_TIMEOUT, "closing: not all ranks came within %g s", timeout_s);
        if (status == MICS_OK && left)
            since_us += comm_mpi_give_way(self, since_us);
    }
    self->broken = status != MICS_OK;
    comm_turn_leave(&self->turn);
    return status;
}

void comm_board_fini(comm_mpi *self)
{
    comm_board *board = &self->board;
    comm_board_stop(board);
    if (board->ready) {
        pthread_cond_destroy(&board->wake);
        pthread_mutex_destroy(&board->mutex);
    }
    mics_free(self->memory, board->statuses);
    mics_free(self->memory, board->arrived);
    mics_free(self->memory, board->in);
    mics_free(self->memory, board->receives);
    mics_free(self->memory, board->places);
    *board = (comm_board){0};
}

// ---- notes, any thread ----

void comm_mpi_post(void *ctx, const mics_note *note)
{
    comm_mpi *self = ctx;
    comm_board *board = &self->board;
    pthread_mutex_lock(&board->mutex);
    board->mine = *note;
    board->posted = true;
    pthread_mutex_unlock(&board->mutex);
}

bool comm_mpi_read(void *ctx, int32_t rank, mics_note *note_out, double *age_s_out)
{
    comm_mpi *self = ctx;
    comm_board *board = &self->board;
    bool own = rank == self->base.rank, found = false;
    pthread_mutex_lock(&board->mutex);
    if (own && board->posted) {
        found = true;
        *note_out = board->mine;
        *age_s_out = 0;
    } else if (!own && board->places != NULL && board->places[rank].posted) {
        found = true;
        *note_out = board->places[rank].note;
        *age_s_out = (mics_clock_us() - board->places[rank].heard_us) * 1e-6;
    }
    pthread_mutex_unlock(&board->mutex);
    return found;
}
