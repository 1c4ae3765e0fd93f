// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Segments and tokens that do not count, in whole models: documents of one sample train as they do
// apart, every mesh gives the same losses, and a step of which nothing counts is left out.
#include "fixture.h"
#include "mics/core/transport.h"

enum { LENGTH = FIXTURE_LENGTH, SEQUENCES = 3, TOKENS = SEQUENCES * LENGTH };

// Positions are relative here, so a document is the same wherever it stands.
static const char llama[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 20, "
    "\"max_position_embeddings\": 64, \"vocab_size\": 29, \"initializer_range\": 0.5, "
    "\"tie_word_embeddings\": %s}";

// ---- meshes ----

static fixture_run masked_run(const char *config, bool both_ways)
{
    fixture_run run = {.want = {.config = config,
                                .ranks = 1,
                                .nodes = 1,
                                .sharding = {1, 1, 1},
                                .sequences = 24,
                                .micro_steps = 2,
                                .steps = FIXTURE_STEPS_RUN,
                                .masked = true,
                                .both_ways = both_ways}};
    return run;
}

// In fp32 what rounds is the order of sums alone. In bf16 so do messages, and one bit of a weight
// is 2^-8 of it.
static void check_same_curve(const fixture_run *run, const fixture_run *one, mics_dtype dtype)
{
    const bool fp32 = dtype == MICS_DTYPE_FP32;
    const double loss = fp32 ? 1e-5 : 1e-2, norm = fp32 ? 1e-3 : 1e-1;
    for (int step = 0; step < FIXTURE_STEPS_RUN; step++) {
        if (!(fabs(run->losses[step] - one->losses[step]) <= loss * one->losses[step]))
            fail_msg("step %d: loss %.9g, of one rank %.9g", step + 1, run->losses[step],
                     one->losses[step]);
        if (!(fabs(run->norms[step] - one->norms[step]) <= norm * one->norms[step]))
            fail_msg("step %d: norm %.9g, of one rank %.9g", step + 1, run->norms[step],
                     one->norms[step]);
    }
    assert_true(fabs(run->eval_loss - one->eval_loss) <= 1e-2 * one->eval_loss);
}

static void check_meshes(const char *config, bool both_ways, mics_dtype dtype)
{
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        int32_t micro_steps, layered;
    } cases[] = {
        {2, 1, {1, 1, 1}, 1, 0}, {2, 2, {1, 2, 2}, 2, 2}, {3, 1, {3, 3, 3}, 4, 0},
        {4, 2, {2, 2, 4}, 3, 3}, {4, 2, {2, 2, 2}, 1, 0}, {8, 4, {4, 4, 8}, 3, 0},
    };
    fixture_run one = masked_run(config, both_ways);
    one.want.dtype = dtype;
    fixture_go(&one);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture_run run = masked_run(config, both_ways);
        run.want.dtype = dtype;
        run.want.ranks = cases[i].ranks;
        run.want.nodes = cases[i].nodes;
        run.want.sharding = cases[i].sharding;
        run.want.micro_steps = cases[i].micro_steps;
        run.want.layered_micro_steps = cases[i].layered;
        run.want.recompute = i % 2 == 1;
        run.want.prefetch = (int32_t)i % 3;
        fixture_go(&run);
        check_same_curve(&run, &one, dtype);
    }
}

static void every_mesh_gives_the_same_losses(void **state)
{
    (void)state;
    check_meshes(NULL, false, MICS_DTYPE_FP32);
    check_meshes(fixture_decoder, true, MICS_DTYPE_FP32);
}

static void every_mesh_runs_in_bf16(void **state)
{
    (void)state;
    check_meshes(fixture_decoder, false, MICS_DTYPE_BF16);
    check_meshes(NULL, true, MICS_DTYPE_BF16);
}

// ---- one rank, batches of the test's own ----

typedef struct batch {
    int32_t inputs[TOKENS], targets[TOKENS], segments[TOKENS];
} batch;

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    const batch *of = ctx;
    (void)micro_step;
    memcpy(inputs_out, of->inputs, sizeof of->inputs);
    memcpy(targets_out, of->targets, sizeof of->targets);
    return MICS_OK;
}

static mics_status read_segments(void *ctx, int32_t micro_step, const int32_t *inputs,
                                 int32_t *segments_out)
{
    const batch *of = ctx;
    (void)micro_step;
    (void)inputs;
    memcpy(segments_out, of->segments, sizeof of->segments);
    return MICS_OK;
}

typedef mics_status (*check_function)(mics_engine *engine, const ranks_self *self);

typedef struct single {
    const mics_schedule *schedule;
    check_function check;
} single;

static mics_status single_rank(ranks_self *self)
{
    const single *run = self->arg;
    mics_engine *engine = NULL;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
    const mics_engine_spec spec = {.memory = self->memory,
                                   .schedule = run->schedule,
                                   .comm = self->comm,
                                   .optimizer = {MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0.1}};
    MICS_TRY(mics_engine_open(&spec, &engine));
    mics_status status = mics_engine_init_random(engine, 1);
    if (status == MICS_OK)
        status = run->check(engine, self);
    mics_engine_close(engine);
    return status;
}

static void on_one_rank(bool both_ways, check_function check)
{
    fixture_run run = masked_run(llama, both_ways);
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    run.want.sequences = SEQUENCES;
    run.want.micro_steps = 1;
    fixture_open(memory, &run);
    single of = {.schedule = run.schedule, .check = check};
    ranks_run_ok(1, single_rank, &of);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
}

static mics_status evaluate(mics_engine *engine, batch *of, mics_step_result *result_out)
{
    const mics_batch_source source = {
        .read = read_batch, .read_segments = read_segments, .ctx = of};
    return mics_engine_eval(engine, &source, result_out);
}

static int32_t token(int64_t n)
{
    return (int32_t)(mics_rng_bits(11, 11, (uint64_t)n) % 29);
}

// Three documents of 5, 7 and 4 tokens.
static const int64_t BEGINS[] = {0, 5, 12, LENGTH};

// All in the first sequence; what stands behind them does not count. Or one a sequence, from its
// begin on, with padding.
static batch documents(bool packed)
{
    batch of;
    for (int64_t n = 0; n < TOKENS; n++) {
        of.inputs[n] = 1;
        of.targets[n] = -1;
        of.segments[n] = -1;
    }
    for (int document = 0; document < 3; document++)
        for (int64_t t = BEGINS[document]; t < BEGINS[document + 1]; t++) {
            const int64_t at = packed ? t : document * LENGTH + t - BEGINS[document];
            of.inputs[at] = token(t);
            of.targets[at] = token(100 + t);
            of.segments[at] = document;
        }
    return of;
}

static mics_status check_apart(mics_engine *engine, const ranks_self *self)
{
    batch packed = documents(true), apart = documents(false), open = documents(true);
    mics_step_result together, alone, unmasked;
    (void)self;
    for (int64_t n = 0; n < LENGTH; n++)
        open.segments[n] = 0;
    MICS_TRY(evaluate(engine, &packed, &together));
    MICS_TRY(evaluate(engine, &apart, &alone));
    MICS_TRY(evaluate(engine, &open, &unmasked));
    RANKS_EXPECT(together.counted == LENGTH && alone.counted == LENGTH);
    RANKS_EXPECT(fabs(together.loss - alone.loss) <= 1e-5 * alone.loss);
    RANKS_EXPECT(fabs(together.loss - unmasked.loss) > 1e-3); // the mask hides something
    return MICS_OK;
}

static void documents_of_a_sample_are_as_apart(void **state)
{
    (void)state;
    on_one_rank(false, check_apart);
    on_one_rank(true, check_apart);
}

// Tokens that do not count change nothing, whatever stands there, and a gradient is of the mean
// over the others: of a batch and of that batch twice, with half of it not counted, it is the same.
static mics_status check_counted(mics_engine *engine, const ranks_self *self)
{
    batch of = documents(false), other;
    mics_step_result first, second;
    (void)self;
    memcpy(&other, &of, sizeof of);
    for (int64_t n = 0; n < TOKENS; n++) {
        if (of.segments[n] < 0)
            other.inputs[n] = 7;
    }
    mics_batch_source source = {.read = read_batch, .read_segments = read_segments, .ctx = &of};
    MICS_TRY(mics_engine_step(engine, 1, 0.0F, &source, &first));
    source.ctx = &other;
    MICS_TRY(mics_engine_step(engine, 2, 0.0F, &source, &second));
    RANKS_EXPECT(first.counted == LENGTH);
    RANKS_EXPECT(first.loss == second.loss && first.grad_norm == second.grad_norm);
    // One sequence that counts, and the same one three times.
    for (int64_t n = 0; n < TOKENS; n++) {
        of.inputs[n] = other.inputs[n] = token(n % LENGTH);
        other.targets[n] = token(100 + n % LENGTH);
        of.targets[n] = n < LENGTH ? other.targets[n] : -1;
        of.segments[n] = other.segments[n] = 0;
    }
    source.ctx = &of;
    MICS_TRY(mics_engine_step(engine, 3, 0.0F, &source, &first));
    source.ctx = &other;
    MICS_TRY(mics_engine_step(engine, 4, 0.0F, &source, &second));
    RANKS_EXPECT(first.counted == LENGTH && second.counted == TOKENS);
    RANKS_EXPECT(fabs(first.loss - second.loss) <= 1e-6 * second.loss);
    RANKS_EXPECT(fabs(first.grad_norm - second.grad_norm) <= 1e-5 * second.grad_norm);
    return MICS_OK;
}

static void gradients_are_of_the_mean(void **state)
{
    (void)state;
    on_one_rank(false, check_counted);
}

static mics_status check_empty(mics_engine *engine, const ranks_self *self)
{
    batch of = documents(true), none;
    float before[64];
    mics_step_result result;
    char text[128];
    (void)self;
    memcpy(&none, &of, sizeof of);
    for (int64_t n = 0; n < TOKENS; n++)
        none.targets[n] = -1;
    mics_batch_source source = {.read = read_batch, .read_segments = read_segments, .ctx = &of};
    MICS_TRY(mics_engine_step(engine, 1, 1e-2F, &source, &result));
    RANKS_EXPECT(result.verdict == MICS_VERDICT_UPDATED);
    MICS_TRY(mics_engine_complete(engine));
    const float *params = mics_engine_optimizer_shard_get(engine, 1).shard_params;
    memcpy(before, params, sizeof before);
    source.ctx = &none;
    MICS_TRY(mics_engine_step(engine, 2, 1e-2F, &source, &result));
    RANKS_EXPECT(result.verdict == MICS_VERDICT_EMPTY && result.counted == 0);
    RANKS_EXPECT(isnan(result.loss) && result.grad_norm == 0);
    RANKS_EXPECT(strstr(mics_engine_explain(engine, text, sizeof text), "counts") != NULL);
    MICS_TRY(mics_engine_complete(engine));
    RANKS_EXPECT(memcmp(before, params, sizeof before) == 0);
    MICS_TRY(evaluate(engine, &none, &result));
    RANKS_EXPECT(isnan(result.loss) && result.counted == 0);
    source.ctx = &of;
    MICS_TRY(mics_engine_step(engine, 3, 1e-2F, &source, &result));
    RANKS_EXPECT(result.verdict == MICS_VERDICT_UPDATED && result.loss > 0);
    MICS_TRY(mics_engine_complete(engine));
    RANKS_EXPECT(memcmp(before, params, sizeof before) != 0);
    return MICS_OK;
}

static void a_step_that_counts_nothing_is_left_out(void **state)
{
    (void)state;
    on_one_rank(false, check_empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mesh_gives_the_same_losses),
        cmocka_unit_test(every_mesh_runs_in_bf16),
        cmocka_unit_test(documents_of_a_sample_are_as_apart),
        cmocka_unit_test(gradients_are_of_the_mean),
        cmocka_unit_test(a_step_that_counts_nothing_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
