// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// NCCL with one rank, so on any machine with a GPU: that the library is found, takes our
// configuration, and does what each call of src/comm/nccl/nccl.c asks of it.
//
// mics_comm_device_open_take gives groups of one no communicator, so the comm is opened by the
// plugin's own entry. One rank's collectives in place leave all as it is; what moves data is a
// block sent to itself.
#include "base/clock.h"
#include "comm/captured.h"
#include "comm/internal.h"
#include "gpu.h"
#include "mics/core/transport.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EVENTS = 1,
    ELEMS = 3001,
    GUARD = 16,
    DEADLINE_S = 60,
    TIMEOUT_S = 20,
    CALLS_IN_FLIGHT = 50,
    TIMED_CALLS = 200
};

// Functions of the plugin.
static comm_nccl_open_take open_take;
static comm_nccl_to_itself to_itself;
static comm_nccl_why_not why_not;

// One rank on GPU 0. A communicator a channel, as a group inside nodes and one between them have.
typedef struct smoke {
    mics_device *device;
    mics_comm *comm;
    mics_comm_group rings[MICS_CHANNELS];
    mics_memory *memory;
    // Of ELEMS fp32 and a guard at each end: buffer and incoming, behind each other.
    char *block;
    size_t half_bytes;
} smoke;

static char *buffer_of(const smoke *s)
{
    return s->block + GUARD;
}

static char *incoming_of(const smoke *s)
{
    return s->block + s->half_bytes + GUARD;
}

// ---- opening ----

static mics_status smoke_open(ranks_self *self, int32_t channels, smoke *s)
{
    void *block = NULL;
    *s = (smoke){.memory = self->memory, .half_bytes = ELEMS * sizeof(float) + 2 * GUARD};
    MICS_TRY(mics_device_cuda_open(0, EVENTS, &s->device));
    for (int32_t channel = 0; channel < channels; channel++)
        s->rings[channel] = (mics_comm_group){.group = {.stride = 1, .size = 1},
                                              .channel = channel,
                                              .what = channel == 0 ? "near group" : "far group"};
    const mics_device_comm_spec spec = {.device = s->device,
                                        .transport = MICS_TRANSPORT_NCCL,
                                        .groups = s->rings,
                                        .group_count = channels,
                                        .timeout_s = TIMEOUT_S};
    const comm_nccl_terms terms = {.ctas = mics_nccl_choose_ctas(1, 0), .sharers = 1};
    MICS_TRY(open_take(self->memory, self->comm, &spec, &terms, &s->comm));
    self->comm = s->comm; // for ranks.h, should the test end early
    MICS_TRY(s->device->ops->alloc(s->device->ctx, 2 * s->half_bytes, &block));
    s->block = block;
    return MICS_OK;
}

static void smoke_close(ranks_self *self, smoke *s)
{
    mics_comm_close(s->comm); // before the memory that it may have registered
    self->comm = NULL;
    s->device->ops->free(s->device->ctx, s->block);
    mics_device_close(s->device);
}

static mics_status register_block(const smoke *s)
{
    const mics_comm_buffer buffer = {s->block, 2 * s->half_bytes};
    return mics_comm_register(s->comm, &buffer, 1);
}

// ---- calls ----

// Bytes that no other place or case holds: whole small numbers in fp32, else any bits.
static void put(mics_dtype dtype, int case_number, int64_t elem, char *to)
{
    const float value = (float)(case_number * 1000 + elem % 997 - 400);
    const uint16_t bits = (uint16_t)(case_number * 4099 + elem * 17 + 1);
    if (dtype == MICS_DTYPE_FP32)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &bits, sizeof bits);
}

// What the device's block holds before a call: numbers in the buffer, 0xa5 everywhere else.
static char *fill(const smoke *s, mics_dtype dtype, int case_number, char *host)
{
    const size_t bytes = mics_dtype_bytes(dtype);
    memset(host, 0xa5, 2 * s->half_bytes);
    for (int64_t i = 0; i < ELEMS; i++)
        put(dtype, case_number, i, host + GUARD + (size_t)i * bytes);
    return host;
}

// Runs a call on numbers of its own and compares every byte of the block with what it must hold.
static mics_status check_call(const smoke *s, const mics_comm_call *call, int case_number)
{
    const mics_device_ops *ops = s->device->ops;
    const int32_t stream = call->over->channel + 1;
    const size_t bytes = ELEMS * mics_dtype_bytes(call->dtype);
    void *block = NULL;
    MICS_TRY(mics_alloc(s->memory, MICS_MEM_HOST, 4 * s->half_bytes, &block));
    char *expected = fill(s, call->dtype, case_number, block),
         *found = expected + 2 * s->half_bytes;
    ops->copy(s->device->ctx, stream, s->block, expected, 2 * s->half_bytes);
    if (call->incoming != NULL)
        memcpy(expected + s->half_bytes + GUARD, expected + GUARD, bytes);
    mics_status status =
        call->incoming != NULL ? to_itself(s->comm, call) : mics_comm_collective(s->comm, call);
    ops->copy(s->device->ctx, stream, found, s->block, 2 * s->half_bytes);
    if (status == MICS_OK)
        status = ops->synchronize(s->device->ctx, stream);
    size_t at = 0;
    while (at < 2 * s->half_bytes && found[at] == expected[at])
        at++;
    if (status == MICS_OK && at < 2 * s->half_bytes)
        status = mics_fail(MICS_ERR_NUMERIC, "%s, call %d in %s: byte %zu of %zu is wrong",
                           call->over->what, case_number, mics_dtype_text(call->dtype), at,
                           2 * s->half_bytes);
    mics_free(s->memory, block);
    return status;
}

// A collective of each kind, and a block to itself, in all formats that they take.
static mics_status check_calls(const smoke *s, const mics_comm_group *ring)
{
    static const mics_comm_call_kind summed[] = {MICS_COMM_CALL_REDUCE_SCATTER,
                                                 MICS_COMM_CALL_ALL_REDUCE};
    int case_number = 0;
    mics_comm_call call = {.over = ring, .buffer = buffer_of(s), .block_elems = ELEMS};
    for (size_t i = 0; i < sizeof summed / sizeof summed[0]; i++) {
        call.kind = summed[i];
        MICS_TRY(check_call(s, &call, ++case_number));
    }
    for (int dtype = 0; dtype < MICS_DTYPES; dtype++) {
        call.dtype = (mics_dtype)dtype;
        call.kind = MICS_COMM_CALL_ALL_GATHER;
        MICS_TRY(check_call(s, &call, ++case_number));
        call.kind = MICS_COMM_CALL_ALL_TO_ALL; // an empty group of sends and receives
        MICS_TRY(check_call(s, &call, ++case_number));
        call.incoming = incoming_of(s);
        MICS_TRY(check_call(s, &call, ++case_number));
        call.incoming = NULL;
    }
    return MICS_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// What a call costs the thread that makes it; printed, as it depends on the machine.
static mics_status time_calls(const smoke *s, const mics_comm_group *ring)
{
    double took_us[TIMED_CALLS];
    const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_GATHER,
                                 .over = ring,
                                 .buffer = buffer_of(s),
                                 .block_elems = ELEMS};
    for (int i = 0; i < TIMED_CALLS; i++) {
        const double begin_us = mics_clock_us();
        MICS_TRY(mics_comm_collective(s->comm, &call));
        took_us[i] = mics_clock_us() - begin_us;
        MICS_TRY(s->device->ops->synchronize(s->device->ctx, ring->channel + 1));
    }
    qsort(took_us, TIMED_CALLS, sizeof took_us[0], by_value);
    print_message("a call costs its thread %.1f us, the median of %d; 9 of 10 at most %.1f\n",
                  took_us[TIMED_CALLS / 2], TIMED_CALLS, took_us[TIMED_CALLS * 9 / 10]);
    return MICS_OK;
}

// ---- cases ----

// From a unique id to ncclCommFinalize and ncclCommDestroy, with nothing between.
static mics_status run_open_and_close(ranks_self *self)
{
    smoke s;
    MICS_TRY(smoke_open(self, 1, &s));
    RANKS_EXPECT(strcmp(s.comm->ops->name, "nccl") == 0);
    MICS_TRY(mics_comm_check(s.comm));
    smoke_close(self, &s);
    return MICS_OK;
}

static mics_status run_calls(ranks_self *self)
{
    smoke s;
    MICS_TRY(smoke_open(self, MICS_CHANNELS, &s));
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++)
        MICS_TRY(check_calls(&s, &s.rings[channel]));
    MICS_TRY(time_calls(&s, &s.rings[0]));
    MICS_TRY(mics_comm_check(s.comm));
    smoke_close(self, &s);
    return MICS_OK;
}

// The calls are NCCL's: without a communicator there is none that moves a block.
static mics_status run_unopened(ranks_self *self)
{
    smoke s;
    MICS_TRY(smoke_open(self, 1, &s));
    const mics_comm_group other = {
        .group = {.stride = 1, .size = 1}, .channel = 1, .what = "other group"};
    const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_TO_ALL,
                                 .over = &other,
                                 .buffer = buffer_of(&s),
                                 .incoming = incoming_of(&s),
                                 .block_elems = ELEMS};
    RANKS_EXPECT(to_itself(s.comm, &call) == MICS_ERR_INVALID);
    smoke_close(self, &s);
    return MICS_OK;
}

static mics_status run_registered(ranks_self *self)
{
    smoke s;
    MICS_TRY(smoke_open(self, MICS_CHANNELS, &s));
    MICS_TRY(register_block(&s));
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++)
        MICS_TRY(check_calls(&s, &s.rings[channel]));
    mics_comm_unregister(s.comm);
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++)
        MICS_TRY(check_calls(&s, &s.rings[channel]));
    MICS_TRY(register_block(&s)); // for the close
    smoke_close(self, &s);
    return MICS_OK;
}

// Both channels have work enqueued, nobody has waited for it, and buffers are registered.
static mics_status run_aborted(ranks_self *self)
{
    smoke s;
    MICS_TRY(smoke_open(self, MICS_CHANNELS, &s));
    MICS_TRY(register_block(&s));
    mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_TO_ALL,
                           .buffer = buffer_of(&s),
                           .incoming = incoming_of(&s),
                           .block_elems = ELEMS};
    for (int i = 0; i < CALLS_IN_FLIGHT; i++) {
        call.over = &s.rings[i % MICS_CHANNELS];
        MICS_TRY(to_itself(s.comm, &call));
    }
    mics_comm_abort(s.comm, NULL);
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++) {
        call.over = &s.rings[channel];
        MICS_TRY(s.device->ops->synchronize(s.device->ctx, channel + 1));
        RANKS_EXPECT(to_itself(s.comm, &call) == MICS_ERR_ABORTED);
        RANKS_EXPECT(mics_comm_collective(s.comm, &call) == MICS_ERR_ABORTED);
    }
    RANKS_EXPECT(mics_comm_check(s.comm) == MICS_ERR_ABORTED);
    smoke_close(self, &s);
    return MICS_OK;
}

static void test_a_communicator_opens_and_finalises(void **state)
{
    (void)state;
    ranks_run_ok(1, run_open_and_close, NULL);
    assert_int_equal(captured.lines, 0);
}

static void test_every_call_gives_its_result(void **state)
{
    (void)state;
    ranks_run_ok(1, run_calls, NULL);
    assert_int_equal(captured.lines, 0);
}

static void test_no_communicator_no_call(void **state)
{
    (void)state;
    ranks_run_ok(1, run_unopened, NULL);
    assert_int_equal(captured.lines, 1);
    assert_logged("other group: no communicator was opened");
}

// NCCL may refuse to register, in a line for each attempt; results are the same.
static void test_registered_buffers(void **state)
{
    (void)state;
    ranks_run_ok(1, run_registered, NULL);
    if (captured.lines > 0)
        assert_logged("NCCL registers no buffers");
}

static void test_all_communicators_abort_in_one_group(void **state)
{
    (void)state;
    ranks_run_ok(1, run_aborted, NULL);
    if (captured.lines > 0)
        assert_logged("NCCL registers no buffers");
}

// ---- deadlines ----

static const char *volatile running; // name of the case

// A call of NCCL's that hangs gives no way back: the process ends.
static void on_alarm(int signal)
{
    static const char text[] = ": not done after its deadline\n";
    (void)signal;
    const ssize_t name = write(STDERR_FILENO, running, strlen(running));
    const ssize_t rest = write(STDERR_FILENO, text, sizeof text - 1);
    _exit(name > 0 && rest > 0 ? 1 : 2);
}

static int begin(void **state)
{
    running = *state;
    alarm(DEADLINE_S);
    return capture_start(state);
}

static int end(void **state)
{
    alarm(0);
    return capture_end(state);
}

static bool find_functions(void)
{
    void *symbols[] = {mics_plugin_symbol(MICS_CUDA_COMM_OPEN),
                       mics_plugin_symbol(MICS_CUDA_COMM_TO_ITSELF),
                       mics_plugin_symbol(MICS_CUDA_COMM_WHY_NOT)};
    memcpy(&open_take, &symbols[0], sizeof open_take);
    memcpy(&to_itself, &symbols[1], sizeof to_itself);
    memcpy(&why_not, &symbols[2], sizeof why_not);
    return open_take != NULL && to_itself != NULL && why_not != NULL;
}

#define CASE(test)                                                                                 \
    {                                                                                              \
#test, test, begin, end, (void *)(uintptr_t) #test                                         \
    }

int main(void)
{
    const int missing = gpu_missing();
    if (missing != 0)
        return missing;
    if (!find_functions()) {
        printf("the plugin lacks functions of src/comm/nccl/nccl.c\n");
        return 1;
    }
    if (why_not() != NULL) {
        printf("no NCCL: %s\n", why_not());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        CASE(test_a_communicator_opens_and_finalises),
        CASE(test_every_call_gives_its_result),
        CASE(test_no_communicator_no_call),
        CASE(test_registered_buffers),
        CASE(test_all_communicators_abort_in_one_group),
    };
    signal(SIGALRM, on_alarm);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
