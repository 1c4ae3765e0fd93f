// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One collective over all ranks under MPI, again and again, as a training step runs it: back to back
// on buffers in turn. Prints the median time of one, in ms, and how many ran in all.
//
//   collectives gather|reduce ring|two-stage|mpi MIB REPEATS SECONDS
//
// ring: one ring over all ranks. two-stage: between equal local ranks and inside the nodes, on two
// channels and two threads, so that the stages of consecutive collectives run side by side. mpi: the
// library's MPI_Allgather or MPI_Reduce_scatter_block, by its default choice of algorithm. After a
// first one as many run as SECONDS allow, at least 3 and at most REPEATS.
#include "base/clock.h"
#include "mics/core/comm.h"
#include "mics/core/mesh.h"
#include "mics/core/transport.h"
#include "mics/memory.h"
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFERS = 3, // in turn, as gather slots are
    REPEATS_MIN = 3,
};

typedef struct bench {
    bool gather, two_stage;
    int64_t elems; // of a whole buffer
    int32_t repeats;
    double seconds;
    mics_comm *comm;
    mics_mesh mesh;
    float *buffers[BUFFERS];
    double *ended_us; // (repeats)
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t done[2]; // collectives that each stage has ended
} bench;

static void stop(const char *why)
{
    fprintf(stderr, "collectives: %s\n", why);
    exit(EXIT_FAILURE);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Of the intervals between ends, without the first, which fills the pipe.
static double median_ms(double *ended_us, int32_t repeats)
{
    for (int32_t i = repeats - 1; i > 0; i--)
        ended_us[i] -= ended_us[i - 1];
    qsort(ended_us + 1, (size_t)repeats - 1, sizeof(double), by_value);
    return ended_us[1 + (repeats - 1) / 2] / 1e3;
}

// ---- of this library ----

static void run_ring(bench *b, mics_group_axis axis, mics_group_scope scope, int32_t channel,
                     float *buffer, int64_t elems)
{
    const mics_group group = mics_mesh_group(&b->mesh, axis, scope, b->comm->rank);
    int32_t *blocks = calloc((size_t)group.size, sizeof *blocks);
    if (blocks == NULL)
        stop("no memory");
    for (int32_t m = 0; m < group.size; m++)
        blocks[m] = mics_mesh_block(&b->mesh, axis, scope, mics_group_rank(group, m));
    const mics_comm_group ring = {
        .group = group, .block_of = blocks, .channel = channel, .what = "bench"};
    const int64_t block = elems / group.size;
    mics_status status =
        b->gather ? mics_comm_all_gather(b->comm, &ring, buffer, (size_t)block * sizeof(float))
                  : mics_comm_reduce_scatter(b->comm, &ring, buffer, block);
    free(blocks);
    if (status != MICS_OK) {
        mics_comm_abort(b->comm, NULL);
        exit(EXIT_FAILURE);
    }
}

// The stage that crosses nodes, on this rank's block of the node; or the one inside the node.
static void run_stage(bench *b, bool across, float *buffer)
{
    const int64_t block = b->elems / b->mesh.ranks_per_node;
    const int32_t own =
        mics_mesh_block(&b->mesh, MICS_AXIS_ISLAND, MICS_SCOPE_INTRA, b->comm->rank);
    if (across)
        run_ring(b, MICS_AXIS_PARTITION, MICS_SCOPE_INTER, 1, buffer + own * block, block);
    else
        run_ring(b, MICS_AXIS_ISLAND, MICS_SCOPE_INTRA, 0, buffer, b->elems);
}

static void wait_until(bench *b, int stage, int32_t count)
{
    pthread_mutex_lock(&b->mutex);
    while (b->done[stage] < count)
        pthread_cond_wait(&b->changed, &b->mutex);
    pthread_mutex_unlock(&b->mutex);
}

static void report_done(bench *b, int stage)
{
    pthread_mutex_lock(&b->mutex);
    b->done[stage]++;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

// Stage 0 of collective i needs its buffer back from stage 1 of collective i - BUFFERS.
static void *run_first(void *arg)
{
    bench *b = arg;
    for (int32_t i = 0; i < b->repeats; i++) {
        wait_until(b, 1, i - BUFFERS + 1);
        run_stage(b, b->gather, b->buffers[i % BUFFERS]);
        report_done(b, 0);
    }
    return NULL;
}

static void run_two_stage(bench *b)
{
    pthread_t first;
    if (pthread_create(&first, NULL, run_first, b) != 0)
        stop("no thread");
    for (int32_t i = 0; i < b->repeats; i++) {
        wait_until(b, 0, i + 1);
        run_stage(b, !b->gather, b->buffers[i % BUFFERS]);
        b->ended_us[i] = mics_clock_us();
        report_done(b, 1);
    }
    pthread_join(first, NULL);
}

static void run_flat(bench *b)
{
    for (int32_t i = 0; i < b->repeats; i++) {
        run_ring(b, MICS_AXIS_PARTITION, MICS_SCOPE_WHOLE, 1, b->buffers[i % BUFFERS], b->elems);
        b->ended_us[i] = mics_clock_us();
    }
}

static void open_buffers(bench *b)
{
    b->ended_us = calloc((size_t)b->repeats, sizeof(double));
    for (int i = 0; i < BUFFERS; i++) {
        b->buffers[i] = aligned_alloc(64, (size_t)b->elems * sizeof(float));
        if (b->buffers[i] == NULL || b->ended_us == NULL)
            stop("no memory");
        memset(b->buffers[i], 0, (size_t)b->elems * sizeof(float));
    }
}

// How many may run, after one that took so long.
static int32_t allowed(const bench *b, double took_us)
{
    const double count = b->seconds * 1e6 / took_us;
    return count < REPEATS_MIN ? REPEATS_MIN : count > b->repeats ? b->repeats : (int32_t)count;
}

static void print_time(bench *b, int32_t rank)
{
    if (rank == 0)
        printf("%.2f %d\n", median_ms(b->ended_us, b->repeats), (int)b->repeats + 1);
}

static void open_world(bench *b, mics_memory **memory_out)
{
    if (mics_memory_open(memory_out) != MICS_OK ||
        mics_comm_mpi_open(*memory_out, 120, &b->comm) != MICS_OK)
        exit(EXIT_FAILURE);
    const int32_t ranks = b->comm->ranks;
    if (mics_mesh_init(ranks, ranks / b->comm->ranks_per_node, (mics_sharding){ranks, ranks, ranks},
                       &b->mesh) != MICS_OK)
        exit(EXIT_FAILURE);
    b->elems = b->elems / (16 * ranks) * 16 * ranks;
}

static void run_all(bench *b)
{
    b->done[0] = b->done[1] = 0;
    if (b->two_stage)
        run_two_stage(b);
    else
        run_flat(b);
}

static void bench_mics(bench *b)
{
    mics_memory *memory = NULL;
    open_world(b, &memory);
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->changed, NULL);
    open_buffers(b);
    int32_t repeats = b->repeats;
    const double begin_us = mics_clock_us();
    b->repeats = 1;
    run_all(b);
    b->repeats = repeats;
    repeats = allowed(b, mics_clock_us() - begin_us);
    if (mics_comm_broadcast(b->comm, 0, &repeats, sizeof repeats) != MICS_OK)
        exit(EXIT_FAILURE);
    b->repeats = repeats;
    run_all(b);
    print_time(b, b->comm->rank);
    mics_comm_close(b->comm);
}

// ---- of the library below ----

static void run_mpi(bench *b, int ranks)
{
    const int block = (int)(b->elems / ranks);
    for (int32_t i = 0; i < b->repeats; i++) {
        float *buffer = b->buffers[i % BUFFERS];
        if (b->gather)
            MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, buffer, block, MPI_FLOAT, MPI_COMM_WORLD);
        else
            MPI_Reduce_scatter_block(MPI_IN_PLACE, buffer, block, MPI_FLOAT, MPI_SUM,
                                     MPI_COMM_WORLD);
        b->ended_us[i] = mics_clock_us();
    }
}

static void bench_mpi(bench *b)
{
    int rank = 0, ranks = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    open_buffers(b);
    int repeats = b->repeats;
    const double begin_us = mics_clock_us();
    b->repeats = 1;
    run_mpi(b, ranks);
    b->repeats = repeats;
    repeats = allowed(b, mics_clock_us() - begin_us);
    MPI_Bcast(&repeats, 1, MPI_INT, 0, MPI_COMM_WORLD);
    b->repeats = repeats;
    run_mpi(b, ranks);
    print_time(b, rank);
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    bench b = {0};
    (void)setenv("OMPI_MCA_opal_event_include", "epoll", 0); // as mics does
    if (argc != 6)
        stop("usage: collectives gather|reduce ring|two-stage|mpi MIB REPEATS SECONDS");
    b.elems = strtol(argv[3], NULL, 10) * 1024 * 1024 / (int64_t)sizeof(float);
    if (b.elems < 1)
        stop("MIB is at least 1");
    b.gather = strcmp(argv[1], "gather") == 0;
    b.two_stage = strcmp(argv[2], "two-stage") == 0;
    b.repeats = (int32_t)strtol(argv[4], NULL, 10);
    b.seconds = strtod(argv[5], NULL);
    if (b.repeats < REPEATS_MIN)
        stop("REPEATS is at least 3");
    if (strcmp(argv[2], "mpi") == 0)
        bench_mpi(&b);
    else
        bench_mics(&b);
    return EXIT_SUCCESS;
}
