// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opening a world while a rank stands still, before it or inside MPI_Comm_split_type, which this program
// puts itself in front of: under MPI's profiling rule the transport calls ours.
//   absent   the last rank stops itself (SIGSTOP) before it opens the world: the others say so in time
//   world    likewise in MPI_Comm_split_type
//   slow     it is late there, but not too late
#include "mics/core/comm.h"
#include "mics/core/transport.h"
#include "ranks.h"
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOW_US = 300 * 1000, LATE_S = 2, NOT_LATE_S = RANKS_TIMEOUT_S };

static bool stops, sleeps;

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *comm_out)
{
    if (stops)
        raise(SIGSTOP);
    if (sleeps)
        usleep(SLOW_US);
    return PMPI_Comm_split_type(comm, type, key, info, comm_out);
}

// With `slow` the world must open, else not: then somebody says why before the launcher ends all.
int main(int argc, char **argv)
{
    mics_memory *memory = NULL;
    mics_comm *comm = NULL;
    int level = 0, rank = 0, ranks = 0;
    if (argc != 2 || mics_memory_open(&memory) != MICS_OK)
        return EXIT_FAILURE;
    const bool slow = strcmp(argv[1], "slow") == 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const bool odd = rank == ranks - 1;
    stops = odd && !slow;
    sleeps = odd && slow;
    // On a busy machine ranks leave MPI_Init seconds apart.
    MPI_Barrier(MPI_COMM_WORLD);
    if (stops && strcmp(argv[1], "absent") == 0)
        raise(SIGSTOP);
    const mics_status status = mics_comm_mpi_open(memory, slow ? NOT_LATE_S : LATE_S, &comm);
    if (status == MICS_OK && !slow)
        printf("it opened\n");
    if (status != MICS_OK || !slow)
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    mics_comm_close(comm);
    MPI_Finalize();
    if (mics_memory_close(memory) != 0)
        return EXIT_FAILURE;
    if (rank == 0)
        printf("opened, and nothing is left\n");
    return EXIT_SUCCESS;
}
