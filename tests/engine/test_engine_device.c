// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The engine on a device with memory of its own: every sharding in fp32 and in mixed precision, against one
// rank on the CPU; loss scaling; faults. In every step fixture.h checks replicas, bytes and memory.
#include "fixture.h"
#include "later.h"
#include "mics/core/device.h"
#include "mics/core/dtype.h"
#include "ops/kernels.h"
#include <pthread.h>

static mics_status open_later(ranks_self *self, const mics_schedule *schedule,
                              mics_device **device_out)
{
    (void)self;
    return later_open(mics_engine_events(schedule), device_out);
}

static fixture_case on_device(mics_dtype dtype)
{
    return (fixture_case){.ranks = 1,
                          .nodes = 1,
                          .sharding = {1, 1, 1},
                          .sequences = 16,
                          .micro_steps = 2,
                          .steps = 5 < FIXTURE_STEPS_RUN ? 5 : FIXTURE_STEPS_RUN,
                          .prefetch = 1,
                          .clip = 0.5f,
                          .open_device = open_later,
                          .kernels = &later_table,
                          .dtype = dtype};
}

static fixture_run on_cpu(void)
{
    fixture_run run = {.want = on_device(MICS_DTYPE_FP32)};
    run.want.open_device = NULL;
    run.want.kernels = NULL;
    fixture_go(&run);
    return run;
}

static double tolerance_of(mics_dtype dtype)
{
    return dtype == MICS_DTYPE_FP32 ? 1e-5 : dtype == MICS_DTYPE_BF16 ? 1e-2 : 2e-3;
}

static void check_losses(const fixture_run *run, const fixture_run *reference)
{
    const double tolerance = tolerance_of(run->want.dtype);
    for (int32_t step = 0; step < run->want.steps; step++) {
        const double loss = run->losses[step], expected = reference->losses[step];
        if (!(fabs(loss - expected) <= tolerance * expected))
            fail_msg("%s, %d ranks, %d nodes, %d|%d|%d: step %d: loss %.9g, the CPU has %.9g",
                     mics_dtype_text(run->want.dtype), (int)run->want.ranks, (int)run->want.nodes,
                     (int)run->want.sharding.params, (int)run->want.sharding.grads,
                     (int)run->want.sharding.optimizer, (int)step + 1, loss, expected);
    }
}

static void check_family(int32_t ranks, mics_dtype dtype, const fixture_run *reference)
{
    int32_t cases = 0;
    for (int32_t p = 1; p <= ranks; p *= 2) {
        for (int32_t g = p; g <= ranks; g *= 2) {
            for (int32_t o = g; o <= ranks; o *= 2) {
                fixture_run run = {.want = on_device(dtype)};
                run.want.ranks = ranks;
                run.want.nodes = cases % 2 == 0 && ranks % 2 == 0 ? ranks / 2 : 1;
                run.want.sharding = (mics_sharding){p, g, o};
                run.want.prefetch = cases % 3;
                run.want.recompute = cases % 4 == 1;
                run.want.hierarchical = cases % 3 != 2;
                run.want.param_persistence_threshold = cases % 5 == 3 ? 300 : 0;
                run.want.coalesce_below = cases % 2 == 0 ? 5000 : 0; // of two layers
                fixture_go(&run);
                check_losses(&run, reference);
                cases++;
            }
        }
    }
}

static void test_family(void **state)
{
    (void)state;
    const fixture_run reference = on_cpu();
    for (int32_t ranks = 1; ranks <= 4; ranks *= 2) {
        check_family(ranks, MICS_DTYPE_FP32, &reference);
        check_family(ranks, MICS_DTYPE_BF16, &reference);
    }
    check_family(2, MICS_DTYPE_FP16, &reference);
}

// Accumulators in two bytes, of one micro-step and of several, and of ranks that do not split them.
static void test_rounded_sums(void **state)
{
    (void)state;
    const fixture_run reference = on_cpu();
    for (int i = 0; i < 6; i++) {
        fixture_run run = {.want = on_device(i % 2 == 0 ? MICS_DTYPE_BF16 : MICS_DTYPE_FP16)};
        run.want.rounded_sums = true;
        run.want.micro_steps = i < 2 ? 1 : 2;
        if (i >= 4) {
            run.want.ranks = 2;
            run.want.micro_steps = 1;
            run.want.sharding = (mics_sharding){1, 1, i - 3};
        }
        fixture_go(&run);
        check_losses(&run, &reference);
    }
}

// States in fewer bits, which pass the workspace on their way to and from the host.
static void test_packed_states(void **state)
{
    (void)state;
    const fixture_run reference = on_cpu();
    for (int dtype = MICS_STATE_BF16; dtype < MICS_STATE_DTYPES; dtype++) {
        fixture_run run = {.want = on_device(MICS_DTYPE_BF16)};
        run.want.state_dtype = (mics_state_dtype)dtype;
        run.want.ranks = 2;
        run.want.sharding = (mics_sharding){1, 2, 2};
        fixture_go(&run);
        check_losses(&run, &reference);
    }
}

// The second hop in bf16, in one stage and in two, of fp32 and of mixed precision.
static void test_second_hop_in_bf16(void **state)
{
    (void)state;
    const fixture_run reference = on_cpu();
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        mics_dtype dtype;
        int64_t coalesce_below;
    } cases[] = {
        {2, 1, {1, 1, 1}, MICS_DTYPE_FP32, 0},    {2, 1, {1, 1, 2}, MICS_DTYPE_BF16, 0},
        {4, 2, {1, 1, 1}, MICS_DTYPE_BF16, 0},    {4, 2, {1, 1, 2}, MICS_DTYPE_FP16, 0},
        {4, 2, {2, 2, 4}, MICS_DTYPE_BF16, 4096}, {4, 4, {2, 2, 2}, MICS_DTYPE_FP32, 4096},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture_run run = {.want = on_device(cases[i].dtype)};
        run.want.ranks = cases[i].ranks;
        run.want.nodes = cases[i].nodes;
        run.want.sharding = cases[i].sharding;
        run.want.boundary_dtype = mics_comm_dtypes_both(MICS_COMM_BF16);
        run.want.hierarchical = i % 2 == 0;
        run.want.coalesce_below = cases[i].coalesce_below;
        fixture_go(&run);
        run.want.dtype = MICS_DTYPE_BF16; // what sums are rounded to
        check_losses(&run, &reference);
    }
}

// The CPU's rows of logits: half of them at a time.
static void lm_head_forward_in_two(const mics_op_call *call)
{
    mics_op_call in_two = *call;
    in_two.chunk_rows = (call->shape.N + 1) / 2;
    later_forward(&in_two);
}

static void lm_head_backward_in_two(const mics_op_call *call)
{
    mics_op_call in_two = *call;
    in_two.chunk_rows = (call->shape.N + 1) / 2;
    later_backward(&in_two);
}

// Of one rank the device's arithmetic is the CPU's, bit by bit, where sums are cut alike.
static void test_fp32_has_the_same_bits(void **state)
{
    (void)state;
    const fixture_run reference = on_cpu();
    const mics_op_kernels head = {.forward = lm_head_forward_in_two,
                                  .backward = lm_head_backward_in_two};
    mics_kernels in_two = later_table;
    in_two.ops[MICS_OP_LM_HEAD] = &head;
    fixture_run run = {.want = on_device(MICS_DTYPE_FP32)};
    run.want.kernels = &in_two;
    fixture_go(&run);
    assert_memory_equal(run.losses, reference.losses, sizeof run.losses);
    assert_memory_equal(run.norms, reference.norms, sizeof run.norms);
    assert_true(run.eval_loss == reference.eval_loss);
}

// Products run once before the first step leave nothing behind.
static void test_rehearsal(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{1, 1, 1}, {1, 2, 2}, {2, 2, 2}};
    for (size_t i = 0; i < sizeof shardings / sizeof shardings[0]; i++) {
        fixture_run runs[2];
        for (int rehearse = 0; rehearse < 2; rehearse++) {
            runs[rehearse] = (fixture_run){.want = on_device(MICS_DTYPE_BF16)};
            runs[rehearse].want.ranks = 2;
            runs[rehearse].want.sharding = shardings[i];
            runs[rehearse].want.rehearse = rehearse;
            fixture_go(&runs[rehearse]);
        }
        assert_memory_equal(runs[0].losses, runs[1].losses, sizeof runs[0].losses);
        assert_memory_equal(runs[0].norms, runs[1].norms, sizeof runs[0].norms);
    }
}

// ---- the host's copies ----

static mics_status run_copies(ranks_self *self)
{
    fixture_run *run = self->arg;
    mics_engine *engine = NULL;
    mics_memory_stats before, after;
    MICS_TRY(open_later(self, run->schedule, &run->devices[0]));
    MICS_TRY(fixture_count(self, run));
    MICS_TRY(fixture_open_engine(self, run, &engine));
    MICS_TRY(mics_engine_init_random(engine, 1));
    const mics_engine_optimizer_shard drawn = mics_engine_optimizer_shard_get(engine, 0);
    const size_t bytes = (size_t)(drawn.shard.end - drawn.shard.begin) * sizeof(float);
    void *kept = NULL;
    MICS_TRY(mics_alloc(self->memory, MICS_MEM_HOST, bytes, &kept));
    MICS_TRY(mics_engine_download(engine)); // what is not a master is rounded now
    memcpy(kept, drawn.shard_params, bytes);
    mics_memory_stats_get(self->memory, &before);
    mics_engine_release(engine);
    mics_memory_stats_get(self->memory, &after);
    RANKS_EXPECT(before.now[MICS_MEM_HOST] - after.now[MICS_MEM_HOST] ==
                 mics_engine_copy_bytes(run->schedule));
    RANKS_EXPECT(mics_engine_optimizer_shard_get(engine, 0).shard_params == NULL);
    RANKS_EXPECT(mics_engine_optimizer_shard_get(engine, 0).states[0] == NULL);
    RANKS_EXPECT(mics_engine_upload(engine) == MICS_ERR_INVALID);
    MICS_TRY(mics_engine_download(engine));
    RANKS_EXPECT(memcmp(kept, mics_engine_optimizer_shard_get(engine, 0).shard_params, bytes) == 0);
    mics_memory_stats_get(self->memory, &after);
    RANKS_EXPECT(before.now[MICS_MEM_HOST] == after.now[MICS_MEM_HOST]);
    mics_free(self->memory, kept);
    mics_engine_close(engine);
    mics_device_close(run->devices[0]);
    return MICS_OK;
}

static void test_copies_come_and_go(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < MICS_DTYPES; dtype++) {
        mics_memory *memory = NULL;
        fixture_run run = {.want = on_device((mics_dtype)dtype)};
        ASSERT_OK(mics_memory_open(&memory));
        fixture_open(memory, &run);
        ranks_run_ok(1, run_copies, &run);
        fixture_close(&run);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

// More rows than accelerators hold the logits of at once.
static void test_chunks_of_logits(void **state)
{
    (void)state;
    enum { SEQUENCES = 260 }; // of 16 tokens, a micro-step
    fixture_run reference = {.want = on_device(MICS_DTYPE_FP32)};
    reference.want.sequences = 2 * SEQUENCES;
    reference.want.steps = 1;
    reference.want.open_device = NULL;
    reference.want.kernels = NULL;
    fixture_go(&reference);
    for (int dtype = 0; dtype < MICS_DTYPES; dtype++) {
        fixture_run run = {.want = on_device((mics_dtype)dtype)};
        run.want.sequences = 2 * SEQUENCES;
        run.want.steps = 1;
        fixture_go(&run);
        check_losses(&run, &reference);
    }
}

// ---- loss scaling ----

// DeepSpeed's rules, by hand: hysteresis 2, window 3.
static void test_scaler(void **state)
{
    (void)state;
    const mics_loss_scaling scaling = {.initial = 8, .window = 3, .hysteresis = 2, .min = 2};
    static const struct {
        bool overflow;
        double scale; // afterwards
    } steps[] = {
        {true, 8}, {true, 4},  {false, 4}, {false, 4}, {false, 8}, {true, 8},  {true, 4}, {true, 2},
        {true, 2}, {false, 2}, {false, 2}, {false, 4}, {true, 4},  {false, 4}, {true, 2},
    };
    mics_scaler scaler = mics_scaler_init(&scaling);
    assert_true(scaler.scale == 8);
    int64_t skipped = 0;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        assert_int_equal(mics_scaler_is_exhausted(&scaling, &scaler), i >= 8 && i <= 11);
        mics_scaler_update(&scaling, steps[i].overflow, &scaler);
        skipped += steps[i].overflow ? 1 : 0;
        if (scaler.scale != steps[i].scale)
            fail_msg("after step %d: %g, not %g", (int)i, scaler.scale, steps[i].scale);
    }
    assert_int_equal(scaler.skipped, skipped);
}

static void test_scaler_kinds(void **state)
{
    (void)state;
    mics_loss_scaling scaling = {.fixed = 128};
    mics_scaler scaler = mics_scaler_init(&scaling);
    for (int i = 0; i < 4; i++)
        mics_scaler_update(&scaling, i % 2 == 0, &scaler);
    assert_true(scaler.scale == 128 && scaler.skipped == 2 && scaler.steps == 4);
    assert_false(mics_scaler_is_exhausted(&scaling, &scaler));
    scaling = mics_loss_scaling_default();
    scaling.consecutive_hysteresis = true; // overflows that are not in a row never halve it
    scaler = mics_scaler_init(&scaling);
    assert_true(scaler.scale == 65536);
    for (int i = 0; i < 10; i++)
        mics_scaler_update(&scaling, i % 2 == 0, &scaler);
    assert_true(scaler.scale == 65536);
}

// A scale that is far too large: the first steps are skipped, on all ranks, and change nothing; then it
// trains as without.
static void test_overflow_is_skipped(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 4; ranks += 3) {
        fixture_run run = {.want = on_device(MICS_DTYPE_FP16)};
        run.want.ranks = ranks;
        run.want.sharding = (mics_sharding){1, ranks, ranks};
        run.want.steps = FIXTURE_STEPS_RUN;
        run.want.scaling =
            (mics_loss_scaling){.initial = 0x1p26, .window = 1000, .hysteresis = 1, .min = 1};
        fixture_go(&run);
        assert_true(run.skipped >= 1);
        if (run.want.steps == FIXTURE_STEPS)
            assert_true(run.skipped < run.want.steps);
        for (int32_t step = 0; step < run.want.steps; step++)
            assert_true(isfinite(run.losses[step]));
        assert_true(isfinite(run.norms[0]) == 0);
        if (run.want.steps == FIXTURE_STEPS)
            assert_true(run.losses[FIXTURE_STEPS - 1] < 0.95 * run.losses[0]);
    }
}

static mics_status exhausted_rank(ranks_self *self)
{
    fixture_run *run = self->arg;
    const int32_t rank = self->comm->rank;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(later_open(mics_engine_events(run->schedule), &run->devices[rank]));
    MICS_TRY(fixture_count(self, run));
    MICS_TRY(fixture_open_engine(self, run, &engine));
    fixture_source source = {.run = run, .rank = rank, .step = 1};
    const mics_batch_source read = {.read = fixture_read, .ctx = &source};
    mics_step_result result;
    MICS_TRY_OUT(mics_engine_init_random(engine, 1));
    const mics_status numeric = mics_engine_step(engine, 1, 3e-3f, &read, &result);
    MICS_TRY_OUT(numeric == MICS_ERR_NUMERIC ? MICS_OK : MICS_ERR_INVALID);
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK)); // the world goes on
out:
    mics_engine_close(engine);
    mics_device_close(run->devices[rank]);
    return status;
}

// ---- the order in which collectives are launched ----

enum { LAUNCHES_MOST = 2000, LAUNCH_RANKS = 4 };

typedef struct launches {
    const mics_comm_ops *inner; // of the transport, whose ctx this one has too
    mics_comm_ops ops;
    mics_comm comm;
    pthread_t thread;
    int32_t count, channels;
    long at[LAUNCHES_MOST]; // run and step
    bool one_thread, ordered;
} launches;

static launches launched[LAUNCH_RANKS]; // by rank

// Names end in "no. RUN.STEP)"; those of warm-ups do not.
static void note_launch(launches *l, const mics_comm_call *call)
{
    const char *number = strstr(call->over->what, "no. ");
    char *end = NULL;
    if (number == NULL || l->count == LAUNCHES_MOST)
        return;
    const long run = strtol(number + 4, &end, 10), step = strtol(end + 1, NULL, 10);
    l->at[l->count] = run * 100000 + step;
    l->channels |= 1 << call->over->channel;
    l->ordered = l->ordered && (l->count == 0 || l->at[l->count] > l->at[l->count - 1]);
    l->one_thread = l->one_thread && (l->count == 0 || pthread_equal(l->thread, pthread_self()));
    l->thread = pthread_self();
    l->count++;
}

static mics_status launch(void *ctx, const mics_comm_call *call)
{
    int rank = 0;
    while (launched[rank].comm.ctx != ctx)
        rank++;
    mics_comm inner = launched[rank].comm;
    inner.ops = launched[rank].inner;
    note_launch(&launched[rank], call);
    return mics_comm_collective(&inner, call);
}

static mics_status open_launching(ranks_self *self, const mics_schedule *schedule,
                                  mics_device **device_out)
{
    launches *own = &launched[self->comm->rank];
    *own = (launches){.inner = self->comm->ops,
                      .ops = *self->comm->ops,
                      .comm = *self->comm,
                      .one_thread = true,
                      .ordered = true};
    own->ops.collective = launch;
    own->comm.ops = &own->ops;
    self->comm = &own->comm; // closing it frees what the transport opened
    return later_open(mics_engine_events(schedule), device_out);
}

// Of both streams by one thread, in list order, and so on all ranks in one order.
static void test_one_launch_order(void **state)
{
    (void)state;
    fixture_run run = {.want = on_device(MICS_DTYPE_BF16)};
    run.want.ranks = LAUNCH_RANKS;
    run.want.nodes = 2;
    run.want.sharding = (mics_sharding){4, 4, 4};
    run.want.hierarchical = true;
    run.want.open_device = open_launching;
    fixture_go(&run);
    for (int rank = 0; rank < LAUNCH_RANKS; rank++) {
        assert_true(launched[rank].count > 50);
        assert_int_equal(launched[rank].channels, 3);
        assert_true(launched[rank].one_thread && launched[rank].ordered);
        assert_int_equal(launched[rank].count, launched[0].count);
        assert_memory_equal(launched[rank].at, launched[0].at,
                            (size_t)launched[0].count * sizeof(long));
    }
}

// Where the scale may not become smaller, every rank says so.
static void test_overflow_at_the_smallest_scale(void **state)
{
    (void)state;
    fixture_run run = {.want = on_device(MICS_DTYPE_FP16)};
    run.want.ranks = 2;
    run.want.sharding = (mics_sharding){2, 2, 2};
    run.want.scaling =
        (mics_loss_scaling){.initial = 0x1p30, .window = 10, .hysteresis = 1, .min = 0x1p30};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &run);
    ranks_run_ok(2, exhausted_rank, &run);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- refusals and faults ----

static mics_status refused_rank(ranks_self *self)
{
    fixture_run *run = self->arg;
    mics_engine *engine = NULL;
    MICS_TRY(later_open(mics_engine_events(run->schedule), &run->devices[0]));
    MICS_TRY(fixture_count(self, run));
    mics_status opened = fixture_open_engine(self, run, &engine);
    mics_engine_close(engine);
    mics_device_close(run->devices[0]);
    return opened;
}

static void check_refused(const fixture_case *opened_as, const fixture_case *made_for,
                          mics_status expected)
{
    fixture_run run = {.want = *made_for};
    mics_memory *memory = NULL;
    mics_status status = MICS_OK;
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &run);
    run.want = *opened_as;
    ranks_run_timeout(1, RANKS_TIMEOUT_S, refused_rank, &run, &status);
    ASSERT_STATUS(expected, status);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const fixture_case fp32 = on_device(MICS_DTYPE_FP32), bf16 = on_device(MICS_DTYPE_BF16),
                       fp16 = on_device(MICS_DTYPE_FP16);
    fixture_case processor = fp32;
    processor.open_device = NULL;
    check_refused(&bf16, &bf16, MICS_OK);
    check_refused(&fp16, &bf16, MICS_OK); // the schedule knows bytes alone
    check_refused(&fp32, &bf16, MICS_ERR_INVALID);
    check_refused(&bf16, &fp32, MICS_ERR_INVALID);
    check_refused(&fp32, &processor, MICS_ERR_INVALID);
    fixture_case graphs = fp32; // which the device lacks
    graphs.graphs = true;
    check_refused(&graphs, &fp32, MICS_ERR_UNSUPPORTED);
}

static mics_status failing_rank(ranks_self *self)
{
    fixture_run *run = self->arg;
    mics_engine *engine = NULL;
    mics_status status = later_open(mics_engine_events(run->schedule), &run->devices[0]);
    MICS_TRY(status);
    MICS_TRY(fixture_count(self, run));
    mics_memory_fail_after(self->memory, run->fail_at);
    status = fixture_open_engine(self, run, &engine);
    mics_memory_fail_after(self->memory, 0);
    mics_engine_close(engine);
    mics_device_close(run->devices[0]); // which demands that all blocks are freed
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    fixture_run run = {.want = on_device(MICS_DTYPE_BF16)};
    mics_memory *memory = NULL;
    mics_status status = MICS_ERR_MEMORY;
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &run);
    for (run.fail_at = 1; status != MICS_OK; run.fail_at++) {
        assert_true(run.fail_at < 100);
        ranks_run_timeout(1, RANKS_TIMEOUT_S, failing_rank, &run, &status);
        assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
    }
    assert_true(run.fail_at > 20);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaler),
        cmocka_unit_test(test_scaler_kinds),
        cmocka_unit_test(test_overflow_is_skipped),
        cmocka_unit_test(test_overflow_at_the_smallest_scale),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
        cmocka_unit_test(test_each_allocation_may_fail),
        cmocka_unit_test(test_fp32_has_the_same_bits),
        cmocka_unit_test(test_chunks_of_logits),
        cmocka_unit_test(test_rehearsal),
        cmocka_unit_test(test_copies_come_and_go),
        cmocka_unit_test(test_second_hop_in_bf16),
        cmocka_unit_test(test_family),
        cmocka_unit_test(test_packed_states),
        cmocka_unit_test(test_rounded_sums),
        cmocka_unit_test(test_one_launch_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
