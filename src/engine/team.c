// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A team of threads. All of them, the caller's too, stand at the same barrier; a team at rest is
// one in which the others wait there for the caller.
//
// `phase`: number of complete barriers. No lost wake-up: a sleeper counts itself in `sleepers`
// before its last look at its condition, and a waker changes the condition before its look at
// `sleepers`.
#include "team.h"
#include "base/clock.h"
#include "mics/log.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif

// Looks before a thread sleeps: some 30 us on a Zen 5 of 2024, where a pause takes
// about 40 cycles. A sleeper's way back takes longer than that.
enum { SPINS = 2000 };

typedef struct member {
    mics_team *team;
    int32_t number;
    pthread_t thread;
} member;

struct mics_team {
    mics_memory *memory;
    member *members; // (threads - 1)
    int32_t threads, started;
    mics_team_work work; // NULL: the end
    void *ctx;
    atomic_int arrived, sleepers;
    atomic_uint phase;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

static void wake(mics_team *team)
{
    if (atomic_load(&team->sleepers) == 0)
        return;
    pthread_mutex_lock(&team->mutex);
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->mutex);
}

// Waits of a thread: for a share of the work, or for the end of a phase.
typedef struct awaited {
    const mics_shares *shares; // NULL: a phase
    unsigned phase;
} awaited;

static bool is_over(mics_team *team, const awaited *what)
{
    return what->shares != NULL ? mics_shares_complete(what->shares)
                                : atomic_load(&team->phase) != what->phase;
}

static void sleep_until(mics_team *team, const awaited *what)
{
    pthread_mutex_lock(&team->mutex);
    atomic_fetch_add(&team->sleepers, 1);
    while (!is_over(team, what))
        pthread_cond_wait(&team->changed, &team->mutex);
    atomic_fetch_sub(&team->sleepers, 1);
    pthread_mutex_unlock(&team->mutex);
}

static void await(mics_team *team, awaited what)
{
    for (int spin = 0; spin < SPINS; spin++) {
        if (is_over(team, &what))
            return;
        PAUSE();
    }
    sleep_until(team, &what);
}

// Who completed the last share comes here too, and finds it complete at once.
void mics_team_await(mics_team *team, const mics_shares *shares)
{
    await(team, (awaited){.shares = shares});
    wake(team);
}

static void barrier(mics_team *team)
{
    const unsigned phase = atomic_load(&team->phase);
    if (atomic_fetch_add(&team->arrived, 1) + 1 == team->threads) {
        atomic_store(&team->arrived, 0);
        atomic_fetch_add(&team->phase, 1);
        wake(team);
    } else {
        await(team, (awaited){.phase = phase});
    }
}

static void *serve(void *arg)
{
    const member *self = arg;
    mics_team *team = self->team;
    for (;;) {
        barrier(team); // until there is work
        if (team->work == NULL)
            return NULL;
        team->work(team->ctx, self->number);
        barrier(team);
    }
}

void mics_team_run(mics_team *team, mics_team_work work, void *ctx)
{
    team->work = work;
    team->ctx = ctx;
    barrier(team);
    work(ctx, 0);
    barrier(team);
}

// The others inherit the mask.
static mics_status start_members(mics_team *team)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    mics_status status = MICS_OK;
    for (int32_t i = 0; i + 1 < team->threads && status == MICS_OK; i++) {
        member *m = &team->members[i];
        *m = (member){.team = team, .number = i + 1};
        if (pthread_create(&m->thread, NULL, serve, m) != 0)
            status = mics_fail(MICS_ERR_MEMORY, "thread %d of %d cannot start", (int)i + 2,
                               (int)team->threads);
        else
            team->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

mics_status mics_team_open(mics_memory *memory, int32_t threads, mics_team **team_out)
{
    mics_team *team = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &team));
    team->memory = memory;
    team->threads = threads;
    mics_status status = mics_locks_init(&team->mutex, (pthread_cond_t *[]){&team->changed}, 1);
    if (status != MICS_OK) {
        mics_free(memory, team);
        return status;
    }
    status = MICS_NEW(memory, threads, &team->members);
    if (status == MICS_OK)
        status = start_members(team);
    if (status == MICS_OK)
        *team_out = team;
    else
        mics_team_close(team);
    return status;
}

// Of a team that did not open, some threads may not be there: this one stands in for them.
void mics_team_close(mics_team *team)
{
    if (team == NULL)
        return;
    team->work = NULL;
    for (int32_t missing = team->started + 1; missing < team->threads; missing++)
        atomic_fetch_add(&team->arrived, 1);
    if (team->started > 0)
        barrier(team);
    for (int32_t i = 0; i < team->started; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_cond_destroy(&team->changed);
    pthread_mutex_destroy(&team->mutex);
    mics_free(team->memory, team->members);
    mics_free(team->memory, team);
}
