// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opening a world, and library gathers in it, while a rank stands still inside MPI_Comm_split_type or
// MPI_Comm_split, which this program puts itself in front of: under MPI's profiling rule the
// transport calls ours.
//   absent   the last rank stops itself (SIGSTOP) before it opens the world: the others say so in time
//   world    likewise in MPI_Comm_split_type
//   stopped  the last rank stops itself (SIGSTOP) in it: the others say so in time, and the world ends
//   told     likewise, and a late handler speaks
//   slow     it is late, but not too late
//   poor     it has no memory: it says so, the others hear of it, and a second try succeeds
#include "mics/comm.h"
#include "ranks.h"
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOW_US = 300 * 1000 };

// What must end in time has long, so that a machine with more to do does not end it.
static const double late_s = 1, late_to_open_s = 2, patience_s = 10;
static bool stops, sleeps;

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *comm_out)
{
    if (stops)
        raise(SIGSTOP);
    if (sleeps)
        usleep(SLOW_US);
    return PMPI_Comm_split(comm, color, key, comm_out);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *comm_out)
{
    if (stops)
        raise(SIGSTOP);
    return PMPI_Comm_split_type(comm, type, key, info, comm_out);
}

static void tell(void *ctx, const mics_timeout *late)
{
    (void)ctx;
    mics_log(MICS_LOG_ERROR, "told that rank %d waited %g s in %s", (int)late->rank, late->waited_s,
             late->what);
}

// Gathers the ranks' numbers.
static mics_status gather(mics_comm *comm, const mics_comm_group *ring)
{
    int32_t numbers[16] = {0};
    numbers[comm->rank] = comm->rank + 1;
    MICS_TRY(mics_comm_library_gather(comm, ring, numbers, sizeof numbers[0]));
    for (int32_t rank = 0; rank < comm->ranks; rank++)
        RANKS_EXPECT(numbers[rank] == rank + 1);
    return MICS_OK;
}

static mics_status be_poor(mics_comm *comm, mics_memory *memory, const mics_comm_group *ring,
                           bool odd)
{
    mics_memory_fail_after(memory, odd ? 1 : 0);
    const mics_status status = mics_comm_library_open(comm, ring);
    mics_memory_fail_after(memory, 0);
    RANKS_EXPECT(status == (odd ? MICS_ERR_MEMORY : MICS_ERR_PEER));
    MICS_TRY(mics_comm_library_open(comm, ring));
    return gather(comm, ring);
}

static mics_status go(mics_comm *comm, mics_memory *memory, const char *how)
{
    const bool odd = comm->rank == comm->ranks - 1;
    const mics_comm_group ring = {.group = {.size = comm->ranks, .stride = 1, .index = comm->rank},
                                  .what = "doomed opening"};
    if (strcmp(how, "poor") == 0)
        return be_poor(comm, memory, &ring, odd);
    const bool slow = strcmp(how, "slow") == 0;
    stops = odd && !slow;
    sleeps = odd && slow;
    if (!slow)
        MICS_TRY(mics_comm_set_timeout(comm, late_s));
    if (strcmp(how, "told") == 0)
        mics_comm_set_timeout_handler(comm, tell, comm);
    MICS_TRY(mics_comm_library_open(comm, &ring));
    return gather(comm, &ring);
}

// The world must not open: somebody says why before the launcher ends all.
static int open_in_vain(mics_memory *memory, const char *how)
{
    int level = 0, rank = 0, ranks = 0;
    mics_comm *comm = NULL;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    stops = rank == ranks - 1;
    if (stops && strcmp(how, "absent") == 0)
        raise(SIGSTOP);
    if (mics_comm_mpi_open(memory, late_to_open_s, &comm) == MICS_OK)
        printf("it opened\n");
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    mics_memory *memory = NULL;
    mics_comm *comm = NULL;
    if (argc != 2 || mics_memory_open(&memory) != MICS_OK)
        return EXIT_FAILURE;
    if (strcmp(argv[1], "absent") == 0 || strcmp(argv[1], "world") == 0)
        return open_in_vain(memory, argv[1]);
    if (mics_comm_mpi_open(memory, patience_s, &comm) != MICS_OK)
        return EXIT_FAILURE;
    mics_log_set_rank(comm->rank);
    const int32_t rank = comm->rank;
    const mics_status status = go(comm, memory, argv[1]);
    if (status != MICS_OK)
        mics_comm_abort(comm, NULL);
    mics_comm_close(comm);
    if (mics_memory_close(memory) != 0)
        return EXIT_FAILURE;
    if (rank == 0)
        printf("opened, and nothing is left\n");
    return EXIT_SUCCESS;
}
