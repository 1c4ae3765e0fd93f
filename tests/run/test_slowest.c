// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The rank that the others wait for: known from what each has waited, and told once an episode.
#include "engine/fixture.h"
#include "mics/core/agreement.h"
#include "run/report/slowest.h"
#include <stdatomic.h>
#include <time.h>

enum { RANKS = 4, SLEEPER = 2, MAX_STEPS = 400, STEP_US = 100 * 1000 };

// ---- as arithmetic ----

// Steps in which all ranks wait for `waits_us`, but the slowest one. Returns: how often it was told.
static int32_t take_steps(run_slowest *self, int32_t steps, int32_t slowest, float waits_us,
                          double warn)
{
    mics_agreement said[RANKS] = {{0}};
    int32_t told = 0;
    for (int32_t rank = 0; rank < RANKS; rank++)
        said[rank].waited_us = rank == slowest ? 1000 : waits_us;
    for (int32_t step = 0; step < steps; step++) {
        run_slowest_add(self, said, RANKS, STEP_US);
        told += run_slowest_tells(self, SLEEPER, warn);
    }
    return told;
}

static void test_an_episode_is_told_once(void **state)
{
    (void)state;
    double waits[RANKS] = {0};
    run_slowest self = {.waits = waits, .rank = -1};
    assert_int_equal(take_steps(&self, RUN_SLOWEST_STEPS - 1, SLEEPER, 41000, 0.2), 0);
    assert_int_equal(take_steps(&self, 100, SLEEPER, 41000, 0.2), 1);
    assert_int_equal(self.rank, SLEEPER);
    assert_true(fabs(self.part - 0.4) < 1e-6);
    assert_true(fabs(self.step_ms - 100) < 1e-9);
    // At three quarters of what is told it goes on; at less than half it has ended.
    assert_int_equal(take_steps(&self, 200, SLEEPER, 16000, 0.2), 0);
    assert_int_equal(take_steps(&self, 100, SLEEPER, 41000, 0.2), 0);
    assert_int_equal(take_steps(&self, 200, SLEEPER, 6000, 0.2), 0);
    assert_int_equal(take_steps(&self, 100, SLEEPER, 41000, 0.2), 1);
    // Nor where another rank is the slowest.
    assert_int_equal(take_steps(&self, 200, SLEEPER + 1, 41000, 0.2), 0);
    assert_int_equal(self.rank, SLEEPER + 1);
    assert_int_equal(take_steps(&self, 200, SLEEPER, 41000, 0.2), 1);
}

static void test_what_is_not_told(void **state)
{
    (void)state;
    double waits[RANKS] = {0};
    run_slowest self = {.waits = waits, .rank = -1};
    assert_int_equal(take_steps(&self, 5, -1, 0, 0.2), 0);
    assert_int_equal(self.rank, -1); // nobody has waited
    assert_int_equal(take_steps(&self, 200, SLEEPER, 41000, 0), 0);
    assert_int_equal(take_steps(&self, 200, SLEEPER, 41000, 0.5), 0);
    // A single step that takes a thousand times as long.
    memset(waits, 0, sizeof waits);
    self = (run_slowest){.waits = waits, .rank = -1};
    assert_int_equal(take_steps(&self, 100, SLEEPER, 2000, 0.2), 0);
    assert_int_equal(take_steps(&self, 1, SLEEPER, 1e8f, 0.2), 0);
    assert_int_equal(take_steps(&self, 100, SLEEPER, 2000, 0.2), 0);
    assert_true(self.part < 0.02);
    // A large part of a step that is over at once.
    self = (run_slowest){.waits = waits, .rank = -1, .step_ms = 1, .steps = RUN_SLOWEST_STEPS};
    self.rank = SLEEPER;
    self.part = 0.5;
    assert_false(run_slowest_tells(&self, SLEEPER, 0.2));
    self.step_ms = 100;
    assert_true(run_slowest_tells(&self, SLEEPER, 0.2));
    memset(waits, 0, sizeof waits);
    // One rank waits for nobody.
    self = (run_slowest){.waits = waits, .rank = -1};
    run_slowest_add(&self, &(mics_agreement){.waited_us = 5}, 1, STEP_US);
    assert_int_equal(self.rank, -1);
}

// ---- of ranks that train ----

typedef struct slow_source {
    fixture_source source;
    double step_us; // of the step before
} slow_source;

// Two thirds of a step, however long a step takes here; two micro-steps have one each.
static mics_status slow_read(void *ctx, int32_t micro_step, int32_t *inputs_out,
                             int32_t *targets_out)
{
    slow_source *self = ctx;
    const double us = fmax(1e4, self->step_us / 3);
    if (self->source.rank == SLEEPER)
        nanosleep(&(struct timespec){(time_t)(us / 1e6), (long)(fmod(us, 1e6) * 1e3)}, NULL);
    return fixture_read(&self->source, micro_step, inputs_out, targets_out);
}

// Until all ranks have found the one that sleeps.
static mics_status slowed_rank(ranks_self *self)
{
    fixture_run *run = self->arg;
    mics_engine *engine = NULL;
    slow_source slow = {.source = {.run = run, .rank = self->comm->rank}};
    fixture_source *source = &slow.source;
    const mics_batch_source read = {.read = slow_read, .ctx = &slow};
    double waits[RANKS] = {0};
    run_slowest slowest = {.waits = waits, .rank = -1};
    mics_step_result result;
    bool looks = true;
    mics_status status = MICS_OK;
    MICS_TRY(fixture_count(self, run));
    MICS_TRY(fixture_open_engine(self, run, &engine));
    mics_engine_init_random(engine, 1);
    for (source->step = 1; looks && status == MICS_OK; source->step++) {
        status = mics_engine_step(engine, source->step, 1e-3f, &read, &result);
        if (status != MICS_OK)
            break;
        slow.step_us = result.step_us;
        run_slowest_add(&slowest, mics_engine_agreements(engine), RANKS, result.step_us);
        looks = slowest.steps < RUN_SLOWEST_STEPS || slowest.rank != SLEEPER || slowest.part < 0.3;
        status =
            source->step == MAX_STEPS ? MICS_ERR_TIMEOUT : mics_engine_any(engine, looks, &looks);
    }
    mics_engine_close(engine);
    return status;
}

static void expect_the_sleeper(int32_t nodes, mics_sharding sharding)
{
    mics_memory *memory = NULL;
    mics_status statuses[RANKS];
    fixture_run run = {.want = {.ranks = RANKS,
                                .nodes = nodes,
                                .sharding = sharding,
                                .sequences = RANKS * 2,
                                .micro_steps = 2,
                                .prefetch = 1,
                                .hierarchical = true}};
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    fixture_open(memory, &run);
    ranks_run_timeout(RANKS, RANKS_TIMEOUT_S, slowed_rank, &run, statuses);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
    for (int32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(statuses[rank], MICS_OK);
}

// Whatever it is that the others wait in: gathers, reductions, or the agreement alone.
static void test_the_rank_that_sleeps(void **state)
{
    (void)state;
    expect_the_sleeper(1, (mics_sharding){4, 4, 4});
    expect_the_sleeper(2, (mics_sharding){2, 2, 2});
    expect_the_sleeper(2, (mics_sharding){1, 1, 4});
    expect_the_sleeper(1, (mics_sharding){1, 1, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_episode_is_told_once),
        cmocka_unit_test(test_what_is_not_told),
        cmocka_unit_test(test_the_rank_that_sleeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
