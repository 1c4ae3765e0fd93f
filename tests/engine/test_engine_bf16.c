// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The engine in bf16 on the CPU: every sharding against one rank, with what changes how numbers
// travel and lie; what callers see of masters and shards. In every step fixture.h checks replicas,
// bytes and memory.
#include "fixture.h"
#include "flips.h"
#include "mics/core/device.h"
#include "schedule/rules.h"

static const float clip = 0.5f;

// Of losses, beside one rank's in bf16: masters are fp32, so roundings of 2^-9 average out.
static const double TOLERANCE = 2e-3;

static fixture_case case_of(const char *config, int32_t ranks, mics_sharding sharding)
{
    return (fixture_case){.config = config,
                          .ranks = ranks,
                          .nodes = 1,
                          .sharding = sharding,
                          .sequences = 48,
                          .micro_steps = 2,
                          .steps = FIXTURE_STEPS_RUN,
                          .prefetch = 1,
                          .clip = clip,
                          .dtype = MICS_DTYPE_BF16};
}

static fixture_run one_rank(const char *config, mics_dtype dtype)
{
    fixture_run run = {.want = case_of(config, 1, (mics_sharding){1, 1, 1})};
    run.want.dtype = dtype;
    fixture_go(&run);
    return run;
}

static void check_curve(const fixture_run *run, const fixture_run *reference)
{
    for (int32_t step = 0; step < run->want.steps; step++) {
        const double loss = run->losses[step], expected = reference->losses[step];
        if (!(fabs(loss - expected) <= TOLERANCE * expected))
            fail_msg("%d ranks, %d nodes, %d|%d|%d: step %d: loss %.9g, one rank has %.9g",
                     (int)run->want.ranks, (int)run->want.nodes, (int)run->want.sharding.params,
                     (int)run->want.sharding.grads, (int)run->want.sharding.optimizer,
                     (int)step + 1, loss, expected);
    }
}

// Shared parameters move nothing, and give the same bits.
static void check_shared(const fixture_run *run)
{
    fixture_run shared = {.want = run->want};
    if (run->want.sharding.params == 1 ||
        run->want.sharding.params > run->want.ranks / run->want.nodes)
        return;
    shared.want.share_params = true;
    fixture_go(&shared);
    assert_memory_equal(shared.losses, run->losses, sizeof run->losses);
    assert_memory_equal(shared.norms, run->norms, sizeof run->norms);
    assert_true(shared.eval_loss == run->eval_loss);
}

// Sums in chunks give the same bits.
static void check_chunks(const fixture_run *run)
{
    fixture_run chunks = {.want = run->want};
    if (run->want.ranks != 4)
        return;
    chunks.want.sum_chunk_elems = MICS_ALIGNMENT;
    fixture_go(&chunks);
    assert_memory_equal(chunks.losses, run->losses, sizeof run->losses);
    assert_memory_equal(chunks.norms, run->norms, sizeof run->norms);
}

// The options that go with case number `index`: each is on in some cases of a family.
static void vary(fixture_case *want, int32_t index)
{
    const bool bf16_boundary = index % 2 == 0;
    want->nodes = index % 2 == 0 && want->ranks % 2 == 0 ? want->ranks / 2 : 1;
    want->prefetch = index % 3;
    want->recompute = index % 4 == 1;
    want->hierarchical = bf16_boundary || index % 3 != 2;
    want->boundary_dtype.inter = bf16_boundary ? MICS_COMM_BF16 : MICS_COMM_FP32;
    want->boundary_dtype.intra = index % 8 == 4 ? MICS_COMM_BF16 : MICS_COMM_FP32;
    want->layered_micro_steps = index % 5 == 2 ? 2 : 0;
    want->param_persistence_threshold = index % 5 == 3 ? 300 : 0;
    want->coalesce_below = index % 3 == 0 ? 5000 : 0; // of two layers
}

static void check_family(int32_t ranks, const fixture_run *reference)
{
    int32_t cases = 0;
    for (int32_t p = 1; p <= ranks; p++) {
        for (int32_t g = p; g <= ranks; g += p) {
            for (int32_t o = g; o <= ranks; o += g) {
                if (ranks % o != 0 || o % g != 0 || g % p != 0)
                    continue;
                fixture_run run = {.want = reference->want};
                run.want.ranks = ranks;
                run.want.sharding = (mics_sharding){p, g, o};
                run.want.micro_steps = ranks == 8 ? 3 : 2;
                vary(&run.want, cases++);
                fixture_go(&run);
                check_curve(&run, reference);
                check_shared(&run);
                check_chunks(&run);
            }
        }
    }
    assert_true(cases >= 1);
}

static void check_families(const char *config)
{
    const fixture_run reference = one_rank(config, MICS_DTYPE_BF16);
    for (int32_t ranks = 1; ranks <= 4; ranks++)
        check_family(ranks, &reference);
    check_family(8, &reference);
}

static void test_tied(void **state)
{
    (void)state;
    check_families(NULL);
}

static void test_decoder(void **state)
{
    (void)state;
    check_families(fixture_decoder);
}

static void test_dropout(void **state)
{
    (void)state;
    check_families(fixture_gpt2_dropout);
}

// bf16 learns what fp32 does; that they differ shows that it is bf16.
static void test_beside_fp32(void **state)
{
    (void)state;
    const fixture_run bf16 = one_rank(NULL, MICS_DTYPE_BF16),
                      fp32 = one_rank(NULL, MICS_DTYPE_FP32);
    for (int32_t step = 0; step < bf16.want.steps; step++) {
        assert_true(fabs(bf16.losses[step] - fp32.losses[step]) <= 1e-2 * fp32.losses[step]);
        assert_true(bf16.losses[step] != fp32.losses[step]);
    }
}

// Results do not depend on how many threads a rank has.
static void test_threads(void **state)
{
    (void)state;
    fixture_run runs[2];
    for (int i = 0; i < 2; i++) {
        runs[i] = (fixture_run){.want = case_of(NULL, 2, (mics_sharding){2, 2, 2})};
        runs[i].want.threads = 1 + i;
        fixture_go(&runs[i]);
    }
    check_curve(&runs[1], &runs[0]);
}

static void test_flips_are_found(void **state)
{
    (void)state;
    fixture_case want = {.ranks = 4,
                         .nodes = 1,
                         .sharding = {2, 2, 2},
                         .sequences = 8,
                         .micro_steps = 1,
                         .prefetch = 1,
                         .dtype = MICS_DTYPE_BF16};
    flips_go(&want, FLIPS_MASTERS, 3, 1, 2);
    flips_go(&want, FLIPS_MOMENTS, 0, 0, 2);
    want.sharding = (mics_sharding){2, 2, 4};
    flips_go(&want, FLIPS_PARAMS, 2, 1, 2);
    want.share_params = true;
    flips_go(&want, FLIPS_PARAMS, 2, 1, 2);
    want.sharding = (mics_sharding){1, 1, 1};
    want.ranks = 3;
    want.sequences = 6;
    flips_go(&want, FLIPS_MASTERS, 0, 1, 3);
}

// ---- what callers see ----

// After the release masters and states are seen in place, shards no more; the copy comes back with
// the masters inside.
static mics_status run_copies(ranks_self *self)
{
    fixture_run *run = self->arg;
    mics_engine *engine = NULL;
    mics_memory_stats opened, released;
    mics_status status = MICS_OK;
    MICS_TRY(fixture_count(self, run));
    MICS_TRY(fixture_open_engine(self, run, &engine));
    MICS_TRY_OUT(mics_engine_init_random(engine, 1));
    const mics_engine_optimizer_shard before = mics_engine_optimizer_shard_get(engine, 1);
    const float drawn = before.params[5];
    mics_memory_stats_get(self->memory, &opened);
    mics_engine_release(engine);
    mics_memory_stats_get(self->memory, &released);
    RANKS_EXPECT(opened.now[MICS_MEM_HOST] - released.now[MICS_MEM_HOST] ==
                 mics_memory_block_bytes(mics_engine_copy_bytes(run->schedule)));
    MICS_TRY_OUT(mics_engine_download(engine));
    const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, 1);
    RANKS_EXPECT(held.shard_params == NULL && held.params[5] == drawn && held.states[1] != NULL);
    held.params[5] = 0.3f; // not a bf16
    MICS_TRY_OUT(mics_engine_upload(engine));
    MICS_TRY_OUT(mics_engine_download_params(engine));
    const mics_engine_optimizer_shard again = mics_engine_optimizer_shard_get(engine, 1);
    RANKS_EXPECT(again.params[5] == 0.3f && again.states[1] == held.states[1]);
    again.params[5] = 0.7f;
    MICS_TRY_OUT(mics_engine_upload(engine));
    mics_engine_release(engine);
    RANKS_EXPECT(mics_engine_optimizer_shard_get(engine, 1).params[5] == 0.7f);
out:
    mics_engine_close(engine);
    return status;
}

static void test_copies(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    fixture_run run = {.want = case_of(NULL, 1, (mics_sharding){1, 1, 1})};
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &run);
    ranks_run_ok(1, run_copies, &run);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
}

static mics_status open_only(ranks_self *self)
{
    fixture_run *run = self->arg;
    mics_engine *engine = NULL;
    MICS_TRY(fixture_count(self, run));
    const mics_status status = fixture_open_engine(self, run, &engine);
    mics_engine_close(engine);
    run->fail_at = status;
    return MICS_OK;
}

// What the CPU has no kernels for, what does not fit its schedule, and what can only be planned.
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        mics_dtype schedule, engine;
        mics_status status;
        bool all_reduces;
    } cases[] = {{MICS_DTYPE_FP16, MICS_DTYPE_FP16, MICS_ERR_UNSUPPORTED, false},
                 {MICS_DTYPE_BF16, MICS_DTYPE_FP32, MICS_ERR_INVALID, false},
                 {MICS_DTYPE_FP32, MICS_DTYPE_BF16, MICS_ERR_INVALID, false},
                 {MICS_DTYPE_FP32, MICS_DTYPE_FP32, MICS_ERR_UNSUPPORTED, true},
                 {MICS_DTYPE_BF16, MICS_DTYPE_BF16, MICS_OK, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_memory *memory = NULL;
        fixture_run run = {.want = case_of(NULL, 1, (mics_sharding){1, 1, 1})};
        run.want.dtype = cases[i].schedule;
        ASSERT_OK(mics_memory_open(&memory));
        fixture_open(memory, &run);
        run.want.dtype = cases[i].engine;
        run.schedule->spec.all_reduces = cases[i].all_reduces;
        ranks_run_ok(1, open_only, &run);
        assert_int_equal(run.fail_at, cases[i].status);
        fixture_close(&run);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

// Accumulators in bf16: of one micro-step as it is, of several rounded. fixture.h checks memory.
static void test_rounded_sums(void **state)
{
    (void)state;
    const fixture_run reference = one_rank(NULL, MICS_DTYPE_BF16);
    for (int i = 0; i < 6; i++) {
        fixture_run run = {.want = reference.want};
        run.want.rounded_sums = i != 0;
        run.want.micro_steps = i == 0 ? 1 : i == 1 ? 4 : 2;
        run.want.layered_micro_steps = i == 3 ? 2 : 0;
        run.want.recompute = i == 4;
        run.want.state_dtype = i == 5 ? MICS_STATE_8BIT : MICS_STATE_FP32;
        fixture_go(&run);
        assert_true(mics_schedule_rounds_sums(
            &(mics_schedule_spec){.precision = MICS_PRECISION_MIXED,
                                  .mesh = {.ranks = 1},
                                  .micro_steps = run.want.micro_steps,
                                  .rounded_sums = run.want.rounded_sums}));
        for (int32_t step = 0; step < run.want.steps; step++)
            if (!(fabs(run.losses[step] - reference.losses[step]) <= 0.01 * reference.losses[step]))
                fail_msg("case %d, step %d: loss %.9g, %.9g with sums in fp32", i, (int)step + 1,
                         run.losses[step], reference.losses[step]);
    }
}

// On several ranks that do not split gradients: the second hop sends what accumulators hold, in one
// stage, in two, with replicas and in shared messages.
static void test_rounded_sums_of_ranks(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        int64_t coalesce_below;
    } cases[] = {{2, 1, {1, 1, 1}, 0}, {2, 2, {1, 1, 2}, 0}, {4, 2, {1, 1, 4}, 0},
                 {4, 2, {1, 1, 2}, 0}, {4, 2, {1, 1, 1}, 0}, {4, 2, {1, 1, 2}, 4096}};
    const fixture_run reference = one_rank(NULL, MICS_DTYPE_BF16);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture_run run = {.want = reference.want};
        run.want.ranks = cases[i].ranks;
        run.want.nodes = cases[i].nodes;
        run.want.sharding = cases[i].sharding;
        run.want.coalesce_below = cases[i].coalesce_below;
        run.want.micro_steps = 2;
        run.want.rounded_sums = true;
        fixture_go(&run);
        assert_true(mics_schedule_rounds_sums(
            &(mics_schedule_spec){.precision = MICS_PRECISION_MIXED,
                                  .mesh = {.ranks = run.want.ranks, .sharding = run.want.sharding},
                                  .micro_steps = run.want.micro_steps,
                                  .rounded_sums = true}));
        for (int32_t step = 0; step < run.want.steps; step++)
            if (!(fabs(run.losses[step] - reference.losses[step]) <= 0.01 * reference.losses[step]))
                fail_msg("case %d, step %d: loss %.9g, %.9g with sums in fp32", (int)i,
                         (int)step + 1, run.losses[step], reference.losses[step]);
    }
}

// ---- a residual stream in fp32 ----

// 24 layers: the more sums the stream is of, the more roundings there are where it is bf16.
static const char deep[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 24, \"n_head\": 3, \"n_embd\": 12, "
    "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";

// Every sharding; fixture.h compares the memory that was taken with the ledger's.
static void test_wide_residual(void **state)
{
    (void)state;
    static const char *const configs[] = {NULL, fixture_decoder, fixture_gpt2_dropout};
    for (int i = 0; i < 3; i++) {
        fixture_run reference = {.want = case_of(configs[i], 1, (mics_sharding){1, 1, 1})};
        reference.want.wide_residual = true;
        fixture_go(&reference);
        check_family(2, &reference);
        check_family(4, &reference);
    }
}

// How far losses of the first weights, and the norms of their gradients, are from fp32's, relative.
static void measure_noise(bool wide_residual, const fixture_run *fp32, double *losses_out,
                          double *norms_out)
{
    fixture_run run = {.want = fp32->want};
    double losses = 0, norms = 0;
    run.want.dtype = MICS_DTYPE_BF16;
    run.want.wide_residual = wide_residual;
    fixture_go(&run);
    for (int32_t step = 0; step < run.want.steps; step++) {
        losses += pow(run.losses[step] / fp32->losses[step] - 1, 2);
        norms += pow(run.norms[step] / fp32->norms[step] - 1, 2);
    }
    *losses_out = sqrt(losses / run.want.steps);
    *norms_out = sqrt(norms / run.want.steps);
}

static void test_wide_residual_is_nearer_to_fp32(void **state)
{
    (void)state;
    fixture_run fp32 = {.want = case_of(deep, 1, (mics_sharding){1, 1, 1})};
    double losses[2], norms[2];
    fp32.want.dtype = MICS_DTYPE_FP32;
    fp32.want.still = true;
    fixture_go(&fp32);
    for (int wide = 0; wide < 2; wide++)
        measure_noise(wide, &fp32, &losses[wide], &norms[wide]);
    print_message("losses are %.2g off, %.2g with the stream in fp32; norms %.2g and %.2g\n",
                  losses[0], losses[1], norms[0], norms[1]);
    assert_true(losses[1] < losses[0] && norms[1] < norms[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_decoder),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_beside_fp32),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_flips_are_found),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_rounded_sums),
        cmocka_unit_test(test_rounded_sums_of_ranks),
        cmocka_unit_test(test_wide_residual),

        cmocka_unit_test(test_wide_residual_is_nearer_to_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
