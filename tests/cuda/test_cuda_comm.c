// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives on GPU buffers: by NCCL where each rank has a GPU, or NCCL lets ranks share one;
// staged where it does not. Ranks are threads.
#include "comm/call_checks.h"
#include "comm/captured.h"
#include "comm/comm_checks.h"
#include "gpu.h"
#include "mics/core/transport.h"
#include <stdlib.h>
#include <time.h>

enum { MOST_RINGS = 16, EVENTS = 4 };

static const int32_t crossed[] = {2, 0, 3, 1};

// One group of each kind, in plain or crossed order, on the channel (kind + order) % 2.
static int32_t fill_rings(const mics_comm *comm, mics_comm_group *rings)
{
    const int32_t kinds = checks_group(comm->ranks, comm->rank, -1, NULL);
    int32_t count = 0;
    for (int32_t kind = 0; kind < kinds; kind++) {
        mics_comm_group *ring = &rings[count++];
        *ring = (mics_comm_group){.channel = kind % 2, .what = "group of a test"};
        checks_group(comm->ranks, comm->rank, kind, &ring->group);
        if (ring->group.size != 4)
            continue;
        rings[count] = *ring;
        rings[count].block_of = crossed;
        rings[count++].channel = 1 - ring->channel;
    }
    return count;
}

static mics_status check_all(ranks_self *self, mics_device *device, const mics_comm_group *rings,
                             int32_t count, bool shared)
{
    static const int64_t sizes[] = {0, 1, 5, 24, 100, 1000};
    for (int32_t r = 0; r < count; r++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const call_case at = {.comm = self->comm,
                                  .memory = self->memory,
                                  .device = device,
                                  .group = rings[r].group,
                                  .block_of = rings[r].block_of,
                                  .channel = rings[r].channel,
                                  .elems = sizes[i],
                                  .frees_together = shared};
            MICS_TRY(checks_calls(&at));
        }
    }
    return MICS_OK;
}

typedef struct comm_test {
    mics_device_transport transport;
    bool shared; // all ranks use GPU 0
    const char *name;
} comm_test;

static mics_status run_with(ranks_self *self, const comm_test *test, mics_device *device)
{
    mics_comm_group rings[MOST_RINGS];
    const mics_device_comm_spec spec = {.device = device,
                                        .transport = test->transport,
                                        .piece_bytes = 1 << 10,
                                        .groups = rings,
                                        .group_count = fill_rings(self->comm, rings),
                                        .timeout_s = RANKS_TIMEOUT_S};
    MICS_TRY(mics_comm_device_open_take(self->memory, self->comm, &spec, &self->comm));
    RANKS_EXPECT(strcmp(self->comm->ops->name, test->name) == 0);
    MICS_TRY(check_all(self, device, rings, spec.group_count, test->shared));
    MICS_TRY(mics_comm_check(self->comm));
    // Control goes the inner comm's way.
    return mics_comm_agree(self->comm, MICS_OK);
}

static mics_status run(ranks_self *self)
{
    const comm_test *test = self->arg;
    mics_device *device = NULL;
    MICS_TRY(mics_device_cuda_open(test->shared ? 0 : self->comm->rank, EVENTS, &device));
    const mics_status status = run_with(self, test, device);
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_comm_close(self->comm);
    self->comm = NULL;
    mics_device_close(device);
    return status;
}

static void on_worlds(comm_test test)
{
    static const int32_t sizes[] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (test.shared || sizes[i] <= mics_cuda_find()->devices)
            ranks_run_ok(sizes[i], run, &test);
    }
}

static void test_nccl(void **state)
{
    (void)state;
    on_worlds((comm_test){MICS_TRANSPORT_NCCL, false, "nccl"});
}

// Calls that are made while their thread asks, and while it sleeps.
static void test_calls_in_progress(void **state)
{
    comm_test test = {MICS_TRANSPORT_NCCL, false, "nccl"};
    (void)state;
    if (mics_cuda_find()->devices < 2 || getenv("MICS_CUDA_PLUGIN") == NULL)
        skip();
    setenv("MICS_EMULATED_NCCL_CALL_US", "5", 1);
    ranks_run_ok(2, run, &test);
    setenv("MICS_EMULATED_NCCL_CALL_US", "100", 1);
    ranks_run_ok(2, run, &test);
    unsetenv("MICS_EMULATED_NCCL_CALL_US");
}

static void test_staged(void **state)
{
    (void)state;
    on_worlds((comm_test){MICS_TRANSPORT_STAGED, true, "staged"});
}

static void test_auto(void **state)
{
    (void)state;
    on_worlds((comm_test){MICS_TRANSPORT_AUTO, false, "nccl"});
}

static mics_status run_shared(ranks_self *self)
{
    comm_test test = {MICS_TRANSPORT_NCCL, true, "nccl"};
    mics_device *device = NULL;
    MICS_TRY(mics_device_cuda_open(0, EVENTS, &device));
    mics_status refused = run_with(self, &test, device);
    test.transport = MICS_TRANSPORT_AUTO;
    test.name = "staged";
    mics_status status = run_with(self, &test, device);
    mics_comm_close(self->comm);
    self->comm = NULL;
    mics_device_close(device);
    MICS_TRY(status);
    RANKS_EXPECT(refused == MICS_ERR_UNSUPPORTED);
    return MICS_OK;
}

// The line says what would work.
static void test_shared_gpu_is_refused(void **state)
{
    (void)state;
    if (gpu_is_shared_by_nccl())
        skip();
    ranks_run_ok(2, run_shared, NULL);
    assert_int_equal(captured.lines, 1);
    assert_logged("ranks 0 and 1 share GPU");
    assert_logged("2.30 or newer takes it with NCCL_MULTI_RANK_GPU_ENABLE=1 on all ranks");
    assert_logged("MICS_TRANSPORT_STAGED goes through host memory");
}

// A user who asks for it, and whose NCCL is too old, hears it.
static void test_old_nccl_is_not_shared(void **state)
{
    (void)state;
    if (getenv("NCCL_MULTI_RANK_GPU_ENABLE") != NULL || getenv("MICS_CUDA_PLUGIN") == NULL)
        skip();
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    comm_test test = {MICS_TRANSPORT_AUTO, true, "staged"};
    ranks_run_ok(2, run, &test);
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    assert_int_equal(captured.lines, 1);
    assert_logged("collectives go through the host's memory, which is slow: ranks");
    assert_logged("rank 0 has 2.28");
}

static mics_status run_crowded(ranks_self *self)
{
    comm_test test = {MICS_TRANSPORT_NCCL, true, "nccl"};
    mics_device *device = NULL;
    MICS_TRY(mics_device_cuda_open(0, EVENTS, &device));
    const mics_status refused = run_with(self, &test, device);
    mics_comm_close(self->comm);
    self->comm = NULL;
    mics_device_close(device);
    RANKS_EXPECT(refused == MICS_ERR_UNSUPPORTED);
    return MICS_OK;
}

static void test_shared_gpu(void **state)
{
    (void)state;
    if (!gpu_is_shared_by_nccl())
        skip();
    on_worlds((comm_test){MICS_TRANSPORT_NCCL, true, "nccl"});
    on_worlds((comm_test){MICS_TRANSPORT_AUTO, true, "nccl"});
    assert_int_equal(captured.lines, 0);
    ranks_run_ok(9, run_crowded, NULL);
    assert_logged("9 ranks share GPU");
}

// ---- registered buffers ----

enum { REGISTERED_ELEMS = 64 };

// Every rank's block holds its number.
static mics_status gather_numbers(const ranks_self *self, mics_device *device,
                                  const mics_comm_group *ring, float *on_device)
{
    float numbers[2 * REGISTERED_ELEMS];
    const int32_t rank = self->comm->rank;
    const size_t bytes = REGISTERED_ELEMS * sizeof(float);
    for (int i = 0; i < REGISTERED_ELEMS; i++)
        numbers[i] = (float)(rank + 1);
    const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_GATHER,
                                 .over = ring,
                                 .buffer = on_device,
                                 .block_elems = REGISTERED_ELEMS};
    device->ops->copy(device->ctx, 1, on_device + rank * REGISTERED_ELEMS, numbers, bytes);
    MICS_TRY(mics_comm_collective(self->comm, &call));
    device->ops->copy(device->ctx, 1, numbers, on_device, 2 * bytes);
    MICS_TRY(device->ops->synchronize(device->ctx, 1));
    for (int i = 0; i < 2 * REGISTERED_ELEMS; i++)
        RANKS_EXPECT(numbers[i] == (float)(i / REGISTERED_ELEMS + 1));
    return MICS_OK;
}

static mics_status run_registered(ranks_self *self)
{
    mics_device *device = NULL;
    mics_comm_group ring = {.group = {.stride = 1, .size = 2, .index = self->comm->rank},
                            .what = "registered gather"};
    void *blocks[2] = {NULL, NULL};
    const size_t bytes = 2 * REGISTERED_ELEMS * sizeof(float);
    MICS_TRY(mics_device_cuda_open(self->comm->rank, EVENTS, &device));
    const mics_device_comm_spec spec = {.device = device,
                                        .transport = MICS_TRANSPORT_NCCL,
                                        .piece_bytes = 1 << 10,
                                        .groups = &ring,
                                        .group_count = 1,
                                        .timeout_s = RANKS_TIMEOUT_S};
    MICS_TRY(mics_comm_device_open_take(self->memory, self->comm, &spec, &self->comm));
    for (int i = 0; i < 2; i++)
        MICS_TRY(device->ops->alloc(device->ctx, bytes, &blocks[i]));
    const mics_comm_buffer buffers[] = {{blocks[0], bytes}, {blocks[1], bytes}};
    MICS_TRY(mics_comm_register(self->comm, buffers, 2));
    for (int i = 0; i < 2; i++)
        MICS_TRY(gather_numbers(self, device, &ring, blocks[i]));
    mics_comm_unregister(self->comm);
    MICS_TRY(mics_comm_register(self->comm, buffers, 1)); // once more, for the comm's own close
    device->ops->free(device->ctx, blocks[1]);
    mics_comm_close(self->comm);
    self->comm = NULL;
    device->ops->free(device->ctx, blocks[0]);
    mics_device_close(device);
    return MICS_OK;
}

static void test_registered_buffers(void **state)
{
    (void)state;
    if (mics_cuda_find()->devices < 2)
        skip();
    ranks_run_ok(2, run_registered, NULL);
    assert_int_equal(captured.lines, 0);
}

// One line for each of two calls, and the same gathers.
static void test_refused_buffers(void **state)
{
    static const char *const ways[][2] = {
        {"none", "NCCL_LOCAL_REGISTER=1 allows it"},
        {"one", "another rank cannot"},
        {"fail", "an error of the emulation"},
    };
    (void)state;
    if (mics_cuda_find()->devices < 2 || getenv("MICS_CUDA_PLUGIN") == NULL)
        skip();
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        captured.lines = 0;
        setenv("MICS_EMULATED_NCCL_REGISTER", ways[i][0], 1);
        ranks_run_ok(2, run_registered, NULL);
        unsetenv("MICS_EMULATED_NCCL_REGISTER");
        assert_int_equal(captured.lines, 2);
        assert_logged("NCCL registers no buffers");
        assert_logged(ways[i][1]);
    }
}

// One gather a channel. They end by the world's end alone, with whoever waits for them.
static mics_status gather_alone(mics_comm *comm, mics_device *device, const mics_comm_group *rings,
                                char *block)
{
    bool done = false;
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++) {
        const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_GATHER,
                                     .over = &rings[channel],
                                     .buffer = block + channel * 512,
                                     .block_elems = 64};
        MICS_TRY(mics_comm_collective(comm, &call));
        device->ops->record(device->ctx, channel + 1, channel);
    }
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++) {
        MICS_TRY(device->ops->poll(device->ctx, channel, &done));
        RANKS_EXPECT(!done);
    }
    mics_comm_abort(comm, NULL);
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++) {
        const mics_comm_call call = {.over = &rings[channel], .buffer = block, .block_elems = 64};
        device->ops->synchronize(device->ctx, channel + 1);
        RANKS_EXPECT(mics_comm_collective(comm, &call) == MICS_ERR_ABORTED);
    }
    RANKS_EXPECT(mics_comm_check(comm) == MICS_ERR_ABORTED);
    return MICS_OK;
}

// Rank 1 leaves rank 0 alone.
static mics_status run_left_alone(ranks_self *self)
{
    mics_device *device = NULL;
    mics_comm_group rings[MICS_CHANNELS];
    void *block = NULL;
    MICS_TRY(mics_device_cuda_open(self->comm->rank, EVENTS, &device));
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++)
        rings[channel] =
            (mics_comm_group){.group = {.stride = 1, .size = 2, .index = self->comm->rank},
                              .channel = channel,
                              .what = "lonely gather"};
    const mics_device_comm_spec spec = {.device = device,
                                        .transport = MICS_TRANSPORT_NCCL,
                                        .piece_bytes = 1 << 10,
                                        .groups = rings,
                                        .group_count = MICS_CHANNELS,
                                        .timeout_s = RANKS_TIMEOUT_S};
    MICS_TRY(mics_comm_device_open_take(self->memory, self->comm, &spec, &self->comm));
    MICS_TRY(device->ops->alloc(device->ctx, 1 << 10, &block));
    if (self->comm->rank == 0)
        MICS_TRY(gather_alone(self->comm, device, rings, block));
    device->ops->free(device->ctx, block);
    mics_comm_close(self->comm);
    self->comm = NULL;
    mics_device_close(device);
    return MICS_OK;
}

static void test_abort_ends_what_is_enqueued(void **state)
{
    (void)state;
    if (mics_cuda_find()->devices < 2)
        skip();
    ranks_run_ok(2, run_left_alone, NULL);
    assert_int_equal(captured.lines, 0);
}

// Rank 1 never connects: an error in time, not a hang.
static mics_status run_unconnected(ranks_self *self)
{
    mics_device *device = NULL;
    mics_comm *comm = NULL;
    const mics_comm_group ring = {.group = {.first = self->comm->rank, .stride = 1, .size = 1},
                                  .what = "group of a test"};
    const mics_comm_group both = {.group = {.stride = 1, .size = 2, .index = self->comm->rank},
                                  .what = "group of both"};
    MICS_TRY(mics_device_cuda_open(self->comm->rank, EVENTS, &device));
    const mics_device_comm_spec spec = {.device = device,
                                        .transport = MICS_TRANSPORT_NCCL,
                                        .piece_bytes = 1 << 10,
                                        .groups = self->comm->rank == 0 ? &both : &ring,
                                        .group_count = 1,
                                        .timeout_s = self->comm->rank == 0 ? 0.3 : RANKS_TIMEOUT_S};
    mics_status status = mics_comm_device_open_take(self->memory, self->comm, &spec, &comm);
    if (self->comm->rank == 1) {  // gives its address and goes
        char ids[2][128] = {{0}}; // of an ncclUniqueId each
        MICS_TRY(status);
        self->comm = comm;
        const mics_comm_group on_host = {.group = both.group, .what = "addresses for NCCL"};
        MICS_TRY(mics_comm_all_gather(self->comm, &on_host, ids, sizeof ids[0]));
    }
    RANKS_EXPECT(status == (self->comm->rank == 0 ? MICS_ERR_TIMEOUT : MICS_OK));
    mics_comm_close(self->comm);
    self->comm = NULL;
    mics_device_close(device);
    return MICS_OK;
}

static void test_a_rank_that_never_connects(void **state)
{
    (void)state;
    if (mics_cuda_find()->devices < 2)
        skip();
    ranks_run_ok(2, run_unconnected, NULL);
    assert_logged("group of both: NCCL has not connected this rank");
}

int main(void)
{
    const int missing = gpu_missing();
    if (missing != 0)
        return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nccl, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_calls_in_progress, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_staged, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_auto, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_shared_gpu_is_refused, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_old_nccl_is_not_shared, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_shared_gpu, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_registered_buffers, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_refused_buffers, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_abort_ends_what_is_enqueued, capture_start,
                                        capture_end),
        cmocka_unit_test_setup_teardown(test_a_rank_that_never_connects, capture_start,
                                        capture_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
