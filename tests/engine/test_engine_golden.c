// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The engine against PyTorch's and transformers' results: logits, gradients, and 20 steps of AdamW,
// under several shardings and with every kernel table.
#include "engine/state.h"
#include "golden.h"
#include "mics/builder.h"
#include "mics/core/transport.h"
#include "ranks.h"
#include <math.h>

// Tolerances that the project promises; all relative, the gradients' by a tensor's norm.
static const double logit_tolerance = 1e-4, grad_tolerance = 1e-3, loss_tolerance = 1e-3;

// How a run differs. Rank r's sequence b of micro-step m is sample (m * ranks + r) * sequences + b
// of the step, modulo the batch: a global batch that holds the batch k times has its means.
typedef struct golden_case {
    int32_t ranks, nodes;
    mics_sharding sharding;
    int32_t sequences, micro_steps, threads;
    bool recompute;
    const mics_kernels *kernels;
} golden_case;

typedef struct golden_run {
    const golden *golden;
    golden_case want;
    mics_schedule *schedule;
    double losses[GOLDEN_STEPS], norms[GOLDEN_STEPS];
    double counts;    // tokens of step 1 for each that counts: the engine multiplies at the update
    int64_t *unit_at; // by unit: where it begins in the two below
    float *grads, *final; // the whole model: gradients of step 1, parameters after the last step
} golden_run;

// ---- one rank ----

typedef struct golden_source {
    const golden_run *run;
    int64_t step; // from 0
    int32_t rank;
} golden_source;

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    const golden_source *source = ctx;
    const golden *g = source->run->golden;
    const golden_case *want = &source->run->want;
    for (int64_t b = 0; b < want->sequences; b++) {
        int64_t sample = ((int64_t)micro_step * want->ranks + source->rank) * want->sequences + b;
        int64_t from = (source->step * g->sequences + sample % g->sequences) * g->length;
        memcpy(inputs_out + b * g->length, g->inputs + from, (size_t)g->length * sizeof(int32_t));
        memcpy(targets_out + b * g->length, g->targets + from, (size_t)g->length * sizeof(int32_t));
    }
    return MICS_OK;
}

// The first O ranks hold the model once.
static void collect(golden_run *run, const mics_engine *engine, float *whole, bool grads)
{
    if (engine->rank >= run->want.sharding.optimizer)
        return;
    for (int32_t u = 0; u < run->golden->model->unit_count; u++) {
        const mics_engine_optimizer_shard piece = mics_engine_optimizer_shard_get(engine, u);
        const float *from =
            grads ? grads_at(engine, u, run->want.sharding.optimizer, 0) : piece.params;
        memcpy(whole + run->unit_at[u] + piece.range.begin, from,
               (size_t)(piece.range.end - piece.range.begin) * sizeof(float));
    }
}

static mics_status train(golden_run *run, mics_engine *engine)
{
    golden_source source = {.run = run, .rank = engine->rank};
    const mics_batch_source read = {.read = read_batch, .ctx = &source};
    mics_step_result result;
    for (source.step = 0; source.step < GOLDEN_STEPS; source.step++) {
        MICS_TRY(mics_engine_step(engine, source.step + 1, run->golden->lr, &read, &result));
        if (source.step == 0) {
            MICS_TRY(mics_engine_complete(engine));
            collect(run, engine, run->grads, true);
        }
        if (engine->rank == 0) {
            if (source.step == 0)
                run->counts = (double)(run->want.ranks * run->want.sequences *
                                       run->want.micro_steps * run->golden->length) /
                              (double)result.counted;
            run->losses[source.step] = result.loss;
            run->norms[source.step] = result.grad_norm;
        }
    }
    MICS_TRY(mics_engine_complete(engine));
    collect(run, engine, run->final, false);
    return MICS_OK;
}

static mics_status open_engine(const golden_run *run, ranks_self *self, mics_engine **engine_out)
{
    const golden *g = run->golden;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, run->want.ranks / run->want.nodes,
                                       &self->comm));
    const mics_engine_spec spec = {
        .memory = self->memory,
        .schedule = run->schedule,
        .comm = self->comm,
        .kernels = run->want.kernels,
        .optimizer = {MICS_OPTIMIZER_ADAMW,
                      {(double)g->beta1, (double)g->beta2, (double)g->eps},
                      (double)g->weight_decay},
        .clip = g->clip};
    return mics_engine_open(&spec, engine_out);
}

static mics_status train_rank(ranks_self *self)
{
    golden_run *run = self->arg;
    mics_engine *engine = NULL;
    MICS_TRY(open_engine(run, self, &engine));
    mics_status status = golden_load(run->golden, engine);
    if (status == MICS_OK)
        status = train(run, engine);
    mics_engine_close(engine);
    return status;
}

// ---- a run ----

static void run_open(golden_run *run, const golden *g, golden_case want)
{
    *run = (golden_run){.golden = g, .want = want};
    mics_schedule_spec spec = {
        .model = g->model,
        .batch = {.sequences = want.sequences, .length = g->length, .threads = want.threads},
        .micro_steps = want.micro_steps,
        .prefetch = 1,
        .recompute = mics_recompute_all(want.recompute)};
    assert_int_equal(want.ranks * want.sequences * want.micro_steps % g->sequences, 0);
    ASSERT_OK(mics_mesh_init(want.ranks, want.nodes, want.sharding, &spec.mesh));
    ASSERT_OK(mics_schedule_open(g->memory, &spec, &run->schedule));
    run->unit_at = calloc((size_t)g->model->unit_count, sizeof(int64_t));
    assert_non_null(run->unit_at);
    int64_t elems = 0;
    for (int32_t u = 0; u < g->model->unit_count; u++) {
        run->unit_at[u] = elems;
        elems += g->model->units[u].elems;
    }
    run->grads = calloc((size_t)elems, sizeof(float));
    run->final = calloc((size_t)elems, sizeof(float));
    assert_non_null(run->grads);
    assert_non_null(run->final);
}

static void run_close(golden_run *run)
{
    mics_schedule_close(run->schedule);
    free(run->unit_at);
    free(run->grads);
    free(run->final);
}

// ---- comparisons ----

// A constant added to all keys drops out of the softmax, so the key third of c_attn.bias has no
// gradient but noise, and AdamW makes steps of noise: it cannot be compared.
static bool is_noise(const mics_param *param, int64_t elem)
{
    static const char name[] = "attn.c_attn.bias";
    const size_t length = strlen(param->name);
    return length >= sizeof name - 1 &&
           strcmp(param->name + length - (sizeof name - 1), name) == 0 &&
           elem >= param->elems / 3 && elem < 2 * param->elems / 3;
}

// |have - want| / |want - origin| over a tensor, as norms; `origin` may be NULL.
static double distance(const mics_param *param, const float *have, const float *want,
                       const float *origin)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < param->elems; i++) {
        if (is_noise(param, i))
            continue;
        double length = (double)want[i] - (origin != NULL ? (double)origin[i] : 0);
        off += ((double)have[i] - (double)want[i]) * ((double)have[i] - (double)want[i]);
        size += length * length;
    }
    return sqrt(off / size);
}

static void check_gradients(const golden_run *run)
{
    const mics_model *model = run->golden->model;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            float *have = run->grads + run->unit_at[u] + param->offset;
            float *want = golden_of(run->golden, "grad.", param);
            for (int64_t i = 0; i < param->elems; i++)
                have[i] = (float)((double)have[i] * run->counts);
            double off = distance(param, have, want, NULL);
            free(want);
            if (!(off <= grad_tolerance))
                fail_msg("gradient of %s is off by %g of its norm", param->name, off);
        }
    }
}

// By how far each tensor had to move.
static void check_final(const golden_run *run)
{
    const mics_model *model = run->golden->model;
    if (strncmp(model->architecture, "gpt2", 4) != 0)
        return; // only GPT-2's files hold them
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            const float *have = run->final + run->unit_at[u] + param->offset;
            float *want = golden_of(run->golden, "final.", param);
            float *origin = golden_weights(run->golden, param);
            double off = distance(param, have, want, origin);
            free(want);
            free(origin);
            if (!(off <= 1e-3))
                fail_msg("%s is off by %g of its way after %d steps", param->name, off,
                         GOLDEN_STEPS);
        }
    }
}

static void check_curve(const golden_run *run)
{
    const golden *g = run->golden;
    for (int32_t step = 0; step < GOLDEN_STEPS; step++) {
        double loss = (double)g->losses[step], norm = (double)g->norms[step];
        if (!(fabs(run->losses[step] - loss) <= loss_tolerance * loss))
            fail_msg("step %d: loss %.9g, not %.9g", step + 1, run->losses[step], loss);
        if (!(fabs(run->norms[step] - norm) <= loss_tolerance * norm))
            fail_msg("step %d: gradient norm %.9g, not %.9g", step + 1, run->norms[step], norm);
    }
}

static void check_case(const golden *g, golden_case want)
{
    golden_run run;
    run_open(&run, g, want);
    ranks_run_ok(want.ranks, train_rank, &run);
    check_gradients(&run);
    check_curve(&run);
    check_final(&run);
    run_close(&run);
}

// ---- logits ----

typedef struct logits_run {
    golden_run run;
    const float *expected; // (B * T, V)
} logits_run;

// With token v as every target, each token's loss is the logarithm of its sum of exponentials less
// its logit v: all logits can be read from the losses.
static mics_status read_one_target(void *ctx, int32_t micro_step, int32_t *inputs_out,
                                   int32_t *targets_out)
{
    golden_source *source = ctx;
    const int32_t target = (int32_t)source->step;
    golden_source first = {.run = source->run, .rank = source->rank};
    MICS_TRY(read_batch(&first, micro_step, inputs_out, targets_out));
    for (int64_t n = 0; n < source->run->golden->sequences * source->run->golden->length; n++)
        targets_out[n] = target;
    return MICS_OK;
}

static double log_sum_exp(const float *logits, int64_t count)
{
    double sum = 0;
    for (int64_t v = 0; v < count; v++)
        sum += exp((double)logits[v]);
    return log(sum);
}

static mics_status check_losses(const logits_run *run, const mics_engine *engine, int32_t target)
{
    const golden *g = run->run.golden;
    const float *losses = engine->workspace + run->run.schedule->workspace_losses;
    for (int64_t n = 0; n < g->sequences * g->length; n++) {
        const float *row = run->expected + n * g->model->vocab;
        double loss = log_sum_exp(row, g->model->vocab) - (double)row[target];
        RANKS_EXPECT(fabs((double)losses[n] - loss) <= logit_tolerance);
    }
    return MICS_OK;
}

static mics_status logits_rank(ranks_self *self)
{
    logits_run *run = self->arg;
    mics_engine *engine = NULL;
    golden_source source = {.run = &run->run};
    const mics_batch_source read = {.read = read_one_target, .ctx = &source};
    mics_step_result result;
    MICS_TRY(open_engine(&run->run, self, &engine));
    mics_status status = golden_load(run->run.golden, engine);
    for (; status == MICS_OK && source.step < run->run.golden->model->vocab; source.step++) {
        status = mics_engine_eval(engine, &read, &result);
        if (status == MICS_OK)
            status = check_losses(run, engine, (int32_t)source.step);
    }
    mics_engine_close(engine);
    return status;
}

static void check_engine_logits(const golden *g, const mics_kernels *kernels)
{
    logits_run run;
    float *expected = golden_read(g->expected, "logits");
    run_open(&run.run, g,
             (golden_case){.ranks = 1,
                           .nodes = 1,
                           .sharding = {1, 1, 1},
                           .sequences = (int32_t)g->sequences,
                           .micro_steps = 1,
                           .threads = 1,
                           .kernels = kernels});
    run.expected = expected;
    ranks_run_ok(1, logits_rank, &run);
    run_close(&run.run);
    free(expected);
}

// ---- tests ----

static const char *const folders[] = {"gpt2",      "gpt2_untied", "gpt2_hub",
                                      "gpt2_gelu", "gpt2_relu",   "gpt2_silu"};
static const char *const decoders[] = {
    "llama_grouped",     "llama_single",     "llama_yarn",           "mistral_window",
    "mistral_full",      "qwen2_layers",     "qwen2_single",         "qwen3_grouped",
    "gpt_neox_parallel", "qwen3_single",     "gpt_neox_serial",      "mixtral_small",
    "mixtral_balanced",  "qwen3_moe_layers", "qwen3_moe_normalised", "qwen2_moe_shared"};

static const char *const encoders[] = {"bert_small", "bert_tanh", "roberta_small", "roberta_tanh"};

static void check_one_rank(const golden *g, const mics_kernels *kernels)
{
    golden_case want = {.ranks = 1,
                        .nodes = 1,
                        .sharding = {1, 1, 1},
                        .sequences = (int32_t)g->sequences,
                        .micro_steps = 1,
                        .threads = 2,
                        .kernels = kernels};
    check_case(g, want);
    want.recompute = true;
    want.micro_steps = (int32_t)g->sequences;
    want.sequences = 1;
    check_case(g, want);
}

static void check_every_kernel_table(const char *folder)
{
    golden g;
    golden_open(&g, folder);
    for (int32_t k = 0; k < mics_kernels_count(); k++) {
        const mics_kernels *kernels = mics_kernels_at(k);
        if (kernels == NULL)
            continue; // this processor lacks the instructions
        check_engine_logits(&g, kernels);
        check_one_rank(&g, kernels);
    }
    golden_close(&g);
}

static void test_one_rank_every_kernel_table(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++)
        check_every_kernel_table(folders[f]);
}

static void test_decoders(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof decoders / sizeof decoders[0]; f++)
        check_every_kernel_table(decoders[f]);
}

static void test_encoders(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof encoders / sizeof encoders[0]; f++)
        check_every_kernel_table(encoders[f]);
}

// Every P | G | O of some numbers of ranks.
static void check_family(const golden *g, int32_t ranks, int32_t nodes, int32_t sequences,
                         int32_t micro_steps)
{
    for (int32_t p = 1; p <= ranks; p++) {
        for (int32_t grads = p; grads <= ranks; grads += p) {
            for (int32_t o = grads; o <= ranks; o += grads) {
                mics_mesh mesh;
                golden_case want = {.ranks = ranks,
                                    .nodes = nodes,
                                    .sharding = {p, grads, o},
                                    .sequences = sequences,
                                    .micro_steps = micro_steps,
                                    .threads = 1};
                bool chain = ranks % o == 0 && ranks % p == 0 && ranks % grads == 0;
                if (chain && mics_mesh_init(ranks, nodes, want.sharding, &mesh) == MICS_OK)
                    check_case(g, want);
            }
        }
    }
}

static void test_shardings(void **state)
{
    (void)state;
    golden g;
    golden_open(&g, "gpt2");
    check_family(&g, 3, 1, 1, 1); // the batch of 3, one sequence a rank
    check_family(&g, 4, 2, 3, 1); // everybody has the whole batch
    check_family(&g, 4, 4, 3, 1);
    golden_close(&g);
    golden_open(&g, "gpt2_untied");
    check_family(&g, 2, 2, 1, 1);
    check_family(&g, 4, 2, 1, 2);
    golden_close(&g);
    golden_open(&g, "bert_small");
    check_family(&g, 3, 1, 1, 1);
    check_family(&g, 8, 2, 3, 1);
    golden_close(&g);
    golden_open(&g, "roberta_small");
    check_family(&g, 4, 2, 1, 2);
    golden_close(&g);
}

// Mixtures of experts, whose ranks and micro-batches choose experts by sequence.
static void test_mixtures(void **state)
{
    (void)state;
    golden g;
    golden_open(&g, "mixtral_small");
    check_family(&g, 8, 2, 1, 1);
    golden_close(&g);
    golden_open(&g, "mixtral_balanced");
    check_family(&g, 2, 1, 1, 1);
    golden_close(&g);
    golden_open(&g, "qwen3_moe_layers");
    check_family(&g, 4, 2, 1, 1);
    golden_close(&g);
    golden_open(&g, "qwen2_moe_shared");
    check_family(&g, 4, 2, 1, 1);
    golden_close(&g);
}

// Where all numbers are fp32, casts around the residual stream change nothing.
static void test_wide_residual(void **state)
{
    (void)state;
    static const char *const wide[] = {"gpt2", "llama_grouped", "gpt_neox_parallel",
                                       "mixtral_small", "qwen2_moe_shared"};
    for (size_t f = 0; f < sizeof wide / sizeof wide[0]; f++) {
        golden g;
        golden_open(&g, wide[f]);
        ASSERT_OK(mics_model_widen_residual(g.model));
        check_one_rank(&g, mics_kernels_get(NULL));
        golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank_every_kernel_table),
        cmocka_unit_test(test_decoders),
        cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_shardings),
        cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_wide_residual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
