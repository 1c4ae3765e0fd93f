// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: every collective against a plain sum, the bytes against their formulas; arguments
// that are refused, and every allocation failing.
#include "comm/captured.h"
#include "comm/comm_checks.h"
#include "comm/fault.h"
#include "mics/core/transport.h"

static const int32_t world_sizes[] = {1, 2, 3, 4, 8, 64};
enum { WORLD_SIZES = sizeof world_sizes / sizeof world_sizes[0] };

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
    MICS_TRY(checks_share(self->comm, 24));
    MICS_TRY(checks_share(self->comm, 30 * 1000));
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

// ---- counted bytes ----

typedef struct count_case {
    int32_t ranks_per_node;
    int32_t kind; // of group
} count_case;

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
    mics_comm_group ring = {.what = "counted"};
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
    RANKS_EXPECT(sent.intra_bytes + sent.inter_bytes == 4 * checks_hops(self->comm->ranks));
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

// ---- doubling ----

enum { CARD_BYTES = 88, MAX_CARDS = 40 };

// The ring's bits and as many bytes as the ring sends, of which each rank sends one block to another
// node for each of them, in as few exchanges as there can be. An empty one is a barrier.
static mics_status run_doubling(ranks_self *self)
{
    const count_case *at = self->arg;
    const int32_t ranks = self->comm->ranks, per_node = at->ranks_per_node;
    const int32_t nodes = ranks / per_node;
    static const size_t blocks[] = {CARD_BYTES, 1, 0};
    unsigned char gathered[MAX_CARDS * CARD_BYTES], work[MAX_CARDS * CARD_BYTES] = {0};
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, per_node, &self->comm));
    mics_comm_group world = {.what = "cards"};
    checks_group(ranks, self->comm->rank, 0, &world.group);
    mics_traffic before = {0};
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
        const size_t bytes = blocks[b];
        memset(gathered, 0xee, sizeof gathered);
        for (size_t i = 0; i < bytes; i++)
            gathered[(size_t)self->comm->rank * bytes + i] =
                (unsigned char)(self->comm->rank * 37 + (int32_t)i);
        MICS_TRY(mics_comm_all_gather_doubling(self->comm, &world, gathered, work, bytes));
        const mics_traffic sent = since(self->comm, &before);
        for (size_t i = 0; i < (size_t)ranks * bytes; i++)
            RANKS_EXPECT(gathered[i] == (unsigned char)(i / bytes * 37 + i % bytes));
        RANKS_EXPECT(sent.inter_bytes == (nodes - 1) * (int64_t)bytes);
        RANKS_EXPECT(sent.intra_bytes == (ranks - nodes) * (int64_t)bytes);
        RANKS_EXPECT(sent.exchanges == checks_hops(nodes) + checks_hops(per_node));
    }
    return MICS_OK;
}

static void test_doubling(void **state)
{
    (void)state;
    static const int32_t nodes[] = {1, 2, 3, 5, 8};
    for (size_t n = 0; n < sizeof nodes / sizeof nodes[0]; n++) {
        for (int32_t per_node = 1; per_node <= 5; per_node++) {
            count_case at = {.ranks_per_node = per_node};
            ranks_run_ok(nodes[n] * per_node, run_doubling, &at);
        }
    }
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
    const mics_comm_group good = {.group = {.first = 0, .stride = 1, .size = 2, .index = 1},
                                  .what = "ring"};
    mics_comm_group bad[11];
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
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_gather(comm, &bad[i], a, 4));
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_gather_doubling(comm, &bad[i], a, a + 8, 4));
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_reduce_scatter(comm, &bad[i], a, 1));
        ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_reduce(comm, &bad[i], a, 4));
    }
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_gather(comm, &good, a, SIZE_MAX / 2 + 1));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_gather(comm, &good, NULL, 4));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_comm_all_gather_doubling(comm, &good, a, NULL, 4));
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
    ASSERT_STATUS(MICS_ERR_INVALID, fault_open_take(memory, comm, -1, &second));
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
    MICS_TRY_OUT(fault_open_take(memory, comm, 0, &wrapped));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_exchanges_broadcast_agree),
        cmocka_unit_test(test_interleaved_groups),
        cmocka_unit_test(test_counted_bytes),
        cmocka_unit_test(test_doubling),
        CAPTURED(test_exchange_arguments),
        CAPTURED(test_ring_arguments),
        CAPTURED(test_opening_arguments),
        CAPTURED(test_every_allocation_fails),
    };
    return cmocka_run_group_tests_name("comm thread", tests, NULL, NULL);
}
