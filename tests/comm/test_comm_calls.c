// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives on host memory, and through host memory on a device whose addresses nobody else can
// read and whose copies happen when somebody waits for them.
#include "call_checks.h"
#include "captured.h"
#include "comm/fault.h"
#include "comm_checks.h"
#include "mics/core/transport.h"

// ---- a device ----

enum { MOST_COPIES = 8, PIECE_BYTES = 48 };

// Added to an address of the device: not an address of this process.
#define AWAY ((uintptr_t)1 << 62)

typedef struct late_copy {
    void *to;
    const void *from;
    size_t bytes;
} late_copy;

typedef struct late_device {
    late_copy copies[MICS_DEVICE_STREAMS][MOST_COPIES];
    int32_t count[MICS_DEVICE_STREAMS];
    int32_t blocks;
    int32_t host_allocations_left; // < 0: any number
} late_device;

static void *near_by(const void *block)
{
    const uintptr_t at = (uintptr_t)block;
    return (void *)(at >= AWAY ? at - AWAY : at);
}

static mics_status late_alloc_host(void *ctx, size_t bytes, void **block_out)
{
    late_device *self = ctx;
    if (self->host_allocations_left == 0)
        return MICS_ERR_MEMORY;
    self->host_allocations_left--;
    *block_out = calloc(1, bytes);
    self->blocks++;
    return *block_out != NULL ? MICS_OK : MICS_ERR_MEMORY;
}

static mics_status late_alloc(void *ctx, size_t bytes, void **block_out)
{
    late_device *self = ctx;
    void *block = calloc(1, bytes);
    self->blocks++;
    *block_out = (void *)((uintptr_t)block + AWAY);
    return block != NULL ? MICS_OK : MICS_ERR_MEMORY;
}

static void late_free(void *ctx, void *block)
{
    late_device *self = ctx;
    self->blocks -= block != NULL;
    free(near_by(block));
}

static mics_status late_synchronize(void *ctx, int32_t stream)
{
    late_device *self = ctx;
    for (int32_t i = 0; i < self->count[stream]; i++) {
        const late_copy *copy = &self->copies[stream][i];
        memmove(near_by(copy->to), near_by(copy->from), copy->bytes);
    }
    self->count[stream] = 0;
    return MICS_OK;
}

static void late_copy_later(void *ctx, int32_t stream, void *to, const void *from, size_t bytes)
{
    late_device *self = ctx;
    if (self->count[stream] == MOST_COPIES)
        late_synchronize(ctx, stream);
    self->copies[stream][self->count[stream]++] = (late_copy){to, from, bytes};
}

static const mics_device_ops late_ops = {
    .name = "late",
    .alloc = late_alloc,
    .free = late_free,
    .alloc_host = late_alloc_host,
    .free_host = late_free,
    .copy = late_copy_later,
    .synchronize = late_synchronize,
};

// ---- tests ----

static const int32_t crossed[] = {2, 0, 3, 1};

// Groups of every kind, plain and in another order, over both channels and several sizes.
static mics_status check_all(ranks_self *self, mics_device *device)
{
    static const int64_t sizes[] = {0, 1, 5, 12, 24, 100};
    call_case at = {.comm = self->comm, .memory = self->memory, .device = device};
    const int32_t kinds = checks_group(self->comm->ranks, self->comm->rank, -1, NULL);
    for (int32_t kind = 0; kind < kinds; kind++) {
        checks_group(self->comm->ranks, self->comm->rank, kind, &at.group);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            at.elems = sizes[i];
            at.channel = (int32_t)(i % 2);
            at.block_of = at.group.size == 4 && i > 2 ? crossed : NULL;
            MICS_TRY(checks_calls(&at));
        }
    }
    return MICS_OK;
}

static mics_status run_on_host(ranks_self *self)
{
    MICS_TRY(check_all(self, NULL));
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
    MICS_TRY(fault_open_take(self->memory, self->comm, 0, &self->comm));
    return check_all(self, NULL);
}

static void test_on_host(void **state)
{
    (void)state;
    ranks_run_ok(1, run_on_host, NULL);
    ranks_run_ok(3, run_on_host, NULL);
    ranks_run_ok(4, run_on_host, NULL);
}

static mics_status stage(ranks_self *self, mics_device *device)
{
    const mics_device_comm_spec spec = {.device = device,
                                        .transport = MICS_TRANSPORT_STAGED,
                                        .piece_bytes = PIECE_BYTES,
                                        .timeout_s = RANKS_TIMEOUT_S};
    return mics_comm_device_open_take(self->memory, self->comm, &spec, &self->comm);
}

static mics_status run_staged(ranks_self *self)
{
    late_device state = {.host_allocations_left = -1};
    mics_device device = {.ops = &late_ops, .ctx = &state};
    MICS_TRY(stage(self, &device));
    mics_status status = check_all(self, &device);
    mics_comm_close(self->comm);
    self->comm = NULL;
    MICS_TRY(status);
    RANKS_EXPECT(state.blocks == 0);
    return MICS_OK;
}

static void test_staged(void **state)
{
    (void)state;
    ranks_run_ok(1, run_staged, NULL);
    ranks_run_ok(3, run_staged, NULL);
    ranks_run_ok(4, run_staged, NULL);
}

// What a counting comm says of one collective: over a staged comm by the rule, over the host's by counting
// its exchanges.
static mics_status count_one(ranks_self *self, mics_device *device, mics_comm_call_kind kind,
                             mics_traffic *sent)
{
    float host[4 * 6] = {0}, back[3 * 6] = {0};
    void *block = host, *incoming = back;
    mics_comm *counting = NULL;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 2, &counting));
    self->comm = counting;
    if (device != NULL) {
        MICS_TRY(device->ops->alloc(device->ctx, sizeof host, &block));
        MICS_TRY(device->ops->alloc(device->ctx, sizeof back, &incoming));
    }
    const mics_comm_group ring = {.group = {.stride = 1, .size = 4, .index = counting->rank},
                                  .block_of = crossed,
                                  .channel = 1,
                                  .what = "counted"};
    const mics_comm_call call = {.kind = kind,
                                 .over = &ring,
                                 .buffer = block,
                                 .incoming = incoming,
                                 .block_elems = 6,
                                 .dtype = MICS_DTYPE_FP32};
    const mics_status status = mics_comm_collective(counting, &call);
    mics_comm_count_get(counting, sent);
    if (device != NULL) {
        device->ops->free(device->ctx, block);
        device->ops->free(device->ctx, incoming);
    }
    return status;
}

static mics_status run_counted(ranks_self *self)
{
    late_device state = {.host_allocations_left = -1};
    mics_device device = {.ops = &late_ops, .ctx = &state};
    const mics_comm_call_kind kind = *(const mics_comm_call_kind *)self->arg;
    mics_traffic on_host, on_device;
    MICS_TRY(count_one(self, NULL, kind, &on_host));
    MICS_TRY(stage(self, &device));
    const mics_status status = count_one(self, &device, kind, &on_device);
    mics_comm_close(self->comm);
    self->comm = NULL;
    MICS_TRY(status);
    RANKS_EXPECT(on_host.exchanges > 0 && on_host.intra_bytes + on_host.inter_bytes > 0);
    RANKS_EXPECT(on_host.exchanges == on_device.exchanges);
    RANKS_EXPECT(on_host.intra_bytes == on_device.intra_bytes);
    RANKS_EXPECT(on_host.inter_bytes == on_device.inter_bytes);
    return MICS_OK;
}

static void test_counted_alike(void **state)
{
    (void)state;
    for (mics_comm_call_kind kind = 0; kind < MICS_COMM_CALLS; kind++)
        ranks_run_ok(4, run_counted, &kind);
}

static mics_status run_poor(ranks_self *self)
{
    for (int32_t have = 0; have < 2 * MICS_CHANNELS; have++) {
        late_device state = {.host_allocations_left = have};
        mics_device device = {.ops = &late_ops, .ctx = &state};
        RANKS_EXPECT(stage(self, &device) == MICS_ERR_MEMORY);
        RANKS_EXPECT(state.blocks == 0);
    }
    late_device state = {.host_allocations_left = -1};
    mics_device device = {.ops = &late_ops, .ctx = &state};
    mics_memory_fail_after(self->memory, 1);
    RANKS_EXPECT(stage(self, &device) == MICS_ERR_MEMORY);
    return MICS_OK;
}

static void test_without_memory(void **state)
{
    (void)state;
    ranks_run_ok(1, run_poor, NULL);
}

static mics_status run_wrong(ranks_self *self)
{
    float buffer[4] = {0};
    const mics_comm_group ring = {.group = {.stride = 1, .size = 1}, .what = "wrong call"};
    const mics_comm_group outside = {.group = {.stride = 1, .size = 2}, .what = "wrong call"};
    const mics_comm_call wrong[] = {
        {.kind = MICS_COMM_CALLS, .over = &ring, .buffer = buffer, .block_elems = 4},
        {.kind = MICS_COMM_CALL_ALL_REDUCE,
         .over = &ring,
         .buffer = buffer,
         .block_elems = 4,
         .dtype = MICS_DTYPE_BF16},
        {.kind = MICS_COMM_CALL_ALL_GATHER, .over = &ring, .buffer = buffer, .block_elems = -1},
        {.kind = MICS_COMM_CALL_ALL_GATHER, .over = &ring, .block_elems = 4},
        {.kind = MICS_COMM_CALL_ALL_GATHER,
         .over = &ring,
         .buffer = buffer,
         .block_elems = 4,
         .dtype = MICS_DTYPES},
        {.kind = MICS_COMM_CALL_ALL_TO_ALL, .over = &outside, .buffer = buffer, .block_elems = 2},
        {.kind = MICS_COMM_CALL_ALL_GATHER, .over = &outside, .buffer = buffer, .block_elems = 2},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        RANKS_EXPECT(mics_comm_collective(self->comm, &wrong[i]) == MICS_ERR_INVALID);
    return MICS_OK;
}

static void test_wrong_calls(void **state)
{
    (void)state;
    ranks_run_ok(1, run_wrong, NULL);
    assert_int_equal(captured.lines, 7);
}

static mics_status run_wrong_spec(ranks_self *self)
{
    late_device state = {.host_allocations_left = -1};
    mics_device device = {.ops = &late_ops, .ctx = &state};
    mics_device host = {.is_host = true};
    mics_device_comm_spec spec = {.device = &device, .piece_bytes = 6, .timeout_s = 1};
    mics_comm *comm = NULL;
    RANKS_EXPECT(mics_comm_device_open_take(self->memory, self->comm, &spec, &comm) ==
                 MICS_ERR_INVALID);
    spec.device = &host;
    MICS_TRY(mics_comm_device_open_take(self->memory, self->comm, &spec, &comm));
    RANKS_EXPECT(comm == self->comm);
    return MICS_OK;
}

static void test_wrong_spec(void **state)
{
    (void)state;
    ranks_run_ok(1, run_wrong_spec, NULL);
    assert_logged("6 bytes hold no whole number of floats");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_on_host, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_staged, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_counted_alike, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_without_memory, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_wrong_calls, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_wrong_spec, capture_start, capture_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
