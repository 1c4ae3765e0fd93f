// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What ends a run on GPUs ends it on every rank, with a reason: a rank whose tokens
// cannot be read, one that does not come, a kernel that fails, an NCCL that takes too much memory.
// Collectives are enqueued by NCCL, so that nobody waits in them but the device.
#include "../engine/fixture.h"
#include "comm/captured.h"
#include "gpu.h"
#include "mics/core/device.h"
#include "nccl_rings.h"
#include "ops/kernels.h"
#include <stdatomic.h>
#include <time.h>

enum { RANKS = 2 };

typedef enum fault { FAULT_NONE, FAULT_READ, FAULT_LATE } fault;

typedef struct faulty {
    fixture_run run; // first: what fixture.h takes
    fault fault;
    double timeout_s;
    mics_status statuses[RANKS];
    atomic_bool given_up; // a rank's training has failed
} faulty;

// How often the emulation's communicators have connected; 0 where NCCL is the real one.
static long connections(void)
{
    void *symbol = mics_plugin_symbol("mics_cuda_emulated_nccl_connections");
    long (*count)(void) = NULL;
    memcpy(&count, &symbol, sizeof count);
    return count != NULL ? count() : 0;
}

static mics_status faulty_read(void *ctx, int32_t micro_step, int32_t *inputs_out,
                               int32_t *targets_out)
{
    const fixture_source *source = (const fixture_source *)ctx;
    faulty *f = (faulty *)(void *)source->run;
    MICS_TRY(fixture_read(ctx, micro_step, inputs_out, targets_out));
    if (source->rank != 1 || source->step != 2 || micro_step != 1)
        return MICS_OK;
    if (f->fault == FAULT_READ)
        return mics_fail(MICS_ERR_IO, "rank 1: the tokens are gone");
    // Until the other has waited too long: how soon that is depends on how busy the machine is.
    while (f->fault == FAULT_LATE && !atomic_load(&f->given_up))
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    return MICS_OK;
}

static mics_status train(faulty *f, ranks_self *self)
{
    const int32_t rank = self->comm->rank;
    mics_engine *engine = NULL;
    fixture_source source = {.run = &f->run, .rank = rank};
    const mics_batch_source read = {.read = faulty_read, .ctx = &source};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(nccl_open(self, f->run.schedule, f->timeout_s, &f->run.devices[rank]));
    MICS_TRY_OUT(fixture_count(self, &f->run));
    const mics_engine_spec spec = {.memory = self->memory,
                                   .schedule = f->run.schedule,
                                   .comm = self->comm,
                                   .optimizer = {MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0},
                                   .device = f->run.devices[rank],
                                   .kernels = f->run.want.kernels,
                                   .dtype = f->run.want.dtype,
                                   .timeout_s = f->timeout_s};
    MICS_TRY_OUT(mics_engine_open(&spec, &engine));
    const long warm = connections(); // all ranks have done so
    MICS_TRY_OUT(mics_engine_init_random(engine, 1));
    for (source.step = 1; source.step <= 3; source.step++)
        MICS_TRY_OUT(mics_engine_step(engine, source.step, 1e-3f, &read, &f->run.results[rank]));
    if (connections() != warm || (warm == 0 && getenv("MICS_CUDA_PLUGIN") != NULL))
        status = mics_fail(MICS_ERR_INVALID, "steps connect what the warm-up has not");
out:
    if (status != MICS_OK)
        atomic_store(&f->given_up, true);
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    mics_comm_close(self->comm);
    self->comm = NULL;
    mics_device_close(f->run.devices[rank]);
    return status;
}

static mics_status faulty_rank(ranks_self *self)
{
    faulty *f = self->arg;
    const int32_t rank = self->comm->rank;
    f->statuses[rank] = train(f, self);
    return MICS_OK;
}

static void go(faulty *f)
{
    mics_memory *memory = NULL;
    f->run.want = (fixture_case){.ranks = RANKS,
                                 .nodes = 1,
                                 .sharding = {2, 2, 2},
                                 .sequences = 8,
                                 .micro_steps = 2,
                                 .prefetch = 1,
                                 .open_device = nccl_open_default,
                                 .kernels = mics_kernels_cuda(),
                                 .dtype = MICS_DTYPE_BF16};
    if (mics_cuda_find()->devices < RANKS || f->run.want.kernels == NULL)
        skip();
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &f->run);
    ranks_run_ok(RANKS, faulty_rank, f);
    fixture_close(&f->run);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_nothing_fails(void **state)
{
    (void)state;
    faulty f = {.fault = FAULT_NONE, .timeout_s = RANKS_TIMEOUT_S};
    go(&f);
    ASSERT_OK(f.statuses[0]);
    ASSERT_OK(f.statuses[1]);
}

static void test_a_failed_read(void **state)
{
    (void)state;
    faulty f = {.fault = FAULT_READ, .timeout_s = RANKS_TIMEOUT_S};
    go(&f);
    ASSERT_STATUS(MICS_ERR_IO, f.statuses[1]);
    assert_int_not_equal(f.statuses[0], MICS_OK);
}

// Nothing moves on rank 0's GPU: the line names the collective, and who has not entered it.
static void test_a_late_rank(void **state)
{
    (void)state;
    faulty f = {.fault = FAULT_LATE, .timeout_s = 5};
    if (FIXTURE_STEPS_RUN < FIXTURE_STEPS)
        skip(); // a sanitizer makes one kernel take as long
    go(&f);
    ASSERT_STATUS(MICS_ERR_TIMEOUT, f.statuses[0]);
    assert_int_not_equal(f.statuses[1], MICS_OK);
}

// ---- memory that NCCL takes in the warm-up, emulated ----

static size_t gpu_bytes(void)
{
    mics_device_info info = {.name = ""};
    (void)mics_cuda_device_info(0, &info);
    return info.memory_total_bytes;
}

static void go_with_nccl_taking(const char *bytes)
{
    faulty f = {.fault = FAULT_NONE, .timeout_s = RANKS_TIMEOUT_S};
    setenv("MICS_EMULATED_NCCL_TAKES", bytes, 1);
    go(&f);
    unsetenv("MICS_EMULATED_NCCL_TAKES");
    for (int rank = 0; rank < RANKS; rank++)
        ASSERT_STATUS(MICS_ERR_MEMORY, f.statuses[rank]);
}

// In MiB: 64 for each of 7 communicators, 24 channels of 12 and 16 of 12 for sends of the one that
// is used, and 128.
static void test_more_than_was_counted(void **state)
{
    (void)state;
    if (getenv("MICS_CUDA_PLUGIN") == NULL)
        skip();
    go_with_nccl_taking("400000000");
    assert_logged("after the warm-up NCCL holds");
    assert_logged("1.03 GiB were counted for it");
}

static void test_too_little_is_left(void **state)
{
    (void)state;
    if (getenv("MICS_CUDA_PLUGIN") == NULL || gpu_bytes() > (size_t)1 << 30)
        skip();
    go_with_nccl_taking("50000000");
    assert_logged("of its GPU are free, and 256 MiB are needed");
    assert_logged("1.03 GiB were counted for it");
}

int main(int count, char **names)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_fails),
        cmocka_unit_test(test_a_failed_read),
        cmocka_unit_test(test_a_late_rank),
        cmocka_unit_test_setup_teardown(test_more_than_was_counted, capture_start, capture_end),
        cmocka_unit_test_setup_teardown(test_too_little_is_left, capture_start, capture_end),
    };
    if (count > 1)
        cmocka_set_test_filter(names[1]);
    const int missing = gpu_missing();
    return missing != 0 ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
