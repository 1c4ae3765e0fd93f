// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A step's update that is due: whoever reads the state in between has that of the step, training
// goes on as if nobody had, and it is dropped with the state that it belongs to.
#include "fixture.h"
#include "mics/core/ledger.h"
#include "mics/core/transport.h"

enum { STEPS = 4, RANKS = 4, MICRO_STEPS = 2 };

// What is done between steps, while an update may be due.
typedef enum between {
    NOTHING,
    COMPLETES, // as before a save
    EVALUATES,
    COMPARES,
    BETWEENS
} between;

typedef struct due_run {
    fixture_run run;
    between between;
    bool starts_again; // after two steps, from the initial values
    mics_bytes sent[RANKS];
    float *params; // of the whole model
    int64_t elems;
} due_run;

static mics_bytes sent_by(const mics_comm *comm)
{
    mics_traffic traffic;
    mics_comm_count_get(comm, &traffic);
    return (mics_bytes){traffic.intra_bytes, traffic.inter_bytes};
}

// An evaluation sees the update: after a completion it is the same.
static mics_status evaluate(mics_engine *engine, const mics_batch_source *read)
{
    mics_step_result first, again;
    MICS_TRY(mics_engine_eval(engine, read, &first));
    MICS_TRY(mics_engine_complete(engine));
    MICS_TRY(mics_engine_eval(engine, read, &again));
    RANKS_EXPECT(memcmp(&first.loss, &again.loss, sizeof first.loss) == 0);
    return MICS_OK;
}

static mics_status compare(mics_engine *engine)
{
    mics_divergence found;
    MICS_TRY(mics_engine_compare(engine, &found));
    RANKS_EXPECT(!found.found);
    return MICS_OK;
}

static mics_status do_between(const due_run *due, mics_engine *engine,
                              const mics_batch_source *read)
{
    switch (due->between) {
    case COMPLETES:
        return mics_engine_complete(engine);
    case EVALUATES:
        return evaluate(engine, read);
    case COMPARES:
        return compare(engine);
    default:
        return MICS_OK;
    }
}

static mics_status train_due(due_run *due, mics_engine *engine, int32_t rank, int64_t last)
{
    fixture_source source = {.run = &due->run, .rank = rank};
    const mics_batch_source read = {.read = fixture_read, .ctx = &source};
    const bool defers = mics_schedule_defers(due->run.schedule);
    for (int64_t step = 1; step <= last; step++) {
        mics_step_result result;
        source.step = step;
        MICS_TRY(mics_engine_step(engine, step, 3e-3f, &read, &result));
        RANKS_EXPECT(result.verdict == MICS_VERDICT_UPDATED);
        RANKS_EXPECT(result.completes == (defers && step > 1 && due->between == NOTHING));
        if (rank == 0)
            due->run.losses[step - 1] = result.loss;
        MICS_TRY(do_between(due, engine, &read));
    }
    return MICS_OK;
}

// Parameters and states as they were drawn, while an update is due.
static mics_status start_again(const due_run *due, mics_engine *engine)
{
    MICS_TRY(mics_engine_init_random(engine, 1));
    for (int32_t u = 0; u < due->run.model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        const size_t bytes = (size_t)(held.range.end - held.range.begin) * sizeof(float);
        memset(held.states[0], 0, bytes);
        memset(held.states[1], 0, bytes);
    }
    return mics_engine_complete(engine);
}

static mics_status train_rank(due_run *due, const ranks_self *self, mics_engine *engine)
{
    const int32_t rank = self->comm->rank;
    MICS_TRY(mics_engine_init_random(engine, 1));
    if (due->starts_again) {
        MICS_TRY(train_due(due, engine, rank, 2));
        MICS_TRY(start_again(due, engine));
    }
    const mics_bytes before = sent_by(self->comm);
    MICS_TRY(train_due(due, engine, rank, STEPS));
    MICS_TRY(mics_engine_complete(engine));
    const mics_bytes after = sent_by(self->comm);
    due->sent[rank] = (mics_bytes){after.intra - before.intra, after.inter - before.inter};
    fixture_collect(&due->run, engine, rank);
    return mics_engine_agree(engine, MICS_OK);
}

static mics_status due_rank(ranks_self *self)
{
    due_run *due = self->arg;
    mics_engine *engine = NULL;
    MICS_TRY(fixture_count(self, &due->run));
    MICS_TRY(fixture_open_engine(self, &due->run, &engine));
    const mics_status status = train_rank(due, self, engine);
    mics_engine_close(engine);
    return status;
}

// With the completion at its end a run has sent the bytes of whole steps. (A parameter sync would be
// one too many: the first step has it, too.)
static void check_bytes(const due_run *due)
{
    for (int32_t rank = 0; rank < RANKS; rank++) {
        const mics_bytes step = mics_schedule_rank_bytes(due->run.schedule, MICS_PHASE_TRAIN, rank);
        assert_int_equal(due->sent[rank].intra, STEPS * step.intra);
        assert_int_equal(due->sent[rank].inter, STEPS * step.inter);
    }
}

static int64_t model_elems(const mics_model *model)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++)
        elems += model->units[u].elems;
    return elems;
}

typedef struct due_case {
    int32_t nodes;
    mics_sharding sharding;
    bool early_gathers;
} due_case;

// The caller frees due->params.
static void go(due_run *due, const due_case *c)
{
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    due->run = (fixture_run){.want = {.ranks = RANKS,
                                      .nodes = c->nodes,
                                      .sharding = c->sharding,
                                      .early_gathers = c->early_gathers,
                                      .sequences = RANKS * MICRO_STEPS,
                                      .micro_steps = MICRO_STEPS,
                                      .prefetch = 1,
                                      .clip = 0.5f}};
    fixture_open(memory, &due->run);
    due->elems = model_elems(due->run.model);
    due->params = calloc((size_t)due->elems, sizeof(float));
    assert_non_null(due->params);
    due->run.params = due->params;
    ranks_run_ok(RANKS, due_rank, due);
    if (due->between == NOTHING && c->sharding.optimizer == c->sharding.params)
        check_bytes(due);
    fixture_close(&due->run);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void check_same(const due_run *a, const due_run *b)
{
    assert_memory_equal(a->run.losses, b->run.losses, STEPS * sizeof(double));
    assert_memory_equal(a->params, b->params, (size_t)a->elems * sizeof(float));
}

static const due_case cases[] = {
    {2, {1, 1, 1}, false}, {2, {1, 1, 2}, true},  {2, {1, 2, 2}, false}, {2, {2, 2, 2}, true},
    {2, {2, 2, 4}, false}, {2, {4, 4, 4}, false}, {4, {1, 1, 2}, true}};
enum { CASES = sizeof cases / sizeof cases[0] };

static void test_the_state_may_be_read(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        due_run plain = {0};
        go(&plain, &cases[i]);
        for (int b = COMPLETES; b < BETWEENS; b++) {
            due_run reads = {.between = (between)b};
            go(&reads, &cases[i]);
            check_same(&plain, &reads);
            free(reads.params);
        }
        free(plain.params);
    }
}

static void test_a_state_that_is_written_stands(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        due_run plain = {0}, again = {.starts_again = true};
        go(&plain, &cases[i]);
        go(&again, &cases[i]);
        check_same(&plain, &again);
        free(plain.params);
        free(again.params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_state_may_be_read),
        cmocka_unit_test(test_a_state_that_is_written_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
