// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The MPI transport, run by a launcher with several ranks. Without an argument, or with `all`: all
// collectives against the same plain sums as the other transports. With another: a way to fail,
// whose one line the caller looks for.
//   late      rank 1 does not come
//   told      likewise, and a late handler says what the heartbeat says of rank 1
//   mismatch  ranks disagree about the size
//   crossed   ranks disagree about which collective comes next, of the same size
//   unclosed  rank 1 does not close
//   killed    rank 1 dies by SIGKILL while others wait for it
//   poor N    the last rank's allocation number N fails: nobody opens, nobody waits
//   both      rank 1 does not come, for which both channels wait: one line
//   told-once likewise, and the second channel is late while a late handler speaks
//   nodes     the caller has told MPICH to pretend to have nodes that cannot be used
//   apart     likewise, with one rank a node
//   withdrawn rank 1 comes when rank 0 has given up, and must not take what that one sent
// A second argument, forgone: MPI carries what ranks of a node exchange, as where they may not read
// each other's memory; halves: so between the halves of the ranks, which count as nodes.
#include "comm/comm_checks.h"
#include "comm/fault.h"
#include "comm/internal.h"
#include "mics/core/comm.h"
#include "mics/core/heartbeat.h"
#include "mics/core/transport.h"
#include "ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A minute of turns for what must come; what must not come is waited for briefly.
enum { TURN_US = 20 * 1000, MAX_TURNS = 3000 };
static const double BRIEF_S = 0.5;

static mics_status check_beside(mics_comm *comm, mics_memory *memory)
{
    MICS_TRY(checks_heartbeats(comm, false));
    MICS_TRY(checks_channels(comm, memory, 60, 3000));
    MICS_TRY(checks_channels(comm, memory, 8, 400 * 1000));
    return checks_stalled_channel(comm, memory);
}

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
    MICS_TRY(checks_many_rings(comm, memory, 60, 3000, 0));
    mics_group world = {.size = comm->ranks, .stride = 1, .index = comm->rank};
    MICS_TRY(checks_ring(comm, memory, world, 3, 300 * 1000, 1));
    MICS_TRY(checks_broadcast(comm, memory, 0));
    MICS_TRY(checks_broadcast(comm, memory, 3));
    MICS_TRY(checks_broadcast(comm, memory, 2500 * 1000));
    MICS_TRY(checks_share(comm, 24));
    MICS_TRY(checks_share(comm, 300 * 1000));
    return checks_agree(comm);
}

// What goes on beside exchanges, through wrappers.
static mics_status check_wrapped(mics_comm **comm, mics_memory *memory)
{
    MICS_TRY(mics_comm_count_open_take(memory, *comm, 2, comm));
    MICS_TRY(fault_open_take(memory, *comm, 0, comm));
    return check_beside(*comm, memory);
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

// Stays away, longer than CTest waits for a test: who does not end it has failed.
static void stay_away(void)
{
    sleep(3600);
}

// Whether the heartbeat that a rank posts comes to be read, however busy the machine is.
static bool await_heartbeat(mics_comm *comm, int32_t rank)
{
    const mics_heartbeat expected = checks_heartbeat(rank, 7);
    for (int turn = 0; turn < MAX_TURNS; turn++) {
        mics_heartbeat heartbeat = {{0}};
        double age_s = -1;
        if (mics_comm_heartbeat_read(comm, rank, &heartbeat, &age_s) &&
            memcmp(&heartbeat, &expected, sizeof heartbeat) == 0)
            return true;
        usleep(TURN_US);
    }
    return false;
}

// Says who is waited for, and whether the heartbeat goes on to tell of that rank.
static void tell(void *ctx, const mics_timeout *late)
{
    const bool newest = await_heartbeat(ctx, late->peer);
    mics_log(MICS_LOG_ERROR, "told that rank %d waited %g s for rank %d to %s in %s; %s heartbeat",
             (int)late->rank, late->waited_s, (int)late->peer, late->sending ? "receive" : "send",
             late->what, newest ? "the newest" : "another");
}

// Rank 1 posts its heartbeat when it is late already.
static mics_status be_told(mics_comm *comm, mics_comm_group *ring)
{
    float buffer[2] = {0};
    mics_comm_set_timeout_handler(comm, tell, comm);
    ring->channel = 1;
    if (comm->rank == 1) {
        const mics_heartbeat heartbeat = checks_heartbeat(1, 7);
        usleep(300 * 1000);
        mics_comm_heartbeat_post(comm, &heartbeat);
        stay_away();
    }
    return mics_comm_all_gather(comm, ring, buffer, sizeof buffer[0]);
}

typedef struct waiting_side {
    mics_comm *comm;
    mics_comm_group ring;
    useconds_t later_us;
    atomic_bool waits;
    atomic_int told_times;
    mics_status status;
    int told; // how often the handler had spoken by the end
} waiting_side;

static void *wait_beside(void *arg)
{
    waiting_side *side = arg;
    float buffer[2] = {0};
    side->ring.channel = 1;
    usleep(side->later_us);
    atomic_store(&side->waits, true);
    side->status = mics_comm_all_gather(side->comm, &side->ring, buffer, sizeof buffer[0]);
    side->told = atomic_load(&side->told_times);
    return NULL;
}

// One channel is late and says so; that ends the other, in silence.
static mics_status wait_on_both(mics_comm *comm, const mics_comm_group *ring)
{
    float buffer[2] = {0};
    pthread_t thread;
    waiting_side side = {.comm = comm, .ring = *ring};
    if (comm->rank == 1)
        stay_away();
    RANKS_EXPECT(pthread_create(&thread, NULL, wait_beside, &side) == 0);
    mics_status own = mics_comm_all_gather(comm, ring, buffer, sizeof buffer[0]);
    pthread_join(thread, NULL);
    bool one = (own == MICS_ERR_TIMEOUT) != (side.status == MICS_ERR_TIMEOUT);
    bool other = own == MICS_ERR_COMM || side.status == MICS_ERR_COMM;
    return mics_fail(MICS_ERR_TIMEOUT, "both channels ended, %s",
                     one && other ? "one late" : "but not as they should");
}

// Speaks until the second channel has waited ten times as long as it may.
static void send_for_long(void *ctx, const mics_timeout *late)
{
    waiting_side *side = ctx;
    (void)late;
    for (int turn = 0; turn < MAX_TURNS && !atomic_load(&side->waits); turn++)
        usleep(TURN_US);
    // In turns: what passes while the machine stands still does not count for the channel.
    for (int turn = 0; turn < (int)(10 * BRIEF_S * 1e6 / TURN_US); turn++)
        usleep(TURN_US);
    atomic_fetch_add(&side->told_times, 1);
}

// The second one is late in the middle of what the handler says, and does not end before that is said.
static mics_status be_told_once(mics_comm *comm, const mics_comm_group *ring)
{
    float buffer[2] = {0};
    pthread_t thread;
    waiting_side side = {.comm = comm, .ring = *ring, .later_us = 200 * 1000};
    mics_comm_set_timeout_handler(comm, send_for_long, &side);
    if (comm->rank == 1)
        stay_away();
    RANKS_EXPECT(pthread_create(&thread, NULL, wait_beside, &side) == 0);
    mics_status own = mics_comm_all_gather(comm, ring, buffer, sizeof buffer[0]);
    int told = atomic_load(&side.told_times);
    pthread_join(thread, NULL);
    return mics_fail(MICS_ERR_TIMEOUT, "told %d and %d times, by then %s", told, side.told,
                     own == MICS_ERR_TIMEOUT && side.status == MICS_ERR_TIMEOUT ? "both late"
                                                                                : "not both late");
}

// Rank 0 gives up and changes what it sent; only then rank 1 comes, and it ends the world. A
// semaphore tells it, which is named by the launcher, since who has given up says nothing over MPI.
static mics_status come_too_late(mics_comm *comm, const mics_comm_group *ring)
{
    float buffer[2] = {0};
    char name[32];
    snprintf(name, sizeof name, "/mics-test-%d", (int)getppid());
    sem_t *given_up = sem_open(name, O_CREAT, 0600, 0);
    RANKS_EXPECT(given_up != SEM_FAILED);
    if (comm->rank == 1) {
        while (sem_wait(given_up) != 0)
            RANKS_EXPECT(errno == EINTR);
        sem_unlink(name);
    }
    mics_status status = mics_comm_all_gather(comm, ring, buffer, sizeof buffer[0]);
    if (comm->rank == 1)
        return mics_fail(MICS_ERR_COMM, "came too late and got %s", mics_status_name(status));
    sem_post(given_up);
    stay_away();
    return status;
}

static mics_status fail_on_purpose(mics_comm *comm, const char *how)
{
    mics_comm_group ring = {.group = {.size = comm->ranks, .stride = 1, .index = comm->rank},
                            .what = "doomed collective"};
    static float buffer[1024];
    bool odd_one = comm->rank == 1;
    if (strcmp(how, "both") == 0)
        return wait_on_both(comm, &ring);
    if (strcmp(how, "told-once") == 0)
        return be_told_once(comm, &ring);
    if (strcmp(how, "withdrawn") == 0)
        return come_too_late(comm, &ring);
    if (strcmp(how, "told") == 0)
        return be_told(comm, &ring);
    int64_t elems = (int64_t)(sizeof buffer / sizeof buffer[0]) / comm->ranks;
    if (strcmp(how, "late") == 0 && odd_one)
        stay_away();
    if (strcmp(how, "killed") == 0 && odd_one)
        raise(SIGKILL);
    if (strcmp(how, "mismatch") == 0 && odd_one)
        elems /= 2;
    if (strcmp(how, "crossed") == 0 && odd_one)
        ring.what = "another collective";
    if (strcmp(how, "unclosed") == 0) {
        MICS_TRY(mics_comm_set_timeout(comm, 0.1));
        if (odd_one)
            stay_away();
        return MICS_OK;
    }
    return mics_comm_all_reduce(comm, &ring, buffer, elems * comm->ranks);
}

static int open_poor(mics_memory *memory, const char *countdown)
{
    mics_comm *comm = NULL;
    bool poor = mics_comm_mpi_announced_rank() == mics_comm_mpi_announced_ranks() - 1;
    mics_memory_fail_after(memory, poor ? strtoll(countdown, NULL, 10) : 0);
    mics_status status = mics_comm_mpi_open(memory, RANKS_TIMEOUT_S, &comm);
    bool right = status == (poor ? MICS_ERR_MEMORY : MICS_ERR_PEER) && comm == NULL;
    if (!right)
        mics_log(MICS_LOG_ERROR, "opening without memory gave %s", mics_status_name(status));
    return mics_memory_close(memory) == 0 && right ? 0 : 1;
}

// The environment is the program's, not the library's.
static bool is_told(void)
{
    return getenv("OMPI_MCA_mpi_yield_when_idle") != NULL ||
           getenv("OMPI_MCA_opal_event_include") != NULL;
}

static void on_terminate(int signal_number)
{
    (void)signal_number;
    _exit(1);
}

// Ranks of two nodes share no memory, also where the machine would let them.
static mics_status check_kept_apart(mics_comm *comm, int32_t node_ranks)
{
    const mics_comm_group across = {
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank},
        .what = "ranks of two nodes"};
    void *memory = NULL;
    mics_comm_mpi_keep_apart(comm, node_ranks);
    if (comm->ranks_sharing > node_ranks)
        return mics_fail(MICS_ERR_INVALID, "%d ranks share memory", (int)comm->ranks_sharing);
    mics_log_hold(true);
    const mics_status status = mics_comm_share(comm, &across, 64, &memory);
    mics_log_release(false, -1);
    return status == MICS_ERR_UNSUPPORTED ? MICS_OK : MICS_ERR_INVALID;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : NULL;
    mics_memory *memory = NULL;
    mics_comm *comm = NULL;
    if (mics_memory_open(&memory) != MICS_OK)
        return 1;
    if (how != NULL && strcmp(how, "poor") == 0)
        return open_poor(memory, argc > 2 ? argv[2] : "1");
    bool brief = how != NULL && (strcmp(how, "late") == 0 || strcmp(how, "both") == 0 ||
                                 strcmp(how, "told") == 0 || strcmp(how, "told-once") == 0 ||
                                 strcmp(how, "withdrawn") == 0);
    const bool told = is_told();
    mics_status status = mics_comm_mpi_open(memory, RANKS_TIMEOUT_S, &comm);
    if (status == MICS_ERR_UNSUPPORTED)
        return 77;
    if (is_told() != told)
        status = mics_fail(MICS_ERR_INVALID, "opening has changed the environment");
    if (status != MICS_OK)
        return 1;
    mics_log_set_rank(comm->rank);
    signal(SIGTERM, on_terminate);
    if (comm->ranks < 2)
        status = mics_fail(MICS_ERR_INVALID, "start this with mpirun -n 4");
    bool apart = how != NULL && strcmp(how, "apart") == 0;
    bool all = how != NULL && strcmp(how, "all") == 0;
    bool forgone = argc > 2 && strcmp(argv[2], "forgone") == 0;
    bool halves = argc > 2 && strcmp(argv[2], "halves") == 0;
    if (how != NULL && strcmp(how, "nodes") == 0)
        status = mics_fail(MICS_ERR_INVALID, "these nodes should have been refused");
    if (status == MICS_OK)
        status = check_opened(comm, memory, apart ? 1 : comm->ranks);
    if (status == MICS_OK && forgone)
        mics_comm_mpi_keep_apart(comm, 1);
    if (status == MICS_OK && halves)
        status = check_kept_apart(comm, comm->ranks / 2);
    // Ranks may start seconds apart: only when all have met they wait for a moment alone.
    if (status == MICS_OK && brief) {
        status = mics_comm_agree(comm, MICS_OK);
        if (status == MICS_OK)
            status = mics_comm_set_timeout(comm, BRIEF_S);
    }
    if (status == MICS_OK && (how == NULL || all || apart)) {
        status = check_all(comm, memory);
        if (status == MICS_OK)
            status = check_wrapped(&comm, memory);
    } else if (status == MICS_OK) {
        status = fail_on_purpose(comm, how);
    }
    if (status != MICS_OK)
        mics_comm_abort(comm, NULL);
    if (comm->rank == 0)
        printf("%d ranks, %s: all as expected\n", (int)comm->ranks, mics_comm_mpi_version());
    mics_comm_close(comm);
    return mics_memory_close(memory) == 0 ? 0 : 1;
}
