// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A rank that is lost in the middle of a step: those that are left, if they have all of the state, keep
// the step that was done last in node memory, and the next start resumes from it with the same bits.
#include "faults/live.h"
#include "test.h"
#include <unistd.h>

static char work[] = "/dev/shm/mics-lost-XXXXXX";

enum { STEPS = 7, AFTER = 4 };

typedef struct lost {
    const char *name;
    int32_t ranks, nodes;
    mics_sharding sharding;
    const char *set; // NULL: none
} lost;

static const lost kinds[] = {
    {"two nodes", 4, 2, {2, 2, 2}, NULL},
    {"parts of a shard on a node", 4, 1, {2, 2, 2}, NULL},
    {"data-parallel", 4, 2, {1, 1, 1}, NULL},
    {"ZeRO-1 over half", 4, 2, {1, 1, 2}, NULL},
    {"deferred updates", 4, 2, {1, 1, 2}, "run.prefetch=2"},
    {"other copies are due", 4, 2, {2, 2, 2}, "run.memory_checkpoint_every=3"},
    {"bf16", 4, 2, {2, 2, 2}, "run.precision=bf16"},
    {"half a shard of a node", 8, 4, {4, 4, 4}, NULL},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static live_run run_of(const lost *of)
{
    live_run run = {.ranks = of->ranks,
                    .nodes = of->nodes,
                    .sharding = of->sharding,
                    .steps = STEPS,
                    .resume = "auto",
                    .sets = {"run.checkpoint_every=0", of->set}};
    return run;
}

// What a run is that loses a rank, and what its next start comes to.
static void lose(const lost *of, live_kind kind, int32_t rank, live_run *first, live_run *second)
{
    *first = run_of(of);
    first->flip = (live_flip){.kind = kind, .rank = rank, .after = AFTER};
    live_go(first, true);
    assert_int_not_equal(first->status, MICS_OK);
    *second = run_of(of);
    live_go(second, false);
    assert_int_equal(second->status, MICS_OK);
}

static void any_one_costs_the_running_step(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        live_run straight = run_of(&kinds[i]), first, second;
        live_go(&straight, false);
        assert_int_equal(straight.status, MICS_OK);
        for (int32_t rank = 0; rank < kinds[i].ranks; rank++) {
            lose(&kinds[i], LIVE_LOST, rank, &first, &second);
            if (strstr(first.warning, "step 4 is in node memory: ") == NULL)
                fail_msg("%s, rank %d: \"%s\"", kinds[i].name, (int)rank, first.warning);
            assert_int_equal(second.heard_steps, STEPS - AFTER);
            if (!live_same(&straight, &second, AFTER + 1))
                fail_msg("%s, rank %d: other bits", kinds[i].name, (int)rank);
        }
    }
}

// Half of a shard has changed, and nobody takes that for the state of any step.
static void but_not_in_an_update(void **state)
{
    (void)state;
    live_run straight = run_of(&kinds[0]), first, second;
    live_go(&straight, false);
    lose(&kinds[0], LIVE_LOST_UPDATING, 1, &first, &second);
    assert_true(second.heard_steps == STEPS || second.heard_steps == STEPS - AFTER);
    assert_true(live_same(&straight, &second, AFTER + 1));
}

static void nor_where_the_state_exists_once(void **state)
{
    (void)state;
    static const lost once = {"ZeRO-3", 4, 2, {4, 4, 4}, NULL};
    live_run first, second;
    lose(&once, LIVE_LOST, 2, &first, &second);
    assert_null(strstr(first.warning, "node memory"));
    assert_int_equal(second.heard_steps, STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_one_costs_the_running_step),
        cmocka_unit_test(but_not_in_an_update),
        cmocka_unit_test(nor_where_the_state_exists_once),
    };
    if (mkdtemp(work) == NULL || chdir(work) != 0 || live_prepare() != 0 ||
        setenv("MICS_SHM_DIR", work, 1) != 0)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return chdir("/") != 0 || failed != 0;
}
