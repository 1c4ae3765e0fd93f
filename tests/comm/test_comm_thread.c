// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: every collective against a plain sum, the bytes against their formulas, and
// what happens when a rank is late, wrong, out of memory or gone.
#include "comm_checks.h"
#include "mics/clock.h"
#include "ranks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const int32_t world_sizes[] = {1, 2, 3, 4, 8, 64};
enum { WORLD_SIZES = sizeof world_sizes / sizeof world_sizes[0] };

// ---- what the log said, in place of standard error ----

typedef struct captured_log {
    pthread_mutex_t mutex;
    int lines;
    char last[1024];
} captured_log;

static captured_log captured = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void capture(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    captured_log *log = ctx;
    (void)level;
    (void)rank;
    pthread_mutex_lock(&log->mutex);
    log->lines++;
    snprintf(log->last, sizeof log->last, "%s", line);
    pthread_mutex_unlock(&log->mutex);
}

static int capture_start(void **state)
{
    (void)state;
    captured.lines = 0;
    captured.last[0] = '\0';
    mics_log_set_sink(capture, &captured);
    return 0;
}

static int capture_end(void **state)
{
    (void)state;
    mics_log_set_sink(NULL, NULL);
    return 0;
}

static void assert_logged(const char *text)
{
    if (strstr(captured.last, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", captured.last, text);
}

static int64_t count_of(const mics_status *statuses, int32_t ranks, mics_status status)
{
    int64_t count = 0;
    for (int32_t rank = 0; rank < ranks; rank++)
        count += statuses[rank] == status;
    return count;
}

static mics_ring world_ring(const mics_comm *comm, const char *what)
{
    return (mics_ring){.group = {.size = comm->ranks, .stride = 1, .index = comm->rank},
                       .what = what};
}

// ---- right results ----

static mics_status run_collectives(ranks_self *self)
{
    int64_t elems_max = self->comm->ranks > 8 ? 40 : 1500;
    int32_t rounds = self->comm->ranks > 8 ? 40 : 80;
    MICS_TRY(checks_many_rings(self->comm, self->memory, rounds, elems_max, 0));
    RANKS_EXPECT(self->comm->staging_bytes == 0);
    mics_memory_stats stats;
    mics_memory_stats_get(self->memory, &stats);
    RANKS_EXPECT(stats.peak[MICS_MEM_COMM] == 0);
    return MICS_OK;
}

static void test_collectives(void **state)
{
    (void)state;
    for (int i = 0; i < WORLD_SIZES; i++)
        ranks_run_ok(world_sizes[i], run_collectives, NULL);
}

static mics_status run_exchanges(ranks_self *self)
{
    MICS_TRY(checks_exchanges(self->comm, self->memory, 0));
    MICS_TRY(checks_exchanges(self->comm, self->memory, 4));
    MICS_TRY(checks_exchanges(self->comm, self->memory, 40004));
    MICS_TRY(checks_broadcast(self->comm, self->memory, 0));
    MICS_TRY(checks_broadcast(self->comm, self->memory, 3));
    if (self->comm->ranks <= 4)
        MICS_TRY(checks_broadcast(self->comm, self->memory, 2500 * 1000));
    return checks_agree(self->comm);
}

static void test_exchanges_broadcast_agree(void **state)
{
    (void)state;
    for (int i = 0; i < WORLD_SIZES; i++)
        ranks_run_ok(world_sizes[i], run_exchanges, NULL);
}

// Rows and columns of a 4 x 2 mesh in turns, several of one and then of the other, so that a rank
// waits for one that is still busy elsewhere.
static mics_status run_interleaved(ranks_self *self)
{
    int32_t rank = self->comm->rank;
    mics_group row = {.first = rank / 2 * 2, .stride = 1, .size = 2, .index = rank % 2};
    mics_group column = {.first = rank % 2, .stride = 2, .size = 4, .index = rank / 2};
    for (int32_t round = 0; round < 40; round++) {
        for (int32_t i = 0; i <= round % 3; i++)
            MICS_TRY(checks_ring(self->comm, self->memory, row, i, 5 + round, 0));
        MICS_TRY(checks_ring(self->comm, self->memory, column, round % 5, 5 + round % 7, 0));
    }
    return MICS_OK;
}

static void test_interleaved_groups(void **state)
{
    (void)state;
    ranks_run_ok(8, run_interleaved, NULL);
}

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
    for (int i = 0; i < WORLD_SIZES; i++)
        ranks_run_ok(world_sizes[i], run_channels, NULL);
}

static mics_status run_channels_wrapped(ranks_self *self)
{
    mics_traffic sent = {0};
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
    mics_comm *counting = self->comm;
    MICS_TRY(mics_comm_fault_open_take(self->memory, self->comm, 0, &self->comm));
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

// ---- the board ----

static mics_status run_board(ranks_self *self)
{
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
    MICS_TRY(mics_comm_fault_open_take(self->memory, self->comm, 0, &self->comm));
    return checks_board(self->comm, true);
}

static void test_board(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 5, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ranks_run_ok(sizes[i], run_board, NULL);
}

static mics_status run_silent(ranks_self *self)
{
    mics_note note = checks_note(self->comm->rank, 1);
    double first_s = 0, later_s = 0, again_s = 0;
    int32_t other = 1 - self->comm->rank;
    mics_comm_post(self->comm, &note);
    MICS_TRY(mics_comm_agree(self->comm, MICS_OK));
    RANKS_EXPECT(mics_comm_read(self->comm, other, &note, &first_s));
    nanosleep(&(struct timespec){.tv_nsec = 60 * 1000 * 1000}, NULL);
    RANKS_EXPECT(mics_comm_read(self->comm, other, &note, &later_s));
    RANKS_EXPECT(later_s >= first_s + 0.06);
    double before_us = mics_clock_us();
    MICS_TRY(mics_comm_agree(self->comm, MICS_OK));
    mics_comm_post(self->comm, &note);
    MICS_TRY(mics_comm_agree(self->comm, MICS_OK));
    RANKS_EXPECT(mics_comm_read(self->comm, other, &note, &again_s));
    // The other posts after both have come to the second agreement.
    RANKS_EXPECT(again_s <= (mics_clock_us() - before_us) * 1e-6);
    return MICS_OK;
}

static void test_a_rank_falls_silent(void **state)
{
    (void)state;
    ranks_run_ok(2, run_silent, NULL);
}

// ---- the library's gather, which threads have not ----

static mics_status run_library(ranks_self *self)
{
    mics_group world = {.size = self->comm->ranks, .stride = 1, .index = self->comm->rank};
    float buffer[2] = {0};
    mics_ring ring = {.group = world, .what = "library"};
    for (int wrapped = 0; wrapped < 3; wrapped++) {
        if (wrapped == 1)
            MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
        if (wrapped == 2)
            MICS_TRY(mics_comm_fault_open_take(self->memory, self->comm, 3, &self->comm));
        RANKS_EXPECT(mics_comm_library_open(self->comm, &ring) == MICS_ERR_UNSUPPORTED);
        RANKS_EXPECT(mics_comm_library_gather(self->comm, &ring, buffer, 4) ==
                     MICS_ERR_UNSUPPORTED);
    }
    RANKS_EXPECT(mics_comm_library_gather(self->comm, &ring, buffer, 4) == MICS_ERR_COMM);
    RANKS_EXPECT(mics_comm_library_open(self->comm, &ring) == MICS_ERR_COMM);
    return MICS_OK;
}

static void test_no_library(void **state)
{
    (void)state;
    mics_status statuses[2];
    ranks_run_timeout(2, RANKS_TIMEOUT_S, run_library, NULL, statuses);
    assert_int_equal(count_of(statuses, 2, MICS_OK), 2);
    assert_int_equal(captured.lines, 2); // of the exchange that was told to fail, one a rank
    assert_logged("exchange 3 was told to fail");
}

// ---- counted bytes ----

typedef struct count_case {
    int32_t ranks_per_node;
    int32_t kind; // of group
} count_case;

static int64_t hops(int32_t ranks)
{
    int64_t hops = 0;
    for (int64_t reach = 1; reach < ranks; reach *= 2)
        hops++;
    return hops;
}

// What was sent since `before`, which becomes what was sent up to now.
static mics_traffic since(const mics_comm *comm, mics_traffic *before)
{
    mics_traffic now = {0};
    mics_comm_count_get(comm, &now);
    mics_traffic sent = {.intra_bytes = now.intra_bytes - before->intra_bytes,
                         .inter_bytes = now.inter_bytes - before->inter_bytes,
                         .exchanges = now.exchanges - before->exchanges};
    *before = now;
    return sent;
}

static mics_status expect_to_next(mics_traffic sent, const ranks_self *self, mics_group group,
                                  int64_t bytes, int64_t exchanges)
{
    const count_case *at = self->arg;
    int32_t next = mics_group_rank(group, (group.index + 1) % group.size);
    bool near = next / at->ranks_per_node == self->comm->rank / at->ranks_per_node;
    RANKS_EXPECT(sent.exchanges == exchanges);
    RANKS_EXPECT(sent.intra_bytes == (near ? bytes : 0));
    RANKS_EXPECT(sent.inter_bytes == (near ? 0 : bytes));
    return MICS_OK;
}

static mics_status run_counted(ranks_self *self)
{
    const count_case *at = self->arg;
    float buffer[64 * 8] = {0};
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, at->ranks_per_node, &self->comm));
    RANKS_EXPECT(self->comm->ranks_per_node == at->ranks_per_node);
    mics_ring ring = {.what = "counted"};
    checks_group(self->comm->ranks, self->comm->rank, at->kind, &ring.group);
    mics_traffic before = {0};
    int64_t steps = ring.group.size - 1;
    MICS_TRY(mics_comm_all_gather(self->comm, &ring, buffer, 28));
    MICS_TRY(expect_to_next(since(self->comm, &before), self, ring.group, steps * 28, steps));
    MICS_TRY(mics_comm_reduce_scatter(self->comm, &ring, buffer, 7));
    MICS_TRY(expect_to_next(since(self->comm, &before), self, ring.group, steps * 28, steps));
    MICS_TRY(mics_comm_all_reduce(self->comm, &ring, buffer, 7 * ring.group.size));
    MICS_TRY(expect_to_next(since(self->comm, &before), self, ring.group, steps * 56, steps * 2));
    MICS_TRY(mics_comm_agree(self->comm, MICS_OK));
    mics_traffic sent = since(self->comm, &before);
    RANKS_EXPECT(sent.intra_bytes + sent.inter_bytes == 4 * hops(self->comm->ranks));
    // The chain of a broadcast ends before the root.
    MICS_TRY(mics_comm_broadcast(self->comm, 1 % self->comm->ranks, buffer, 100));
    sent = since(self->comm, &before);
    RANKS_EXPECT(sent.intra_bytes + sent.inter_bytes == (self->comm->rank == 0 ? 0 : 100));
    return MICS_OK;
}

static void test_counted_bytes(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int32_t kinds = checks_group(sizes[i], 0, -1, NULL);
        for (int32_t kind = 0; kind < kinds; kind++) {
            for (int32_t per_node = 1; per_node <= sizes[i]; per_node++) {
                count_case at = {.ranks_per_node = per_node, .kind = kind};
                ranks_run_ok(sizes[i], run_counted, &at);
            }
        }
    }
}

// ---- failures ----

typedef struct fault_case {
    int32_t rank;      // who fails
    int64_t countdown; // at which exchange
} fault_case;

static mics_status run_faulty(ranks_self *self)
{
    const fault_case *at = self->arg;
    int64_t countdown = self->comm->rank == at->rank ? at->countdown : 0;
    MICS_TRY(mics_comm_fault_open_take(self->memory, self->comm, countdown, &self->comm));
    mics_group world = {.size = self->comm->ranks, .stride = 1, .index = self->comm->rank};
    MICS_TRY(checks_ring(self->comm, self->memory, world, 1, 30, 0));
    MICS_TRY(mics_comm_agree(self->comm, MICS_OK));
    MICS_TRY(checks_broadcast(self->comm, self->memory, 10));
    return mics_comm_agree(self->comm, MICS_OK);
}

// One run in which a rank fails at its exchange number `countdown`; false when it has not as many.
// The rank that fails says so, the others learn of it, and nothing else is said. A rank that was
// done with all it does before the failure is content.
static bool fault_at(int32_t ranks, int32_t rank, int64_t countdown)
{
    mics_status statuses[8];
    fault_case at = {.rank = rank, .countdown = countdown};
    capture_start(NULL);
    ranks_run_timeout(ranks, RANKS_TIMEOUT_S, run_faulty, &at, statuses);
    int64_t good = count_of(statuses, ranks, MICS_OK);
    if (statuses[rank] == MICS_OK) {
        assert_int_equal(good, ranks);
        return false;
    }
    assert_int_equal(statuses[rank], MICS_ERR_COMM);
    assert_int_equal(good + count_of(statuses, ranks, MICS_ERR_PEER), ranks - 1);
    if (captured.lines != 1)
        fail_msg("%d lines, the last: %s", captured.lines, captured.last);
    assert_logged("was told to fail");
    return true;
}

static void test_fault_at_every_exchange(void **state)
{
    (void)state;
    static const int32_t sizes[] = {2, 3, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int32_t ranks = sizes[i];
        for (int32_t rank = 0; rank < ranks; rank++) {
            int64_t countdown = 1;
            while (fault_at(ranks, rank, countdown))
                countdown++;
            // Three collectives, all-reduce being two, and two agreements; broadcasts beside them.
            assert_true(countdown > 4 * (ranks - 1) + 2 * hops(ranks) + 1);
        }
    }
}

static mics_status run_after_fault(ranks_self *self)
{
    MICS_TRY(mics_comm_fault_open_take(self->memory, self->comm, 1, &self->comm));
    for (int i = 0; i < 3; i++)
        RANKS_EXPECT(mics_comm_agree(self->comm, MICS_OK) == MICS_ERR_COMM);
    return MICS_OK;
}

static void test_fault_is_logged_once(void **state)
{
    (void)state;
    mics_status statuses[2];
    ranks_run_timeout(2, RANKS_TIMEOUT_S, run_after_fault, NULL, statuses);
    assert_int_equal(count_of(statuses, 2, MICS_OK), 2);
    assert_int_equal(captured.lines, 2); // one a rank
}

// Rank `*arg` stays away; nobody aborts before its own time-out.
static mics_status run_late(ranks_self *self)
{
    const int32_t *absent = self->arg;
    float buffer[64] = {0};
    mics_ring ring = world_ring(self->comm, "late gather");
    if (self->comm->rank == *absent) {
        nanosleep(&(struct timespec){.tv_nsec = 600 * 1000 * 1000}, NULL);
        return MICS_OK;
    }
    return mics_comm_all_gather(self->comm, &ring, buffer, 4);
}

static void test_timeout_names_who_is_late(void **state)
{
    for (int32_t absent = 0; absent < 4; absent++) {
        mics_status statuses[4];
        char text[64];
        capture_start(state);
        double start_us = mics_clock_us();
        ranks_run_timeout(4, 0.2, run_late, &absent, statuses);
        assert_true(mics_clock_us() - start_us < 5e6);
        assert_true(count_of(statuses, 4, MICS_ERR_TIMEOUT) >= 1);
        assert_int_equal(
            count_of(statuses, 4, MICS_ERR_TIMEOUT) + count_of(statuses, 4, MICS_ERR_PEER), 3);
        assert_int_equal(captured.lines, 1);
        assert_logged("late gather: rank ");
        assert_logged("waited 0.2 s for rank");
        snprintf(text, sizeof text, "rank %d is in no exchange", (int)absent);
        assert_logged(text);
    }
}

// Each waits for a message from the next, and all offer theirs to somebody else.
static mics_status run_crossed(ranks_self *self)
{
    int32_t next = (self->comm->rank + 1) % self->comm->ranks;
    float a = 0, b = 0;
    return mics_comm_exchange(
        self->comm,
        &(mics_exchange){
            .to = next, .from = next, .send = &a, .recv = &b, .bytes = 4, .what = "crossed"});
}

static void test_timeout_tells_of_a_circle(void **state)
{
    (void)state;
    mics_status statuses[3];
    ranks_run_timeout(3, 0.2, run_crossed, NULL, statuses);
    assert_int_equal(count_of(statuses, 3, MICS_OK), 0);
    assert_int_equal(captured.lines, 1);
    assert_logged("the ranks wait for one another");
}

// A rank sends, and nobody ever takes it.
static mics_status run_unread(ranks_self *self)
{
    float value = 0;
    if (self->comm->rank == 1)
        return MICS_OK;
    return mics_comm_exchange(
        self->comm,
        &(mics_exchange){
            .to = 1, .from = MICS_RANK_NONE, .send = &value, .bytes = 4, .what = "unread"});
}

static void test_timeout_of_a_send(void **state)
{
    (void)state;
    mics_status statuses[2];
    ranks_run_timeout(2, 0.1, run_unread, NULL, statuses);
    assert_int_equal(statuses[0], MICS_ERR_TIMEOUT);
    assert_logged("for rank 1 to receive");
}

// ---- late handlers ----

typedef struct told_case {
    pthread_mutex_t mutex;
    int calls;
    mics_lateness late;
    char what[64];
    pthread_t thread;                    // that called
    pthread_t threads[4][MICS_CHANNELS]; // that exchange, by rank
    int32_t channel;                     // that stalls
    int32_t absent;
} told_case;

static void hear(void *ctx, const mics_lateness *late)
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
    mics_ring ring = world_ring(side->self->comm, "good gather");
    ring.channel = 1 - told->channel;
    side->status = mics_comm_all_gather(side->self->comm, &ring, buffer, 4);
    return NULL;
}

static mics_status run_told(ranks_self *self)
{
    told_case *told = self->arg;
    float buffer[4] = {0};
    mics_ring ring = world_ring(self->comm, "late gather");
    ring.channel = told->channel;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
    MICS_TRY(mics_comm_fault_open_take(self->memory, self->comm, 0, &self->comm));
    mics_comm_set_late_handler(self->comm, hear, told);
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
        nanosleep(&(struct timespec){.tv_nsec = 600 * 1000 * 1000}, NULL);
    return status;
}

// Either channel: the handler of one rank is told, on the thread that waits, and nothing is logged.
static void test_late_handler(void **state)
{
    (void)state;
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++) {
        mics_status statuses[4];
        told_case told = {.mutex = PTHREAD_MUTEX_INITIALIZER, .channel = channel, .absent = 2};
        ranks_run_timeout(4, 0.2, run_told, &told, statuses);
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
        assert_true(told.late.waited_s == 0.2);
        assert_true(pthread_equal(told.thread, told.threads[told.late.rank][channel]));
    }
}

static mics_status run_told_unread(ranks_self *self)
{
    mics_comm_set_late_handler(self->comm, hear, self->arg);
    return run_unread(self);
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

// ---- wrong partners ----

static mics_status run_mismatch(ranks_self *self)
{
    float send[8] = {0}, recv[8] = {0};
    int32_t other = 1 - self->comm->rank;
    return mics_comm_exchange(
        self->comm, &(mics_exchange){.to = self->comm->rank == 0 ? other : MICS_RANK_NONE,
                                     .from = self->comm->rank == 0 ? MICS_RANK_NONE : other,
                                     .send = send,
                                     .recv = recv,
                                     .bytes = self->comm->rank == 0 ? 8 : 12,
                                     .what = self->comm->rank == 0 ? "eight" : "twelve"});
}

static void test_sizes_that_differ(void **state)
{
    (void)state;
    mics_status statuses[2];
    ranks_run_timeout(2, RANKS_TIMEOUT_S, run_mismatch, NULL, statuses);
    assert_int_equal(statuses[0], MICS_ERR_COMM);
    assert_int_equal(statuses[1], MICS_ERR_COMM);
    assert_int_equal(captured.lines, 1);
    assert_logged("twelve: rank 1 expects 12 bytes from rank 0, which sends 8 (eight)");
}

// The ranks disagree about which collective comes next, of the same size.
static mics_status run_crossed_collectives(ranks_self *self)
{
    float buffer[4] = {0};
    mics_ring ring = world_ring(self->comm, self->comm->rank == 0 ? "gather a" : "gather b");
    return mics_comm_all_gather(self->comm, &ring, buffer, 8);
}

static void test_collectives_that_differ(void **state)
{
    (void)state;
    mics_status statuses[2];
    ranks_run_timeout(2, RANKS_TIMEOUT_S, run_crossed_collectives, NULL, statuses);
    assert_int_equal(count_of(statuses, 2, MICS_OK), 0);
    assert_true(count_of(statuses, 2, MICS_ERR_COMM) >= 1);
    assert_true(captured.lines >= 1);
    assert_logged("expects 8 bytes from rank");
    assert_logged("sends 8 (gather ");
}

// Rank 0 works for longer than a collective may take, as in a save; then it is late all the same.
static mics_status run_patient(ranks_self *self)
{
    struct timespec work = {.tv_nsec = 300 * 1000 * 1000};
    bool works = self->comm->rank == 0;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 2, &self->comm));
    MICS_TRY(mics_comm_fault_open_take(self->memory, self->comm, 0, &self->comm));
    RANKS_EXPECT(mics_comm_set_timeout(self->comm, 60) == MICS_OK);
    if (works)
        nanosleep(&work, NULL);
    RANKS_EXPECT(mics_comm_agree(self->comm, MICS_OK) == MICS_OK);
    RANKS_EXPECT(mics_comm_set_timeout(self->comm, 0.1) == MICS_OK);
    if (works)
        nanosleep(&work, NULL);
    return works ? MICS_OK : mics_comm_agree(self->comm, MICS_OK);
}

static void test_timeout_that_is_set(void **state)
{
    (void)state;
    mics_status statuses[2];
    ranks_run_timeout(2, 0.1, run_patient, NULL, statuses);
    assert_int_equal(statuses[0], MICS_OK);
    assert_int_equal(statuses[1], MICS_ERR_TIMEOUT);
    assert_int_equal(captured.lines, 1);
    assert_logged("waited 0.1 s for rank 0 to send; rank 0 is in no exchange");
    assert_logged("run.comm_timeout_s");
}

static mics_status run_timeouts_refused(ranks_self *self)
{
    RANKS_EXPECT(mics_comm_set_timeout(self->comm, 0) == MICS_ERR_INVALID);
    RANKS_EXPECT(mics_comm_set_timeout(self->comm, -1) == MICS_ERR_INVALID);
    RANKS_EXPECT(mics_comm_set_timeout(self->comm, NAN) == MICS_ERR_INVALID);
    RANKS_EXPECT(mics_comm_set_timeout(self->comm, INFINITY) == MICS_OK);
    return mics_comm_agree(self->comm, MICS_OK);
}

static void test_timeouts_refused(void **state)
{
    (void)state;
    mics_status statuses[2];
    ranks_run_timeout(2, RANKS_TIMEOUT_S, run_timeouts_refused, NULL, statuses);
    assert_int_equal(count_of(statuses, 2, MICS_OK), 2);
}

// A large message is being read when its sender's run is aborted: the sender must stay until the
// reader is done, since it frees the buffer next.
static mics_status run_abort_while_read(ranks_self *self)
{
    enum { BYTES = 8 * 1024 * 1024 };
    void *data = NULL;
    MICS_TRY(mics_alloc(self->memory, MICS_MEM_DATA, BYTES, &data));
    mics_status status = MICS_OK;
    mics_exchange exchange = {.bytes = BYTES,
                              .to = self->comm->rank == 0 ? 1 : MICS_RANK_NONE,
                              .from = self->comm->rank == 0 ? MICS_RANK_NONE : 0,
                              .send = data,
                              .recv = data,
                              .what = "large"};
    for (int i = 0; self->comm->rank < 2 && i < 100 && status == MICS_OK; i++)
        status = mics_comm_exchange(self->comm, &exchange);
    if (self->comm->rank == 2) {
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
        mics_comm_abort(self->comm, NULL);
    }
    mics_free(self->memory, data);
    return status;
}

static void test_abort_while_a_message_is_read(void **state)
{
    (void)state;
    mics_status statuses[3];
    for (int i = 0; i < 5; i++) {
        ranks_run_timeout(3, RANKS_TIMEOUT_S, run_abort_while_read, NULL, statuses);
        assert_int_equal(statuses[0], MICS_ERR_PEER);
        assert_int_equal(statuses[1], MICS_ERR_PEER);
        assert_int_equal(statuses[2], MICS_OK);
    }
    assert_int_equal(captured.lines, 0);
}

static mics_status run_abort_reason(ranks_self *self)
{
    if (self->comm->rank == 1)
        mics_comm_abort(self->comm, "the disk is full");
    mics_status status = MICS_OK;
    for (int i = 0; i < 2 && (status == MICS_OK || self->comm->rank == 1); i++)
        status = mics_comm_agree(self->comm, MICS_OK);
    return status;
}

static void test_abort_says_why_once(void **state)
{
    (void)state;
    mics_status statuses[4];
    ranks_run_timeout(4, RANKS_TIMEOUT_S, run_abort_reason, NULL, statuses);
    assert_int_equal(count_of(statuses, 4, MICS_ERR_PEER), 4);
    assert_int_equal(captured.lines, 1);
    assert_logged("the disk is full");
}

// A failure in agreement itself: this rank's own reason comes first.
static mics_status run_agree_broken(ranks_self *self)
{
    MICS_TRY(mics_comm_fault_open_take(self->memory, self->comm, 1, &self->comm));
    RANKS_EXPECT(mics_comm_agree(self->comm, MICS_OK) == MICS_ERR_COMM);
    RANKS_EXPECT(mics_comm_agree(self->comm, MICS_ERR_IO) == MICS_ERR_IO);
    return MICS_OK;
}

static void test_agreement_that_fails(void **state)
{
    (void)state;
    mics_status statuses[2];
    ranks_run_timeout(2, RANKS_TIMEOUT_S, run_agree_broken, NULL, statuses);
    assert_int_equal(count_of(statuses, 2, MICS_OK), 2);
}

// ---- arguments and memory ----

static void test_exchange_arguments(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_thread_world *world = NULL;
    mics_comm *comm = NULL;
    float a[4] = {0}, b[4] = {0};
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_thread_world_open(memory, 2, 1, &world));
    ASSERT_OK(mics_comm_thread_open(memory, world, 0, &comm));
    const mics_exchange good = {.send = a, .recv = b, .bytes = 16, .what = "good"};
    mics_exchange bad[11];
    for (int i = 0; i < 11; i++)
        bad[i] = good;
    bad[9].channel = -1;
    bad[10].channel = MICS_CHANNELS;
    bad[0].to = 2;
    bad[1].from = -2;
    bad[2].what = NULL;
    bad[3].send = NULL;
    bad[4].recv = NULL;
    bad[5].recv = a;
    bad[6].recv = a + 3;
    bad[7].reduce = (mics_reduce)9;
    bad[8].reduce = MICS_REDUCE_SUM_F32;
    bad[8].bytes = 10;
    ASSERT_OK(mics_comm_exchange(comm, &good));
    for (int i = 0; i < 11; i++)
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_exchange(comm, &bad[i]));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_broadcast(comm, 2, a, 16));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_broadcast(comm, -1, a, 16));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_broadcast(comm, 0, NULL, 16));
    mics_comm_close(comm);
    mics_comm_close(NULL);
    mics_thread_world_close(world);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_ring_arguments(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_thread_world *world = NULL;
    mics_comm *comm = NULL;
    float a[16] = {0};
    static const int32_t wrong_blocks[] = {0, 2}, negative_blocks[] = {-1, 0};
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_thread_world_open(memory, 4, 1, &world));
    ASSERT_OK(mics_comm_thread_open(memory, world, 1, &comm));
    const mics_ring good = {.group = {.first = 0, .stride = 1, .size = 2, .index = 1},
                            .what = "ring"};
    mics_ring bad[11];
    for (int i = 0; i < 11; i++)
        bad[i] = good;
    bad[0].group.index = 0; // that is another rank
    bad[1].group.index = 2;
    bad[2].group.size = 0;
    bad[3].group.stride = 4;
    bad[4].group.first = -1;
    bad[5].group.size = INT32_MAX;
    bad[6].block_of = wrong_blocks;
    bad[7].block_of = negative_blocks;
    bad[8].what = NULL;
    bad[9].channel = -1;
    bad[10].channel = MICS_CHANNELS;
    for (int i = 0; i < 11; i++) {
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_library_open(comm, &bad[i]));
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_library_gather(comm, &bad[i], a, 4));
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_gather(comm, &bad[i], a, 4));
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_reduce_scatter(comm, &bad[i], a, 1));
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_reduce(comm, &bad[i], a, 4));
    }
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_gather(comm, &good, a, SIZE_MAX / 2 + 1));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_gather(comm, &good, NULL, 4));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_reduce_scatter(comm, &good, a, -1));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_reduce_scatter(comm, &good, a, INT64_MAX));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_reduce(comm, &good, a, 3)); // 2 do not divide it
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_reduce(comm, &good, a, -2));
    mics_comm_close(comm);
    mics_thread_world_close(world);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_opening_arguments(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_thread_world *world = NULL;
    mics_comm *comm = NULL, *second = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_thread_world_open(memory, 0, 1, &world));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_thread_world_open(memory, 1, 0, &world));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_thread_world_open(memory, 1, -1, &world));
    assert_null(world);
    ASSERT_OK(mics_thread_world_open(memory, 2, 1e300, &world));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_thread_open(memory, world, 2, &comm));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_thread_open(memory, world, -1, &comm));
    ASSERT_OK(mics_comm_thread_open(memory, world, 1, &comm));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_thread_open(memory, world, 1, &second));
    assert_null(second);
    assert_int_equal(comm->rank, 1);
    assert_int_equal(comm->ranks, 2);
    assert_int_equal(comm->ranks_per_node, 2);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_count_open_take(memory, comm, 0, &second));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_fault_open_take(memory, comm, -1, &second));
    mics_comm_close(comm);
    ASSERT_OK(mics_comm_thread_open(memory, world, 1, &comm)); // free again
    mics_comm_close(comm);
    mics_thread_world_close(world);
    mics_thread_world_close(NULL);
    assert_int_equal(mics_memory_close(memory), 0);
}

static mics_status open_all(mics_memory *memory)
{
    mics_thread_world *world = NULL;
    mics_comm *comm = NULL, *wrapped = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_thread_world_open(memory, 3, 1, &world));
    MICS_TRY_OUT(mics_comm_thread_open(memory, world, 0, &comm));
    MICS_TRY_OUT(mics_comm_count_open_take(memory, comm, 1, &wrapped));
    comm = wrapped;
    MICS_TRY_OUT(mics_comm_fault_open_take(memory, comm, 0, &wrapped));
    comm = wrapped;
out:
    mics_comm_close(comm);
    mics_thread_world_close(world);
    return status;
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    int64_t failed = 0;
    mics_status status = MICS_ERR_MEMORY;
    while (status != MICS_OK) {
        mics_memory_stats stats;
        mics_memory_fail_after(memory, failed + 1);
        status = open_all(memory);
        mics_memory_fail_after(memory, 0);
        mics_memory_stats_get(memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
        if (status != MICS_OK)
            assert_int_equal(status, MICS_ERR_MEMORY);
        failed += status != MICS_OK;
    }
    assert_int_equal(failed, 6);
    assert_int_equal(mics_memory_close(memory), 0);
}

#define CAPTURED(test) cmocka_unit_test_setup_teardown(test, capture_start, capture_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_exchanges_broadcast_agree),
        cmocka_unit_test(test_interleaved_groups),
        cmocka_unit_test(test_counted_bytes),
        CAPTURED(test_fault_at_every_exchange),
        CAPTURED(test_fault_is_logged_once),
        CAPTURED(test_timeout_names_who_is_late),
        CAPTURED(test_timeout_tells_of_a_circle),
        cmocka_unit_test(test_two_channels),
        cmocka_unit_test(test_two_channels_are_counted),
        cmocka_unit_test(test_board),
        cmocka_unit_test(test_a_rank_falls_silent),
        CAPTURED(test_no_library),
        CAPTURED(test_late_handler),
        CAPTURED(test_late_handler_of_a_send),
        CAPTURED(test_timeout_of_a_send),
        CAPTURED(test_collectives_that_differ),
        CAPTURED(test_timeout_that_is_set),
        CAPTURED(test_timeouts_refused),
        CAPTURED(test_sizes_that_differ),
        CAPTURED(test_abort_while_a_message_is_read),
        CAPTURED(test_abort_says_why_once),
        CAPTURED(test_agreement_that_fails),
        CAPTURED(test_exchange_arguments),
        CAPTURED(test_ring_arguments),
        CAPTURED(test_opening_arguments),
        CAPTURED(test_every_allocation_fails),
    };
    return cmocka_run_group_tests_name("comm thread", tests, NULL, NULL);
}
