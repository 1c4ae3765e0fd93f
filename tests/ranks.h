// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs a function on N ranks, each a thread of this test with its own comm and allocator.
//
// cmocka's assertions must not fire on those threads: a rank function returns a status, and
// RANKS_EXPECT ends it with a line that names the place. When one rank fails the others are woken
// (they get MICS_ERR_ABORTED), so a broken test ends instead of hanging.
#pragma once

#include "mics/core/comm.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "test.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

// Ends hangs: ranks of a busy machine, or under a sanitizer, may be seconds apart.
enum { RANKS_TIMEOUT_S = 300 };

// What a rank function gets. It may replace `comm` by a wrapper that took it; whatever stands there
// at the end is closed.
typedef struct ranks_self {
    mics_comm *comm;
    mics_memory *memory; // this rank's alone; a leak fails the test
    void *arg;           // shared by all ranks
} ranks_self;

typedef mics_status (*ranks_function)(ranks_self *self);

// Ends a rank function with an error when `condition` does not hold.
#define RANKS_EXPECT(condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return mics_fail(MICS_ERR_INVALID, "%s:%d: %s does not hold", __FILE__, __LINE__,      \
                             #condition);                                                          \
    } while (0)

typedef struct ranks_thread {
    pthread_t thread;
    mics_thread_world *world;
    int32_t rank;
    ranks_function function;
    void *arg;
    mics_status status;
    int64_t leaked_blocks;
} ranks_thread;

static inline void *ranks_main(void *arg)
{
    ranks_thread *thread = (ranks_thread *)arg;
    ranks_self self = {.arg = thread->arg};
    mics_log_set_rank(thread->rank);
    thread->status = mics_memory_open(&self.memory);
    if (thread->status == MICS_OK)
        thread->status =
            mics_comm_thread_open(self.memory, thread->world, thread->rank, &self.comm);
    if (thread->status == MICS_OK)
        thread->status = thread->function(&self);
    if (thread->status != MICS_OK && self.comm != NULL)
        mics_comm_abort(self.comm, NULL);
    mics_comm_close(self.comm);
    thread->leaked_blocks = mics_memory_close(self.memory);
    return NULL;
}

/* Runs `function` on `ranks` threads and waits for all. statuses_out[rank] is what each returned.
 *
 * Fails the test when a rank leaks; `timeout_s` is the transport's.
 */
static inline void ranks_run_timeout(int32_t ranks, double timeout_s, ranks_function function,
                                     void *arg, mics_status *statuses_out)
{
    mics_memory *memory = NULL;
    mics_thread_world *world = NULL;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    assert_int_equal(mics_thread_world_open(memory, ranks, timeout_s, &world), MICS_OK);
    ranks_thread *threads = (ranks_thread *)calloc((size_t)ranks, sizeof *threads);
    assert_non_null(threads);
    for (int32_t rank = 0; rank < ranks; rank++) {
        threads[rank].world = world;
        threads[rank].rank = rank;
        threads[rank].function = function;
        threads[rank].arg = arg;
        // A rank that does not start leaves the others to the time-out; better to end here.
        if (pthread_create(&threads[rank].thread, NULL, ranks_main, &threads[rank]) != 0)
            abort();
    }
    int64_t leaked_blocks = 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        pthread_join(threads[rank].thread, NULL);
        statuses_out[rank] = threads[rank].status;
        leaked_blocks += threads[rank].leaked_blocks;
    }
    free(threads);
    mics_thread_world_close(world);
    assert_int_equal(mics_memory_close(memory), 0);
    assert_int_equal(leaked_blocks, 0);
}

/* Runs `function` on `ranks` threads; the test fails unless every rank returns MICS_OK. */
static inline void ranks_run_ok(int32_t ranks, ranks_function function, void *arg)
{
    mics_status *statuses = (mics_status *)calloc((size_t)ranks, sizeof *statuses);
    assert_non_null(statuses);
    ranks_run_timeout(ranks, RANKS_TIMEOUT_S, function, arg, statuses);
    int32_t failed = 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        if (statuses[rank] == MICS_OK)
            continue;
        print_error("rank %d gave %s\n", (int)rank, mics_status_name(statuses[rank]));
        failed++;
    }
    free(statuses);
    assert_int_equal(failed, 0);
}
