// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Islands of a small GPT-2. The reference trains each as one rank, engine by engine, and meets by plain
// loops: whatever the mesh inside an island, losses, masters and states are its.
#pragma once

#include "fixture.h"
#include "mics/core/ledger.h"
#include "mics/core/transport.h"
#include "schedule/rules.h"

enum { MAX_ISLANDS = 8, MAX_STEPS = 24 };

typedef struct islands_run {
    fixture_run run;
    int64_t steps;
    int64_t restart; // before this step the state goes into new engines, where it
    bool restarts;
    int64_t skip; // step that the last island leaves out; 0: none
    bool numeric; // as its loss is not finite; else it is a spike
    int64_t held; // step that the last rank holds; 0: none
    // Out: by island; of whole models, units one after the other.
    double losses[MAX_ISLANDS][MAX_STEPS], world_losses[MAX_STEPS];
    float *masters[MAX_ISLANDS], *states[MAX_ISLANDS], *agreed[MAX_ISLANDS];
} islands_run;

static int32_t islands_of(const islands_run *of)
{
    return of->run.want.ranks / of->run.want.island_ranks;
}

static int64_t model_elems(const mics_model *model)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++)
        elems += model->units[u].elems;
    return elems;
}

static inline float *new_floats(int64_t elems)
{
    float *values = calloc((size_t)elems + 1, sizeof *values);
    assert_non_null(values);
    return values;
}

static inline void open_case(mics_memory *memory, islands_run *of)
{
    fixture_open(memory, &of->run);
    const int64_t elems = model_elems(of->run.model);
    for (int32_t island = 0; island < islands_of(of); island++) {
        of->masters[island] = new_floats(elems);
        of->states[island] = new_floats(elems * MICS_OPTIMIZER_STATES);
        of->agreed[island] = new_floats(elems);
    }
}

static inline void close_case(islands_run *of)
{
    for (int32_t island = 0; island < islands_of(of); island++) {
        free(of->masters[island]);
        free(of->states[island]);
        free(of->agreed[island]);
    }
    fixture_close(&of->run);
}

// A meeting's step of a unit.
static inline const mics_step *meeting_of(const mics_schedule *s, int32_t unit, int32_t state)
{
    const mics_step_list *list = &s->lists[MICS_PHASE_TRAIN];
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        if (step->kind == MICS_STEP_MEET_CHANGE && step->unit == unit && step->state == state)
            return step;
    }
    return NULL;
}

static inline bool is_due(const mics_schedule *s, int32_t unit, int32_t state, int64_t number)
{
    const mics_step *step = meeting_of(s, unit, state);
    return step != NULL && mics_step_is_due(step, number);
}

// ---- the reference ----

typedef struct reference {
    const islands_run *of;
    fixture_run one; // rank, of an island's batch
    int64_t step;
    int32_t islands;
    mics_memory *memory;
    mics_thread_world *worlds[MAX_ISLANDS];
    mics_comm *comms[MAX_ISLANDS];
    mics_engine *engines[MAX_ISLANDS];
    double *anchor, *momentum; // of the whole model
    double *states;            // means, state by state
    int64_t counted[16][MAX_ISLANDS];
    bool adopts[16][1 + MICS_OPTIMIZER_STATES];
} reference;

typedef struct reference_source {
    const reference *of;
    int32_t island;
} reference_source;

// The samples of the island's ranks, one rank's after the other's.
static int64_t sample_of(const reference_source *source, int32_t micro_step, int64_t b)
{
    const fixture_run *run = &source->of->of->run;
    const int64_t own = run->schedule->spec.batch.sequences;
    const int64_t rank = source->island * run->want.island_ranks + b / own;
    return (micro_step * run->want.ranks + rank) * own + b % own;
}

static inline mics_status read_island(void *ctx, int32_t micro_step, int32_t *inputs_out,
                                      int32_t *targets_out)
{
    const reference_source *source = ctx;
    const fixture_run *run = &source->of->one;
    const int64_t T = FIXTURE_LENGTH, step = source->of->step;
    for (int64_t b = 0; b < run->schedule->spec.batch.sequences; b++) {
        const int64_t sample = sample_of(source, micro_step, b);
        for (int64_t t = 0; t < T; t++) {
            const bool counts = !run->want.masked || fixture_counts(step, sample, t);
            inputs_out[b * T + t] = fixture_token(step, sample, t, run->model->vocab);
            targets_out[b * T + t] =
                counts ? fixture_token(step, sample, t + 1, run->model->vocab) : -1;
        }
    }
    return MICS_OK;
}

// As the fixture's.
static inline mics_status read_island_segments(void *ctx, int32_t micro_step, const int32_t *inputs,
                                               int32_t *segments_out)
{
    const reference_source *source = ctx;
    (void)inputs;
    for (int64_t b = 0; b < source->of->one.schedule->spec.batch.sequences; b++) {
        const int64_t sample = sample_of(source, micro_step, b);
        const int64_t length = 1 + sample % 7, ahead = sample % 5;
        for (int64_t t = 0; t < FIXTURE_LENGTH; t++) {
            const int64_t first = (t + ahead) / length * length - ahead;
            segments_out[b * FIXTURE_LENGTH + t] = (int32_t)(first > 0 ? first : 0);
        }
    }
    return MICS_OK;
}

// The anchors become masters of an island, and the means its states.
static inline void adopt(const reference *self, int32_t island)
{
    int64_t at = 0;
    const int64_t all = model_elems(self->one.model);
    for (int32_t u = 0; u < self->one.model->unit_count; u++) {
        const mics_engine_optimizer_shard held =
            mics_engine_optimizer_shard_get(self->engines[island], u);
        const int64_t elems = self->one.model->units[u].elems;
        for (int64_t i = 0; i < elems && self->adopts[u][0]; i++)
            held.params[i] = (float)self->anchor[at + i];
        for (int s = 0; s < MICS_OPTIMIZER_STATES; s++) {
            for (int64_t i = 0; i < elems && self->adopts[u][1 + s]; i++)
                held.states[s][i] = (float)self->states[s * all + at + i];
        }
        at += elems;
    }
}

static inline void adopt_of(void *ctx)
{
    const reference_source *source = ctx;
    if (source->of->of->run.want.outer.overlap_steps > 0)
        adopt(source->of, source->island);
}

static inline void open_reference(const islands_run *of, reference *self, reference_source *sources)
{
    const fixture_case *want = &of->run.want;
    *self = (reference){.of = of, .islands = islands_of(of)};
    self->one.want = (fixture_case){.ranks = 1,
                                    .nodes = 1,
                                    .sharding = {1, 1, 1},
                                    .sequences = want->sequences / islands_of(of),
                                    .micro_steps = want->micro_steps,
                                    .prefetch = 1,
                                    .clip = want->clip,
                                    .optimizer = want->optimizer,
                                    .masked = want->masked,
                                    .untied = want->untied,
                                    .trainable = want->trainable};
    ASSERT_OK(mics_memory_open(&self->memory));
    fixture_open(self->memory, &self->one);
    for (int32_t i = 0; i < self->islands; i++) {
        sources[i] = (reference_source){.of = self, .island = i};
        ASSERT_OK(mics_thread_world_open(self->memory, 1, 300, &self->worlds[i]));
        ASSERT_OK(mics_comm_thread_open(self->memory, self->worlds[i], 0, &self->comms[i]));
        ASSERT_OK(mics_comm_count_open_take(self->memory, self->comms[i], 1, &self->comms[i]));
        const mics_engine_spec spec = {.memory = self->memory,
                                       .schedule = self->one.schedule,
                                       .comm = self->comms[i],
                                       .optimizer = fixture_optimizer(want),
                                       .clip = want->clip,
                                       .seed = 1,
                                       .before_update = adopt_of,
                                       .before_update_ctx = &sources[i]};
        ASSERT_OK(mics_engine_open(&spec, &self->engines[i]));
        ASSERT_OK(mics_engine_init_random(self->engines[i], 1));
    }
    const int64_t elems = model_elems(self->one.model);
    self->anchor = calloc((size_t)elems, sizeof *self->anchor);
    self->momentum = calloc((size_t)elems, sizeof *self->momentum);
    self->states = calloc((size_t)elems * MICS_OPTIMIZER_STATES, sizeof *self->states);
    assert_true(self->anchor != NULL && self->momentum != NULL && self->states != NULL);
    int64_t at = 0;
    for (int32_t u = 0; u < self->one.model->unit_count; u++) {
        const float *params = mics_engine_optimizer_shard_get(self->engines[0], u).params;
        for (int64_t i = 0; i < self->one.model->units[u].elems; i++)
            self->anchor[at++] = params[i];
    }
}

static inline void close_reference(reference *self)
{
    for (int32_t i = 0; i < self->islands; i++) {
        mics_engine_close(self->engines[i]);
        mics_comm_close(self->comms[i]);
        mics_thread_world_close(self->worlds[i]);
    }
    free(self->anchor);
    free(self->momentum);
    free(self->states);
    fixture_close(&self->one);
    assert_int_equal(mics_memory_close(self->memory), 0);
}

static inline void take_outer_step(reference *self, int32_t unit, int64_t at)
{
    const fixture_case *want = &self->of->run.want;
    const float *masters[MAX_ISLANDS];
    double all = 0;
    for (int32_t i = 0; i < self->islands; i++) {
        masters[i] = mics_engine_optimizer_shard_get(self->engines[i], unit).params;
        all += (double)self->counted[unit][i];
    }
    for (int64_t e = 0; e < self->one.model->units[unit].elems && all > 0; e++) {
        double g = 0;
        for (int32_t i = 0; i < self->islands; i++)
            g += (double)self->counted[unit][i] / all * (self->anchor[at + e] - masters[i][e]);
        double *m = &self->momentum[at + e];
        *m = want->outer_momentum * *m + g;
        self->anchor[at + e] -= want->outer_lr * (g + want->outer_momentum * *m);
    }
}

static inline void average_states(reference *self, int32_t unit, int32_t state, int64_t at)
{
    const int64_t elems = model_elems(self->one.model);
    double all = 0;
    for (int32_t i = 0; i < self->islands; i++)
        all += (double)self->counted[unit][i];
    for (int64_t e = 0; e < self->one.model->units[unit].elems; e++) {
        double mean = 0;
        for (int32_t i = 0; i < self->islands; i++)
            mean += (double)self->counted[unit][i] / all *
                    mics_engine_optimizer_shard_get(self->engines[i], unit).states[state][e];
        self->states[state * elems + at + e] = mean;
    }
}

// What is due in training step `number`, or all masters.
static inline void meet(reference *self, int64_t number, bool all)
{
    const mics_schedule *s = self->of->run.schedule;
    int64_t at = 0;
    for (int32_t u = 0; u < self->one.model->unit_count; u++) {
        self->adopts[u][0] = meeting_of(s, u, 0) != NULL && (all || is_due(s, u, 0, number));
        for (int32_t state = 1; state <= MICS_OPTIMIZER_STATES; state++) {
            self->adopts[u][state] = !all && is_due(s, u, state, number);
            if (self->adopts[u][state])
                average_states(self, u, state - 1, at);
        }
        if (self->adopts[u][0]) {
            take_outer_step(self, u, at);
            memset(self->counted[u], 0, sizeof self->counted[u]);
        }
        at += self->one.model->units[u].elems;
    }
}

static inline void adopt_all(const reference *self)
{
    for (int32_t i = 0; i < self->islands; i++)
        adopt(self, i);
}

static inline double difference(double a, double b)
{
    return fabs(a - b) / fmax(1, fabs(b));
}

static inline void check_step(const reference *self, int32_t island, const mics_step_result *result,
                              double tolerance)
{
    const double loss = self->of->losses[island][self->step - 1];
    if (!(difference(loss, result->loss) <= tolerance))
        fail_msg("island %d, step %d: loss %.9g, one rank has %.9g", (int)island, (int)self->step,
                 loss, result->loss);
}

static inline void check_values(const reference *self, double tolerance)
{
    const int64_t elems = model_elems(self->one.model);
    for (int32_t island = 0; island < self->islands; island++) {
        int64_t at = 0;
        for (int32_t u = 0; u < self->one.model->unit_count; u++) {
            const mics_engine_optimizer_shard held =
                mics_engine_optimizer_shard_get(self->engines[island], u);
            const bool trains = mics_schedule_trains(self->one.schedule, u);
            for (int64_t i = 0; i < self->one.model->units[u].elems; i++, at++) {
                const float got = self->of->masters[island][at];
                if (!(difference(got, held.params[i]) <= tolerance))
                    fail_msg("island %d, unit %d, master %d: %.9g, one rank has %.9g", (int)island,
                             (int)u, (int)i, (double)got, (double)held.params[i]);
                for (int s = 0; s < MICS_OPTIMIZER_STATES && trains && held.states[s] != NULL;
                     s++) {
                    const float state = self->of->states[island][s * elems + at];
                    if (!(difference(state, held.states[s][i]) <= tolerance))
                        fail_msg("island %d, unit %d, state %d of %d: %.9g, one rank has %.9g",
                                 (int)island, (int)u, s, (int)i, (double)state,
                                 (double)held.states[s][i]);
                }
            }
        }
    }
}

static inline void check_agreed(const reference *self, double tolerance)
{
    for (int32_t island = 0; island < self->islands; island++) {
        for (int64_t i = 0; i < model_elems(self->one.model); i++) {
            const float got = self->of->agreed[island][i];
            assert_true(got == self->of->agreed[0][i]);
            if (!(difference(got, self->anchor[i]) <= tolerance))
                fail_msg("element %d: islands agreed on %.9g, by hand it is %.9g", (int)i,
                         (double)got, self->anchor[i]);
        }
    }
}

static inline void compare_with_reference(const islands_run *of, double tolerance)
{
    // Where a gradient is nothing but rounding, these make a whole step of it.
    const bool normalises = of->run.want.optimizer.kind != MICS_OPTIMIZER_SGD;
    const double of_values = of->run.want.dtype == MICS_DTYPE_BF16 ? 0.1
                             : normalises                          ? 0.05
                                                                   : tolerance;
    reference self;
    reference_source sources[MAX_ISLANDS];
    const bool beside = of->run.want.outer.overlap_steps > 0;
    open_reference(of, &self, sources);
    for (self.step = 1; self.step <= of->steps; self.step++) {
        double sum = 0;
        int64_t counted = 0;
        meet(&self, self.step, false);
        if (!beside)
            adopt_all(&self);
        for (int32_t i = 0; i < self.islands; i++) {
            if (self.step == of->skip && i == self.islands - 1) {
                if (beside)
                    adopt(&self, i);
                continue;
            }
            const mics_batch_source read = {
                .read = read_island, .read_segments = read_island_segments, .ctx = &sources[i]};
            mics_step_result result;
            ASSERT_OK(mics_engine_step(self.engines[i], self.step, fixture_lr(&of->run.want), &read,
                                       &result));
            check_step(&self, i, &result, tolerance);
            sum += result.loss * (double)result.counted;
            counted += result.counted;
            for (int32_t u = 0; u < self.one.model->unit_count; u++)
                self.counted[u][i] += result.counted;
        }
        assert_true(self.step == of->skip || difference(of->world_losses[self.step - 1],
                                                        sum / (double)counted) <= tolerance);
    }
    meet(&self, of->steps + 1, false);
    if (!beside)
        adopt_all(&self);
    check_values(&self, of_values);
    meet(&self, 0, true);
    check_agreed(&self, of_values);
    close_reference(&self);
}

// ---- islands ----

// What a rank sends in a training step without a completion before it.
static inline mics_bytes bytes_of(const mics_schedule *s, int32_t rank, int64_t number,
                                  bool completes)
{
    mics_bytes bytes = mics_schedule_rank_bytes_in(s, rank, number);
    const mics_step_list *list = &s->lists[MICS_PHASE_TRAIN];
    for (int32_t i = 0; i < list->count; i++) {
        if (completes || !mics_schedule_is_left_over(s, list->steps[i].kind))
            continue;
        const mics_bytes sent = mics_schedule_step_bytes(s, &list->steps[i], rank);
        bytes.intra -= sent.intra;
        bytes.inter -= sent.inter;
    }
    return bytes;
}

static inline void collect(const islands_run *of, const mics_engine *engine, int32_t rank,
                           float *masters, float *states)
{
    const int64_t all = model_elems(of->run.model);
    int64_t at = 0;
    for (int32_t u = 0; u < of->run.model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        const size_t bytes = (size_t)(held.range.end - held.range.begin) * sizeof(float);
        const bool whole = !mics_schedule_trains(of->run.schedule, u);
        if (whole && rank % of->run.want.island_ranks < of->run.want.sharding.params)
            memcpy(masters + at + held.shard.begin, held.shard_params,
                   (size_t)(held.shard.end - held.shard.begin) * sizeof(float));
        if (!whole && rank % of->run.want.island_ranks < of->run.want.sharding.optimizer) {
            memcpy(masters + at + held.range.begin, held.params, bytes);
            for (int s = 0; s < MICS_OPTIMIZER_STATES && states != NULL; s++) {
                if (held.states[s] != NULL)
                    memcpy(states + s * all + at + held.range.begin, held.states[s], bytes);
            }
        }
        at += of->run.model->units[u].elems;
    }
}

// Of each unit the first master of each shard, kept or put back.
static inline void poison(const islands_run *of, const mics_engine *engine, float *kept, bool back)
{
    for (int32_t u = 0; u < of->run.model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        if (held.range.begin == held.range.end)
            continue;
        if (!back)
            kept[u] = held.params[0];
        held.params[0] = back ? kept[u] : NAN;
    }
}

static inline mics_status take_step(const islands_run *of, mics_engine *engine,
                                    const mics_batch_source *read, int64_t step, int32_t island,
                                    mics_step_result *result)
{
    const float lr = fixture_lr(&of->run.want);
    const bool skips = step == of->skip && island == islands_of(of) - 1;
    const mics_step_limits limits = {.max_loss = skips ? 0.0 : INFINITY, .silent = true};
    float kept[16];
    mics_engine_set_limits(engine, &limits);
    if (step == of->skip && of->numeric)
        MICS_TRY(mics_engine_complete(engine));
    if (skips && of->numeric)
        poison(of, engine, kept, false);
    const mics_status status = mics_engine_step(engine, step, lr, read, result);
    if (skips && of->numeric)
        poison(of, engine, kept, true);
    RANKS_EXPECT(status == (skips && of->numeric ? MICS_ERR_NUMERIC : MICS_OK));
    RANKS_EXPECT(result->verdict == (!skips        ? MICS_VERDICT_UPDATED
                                     : of->numeric ? MICS_VERDICT_NOT_FINITE
                                                   : MICS_VERDICT_SPIKE));
    return MICS_OK;
}

static inline mics_status train(islands_run *of, mics_engine *engine, int32_t rank, int64_t first,
                                int64_t last)
{
    const int32_t island = rank / of->run.want.island_ranks;
    fixture_source source = {.run = &of->run, .rank = rank};
    const mics_batch_source read = {
        .read = fixture_read, .read_segments = fixture_read_segments, .ctx = &source};
    for (int64_t step = first; step <= last; step++) {
        mics_step_result result;
        source.step = step;
        MICS_TRY(take_step(of, engine, &read, step, island, &result));
        const mics_bytes bytes = bytes_of(of->run.schedule, rank, step, result.completes);
        if (step > first && of->skip == 0)
            RANKS_EXPECT(result.sent.intra == bytes.intra && result.sent.inter == bytes.inter);
        if (rank % of->run.want.island_ranks == 0)
            of->losses[island][step - 1] = result.loss;
        const mics_world_result *world = mics_engine_world(engine);
        RANKS_EXPECT(world->step == step - 1 || step == first);
        RANKS_EXPECT(step == first || world->updated == islands_of(of) - (step - 1 == of->skip));
        if (rank == 0 && step > first)
            of->world_losses[step - 2] = world->loss;
    }
    return MICS_OK;
}

static inline mics_status check_alike(mics_engine *engine)
{
    mics_divergence found;
    MICS_TRY(mics_engine_compare(engine, &found));
    RANKS_EXPECT(!found.found);
    return MICS_OK;
}

// Units that have just met stay where they are.
static inline mics_status meet_again(const islands_run *of, mics_engine *engine, int32_t rank)
{
    const float *agreed = of->agreed[rank / of->run.want.island_ranks];
    int64_t at = 0;
    MICS_TRY(mics_engine_meet(engine));
    MICS_TRY(mics_engine_download(engine));
    for (int32_t u = 0; u < of->run.model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        for (int64_t i = held.range.begin;
             i < held.range.end &&
             rank % of->run.want.island_ranks < of->run.want.sharding.optimizer;
             i++)
            RANKS_EXPECT(held.params[i - held.range.begin] == agreed[at + i]);
        at += of->run.model->units[u].elems;
    }
    return check_alike(engine);
}

static inline mics_status finish(islands_run *of, mics_engine *engine, int32_t rank)
{
    const int32_t island = rank / of->run.want.island_ranks;
    MICS_TRY(mics_engine_complete(engine));
    MICS_TRY(mics_engine_download(engine));
    const mics_world_result *world = mics_engine_world(engine);
    RANKS_EXPECT(world->step == of->steps && world->updated == islands_of(of));
    if (rank == 0)
        of->world_losses[of->steps - 1] = world->loss;
    collect(of, engine, rank, of->masters[island], of->states[island]);
    MICS_TRY(check_alike(engine));
    MICS_TRY(mics_engine_meet(engine));
    MICS_TRY(mics_engine_download(engine));
    collect(of, engine, rank, of->agreed[island], NULL);
    MICS_TRY(check_alike(engine));
    return meet_again(of, engine, rank);
}

static inline mics_status open_engine(ranks_self *self, islands_run *of, mics_engine **engine_out)
{
    if (of->run.want.open_device != NULL && of->run.devices[self->comm->rank] == NULL)
        MICS_TRY(
            of->run.want.open_device(self, of->run.schedule, &of->run.devices[self->comm->rank]));
    if (!mics_comm_is_counting(self->comm))
        MICS_TRY(fixture_count(self, &of->run));
    MICS_TRY(fixture_open_engine(self, &of->run, engine_out));
    return mics_engine_init_random(*engine_out, 1);
}

static inline mics_status train_all(ranks_self *self)
{
    islands_run *of = self->arg;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(open_engine(self, of, &engine));
    MICS_TRY_OUT(train(of, engine, self->comm->rank, 1, of->steps));
    MICS_TRY_OUT(finish(of, engine, self->comm->rank));
    MICS_TRY_OUT(fixture_check_memory(self, &of->run));
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK));
out:
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    return status;
}

typedef struct mesh_case {
    int32_t ranks, nodes, island_ranks;
    mics_sharding sharding;
    bool stages, masked;
} mesh_case;

static inline islands_run on_mesh(const mesh_case *mesh, mics_outer outer)
{
    return (islands_run){.steps = 9,
                         .run.want = {.ranks = mesh->ranks,
                                      .nodes = mesh->nodes,
                                      .island_ranks = mesh->island_ranks,
                                      .sharding = mesh->sharding,
                                      .hierarchical = mesh->stages,
                                      .sequences = 32,
                                      .micro_steps = 2,
                                      .prefetch = 1,
                                      .clip = 1,
                                      .optimizer = fixture_optimizers[MICS_OPTIMIZER_SGD],
                                      .masked = mesh->masked,
                                      .outer = outer,
                                      .outer_lr = 0.7f,
                                      .outer_momentum = 0.9f}};
}

static inline void run_case(islands_run *of, double tolerance)
{
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    open_case(memory, of);
    ranks_run_ok(of->run.want.ranks, train_all, of);
    compare_with_reference(of, tolerance);
    close_case(of);
    assert_int_equal(mics_memory_close(memory), 0);
}

static const mesh_case meshes[] = {
    {2, 1, 1, {1, 1, 1}, false, false}, {2, 2, 1, {1, 1, 1}, false, true},
    {4, 2, 2, {1, 1, 1}, false, true},  {4, 2, 2, {1, 2, 2}, true, false},
    {4, 1, 2, {2, 2, 2}, false, true},  {8, 4, 4, {2, 2, 2}, true, true},
    {8, 2, 2, {1, 1, 2}, true, false},  {8, 2, 4, {4, 4, 4}, false, true},
    {8, 2, 2, {1, 1, 1}, true, true},   {8, 4, 4, {1, 2, 4}, true, false},
    {8, 2, 4, {1, 1, 2}, false, true},
};
