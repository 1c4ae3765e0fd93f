// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A rank's session of mics bench: who shares a machine with whom, clocks, and figures of all ranks.
#include "base/clock.h"
#include "base/hash.h"
#include "measure/internal.h"
#include "mics/core/device.h"
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Of what a machine has left, this part is for buffers.
static const double MEMORY_SHARE = 0.25;
static const size_t MAX_BUFFER_BYTES = (size_t)256 << 20;

// ---- which machine this is ----

// Differs between machines, and between boots of one; the same in all containers and namespaces of
// a machine. 0 where the system does not tell: then nodes count as machines.
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
    return (double)(mics_fnv1a(MICS_FNV1A_BEGIN, text, got) >> 12); // exact in a double
}

enum { MACHINE, CORES, FIRST_CORE, MEMORY, PLACE_FIGURES };

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

static mics_status share_figures(measure_session *self, const mics_machine *machine)
{
    const measure_place *place = &self->place;
    const double mine[PLACE_FIGURES] = {machine_id(self->rank->comm->rank / place->per_node),
                                        machine->cores, first_core(),
                                        (double)machine->memory_available_bytes};
    return measure_share(self, mine, PLACE_FIGURES);
}

static const double *figures_of(const measure_session *self, int32_t rank)
{
    return self->all + (int64_t)rank * MEASURE_FIGURES;
}

// Of ranks before `end`, those on this one's machine; where `same_cores`, on the same cores as
// well.
static int32_t count_beside(const measure_session *self, int32_t rank, int32_t end, bool same_cores)
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

// Cores of a rank's machine that all its ranks have together. Launchers bind ranks to the same
// cores or to others, so the first core tells which.
static double cores_together(const measure_session *self, int32_t rank)
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

static void settle_place(measure_session *self, int32_t threads)
{
    measure_place *place = &self->place;
    double cores = 0, memory = self->all[MEMORY];
    int32_t max_here = 0;
    for (int32_t rank = 0; rank < place->ranks; rank++) {
        const double here_memory = figures_of(self, rank)[MEMORY];
        memory = here_memory < memory ? here_memory : memory;
        if (count_beside(self, rank, rank, false) > 0)
            continue; // its machine was looked at
        const int32_t here = count_beside(self, rank, place->ranks, false);
        const double together = cores_together(self, rank);
        max_here = here > max_here ? here : max_here;
        cores = rank == 0 || together < cores ? together : cores;
    }
    place->cores = (int32_t)cores;
    place->machine_ranks = max_here;
    const int32_t share = place->cores / place->per_node;
    place->threads = threads > 0 ? threads : (share > 0 ? share : 1);
    place->shared =
        max_here == place->ranks && (int64_t)place->ranks * place->threads > place->cores;
    const double budget = memory * MEMORY_SHARE / max_here;
    place->buffer_bytes = budget < (double)MAX_BUFFER_BYTES ? (size_t)budget : MAX_BUFFER_BYTES;
}

int32_t measure_pair(const measure_place *place)
{
    return place->gpu && place->nodes % 2 != 0 ? place->nodes : 2;
}

mics_status measure_session_open(measure_session *self, run_rank *rank, int32_t threads, bool gpu)
{
    mics_machine machine = {0};
    void *block = NULL;
    const int32_t ranks = rank->comm->ranks;
    *self = (measure_session){.rank = rank,
                              .place = {.ranks = ranks,
                                        .nodes = rank->world->nodes,
                                        .per_node = ranks / rank->world->nodes,
                                        .mpi = rank->world->mpi,
                                        .gpu = gpu}};
    mics_status status = mics_machine_read(&machine);
    if (status == MICS_OK)
        status = mics_alloc(rank->memory, MICS_MEM_HOST,
                            (size_t)ranks * MEASURE_FIGURES * sizeof(double), &block);
    self->all = block;
    MICS_TRY(run_rank_agree(rank, status));
    MICS_TRY(share_figures(self, &machine));
    settle_place(self, threads);
    return MICS_OK;
}

void measure_session_close(measure_session *self)
{
    if (self->rank != NULL)
        mics_free(self->rank->memory, self->all);
    self->all = NULL;
}

// ---- figures of all ranks ----

mics_status measure_share(measure_session *self, const double *mine, int32_t count)
{
    mics_comm *comm = self->rank->comm;
    const mics_comm_group world = {
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank},
        .what = "figures of all ranks"};
    double *own = self->all + (int64_t)comm->rank * MEASURE_FIGURES;
    for (int32_t i = 0; i < MEASURE_FIGURES; i++)
        own[i] = i < count ? mine[i] : -1;
    return mics_comm_all_gather(comm, &world, self->all, MEASURE_FIGURES * sizeof(double));
}

double measure_mean(const measure_session *self, int32_t figure)
{
    double sum = 0;
    int32_t said = 0;
    for (int32_t rank = 0; rank < self->place.ranks; rank++) {
        const double value = figures_of(self, rank)[figure];
        sum += value >= 0 ? value : 0;
        said += value >= 0;
    }
    return said > 0 ? sum / said : 0;
}

double measure_max(const measure_session *self, int32_t figure)
{
    double max = 0;
    for (int32_t rank = 0; rank < self->place.ranks; rank++) {
        const double value = figures_of(self, rank)[figure];
        max = value > max ? value : max;
    }
    return max;
}

mics_status measure_now_us(measure_session *self, double *now_us_out)
{
    const double now_us = mics_clock_us();
    MICS_TRY(measure_share(self, &now_us, 1));
    *now_us_out = self->all[0];
    return MICS_OK;
}

// ---- clocks ----

double measure_thread_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

double measure_work_us(const measure_session *self)
{
    return self->place.shared ? measure_thread_us() : mics_clock_us();
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measure_median(double *values, int32_t count)
{
    if (count <= 0)
        return 0;
    qsort(values, (size_t)count, sizeof *values, by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

void measure_add_point(mics_curve *curve, double size, double value)
{
    curve->size[curve->count] = size;
    curve->value[curve->count++] = value;
}

void measure_say(const measure_session *self, const char *format, ...)
{
    char line[256];
    va_list args;
    if (self->quiet || self->rank->comm->rank != 0)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "mics bench: %s\n", line);
}
