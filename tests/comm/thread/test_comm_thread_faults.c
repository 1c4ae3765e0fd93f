// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: what happens when a rank fails, is late or gone, or does something else than the others.
#include "comm/captured.h"
#include "comm/comm_checks.h"
#include "comm/fault.h"
#include "mics/core/transport.h"
#include <math.h>
#include <stdatomic.h>
#include <time.h>

// ---- failures and time-outs ----

typedef struct fault_case {
    int32_t rank;      // who fails
    int64_t countdown; // at which exchange
} fault_case;

static mics_status run_faulty(ranks_self *self)
{
    const fault_case *at = self->arg;
    int64_t countdown = self->comm->rank == at->rank ? at->countdown : 0;
    MICS_TRY(fault_open_take(self->memory, self->comm, countdown, &self->comm));
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
    assert_int_equal(good + count_of(statuses, ranks, MICS_ERR_ABORTED), ranks - 1);
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
            assert_true(countdown > 4 * (ranks - 1) + 2 * checks_hops(ranks) + 1);
        }
    }
}

static mics_status run_after_fault(ranks_self *self)
{
    MICS_TRY(fault_open_take(self->memory, self->comm, 1, &self->comm));
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

// Of a collective to which all are on their way: longer than any time that a machine stands still
// and that counts (MICS_STOOD_STILL_US).
static const double LATE_S = 1.5;

// Ranks start apart on a busy machine: who waits, and for how long, is decided when all are there.
static mics_status come_together(ranks_self *self)
{
    MICS_TRY(mics_comm_agree(self->comm, MICS_OK));
    return mics_comm_set_timeout(self->comm, LATE_S);
}

static void wait_for(const atomic_int *count, int reached)
{
    while (atomic_load(count) < reached)
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
}

typedef struct late_case {
    int32_t absent;
    atomic_int ended; // collectives
} late_case;

// A rank stays away until the others have given up; nobody aborts before its own time-out.
static mics_status run_late(ranks_self *self)
{
    late_case *late = self->arg;
    float buffer[64] = {0};
    mics_comm_group ring = world_ring(self->comm, "late gather");
    MICS_TRY(come_together(self));
    if (self->comm->rank == late->absent) {
        wait_for(&late->ended, 1);
        return MICS_OK;
    }
    const mics_status status = mics_comm_all_gather(self->comm, &ring, buffer, 4);
    atomic_fetch_add(&late->ended, 1);
    return status;
}

static void test_timeout_names_who_is_late(void **state)
{
    for (int32_t absent = 0; absent < 4; absent++) {
        mics_status statuses[4];
        late_case late = {.absent = absent};
        char text[64];
        capture_start(state);
        ranks_run_timeout(4, RANKS_TIMEOUT_S, run_late, &late, statuses);
        assert_true(count_of(statuses, 4, MICS_ERR_TIMEOUT) >= 1);
        assert_int_equal(
            count_of(statuses, 4, MICS_ERR_TIMEOUT) + count_of(statuses, 4, MICS_ERR_ABORTED), 3);
        assert_int_equal(captured.lines, 1);
        assert_logged("late gather: rank ");
        assert_logged("waited 1.5 s for rank");
        snprintf(text, sizeof text, "rank %d is in no exchange", (int)absent);
        assert_logged(text);
    }
}

// Each waits for a message from the next, and all offer theirs to somebody else.
static mics_status run_crossed(ranks_self *self)
{
    int32_t next = (self->comm->rank + 1) % self->comm->ranks;
    float a = 0, b = 0;
    MICS_TRY(come_together(self));
    return mics_comm_exchange(
        self->comm,
        &(mics_exchange){
            .to = next, .from = next, .send = &a, .recv = &b, .bytes = 4, .what = "crossed"});
}

static void test_timeout_tells_of_a_circle(void **state)
{
    (void)state;
    mics_status statuses[3];
    ranks_run_timeout(3, RANKS_TIMEOUT_S, run_crossed, NULL, statuses);
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
    mics_comm_group ring = world_ring(self->comm, self->comm->rank == 0 ? "gather a" : "gather b");
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

typedef struct patient_case {
    atomic_int left;  // the agreement: rank 0
    atomic_int ended; // its last: rank 1
} patient_case;

// Rank 0 works for longer than a collective may take, as in a save; then it is late all the same.
static mics_status run_patient(ranks_self *self)
{
    patient_case *at = self->arg;
    struct timespec work = {.tv_nsec = 300 * 1000 * 1000};
    bool works = self->comm->rank == 0;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 2, &self->comm));
    MICS_TRY(fault_open_take(self->memory, self->comm, 0, &self->comm));
    RANKS_EXPECT(mics_comm_set_timeout(self->comm, RANKS_TIMEOUT_S) == MICS_OK);
    if (works)
        nanosleep(&work, NULL);
    RANKS_EXPECT(mics_comm_agree(self->comm, MICS_OK) == MICS_OK);
    RANKS_EXPECT(mics_comm_set_timeout(self->comm, 0.1) == MICS_OK);
    if (works) {
        atomic_store(&at->left, 1);
        wait_for(&at->ended, 1);
        return MICS_OK;
    }
    wait_for(&at->left, 1);
    const mics_status status = mics_comm_agree(self->comm, MICS_OK);
    atomic_store(&at->ended, 1);
    return status;
}

static void test_timeout_that_is_set(void **state)
{
    (void)state;
    mics_status statuses[2];
    patient_case at = {0};
    ranks_run_timeout(2, 0.1, run_patient, &at, statuses);
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
    for (int i = 0; self->comm->rank < 2 && i < 20000 && status == MICS_OK; i++) // until then
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
        assert_int_equal(statuses[0], MICS_ERR_ABORTED);
        assert_int_equal(statuses[1], MICS_ERR_ABORTED);
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
    assert_int_equal(count_of(statuses, 4, MICS_ERR_ABORTED), 4);
    assert_int_equal(captured.lines, 1);
    assert_logged("the disk is full");
}

// A failure in agreement itself: this rank's own reason comes first.
static mics_status run_agree_broken(ranks_self *self)
{
    MICS_TRY(fault_open_take(self->memory, self->comm, 1, &self->comm));
    RANKS_EXPECT(mics_comm_agree(self->comm, MICS_OK) == MICS_ERR_COMM);
    RANKS_EXPECT(mics_comm_agree(self->comm, MICS_ERR_IO) == MICS_ERR_IO);
    for (int mine = 0; mine < 2; mine++) {
        bool any = mine == 0; // stays
        RANKS_EXPECT(mics_comm_any(self->comm, mine == 1, &any) == MICS_ERR_COMM);
        RANKS_EXPECT(any == (mine == 0));
    }
    return MICS_OK;
}

static void test_agreement_that_fails(void **state)
{
    (void)state;
    mics_status statuses[2];
    ranks_run_timeout(2, RANKS_TIMEOUT_S, run_agree_broken, NULL, statuses);
    assert_int_equal(count_of(statuses, 2, MICS_OK), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CAPTURED(test_fault_at_every_exchange),   CAPTURED(test_fault_is_logged_once),
        CAPTURED(test_timeout_names_who_is_late), CAPTURED(test_timeout_tells_of_a_circle),
        CAPTURED(test_timeout_of_a_send),         CAPTURED(test_collectives_that_differ),
        CAPTURED(test_timeout_that_is_set),       CAPTURED(test_timeouts_refused),
        CAPTURED(test_sizes_that_differ),         CAPTURED(test_abort_while_a_message_is_read),
        CAPTURED(test_abort_says_why_once),       CAPTURED(test_agreement_that_fails),
    };
    return cmocka_run_group_tests_name("comm thread faults", tests, NULL, NULL);
}
