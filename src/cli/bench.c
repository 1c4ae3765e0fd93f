// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A rank's session of mics bench: who shares a machine with whom, clocks, and figures of all ranks.
#include "bench.h"
#include "base/file.h"
#include "mics/clock.h"
#include "mics/device.h"
#include "mics/log.h"
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Of what a machine has left, this part is for buffers.
static const double MEMORY_SHARE = 0.25;
static const size_t BUFFER_MAX_BYTES = (size_t)256 << 20;

// ---- which machine this is ----

// Differs between machines, and between boots of one; the same in all containers and namespaces of a
// machine. 0 where the system does not tell: then nodes count as machines.
static double machine_id(int32_t node)
{
    char text[64] = "";
    size_t got = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file != NULL) {
        got = fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    if (got == 0)
        return (double)node;
    uint64_t hash = 0xcbf29ce484222325U; // FNV-1a
    for (size_t i = 0; i < got; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3U;
    return (double)(hash >> 12); // exact in a double
}

enum { MACHINE, CORES, FIRST_CORE, MEMORY, ROOM_FIGURES };

// Of those that this rank may use; -1: unknown.
static double first_core(void)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return -1;
    size_t core = 0;
    while (core < CPU_SETSIZE - 1 && !CPU_ISSET(core, &mask))
        core++;
    return (double)core;
}

static mics_status share_room(bench *self, const mics_machine *machine)
{
    const bench_place *place = &self->place;
    const double mine[ROOM_FIGURES] = {machine_id(self->rank->comm->rank / place->per_node),
                                       machine->cores, first_core(),
                                       (double)machine->memory_available_bytes};
    return bench_share(self, mine, ROOM_FIGURES);
}

static const double *figures_of(const bench *self, int32_t rank)
{
    return self->all + (int64_t)rank * BENCH_FIGURES;
}

// Of ranks before `end`, those on this one's machine; where `same_cores`, on the same cores as well.
static int32_t count_beside(const bench *self, int32_t rank, int32_t end, bool same_cores)
{
    const double *own = figures_of(self, rank);
    int32_t count = 0;
    for (int32_t other = 0; other < end; other++) {
        const double *figures = figures_of(self, other);
        count += figures[MACHINE] == own[MACHINE] &&
                 (!same_cores || figures[FIRST_CORE] == own[FIRST_CORE]);
    }
    return count;
}

// Cores of a rank's machine that all its ranks have together. Launchers bind ranks to the same cores or to
// others, so the first core tells which.
static double cores_together(const bench *self, int32_t rank)
{
    double cores = 0;
    for (int32_t other = 0; other < self->place.ranks; other++) {
        const double *figures = figures_of(self, other);
        if (figures[MACHINE] == figures_of(self, rank)[MACHINE] &&
            count_beside(self, other, other, true) == 0)
            cores += figures[CORES];
    }
    return cores;
}

static void settle_place(bench *self, int32_t threads)
{
    bench_place *place = &self->place;
    double cores = 0, memory = self->all[MEMORY];
    int32_t most = 0;
    for (int32_t rank = 0; rank < place->ranks; rank++) {
        const double here_memory = figures_of(self, rank)[MEMORY];
        memory = here_memory < memory ? here_memory : memory;
        if (count_beside(self, rank, rank, false) > 0)
            continue; // its machine was looked at
        const int32_t here = count_beside(self, rank, place->ranks, false);
        const double together = cores_together(self, rank);
        most = here > most ? here : most;
        cores = rank == 0 || together < cores ? together : cores;
    }
    place->cores = (int32_t)cores;
    place->machine_ranks = most;
    const int32_t share = place->cores / place->per_node;
    place->threads = threads > 0 ? threads : (share > 0 ? share : 1);
    place->shared = most == place->ranks && (int64_t)place->ranks * place->threads > place->cores;
    const double room = memory * MEMORY_SHARE / most;
    place->buffer_bytes = room < (double)BUFFER_MAX_BYTES ? (size_t)room : BUFFER_MAX_BYTES;
}

mics_status bench_open(bench *self, run_rank *rank, int32_t threads)
{
    mics_machine machine = {0};
    void *block = NULL;
    const int32_t ranks = rank->comm->ranks;
    *self = (bench){.rank = rank,
                    .place = {.ranks = ranks,
                              .nodes = rank->world->nodes,
                              .per_node = ranks / rank->world->nodes,
                              .mpi = rank->world->mpi}};
    mics_status status = mics_machine_read(&machine);
    if (status == MICS_OK)
        status = mics_alloc(rank->memory, MICS_MEM_HOST,
                            (size_t)ranks * BENCH_FIGURES * sizeof(double), &block);
    self->all = block;
    MICS_TRY(run_rank_agree(rank, status));
    MICS_TRY(share_room(self, &machine));
    settle_place(self, threads);
    return MICS_OK;
}

void bench_close(bench *self)
{
    if (self->rank != NULL)
        mics_free(self->rank->memory, self->all);
    self->all = NULL;
}

// ---- figures of all ranks ----

mics_status bench_share(bench *self, const double *mine, int32_t count)
{
    mics_comm *comm = self->rank->comm;
    const mics_comm_group ring = {
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank},
        .what = "figures of all ranks"};
    double *own = self->all + (int64_t)comm->rank * BENCH_FIGURES;
    for (int32_t i = 0; i < BENCH_FIGURES; i++)
        own[i] = i < count ? mine[i] : -1;
    return mics_comm_all_gather(comm, &ring, self->all, BENCH_FIGURES * sizeof(double));
}

double bench_mean(const bench *self, int32_t figure)
{
    double sum = 0;
    int32_t said = 0;
    for (int32_t rank = 0; rank < self->place.ranks; rank++) {
        const double value = self->all[(int64_t)rank * BENCH_FIGURES + figure];
        sum += value >= 0 ? value : 0;
        said += value >= 0;
    }
    return said > 0 ? sum / said : 0;
}

double bench_most(const bench *self, int32_t figure)
{
    double most = 0;
    for (int32_t rank = 0; rank < self->place.ranks; rank++) {
        const double value = self->all[(int64_t)rank * BENCH_FIGURES + figure];
        most = value > most ? value : most;
    }
    return most;
}

mics_status bench_now_us(bench *self, double *now_us_out)
{
    const double now_us = mics_clock_us();
    MICS_TRY(bench_share(self, &now_us, 1));
    *now_us_out = self->all[0];
    return MICS_OK;
}

// ---- clocks ----

double bench_thread_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

double bench_work_us(const bench *self)
{
    return self->place.shared ? bench_thread_us() : mics_clock_us();
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int32_t count)
{
    if (count <= 0)
        return 0;
    qsort(values, (size_t)count, sizeof *values, by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

void bench_say(const bench *self, const char *format, ...)
{
    char line[256];
    va_list args;
    if (self->rank->comm->rank != 0)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "mics bench: %s\n", line);
}
