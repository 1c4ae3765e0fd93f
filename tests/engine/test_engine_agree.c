// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The agreement of an engine's ranks: that others failed and that there is no world any more are told
// apart, and whoever finds that the agreement itself fails ends the world.
#include "comm/fault.h"
#include "fixture.h"

enum { TIMEOUT_S = 20, RANKS = 4 };

typedef struct agreeing {
    fixture_run run;
    int64_t exchange; // of rank 1 that fails; 0: none
    pthread_barrier_t together;
} agreeing;

static mics_status open_rank(agreeing *of, ranks_self *self, mics_engine **engine_out)
{
    const int64_t exchange = self->comm->rank == 1 ? of->exchange : 0;
    MICS_TRY(fault_open_take(self->memory, self->comm, exchange, &self->comm));
    MICS_TRY(fixture_count(self, &of->run));
    return fixture_open_engine(self, &of->run, engine_out);
}

static void go(int64_t exchange, ranks_function function)
{
    mics_status statuses[RANKS];
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    agreeing of = {.exchange = exchange,
                   .run.want = {.ranks = RANKS,
                                .nodes = 2,
                                .sharding = {2, 2, 2},
                                .sequences = RANKS,
                                .micro_steps = 1,
                                .clip = 1}};
    fixture_open(memory, &of.run);
    assert_int_equal(pthread_barrier_init(&of.together, NULL, RANKS), 0);
    ranks_run_timeout(RANKS, TIMEOUT_S, function, &of, statuses);
    for (int32_t rank = 0; rank < RANKS; rank++)
        ASSERT_OK(statuses[rank]);
    pthread_barrier_destroy(&of.together);
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

static const mics_status found[] = {MICS_OK, MICS_ERR_IO, MICS_ERR_TIMEOUT, MICS_ERR_COMM};
enum { FOUND = sizeof found / sizeof *found };

static mics_status answers_rank(ranks_self *self)
{
    agreeing *of = self->arg;
    mics_engine *engine = NULL;
    bool any = false;
    MICS_TRY(open_rank(of, self, &engine));
    for (int i = 0; i < FOUND; i++) {
        const bool mine = self->comm->rank == i && found[i] != MICS_OK;
        const mics_status said = mics_engine_agree(engine, mine ? found[i] : MICS_OK);
        RANKS_EXPECT(said == (mine ? found[i] : i > 0 ? MICS_ERR_PEER : MICS_OK));
    }
    RANKS_EXPECT(mics_engine_any(engine, true, &any) == MICS_OK); // the world goes on
    pthread_barrier_wait(&of->together);
    if (self->comm->rank == 0)
        mics_comm_abort(self->comm, NULL);
    pthread_barrier_wait(&of->together);
    for (int i = 0; i < FOUND; i++) {
        RANKS_EXPECT(mics_engine_agree(engine, found[i]) ==
                     (i > 0 ? found[i] : MICS_ERR_ABORTED)); // its own reason first
        RANKS_EXPECT(mics_engine_agree(engine, MICS_OK) == MICS_ERR_ABORTED);
    }
    RANKS_EXPECT(mics_engine_any(engine, true, &any) == MICS_ERR_ABORTED);
    pthread_barrier_wait(&of->together);
    mics_engine_close(engine);
    return MICS_OK;
}

static void test_answers(void **state)
{
    (void)state;
    go(0, answers_rank);
}

// Rank 1 has failed itself, with what its exchange fails with, too: the others are not left to wait.
static mics_status broken_rank(ranks_self *self)
{
    agreeing *of = self->arg;
    mics_engine *engine = NULL;
    const bool mine = self->comm->rank == 1;
    MICS_TRY(open_rank(of, self, &engine));
    const mics_status said = mics_engine_agree(engine, mine ? MICS_ERR_COMM : MICS_OK);
    RANKS_EXPECT(said == (mine ? MICS_ERR_COMM : MICS_ERR_ABORTED));
    pthread_barrier_wait(&of->together);
    mics_engine_close(engine);
    return MICS_OK;
}

static void test_agreement_that_fails(void **state)
{
    (void)state;
    go(1, broken_rank);
}

// The figure of memory is the largest of all ranks, and comes with the agreement of the step.
static mics_status step_rank(ranks_self *self)
{
    enum { MORE_BYTES = 1 << 20 };
    agreeing *of = self->arg;
    const int32_t rank = self->comm->rank;
    mics_engine *engine = NULL;
    void *more = NULL;
    mics_step_result result;
    mics_memory_stats stats;
    fixture_source source = {.run = &of->run, .rank = rank, .step = 1};
    const mics_batch_source read = {.read = fixture_read, .ctx = &source};
    MICS_TRY(open_rank(of, self, &engine));
    MICS_TRY(mics_engine_step(engine, 1, 1e-3f, &read, &result));
    mics_memory_stats_get(self->memory, &stats);
    RANKS_EXPECT(result.memory_peak_bytes == (int64_t)stats.total_peak); // shards are alike
    if (rank == 2) {
        MICS_TRY(mics_alloc(self->memory, MICS_MEM_DATA, MORE_BYTES, &more));
        mics_free(self->memory, more);
    }
    source.step = 2;
    MICS_TRY(mics_engine_step(engine, 2, 1e-3f, &read, &result));
    RANKS_EXPECT(result.memory_peak_bytes == (int64_t)stats.total_peak + MORE_BYTES);
    MICS_TRY(mics_engine_complete(engine));
    mics_engine_close(engine);
    return MICS_OK;
}

static void test_largest_memory(void **state)
{
    (void)state;
    go(0, step_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_agreement_that_fails),
        cmocka_unit_test(test_largest_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
