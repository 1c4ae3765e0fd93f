// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The pipeline's schedule on clocks: each stage has a list of passes, and a pass begins when the
// stage has done the one before and the neighbour the one that it follows.
//
// 1F1B: a stage runs as many forwards ahead as stages follow it, then one forward and one backward
// in layered group. Interleaved: chunks in layered group, each for as many micro-batches as there
// are stages. The order is Megatron-LM's (Narayanan et al., SC21, section 2.2).
#include "plan/search/megatron.h"

typedef struct pipeline {
    const cut *c;
    const stage_times *times;
    int32_t passes;  // forwards of one stage: micro-batches x chunks
    double *forward; // by stage, micro-batch x chunk: when it ended; below 0: not yet
    double *backward;
    double *free_us; // by stage
    int32_t *next;   // by stage: entry of its list
} pipeline;

// One entry of a stage's list.
typedef struct entry {
    bool backward;
    int32_t micro, chunk;
} entry;

// ---- layers ----

int32_t chunk_layers(const cut *c, int32_t layers, int32_t stage, int32_t chunk)
{
    const int32_t chunks = c->p.stages * c->p.chunks, place = chunk * c->p.stages + stage;
    return layers / chunks + (place >= 1 && place <= layers % chunks);
}

int32_t stage_layers(const cut *c, int32_t layers, int32_t stage)
{
    int32_t sum = 0;
    for (int32_t chunk = 0; chunk < c->p.chunks; chunk++)
        sum += chunk_layers(c, layers, stage, chunk);
    return sum;
}

// ---- order ----

static int32_t warmup_of(const cut *c, int32_t stage)
{
    const int32_t p = c->p.stages, v = c->p.chunks, passes = c->micro_steps * v;
    if (v > 1 && c->micro_steps == p)
        return passes;
    const int32_t ahead = v == 1 ? p - stage - 1 : 2 * (p - stage - 1) + (v - 1) * p;
    return ahead < passes ? ahead : passes;
}

// The k-th forward, or backward, of a stage.
static entry pass_at(const cut *c, int32_t k, bool backward)
{
    const int32_t p = c->p.stages, v = c->p.chunks;
    if (v == 1)
        return (entry){.backward = backward, .micro = k};
    const int32_t chunk = k % (p * v) / p;
    return (entry){.backward = backward,
                   .micro = k / (p * v) * p + k % p,
                   .chunk = backward ? v - 1 - chunk : chunk};
}

static entry entry_at(const pipeline *pl, int32_t stage, int32_t index)
{
    const int32_t warmup = warmup_of(pl->c, stage), passes = pl->passes;
    if (index < warmup)
        return pass_at(pl->c, index, false);
    const int32_t steady = 2 * (passes - warmup);
    const int32_t at = index - warmup;
    if (at < steady)
        return pass_at(pl->c, at % 2 == 0 ? warmup + at / 2 : at / 2, at % 2 == 1);
    return pass_at(pl->c, passes - warmup + at - steady, true);
}

// ---- times ----

// Sends of interleaved stages run beside computation; what receives begins later all the same.
static bool hides_sends(const cut *c)
{
    return c->p.era != MICS_MEGATRON_2021 && c->p.chunks > 1;
}

static double *end_of(const pipeline *pl, double *ends, int32_t stage, int32_t micro, int32_t chunk)
{
    return &ends[((int64_t)stage * pl->c->p.chunks + chunk) * pl->c->micro_steps + micro];
}

// When what a pass follows was done; below 0: not yet.
static double ready_us(const pipeline *pl, int32_t stage, entry e)
{
    const int32_t last = pl->c->p.stages - 1, top = pl->c->p.chunks - 1;
    const bool first = stage == 0 && e.chunk == 0, loss = stage == last && e.chunk == top;
    if (e.backward ? loss : first)
        return e.backward ? *end_of(pl, pl->forward, last, e.micro, e.chunk) : 0;
    double end = 0;
    if (!e.backward) {
        end = stage > 0 ? *end_of(pl, pl->forward, stage - 1, e.micro, e.chunk)
                        : *end_of(pl, pl->forward, last, e.micro, e.chunk - 1);
    } else {
        end = stage < last ? *end_of(pl, pl->backward, stage + 1, e.micro, e.chunk)
                           : *end_of(pl, pl->backward, 0, e.micro, e.chunk + 1);
    }
    return end >= 0 && hides_sends(pl->c) ? end + pl->times->send_us : end;
}

// Computation, sums and sends of one pass.
static pipeline_time pass_time(const cut *c, const stage_times *t, int32_t stage, int32_t chunk,
                               bool backward)
{
    const bool first = stage == 0 && chunk == 0;
    const bool last = stage == c->p.stages - 1 && chunk == c->p.chunks - 1;
    const int32_t layers = chunk_layers(c, t->layers, stage, chunk);
    pipeline_time time = {0};
    time.compute_us = layers * (backward ? t->layer.backward_us : t->layer.forward_us) +
                      (first ? (backward ? t->embed.backward_us : t->embed.forward_us) : 0) +
                      (last ? (backward ? t->head.backward_us : t->head.forward_us) : 0);
    time.sum_us = layers * (backward ? t->layer.backward_sum_us : t->layer.forward_sum_us) +
                  (first ? (backward ? t->embed.backward_sum_us : t->embed.forward_sum_us) : 0) +
                  (last ? (backward ? t->head.backward_sum_us : t->head.forward_sum_us) : 0);
    time.send_us = (backward ? last : first) || hides_sends(c) ? 0 : t->send_us; // it receives
    time.us = time.compute_us + time.sum_us + time.send_us;
    return time;
}

pipeline_time pipeline_busy(const cut *c, const stage_times *times)
{
    pipeline_time busiest = {0};
    for (int32_t stage = 0; stage < c->p.stages; stage++) {
        pipeline_time sum = {0};
        for (int32_t i = 0; i < 2 * c->p.chunks; i++) {
            const pipeline_time pass = pass_time(c, times, stage, i / 2, i % 2 == 1);
            sum.us += c->micro_steps * pass.us;
            sum.compute_us += c->micro_steps * pass.compute_us;
            sum.sum_us += c->micro_steps * pass.sum_us;
            sum.send_us += c->micro_steps * pass.send_us;
        }
        if (sum.us > busiest.us)
            busiest = sum;
    }
    return busiest;
}

// Runs what a stage can; returns how many passes that were.
static int32_t advance(pipeline *pl, int32_t stage)
{
    int32_t done = 0;
    while (pl->next[stage] < 2 * pl->passes) {
        const entry e = entry_at(pl, stage, pl->next[stage]);
        const double ready = ready_us(pl, stage, e);
        if (ready < 0)
            break;
        double *free_us = &pl->free_us[stage];
        const double begin = ready > *free_us ? ready : *free_us;
        *free_us = begin + pass_time(pl->c, pl->times, stage, e.chunk, e.backward).us;
        *end_of(pl, e.backward ? pl->backward : pl->forward, stage, e.micro, e.chunk) = *free_us;
        pl->next[stage]++;
        done++;
    }
    return done;
}

static void run(pipeline *pl)
{
    const int32_t stages = pl->c->p.stages;
    for (int32_t done = 1; done > 0;) {
        done = 0;
        for (int32_t i = 0; i < 2 * stages; i++) // there and back, as passes travel
            done += advance(pl, i < stages ? i : 2 * stages - 1 - i);
    }
}

static mics_status open_pipeline(mics_memory *memory, pipeline *pl)
{
    const size_t stages = (size_t)pl->c->p.stages, ends = stages * (size_t)pl->passes;
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, (2 * ends + stages) * sizeof(double), &block));
    pl->forward = block;
    pl->backward = pl->forward + ends;
    pl->free_us = pl->backward + ends;
    for (size_t i = 0; i < 2 * ends; i++)
        pl->forward[i] = -1;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, stages * sizeof(int32_t), &block));
    pl->next = block;
    return MICS_OK;
}

mics_status pipeline_run(mics_memory *memory, const cut *c, const stage_times *times,
                         pipeline_time *time_out)
{
    pipeline pl = {.c = c, .times = times, .passes = c->micro_steps * c->p.chunks};
    const mics_status status = open_pipeline(memory, &pl);
    if (status == MICS_OK) {
        run(&pl);
        *time_out = pipeline_busy(c, times);
        time_out->us = 0;
        for (int32_t stage = 0; stage < c->p.stages; stage++) {
            if (pl.free_us[stage] > time_out->us)
                time_out->us = pl.free_us[stage];
        }
    }
    mics_free(memory, pl.forward);
    mics_free(memory, pl.next);
    return status;
}

double pipeline_layers_held(const cut *c, int32_t layers, int32_t stage)
{
    const int32_t passes = c->micro_steps * c->p.chunks;
    const int32_t ahead = warmup_of(c, stage) + 1;
    const double of_a_pass = (double)stage_layers(c, layers, stage) / c->p.chunks;
    return (ahead < passes ? ahead : passes) * of_a_pass;
}
