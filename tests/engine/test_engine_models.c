// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Models that are not GPT-2, made with the public builder: post-norm, parallel attention, tensors
// that are read many times, ops that GPT-2 lacks. Gradients on one rank against finite differences of
// the loss, and under shardings against those of one rank; logits token by token against those of a
// whole sequence.
#include "base/rng.h"
#include "engine/state.h"
#include "mics/builder.h"
#include "mics/core/transport.h"
#include "ranks.h"
#include "schedule/models.h"
#include <math.h>

enum { SEQUENCES = 2, LENGTH = 6 };

// What a rank has of each sequence; NULL: all of it.
typedef struct slice {
    int64_t first, length;
} slice;

typedef struct model_run {
    const mics_schedule *schedule;
    int64_t *unit_at; // by unit: where it begins in `grads`
    float *grads;     // the whole model
    double loss;
    bool differences; // check them against finite differences of the loss, and a decoder
} model_run;

// The same batch for every rank and micro-step: all means are those of one.
static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    const slice all = {0, LENGTH}, *own = ctx != NULL ? ctx : &all;
    (void)micro_step;
    for (int64_t n = 0; n < SEQUENCES * own->length; n++) {
        const int64_t at = n / own->length * LENGTH + own->first + n % own->length;
        inputs_out[n] = (int32_t)(mics_rng_bits(3, 1, (uint64_t)at) % MODEL_VOCAB);
        targets_out[n] = (int32_t)(mics_rng_bits(3, 2, (uint64_t)at) % MODEL_VOCAB);
    }
    return MICS_OK;
}

static const mics_batch_source source = {.read = read_batch};

static void collect(const model_run *run, const mics_engine *engine)
{
    for (int32_t u = 0; u < run->schedule->spec.model->unit_count; u++) {
        const mics_engine_optimizer_shard piece = mics_engine_optimizer_shard_get(engine, u);
        if (engine->rank < run->schedule->spec.mesh.sharding.optimizer)
            memcpy(run->grads + run->unit_at[u] + piece.range.begin,
                   grads_at(engine, u, engine->schedule->sharding[u].optimizer, 0),
                   (size_t)(piece.range.end - piece.range.begin) * sizeof(float));
    }
}

// ---- finite differences ----

static double norm_of(const float *x, int64_t elems)
{
    double sum = 0;
    for (int64_t i = 0; i < elems; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

// The loss with a parameter moved by `length` along a direction.
static mics_status loss_at(mics_engine *engine, float *params, const float *direction,
                           int64_t elems, double length, double *loss_out)
{
    float saved[2048];
    mics_step_result result;
    RANKS_EXPECT(elems <= 2048);
    memcpy(saved, params, (size_t)elems * sizeof(float));
    for (int64_t i = 0; i < elems; i++)
        params[i] += (float)(length * (double)direction[i]);
    MICS_TRY(mics_engine_eval(engine, &source, &result));
    memcpy(params, saved, (size_t)elems * sizeof(float));
    *loss_out = result.loss;
    return MICS_OK;
}

// The slope of the loss along a unit vector, measured and from the gradient.
static mics_status check_slope(mics_engine *engine, const mics_param *param, float *params,
                               const float *grads, const float *direction)
{
    const double length = 1e-2, size = norm_of(grads, param->elems);
    double ahead = 0, behind = 0, slope = 0;
    MICS_TRY(loss_at(engine, params, direction, param->elems, length, &ahead));
    MICS_TRY(loss_at(engine, params, direction, param->elems, -length, &behind));
    for (int64_t i = 0; i < param->elems; i++)
        slope += (double)grads[i] * (double)direction[i];
    const double measured = (ahead - behind) / (2 * length);
    if (!(fabs(measured - slope) <= 1e-2 * size + 1e-4))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: slope %g by differences, %g by the gradient, whose norm is %g",
                         param->name, measured, slope, size);
    return MICS_OK;
}

// Along the gradient, and along a direction drawn at random.
static mics_status check_param(mics_engine *engine, const mics_param *param, float *params,
                               const float *grads)
{
    float along[2048], across[2048];
    RANKS_EXPECT(param->elems <= 2048);
    const double size = norm_of(grads, param->elems);
    RANKS_EXPECT(isfinite(size) && size > 1e-3);
    for (int64_t i = 0; i < param->elems; i++) {
        along[i] = (float)((double)grads[i] / size);
        across[i] = (float)mics_rng_normal(5, 1, (uint64_t)i);
    }
    const double length = norm_of(across, param->elems);
    for (int64_t i = 0; i < param->elems; i++)
        across[i] = (float)((double)across[i] / length);
    MICS_TRY(check_slope(engine, param, params, grads, along));
    return check_slope(engine, param, params, grads, across);
}

static mics_status check_differences(const model_run *run, mics_engine *engine)
{
    const mics_model *model = run->schedule->spec.model;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            MICS_TRY(
                check_param(engine, param,
                            mics_engine_optimizer_shard_get(engine, u).shard_params + param->offset,
                            run->grads + run->unit_at[u] + param->offset));
        }
    }
    return MICS_OK;
}

// ---- generation ----

// What a decoder says after each token, be it fed alone or behind others at once, is what an
// evaluation says of the whole sequence.
static mics_status check_decoder(const model_run *run, mics_engine *engine, mics_memory *memory)
{
    enum { ROWS = SEQUENCES * LENGTH };
    const mics_model *model = run->schedule->spec.model;
    float expected[ROWS * MODEL_VOCAB];
    const void *params[8];
    int32_t inputs[ROWS], targets[ROWS];
    mics_decoder *decoder = NULL;
    mics_step_result result;
    mics_status status = MICS_OK;
    for (int32_t u = 0; u < model->unit_count; u++)
        params[u] = mics_engine_optimizer_shard_get(engine, u).shard_params;
    MICS_TRY(mics_engine_eval(engine, &source, &result));
    for (int32_t n = 0; n < ROWS; n++)
        MICS_TRY(mics_engine_logits(engine, n, 1, expected + n * MODEL_VOCAB));
    MICS_TRY(read_batch(NULL, 0, inputs, targets));
    const mics_decoder_spec spec = {
        .model = model, .params = params, .sequences = 2, .capacity = LENGTH, .threads = 2};
    MICS_TRY(mics_decoder_open(memory, &spec, &decoder));
    for (int32_t n = 0; n < 2 * ROWS; n++) {
        const int32_t row = n % ROWS, position = row % LENGTH;
        const float *logits = NULL;
        mics_decoder_feed_spec feed = {inputs + row, 1, 1, 1, position};
        if (n >= ROWS) // whole
            feed = (mics_decoder_feed_spec){inputs + row - position, 0, 1, position + 1, 0};
        MICS_TRY_OUT(mics_decoder_feed(decoder, &feed, &logits));
        for (int v = 0; v < MODEL_VOCAB; v++) {
            const double want = (double)expected[row * MODEL_VOCAB + v];
            if (!(fabs((double)logits[v] - want) <= 1e-4 * (1 + fabs(want))))
                MICS_TRY_OUT(mics_fail(MICS_ERR_INVALID, "token %d: logit %d is %g, not %g", (int)n,
                                       v, (double)logits[v], want));
        }
    }
out:
    mics_decoder_close(decoder);
    return status;
}

// ---- runs ----

// A step at learning rate 0 leaves the gradients in the accumulators and the parameters alone.
static mics_status model_rank(ranks_self *self)
{
    model_run *run = self->arg;
    const mics_mesh *mesh = &run->schedule->spec.mesh;
    mics_engine *engine = NULL;
    mics_step_result result;
    mics_status status = MICS_OK;
    MICS_TRY(
        mics_comm_count_open_take(self->memory, self->comm, mesh->ranks_per_node, &self->comm));
    const mics_engine_spec spec = {.memory = self->memory,
                                   .schedule = run->schedule,
                                   .comm = self->comm,
                                   .optimizer = {MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0}};
    MICS_TRY(mics_engine_open(&spec, &engine));
    mics_engine_init_random(engine, 1);
    const int64_t length = run->schedule->spec.batch.length;
    slice own = {self->comm->rank % mesh->sequence * length, length};
    const mics_batch_source of_slice = {.read = read_batch, .ctx = &own};
    MICS_TRY_OUT(mics_engine_step(engine, 1, 0.0f, &of_slice, &result));
    MICS_TRY_OUT(mics_engine_complete(engine));
    collect(run, engine);
    if (engine->rank == 0)
        run->loss = result.loss;
    if (run->differences) {
        MICS_TRY_OUT(check_differences(run, engine));
        MICS_TRY_OUT(check_decoder(run, engine, self->memory));
    }
out:
    mics_engine_close(engine);
    return status;
}

typedef struct model_case {
    int32_t ranks;
    mics_sharding sharding;
    int32_t micro_steps, prefetch;
    bool recompute;
    int32_t sequence; // ranks that share sequences; 0: 1
} model_case;

static int64_t model_elems(const mics_model *model)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++)
        elems += model->units[u].elems;
    return elems;
}

// Fills grads_out (the whole model); returns the loss.
static double go(mics_memory *memory, const mics_model *model, model_case want, float *grads_out)
{
    mics_schedule *schedule = NULL;
    int64_t unit_at[8] = {0};
    model_run run = {.unit_at = unit_at, .grads = grads_out, .differences = want.ranks == 1};
    const int32_t sequence = want.sequence > 0 ? want.sequence : 1;
    mics_schedule_spec spec = {
        .model = model,
        .batch = {.sequences = SEQUENCES, .length = LENGTH / sequence, .threads = 1},
        .micro_steps = want.micro_steps,
        .prefetch = want.prefetch,
        .recompute = mics_recompute_all(want.recompute)};
    assert_true(model->unit_count <= 8);
    for (int32_t u = 1; u < model->unit_count; u++)
        unit_at[u] = unit_at[u - 1] + model->units[u - 1].elems;
    ASSERT_OK(mics_mesh_init(want.ranks, want.ranks % 2 == 0 ? 2 : 1, want.sharding, &spec.mesh));
    ASSERT_OK(mics_mesh_cut_sequences(&spec.mesh, sequence));
    ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
    run.schedule = schedule;
    ranks_run_ok(want.ranks, model_rank, &run);
    mics_schedule_close(schedule);
    return run.loss;
}

static void check_near(const char *name, const mics_model *model, const float *have,
                       const float *want)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            double off = 0, size = norm_of(want + param->offset, param->elems);
            for (int64_t i = param->offset; i < param->offset + param->elems; i++)
                off += ((double)have[i] - (double)want[i]) * ((double)have[i] - (double)want[i]);
            if (!(sqrt(off) <= 1e-5 * size))
                fail_msg("%s: gradient of %s is off by %g of its norm", name, param->name,
                         sqrt(off) / size);
        }
        have += model->units[u].elems;
        want += model->units[u].elems;
    }
}

static void check_model(const model_kind *kind, bool tied)
{
    static const model_case cases[] = {
        {.ranks = 1, .sharding = {1, 1, 1}, .micro_steps = 2, .recompute = true},
        {.ranks = 4, .sharding = {1, 1, 1}, .micro_steps = 2, .prefetch = 1},
        {.ranks = 4, .sharding = {2, 2, 4}, .micro_steps = 2, .prefetch = 1},
        {.ranks = 4, .sharding = {4, 4, 4}, .micro_steps = 1, .prefetch = 2},
        {.ranks = 4, .sharding = {1, 2, 2}, .micro_steps = 3, .recompute = true},
        {.ranks = 4, .sharding = {4, 4, 4}, .micro_steps = 1, .sequence = 2},
        {.ranks = 6, .sharding = {1, 3, 3}, .micro_steps = 2, .sequence = 3},
        {.ranks = 6, .sharding = {6, 6, 6}, .micro_steps = 1, .sequence = 3, .recompute = true},
    };
    int shared = 0;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_build(memory, kind, tied);
    const size_t elems = (size_t)model_elems(model);
    float *expected = calloc(elems, sizeof(float)), *grads = calloc(elems, sizeof(float));
    assert_non_null(expected);
    assert_non_null(grads);
    const double loss = go(memory, model, (model_case){1, {1, 1, 1}, .micro_steps = 1}, expected);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!mics_model_can_cut_sequences(model, cases[i].sequence))
            continue;
        shared += cases[i].sequence > 1;
        double other = go(memory, model, cases[i], grads);
        assert_true(fabs(other - loss) <= 1e-6 * loss);
        check_near(kind->name, model, grads, expected);
    }
    assert_true(shared > 0 || strcmp(kind->name, "qwen") == 0);
    free(expected);
    free(grads);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_tied(void **state)
{
    (void)state;
    for (int i = 0; i < MODEL_KINDS; i++)
        check_model(&model_kinds[i], true);
}

static void test_untied(void **state)
{
    (void)state;
    for (int i = 0; i < MODEL_KINDS; i++)
        check_model(&model_kinds[i], false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_untied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
