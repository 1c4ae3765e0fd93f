// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The device table of a GPU: memory, copies, events and what they are timed by, failures.
#include "base/capture.h"
#include "base/clock.h"
#include "cuda/gpu.h"
#include "mics/core/device.h"
#include "test.h"
#include <string.h>
#include <unistd.h>

enum { EVENTS = 4 };

static capture seen;
static mics_device *device;

static void wait_event(int32_t event)
{
    bool done = false;
    while (!done) {
        ASSERT_OK(device->ops->poll(device->ctx, event, &done));
        usleep(50);
    }
}

static void test_findings(void **state)
{
    (void)state;
    const mics_cuda_findings *findings = mics_cuda_find();
    mics_device_info info;
    assert_true(findings->plugin);
    assert_true(findings->devices >= 1);
    assert_string_equal(findings->why_not, "");
    assert_string_not_equal(findings->plugin_path, "");
    assert_string_not_equal(findings->driver, "");
    assert_string_not_equal(findings->runtime, "");
    ASSERT_OK(mics_cuda_device_info(0, &info));
    assert_string_not_equal(info.name, "");
    assert_true(info.memory_total_bytes > 0);
    assert_non_null(strstr(info.detail, "compute capability"));
    assert_int_equal(mics_cuda_device_info(1000, &info), MICS_ERR_UNSUPPORTED);
    assert_int_equal(mics_cuda_link(0, 1000), MICS_CUDA_LINK_HOST);
    assert_null(mics_plugin_symbol("mics_plugin_nothing"));
    mics_device *other = NULL;
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, mics_device_cuda_open(1000, 0, &other));
    ASSERT_SAID(&seen, "there is no GPU 1000");
    assert_null(other);
}

static void test_copies(void **state)
{
    (void)state;
    void *block, *second, *staging;
    unsigned char mine[1000];
    ASSERT_OK(device->ops->alloc(device->ctx, sizeof mine, &block));
    ASSERT_OK(device->ops->alloc(device->ctx, sizeof mine, &second));
    ASSERT_OK(device->ops->alloc_host(device->ctx, sizeof mine, &staging));
    assert_int_equal((uintptr_t)block % 256, 0);
    // zeroed
    device->ops->copy(device->ctx, 0, staging, block, sizeof mine);
    ASSERT_OK(device->ops->synchronize(device->ctx, 0));
    for (size_t i = 0; i < sizeof mine; i++)
        assert_int_equal(((unsigned char *)staging)[i], 0);
    // the host's memory, through the device twice, into page-locked memory
    for (size_t i = 0; i < sizeof mine; i++)
        mine[i] = (unsigned char)(i * 7);
    device->ops->copy(device->ctx, 0, block, mine, sizeof mine);
    device->ops->copy(device->ctx, 0, second, block, sizeof mine);
    device->ops->zero(device->ctx, 0, (char *)second + 10, 20);
    device->ops->copy(device->ctx, 0, staging, second, sizeof mine);
    ASSERT_OK(device->ops->synchronize(device->ctx, 0));
    memset(mine + 10, 0, 20);
    assert_memory_equal(staging, mine, sizeof mine);
    device->ops->free(device->ctx, NULL);
    device->ops->free(device->ctx, block);
    device->ops->free(device->ctx, second);
    device->ops->free_host(device->ctx, staging);
}

// What one stream writes is read by the next only after its event, ten times around.
static void test_streams(void **state)
{
    (void)state;
    void *blocks[MICS_DEVICE_STREAMS], *staging;
    int64_t last = 0;
    ASSERT_OK(device->ops->alloc_host(device->ctx, 10 * sizeof(int64_t), &staging));
    for (int i = 0; i < MICS_DEVICE_STREAMS; i++)
        ASSERT_OK(device->ops->alloc(device->ctx, sizeof(int64_t), &blocks[i]));
    for (int round = 0; round < 10; round++) {
        int64_t *value = (int64_t *)staging + round;
        *value = round + 100;
        device->ops->wait(device->ctx, 0, 3); // of the round before; at first never recorded
        device->ops->copy(device->ctx, 0, blocks[0], value, sizeof *value);
        for (int stream = 1; stream < MICS_DEVICE_STREAMS; stream++) {
            device->ops->record(device->ctx, stream - 1, stream);
            device->ops->wait(device->ctx, stream, stream);
            device->ops->copy(device->ctx, stream, blocks[stream], blocks[stream - 1],
                              sizeof *value);
        }
        device->ops->record(device->ctx, MICS_DEVICE_STREAMS - 1, 3);
        if (round % 3 == 0)
            wait_event(3);
        device->ops->copy(device->ctx, MICS_DEVICE_STREAMS - 1, &last,
                          blocks[MICS_DEVICE_STREAMS - 1], sizeof last);
        ASSERT_OK(device->ops->synchronize(device->ctx, MICS_DEVICE_STREAMS - 1));
        assert_int_equal(last, round + 100);
    }
    ASSERT_OK(device->ops->check(device->ctx));
    device->ops->free_host(device->ctx, staging);
    for (int i = 0; i < MICS_DEVICE_STREAMS; i++)
        device->ops->free(device->ctx, blocks[i]);
}

// An event that was asked for too early is not taken for the failure of the next launch.
static void test_early_question(void **state)
{
    (void)state;
    void (*launched)(const char *) =
        (void (*)(const char *))(uintptr_t)mics_plugin_symbol("mics_cuda_launched");
    void *block;
    bool done = true;
    assert_non_null(launched);
    ASSERT_OK(device->ops->alloc(device->ctx, 1 << 20, &block));
    for (int i = 0; i < 100 && done; i++) {
        device->ops->zero(device->ctx, 1, block, 1 << 20);
        device->ops->record(device->ctx, 1, 0);
        ASSERT_OK(device->ops->poll(device->ctx, 0, &done));
        launched("a kernel");
        ASSERT_OK(device->ops->check(device->ctx));
    }
    ASSERT_OK(device->ops->synchronize(device->ctx, 1));
    device->ops->free(device->ctx, block);
}

static void test_times(void **state)
{
    (void)state;
    bool done = false;
    ASSERT_OK(device->ops->poll(device->ctx, 0, &done));
    assert_true(done); // never recorded: nothing to reach
    const double before_us = mics_clock_us();
    device->ops->record(device->ctx, 1, 0);
    wait_event(0);
    usleep(3000);
    device->ops->record(device->ctx, 2, 1);
    wait_event(1);
    const double after_us = mics_clock_us();
    const double first_us = device->ops->event_us(device->ctx, 0);
    const double second_us = device->ops->event_us(device->ctx, 1);
    // One clock; on a busy machine its reference may be known badly.
    assert_true(first_us > before_us - 1e5 && second_us < after_us + 1e5);
    assert_true(second_us - first_us > 2e3);
}

static void test_memory_ends(void **state)
{
    (void)state;
    void *block = &block;
    ASSERT_STATUS(MICS_ERR_MEMORY, device->ops->alloc(device->ctx, (size_t)1 << 50, &block));
    ASSERT_SAID(&seen, "GPU 0: 1125899906842624 bytes were asked for, and ");
    assert_ptr_equal(block, &block);
    ASSERT_OK(device->ops->check(device->ctx)); // that is no failure of the device
    ASSERT_OK(device->ops->alloc(device->ctx, 0, &block));
    device->ops->free(device->ctx, block);
}

static int closed;
static void count_close(void *object)
{
    closed += *(int *)object;
}

static void test_what_is_kept_beside(void **state)
{
    (void)state;
    static int one = 1;
    mics_device *other = NULL;
    void *left;
    mics_device_info info;
    ASSERT_OK(mics_device_cuda_open(0, 0, &other));
    static int second = 10;
    for (int i = 0; i < MICS_DEVICE_KEEPERS; i++)
        assert_null(other->ops->kept(other->ctx, (mics_device_keeper)i));
    other->ops->keep(other->ctx, MICS_DEVICE_GEMMS, &one, count_close);
    other->ops->keep(other->ctx, MICS_DEVICE_ATTENTION, &second, count_close);
    assert_ptr_equal(other->ops->kept(other->ctx, MICS_DEVICE_GEMMS), &one);
    assert_ptr_equal(other->ops->kept(other->ctx, MICS_DEVICE_ATTENTION), &second);
    other->ops->info(other->ctx, &info);
    assert_true(info.memory_free_bytes > 0 && info.memory_free_bytes <= info.memory_total_bytes);
    other->ops->range_begin(other->ctx, "unit 3");
    other->ops->range_end(other->ctx);
    assert_non_null(other->ops->stream_handle(other->ctx, 2));
    assert_false(other->is_host);
    // What is left is freed.
    ASSERT_OK(other->ops->alloc(other->ctx, 100, &left));
    ASSERT_OK(other->ops->alloc_host(other->ctx, 100, &left));
    mics_device_close(other);
    assert_int_equal(closed, 11);
}

static void test_failure_is_kept(void **state)
{
    (void)state;
    bool done;
    mics_device *other = NULL;
    ASSERT_OK(mics_device_cuda_open(0, 1, &other));
    (other->ops->fail)(other->ctx, "cublasLtMatmul: not supported");
    ASSERT_SAID(&seen, "GPU 0: a library's call failed: cublasLtMatmul: not supported");
    (other->ops->fail)(other->ctx, "and again");
    ASSERT_STATUS(MICS_ERR_DEVICE, other->ops->check(other->ctx));
    ASSERT_STATUS(MICS_ERR_DEVICE, other->ops->poll(other->ctx, 0, &done));
    ASSERT_STATUS(MICS_ERR_DEVICE, other->ops->synchronize(other->ctx, 1));
    mics_device_close(other);
    // A device that is opened anew knows nothing of it.
    ASSERT_OK(mics_device_cuda_open(0, 1, &other));
    ASSERT_OK(other->ops->check(other->ctx));
    mics_device_close(other);
}

static int setup(void **state)
{
    (void)state;
    capture_begin(&seen);
    return mics_device_cuda_open(0, EVENTS, &device) == MICS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    mics_device_close(device);
    capture_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_findings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_streams, setup, teardown),
        cmocka_unit_test_setup_teardown(test_early_question, setup, teardown),
        cmocka_unit_test_setup_teardown(test_times, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_kept_beside, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failure_is_kept, setup, teardown),
    };
    const int missing = gpu_missing();
    return missing != 0 ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
