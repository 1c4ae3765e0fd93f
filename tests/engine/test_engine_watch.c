// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A collective that is late is explained: which one it is, who has not entered it, and what that rank
// was last seen doing; once, and then the run ends on every rank.
#include "../base/capture.h"
#include "fixture.h"
#include <stdatomic.h>
#include <time.h>

typedef enum watched { IN_STEP, BETWEEN_STEPS, IN_EVALUATION } watched;

static _Atomic watched sleeps;
static atomic_bool given_up;

enum { WATCH_RANKS = 4, SLEEPER = 2, STEPS = 3 };

// How long ranks wait at first: longer than a rank may be silent over MPI, as threads are never called so.
// On a busy machine ranks that compute may be apart for longer: then each is given twice the time.
static const double first_timeout_s = 1.8, last_timeout_s = 60;

// Until the others have waited too long: how soon that is depends on how busy the machine is.
static void be_late(void)
{
    while (!atomic_load(&given_up))
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

// One rank is busy with its data for longer than the others wait.
static mics_status slow_read(void *ctx, int32_t micro_step, int32_t *inputs_out,
                             int32_t *targets_out)
{
    const fixture_source *source = ctx;
    const bool late = atomic_load(&sleeps) == IN_STEP         ? source->step == 2 && micro_step == 1
                      : atomic_load(&sleeps) == IN_EVALUATION ? source->step > STEPS
                                                              : false;
    if (source->rank == SLEEPER && late)
        be_late();
    return fixture_read(ctx, micro_step, inputs_out, targets_out);
}

static mics_status watched_rank(ranks_self *self)
{
    fixture_run *run = self->arg;
    mics_engine *engine = NULL;
    fixture_source source = {.run = run, .rank = self->comm->rank};
    const mics_batch_source read = {.read = slow_read, .ctx = &source};
    mics_step_result result;
    mics_status status = MICS_OK;
    MICS_TRY(fixture_count(self, run));
    MICS_TRY(fixture_open_engine(self, run, &engine));
    mics_engine_init_random(engine, 1);
    for (source.step = 1; source.step <= STEPS && status == MICS_OK; source.step++)
        status = mics_engine_step(engine, source.step, 1e-3f, &read, &result);
    if (status == MICS_OK && atomic_load(&sleeps) == IN_EVALUATION)
        status = mics_engine_eval(engine, &read, &result);
    // As in a save: the others agree while one is still busy.
    if (status == MICS_OK && source.rank == SLEEPER)
        be_late();
    if (status == MICS_OK)
        status = mics_engine_agree(engine, MICS_OK);
    if (status != MICS_OK)
        atomic_store(&given_up, true);
    mics_engine_close(engine);
    return status;
}

// What the line has: the collective that is late, and the culprit, who is also named where its victims
// are in the group that is late and it is not.
static const struct {
    const char *late, *culprit;
} lines[] = {
    [IN_STEP] = {"(step 2, micro-step 2, no. ",
                 "rank 2 (in forward of embed in step 2, micro-step 2)"},
    [BETWEEN_STEPS] = {"question to all ranks", "rank 2 (between steps after step 3)"},
    [IN_EVALUATION] = {"agree of loss and norm over the world (evaluation after step 3, no. ",
                       "rank 2 (in forward of embed in an evaluation after step 3, micro-step 1)"},
};

// Those that have entered are not named: of four ranks no three.
static bool names_few(const char *line)
{
    const char *named = strstr(line, "not entered by ");
    const char *more = named != NULL ? strstr(named, ", rank ") : NULL;
    return named != NULL && (more == NULL || strstr(more + 1, ", rank ") == NULL);
}

// Runs until a rank has waited for timeout_s; what was said of it is in seen.
static void run_watched(mics_sharding sharding, int32_t nodes, watched when, double timeout_s,
                        capture *seen)
{
    mics_memory *memory = NULL;
    mics_status statuses[WATCH_RANKS];
    fixture_run run = {.want = {.ranks = WATCH_RANKS,
                                .nodes = nodes,
                                .sharding = sharding,
                                .sequences = WATCH_RANKS * 2,
                                .micro_steps = 2,
                                .prefetch = 1,
                                .hierarchical = true}};
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    fixture_open(memory, &run);
    atomic_store(&sleeps, when);
    atomic_store(&given_up, false);
    capture_begin(seen);
    ranks_run_timeout(WATCH_RANKS, timeout_s, watched_rank, &run, statuses);
    capture_end();
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
    for (int32_t rank = 0; rank < WATCH_RANKS; rank++)
        assert_int_not_equal(statuses[rank], MICS_OK);
}

static void watch(mics_sharding sharding, int32_t nodes, watched when)
{
    capture seen = {0};
    double timeout_s = first_timeout_s;
    do
        run_watched(sharding, nodes, when, timeout_s, &seen);
    while ((strstr(seen.line, lines[when].late) == NULL || !names_few(seen.line)) &&
           (timeout_s *= 2) < last_timeout_s);
    assert_int_equal(seen.errors, 1);
    // "reduce of h.1 over the gradient group (step 2, micro-step 2, no. 2.24) is late: rank 0 waited ..."
    assert_non_null(strstr(seen.line, " is late: rank "));
    assert_non_null(strstr(seen.line, lines[when].late));
    assert_true(names_few(seen.line));
    assert_null(strstr(seen.line, "no sign of life"));
    assert_null(strstr(seen.line, "stands still"));
    assert_non_null(strstr(seen.line, lines[when].culprit));
}

static void test_the_rank_that_is_late_is_named(void **state)
{
    (void)state;
    watch((mics_sharding){4, 4, 4}, 1, IN_STEP);
    watch((mics_sharding){4, 4, 4}, 2, IN_STEP);
    watch((mics_sharding){1, 4, 4}, 1, IN_STEP);
}

static void test_between_steps(void **state)
{
    (void)state;
    watch((mics_sharding){2, 2, 2}, 2, BETWEEN_STEPS);
}

// With whole parameters an evaluation has no other collective: one rank is late for its rounds, on
// its own node and beyond.
static void test_the_agreement_is_late(void **state)
{
    (void)state;
    for (int32_t nodes = 1; nodes <= WATCH_RANKS; nodes *= 2)
        watch((mics_sharding){1, 1, 1}, nodes, IN_EVALUATION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rank_that_is_late_is_named),
        cmocka_unit_test(test_between_steps),
        cmocka_unit_test(test_the_agreement_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
