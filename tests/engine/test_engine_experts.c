// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Experts with GShard's recipe (capacity, drops, a random second expert, noise, every other layer)
// and with shared experts, against plain fp64: logits, gradients, and 20 steps of each optimizer,
// under shardings, other splits of the batch, and with experts that are spread over ranks.
#include "base/json.h"
#include "engine/state.h"
#include "mics/core/transport.h"
#include "model/from_config.h"
#include "ranks.h"
#include "wide_model.h"
#include "wide_optimizer.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STEPS = 2 };
#else
enum { STEPS = 20 };
#endif

// Some three times what was seen (AVX-512): 6e-6 of logits, 6e-6 of a gradient's norm, 1.4e-7 of an
// evaluation.
static const double logit_tolerance = 2e-5, grad_tolerance = 2e-5, evaluation_tolerance = 1e-6;
// Over 20 steps more: optimizers that take signs or divide by small moments make steps of roundings.
// Seen were 1.6e-5 of a loss, 2.0e-5 between meshes, 2.4e-4 of what a parameter changes by.
static const double loss_tolerance = 5e-5, alike_tolerance = 5e-5, change_tolerance = 1e-3;

enum { SEQUENCES = 4, LENGTH = 10, N = SEQUENCES * LENGTH, VOCAB = 11, SEED = 9 };
static const float rate = 5e-3F;
static const wide_rule adamw = {{MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0.1}, 0};

#define SHAPE                                                                                      \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "           \
    "\"hidden_size\": 8, \"head_dim\": 4, \"intermediate_size\": 6, "                              \
    "\"moe_intermediate_size\": 4, \"max_position_embeddings\": 16, \"vocab_size\": 11, "          \
    "\"initializer_range\": 0.4, \"output_router_logits\": true, \"router_aux_loss_coef\": 0.05, " \
    "\"router_z_loss_coef\": 0.01, "

static const char gshard[] =
    "{\"model_type\": \"qwen3_moe\", " SHAPE
    "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, "
    "\"decoder_sparse_step\": 2, \"expert_capacity_factor\": 0.9, "
    "\"expert_eval_capacity_factor\": 0.6, \"second_expert_policy\": \"random\", "
    "\"router_jitter_noise\": 0.1}";

static const char shared[] =
    "{\"model_type\": \"qwen2_moe\", " SHAPE
    "\"num_experts\": 4, \"num_experts_per_tok\": 3, \"shared_expert_intermediate_size\": 6, "
    "\"expert_capacity_factor\": 0.8, \"expert_min_capacity\": 7}";

static int32_t token(int64_t step, int64_t sample, int64_t position)
{
    const uint64_t bits = mics_rng_bits(7, (uint64_t)step, (uint64_t)sample);
    return (int32_t)((bits % VOCAB + (uint64_t)position * (1 + bits / 64 % 3)) % VOCAB);
}

// ---- the reference's run ----

typedef struct expected {
    mics_memory *memory;
    mics_json *json;
    mics_model *model;
    const wide_rule *rule;
    double *params[WIDE_MAX_UNITS], *grads[WIDE_MAX_UNITS]; // first, and of step 1
    double *final[WIDE_MAX_UNITS];                          // parameters after the last step
    double losses[STEPS], dropped[STEPS];
    double *logits; // (N, VOCAB), of an evaluation before step 1
    double evaluated;
} expected;

static void batch_of(int64_t step, int32_t *tokens, int32_t *targets)
{
    for (int64_t n = 0; n < N; n++) {
        tokens[n] = token(step, n / LENGTH, n % LENGTH);
        targets[n] = token(step, n / LENGTH, n % LENGTH + 1);
    }
}

static void train_reference(expected *e, wide_model *w)
{
    double *first[WIDE_MAX_UNITS], *second[WIDE_MAX_UNITS], *grads[WIDE_MAX_UNITS];
    int32_t tokens[N], targets[N];
    for (int32_t u = 0; u < e->model->unit_count; u++) {
        first[u] = wide_doubles(e->model->units[u].elems);
        second[u] = wide_doubles(e->model->units[u].elems);
        grads[u] = wide_doubles(e->model->units[u].elems);
    }
    for (int64_t step = 1; step <= STEPS; step++) {
        batch_of(step, tokens, targets);
        w->training = true;
        w->draw = mask_draw(mics_rng_bits(SEED, (uint64_t)0x5B << 56, (uint64_t)step), 0);
        wide_loss(w, 0, tokens, targets);
        e->dropped[step - 1] = w->dropped;
        e->losses[step - 1] = wide_gradients(w, tokens, targets, grads);
        for (int32_t u = 0; u < e->model->unit_count; u++) {
            const mics_unit *unit = &e->model->units[u];
            if (step == 1)
                memcpy(e->grads[u], grads[u], (size_t)unit->elems * sizeof(double));
            const wide_shard all = {w->params[u], first[u], second[u], grads[u], unit->elems};
            for (int32_t p = 0; p < unit->param_count; p++)
                wide_update(e->rule, (double)rate, step, &unit->params[p], all);
        }
    }
    for (int32_t u = 0; u < e->model->unit_count; u++) {
        free(first[u]);
        free(second[u]);
        free(grads[u]);
    }
}

static void open_expected(expected *e, const char *config, const wide_rule *rule)
{
    wide_model w;
    int32_t tokens[N], targets[N];
    *e = (expected){.logits = wide_doubles(N * VOCAB), .rule = rule};
    ASSERT_OK(mics_memory_open(&e->memory));
    ASSERT_OK(mics_json_parse(e->memory, "config", config, strlen(config), &e->json));
    ASSERT_OK(mics_model_from_config(e->memory, e->json, false, &e->model));
    wide_open(&w, e->model, SEQUENCES, LENGTH);
    for (int32_t u = 0; u < e->model->unit_count; u++) {
        const mics_unit *unit = &e->model->units[u];
        e->params[u] = wide_doubles(unit->elems);
        e->grads[u] = wide_doubles(unit->elems);
        for (int32_t p = 0; p < unit->param_count; p++)
            for (int64_t i = 0; i < unit->params[p].elems; i++)
                w.params[u][unit->params[p].offset + i] =
                    (double)(float)((unit->params[p].dims > 1 ? 0 : 1) +
                                    0.4 * mics_rng_normal(4, (uint64_t)(u * 100 + p), (uint64_t)i));
        memcpy(e->params[u], w.params[u], (size_t)unit->elems * sizeof(double));
    }
    batch_of(1, tokens, targets);
    e->evaluated = wide_loss(&w, 0, tokens, targets);
    memcpy(e->logits, w.logits, (size_t)(N * VOCAB) * sizeof(double));
    train_reference(e, &w);
    for (int32_t u = 0; u < e->model->unit_count; u++) {
        e->final[u] = wide_doubles(e->model->units[u].elems);
        memcpy(e->final[u], w.params[u], (size_t)e->model->units[u].elems * sizeof(double));
    }
    wide_close(&w);
}

static void close_expected(expected *e)
{
    for (int32_t u = 0; u < e->model->unit_count; u++) {
        free(e->params[u]);
        free(e->grads[u]);
        free(e->final[u]);
    }
    free(e->logits);
    mics_model_close(e->model);
    mics_json_close(e->json);
    assert_int_equal(mics_memory_close(e->memory), 0);
}

// ---- the engine's ----

typedef struct experts_case {
    int32_t ranks, nodes;
    mics_sharding sharding;
    int32_t sequences, micro_steps; // of a rank
    bool recompute;
    int32_t experts; // ranks that keep different ones
} experts_case;

typedef struct experts_run {
    const expected *expected;
    experts_case want;
    mics_schedule *schedule;
    double losses[STEPS], evaluated, dropped, sequences;
    float *grads[WIDE_MAX_UNITS], *final[WIDE_MAX_UNITS], *logits;
} experts_run;

typedef struct rank_source {
    const experts_case *want;
    int64_t step;
    int32_t rank;
} rank_source;

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    const rank_source *self = ctx;
    const int64_t first =
        ((int64_t)micro_step * self->want->ranks + self->rank) * self->want->sequences;
    for (int64_t n = 0; n < self->want->sequences * LENGTH; n++) {
        inputs_out[n] = token(self->step, (first + n / LENGTH) % SEQUENCES, n % LENGTH);
        targets_out[n] = token(self->step, (first + n / LENGTH) % SEQUENCES, n % LENGTH + 1);
    }
    return MICS_OK;
}

static void load(const expected *e, mics_engine *engine)
{
    for (int32_t u = 0; u < e->model->unit_count; u++) {
        const mics_engine_optimizer_shard own = mics_engine_optimizer_shard_get(engine, u);
        for (int64_t i = own.shard.begin; i < own.shard.end && i < e->model->units[u].elems; i++)
            own.shard_params[i - own.shard.begin] = (float)e->params[u][i];
    }
}

// Gradients of the newest step, or parameters.
static void collect(experts_run *run, const mics_engine *engine, float *const *whole, bool grads)
{
    for (int32_t u = 0; u < run->expected->model->unit_count; u++) {
        const mics_engine_optimizer_shard own = mics_engine_optimizer_shard_get(engine, u);
        if (engine->rank < run->want.sharding.optimizer)
            memcpy(whole[u] + own.range.begin,
                   grads ? grads_at(engine, u, engine->schedule->sharding[u].optimizer, 0)
                         : own.params,
                   (size_t)(own.range.end - own.range.begin) * sizeof(float));
    }
}

static mics_status train(experts_run *run, mics_engine *engine)
{
    rank_source self = {&run->want, 1, engine->rank};
    const mics_batch_source source = {.read = read_batch, .ctx = &self};
    mics_step_result result;
    MICS_TRY(mics_engine_eval(engine, &source, &result));
    if (engine->rank == 0)
        run->evaluated = result.loss;
    if (run->logits != NULL)
        MICS_TRY(mics_engine_logits(engine, 0, N, run->logits));
    for (; self.step <= STEPS; self.step++) {
        MICS_TRY(mics_engine_step(engine, self.step, rate, &source, &result));
        if (self.step == 1) {
            MICS_TRY(mics_engine_complete(engine));
            collect(run, engine, run->grads, true);
        }
        if (engine->rank == 0) {
            run->losses[self.step - 1] = result.loss;
            run->dropped += result.router_sums[MICS_ROUTER_DROPPED];
            run->sequences += result.router_sums[MICS_ROUTER_SEQUENCES];
        }
    }
    MICS_TRY(mics_engine_complete(engine));
    collect(run, engine, run->final, false);
    return MICS_OK;
}

static mics_status train_rank(ranks_self *self)
{
    experts_run *run = self->arg;
    mics_engine *engine = NULL;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, run->want.ranks / run->want.nodes,
                                       &self->comm));
    const mics_engine_spec spec = {.memory = self->memory,
                                   .schedule = run->schedule,
                                   .comm = self->comm,
                                   .optimizer = run->expected->rule->optimizer,
                                   .other_rate = run->expected->rule->other_rate,
                                   .seed = SEED};
    MICS_TRY(mics_engine_open(&spec, &engine));
    load(run->expected, engine);
    mics_status status = mics_engine_upload(engine);
    if (status == MICS_OK)
        status = train(run, engine);
    mics_engine_close(engine);
    return status;
}

// Of each parameter, by the norm of what is expected less `from`. An expert may have no tokens.
static void check_params(const char *what, const mics_model *model, float *const *have,
                         double *const *want, double *const *from, double tolerance)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            double off = 0, size = 0;
            for (int64_t i = param->offset; i < param->offset + param->elems; i++) {
                const double base = from != NULL ? from[u][i] : 0, is = (double)have[u][i];
                off += (is - want[u][i]) * (is - want[u][i]);
                size += (want[u][i] - base) * (want[u][i] - base);
            }
            const bool moves = size > 0 || !mics_unit_computes(&model->units[u]);
            if (!(moves && sqrt(off) <= tolerance * sqrt(size)))
                fail_msg("%s of %s: off by %g, its norm is %g", what, param->name, sqrt(off),
                         sqrt(size));
        }
    }
}

static void check(const experts_run *run)
{
    const expected *e = run->expected;
    const double *losses = run->losses;
    check_params("gradient", e->model, run->grads, e->grads, NULL, grad_tolerance);
    check_params("change", e->model, run->final, e->final, e->params, change_tolerance);
    for (int step = 0; step < STEPS; step++)
        if (!(fabs(losses[step] - e->losses[step]) <= loss_tolerance * e->losses[step]))
            fail_msg("%d ranks: loss of step %d is %.9g, not %.9g", (int)run->want.ranks, step + 1,
                     losses[step], e->losses[step]);
    if (run->logits == NULL) // an evaluation of a part of the batch
        return;
    assert_true(fabs(run->evaluated - e->evaluated) <= evaluation_tolerance * e->evaluated);
    for (int64_t i = 0; i < N * VOCAB; i++)
        assert_true(fabs((double)run->logits[i] - e->logits[i]) <=
                    logit_tolerance * (1 + fabs(e->logits[i])));
}

// The same losses whatever the mesh and the micro-batches; `alone`: those of the first case.
static void check_alike(const experts_run *run, double *alone)
{
    for (int step = 0; step < STEPS; step++) {
        if (alone[step] == 0)
            alone[step] = run->losses[step];
        assert_true(fabs(run->losses[step] - alone[step]) <= alike_tolerance * alone[step]);
    }
}

static double go(const expected *e, experts_case want, double *alone)
{
    experts_run run = {.expected = e, .want = want};
    mics_schedule_spec spec = {
        .model = e->model,
        .batch = {.sequences = want.sequences, .length = LENGTH, .threads = 1},
        .micro_steps = want.micro_steps,
        .optimizer = e->rule->optimizer.kind,
        .recompute = mics_recompute_all(want.recompute),
        .prefetch = 1};
    assert_int_equal(want.ranks * want.sequences * want.micro_steps % SEQUENCES, 0);
    ASSERT_OK(mics_mesh_init(want.ranks, want.nodes, want.sharding, &spec.mesh));
    ASSERT_OK(mics_mesh_spread_experts(&spec.mesh, want.experts));
    ASSERT_OK(mics_schedule_open(e->memory, &spec, &run.schedule));
    for (int32_t u = 0; u < e->model->unit_count; u++) {
        run.grads[u] = calloc((size_t)e->model->units[u].elems, sizeof(float));
        run.final[u] = calloc((size_t)e->model->units[u].elems, sizeof(float));
        assert_non_null(run.grads[u]);
        assert_non_null(run.final[u]);
    }
    float logits[N * VOCAB];
    run.logits = want.ranks == 1 && want.sequences == SEQUENCES ? logits : NULL;
    ranks_run_ok(want.ranks, train_rank, &run);
    check(&run);
    check_alike(&run, alone);
    for (int32_t u = 0; u < e->model->unit_count; u++) {
        free(run.grads[u]);
        free(run.final[u]);
    }
    mics_schedule_close(run.schedule);
    return run.dropped / run.sequences;
}

static const experts_case cases[] = {
    {1, 1, {1, 1, 1}, 4, 1, false, 1}, {1, 1, {1, 1, 1}, 1, 4, true, 1},
    {2, 1, {1, 1, 2}, 2, 1, false, 1}, {2, 2, {2, 2, 2}, 1, 2, false, 1},
    {4, 2, {2, 2, 4}, 1, 1, true, 1},  {4, 1, {1, 2, 2}, 1, 1, false, 1},
    {4, 2, {4, 4, 4}, 1, 1, false, 1}, {2, 1, {2, 2, 2}, 2, 1, false, 2},
    {4, 2, {2, 4, 4}, 1, 1, true, 2},  {4, 1, {4, 4, 4}, 1, 1, false, 4},
};

static void check_config(const char *config, const wide_rule *rule)
{
    expected e;
    open_expected(&e, config, rule);
    double dropped = 0, alone[STEPS] = {0};
    for (int step = 0; step < STEPS; step++)
        dropped += e.dropped[step] / STEPS;
    assert_true(dropped > 0.02 && dropped < 0.5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double have = go(&e, cases[i], alone);
        if (cases[i].ranks == 1) // else rank 0's alone
            assert_true(fabs(have - dropped) < 1e-9);
    }
    close_expected(&e);
}

static void test_gshard(void **state)
{
    (void)state;
    check_config(gshard, &adamw);
}

static void test_shared(void **state)
{
    (void)state;
    check_config(shared, &adamw);
}

// Against PyTorch's and the authors' rules, written in fp64.
static void test_optimizers(void **state)
{
    (void)state;
    static const wide_rule others[] = {
        {{MICS_OPTIMIZER_SGD, {0.9, 1}, 0.1}, 0},
        {{MICS_OPTIMIZER_LION, {0.9, 0.99}, 0.1}, 0},
        {{MICS_OPTIMIZER_MUON, {0.9, 0.95, 1e-8, 0.95, 1, 5, 0}, 0.1}, 0.2},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        check_config(gshard, &others[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gshard),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_optimizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
