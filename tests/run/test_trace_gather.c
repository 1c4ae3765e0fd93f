// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What rank 0 makes of the ranks' times: the figures of times made by hand, a run that ends early, and
// allocations that fail on any rank.
#include "base/capture.h"
#include "base/json.h"
#include "ranks.h"
#include "run/followers/followers.h"
#include "run/report/overlap.h"
#include "schedule/models.h"
#include <glob.h>
#include <math.h>
#include <unistd.h>

enum { RANKS = 4, MOST_ENTRIES = 256 };

static mics_memory *memory;
static capture seen;
static char folder[] = "/tmp/mics-gather-XXXXXX";
static mics_job job;
static mics_run run;

// What trace.c needs of the engine, which in these tests is its times.
const mics_step_time *mics_engine_times(const mics_engine *engine)
{
    return (const mics_step_time *)engine;
}

// How a rank is to run.
typedef struct script {
    int64_t steps, stop_at; // the step whose result says stop; 0: none
    int32_t failing;        // rank whose allocation number `countdown` fails
    int64_t countdown;
} script;

// Entries one after the other, 10 us apart. Collectives take 2 us and the rank's number, those of step 3
// twice that; computation 1 us and the rank's number.
static double took_us(const mics_step *step, int64_t number, int32_t rank)
{
    if (!mics_step_is_comm(step))
        return 1.0 + rank;
    return (2.0 + rank) * (number == 3 ? 2 : 1);
}

static mics_status trace_rank(ranks_self *self)
{
    const script *s = self->arg;
    const int32_t number = self->comm->rank;
    run_rank rank = {.memory = self->memory, .comm = self->comm};
    mics_step_time times[MOST_ENTRIES];
    const run_context context = {.job = &job, .rank = &rank, .engine = (mics_engine *)times};
    run_trace trace = {0};
    void *kept = NULL;
    const mics_step_list *list = &job.schedule->lists[MICS_PHASE_TRAIN];
    RANKS_EXPECT(list->count <= MOST_ENTRIES);
    if (number == s->failing)
        mics_memory_fail_after(self->memory, s->countdown);
    mics_status status =
        mics_alloc(self->memory, MICS_MEM_HOST, run_trace_follower.bytes(&job), &kept);
    if (status == MICS_OK)
        status = run_trace_follower.open(&trace, &context, kept);
    for (int64_t at = 1; status == MICS_OK && at <= s->steps; at++) {
        run_step step = {.number = at,
                         .stops = at == s->stop_at,
                         .result = {.step_us = 1000.0 * (double)at + number}};
        step.result.exposed_us[MICS_STEP_GATHER] = 100 + number;
        step.result.exposed_us[MICS_STEP_AGREE] = 50;
        for (int32_t i = 0; i < list->count; i++) {
            const double begin = 1e9 + 1e6 * (double)at + 10 * i;
            times[i] = (mics_step_time){begin, begin + took_us(&list->steps[i], at, number)};
        }
        status = run_trace_follower.before_complete(&trace, &step);
    }
    mics_memory_fail_after(self->memory, 0);
    mics_free(self->memory, kept);
    return status;
}

// ---- reading ----

static mics_json *load(void)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_load(memory, "trace.json", 1 << 24, &json));
    return json;
}

static double figure(const mics_json *json, const char *name)
{
    const mics_json_value *value = mics_json_get(mics_json_at(json, "otherData"), name);
    if (value == NULL)
        fail_msg("no figure %s", name);
    return mics_json_real(value);
}

static void check_figure(const mics_json *json, const char *name, double expected)
{
    const double read = figure(json, name);
    if (!(fabs(read - expected) <= 1e-4))
        fail_msg("%s is %.9g, expected %.9g", name, read, expected);
}

static int32_t entries_of(mics_stream stream)
{
    const mics_step_list *list = &job.schedule->lists[MICS_PHASE_TRAIN];
    int32_t count = 0;
    for (int32_t i = 0; i < list->count; i++)
        count += list->steps[i].stream == stream ? 1 : 0;
    return count;
}

// Of a step: rank 0's collectives, which are the shortest, and the mean computation.
static double ideal_alone(int64_t number)
{
    const mics_step_list *list = &job.schedule->lists[MICS_PHASE_TRAIN];
    static run_chain chains[MOST_ENTRIES];
    double took[MOST_ENTRIES];
    run_overlap overlap;
    for (int32_t i = 0; i < list->count; i++)
        took[i] = mics_step_is_comm(&list->steps[i]) ? took_us(&list->steps[i], number, 0) : 2.5;
    run_overlap_sum(list, took, chains, &overlap);
    return overlap.ideal;
}

// ---- tests ----

static void test_figures(void **state)
{
    (void)state;
    script s = {.steps = 5, .failing = -1};
    ranks_run_ok(RANKS, trace_rank, &s);
    mics_json *json = load();
    // Means of ranks 0 to 3 and of steps 2 and 3.
    check_figure(json, "first_step", 2);
    check_figure(json, "steps", 2);
    check_figure(json, "step_us", 2500 + 1.5);
    check_figure(json, "compute_busy_us", entries_of(MICS_STREAM_COMPUTE) * 2.5);
    check_figure(json, "intra_busy_us", entries_of(MICS_STREAM_INTRA) * 3.5 * 1.5);
    check_figure(json, "inter_busy_us", entries_of(MICS_STREAM_INTER) * 3.5 * 1.5);
    check_figure(json, "exposed_gather_us", 101.5);
    check_figure(json, "exposed_agree_us", 50);
    check_figure(json, "exposed_us", 151.5);
    // P = 4 on 2 x 2: a gather has two stages, and so has a reduction, and there is no second hop.
    check_figure(json, "first_gather_us", 2 * 3.5 * 1.5);
    check_figure(json, "last_reduce_us", 2 * 3.5 * 1.5);
    check_figure(json, "ideal_without_waits_us", (ideal_alone(2) + ideal_alone(3)) / 2);
    check_figure(json, "overlap_ratio", figure(json, "step_us") / figure(json, "ideal_us"));
    const mics_json_value *by_rank = mics_json_at(json, "otherData.step_us_by_rank");
    assert_int_equal(mics_json_count(by_rank), RANKS);
    assert_true(mics_json_real(mics_json_element(by_rank, 3)) == 2503);
    mics_json_close(json);
}

// A run that is asked to stop after the first of the steps leaves a trace of that one.
static void test_early_end(void **state)
{
    (void)state;
    script s = {.steps = 2, .stop_at = 2, .failing = -1};
    ranks_run_ok(RANKS, trace_rank, &s);
    mics_json *json = load();
    check_figure(json, "steps", 1);
    check_figure(json, "step_us", 2001.5);
    mics_json_close(json);
}

static void test_allocations_fail(void **state)
{
    (void)state;
    static const int32_t failing[] = {0, 2};
    for (size_t f = 0; f < sizeof failing / sizeof *failing; f++) {
        mics_status statuses[RANKS] = {MICS_ERR_MEMORY};
        int64_t n = 1;
        for (bool good = false; !good; n++) {
            script s = {.steps = 3, .failing = failing[f], .countdown = n};
            assert_true(n < 50);
            unlink("trace.json");
            ranks_run_timeout(RANKS, RANKS_TIMEOUT_S, trace_rank, &s, statuses);
            good = statuses[failing[f]] == MICS_OK;
            if (!good)
                assert_int_equal(statuses[failing[f]], MICS_ERR_MEMORY);
            // Rank 0 has what it wants of a rank before it fails, or the rank is told.
            for (int32_t rank = 0; rank < RANKS; rank++)
                assert_true(statuses[rank] == MICS_OK || rank == failing[f] ||
                            (!good && statuses[rank] == MICS_ERR_ABORTED));
            assert_true((access("trace.json", F_OK) == 0) == (statuses[0] == MICS_OK));
            assert_int_not_equal(glob("trace.json.*.tmp", 0, NULL, &(glob_t){0}), 0);
        }
        assert_true(n > 2); // the loop did make some fail
    }
}

// ---- what all tests share ----

static int setup(void **state)
{
    (void)state;
    capture_begin(&seen);
    if (mics_memory_open(&memory) != MICS_OK)
        return 1;
    run = (mics_run){.model_config = "model.json",
                     .out = ".",
                     .trace_step = 2,
                     .trace_steps = 2,
                     .micro_steps = 1,
                     .comm_timeout_s = RANKS_TIMEOUT_S};
    job = (mics_job){.memory = memory, .run = &run, .model = model_gpt2(memory, 2, true)};
    mics_schedule_spec spec = {
        .model = job.model,
        .batch = {.sequences = 1, .length = 8, .threads = 1},
        .micro_steps = 1,
        .prefetch = 1,
        .gather = MICS_ALGORITHM_TWO_STAGE,
        .reduce = MICS_ALGORITHM_TWO_STAGE,
    };
    if (mics_mesh_init(RANKS, 2, (mics_sharding){RANKS, RANKS, RANKS}, &spec.mesh) != MICS_OK)
        return 1;
    return mics_schedule_open(memory, &spec, &job.schedule) == MICS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    mics_schedule_close(job.schedule);
    mics_model_close(job.model);
    capture_end();
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

static int group_setup(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : 1;
}

static int group_teardown(void **state)
{
    (void)state;
    unlink("trace.json");
    return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_figures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_early_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocations_fail, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
