// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What ranks agree on in each step: one small all-gather over all of them, by doubling as a step has
// it, and by one ring, in turns.
//
//   agreement measured ROUNDS       under MPI: medians of rounds of 40 each, in us
//   agreement planned CLUSTER:NODES what the planner's costs are, in us
#include "mics/core/agreement.h"
#include "base/clock.h"
#include "mics/core/comm.h"
#include "mics/core/schedule.h"
#include "mics/core/transport.h"
#include "mics/memory.h"
#include "mics/run.h"
#include "plan/cost/cost.h"
#include "plan/offers/planning.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EACH = 40, ROUNDS_MAX = 1000 };

static void need(mics_status status)
{
    if (status != MICS_OK)
        exit(EXIT_FAILURE);
}

// ---- measured ----

typedef struct bench {
    mics_comm *comm;
    mics_comm_group world;
    mics_agreement *cards; // (2, ranks)
} bench;

static double time_us(const bench *b, bool doubling)
{
    mics_agreement *work = b->cards + b->world.group.size;
    need(mics_comm_agree(b->comm, MICS_OK));
    const double begin_us = mics_clock_us();
    for (int i = 0; i < EACH; i++) {
        if (doubling)
            need(mics_comm_all_gather_doubling(b->comm, &b->world, b->cards, work,
                                               sizeof *b->cards));
        else
            need(mics_comm_all_gather(b->comm, &b->world, b->cards, sizeof *b->cards));
    }
    return (mics_clock_us() - begin_us) / EACH;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(mics_memory *memory, int rounds)
{
    static double us[2][ROUNDS_MAX];
    bench b = {.world = {.what = "agreement"}};
    need(mics_comm_mpi_open(memory, 120, &b.comm));
    b.world.group = (mics_group){.stride = 1, .size = b.comm->ranks, .index = b.comm->rank};
    need(MICS_NEW(memory, 2 * (int64_t)b.comm->ranks, &b.cards));
    for (int doubling = 0; doubling < 2; doubling++)
        (void)time_us(&b, doubling == 1); // connects
    for (int round = 0; round < rounds; round++) {
        for (int doubling = 0; doubling < 2; doubling++)
            us[doubling][round] = time_us(&b, doubling == 1);
    }
    for (int doubling = 0; doubling < 2; doubling++) {
        qsort(us[doubling], (size_t)rounds, sizeof(double), by_value);
        if (b.comm->rank == 0)
            printf("%s %.1f (%.1f to %.1f)\n", doubling ? "doubling" : "ring",
                   us[doubling][rounds / 2], us[doubling][0], us[doubling][rounds - 1]);
    }
    mics_free(memory, b.cards);
    mics_comm_close(b.comm);
}

// ---- planned ----

static void plan(mics_memory *memory, const char *text)
{
    static const mics_collective_kind kinds[] = {MICS_COLLECTIVE_ALL_GATHER,
                                                 MICS_COLLECTIVE_ALL_GATHER_DOUBLING};
    mics_cluster cluster;
    int32_t nodes = 0, ranks = 0;
    need(mics_cluster_open(memory, text, &cluster, &nodes));
    need(mics_cluster_ranks(&cluster, nodes, &ranks));
    for (int doubling = 0; doubling < 2; doubling++) {
        const mics_collective one = {.kind = kinds[doubling],
                                     .group = {.stride = 1, .size = ranks},
                                     .block_bytes = sizeof(mics_agreement)};
        const mics_cost_use use = mics_cost_collective(&cluster, ranks, &one);
        printf("%s %.1f, latency %.1f\n", doubling ? "doubling" : "ring", use.us, use.latency_us);
    }
}

int main(int argc, char **argv)
{
    mics_memory *memory = NULL;
    const int rounds = argc == 3 ? atoi(argv[2]) : 0;
    need(mics_memory_open(&memory));
    if (argc == 3 && strcmp(argv[1], "measured") == 0 && rounds >= 1 && rounds <= ROUNDS_MAX) {
        measure(memory, rounds);
    } else if (argc == 3 && strcmp(argv[1], "planned") == 0) {
        plan(memory, argv[2]);
    } else {
        fprintf(stderr, "usage: agreement measured ROUNDS | planned CLUSTER:NODES\n");
        return EXIT_FAILURE;
    }
    mics_memory_close(memory);
    return EXIT_SUCCESS;
}
