// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The MPI transport, run by a launcher with several ranks. Without an argument: all collectives
// against the same plain sums as the other transports. With one: a way to fail, whose one line the
// caller looks for.
//   late      rank 1 does not come
//   mismatch  ranks disagree about the size
//   crossed   ranks disagree about which collective comes next, of the same size
//   unclosed  rank 1 does not close
//   killed    rank 1 dies by SIGKILL while others wait for it
//   poor      rank 1 has no memory to open with: nobody opens, nobody waits
//   nodes     the caller has told MPICH to pretend to have nodes that cannot be used
//   apart     likewise, with one rank a node
#include "comm/internal.h"
#include "comm_checks.h"
#include "mics/comm.h"
#include "ranks.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static mics_status check_all(mics_comm *comm, mics_memory *memory)
{
    static const size_t sizes[] = {0,
                                   4,
                                   COMM_SMALL_BYTES - 20,
                                   COMM_SMALL_BYTES - 16,
                                   COMM_SMALL_BYTES - 12,
                                   COMM_SMALL_BYTES - 8,
                                   COMM_SMALL_BYTES - 4,
                                   COMM_CHUNK_BYTES - 4,
                                   COMM_CHUNK_BYTES,
                                   COMM_CHUNK_BYTES + 4,
                                   (COMM_WINDOW + 1) * COMM_CHUNK_BYTES + 12};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        MICS_TRY(checks_exchanges(comm, memory, sizes[i]));
    MICS_TRY(checks_many_rings(comm, memory, 60, 3000));
    mics_group world = {.size = comm->ranks, .stride = 1, .index = comm->rank};
    MICS_TRY(checks_ring(comm, memory, world, 3, 300 * 1000));
    MICS_TRY(checks_broadcast(comm, memory, 0));
    MICS_TRY(checks_broadcast(comm, memory, 3));
    MICS_TRY(checks_broadcast(comm, memory, 2500 * 1000));
    return checks_agree(comm);
}

static mics_status check_opened(const mics_comm *comm, const mics_memory *memory,
                                int32_t ranks_per_node)
{
    mics_memory_stats stats;
    mics_memory_stats_get(memory, &stats);
    RANKS_EXPECT(stats.now[MICS_MEM_COMM] == comm->staging_bytes);
    RANKS_EXPECT(comm->staging_bytes == mics_comm_mpi_staging_bytes());
    // All ranks of the test are on this machine.
    RANKS_EXPECT(comm->ranks_per_node == ranks_per_node);
    RANKS_EXPECT(mics_comm_mpi_launched() && comm->ranks == mics_comm_mpi_announced_ranks());
    RANKS_EXPECT(mics_comm_mpi_version() != NULL && mics_comm_mpi_version()[0] != '\0');
    return MICS_OK;
}

static mics_status fail_on_purpose(mics_comm *comm, const char *how)
{
    mics_ring ring = {.group = {.size = comm->ranks, .stride = 1, .index = comm->rank},
                      .what = "doomed collective"};
    static float buffer[1024];
    bool odd_one = comm->rank == 1;
    int64_t elems = (int64_t)(sizeof buffer / sizeof buffer[0]) / comm->ranks;
    if (strcmp(how, "late") == 0 && odd_one)
        sleep(30);
    if (strcmp(how, "killed") == 0 && odd_one)
        raise(SIGKILL);
    if (strcmp(how, "mismatch") == 0 && odd_one)
        elems /= 2;
    if (strcmp(how, "crossed") == 0 && odd_one)
        ring.what = "another collective";
    if (strcmp(how, "unclosed") == 0) {
        MICS_TRY(mics_comm_set_timeout(comm, 0.1));
        if (odd_one)
            sleep(30);
        return MICS_OK;
    }
    return mics_comm_all_reduce(comm, &ring, buffer, elems * comm->ranks);
}

static int open_poor(mics_memory *memory)
{
    mics_comm *comm = NULL;
    bool poor = mics_comm_mpi_announced_rank() == 1;
    // The second allocation is the staging buffer.
    mics_memory_fail_after(memory, poor ? 2 : 0);
    mics_status status = mics_comm_mpi_open(memory, 60, &comm);
    bool right = status == (poor ? MICS_ERR_MEMORY : MICS_ERR_PEER) && comm == NULL;
    if (!right)
        mics_log(MICS_LOG_ERROR, "opening without memory gave %s", mics_status_name(status));
    return mics_memory_close(memory) == 0 && right ? 0 : 1;
}

static void on_terminate(int signal_number)
{
    (void)signal_number;
    _exit(1);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : NULL;
    mics_memory *memory = NULL;
    mics_comm *comm = NULL;
    if (mics_memory_open(&memory) != MICS_OK)
        return 1;
    if (how != NULL && strcmp(how, "poor") == 0)
        return open_poor(memory);
    double timeout_s = how != NULL && strcmp(how, "late") == 0 ? 0.5 : 60;
    mics_status status = mics_comm_mpi_open(memory, timeout_s, &comm);
    if (status == MICS_ERR_UNSUPPORTED)
        return 77;
    if (status != MICS_OK)
        return 1;
    mics_log_set_rank(comm->rank);
    signal(SIGTERM, on_terminate);
    if (comm->ranks < 2)
        status = mics_fail(MICS_ERR_INVALID, "start this with mpirun -n 4");
    bool apart = how != NULL && strcmp(how, "apart") == 0;
    if (how != NULL && strcmp(how, "nodes") == 0)
        status = mics_fail(MICS_ERR_INVALID, "these nodes should have been refused");
    if (status == MICS_OK)
        status = check_opened(comm, memory, apart ? 1 : comm->ranks);
    if (status == MICS_OK)
        status = how == NULL || apart ? check_all(comm, memory) : fail_on_purpose(comm, how);
    if (status != MICS_OK)
        mics_comm_abort(comm, NULL);
    if (comm->rank == 0)
        printf("%d ranks, %s: all as expected\n", (int)comm->ranks, mics_comm_mpi_version());
    mics_comm_close(comm);
    return mics_memory_close(memory) == 0 ? 0 : 1;
}
