// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One collective, timed: on the thread and the path that training's collectives take.
//
// Ranks that do not take part sleep for as long as it will take. Waiting in an exchange polls now and then, which
// where ranks share cores would count as load.
#include "bench.h"
#include "mics/clock.h"
#include "mics/log.h"
#include <time.h>

enum { SAMPLES_MAX = 15, SAMPLES_MIN = 3, REPEATS_MAX = 1000 };

// Repeats of what is quick count as one sample of about this long.
static const double SAMPLE_US = 1000;

static mics_status once(const bench *self, const bench_traffic *traffic, void *buffer)
{
    const mics_comm_group ring = {
        .group = traffic->group, .channel = traffic->channel, .what = traffic->what};
    if (traffic->reduces)
        return mics_comm_reduce_scatter(self->rank->comm, &ring, buffer,
                                        (int64_t)(traffic->block_bytes / sizeof(float)));
    return mics_comm_all_gather(self->rank->comm, &ring, buffer, traffic->block_bytes);
}

mics_status bench_traffic_once(const bench *self, const bench_traffic *traffic, void *buffer)
{
    for (; traffic != NULL; traffic = traffic->then)
        MICS_TRY(once(self, traffic, buffer));
    return MICS_OK;
}

static mics_status repeat(const bench *self, const bench_traffic *traffic, void *buffer,
                          int32_t repeats, double *us_out)
{
    const double begin_us = mics_clock_us();
    for (int32_t i = 0; i < repeats; i++)
        MICS_TRY(bench_traffic_once(self, traffic, buffer));
    *us_out = (mics_clock_us() - begin_us) / repeats;
    return MICS_OK;
}

void bench_sleep_us(double us)
{
    const struct timespec time = {.tv_sec = (time_t)(us / 1e6),
                                  .tv_nsec = (long)((us - 1e6 * (double)(time_t)(us / 1e6)) * 1e3)};
    nanosleep(&time, NULL);
}

// How often what takes `us` is done; the same on all ranks, as `us` is.
typedef struct plan {
    int32_t samples, repeats;
} plan;

static plan plan_for(double us, double allowed_us)
{
    plan p = {.repeats = 1};
    us = us > 0.1 ? us : 0.1;
    while (p.repeats < REPEATS_MAX && p.repeats * us < SAMPLE_US)
        p.repeats++;
    const double samples = allowed_us / (p.repeats * us);
    p.samples = samples > SAMPLES_MAX ? SAMPLES_MAX : (int32_t)samples;
    if (p.samples < SAMPLES_MIN)
        p.samples = samples < 1 ? 1 : SAMPLES_MIN;
    return p;
}

mics_status bench_traffic_run(bench *self, const bench_traffic *traffic, void *buffer,
                              double allowed_us, bench_traffic_time *time_out)
{
    double samples[SAMPLES_MAX], mine[3] = {-1, -1, -1};
    MICS_TRY(bench_share(self, mine, 1));          // all are here
    for (int i = 0; traffic->active && i < 2; i++) // the first one opens connections
        MICS_TRY(repeat(self, traffic, buffer, 1, &mine[0]));
    MICS_TRY(bench_share(self, mine, 1));
    const plan p = plan_for(bench_most(self, 0), allowed_us);
    if (traffic->active) {
        const double begin_us = bench_thread_us();
        mine[2] = 0;
        for (int32_t i = 0; i < p.samples; i++) {
            MICS_TRY(repeat(self, traffic, buffer, p.repeats, &samples[i]));
            mine[2] += samples[i] / p.samples;
        }
        mine[1] = (bench_thread_us() - begin_us) / p.samples / p.repeats;
        mine[0] = bench_median(samples, p.samples);
    } else {
        bench_sleep_us(p.samples * p.repeats * bench_most(self, 0));
    }
    MICS_TRY(bench_share(self, mine, 3));
    *time_out = (bench_traffic_time){
        .us = bench_most(self, 0), .mean_us = bench_most(self, 2), .core_us = bench_mean(self, 1)};
    return MICS_OK;
}

// ---- groups ----

// How many of `count` like things may work at once when each has `ranks` ranks.
static int32_t at_once(const bench_place *place, int32_t ranks, int32_t count)
{
    if (!place->shared)
        return count;
    return place->cores > ranks ? place->cores / ranks : 1;
}

bench_traffic bench_traffic_near(const bench *self)
{
    const bench_place *place = &self->place;
    const int32_t rank = self->rank->comm->rank, node = rank / place->per_node;
    return (bench_traffic){.what = "bench inside nodes",
                           .group = {.first = node * place->per_node,
                                     .stride = 1,
                                     .size = place->per_node,
                                     .index = rank % place->per_node},
                           .active = node < at_once(place, place->per_node, place->nodes)};
}

bench_traffic bench_traffic_ring(const bench *self)
{
    const bench_place *place = &self->place;
    const int32_t rank = self->rank->comm->rank, size = 2 * place->per_node;
    const int32_t pair = rank / size, pairs = place->nodes / 2;
    return (bench_traffic){
        .what = "bench in a ring over two nodes",
        .group = {.first = pair * size, .stride = 1, .size = size, .index = rank % size},
        .active = pair < pairs && pair < at_once(place, size, pairs),
        .channel = 1};
}

bench_traffic bench_traffic_far(const bench *self)
{
    const bench_place *place = &self->place;
    const int32_t rank = self->rank->comm->rank, node = rank / place->per_node;
    const int32_t pair = node / 2, pairs = place->nodes / 2;
    return (bench_traffic){.what = "bench between nodes",
                           .group = {.first = pair * 2 * place->per_node + rank % place->per_node,
                                     .stride = place->per_node,
                                     .size = 2,
                                     .index = node % 2},
                           .active =
                               pair < pairs && pair < at_once(place, 2 * place->per_node, pairs),
                           .channel = 1};
}

bench_traffic bench_traffic_crowd(const bench *self, bool far, int32_t nodes)
{
    const int32_t k = self->place.per_node, rank = self->rank->comm->rank;
    const bool active = rank / k < nodes;
    if (!far)
        return (bench_traffic){
            .what = "bench inside nodes beside computation",
            .group = {.first = rank / k * k, .stride = 1, .size = k, .index = rank % k},
            .active = active};
    return (bench_traffic){
        .what = "bench between nodes beside computation",
        .group = {.first = rank % k, .stride = k, .size = nodes, .index = rank / k},
        .active = active,
        .channel = 1};
}
