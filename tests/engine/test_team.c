// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Teams: each share is computed once, nobody passes a stage before its shares are complete, be they
// awake or asleep, and nobody waits for a thread that comes late and holds none.
#include "engine/team.h"
#include "test.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MAX_THREADS = 7, STAGES = 60, SHARES = 5, RUNS = 200 };

typedef struct work {
    mics_team *team;
    int32_t late, slow; // threads: one sleeps before a stage, the other with a share; -1: none
    mics_shares shares[STAGES];
    atomic_int computed[STAGES], early, ran[MAX_THREADS];
} work;

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
}

static void walk(void *ctx, int32_t thread)
{
    work *w = ctx;
    atomic_fetch_add(&w->ran[thread], 1);
    for (int stage = 0; stage < STAGES; stage++) {
        if (thread == w->late && stage % 16 == 0)
            nap();
        for (int64_t share = -1; mics_share_next(&w->shares[stage], SHARES, &share);) {
            if (thread == w->slow && stage % 16 == 8)
                nap();
            atomic_fetch_add(&w->computed[stage], 1 << (4 * share));
        }
        mics_team_await(w->team, &w->shares[stage]);
        if (atomic_load(&w->computed[stage]) != 0x11111)
            atomic_fetch_add(&w->early, 1);
    }
}

static void run_teams(int32_t threads, int32_t late, int32_t slow, int runs)
{
    mics_memory *memory = NULL;
    work w = {.late = late, .slow = slow};
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_team_open(memory, threads, &w.team));
    for (int run = 1; run <= runs; run++) {
        memset(w.shares, 0, sizeof w.shares);
        for (int stage = 0; stage < STAGES; stage++)
            atomic_store(&w.computed[stage], 0);
        mics_team_run(w.team, walk, &w);
        for (int32_t t = 0; t < threads; t++)
            assert_int_equal(atomic_load(&w.ran[t]), run);
    }
    assert_int_equal(atomic_load(&w.early), 0);
    mics_team_close(w.team);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_stages(void **state)
{
    (void)state;
    run_teams(1, -1, -1, RUNS);
    run_teams(2, -1, -1, RUNS);
    run_teams(3, -1, -1, 20); // more threads than many machines have cores
    run_teams(MAX_THREADS, -1, -1, 5);
}

static void test_sleepers(void **state)
{
    (void)state;
    for (int32_t thread = 0; thread < 3; thread++) {
        run_teams(3, thread, -1, 3);
        run_teams(3, -1, thread, 3);
        run_teams(3, thread, (thread + 1) % 3, 3);
    }
}

// The second thread does not come before the first one is through all stages.
typedef struct absence {
    mics_team *team;
    mics_shares shares[STAGES];
    atomic_int done, waited;
} absence;

static void go_alone(void *ctx, int32_t thread)
{
    absence *a = ctx;
    for (int i = 0; thread == 1 && atomic_load(&a->done) == 0 && i < 300000; i++)
        nap(); // a minute and a half at least, before it has failed
    if (thread == 1)
        atomic_store(&a->waited, atomic_load(&a->done));
    for (int stage = 0; stage < STAGES; stage++) {
        for (int64_t share = -1; mics_share_next(&a->shares[stage], SHARES, &share);)
            continue;
        mics_team_await(a->team, &a->shares[stage]);
    }
    atomic_store(&a->done, 1);
}

static void test_nobody_waits_for_the_absent(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    absence a = {0};
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_team_open(memory, 2, &a.team));
    mics_team_run(a.team, go_alone, &a);
    assert_int_equal(atomic_load(&a.waited), 1);
    mics_team_close(a.team);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_sleepers),
        cmocka_unit_test(test_nobody_waits_for_the_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
