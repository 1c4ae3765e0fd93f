// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A system that has no mutex or condition left: what opens says so in one line, and ends no more
// than it began. This program's own functions stand in for the system's.
#include "base/capture.h"
#include "engine/team.h"
#include "io/data/ordered.h"
#include "mics/memory.h"
#include "run/ranks/world.h"
#include "test.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static int countdown;         // until an opening fails; 0: none does
static atomic_int open_locks; // begun and not yet ended

static bool fails(void)
{
    return countdown > 0 && --countdown == 0;
}

// What the system, or a sanitizer, has under a name of this program's.
static void *next_of(const char *name)
{
    void *address = dlsym(RTLD_NEXT, name);
    if (address == NULL)
        abort();
    return address;
}

#define FIND_NEXT(name, ...)                                                                       \
    union {                                                                                        \
        void *address;                                                                             \
        int (*call)(__VA_ARGS__);                                                                  \
    } next = {next_of(name)}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *how)
{
    FIND_NEXT("pthread_mutex_init", pthread_mutex_t *, const pthread_mutexattr_t *);
    if (fails())
        return EAGAIN;
    open_locks++;
    return next.call(mutex, how);
}

int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    FIND_NEXT("pthread_mutex_destroy", pthread_mutex_t *);
    open_locks--;
    return next.call(mutex);
}

int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *how)
{
    FIND_NEXT("pthread_cond_init", pthread_cond_t *, const pthread_condattr_t *);
    if (fails())
        return EAGAIN;
    open_locks++;
    return next.call(condition, how);
}

int pthread_cond_destroy(pthread_cond_t *condition)
{
    FIND_NEXT("pthread_cond_destroy", pthread_cond_t *);
    open_locks--;
    return next.call(condition);
}

// Opens and closes something.
typedef mics_status (*opening)(mics_memory *memory);

static mics_status open_team(mics_memory *memory)
{
    mics_team *team = NULL;
    MICS_TRY(mics_team_open(memory, 2, &team));
    mics_team_close(team);
    return MICS_OK;
}

static void no_work(void *ctx, int32_t thread, int32_t slot)
{
    (void)ctx;
    (void)thread;
    (void)slot;
}

static mics_status open_queue(mics_memory *memory)
{
    mics_ordered *queue = NULL;
    MICS_TRY(mics_ordered_open(memory, 2, (mics_ordered_jobs){.work = no_work}, &queue));
    mics_ordered_close(queue);
    return MICS_OK;
}

static mics_status open_world(mics_memory *memory)
{
    const run_world_spec spec = {.ranks = 2, .nodes = 1, .timeout_s = 5};
    run_world *world = NULL;
    MICS_TRY(run_world_open(memory, &spec, &world));
    run_world_close(world);
    return MICS_OK;
}

static void fail_each(opening open, int least)
{
    mics_memory *memory = NULL;
    mics_status status = MICS_ERR_MEMORY;
    int n = 0;
    ASSERT_OK(mics_memory_open(&memory));
    while (status != MICS_OK) {
        capture seen;
        capture_begin(&seen);
        const int before = open_locks;
        countdown = ++n;
        status = open(memory);
        countdown = 0;
        capture_end();
        assert_int_equal(open_locks, before);
        if (status == MICS_OK)
            break;
        ASSERT_STATUS(MICS_ERR_MEMORY, status);
        assert_int_equal(seen.errors, 1);
    }
    assert_true(n > least); // the loop did make some fail
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_no_locks(void **state)
{
    (void)state;
    fail_each(open_team, 2);
    fail_each(open_queue, 3);
    fail_each(open_world, 3 + 1 + 2 * 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_locks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
