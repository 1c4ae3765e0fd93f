// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Types and functions that the files of the MPI transport share. No other file includes mpi.h.
//
// After opening, every MPI call happens in the caller's turn; waiting gives it up. So channels,
// heartbeats and an abort go on beside one another, and MPI_THREAD_SERIALIZED is enough. Outside of
// an exchange no request of its channel is active, unless `broken`. Then MPI is called only to abort:
// without progress a failed exchange's messages do not reach the caller's buffers, unless the network
// moves data by itself.
#pragma once

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

// A monitor's record of a rank.
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
    int32_t node_ranks;    // that are treated as a node; 0: all of it
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
