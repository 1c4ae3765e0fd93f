// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What goes on beside exchanges when ranks are threads: two channels at once, the heartbeat, late
// handlers; through wrappers, too.
#include "captured.h"
#include "comm/fault.h"
#include "comm_checks.h"
#include "mics/core/heartbeat.h"
#include "mics/core/transport.h"
#include <time.h>

// ---- two channels ----

static mics_status run_channels(ranks_self *self)
{
    bool few = self->comm->ranks <= 8;
    MICS_TRY(checks_channels(self->comm, self->memory, few ? 60 : 12, few ? 1500 : 40));
    return self->comm->ranks > 8 ? MICS_OK : checks_stalled_channel(self->comm, self->memory);
}

static void test_two_channels(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 3, 4, 8, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ranks_run_ok(sizes[i], run_channels, NULL);
}

static mics_status run_channels_wrapped(ranks_self *self)
{
    mics_traffic sent = {0};
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
    mics_comm *counting = self->comm;
    MICS_TRY(fault_open_take(self->memory, self->comm, 0, &self->comm));
    MICS_TRY(checks_channels(self->comm, self->memory, 40, 700));
    mics_comm_count_get(counting, &sent);
    mics_traffic *all = self->arg;
    all[self->comm->rank] = sent;
    return MICS_OK;
}

// Two threads count as much as they do one after the other, whoever comes first.
static void test_two_channels_are_counted(void **state)
{
    (void)state;
    mics_traffic first[4], second[4];
    ranks_run_ok(4, run_channels_wrapped, first);
    ranks_run_ok(4, run_channels_wrapped, second);
    for (int rank = 0; rank < 4; rank++) {
        assert_true(first[rank].exchanges > 100);
        assert_int_equal(first[rank].exchanges, second[rank].exchanges);
        assert_int_equal(first[rank].inter_bytes, second[rank].inter_bytes);
    }
}

// Channel 1 of a failing comm: exchanges with itself until one fails.
typedef struct fault_side {
    mics_comm *comm;
    int32_t channel;
    int32_t good;
} fault_side;

static void *fault_side_main(void *arg)
{
    fault_side *side = arg;
    float send = 1, recv = 0;
    mics_exchange exchange = {.send = &send,
                              .recv = &recv,
                              .bytes = sizeof send,
                              .channel = side->channel,
                              .what = "to itself"};
    for (int i = 0; i < 100; i++)
        side->good += mics_comm_exchange(side->comm, &exchange) == MICS_OK;
    return NULL;
}

static mics_status run_faulty_channels(ranks_self *self)
{
    pthread_t thread;
    MICS_TRY(fault_open_take(self->memory, self->comm, 50, &self->comm));
    fault_side own = {.comm = self->comm}, other = {.comm = self->comm, .channel = 1};
    RANKS_EXPECT(pthread_create(&thread, NULL, fault_side_main, &other) == 0);
    fault_side_main(&own);
    pthread_join(thread, NULL);
    RANKS_EXPECT(own.good + other.good == 49);
    return MICS_OK;
}

static void test_fault_over_both_channels(void **state)
{
    (void)state;
    mics_status statuses[1];
    for (int i = 0; i < 20; i++)
        ranks_run_timeout(1, RANKS_TIMEOUT_S, run_faulty_channels, NULL, statuses);
    assert_int_equal(statuses[0], MICS_OK);
    assert_int_equal(captured.lines, 20);
    assert_logged("exchange 50 was told to fail");
}

typedef struct waiting_side {
    mics_comm *comm;
    int32_t channel;
    mics_status status;
} waiting_side;

static void *waiting_side_main(void *arg)
{
    waiting_side *side = arg;
    float buffer[4] = {0};
    mics_comm_group ring = world_ring(side->comm, "aborted gather");
    ring.channel = side->channel;
    side->status = mics_comm_all_gather(side->comm, &ring, buffer, 4);
    return NULL;
}

static mics_status run_abort_of_both(ranks_self *self)
{
    pthread_t thread;
    waiting_side own = {.comm = self->comm}, other = {.comm = self->comm, .channel = 1};
    if (self->comm->rank == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
        mics_comm_abort(self->comm, NULL);
    }
    RANKS_EXPECT(pthread_create(&thread, NULL, waiting_side_main, &other) == 0);
    waiting_side_main(&own);
    pthread_join(thread, NULL);
    RANKS_EXPECT(own.status == MICS_ERR_ABORTED && other.status == MICS_ERR_ABORTED);
    return MICS_OK;
}

static void test_abort_ends_both_channels(void **state)
{
    (void)state;
    ranks_run_ok(3, run_abort_of_both, NULL);
    assert_int_equal(captured.lines, 0);
}

// ---- the heartbeat ----

static mics_status run_board(ranks_self *self)
{
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
    MICS_TRY(fault_open_take(self->memory, self->comm, 0, &self->comm));
    return checks_heartbeats(self->comm, true);
}

static void test_board(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 5, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ranks_run_ok(sizes[i], run_board, NULL);
}

// Threads of one process are never silent, however long ago they posted.
static mics_status run_quiet(ranks_self *self)
{
    mics_heartbeat heartbeat = checks_heartbeat(self->comm->rank, 1);
    double age_s = -1;
    mics_comm_heartbeat_post(self->comm, &heartbeat);
    MICS_TRY(mics_comm_agree(self->comm, MICS_OK));
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    RANKS_EXPECT(mics_comm_heartbeat_read(self->comm, 1 - self->comm->rank, &heartbeat, &age_s) &&
                 age_s == 0);
    return MICS_OK;
}

static void test_a_quiet_rank_lives(void **state)
{
    (void)state;
    ranks_run_ok(2, run_quiet, NULL);
}

// ---- late handlers ----

typedef struct told_case {
    pthread_mutex_t mutex;
    int calls;
    mics_timeout late;
    char what[64];
    pthread_t thread;                    // that called
    pthread_t threads[4][MICS_CHANNELS]; // that exchange, by rank
    int32_t channel;                     // that stalls
    int32_t absent;
} told_case;

// Ten times and more what a rank that comes may need to come, on a busy machine.
static const double LATE_S = 2;

static void hear(void *ctx, const mics_timeout *late)
{
    told_case *self = ctx;
    // It may take a while: nobody else is held up.
    nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
    pthread_mutex_lock(&self->mutex);
    self->calls++;
    self->late = *late;
    snprintf(self->what, sizeof self->what, "%s", late->what);
    self->thread = pthread_self();
    pthread_mutex_unlock(&self->mutex);
}

static void await_call(told_case *self)
{
    for (bool called = false; !called;) {
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
        pthread_mutex_lock(&self->mutex);
        called = self->calls > 0;
        pthread_mutex_unlock(&self->mutex);
    }
}

typedef struct told_side {
    ranks_self *self;
    mics_status status;
} told_side;

// The channel that works: all ranks come.
static void *told_side_main(void *arg)
{
    told_side *side = arg;
    told_case *told = side->self->arg;
    float buffer[4] = {0};
    mics_comm_group ring = world_ring(side->self->comm, "good gather");
    ring.channel = 1 - told->channel;
    side->status = mics_comm_all_gather(side->self->comm, &ring, buffer, 4);
    return NULL;
}

static mics_status run_told(ranks_self *self)
{
    told_case *told = self->arg;
    float buffer[4] = {0};
    mics_comm_group ring = world_ring(self->comm, "late gather");
    ring.channel = told->channel;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
    MICS_TRY(fault_open_take(self->memory, self->comm, 0, &self->comm));
    mics_comm_set_timeout_handler(self->comm, hear, told);
    // Ranks may start seconds apart: only when all have met they wait for a moment alone.
    MICS_TRY(mics_comm_agree(self->comm, MICS_OK));
    MICS_TRY(mics_comm_set_timeout(self->comm, LATE_S));
    told->threads[self->comm->rank][told->channel] = pthread_self();
    told_side side = {.self = self};
    pthread_t thread;
    RANKS_EXPECT(pthread_create(&thread, NULL, told_side_main, &side) == 0);
    mics_status status = MICS_OK;
    if (self->comm->rank != told->absent)
        status = mics_comm_all_gather(self->comm, &ring, buffer, 4);
    pthread_join(thread, NULL);
    RANKS_EXPECT(side.status == MICS_OK);
    if (self->comm->rank == told->absent)
        await_call(told);
    return status;
}

// Either channel: the handler of one rank is told, on the thread that waits, and nothing is logged.
static void test_late_handler(void **state)
{
    (void)state;
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++) {
        mics_status statuses[4];
        told_case told = {.mutex = PTHREAD_MUTEX_INITIALIZER, .channel = channel, .absent = 2};
        ranks_run_timeout(4, RANKS_TIMEOUT_S, run_told, &told, statuses);
        assert_int_equal(statuses[2], MICS_OK);
        assert_true(count_of(statuses, 4, MICS_ERR_TIMEOUT) >= 1);
        assert_int_equal(captured.lines, 0);
        assert_int_equal(told.calls, 1);
        assert_string_equal(told.what, "late gather");
        assert_int_not_equal(told.late.rank, 2);
        assert_int_not_equal(told.late.rank, told.late.peer);
        // A rank waits for the one before it to send, or, having its block, for the one after it to
        // take.
        int32_t partner = told.late.sending ? told.late.rank + 1 : told.late.rank + 3;
        assert_int_equal(told.late.peer, partner % 4);
        assert_true(told.late.waited_s == LATE_S);
        assert_true(pthread_equal(told.thread, told.threads[told.late.rank][channel]));
    }
}

// A rank sends, and nobody ever takes it.
static mics_status run_told_unread(ranks_self *self)
{
    float value = 0;
    mics_comm_set_timeout_handler(self->comm, hear, self->arg);
    if (self->comm->rank == 1)
        return MICS_OK;
    return mics_comm_exchange(
        self->comm,
        &(mics_exchange){
            .to = 1, .from = MICS_RANK_NONE, .send = &value, .bytes = 4, .what = "unread"});
}

static void test_late_handler_of_a_send(void **state)
{
    (void)state;
    mics_status statuses[2];
    told_case told = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    ranks_run_timeout(2, 0.1, run_told_unread, &told, statuses);
    assert_int_equal(statuses[0], MICS_ERR_TIMEOUT);
    assert_int_equal(captured.lines, 0);
    assert_int_equal(told.calls, 1);
    assert_true(told.late.sending && told.late.rank == 0 && told.late.peer == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_channels),
        cmocka_unit_test(test_two_channels_are_counted),
        CAPTURED(test_fault_over_both_channels),
        CAPTURED(test_abort_ends_both_channels),
        cmocka_unit_test(test_board),
        cmocka_unit_test(test_a_quiet_rank_lives),
        CAPTURED(test_late_handler),
        CAPTURED(test_late_handler_of_a_send),
    };
    return cmocka_run_group_tests_name("comm channels", tests, NULL, NULL);
}
