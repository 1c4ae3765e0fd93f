// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One collective, timed: on the thread and the path that training's collectives take.
//
// Ranks that do not take part sleep for as long as it will take. Waiting in an exchange polls now
// and then, which where ranks share cores would count as load.
#include "base/clock.h"
#include "measure/internal.h"
#include <time.h>

enum { MAX_SAMPLES = 15, MIN_SAMPLES = 3, MAX_REPEATS = 1000 };

// Repeats of what is quick count as one sample of about this long.
static const double SAMPLE_US = 1000;

static mics_status once(const measure_session *self, const measure_traffic *traffic, void *buffer)
{
    const mics_comm_group group = {
        .group = traffic->group, .channel = traffic->channel, .what = traffic->what};
    const mics_comm_call call = {.kind = traffic->reduces ? MICS_COMM_CALL_REDUCE_SCATTER
                                                          : MICS_COMM_CALL_ALL_GATHER,
                                 .over = &group,
                                 .buffer = buffer,
                                 .block_elems = (int64_t)(traffic->block_bytes / sizeof(float)),
                                 .dtype = MICS_DTYPE_FP32};
    if (self->place.gpu)
        return mics_comm_collective(self->rank->comm, &call);
    if (traffic->reduces)
        return mics_comm_reduce_scatter(self->rank->comm, &group, buffer,
                                        (int64_t)(traffic->block_bytes / sizeof(float)));
    return mics_comm_all_gather(self->rank->comm, &group, buffer, traffic->block_bytes);
}

// Of a GPU.
static int32_t stream_of(const measure_traffic *traffic)
{
    return traffic->channel + 1;
}

// On a GPU it is enqueued; what follows waits for it.
mics_status measure_traffic_once(const measure_session *self, const measure_traffic *traffic,
                                 void *buffer)
{
    const measure_traffic *first = traffic;
    for (; traffic != NULL; traffic = traffic->then) {
        const measure_traffic *next = traffic->then != NULL ? traffic->then : first;
        MICS_TRY(once(self, traffic, buffer));
        measure_follow(self, stream_of(traffic), stream_of(next));
    }
    return MICS_OK;
}

mics_status measure_traffic_wait(const measure_session *self, const measure_traffic *traffic)
{
    return self->place.gpu ? measure_wait(self, stream_of(traffic)) : MICS_OK;
}

static mics_status repeat(const measure_session *self, const measure_traffic *traffic, void *buffer,
                          int32_t repeats, double *us_out)
{
    const double begin_us = mics_clock_us();
    for (int32_t i = 0; i < repeats; i++)
        MICS_TRY(measure_traffic_once(self, traffic, buffer));
    MICS_TRY(measure_traffic_wait(self, traffic));
    *us_out = (mics_clock_us() - begin_us) / repeats;
    return MICS_OK;
}

void measure_sleep_us(double us)
{
    const struct timespec time = {.tv_sec = (time_t)(us / 1e6),
                                  .tv_nsec = (long)((us - 1e6 * (double)(time_t)(us / 1e6)) * 1e3)};
    nanosleep(&time, NULL);
}

// How often what takes `us` is done; the same on all ranks, as `us` is.
typedef struct effort {
    int32_t samples, repeats;
} effort;

static effort effort_for(double us, double allowed_us)
{
    effort p = {.repeats = 1};
    us = us > 0.1 ? us : 0.1;
    while (p.repeats < MAX_REPEATS && p.repeats * us < SAMPLE_US)
        p.repeats++;
    const double samples = allowed_us / (p.repeats * us);
    p.samples = samples > MAX_SAMPLES ? MAX_SAMPLES : (int32_t)samples;
    if (p.samples < MIN_SAMPLES)
        p.samples = samples < 1 ? 1 : MIN_SAMPLES;
    return p;
}

mics_status measure_traffic_run(measure_session *self, const measure_traffic *traffic, void *buffer,
                                double allowed_us, measure_traffic_time *time_out)
{
    double samples[MAX_SAMPLES], mine[3] = {-1, -1, -1};
    MICS_TRY(measure_share(self, mine, 1));        // all are here
    for (int i = 0; traffic->active && i < 2; i++) // the first one opens connections
        MICS_TRY(repeat(self, traffic, buffer, 1, &mine[0]));
    MICS_TRY(measure_share(self, mine, 1));
    const effort p = effort_for(measure_max(self, 0), allowed_us);
    if (traffic->active) {
        const double begin_us = measure_thread_us();
        mine[2] = 0;
        for (int32_t i = 0; i < p.samples; i++) {
            MICS_TRY(repeat(self, traffic, buffer, p.repeats, &samples[i]));
            mine[2] += samples[i] / p.samples;
        }
        // On a GPU the thread works as long as it asks whether it is done.
        mine[1] = self->place.gpu ? 0 : (measure_thread_us() - begin_us) / p.samples / p.repeats;
        mine[0] = measure_median(samples, p.samples);
    } else {
        measure_sleep_us(p.samples * p.repeats * measure_max(self, 0));
    }
    MICS_TRY(measure_share(self, mine, 3));
    *time_out = (measure_traffic_time){.us = measure_max(self, 0),
                                       .mean_us = measure_max(self, 2),
                                       .core_us = measure_mean(self, 1)};
    return MICS_OK;
}

// ---- groups ----

measure_traffic measure_traffic_among(const measure_session *self, measure_scope scope,
                                      int32_t nodes)
{
    static const char *const texts[] = {"bench, intra-node", "bench, inter-node",
                                        "bench, one ring over nodes"};
    const int32_t rank = self->rank->comm->rank, k = self->place.per_node, span = nodes * k;
    const int32_t begin = rank / span * span;
    measure_traffic traffic = {.what = texts[scope],
                               .active = begin + span <= self->place.ranks,
                               .channel = scope != MEASURE_INTRA};
    if (scope == MEASURE_INTER)
        traffic.group = (mics_group){
            .first = begin + rank % k, .stride = k, .size = nodes, .index = (rank - begin) / k};
    else
        traffic.group =
            (mics_group){.first = begin, .stride = 1, .size = span, .index = rank - begin};
    return traffic;
}

measure_traffic measure_traffic_apart(const measure_session *self, measure_scope scope,
                                      int32_t nodes)
{
    const measure_place *place = &self->place;
    const int32_t span = nodes * place->per_node, fit = place->cores / span;
    measure_traffic traffic = measure_traffic_among(self, scope, nodes);
    if (place->shared)
        traffic.active = traffic.active && self->rank->comm->rank / span < (fit > 0 ? fit : 1);
    return traffic;
}
