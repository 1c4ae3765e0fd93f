// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Worlds of threads and of MPI processes behind one face.
//
// Error lines. In setup every process finds the same mistakes, so each holds its line back and the
// lowest one that failed speaks. Once ranks run, an error is one rank's own and is written at once;
// the others learn of it from their communicators, which do not log it.
#include "world.h"
#include "base/clock.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>

int32_t run_world_node_ranks(const run_world *world)
{
    const int32_t ranks = world->ranks / world->nodes;
    return ranks < world->ranks_here ? ranks : world->ranks_here;
}

int32_t run_world_node_number(const run_world *world, int32_t rank)
{
    return rank % world->ranks_here / run_world_node_ranks(world);
}

// ---- agreement with one voice ----

// All-gathers one value a rank; `gathered` holds comm->ranks of them.
static mics_status gather_all(mics_comm *comm, void *gathered, size_t bytes, const char *what)
{
    mics_comm_group all = {
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank}, .what = what};
    return mics_comm_all_gather(comm, &all, gathered, bytes);
}

// A rank that fails because of another one has nothing to say.
static bool is_anothers(mics_status status)
{
    return status == MICS_ERR_PEER || status == MICS_ERR_ABORTED;
}

// *heard_out: the agreement itself went well, so all ranks know.
static mics_status agree_one_voice(mics_memory *memory, mics_comm *comm, mics_status mine,
                                   bool *heard_out)
{
    int32_t *statuses = NULL, speaker = -1;
    *heard_out = false;
    mics_status status = MICS_NEW(memory, comm->ranks, &statuses);
    if (status != MICS_OK) // nobody may wait for us in the agreement below
        mics_comm_abort(comm, NULL);
    MICS_TRY(status);
    statuses[comm->rank] = (int32_t)mine;
    status = gather_all(comm, statuses, sizeof(int32_t), "agreement in setup");
    *heard_out = status == MICS_OK;
    for (int32_t rank = 0; *heard_out && rank < comm->ranks; rank++) {
        const mics_status of = (mics_status)statuses[rank];
        if (of != MICS_OK && (speaker < 0 || (is_anothers(status) && !is_anothers(of)))) {
            status = of;
            speaker = rank;
        }
    }
    // A failed agreement is each rank's own: then everybody speaks. Rank 0 speaks for what all
    // find alike, so it needs no name.
    bool speak = status != MICS_OK && (speaker < 0 || speaker == comm->rank);
    mics_log_release(speak, comm->rank > 0 ? comm->rank : -1);
    mics_free(memory, statuses);
    return status;
}

// ---- opening ----

static mics_status check_nodes(run_world *world)
{
    if (world->ranks % world->nodes == 0)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "%d nodes do not divide %d ranks; give --nodes a divisor",
                     (int)world->nodes, (int)world->ranks);
}

static mics_status open_rank(run_world *world, int32_t index, mics_comm *inner)
{
    run_rank_thread *here = &world->here[index];
    mics_status status = mics_comm_count_open_take(here->rank.memory, inner,
                                                   world->ranks / world->nodes, &here->rank.comm);
    if (status != MICS_OK)
        mics_comm_close(inner);
    return status;
}

// A collective takes as many rounds as there are ranks, so exchanges grow with their square: 1000
// ranks on two cores take a minute for a step of a model that is nothing.
static mics_status check_threads(const run_world *world)
{
    enum { MAX_THREADS = 1024, MAX_A_CORE = 64 };
    mics_machine machine;
    if (world->ranks > MAX_THREADS)
        return mics_fail(MICS_ERR_INVALID,
                         "--ranks %d: ranks of one process are threads, of which %d are the most; "
                         "an MPI launcher starts more, and mics explain and mics plan size them",
                         (int)world->ranks, (int)MAX_THREADS);
    if (mics_machine_read(&machine) == MICS_OK && world->ranks > MAX_A_CORE * machine.cores)
        mics_log(MICS_LOG_INFO, "%d ranks share %d cores: a step can take a minute",
                 (int)world->ranks, (int)machine.cores);
    return MICS_OK;
}

static mics_status open_threads(run_world *world, const run_world_spec *spec)
{
    world->ranks = world->ranks_here = spec->ranks > 0 ? spec->ranks : 1;
    world->nodes = spec->nodes > 0 ? spec->nodes : 1;
    MICS_TRY(check_nodes(world));
    MICS_TRY(check_threads(world));
    MICS_TRY(MICS_NEW(world->memory, world->ranks, &world->here));
    world->here_count = world->ranks;
    MICS_TRY(mics_thread_world_open(world->memory, world->ranks, spec->timeout_s, &world->threads));
    for (int32_t rank = 0; rank < world->ranks; rank++) {
        mics_comm *inner = NULL;
        world->here[rank].rank.world = world;
        MICS_TRY(mics_memory_open(&world->here[rank].rank.memory));
        MICS_TRY(
            mics_comm_thread_open(world->here[rank].rank.memory, world->threads, rank, &inner));
        MICS_TRY(open_rank(world, rank, inner));
    }
    return MICS_OK;
}

static mics_status open_mpi(run_world *world, const run_world_spec *spec)
{
    mics_comm *inner = NULL;
    world->mpi = true;
    MICS_TRY(MICS_NEW(world->memory, 1, &world->here));
    world->here_count = 1;
    world->here[0].rank.world = world;
    MICS_TRY(mics_memory_open(&world->here[0].rank.memory));
    MICS_TRY(mics_comm_mpi_open(world->here[0].rank.memory, spec->timeout_s, &inner));
    mics_log_set_rank(-1); // until ranks run, one speaks for all
    mics_log_set_quiet(inner->rank != 0);
    world->first = inner->rank;
    world->ranks = inner->ranks;
    world->ranks_here = inner->ranks_per_node;
    world->nodes = spec->nodes > 0 ? spec->nodes : inner->ranks / inner->ranks_per_node;
    mics_status status = check_nodes(world);
    if (status == MICS_OK && spec->ranks > 0 && spec->ranks != world->ranks)
        status = mics_fail(MICS_ERR_INVALID,
                           "--ranks %d, but the MPI launcher started %d; leave --ranks out",
                           (int)spec->ranks, (int)world->ranks);
    if (status != MICS_OK) {
        // All processes find this alike; it must be said while the communicator still lives.
        bool heard = false;
        status = agree_one_voice(world->memory, inner, status, &heard);
        mics_comm_close(inner);
        return status;
    }
    return open_rank(world, 0, inner);
}

void run_world_keep_apart(run_world *world)
{
    mics_comm *inner = mics_comm_count_inner(world->here[0].rank.comm);
    if (world->mpi && world->nodes > inner->ranks / inner->ranks_per_node)
        mics_comm_mpi_keep_apart(inner, world->ranks / world->nodes);
}

mics_status run_world_open(mics_memory *memory, const run_world_spec *spec, run_world **world_out)
{
    run_world *world = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &world));
    world->memory = memory;
    mics_status status =
        mics_locks_init(&world->mutex, (pthread_cond_t *[]){&world->asked, &world->answered}, 2);
    if (status != MICS_OK) {
        mics_free(memory, world);
        return status;
    }
    status = mics_comm_check_launcher();
    if (status == MICS_OK)
        status = mics_comm_mpi_launched() ? open_mpi(world, spec) : open_threads(world, spec);
    if (status != MICS_OK) {
        run_world_close(world);
        return status;
    }
    world->shares = world->here[0].rank.comm->ranks_sharing % (world->ranks / world->nodes) == 0;
    *world_out = world;
    return MICS_OK;
}

static void end_threads(run_world *world)
{
    pthread_mutex_lock(&world->mutex);
    world->ends = true;
    pthread_cond_broadcast(&world->asked);
    pthread_mutex_unlock(&world->mutex);
    for (int32_t i = 0; i < world->here_count; i++) {
        if (world->here[i].started)
            pthread_join(world->here[i].thread, NULL);
    }
}

void run_world_close(run_world *world)
{
    if (world == NULL)
        return;
    end_threads(world);
    for (int32_t i = 0; i < world->here_count; i++) {
        mics_comm_close(world->here[i].rank.comm);
        mics_device_close(world->here[i].rank.device);
        if (world->here[i].rank.memory != NULL)
            mics_memory_close(world->here[i].rank.memory);
    }
    mics_thread_world_close(world->threads);
    pthread_cond_destroy(&world->answered);
    pthread_cond_destroy(&world->asked);
    pthread_mutex_destroy(&world->mutex);
    mics_free(world->memory, world->here);
    mics_free(world->memory, world);
}

// ---- setup ----

mics_status run_world_agree(run_world *world, mics_status mine)
{
    if (world->mpi) {
        bool heard = false;
        mics_status status = agree_one_voice(world->memory, world->here[0].rank.comm, mine, &heard);
        mics_log_hold(world->first != 0);
        return status;
    }
    mics_log_release(mine != MICS_OK, -1);
    mics_log_hold(false);
    return mine;
}

typedef struct preparation {
    mics_status (*prepare)(void *ctx);
    void *ctx;
    mics_status status;
    atomic_int done;
} preparation;

// The line that the preparing thread held back is written by it: it is rank 0's, and rank 0 speaks.
static void *prepare_thread(void *argument)
{
    preparation *preparing = argument;
    mics_log_hold(false);
    preparing->status = preparing->prepare(preparing->ctx);
    mics_log_release(preparing->status != MICS_OK, -1);
    atomic_store(&preparing->done, 1);
    return NULL;
}

// The first process says each second or so whether it has finished, so that no exchange is late
// however long the work takes.
static mics_status await_first(mics_comm *comm, preparation *preparing)
{
    int32_t done = 0;
    while (!done) {
        for (int wait = 0; comm->rank == 0 && wait < 1000 && !atomic_load(&preparing->done); wait++)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        done = comm->rank == 0 ? atomic_load(&preparing->done) : 0;
        MICS_TRY(mics_comm_broadcast(comm, 0, &done, sizeof done));
    }
    return MICS_OK;
}

mics_status run_world_first(run_world *world, mics_status (*prepare)(void *ctx), void *ctx)
{
    if (!world->mpi)
        return run_world_agree(world, prepare(ctx));
    preparation preparing = {.prepare = prepare, .ctx = ctx};
    pthread_t thread;
    bool first = world->first == 0;
    mics_comm *comm = world->here[0].rank.comm;
    if (first && pthread_create(&thread, NULL, prepare_thread, &preparing) != 0) {
        preparing.status = mics_fail(MICS_ERR_MEMORY, "the system starts no more threads");
        first = false;
        atomic_store(&preparing.done, 1);
    }
    mics_status status = await_first(comm, &preparing);
    if (first)
        pthread_join(thread, NULL);
    MICS_TRY(status);
    MICS_TRY(run_world_agree(world, preparing.status));
    return run_world_agree(world, world->first == 0 ? MICS_OK : prepare(ctx));
}

// ---- running ----

static int32_t name_of(const run_rank *rank)
{
    return rank->comm->ranks > 1 ? rank->comm->rank : -1;
}

void run_rank_begin_log(const run_rank *rank)
{
    mics_log_set_rank(name_of(rank));
    mics_log_release(false, -1);
}

static void answer(run_world *world, run_rank_thread *here)
{
    mics_comm *comm = here->rank.comm;
    mics_log_set_rank(name_of(&here->rank));
    mics_log_hold(comm->rank != 0);
    here->rank.agreed = false;
    here->status = world->rank_main(world->ctx, &here->rank);
    mics_log_release(here->status != MICS_OK, name_of(&here->rank));
    if (here->status != MICS_OK && !here->rank.agreed)
        mics_comm_abort(comm, NULL);
}

// One thread a rank for all calls: what a rank opens may be bound to the thread that opened it.
static void *serve_rank(void *argument)
{
    run_rank_thread *here = argument;
    run_world *world = here->rank.world;
    int64_t answered = 0;
    pthread_mutex_lock(&world->mutex);
    for (;;) {
        while (world->call == answered && !world->ends)
            pthread_cond_wait(&world->asked, &world->mutex);
        if (world->call == answered)
            break;
        answered = world->call;
        pthread_mutex_unlock(&world->mutex);
        answer(world, here);
        pthread_mutex_lock(&world->mutex);
        if (--world->busy == 0)
            pthread_cond_signal(&world->answered);
    }
    pthread_mutex_unlock(&world->mutex);
    return NULL;
}

static mics_status worse(mics_status a, mics_status b)
{
    return a > b ? a : b;
}

// A rank without a thread fails for all: the others learn of it from their communicators.
static mics_status start_threads(run_world *world)
{
    for (int32_t i = 0; i < world->here_count; i++) {
        run_rank_thread *here = &world->here[i];
        if (here->started)
            continue;
        here->started = pthread_create(&here->thread, NULL, serve_rank, here) == 0;
        if (!here->started) {
            mics_comm_abort(here->rank.comm, NULL);
            return mics_fail(MICS_ERR_MEMORY, "the system starts no more than %d threads", (int)i);
        }
    }
    return MICS_OK;
}

static void ask_threads(run_world *world)
{
    pthread_mutex_lock(&world->mutex);
    world->busy = 0;
    for (int32_t i = 0; i < world->here_count; i++)
        world->busy += world->here[i].started;
    world->call++;
    pthread_cond_broadcast(&world->asked);
    while (world->busy > 0)
        pthread_cond_wait(&world->answered, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
}

mics_status run_world_run(run_world *world, mics_status (*rank_main)(void *ctx, run_rank *rank),
                          void *ctx)
{
    mics_log_release(false, -1);
    world->rank_main = rank_main;
    world->ctx = ctx;
    // One rank needs no thread of its own: it is simply called.
    if (world->here_count == 1) {
        answer(world, &world->here[0]);
        mics_log_set_rank(-1);
        return world->here[0].status;
    }
    mics_status status = start_threads(world);
    ask_threads(world);
    for (int32_t i = 0; i < world->here_count; i++) {
        if (world->here[i].started)
            status = worse(status, world->here[i].status);
    }
    return status;
}

mics_status run_rank_agree(run_rank *rank, mics_status mine)
{
    bool heard = false;
    mics_status status = agree_one_voice(rank->memory, rank->comm, mine, &heard);
    rank->agreed = heard && status != MICS_OK;
    return status;
}

mics_status run_world_gather(run_world *world, const void *mine, size_t bytes, void *all_out)
{
    memcpy((char *)all_out + (size_t)world->first * bytes, mine, bytes);
    return world->mpi ? gather_all(world->here[0].rank.comm, all_out, bytes, "setup") : MICS_OK;
}

mics_status run_rank_gather(run_rank *rank, void *blocks, size_t bytes)
{
    return gather_all(rank->comm, blocks, bytes, "figures of all ranks");
}

mics_status run_world_max(run_world *world, int64_t *values, int32_t count)
{
    return world->mpi ? run_rank_max(&world->here[0].rank, values, count) : MICS_OK;
}

mics_status run_rank_sum(run_rank *rank, uint64_t *value)
{
    uint64_t *all = NULL;
    mics_comm *comm = rank->comm;
    MICS_TRY(MICS_NEW(rank->memory, comm->ranks, &all));
    all[comm->rank] = *value;
    const mics_status status = gather_all(comm, all, sizeof *all, "a sum over ranks");
    *value = 0;
    for (int32_t i = 0; i < comm->ranks; i++)
        *value += all[i];
    mics_free(rank->memory, all);
    return status;
}

mics_status run_rank_max(run_rank *rank, int64_t *values, int32_t count)
{
    int64_t *all = NULL;
    mics_comm *comm = rank->comm;
    MICS_TRY(MICS_NEW(rank->memory, comm->ranks * count, &all));
    for (int32_t i = 0; i < count; i++)
        all[comm->rank * count + i] = values[i];
    mics_status status = gather_all(comm, all, (size_t)count * sizeof *all, "figures of all ranks");
    for (int32_t i = 0; status == MICS_OK && i < comm->ranks * count; i++)
        values[i % count] = all[i] > values[i % count] ? all[i] : values[i % count];
    mics_free(rank->memory, all);
    return status;
}
