// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Preference pairs: losses and sums as fp64 has them from each answer's log-probability, gradients as
// differences of the loss, and the same on every mesh.
#include "fixture.h"
#include "mics/builder.h"

enum { LENGTH = FIXTURE_LENGTH, SEQUENCES = 48 };

static const mics_preference OBJECTIVES[] = {
    {MICS_PREFERENCE_DPO, 0.1, 0}, {MICS_PREFERENCE_DPO, 0.3, 0.2}, {MICS_PREFERENCE_IPO, 0.5, 0}};
enum { OBJECTIVE_COUNT = sizeof OBJECTIVES / sizeof *OBJECTIVES };

// ---- in fp64 ----

// One pair, from each answer's log-probability, that of the reference, and its tokens that count.
static double pair_loss(const mics_preference *of, const double logp[2], const double reference[2],
                        const int64_t counted[2])
{
    double ratio[2];
    for (int i = 0; i < 2; i++)
        ratio[i] = (logp[i] - reference[i]) /
                   (of->kind == MICS_PREFERENCE_IPO && counted[i] > 0 ? (double)counted[i] : 1);
    const double h = ratio[0] - ratio[1], s = of->label_smoothing;
    if (of->kind == MICS_PREFERENCE_IPO)
        return pow(h - 1 / (2 * of->beta), 2);
    return -(1 - s) * log(1 / (1 + exp(-of->beta * h))) - s * log(1 / (1 + exp(of->beta * h)));
}

// ---- one rank ----

static fixture_run run_of(const mics_preference *of)
{
    fixture_run run = {.want = {.config = fixture_decoder,
                                .ranks = 1,
                                .nodes = 1,
                                .sharding = {1, 1, 1},
                                .sequences = SEQUENCES,
                                .micro_steps = 1,
                                .steps = FIXTURE_STEPS_RUN,
                                .masked = true,
                                .preference = *of,
                                .optimizer = {MICS_OPTIMIZER_SGD, {0, 0}, 0}}};
    return run;
}

// What a result must say of the step's pairs, by log-probabilities of the engine's own.
static mics_status check_sums(const fixture_run *run, const float *log_probs,
                              const mics_step_result *result)
{
    fixture_source source = {.run = run, .step = 1};
    static int32_t inputs[SEQUENCES * LENGTH], targets[SEQUENCES * LENGTH];
    float references[SEQUENCES];
    double loss = 0, sums[MICS_PREFERENCE_SUMS] = {0};
    int64_t pairs = 0;
    MICS_TRY(fixture_read(&source, 0, inputs, targets));
    MICS_TRY(fixture_read_references(&source, 0, references));
    for (int b = 0; b < SEQUENCES; b += 2) {
        int64_t counted[2] = {0, 0};
        for (int t = 0; t < 2 * LENGTH; t++)
            counted[t / LENGTH] += targets[b * LENGTH + t] >= 0;
        const double logp[2] = {(double)log_probs[b], (double)log_probs[b + 1]};
        const double reference[2] = {(double)references[b], (double)references[b + 1]};
        RANKS_EXPECT((counted[0] > 0) == (logp[0] < 0));
        if (counted[0] + counted[1] == 0)
            continue;
        pairs++;
        loss += pair_loss(&run->want.preference, logp, reference, counted);
        const double chosen = run->want.preference.beta * (logp[0] - reference[0]),
                     rejected = run->want.preference.beta * (logp[1] - reference[1]);
        sums[MICS_PREFERENCE_CHOSEN_REWARD] += chosen;
        sums[MICS_PREFERENCE_REJECTED_REWARD] += rejected;
        sums[MICS_PREFERENCE_ACCURATE] += chosen > rejected;
        sums[MICS_PREFERENCE_CHOSEN_LOGP] += logp[0];
        sums[MICS_PREFERENCE_REJECTED_LOGP] += logp[1];
    }
    RANKS_EXPECT(pairs < SEQUENCES / 2 && result->counted == pairs);
    RANKS_EXPECT(sums[MICS_PREFERENCE_ACCURATE] > 0 && sums[MICS_PREFERENCE_ACCURATE] < pairs);
    RANKS_EXPECT(fabs(result->loss - loss / (double)pairs) <= 1e-12 * fabs(result->loss));
    for (int i = 0; i < MICS_PREFERENCE_SUMS; i++)
        RANKS_EXPECT(fabs(result->preference_sums[i] - sums[i]) <= 1e-12 * (1 + fabs(sums[i])));
    return MICS_OK;
}

// Moves all parameters by `by` times a direction.
static mics_status move(mics_engine *engine, const fixture_run *run, const float *from,
                        const float *direction, double by)
{
    int64_t at = 0;
    for (int32_t u = 0; u < run->model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        for (int64_t i = 0; i < held.shard.end; i++, at++)
            held.shard_params[i] = (float)((double)from[at] + by * (double)direction[at]);
    }
    MICS_TRY(mics_engine_upload(engine));
    return mics_engine_complete(engine);
}

static void copy_params(const mics_engine *engine, const fixture_run *run, float *params_out)
{
    for (int32_t u = 0; u < run->model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        memcpy(params_out, held.shard_params, (size_t)held.shard.end * sizeof(float));
        params_out += held.shard.end;
    }
}

enum { MAX_PARAMS = 1 << 15 };

// The difference of losses along a direction is what the gradient says.
static mics_status check_direction(mics_engine *engine, const fixture_run *run,
                                   const mics_batch_source *read, const float *params,
                                   const float *gradient, const float *direction, int64_t elems)
{
    double square = 0, expected = 0;
    mics_step_result up, down;
    for (int64_t i = 0; i < elems; i++) {
        square += (double)direction[i] * (double)direction[i];
        expected += (double)direction[i] * (double)gradient[i];
    }
    const double by = 5e-3 / sqrt(square);
    MICS_TRY(move(engine, run, params, direction, by));
    MICS_TRY(mics_engine_eval(engine, read, &up));
    MICS_TRY(move(engine, run, params, direction, -by));
    MICS_TRY(mics_engine_eval(engine, read, &down));
    const double got = (up.loss - down.loss) / (2 * by);
    if (!(fabs(got - expected) <= 5e-3 * fabs(expected) + 2e-4 * sqrt(square)))
        return mics_fail(MICS_ERR_INVALID, "the loss moves by %g, the gradient says %g", got,
                         expected);
    return MICS_OK;
}

static mics_status check_step(mics_engine *engine, fixture_run *run)
{
    static float before[MAX_PARAMS], after[MAX_PARAMS], gradient[MAX_PARAMS], drawn[MAX_PARAMS];
    static const float LR = 1e-2F;
    fixture_source source = {.run = run, .step = 1};
    const mics_batch_source read = {.read = fixture_read,
                                    .read_segments = fixture_read_segments,
                                    .read_references = fixture_read_references,
                                    .ctx = &source};
    float log_probs[SEQUENCES];
    mics_step_result step, eval;
    int64_t elems = 0;
    for (int32_t u = 0; u < run->model->unit_count; u++)
        elems += run->model->units[u].elems;
    RANKS_EXPECT(elems <= MAX_PARAMS);
    MICS_TRY(mics_engine_log_probs(engine, &read, log_probs));
    MICS_TRY(mics_engine_eval(engine, &read, &eval));
    copy_params(engine, run, before);
    MICS_TRY(mics_engine_step(engine, 1, LR, &read, &step));
    MICS_TRY(mics_engine_complete(engine));
    copy_params(engine, run, after);
    RANKS_EXPECT(step.verdict == MICS_VERDICT_UPDATED);
    MICS_TRY(check_sums(run, log_probs, &step));
    MICS_TRY(check_sums(run, log_probs, &eval));
    double square = 0;
    for (int64_t i = 0; i < elems; i++) {
        gradient[i] = (before[i] - after[i]) / LR;
        square += (double)gradient[i] * (double)gradient[i];
        drawn[i] = (float)(mics_rng_bits(5, 5, (uint64_t)i) % 201) / 100 - 1;
    }
    RANKS_EXPECT(fabs(sqrt(square) - step.grad_norm) <= 1e-3 * step.grad_norm);
    MICS_TRY(check_direction(engine, run, &read, before, gradient, gradient, elems));
    return check_direction(engine, run, &read, before, gradient, drawn, elems);
}

typedef mics_status (*check_function)(mics_engine *engine, fixture_run *run);

typedef struct single {
    fixture_run run;
    check_function check;
} single;

static mics_status single_rank(ranks_self *self)
{
    single *of = self->arg;
    mics_engine *engine = NULL;
    MICS_TRY(fixture_count(self, &of->run));
    MICS_TRY(fixture_open_engine(self, &of->run, &engine));
    mics_status status = mics_engine_init_random(engine, 1);
    if (status == MICS_OK)
        status = of->check(engine, &of->run);
    mics_engine_close(engine);
    return status;
}

static void on_one_rank(fixture_run run, check_function check)
{
    single of = {.run = run, .check = check};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &of.run);
    ranks_run_ok(1, single_rank, &of);
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void loss_and_gradient_are_of_the_pairs(void **state)
{
    (void)state;
    for (int i = 0; i < OBJECTIVE_COUNT; i++)
        on_one_rank(run_of(&OBJECTIVES[i]), check_step);
}

// ---- the reference ----

static mics_status read_own(void *ctx, int32_t micro_step, float *references_out)
{
    (void)micro_step;
    memcpy(references_out, ((const fixture_source *)ctx)->references, SEQUENCES * sizeof(float));
    return MICS_OK;
}

// A new adapter adds nothing, so that chance decides between answers.
static mics_status check_reference(mics_engine *engine, fixture_run *run)
{
    float before[SEQUENCES], after[SEQUENCES];
    fixture_source source = {.run = run, .step = 1, .references = before};
    const mics_batch_source read = {.read = fixture_read,
                                    .read_segments = fixture_read_segments,
                                    .read_references = read_own,
                                    .ctx = &source};
    mics_step_result result;
    MICS_TRY(mics_engine_log_probs(engine, &read, before));
    MICS_TRY(mics_engine_step(engine, 1, 0.1F, &read, &result));
    RANKS_EXPECT(fabs(result.loss - log(2)) <= 1e-12 && result.grad_norm > 0);
    RANKS_EXPECT(result.preference_sums[MICS_PREFERENCE_CHOSEN_REWARD] == 0);
    MICS_TRY(mics_engine_log_probs(engine, &read, after));
    RANKS_EXPECT(memcmp(before, after, sizeof before) != 0);
    MICS_TRY(mics_engine_step(engine, 2, 0.1F, &read, &result));
    RANKS_EXPECT(result.loss < log(2) - 1e-4);
    return MICS_OK;
}

static void the_reference_is_the_base_of_a_new_adapter(void **state)
{
    (void)state;
    static const mics_lora_spec lora = {.rank = 2, .alpha = 8, .dropout = 0};
    for (int dtype = MICS_DTYPE_FP32; dtype <= MICS_DTYPE_BF16; dtype++) {
        fixture_run run = run_of(&OBJECTIVES[0]);
        run.want.lora = &lora;
        run.want.dtype = (mics_dtype)dtype;
        on_one_rank(run, check_reference);
    }
}

// ---- meshes ----

static void check_same_curve(const fixture_run *run, const fixture_run *one, double tolerance)
{
    for (int step = 0; step < FIXTURE_STEPS_RUN; step++) {
        if (!(fabs(run->losses[step] - one->losses[step]) <= tolerance * one->losses[step]))
            fail_msg("step %d: loss %.9g, of one rank %.9g", step + 1, run->losses[step],
                     one->losses[step]);
        if (!(fabs(run->norms[step] - one->norms[step]) <= 100 * tolerance * one->norms[step]))
            fail_msg("step %d: norm %.9g, of one rank %.9g", step + 1, run->norms[step],
                     one->norms[step]);
    }
    if (run->want.micro_steps == 1) // the same batch
        assert_true(fabs(run->eval_loss - one->eval_loss) <= 100 * tolerance * one->eval_loss);
}

static void check_meshes(const mics_preference *of, mics_dtype dtype, double tolerance)
{
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        int32_t micro_steps, layered;
    } cases[] = {{1, 1, {1, 1, 1}, 4, 2}, {2, 1, {1, 1, 1}, 1, 0}, {2, 2, {1, 2, 2}, 2, 2},
                 {3, 1, {3, 3, 3}, 4, 0}, {4, 2, {2, 2, 4}, 3, 3}, {4, 2, {2, 2, 2}, 1, 0},
                 {8, 4, {4, 4, 8}, 3, 0}};
    fixture_run one = run_of(of);
    one.want.dtype = dtype;
    one.want.optimizer = (mics_optimizer){0};
    fixture_go(&one);
    assert_true(one.losses[FIXTURE_STEPS_RUN - 1] != one.losses[0]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture_run run = run_of(of);
        run.want.optimizer = (mics_optimizer){0};
        run.want.dtype = dtype;
        run.want.ranks = cases[i].ranks;
        run.want.nodes = cases[i].nodes;
        run.want.sharding = cases[i].sharding;
        run.want.micro_steps = cases[i].micro_steps;
        run.want.layered_micro_steps = cases[i].layered;
        run.want.recompute = i % 2 == 1;
        run.want.prefetch = (int32_t)i % 3;
        fixture_go(&run);
        check_same_curve(&run, &one, tolerance);
    }
}

static void every_mesh_gives_the_same_losses(void **state)
{
    (void)state;
    for (int i = 0; i < OBJECTIVE_COUNT; i++)
        check_meshes(&OBJECTIVES[i], MICS_DTYPE_FP32, 1e-5);
}

static void every_mesh_runs_in_bf16(void **state)
{
    (void)state;
    check_meshes(&OBJECTIVES[0], MICS_DTYPE_BF16, 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradient_are_of_the_pairs),
        cmocka_unit_test(the_reference_is_the_base_of_a_new_adapter),
        cmocka_unit_test(every_mesh_gives_the_same_losses),
        cmocka_unit_test(every_mesh_runs_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
