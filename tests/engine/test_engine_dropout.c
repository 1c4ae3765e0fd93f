// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Dropout in a whole model, on one rank: training losses against GPT-2 and GPT-NeoX in fp64 with the
// same masks where transformers has them, gradients against finite differences of the loss under
// them, and what does not drop.
//
// Legend: N = SEQUENCES * LENGTH tokens, C hidden size, I inner size, H heads of D, V vocabulary.
#include "base/json.h"
#include "engine/state.h"
#include "mics/core/transport.h"
#include "model/from_config.h"
#include "ops/common/cases_masks.h"
#include "ranks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SEQUENCES = 3,
    LENGTH = 11,
    N = SEQUENCES * LENGTH,
    C = 12,
    I = 20,
    V = 23,
    H = 3,
    D = C / H
};
enum { LAYERS = 2, SEED = 5 };

static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 3, \"n_embd\": 12, \"n_inner\": 20, "
    "\"n_positions\": 16, \"vocab_size\": 23, \"initializer_range\": 0.3, \"embd_pdrop\": 0.1, "
    "\"attn_pdrop\": 0.3, \"resid_pdrop\": 0.2}";
#define NEOX                                                                                       \
    "{\"model_type\": \"gpt_neox\", \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "        \
    "\"hidden_size\": 12, \"intermediate_size\": 20, \"max_position_embeddings\": 16, "            \
    "\"vocab_size\": 23, \"rotary_pct\": 0.5, \"initializer_range\": 0.3, \"attention_dropout\": " \
    "0.3, \"hidden_dropout\": 0.2, \"use_parallel_residual\": "
static const char neox_parallel[] = NEOX "true}", neox_serial[] = NEOX "false}";
static const char llama[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 20, "
    "\"max_position_embeddings\": 16, \"vocab_size\": 23, \"initializer_range\": 0.3, "
    "\"attention_dropout\": 0.3}";

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    (void)ctx;
    (void)micro_step;
    for (int32_t n = 0; n < N; n++) {
        inputs_out[n] = (int32_t)(mics_rng_bits(3, 1, (uint64_t)n) % V);
        targets_out[n] = (int32_t)(mics_rng_bits(3, 2, (uint64_t)n) % V);
    }
    return MICS_OK;
}

static const mics_batch_source source = {.read = read_batch};

// ---- a model in fp64 ----

typedef struct reference {
    const mics_model *model;
    mics_engine *engine;
    mics_dropout_draw draw;
    uint32_t mask; // number of the next one: they are counted in the order of the model's ops
} reference;

// MODULE.LAYER.NAME, or MODULE.NAME where the layer is -1.
static const float *param(const reference *r, const char *module, int layer, const char *name)
{
    char full[MICS_NAME_BYTES], number[16] = "";
    if (layer >= 0)
        snprintf(number, sizeof number, ".%d", layer);
    snprintf(full, sizeof full, "%s%s.%s", module, number, name);
    const mics_param_ref ref = mics_model_find_param(r->model, full);
    for (int32_t u = 0; ref.unit < 0 && u < r->model->unit_count; u++) {
        for (int32_t p = 0; p < r->model->units[u].param_count; p++) {
            const mics_param *of = &r->model->units[u].params[p];
            if (strcmp(of->name, full) == 0)
                return mics_engine_optimizer_shard_get(r->engine, u).shard_params + of->offset;
        }
    }
    if (ref.unit < 0)
        fail_msg("no parameter %s", full);
    return mics_engine_optimizer_shard_get(r->engine, ref.unit).shard_params +
           mics_model_param(r->model, ref)->offset;
}

static void drop(reference *r, double *x_NC, double probability)
{
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++)
            x_NC[n * C + c] *=
                mask_factor(&r->draw, (float)probability, r->mask, n / LENGTH, n % LENGTH, c);
    r->mask++;
}

static void layernorm(double *y, const double *x, const float *weight, const float *bias)
{
    for (int n = 0; n < N; n++) {
        double mean = 0, square = 0;
        for (int c = 0; c < C; c++)
            mean += x[n * C + c] / C;
        for (int c = 0; c < C; c++)
            square += (x[n * C + c] - mean) * (x[n * C + c] - mean) / C;
        for (int c = 0; c < C; c++)
            y[n * C + c] =
                (x[n * C + c] - mean) / sqrt(square + 1e-5) * (double)weight[c] + (double)bias[c];
    }
}

// y (N, outputs) = x (N, inputs) W + bias, W (inputs, outputs), or (outputs, inputs) where turned.
static void linear(double *y, const double *x, const float *weight, const float *bias, int inputs,
                   int outputs, bool turned)
{
    for (int n = 0; n < N; n++)
        for (int o = 0; o < outputs; o++) {
            double sum = bias != NULL ? (double)bias[o] : 0;
            for (int i = 0; i < inputs; i++)
                sum += x[n * inputs + i] *
                       (double)(turned ? weight[o * inputs + i] : weight[i * outputs + o]);
            y[n * outputs + o] = sum;
        }
}

static void gelu(double *x, int elems, bool exact)
{
    for (int i = 0; i < elems; i++) {
        const double u = sqrt(2 / 3.14159265358979323846) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
        x[i] *= exact ? 0.5 * erfc(-x[i] / sqrt(2)) : 0.5 * (1 + tanh(u));
    }
}

// Queries and keys of the first `turned` numbers of a head.
static void rotate(double *x_N3C, int turned)
{
    for (int n = 0; n < N; n++)
        for (int head = 0; head < 2 * H; head++)
            for (int i = 0; i < turned / 2; i++) {
                double *at = x_N3C + n * 3 * C + head * D + i, first = at[0];
                const double angle = n % LENGTH * pow(10000, -2.0 * i / turned);
                at[0] = first * cos(angle) - at[turned / 2] * sin(angle);
                at[turned / 2] = at[turned / 2] * cos(angle) + first * sin(angle);
            }
}

static void attend_row(const reference *r, double *y_D, const double *qkv, int n, int head,
                       double probability)
{
    const int begin = n / LENGTH * LENGTH, t = n % LENGTH;
    double p[LENGTH], sum = 0;
    for (int s = 0; s <= t; s++) {
        double dot = 0;
        for (int d = 0; d < D; d++)
            dot += qkv[n * 3 * C + head * D + d] * qkv[(begin + s) * 3 * C + C + head * D + d];
        p[s] = exp(dot / sqrt(D));
        sum += p[s];
    }
    for (int d = 0; d < D; d++)
        y_D[d] = 0;
    for (int s = 0; s <= t; s++) {
        const double kept =
            mask_factor(&r->draw, (float)probability, r->mask + (uint32_t)head, n / LENGTH, t, s);
        for (int d = 0; d < D; d++)
            y_D[d] += p[s] / sum * kept * qkv[(begin + s) * 3 * C + 2 * C + head * D + d];
    }
}

static void attention(reference *r, double *y_NC, const double *qkv_N3C, double probability)
{
    for (int n = 0; n < N; n++)
        for (int head = 0; head < H; head++)
            attend_row(r, y_NC + n * C + head * D, qkv_N3C, n, head, probability);
    r->mask += H;
}

static double mean_loss(const double *x_NC, const float *table_VC)
{
    int32_t inputs[N], targets[N];
    double loss = 0;
    assert_int_equal(read_batch(NULL, 0, inputs, targets), MICS_OK);
    for (int n = 0; n < N; n++) {
        double logits[V], sum = 0;
        for (int v = 0; v < V; v++) {
            logits[v] = 0;
            for (int c = 0; c < C; c++)
                logits[v] += x_NC[n * C + c] * (double)table_VC[v * C + c];
            sum += exp(logits[v]);
        }
        loss += (log(sum) - logits[targets[n]]) / N;
    }
    return loss;
}

static void embed(double *x_NC, const float *tokens_VC, const float *positions_PC)
{
    int32_t inputs[N], targets[N];
    assert_int_equal(read_batch(NULL, 0, inputs, targets), MICS_OK);
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++)
            x_NC[n * C + c] = (double)tokens_VC[inputs[n] * C + c] +
                              (positions_PC != NULL ? (double)positions_PC[n % LENGTH * C + c] : 0);
}

static void add(double *x, const double *y)
{
    for (int i = 0; i < N * C; i++)
        x[i] += y[i];
}

// transformers, modeling_gpt2.py: drop(wte + wpe); attn_dropout of the probabilities; resid_dropout
// of c_proj; dropout of the MLP's c_proj.
static double loss_of_gpt2(reference *r)
{
    static const char layer[] = "transformer.h";
    double x[N * C], y[N * C], wide[N * 3 * C];
    embed(x, param(r, "transformer", -1, "wte.weight"), param(r, "transformer", -1, "wpe.weight"));
    drop(r, x, 0.1);
    for (int l = 0; l < LAYERS; l++) {
        layernorm(y, x, param(r, layer, l, "ln_1.weight"), param(r, layer, l, "ln_1.bias"));
        linear(wide, y, param(r, layer, l, "attn.c_attn.weight"),
               param(r, layer, l, "attn.c_attn.bias"), C, 3 * C, false);
        double attended[N * C];
        attention(r, attended, wide, 0.3);
        linear(y, attended, param(r, layer, l, "attn.c_proj.weight"),
               param(r, layer, l, "attn.c_proj.bias"), C, C, false);
        drop(r, y, 0.2);
        add(x, y);
        layernorm(y, x, param(r, layer, l, "ln_2.weight"), param(r, layer, l, "ln_2.bias"));
        linear(wide, y, param(r, layer, l, "mlp.c_fc.weight"), param(r, layer, l, "mlp.c_fc.bias"),
               C, I, false);
        gelu(wide, N * I, false);
        linear(y, wide, param(r, layer, l, "mlp.c_proj.weight"),
               param(r, layer, l, "mlp.c_proj.bias"), I, C, false);
        drop(r, y, 0.2);
        add(x, y);
    }
    layernorm(y, x, param(r, "transformer", -1, "ln_f.weight"),
              param(r, "transformer", -1, "ln_f.bias"));
    return mean_loss(y, param(r, "transformer", -1, "wte.weight"));
}

// transformers, modeling_gpt_neox.py: emb_dropout(embed_in); attention_dropout of the probabilities;
// post_attention_dropout of dense; post_mlp_dropout of the MLP.
static double loss_of_neox(reference *r, bool parallel)
{
    static const char layer[] = "gpt_neox.layers";
    double x[N * C], y[N * C], attended[N * C], wide[N * 3 * C];
    embed(x, param(r, "gpt_neox", -1, "embed_in.weight"), NULL);
    drop(r, x, 0.2);
    for (int l = 0; l < LAYERS; l++) {
        double mixed[N * C];
        layernorm(y, x, param(r, layer, l, "input_layernorm.weight"),
                  param(r, layer, l, "input_layernorm.bias"));
        linear(wide, y, param(r, layer, l, "attention.query_key_value.weight"),
               param(r, layer, l, "attention.query_key_value.bias"), C, 3 * C, true);
        rotate(wide, D / 2);
        attention(r, mixed, wide, 0.3);
        linear(attended, mixed, param(r, layer, l, "attention.dense.weight"),
               param(r, layer, l, "attention.dense.bias"), C, C, true);
        drop(r, attended, 0.2);
        if (!parallel)
            add(x, attended);
        layernorm(y, x, param(r, layer, l, "post_attention_layernorm.weight"),
                  param(r, layer, l, "post_attention_layernorm.bias"));
        linear(wide, y, param(r, layer, l, "mlp.dense_h_to_4h.weight"),
               param(r, layer, l, "mlp.dense_h_to_4h.bias"), C, I, true);
        gelu(wide, N * I, true);
        linear(y, wide, param(r, layer, l, "mlp.dense_4h_to_h.weight"),
               param(r, layer, l, "mlp.dense_4h_to_h.bias"), I, C, true);
        drop(r, y, 0.2);
        add(x, y);
        if (parallel)
            add(x, attended);
    }
    layernorm(y, x, param(r, "gpt_neox", -1, "final_layer_norm.weight"),
              param(r, "gpt_neox", -1, "final_layer_norm.bias"));
    return mean_loss(y, param(r, "embed_out", -1, "weight"));
}

// ---- the engine ----

typedef struct dropout_run {
    const char *config;
    const mics_model *model;
    const mics_schedule *schedule;
    double (*loss_of)(reference *r); // NULL: no reference
    double trained[3], evaluated;    // losses of two steps, and of an evaluation
} dropout_run;

// A step at learning rate 0, which changes no parameter.
static mics_status loss_at(mics_engine *engine, int64_t step, double *loss_out)
{
    mics_step_result result;
    MICS_TRY(mics_engine_step(engine, step, 0.0f, &source, &result));
    *loss_out = result.loss;
    return MICS_OK;
}

// The stream of dropout_stream in engine/compute_steps.c: changing it would change every run.
static mics_dropout_draw draw_of(int64_t step)
{
    return mask_draw(mics_rng_bits(SEED, (uint64_t)0x5B << 56, (uint64_t)step), 0);
}

static mics_status check_reference(const dropout_run *run, mics_engine *engine)
{
    for (int64_t step = 1; step <= 2; step++) {
        reference r = {.model = run->model, .engine = engine, .draw = draw_of(step)};
        const double want = run->loss_of(&r), have = run->trained[step];
        RANKS_EXPECT(r.mask == run->model->masks);
        if (!(fabs(have - want) <= 1e-5 * want))
            return mics_fail(MICS_ERR_INVALID, "step %d: loss %.9g, %.9g in fp64", (int)step, have,
                             want);
    }
    return MICS_OK;
}

// The slope of the loss under step 1's masks along the gradient of a parameter.
static mics_status check_slope(mics_engine *engine, int32_t unit, const mics_param *of)
{
    enum { MOST = 2 * I * C };
    const double length = 1e-2;
    float saved[MOST], grads[MOST];
    float *values = mics_engine_optimizer_shard_get(engine, unit).shard_params + of->offset;
    double ahead = 0, behind = 0, size = 0;
    RANKS_EXPECT(of->elems <= MOST);
    MICS_TRY(loss_at(engine, 1, &ahead)); // for its gradients
    memcpy(saved, values, (size_t)of->elems * sizeof(float));
    memcpy(grads,
           (const float *)grads_at(engine, unit, engine->schedule->sharding[unit].optimizer, 0) +
               of->offset,
           (size_t)of->elems * sizeof(float));
    for (int64_t i = 0; i < of->elems; i++)
        size += (double)grads[i] * (double)grads[i];
    size = sqrt(size);
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int64_t i = 0; i < of->elems; i++)
            values[i] =
                (float)((double)saved[i] + sign * length * (double)grads[i] / (size + 1e-30));
        MICS_TRY(loss_at(engine, 1, sign < 0 ? &behind : &ahead));
    }
    memcpy(values, saved, (size_t)of->elems * sizeof(float));
    const double slope = (ahead - behind) / (2 * length);
    if (!(size > 1e-6 && fabs(slope - size) <= 1e-2 * size + 1e-4))
        return mics_fail(MICS_ERR_INVALID, "%s: slope %g by differences, norm of the gradient %g",
                         of->name, slope, size);
    return MICS_OK;
}

static mics_status check_gradients(const dropout_run *run, mics_engine *engine)
{
    for (int32_t u = 0; u < run->model->unit_count; u++)
        for (int32_t p = 0; p < run->model->units[u].param_count; p++)
            MICS_TRY(check_slope(engine, u, &run->model->units[u].params[p]));
    return MICS_OK;
}

static mics_status dropout_rank(ranks_self *self)
{
    dropout_run *run = self->arg;
    mics_engine *engine = NULL;
    mics_step_result result;
    mics_status status = MICS_OK;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm, 1, &self->comm));
    const mics_engine_spec spec = {.memory = self->memory,
                                   .schedule = run->schedule,
                                   .comm = self->comm,
                                   .optimizer = {MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0},
                                   .seed = SEED};
    MICS_TRY(mics_engine_open(&spec, &engine));
    mics_engine_init_random(engine, 1);
    MICS_TRY_OUT(mics_engine_eval(engine, &source, &result));
    run->evaluated = result.loss;
    MICS_TRY_OUT(loss_at(engine, 1, &run->trained[1]));
    MICS_TRY_OUT(loss_at(engine, 2, &run->trained[2]));
    MICS_TRY_OUT(loss_at(engine, 1, &run->trained[0])); // a step that is run again
    if (run->loss_of != NULL)
        MICS_TRY_OUT(check_reference(run, engine));
    if (run->model->masks > 0)
        MICS_TRY_OUT(check_gradients(run, engine));
out:
    mics_engine_close(engine);
    return status;
}

static void go(dropout_run *run, bool ignore_dropout, bool recompute)
{
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    mics_model *model = NULL;
    mics_schedule *schedule = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_json_parse(memory, "config", run->config, strlen(run->config), &json));
    ASSERT_OK(mics_model_from_config(memory, json, ignore_dropout, &model));
    mics_schedule_spec spec = {.model = model,
                               .batch = {.sequences = SEQUENCES, .length = LENGTH, .threads = 1},
                               .micro_steps = 1,
                               .recompute = mics_recompute_all(recompute)};
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
    run->model = model;
    run->schedule = schedule;
    ranks_run_ok(1, dropout_rank, run);
    mics_schedule_close(schedule);
    mics_model_close(model);
    mics_json_close(json);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Steps differ, a step run again does not, and evaluations are those of a model without dropout.
static void check_config(const char *config, double (*loss_of)(reference *r))
{
    dropout_run run = {.config = config, .loss_of = loss_of}, again = run;
    dropout_run without = {.config = config};
    go(&run, false, false);
    go(&again, false, true);
    go(&without, true, false);
    assert_true(run.trained[0] == run.trained[1]);
    assert_true(run.trained[1] != run.trained[2]);
    assert_true(memcmp(run.trained, again.trained, sizeof run.trained) == 0);
    assert_true(run.evaluated == without.evaluated);
    assert_true(without.trained[1] == without.trained[2]);
    assert_true(run.trained[1] != without.trained[1]);
}

static double loss_of_neox_parallel(reference *r)
{
    return loss_of_neox(r, true);
}

static double loss_of_neox_serial(reference *r)
{
    return loss_of_neox(r, false);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_config(gpt2, loss_of_gpt2);
}

static void test_neox(void **state)
{
    (void)state;
    check_config(neox_parallel, loss_of_neox_parallel);
    check_config(neox_serial, loss_of_neox_serial);
}

static void test_llama(void **state)
{
    (void)state;
    check_config(llama, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_neox),
        cmocka_unit_test(test_llama),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
