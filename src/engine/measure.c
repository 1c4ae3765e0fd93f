// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Times collectives as the engine runs them: flat ones on the channel of their stream, two stages
// on two threads and both channels. What is timed is what travels, without packing: a gather is
// packed once, a reduction in each of its stages. Both stages are timed with the bytes of the wire
// between nodes; where another holds inside them, what that changes is left out.
//
// A run is a few units through one or two stages, each stage in order. A unit is in one of two
// buffers, so its first stage waits until the last stage of the unit before the last is done with
// that. The time of a unit is that between the ends of the first and of the last, so that filling
// the pipeline does not count.
//
// Invariants (guarded by meter->mutex):
//   1. done[s] grows within a run; unit i is through stage s exactly when i < done[s].
//   2. After `failure` is set no wait blocks, so both threads end the run.
#include "engine/engine_internal.h"
#include "measure_plan.h"
#include "mics/clock.h"
#include "mics/log.h"
#include "mics/size.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    UNITS = 4,      // of a run
    UNITS_DEAR = 2, // of one that takes long: the first fills the pipeline
    BUFFERS = 2,
    STAGES = 2,
    REPEATS_MAX = 9,
    REPEATS_SURE = 3, // before one algorithm may be clearly slower than another
    REPEATS_SURE_DEAR = 2,
    TIMED_BYTES_MIN = 64 * 1024,
    PROBE_PART = 4, // of the bytes that an estimate allows, the next estimate is made on 1 / this
    CHECKS = 3,
};

// Shares of the time that is left. One run of each candidate may be expected to take PASS, is of
// UNITS units up to FULL, and repetitions may take REPEATS.
static const double PASS_SHARE = 0.6, FULL_SHARE = 0.05, REPEATS_SHARE = 0.2;

// What takes so many times as long as the best is not repeated.
static const double CLEARLY_SLOWER = 1.25;

// Links are others when a unit takes so many times as long, or as short, as it did; shorter times
// say more of processors than of links.
static const double OTHER_LINKS = 2, CHECKED_US_MIN = 5000;

// One collective on a part of a unit's buffer.
typedef struct stage {
    const group_ring *ring;
    int32_t channel;
    size_t at; // where the part begins
    size_t block_bytes;
} stage;

typedef struct timed_run {
    mics_measure_op op;
    mics_algorithm algorithm;
    stage stages[STAGES];
    int32_t stage_count, units;
    char what[160];
} timed_run;

typedef struct meter {
    const mics_measure_spec *spec;
    const mics_mesh *mesh;
    group_ring rings[MICS_AXES][MICS_SCOPES];
    char *buffers[BUFFERS];
    double begin_us;                       // of everything
    double us_per_byte[MICS_MEASURE_OPS];  // of the slowest algorithm, as far as is known
    double least_us[MICS_MEASURE_OPS];     // of a unit, however small
    size_t probed_bytes[MICS_MEASURE_OPS]; // the largest that us_per_byte is from; 0: none

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread; // runs second stages
    bool locks_open, started, busy, closing;
    bool told; // this rank failed, and said so in an agreement
    const timed_run *run;
    int32_t done[STAGES];
    double end_us[UNITS]; // by unit, through the last stage
    mics_status failure;
} meter;

// What rank 0 decides for all.
typedef struct decision {
    int64_t bytes; // of the units that are timed; 0: none are
    int32_t units;
    int32_t again; // a bit an algorithm: which are run once more
    int32_t same;  // links are
} decision;

// What the candidates at one size do, run after run.
typedef struct contest {
    timed_run runs[MICS_ALGORITHMS];
    double samples[MICS_ALGORITHMS][REPEATS_MAX];
    int32_t counts[MICS_ALGORITHMS];
    double begin_us, round_us, allowed_us;
} contest;

// The agreements that may tell of this rank's failure.
static mics_status agree(meter *self, mics_status mine)
{
    self->told = mine != MICS_OK;
    return mics_comm_agree(self->spec->comm, mine);
}

// ---- one stage of one unit ----

// As the engine's packed reductions: each member's block to it directly. Only bytes matter here.
static mics_status reduce_direct(mics_comm *comm, const mics_ring *ring, char *buffer,
                                 size_t block_bytes)
{
    const mics_group *group = &ring->group;
    for (int32_t hop = 1; hop < group->size; hop++) {
        const int32_t to = (group->index + hop) % group->size,
                      from = (group->index + group->size - hop) % group->size;
        const mics_exchange exchange = {.to = mics_group_rank(*group, to),
                                        .from = mics_group_rank(*group, from),
                                        .send = buffer,
                                        .recv = buffer + block_bytes,
                                        .bytes = block_bytes,
                                        .reduce = MICS_REDUCE_COPY,
                                        .channel = ring->channel,
                                        .what = ring->what};
        MICS_TRY(mics_comm_exchange(comm, &exchange));
    }
    return MICS_OK;
}

static mics_status run_stage(const meter *self, const timed_run *run, const stage *at, char *buffer)
{
    mics_comm *comm = self->spec->comm;
    const mics_ring ring = {.group = at->ring->group,
                            .block_of = at->ring->block_of,
                            .channel = at->channel,
                            .what = run->what};
    char *part = buffer + at->at;
    if (run->algorithm == MICS_ALGORITHM_LIBRARY)
        return mics_comm_library_gather(comm, &ring, part, at->block_bytes);
    if (run->op == MICS_MEASURE_GATHER)
        return mics_comm_all_gather(comm, &ring, part, at->block_bytes);
    const mics_wires wires = self->spec->schedule->spec.reduce_wires;
    if ((at->channel == 1 ? wires.between : wires.inside) != MICS_WIRE_FP32)
        return reduce_direct(comm, &ring, part, at->block_bytes);
    return mics_comm_reduce_scatter(comm, &ring, (float *)(void *)part,
                                    (int64_t)(at->block_bytes / sizeof(float)));
}

// ---- a run ----

// Waits until a stage may have a unit.
static mics_status begin_unit(meter *self, int32_t at, int32_t unit)
{
    const int32_t last = self->run->stage_count - 1;
    pthread_mutex_lock(&self->mutex);
    while (self->failure == MICS_OK &&
           (at > 0 ? self->done[at - 1] <= unit : self->done[last] <= unit - BUFFERS))
        pthread_cond_wait(&self->changed, &self->mutex);
    mics_status status = self->failure;
    pthread_mutex_unlock(&self->mutex);
    return status;
}

static void end_unit(meter *self, int32_t at, int32_t unit, mics_status status)
{
    pthread_mutex_lock(&self->mutex);
    if (status != MICS_OK && self->failure == MICS_OK)
        self->failure = status;
    if (status == MICS_OK)
        self->done[at] = unit + 1;
    if (at == self->run->stage_count - 1)
        self->end_us[unit] = mics_clock_us();
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

// All units through one stage. The other thread of this rank may be in an exchange that waits for
// ranks which this failure keeps away: ending the world wakes it. It then finds that others have
// failed; the reason is noted before, and stays.
static void run_units(meter *self, int32_t at)
{
    const timed_run *run = self->run;
    for (int32_t unit = 0; unit < run->units; unit++) {
        if (begin_unit(self, at, unit) != MICS_OK)
            return;
        mics_status status = run_stage(self, run, &run->stages[at], self->buffers[unit % BUFFERS]);
        end_unit(self, at, unit, status);
        if (status != MICS_OK)
            mics_comm_abort(self->spec->comm, NULL);
    }
}

static void *second_stages(void *arg)
{
    meter *self = arg;
    const mics_comm *comm = self->spec->comm;
    mics_log_set_rank(comm->ranks > 1 ? comm->rank : -1);
    pthread_mutex_lock(&self->mutex);
    for (;;) {
        while (!self->busy && !self->closing)
            pthread_cond_wait(&self->changed, &self->mutex);
        if (!self->busy)
            break;
        pthread_mutex_unlock(&self->mutex);
        run_units(self, 1);
        pthread_mutex_lock(&self->mutex);
        self->busy = false;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

// Runs once; the time of a unit. All ranks begin together.
static mics_status run_once(meter *self, const timed_run *run, double *us_out)
{
    MICS_TRY(mics_comm_agree(self->spec->comm, MICS_OK));
    pthread_mutex_lock(&self->mutex);
    self->run = run;
    memset(self->done, 0, sizeof self->done);
    self->failure = MICS_OK;
    self->busy = run->stage_count > 1;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    const double begin_us = mics_clock_us();
    run_units(self, 0);
    pthread_mutex_lock(&self->mutex);
    while (self->busy)
        pthread_cond_wait(&self->changed, &self->mutex);
    pthread_mutex_unlock(&self->mutex);
    MICS_TRY(self->failure);
    const int32_t last = run->units - 1;
    *us_out = last > 0 ? (self->end_us[last] - self->end_us[0]) / last : self->end_us[0] - begin_us;
    return MICS_OK;
}

// ---- what is run ----

static stage stage_of(const meter *self, mics_group_axis axis, mics_group_scope scope,
                      size_t block_bytes, size_t at)
{
    return (stage){.ring = &self->rings[axis][scope],
                   .channel = mics_mesh_spans_nodes(self->mesh, axis, scope) ? 1 : 0,
                   .at = at,
                   .block_bytes = block_bytes};
}

// The stages of a unit of `bytes`: as gather() and reduce() of collectives.c place them.
static timed_run run_of(const meter *self, mics_measure_op op, mics_algorithm algorithm,
                        size_t bytes)
{
    const bool gather = op == MICS_MEASURE_GATHER;
    const mics_group_axis axis = gather ? MICS_AXIS_PARTITION : MICS_AXIS_GRADIENT;
    const group_ring *rings = self->rings[axis];
    const size_t block = bytes / (size_t)rings[MICS_SCOPE_WHOLE].group.size;
    timed_run run = {.op = op, .algorithm = algorithm, .stage_count = 1};
    char size[32];
    snprintf(run.what, sizeof run.what, "timing of a %s over the %s (%s, %s)",
             gather ? "gather" : "reduction", mics_group_text(axis, MICS_SCOPE_WHOLE),
             mics_algorithm_text(algorithm), mics_size_text((double)bytes, size, sizeof size));
    run.stages[0] = stage_of(self, axis, MICS_SCOPE_WHOLE, block, 0);
    if (algorithm != MICS_ALGORITHM_TWO_STAGE)
        return run;
    const size_t node_block = block * (size_t)rings[MICS_SCOPE_INTER].group.size;
    run.stage_count = STAGES;
    run.stages[gather ? 0 : 1] = stage_of(self, axis, MICS_SCOPE_INTER, block,
                                          node_block * (size_t)rings[MICS_SCOPE_INTRA].own_block);
    run.stages[gather ? 1 : 0] = stage_of(self, axis, MICS_SCOPE_INTRA, node_block, 0);
    return run;
}

// Rounded so that every degree cuts it into equal aligned blocks, and never to nothing.
static size_t whole_bytes(const meter *self, size_t bytes)
{
    return (size_t)mics_size_round_up((int64_t)bytes, (int64_t)MICS_ALIGNMENT * self->mesh->ranks);
}

// ---- decisions of rank 0 ----

static mics_status decide(const meter *self, decision *decided)
{
    return mics_comm_broadcast(self->spec->comm, 0, decided, sizeof *decided);
}

static int32_t candidate_count(const meter *self, mics_measure_op op)
{
    int32_t count = 0;
    for (int a = 0; a < MICS_ALGORITHMS; a++)
        count += mics_measure_candidate(self->spec->schedule, op, (mics_algorithm)a,
                                        self->spec->library);
    return count;
}

static bool fits(const meter *self, size_t bytes)
{
    return BUFFERS * mics_memory_block_bytes(whole_bytes(self, bytes)) <= self->spec->limit_bytes;
}

static double left_us(const meter *self)
{
    return self->spec->budget_s * 1e6 - (mics_clock_us() - self->begin_us);
}

// What a run of each candidate is expected to take.
static double pass_us(const meter *self, mics_measure_op op, size_t bytes, int32_t units)
{
    const double unit_us = fmax(self->least_us[op], self->us_per_byte[op] * (double)bytes);
    return unit_us * units * candidate_count(self, op);
}

// How large the units of a row are timed: as they are where time and memory allow it; else halves
// of that.
static size_t affordable_bytes(const meter *self, mics_measure_op op, size_t bytes)
{
    const double most_us = PASS_SHARE * left_us(self);
    while (bytes > TIMED_BYTES_MIN && pass_us(self, op, bytes, UNITS_DEAR) > most_us)
        bytes /= 2;
    while (bytes > 1 && !fits(self, bytes))
        bytes /= 2;
    return bytes;
}

// ---- timing ----

// Whatever else the machine does makes a run longer, never shorter.
static double least(const double *values, int32_t count)
{
    double value = INFINITY;
    for (int32_t i = 0; i < count; i++)
        value = fmin(value, values[i]);
    return value;
}

static void close_buffers(meter *self)
{
    for (int i = 0; i < BUFFERS; i++) {
        mics_free(self->spec->memory, self->buffers[i]);
        self->buffers[i] = NULL;
    }
}

// Written to, so that the first run does not wait for the system's pages.
static mics_status open_buffers(meter *self, size_t bytes)
{
    close_buffers(self);
    for (int i = 0; i < BUFFERS; i++) {
        void *block = NULL;
        MICS_TRY(mics_alloc(self->spec->memory, MICS_MEM_GATHER, bytes, &block));
        memset(block, 0, bytes);
        self->buffers[i] = block;
    }
    return MICS_OK;
}

// Each candidate once on a small unit, so that no connection is opened later.
static mics_status warm_up(meter *self, mics_measure_op op, size_t bytes)
{
    bytes = whole_bytes(self, bytes);
    MICS_TRY(agree(self, open_buffers(self, bytes)));
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        double us = 0;
        if (!mics_measure_candidate(self->spec->schedule, op, (mics_algorithm)a,
                                    self->spec->library))
            continue;
        timed_run run = run_of(self, op, (mics_algorithm)a, bytes);
        run.units = 1;
        MICS_TRY(run_once(self, &run, &us));
    }
    return MICS_OK;
}

// One run of the usual algorithm, for an estimate of what more would take.
static mics_status probe(meter *self, mics_measure_op op, size_t bytes)
{
    const mics_algorithm usual =
        mics_measure_candidate(self->spec->schedule, op, MICS_ALGORITHM_TWO_STAGE,
                               self->spec->library)
            ? MICS_ALGORITHM_TWO_STAGE
            : MICS_ALGORITHM_RING;
    const size_t whole = whole_bytes(self, bytes);
    MICS_TRY(agree(self, open_buffers(self, whole)));
    timed_run run = run_of(self, op, usual, whole);
    double us = 0;
    run.units = UNITS_DEAR;
    MICS_TRY(run_once(self, &run, &us));
    if (self->probed_bytes[op] == 0)
        self->least_us[op] = us;
    self->us_per_byte[op] = us / (double)whole;
    self->probed_bytes[op] = bytes;
    return MICS_OK;
}

// One run of each that `again` names.
static mics_status run_round(meter *self, contest *of, int32_t again)
{
    const double begin_us = mics_clock_us();
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        if ((again >> a & 1) != 0)
            MICS_TRY(run_once(self, &of->runs[a], &of->samples[a][of->counts[a]++]));
    }
    of->round_us = mics_clock_us() - begin_us;
    return MICS_OK;
}

// Those of `again` that are worth another run: none when one is clearly the best, or time is up.
static int32_t worth_again(const contest *of, int32_t again, int32_t round)
{
    double best_us = INFINITY;
    int32_t near = 0, near_count = 0;
    if (round == REPEATS_MAX || mics_clock_us() - of->begin_us + of->round_us > of->allowed_us)
        return 0;
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        best_us = fmin(best_us, least(of->samples[a], of->counts[a]));
    }
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        if ((again >> a & 1) != 0 &&
            least(of->samples[a], of->counts[a]) <= CLEARLY_SLOWER * best_us) {
            near |= 1 << a;
            near_count++;
        }
    }
    const int32_t sure =
        of->runs[MICS_ALGORITHM_RING].units == UNITS ? REPEATS_SURE : REPEATS_SURE_DEAR;
    if (round < sure)
        return again;
    return near_count > 1 ? near : 0;
}

// This rank's times, in whole nanoseconds and at least one: 0 is "not timed".
static void take_times(meter *self, const contest *of, mics_measure_op op, size_t whole,
                       mics_timing *timing)
{
    self->us_per_byte[op] = 0;
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        if (of->counts[a] == 0)
            continue;
        const double ns = floor(least(of->samples[a], of->counts[a]) * 1e3);
        timing->us[a] = (ns > 1 ? ns : 1) / 1e3;
        self->us_per_byte[op] = fmax(self->us_per_byte[op], timing->us[a] / (double)whole);
    }
}

static mics_status time_candidates(meter *self, mics_measure_op op, const decision *size,
                                   mics_timing *timing)
{
    const size_t whole = whole_bytes(self, (size_t)size->bytes);
    contest of = {.begin_us = mics_clock_us(), .allowed_us = REPEATS_SHARE * left_us(self)};
    decision decided = {0};
    MICS_TRY(agree(self, open_buffers(self, whole)));
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        of.runs[a] = run_of(self, op, (mics_algorithm)a, whole);
        of.runs[a].units = size->units;
        decided.again |=
            mics_measure_candidate(self->spec->schedule, op, (mics_algorithm)a, self->spec->library)
            << a;
    }
    for (int32_t round = 1; decided.again != 0; round++) {
        MICS_TRY(run_round(self, &of, decided.again));
        decided.again = worth_again(&of, decided.again, round);
        MICS_TRY(decide(self, &decided));
    }
    timing->bytes = (size_t)size->bytes;
    take_times(self, &of, op, whole, timing);
    return MICS_OK;
}

// Rank 0 chooses the size by its estimate. Small messages make it too high, so where it forbids the
// units' own size it is made again on part of what it allows.
static mics_status decide_size(meter *self, mics_measure_op op, size_t unit_bytes, bool needed,
                               decision *decided)
{
    size_t before = 0;
    for (;;) {
        const size_t bytes = affordable_bytes(self, op, unit_bytes);
        const double left = left_us(self);
        const bool goes = needed || pass_us(self, op, bytes, UNITS_DEAR) <= left;
        const bool full = pass_us(self, op, bytes, UNITS) <= FULL_SHARE * left;
        *decided =
            (decision){.bytes = goes ? (int64_t)bytes : 0, .units = full ? UNITS : UNITS_DEAR};
        MICS_TRY(decide(self, decided));
        const size_t allowed = (size_t)decided->bytes, next = allowed / PROBE_PART;
        if (allowed <= before || allowed == unit_bytes || next <= self->probed_bytes[op])
            return MICS_OK;
        before = allowed;
        MICS_TRY(probe(self, op, next));
    }
}

static mics_status time_row(meter *self, measure_place at, mics_timings *timings)
{
    mics_timing *timing = &timings->rows[at.row].of[at.op];
    const mics_timing *nearest = measure_nearest(timings, at.op, timing->unit_bytes);
    const bool chosen = at.op == MICS_MEASURE_GATHER || self->spec->reductions_too;
    const size_t unit_bytes = timing->unit_bytes;
    const size_t little = unit_bytes < TIMED_BYTES_MIN ? unit_bytes : TIMED_BYTES_MIN;
    decision size;
    if (!fits(self, little))
        return MICS_OK;
    if (self->probed_bytes[at.op] == 0) {
        MICS_TRY(warm_up(self, at.op, little));
        MICS_TRY(probe(self, at.op, little));
    }
    MICS_TRY(decide_size(self, at.op, unit_bytes, chosen && nearest == NULL, &size));
    if (size.bytes == 0 ||
        (nearest != NULL && nearest->bytes <= unit_bytes && nearest->bytes >= (size_t)size.bytes))
        return MICS_OK;
    return time_candidates(self, at.op, &size, timing);
}

static mics_status time_rows(meter *self, mics_timings *timings)
{
    measure_place places[MEASURE_PLACES];
    const int32_t count = measure_order(timings, self->spec->reductions_too, places);
    for (int32_t i = 0; i < count; i++)
        MICS_TRY(time_row(self, places[i], timings));
    measure_follow(timings);
    return MICS_OK;
}

// ---- all ranks alike ----

// Each time becomes that of the slowest rank.
static mics_status agree_times(meter *self, mics_timings *timings)
{
    mics_comm *comm = self->spec->comm;
    void *block = NULL;
    mics_status status = mics_alloc(self->spec->memory, MICS_MEM_HOST,
                                    (size_t)comm->ranks * sizeof *timings, &block);
    mics_timings *all = block;
    const mics_ring ring = {
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank},
        .what = "times of all ranks"};
    MICS_TRY_OUT(agree(self, status));
    all[comm->rank] = *timings;
    MICS_TRY_OUT(mics_comm_all_gather(comm, &ring, all, sizeof *timings));
    for (int32_t rank = 0; rank < comm->ranks; rank++) {
        for (int32_t i = 0; i < timings->row_count * MICS_MEASURE_OPS * MICS_ALGORITHMS; i++) {
            const int32_t row = i / (MICS_MEASURE_OPS * MICS_ALGORITHMS);
            const int32_t op = i / MICS_ALGORITHMS % MICS_MEASURE_OPS, a = i % MICS_ALGORITHMS;
            const double us = all[rank].rows[row].of[op].us[a];
            double *most_us = &timings->rows[row].of[op].us[a];
            *most_us = us > *most_us ? us : *most_us;
        }
    }
out:
    mics_free(self->spec->memory, block);
    return status;
}

// ---- opening and closing ----

static mics_status open_meter(meter *self)
{
    MICS_TRY(group_rings_open(self->spec->memory, self->mesh, self->spec->comm->rank, self->rings));
    if (pthread_mutex_init(&self->mutex, NULL) != 0)
        return mics_fail(MICS_ERR_MEMORY, "no mutex for timing collectives");
    if (pthread_cond_init(&self->changed, NULL) != 0) {
        pthread_mutex_destroy(&self->mutex);
        return mics_fail(MICS_ERR_MEMORY, "no condition for timing collectives");
    }
    self->locks_open = true;
    if (pthread_create(&self->thread, NULL, second_stages, self) != 0)
        return mics_fail(MICS_ERR_MEMORY, "the system starts no more threads (timing collectives)");
    self->started = true;
    return MICS_OK;
}

static void close_meter(meter *self)
{
    if (self->locks_open) {
        pthread_mutex_lock(&self->mutex);
        self->closing = true;
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->mutex);
        if (self->started)
            pthread_join(self->thread, NULL);
        pthread_cond_destroy(&self->changed);
        pthread_mutex_destroy(&self->mutex);
    }
    close_buffers(self);
    for (int i = 0; i < MICS_AXES * MICS_SCOPES; i++)
        mics_free(self->spec->memory, self->rings[i / MICS_SCOPES][i % MICS_SCOPES].block_of);
}

// Of a failure that was in no agreement others may not know, and wait for this rank.
static mics_status end_meter(meter *self, mics_status status)
{
    if (status != MICS_OK && status != MICS_ERR_PEER && !self->told)
        mics_comm_abort(self->spec->comm, NULL);
    close_meter(self);
    return status;
}

mics_status mics_measure_run(const mics_measure_spec *spec, mics_timings *timings)
{
    meter self = {.spec = spec, .mesh = &spec->schedule->spec.mesh, .begin_us = mics_clock_us()};
    mics_timings measured = *timings;
    if (timings->row_count == 0)
        return MICS_OK;
    mics_status status = agree(&self, open_meter(&self));
    if (status == MICS_OK)
        status = time_rows(&self, &measured);
    if (status == MICS_OK)
        status = agree_times(&self, &measured);
    if (status == MICS_OK)
        *timings = measured;
    return end_meter(&self, status);
}

// ---- checking times ----

// The timing by which links are checked; false: there is none.
static bool find_checked(const meter *self, const mics_timings *timings, measure_place *at_out)
{
    measure_place places[MEASURE_PLACES];
    const int32_t count = measure_order(timings, self->spec->reductions_too, places);
    for (int32_t i = 0; i < count; i++) {
        const mics_timing *timing = &timings->rows[places[i].row].of[places[i].op];
        const mics_group_axis axis =
            places[i].op == MICS_MEASURE_GATHER ? MICS_AXIS_PARTITION : MICS_AXIS_GRADIENT;
        if (timing->us[mics_measure_fastest(timing)] < CHECKED_US_MIN ||
            !mics_mesh_spans_nodes(self->mesh, axis, MICS_SCOPE_WHOLE) ||
            !fits(self, timing->bytes))
            continue;
        *at_out = places[i];
        return true;
    }
    return false;
}

static mics_status check_links(meter *self, measure_place at, const mics_timing *timing,
                               bool *same_out)
{
    const mics_algorithm fastest = mics_measure_fastest(timing);
    const size_t whole = whole_bytes(self, timing->bytes);
    decision decided = {0};
    double us = 0;
    MICS_TRY(
        warm_up(self, at.op, timing->bytes < TIMED_BYTES_MIN ? timing->bytes : TIMED_BYTES_MIN));
    MICS_TRY(agree(self, open_buffers(self, whole)));
    timed_run run = run_of(self, at.op, fastest, whole);
    run.units = UNITS_DEAR;
    for (int i = 0; decided.same == 0 && i < CHECKS; i++) {
        MICS_TRY(run_once(self, &run, &us));
        decided.same =
            us < OTHER_LINKS * timing->us[fastest] && us * OTHER_LINKS > timing->us[fastest];
        MICS_TRY(decide(self, &decided));
    }
    *same_out = decided.same != 0;
    return MICS_OK;
}

mics_status mics_measure_check(const mics_measure_spec *spec, const mics_timings *timings,
                               bool *same_out)
{
    meter self = {.spec = spec, .mesh = &spec->schedule->spec.mesh, .begin_us = mics_clock_us()};
    measure_place at;
    bool same = true;
    if (find_checked(&self, timings, &at)) {
        mics_status status = agree(&self, open_meter(&self));
        if (status == MICS_OK)
            status = check_links(&self, at, &timings->rows[at.row].of[at.op], &same);
        MICS_TRY(end_meter(&self, status));
    }
    *same_out = same;
    return MICS_OK;
}

mics_status mics_measure_library(mics_memory *memory, mics_comm *comm, const mics_mesh *mesh,
                                 bool *there_out)
{
    group_ring group = {0};
    mics_status status =
        mics_comm_agree(comm, group_ring_open(memory, mesh, MICS_AXIS_PARTITION, MICS_SCOPE_WHOLE,
                                              comm->rank, &group));
    if (status == MICS_OK) {
        const mics_ring ring = {.group = group.group,
                                .block_of = group.block_of,
                                .what = "opening the partition group's library gathers"};
        status = mics_comm_library_open(comm, &ring);
        if (status == MICS_OK || status == MICS_ERR_UNSUPPORTED) {
            *there_out = status == MICS_OK;
            status = MICS_OK;
        }
    }
    mics_free(memory, group.block_of);
    return status;
}
