// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files of the MPI transport share, which are the only ones that know MPI.
//
// Invariants:
//   1. After opening, every MPI call happens in the caller's turn; waiting gives it up. So the
//      channels, heartbeats and an abort go on beside one another, and MPI_THREAD_SERIALIZED is
//      enough.
//   2. Outside of an exchange no request of its channel is active, unless `broken`.
//   3. When `broken`, MPI is not called again except to abort: without progress, what a failed
//      exchange left behind does not reach the caller's buffers, unless the network moves data by
//      itself.
#ifndef MICS_COMM_MPI_TRANSPORT_H
#define MICS_COMM_MPI_TRANSPORT_H

#include "comm/internal.h"
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

// A mutex that is had in the order in which it was asked for, so that a channel that always has
// something to do does not keep the other one out.
typedef struct comm_turn {
    pthread_mutex_t mutex;
    pthread_cond_t next;
    bool ready;      // mutex and condition exist
    uint64_t drawn;  // numbers given out
    uint64_t served; // the number whose turn it is
    double since_us; // when this turn began; only who has it looks
} comm_turn;

mics_status comm_turn_init(comm_turn *turn);
void comm_turn_fini(comm_turn *turn);
void comm_turn_enter(comm_turn *turn);
void comm_turn_leave(comm_turn *turn);

/* Enters, or gives up after `seconds`: then nobody else ever gets a turn. For the end. */
void comm_turn_enter_last(comm_turn *turn, double seconds);

/* Lets others go first who wait for their turn, when this one has lasted for long. */
void comm_turn_hand_over(comm_turn *turn);

// A message to a monitor.
typedef struct comm_heartbeat_message {
    uint64_t kind;
    mics_heartbeat heartbeat;
} comm_heartbeat_message;

// What a monitor knows of a rank.
typedef struct comm_heartbeat_seen {
    bool posted; // a status has come
    double heard_us;
    mics_heartbeat heartbeat;
} comm_heartbeat_seen;

enum { COMM_MONITORS = 2 };

typedef struct comm_heartbeat {
    bool ready; // mutex and condition exist
    bool thread_exists;
    pthread_t thread;
    pthread_mutex_t mutex; // taken inside of turns, never around one
    pthread_cond_t wake;
    // Guarded by the mutex.
    bool going;  // begun: receives are posted
    bool ending; // the thread must end
    bool posted;
    mics_heartbeat mine;
    comm_heartbeat_seen *places; // (ranks); NULL on a rank that is no monitor
    // Used in turns.
    int32_t ranks;
    bool parting;                    // send goodbyes in place of heartbeats
    int32_t monitors[COMM_MONITORS]; // ranks; MICS_RANK_NONE: this one is that monitor
    bool parted[COMM_MONITORS];      // the goodbye is on its way
    MPI_Request sends[COMM_MONITORS];
    comm_heartbeat_message out[COMM_MONITORS];
    MPI_Request *receives;      // (ranks), MPI_REQUEST_NULL for a rank that said goodbye
    comm_heartbeat_message *in; // (ranks)
    int *arrived;               // (ranks), of MPI_Testsome
    MPI_Status *statuses;       // (ranks)
} comm_heartbeat;

// A box of a rank and channel, in memory that the ranks of a node share; see intra.c.
typedef struct comm_intra_box {
    // The owner, as sender: what it offers, and to whom.
    _Alignas(64) pid_t process;
    uint64_t address;
    uint64_t bytes;
    uint64_t hash;
    _Atomic uint64_t offered; // number of the offer << 32 | world rank of its receiver
    _Atomic bool withdrawn;
    // Its receiver.
    _Alignas(64) _Atomic uint32_t taken; // number of the last offer that was taken
    // The owner sleeps on `bells`, which whoever has news for it increments.
    _Atomic uint32_t bells;
    _Atomic uint32_t sleeps;
} comm_intra_box;

typedef struct comm_intra {
    comm_intra_box *boxes; // (ranks_per_node, MICS_CHANNELS); NULL: MPI carries it all
    int32_t first;         // rank of the node
    uint64_t mark;         // other ranks read it to see whether they can
} comm_intra;

typedef enum comm_reporting { COMM_SILENT, COMM_REPORTING, COMM_REPORTED } comm_reporting;

typedef struct comm_mpi {
    mics_comm base;
    mics_memory *memory;
    MPI_Comm world;
    double timeout_s;
    mics_timeout_handler timeout_handler; // NULL: the transport's own line
    void *timeout_ctx;
    bool owns_mpi; // this comm initialised MPI
    _Atomic bool broken;
    // Guarded by the turn.
    comm_reporting reporting; // whether the time-out handler speaks, or has spoken
    comm_turn turn;
    char *staging; // (MICS_CHANNELS, COMM_CHANNEL_BYTES): COMM_WINDOW chunks, small in, small out
    comm_heartbeat heartbeat;
    comm_intra intra;
} comm_mpi;

// ---- wait.c; in the caller's turn, but for comm_mpi_await and comm_mpi_is_broken ----

/* MICS_OK, or an error with MPI's text. */
mics_status comm_mpi_check(int code, const char *what);

/* Tests one request, if it is active; *done_out is set when it is done. */
mics_status comm_mpi_test(MPI_Request *request, const char *what, bool *done_out);

/* Called when a poll found nothing. Sleeps outside of the turn, once nothing has moved since
 * `since_us` for a moment. */
void comm_mpi_give_way(comm_mpi *self, double since_us);

/* Calls the time-out handler, outside of the turn; once: who comes later waits until it has spoken.
 * Returns MICS_ERR_TIMEOUT. */
mics_status comm_mpi_report_timeout(comm_mpi *self, const mics_timeout *timeout);

/* Waits for one of MPI's own collectives; `code` is what starting it gave. */
mics_status comm_mpi_await(comm_mpi *self, int code, MPI_Request *request, const char *what,
                           double timeout_s);

/* Not in a turn. */
bool comm_mpi_is_broken(comm_mpi *self);

// ---- exchange.c ----

mics_status comm_mpi_exchange(void *ctx, const mics_exchange *exchange);

// ---- intra.c: exchanges between ranks of a node; not in a turn, unless it says so ----

/* Finds out whether the ranks of a node can read each other's memory. If they cannot, boxes stays
 * NULL, which is no error. */
mics_status comm_intra_open(comm_mpi *self, MPI_Comm node);
void comm_intra_close(comm_mpi *self);

/* Whether a rank, or this one, is reached without MPI. MICS_RANK_NONE is not. */
static inline bool comm_intra_reaches(const comm_mpi *self, int32_t rank)
{
    return self->intra.boxes != NULL && rank >= self->intra.first &&
           rank < self->intra.first + self->base.ranks_per_node;
}

/* What is waited for may have come when this number has changed. */
uint32_t comm_intra_listen(const comm_mpi *self, int32_t channel);

/* Looks for a moment whether there is news since `heard` was listened to. */
bool comm_intra_poll(const comm_mpi *self, int32_t channel, uint32_t heard);

/* Sleeps for `longest_us` < 1e6, or until there is news since `heard` was listened to. */
void comm_intra_sleep(const comm_mpi *self, int32_t channel, uint32_t heard, double longest_us);

/* Offers what the exchange sends to the rank that it sends to. The last offer has been taken. */
void comm_intra_offer(comm_mpi *self, const mics_exchange *exchange, uint64_t hash);

/* Whether this rank's offer has been taken. */
bool comm_intra_is_taken(const comm_mpi *self, int32_t channel);

/* For the end: what is offered and not taken yet must not be. */
void comm_intra_withdraw(comm_mpi *self);

/* Whether rank `from` offers this one something that has not been taken, and what that is. */
bool comm_intra_is_offered(const comm_mpi *self, int32_t from, int32_t channel, uint64_t *bytes_out,
                           uint64_t *hash_out);

/* Takes what is offered; the sizes are the same. *there_out is false when the other process is
 * gone; then something may have been added, and this must not be tried again.
 *
 * Returns: MICS_OK; MICS_ERR_COMM; MICS_ERR_ABORTED when the sender has withdrawn.
 */
mics_status comm_intra_take(comm_mpi *self, const mics_exchange *exchange, bool *there_out);

// ---- share.c ----

/* `bytes` of zeroes that the other processes of the node find by the ticket. After the last has
 * looked, the maker calls comm_node_memory_made.
 *
 * Returns: NULL when that cannot be; errno says why.     Owns: comm_node_memory_drop gives it back.
 */
void *comm_node_memory_make(uint64_t mark, size_t bytes, comm_ticket *ticket_out);
void *comm_node_memory_find(const comm_ticket *ticket, size_t bytes);
void comm_node_memory_made(const comm_ticket *ticket);
void comm_node_memory_drop(void *memory);

mics_status comm_mpi_share(void *ctx, const mics_comm_group *over, size_t bytes, void **memory_out);
void comm_mpi_unshare(void *ctx, void *memory);

// ---- heartbeat.c ----

/* Makes what heartbeats need, their thread too, which waits for comm_heartbeat_start. Not
 * collective.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY. Ends with comm_heartbeat_fini in both cases.
 */
mics_status comm_heartbeat_open(comm_mpi *self, int32_t rank, int32_t ranks);

/* Begins: the world is open. */
mics_status comm_heartbeat_start(comm_mpi *self);

/* Ends the thread. */
void comm_heartbeat_stop(comm_heartbeat *beat);

/* After comm_heartbeat_stop, on every rank, if heartbeats have begun: says goodbye to the monitors,
 * and as one hears it from all. Then no message is under way. */
mics_status comm_heartbeat_part(comm_mpi *self, double timeout_s);

/* Frees; stops first. A zeroed one is allowed. */
void comm_heartbeat_fini(comm_mpi *self);

void comm_mpi_post(void *ctx, const mics_heartbeat *heartbeat);
bool comm_mpi_read(void *ctx, int32_t rank, mics_heartbeat *heartbeat_out, double *age_s_out);

// ---- split.c; not in a turn ----

/* A communicator of this rank's node, its ranks in the world's order, within the transport's
 * time-out.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY; MICS_ERR_PEER when another rank had no memory;
 *          MICS_ERR_TIMEOUT, MICS_ERR_COMM: the world is broken.
 * Owns:    *node_out belongs to the caller.         Collective: yes.
 */
mics_status comm_mpi_split_nodes(comm_mpi *self, MPI_Comm *node_out);

#endif
