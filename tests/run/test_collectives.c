// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ring or two stages: what the timing finds on links of planted speed, alike on all ranks, and that a rank
// which fails in it ends all.
#include "base/capture.h"
#include "comm/fault.h"
#include "links.h"
#include "mics/core/comm.h"
#include "model/from_config.h"
#include "ranks.h"
#include "run/collectives.h"
#include "run/job.h"
#include "schedule/models.h"
#include <string.h>

// A busy machine keeps any rank from its core at any time: a time may be wrong, but not each time.
enum { RANKS = 4, ATTEMPTS = 5 };

static mics_memory *memory;
static mics_model *model;
static mics_schedule *schedule;
static capture seen;

typedef struct script {
    links_spec links;
    int32_t faulty;               // the rank that fails
    int64_t allocation, exchange; // which of its allocations, or exchanges, fails; 0: none
    run_gather_times found[RANKS];
} script;

static mics_status time_gathers(ranks_self *self)
{
    script *s = self->arg;
    const int32_t number = self->comm->rank;
    const bool faulty = number == s->faulty;
    MICS_TRY(links_open_take(self->memory, &s->links, &self->comm));
    MICS_TRY(fault_open_take(self->memory, self->comm, faulty ? s->exchange : 0, &self->comm));
    run_rank rank = {.memory = self->memory, .comm = self->comm};
    mics_memory_fail_after(self->memory, faulty ? s->allocation : 0);
    const mics_status status =
        run_gathers_time(&rank, schedule, RANKS_TIMEOUT_S, &s->found[number]);
    mics_memory_fail_after(self->memory, 0);
    return status;
}

static bool prefers_ring(const links_spec *planted)
{
    script s = {.links = *planted, .faulty = -1};
    ranks_run_ok(RANKS, time_gathers, &s);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        assert_true(s.found[rank].ring_us > 0 && s.found[rank].two_stage_us > 0);
        assert_memory_equal(&s.found[rank].ring_us, &s.found[0].ring_us, sizeof(double));
        assert_memory_equal(&s.found[rank].two_stage_us, &s.found[0].two_stage_us, sizeof(double));
    }
    return run_gathers_prefer_ring(&s.found[0]);
}

// A ring over 2 x 2 ranks has three rounds, each of which crosses nodes; two stages have one.
static void test_slow_links_between_nodes(void **state)
{
    (void)state;
    const links_spec planted = {.ranks_per_node = 2, .inter_us = 3000};
    bool right = false;
    for (int i = 0; i < ATTEMPTS && !right; i++)
        right = !prefers_ring(&planted);
    assert_true(right);
}

// Channel 0 is the second stage's alone.
static void test_slow_links_inside_nodes(void **state)
{
    (void)state;
    const links_spec planted = {.ranks_per_node = 2, .channel_us = {6000, 0}};
    bool right = false;
    for (int i = 0; i < ATTEMPTS && !right; i++)
        right = prefers_ring(&planted);
    assert_true(right);
}

static void test_a_ring_must_be_worth_it(void **state)
{
    (void)state;
    assert_false(run_gathers_prefer_ring(&(run_gather_times){.ring_us = 96, .two_stage_us = 100}));
    assert_true(run_gathers_prefer_ring(&(run_gather_times){.ring_us = 94, .two_stage_us = 100}));
}

static void test_large_units_are_timed_in_part(void **state)
{
    (void)state;
    const int64_t elems = schedule->padded_elems[0];
    script s = {.links.ranks_per_node = 2, .faulty = -1};
    schedule->padded_elems[0] = (int64_t)1 << 40;
    ranks_run_ok(RANKS, time_gathers, &s);
    schedule->padded_elems[0] = elems;
    assert_int_equal(s.found[0].bytes, 16 << 20);
}

// ---- failures ----

static void test_allocations_fail(void **state)
{
    (void)state;
    for (int32_t faulty = 0; faulty < RANKS; faulty += 3) {
        int64_t n = 1;
        for (bool good = false; !good; n++) {
            mics_status statuses[RANKS];
            script s = {.links.ranks_per_node = 2, .faulty = faulty, .allocation = n};
            assert_true(n < 50);
            ranks_run_timeout(RANKS, RANKS_TIMEOUT_S, time_gathers, &s, statuses);
            good = statuses[faulty] == MICS_OK;
            int32_t memory_errors = 0;
            for (int32_t rank = 0; !good && rank < RANKS; rank++) {
                memory_errors += statuses[rank] == MICS_ERR_MEMORY;
                assert_true(statuses[rank] == MICS_ERR_MEMORY ||
                            statuses[rank] == MICS_ERR_ABORTED);
            }
            assert_true(good || memory_errors > 0);
        }
        assert_true(n > 4); // the loop did make some fail
    }
}

static void test_exchanges_fail(void **state)
{
    (void)state;
    int64_t n = 1;
    for (bool good = false; !good; n += 7) {
        mics_status statuses[RANKS];
        script s = {.links.ranks_per_node = 2, .faulty = 1, .exchange = n};
        capture_begin(&seen);
        ranks_run_timeout(RANKS, RANKS_TIMEOUT_S, time_gathers, &s, statuses);
        good = statuses[1] == MICS_OK;
        for (int32_t rank = 0; !good && rank < RANKS; rank++)
            assert_true(statuses[rank] == (rank == 1 ? MICS_ERR_COMM : MICS_ERR_ABORTED) ||
                        statuses[rank] == MICS_OK); // it needed nothing more of the one that failed
        assert_true(n < 1000);
    }
    assert_true(n > 50);
}

// ---- when it is due ----

static bool is_open(mics_collectives wanted, int32_t nodes, int32_t params, bool share)
{
    mics_run run = {.collectives = wanted};
    mics_job job = {.run = &run};
    mics_schedule_spec spec = {
        .model = model,
        .batch = {.sequences = 1, .length = 8, .threads = 1},
        .micro_steps = 1,
        .share_params = share,
        .gather = wanted == MICS_COLLECTIVES_RING ? MICS_ALGORITHM_RING : MICS_ALGORITHM_TWO_STAGE};
    ASSERT_OK(mics_mesh_init(RANKS, nodes, (mics_sharding){params, RANKS, RANKS}, &spec.mesh));
    ASSERT_OK(mics_schedule_open(memory, &spec, &job.schedule));
    const bool open = run_collectives_is_open(&job);
    mics_schedule_close(job.schedule);
    return open;
}

static void test_when_it_is_due(void **state)
{
    (void)state;
    assert_true(is_open(MICS_COLLECTIVES_AUTO, 2, RANKS, false));
    assert_true(is_open(MICS_COLLECTIVES_AUTO, 2, RANKS, true)); // over nodes nothing is shared
    assert_false(is_open(MICS_COLLECTIVES_AUTO, 1, RANKS, false));
    assert_false(is_open(MICS_COLLECTIVES_AUTO, RANKS, RANKS, false)); // one rank a node
    assert_false(is_open(MICS_COLLECTIVES_AUTO, 2, 2, false));         // gathers inside nodes
    assert_false(is_open(MICS_COLLECTIVES_AUTO, 2, 1, false));
    assert_false(is_open(MICS_COLLECTIVES_RING, 2, RANKS, false));
    assert_false(is_open(MICS_COLLECTIVES_TWO_STAGE, 2, RANKS, false));
    assert_false(is_open(MICS_COLLECTIVES_RING_GATHERS, 2, RANKS, false));
}

// ---- the schedule with rings ----

// Where ranks keep different experts, a schedule has a model of its own, which it takes along.
static void test_rings_of_experts(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 10, "
        "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"max_position_embeddings\": 19, "
        "\"vocab_size\": 29}";
    mics_run run = {.micro_batch = 1};
    mics_job job = {.memory = memory, .run = &run, .budget = {.limit_bytes = SIZE_MAX}};
    mics_json *json = NULL;
    ASSERT_OK(mics_json_parse(memory, "model", text, sizeof text - 1, &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &job.model));
    mics_json_close(json);
    mics_schedule_spec spec = {.model = job.model,
                               .batch = {.sequences = 1, .length = 8, .threads = 1},
                               .micro_steps = 1,
                               .gather = MICS_ALGORITHM_TWO_STAGE};
    ASSERT_OK(mics_mesh_init(RANKS, 2, (mics_sharding){RANKS, RANKS, RANKS}, &spec.mesh));
    ASSERT_OK(mics_mesh_spread_experts(&spec.mesh, 2));
    ASSERT_OK(mics_schedule_open(memory, &spec, &job.schedule));
    ASSERT_OK(run_collectives_take_rings(&job));
    assert_int_equal(job.schedule->spec.gather, MICS_ALGORITHM_RING);
    assert_ptr_equal(job.schedule->spread->base, job.model); // not the model of the one before
    mics_schedule_close(job.schedule);
    mics_model_close(job.model);
}

static int setup(void **state)
{
    (void)state;
    capture_begin(&seen);
    if (mics_memory_open(&memory) != MICS_OK)
        return 1;
    model = model_gpt2(memory, 2, true);
    mics_schedule_spec spec = {.model = model,
                               .batch = {.sequences = 1, .length = 8, .threads = 1},
                               .micro_steps = 1,
                               .gather = MICS_ALGORITHM_TWO_STAGE};
    if (mics_mesh_init(RANKS, 2, (mics_sharding){RANKS, RANKS, RANKS}, &spec.mesh) != MICS_OK)
        return 1;
    return mics_schedule_open(memory, &spec, &schedule) == MICS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    mics_schedule_close(schedule);
    mics_model_close(model);
    capture_end();
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_links_between_nodes),
        cmocka_unit_test(test_slow_links_inside_nodes),
        cmocka_unit_test(test_a_ring_must_be_worth_it),
        cmocka_unit_test(test_large_units_are_timed_in_part),
        cmocka_unit_test(test_allocations_fail),
        cmocka_unit_test(test_exchanges_fail),
        cmocka_unit_test(test_when_it_is_due),
        cmocka_unit_test(test_rings_of_experts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
