// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Times collectives as the engine runs them: flat ones on the channel of their stream, two stages
// on two threads and both channels. What is timed is what travels, without packing: a gather is
// packed once, a reduction in each of its stages.
//
// A run is a few units through one or two stages, each stage in order. A unit is in one of two
// buffers, so its first stage waits until the last stage of the unit before the last is done with
// that. The time of a unit is that between the ends of the first and of the last, so that filling
// the pipeline does not count.
//
// Invariants (guarded by meter->mutex):
//   1. done[s] grows within a run; unit i is through stage s exactly when i < done[s].
//   2. After `failure` is set no wait blocks, so both threads end the run.
#include "mics/measure.h"
#include "engine/engine_internal.h"
#include "mics/clock.h"
#include "mics/log.h"
#include "mics/size.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UNITS = 4, BUFFERS = 2, STAGES = 2, REPEATS_MAX = 9, TIMED_BYTES_MIN = 64 * 1024 };

// The share of the budget that repetitions of one algorithm at one size may take.
static const double REPEATS_SHARE = 0.02;

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
    group_ring rings[MICS_GROUP_KINDS];
    char *buffers[BUFFERS];
    double begin_us;                      // of everything
    double us_per_byte[MICS_MEASURE_OPS]; // of the slowest algorithm, as far as is known
    size_t timed_bytes[MICS_MEASURE_OPS]; // of the newest row that was timed; 0: none

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
    int64_t bytes;
    int64_t repeats;
} decision;

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
    if (self->spec->schedule->spec.reduce_wire != MICS_WIRE_FP32)
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

static stage stage_of(const meter *self, mics_group_kind kind, size_t block_bytes, size_t at)
{
    return (stage){.ring = &self->rings[kind],
                   .channel = mics_mesh_spans_nodes(self->mesh, kind) ? 1 : 0,
                   .at = at,
                   .block_bytes = block_bytes};
}

// The stages of a unit of `bytes`: as gather() and reduce() of comm_steps.c place them.
static timed_run run_of(const meter *self, mics_measure_op op, mics_algorithm algorithm,
                        size_t bytes)
{
    const bool gather = op == MICS_MEASURE_GATHER;
    const mics_group_kind whole = gather ? MICS_GROUP_PARAMS : MICS_GROUP_GRADS;
    const mics_group_kind across = gather ? MICS_GROUP_PARAMS_ACROSS : MICS_GROUP_GRADS_ACROSS;
    const size_t block = bytes / (size_t)self->rings[whole].group.size;
    timed_run run = {.op = op, .algorithm = algorithm, .stage_count = 1};
    char size[32];
    snprintf(run.what, sizeof run.what, "timing of a %s over the %s (%s, %s)",
             gather ? "gather" : "reduction", mics_group_kind_text(whole),
             mics_algorithm_text(algorithm), mics_size_text((double)bytes, size, sizeof size));
    run.stages[0] = stage_of(self, whole, block, 0);
    if (algorithm != MICS_ALGORITHM_TWO_STAGE)
        return run;
    const size_t node_block = block * (size_t)self->rings[across].group.size;
    run.stage_count = STAGES;
    run.stages[gather ? 0 : 1] =
        stage_of(self, across, block, node_block * (size_t)self->rings[MICS_GROUP_NODE].own_block);
    run.stages[gather ? 1 : 0] = stage_of(self, MICS_GROUP_NODE, node_block, 0);
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

// How large the units of a row are timed: as they are if all candidates together are expected to
// take at most half of the time that is left, and the buffers fit; else halves of that.
static size_t affordable_bytes(const meter *self, mics_measure_op op, size_t bytes)
{
    const double left_us = self->spec->budget_s * 1e6 - (mics_clock_us() - self->begin_us);
    const double us_per_byte = self->us_per_byte[op] * (1 + UNITS) * candidate_count(self, op);
    while (bytes > TIMED_BYTES_MIN && us_per_byte * (double)bytes > left_us / 2)
        bytes /= 2;
    while (bytes > 1 && !fits(self, bytes))
        bytes /= 2;
    return bytes;
}

static int64_t affordable_repeats(const meter *self, double warm_us)
{
    const double share = self->spec->budget_s * 1e6 * REPEATS_SHARE / (UNITS * warm_us + 1);
    return share < 1 ? 1 : share > REPEATS_MAX ? REPEATS_MAX : (int64_t)share;
}

// ---- timing ----

static double median(double *values, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        for (int64_t j = i; j > 0 && values[j] < values[j - 1]; j--) {
            const double value = values[j];
            values[j] = values[j - 1];
            values[j - 1] = value;
        }
    }
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

// This rank's time of one algorithm, in whole nanoseconds and at least one: 0 is "not timed".
static mics_status time_algorithm(meter *self, timed_run *run, double *us_out)
{
    double samples[REPEATS_MAX], warm_us = 0;
    run->units = 1;
    MICS_TRY(run_once(self, run, &warm_us));
    decision decided = {.repeats = affordable_repeats(self, warm_us)};
    MICS_TRY(decide(self, &decided));
    run->units = UNITS;
    for (int64_t i = 0; i < decided.repeats; i++)
        MICS_TRY(run_once(self, run, &samples[i]));
    const double ns = floor(median(samples, decided.repeats) * 1e3);
    *us_out = (ns > 1 ? ns : 1) / 1e3;
    return MICS_OK;
}

static void close_buffers(meter *self)
{
    for (int i = 0; i < BUFFERS; i++) {
        mics_free(self->spec->memory, self->buffers[i]);
        self->buffers[i] = NULL;
    }
}

static mics_status open_buffers(meter *self, size_t bytes)
{
    close_buffers(self);
    for (int i = 0; i < BUFFERS; i++) {
        void *block = NULL;
        MICS_TRY(mics_alloc(self->spec->memory, MICS_MEM_GATHER, bytes, &block));
        self->buffers[i] = block;
    }
    return MICS_OK;
}

static mics_status time_candidates(meter *self, mics_measure_op op, mics_timing *timing)
{
    const size_t bytes = whole_bytes(self, timing->bytes);
    MICS_TRY(agree(self, open_buffers(self, bytes)));
    self->us_per_byte[op] = 0;
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        if (!mics_measure_candidate(self->spec->schedule, op, (mics_algorithm)a,
                                    self->spec->library))
            continue;
        timed_run run = run_of(self, op, (mics_algorithm)a, bytes);
        MICS_TRY(time_algorithm(self, &run, &timing->us[a]));
        if (timing->us[a] > self->us_per_byte[op] * (double)bytes)
            self->us_per_byte[op] = timing->us[a] / (double)bytes;
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
    bytes = whole_bytes(self, bytes);
    MICS_TRY(agree(self, open_buffers(self, bytes)));
    timed_run run = run_of(self, op, usual, bytes);
    double us = 0;
    run.units = UNITS;
    MICS_TRY(run_once(self, &run, &us));
    self->us_per_byte[op] = us / (double)bytes;
    return MICS_OK;
}

// Rank 0 chooses the size by its estimate. Small messages make it too high, so where it forbids the
// row's own size it is taken again from what it allows.
static mics_status decide_bytes(meter *self, mics_measure_op op, size_t most_bytes,
                                size_t *bytes_out)
{
    decision decided = {0};
    size_t bytes = 0;
    for (;;) {
        decided.bytes = (int64_t)affordable_bytes(self, op, most_bytes);
        MICS_TRY(decide(self, &decided));
        if ((size_t)decided.bytes <= bytes)
            break;
        bytes = (size_t)decided.bytes;
        if (bytes == most_bytes || bytes <= self->timed_bytes[op])
            break;
        MICS_TRY(probe(self, op, bytes));
    }
    *bytes_out = bytes;
    return MICS_OK;
}

// `before` is the timing of the newest row that has times of this operation; NULL: none yet. Then a
// first small message opens connections, and a second one gives an estimate.
static mics_status time_row(meter *self, mics_measure_op op, size_t most_bytes, mics_timing *timing,
                            const mics_timing *before)
{
    const size_t least = most_bytes < TIMED_BYTES_MIN ? most_bytes : TIMED_BYTES_MIN;
    if (!fits(self, least))
        return MICS_OK;
    for (int i = 0; before == NULL && i < 2; i++)
        MICS_TRY(probe(self, op, least));
    MICS_TRY(decide_bytes(self, op, most_bytes, &timing->bytes));
    if (before == NULL || timing->bytes > before->bytes) {
        self->timed_bytes[op] = timing->bytes;
        return time_candidates(self, op, timing);
    }
    *timing = *before;
    return MICS_OK;
}

static mics_status time_rows(meter *self, mics_timings *timings)
{
    const mics_timing *before[MICS_MEASURE_OPS] = {NULL};
    for (int32_t i = 0; i < timings->row_count; i++) {
        for (int op = 0; op < MICS_MEASURE_OPS; op++) {
            mics_timing *timing = &timings->rows[i].of[op];
            if (!timing->wanted)
                continue;
            MICS_TRY(time_row(self, (mics_measure_op)op, timings->rows[i].most_bytes, timing,
                              before[op]));
            if (timing->bytes > 0)
                before[op] = timing;
        }
    }
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
    for (int kind = 0; kind < MICS_GROUP_KINDS; kind++)
        MICS_TRY(group_ring_open(self->spec->memory, self->mesh, (mics_group_kind)kind,
                                 self->spec->comm->rank, &self->rings[kind]));
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
    for (int kind = 0; kind < MICS_GROUP_KINDS; kind++)
        mics_free(self->spec->memory, self->rings[kind].block_of);
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
    // Of a failure that was in no agreement others may not know, and wait for this rank.
    if (status != MICS_OK && status != MICS_ERR_PEER && !self.told)
        mics_comm_abort(spec->comm, NULL);
    close_meter(&self);
    return status;
}

mics_status mics_measure_library(mics_memory *memory, mics_comm *comm, const mics_mesh *mesh,
                                 bool *there_out)
{
    group_ring group = {0};
    mics_status status =
        mics_comm_agree(comm, group_ring_open(memory, mesh, MICS_GROUP_PARAMS, comm->rank, &group));
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
