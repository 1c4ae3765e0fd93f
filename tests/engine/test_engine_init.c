// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Initial parameters: drawn with the statistics that the model asks for, the same on every mesh,
// other ones for another seed.
#include "fixture.h"
#include "model/from_config.h"
#include <math.h>

typedef struct init_run {
    fixture_run run;
    uint64_t seed;
} init_run;

static mics_status init_rank(ranks_self *self)
{
    init_run *init = self->arg;
    mics_engine *engine = NULL;
    const int32_t rank = self->comm->rank;
    MICS_TRY(fixture_count(self, &init->run));
    MICS_TRY(fixture_open_engine(self, &init->run, &engine));
    mics_engine_init_random(engine, init->seed);
    fixture_collect(&init->run, engine, rank);
    mics_engine_close(engine);
    return MICS_OK;
}

static const char config_text[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 64, "
    "\"n_positions\": 128, \"vocab_size\": 301, \"initializer_range\": 0.03}";

static mics_model *open_model(mics_memory *memory)
{
    mics_json *json = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_json_parse(memory, "init", config_text, sizeof config_text - 1, &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &model));
    mics_json_close(json);
    return model;
}

// The whole model as drawn by `ranks` ranks; the caller frees it.
static float *draw(mics_memory *memory, mics_model *model, int32_t ranks, mics_sharding sharding,
                   uint64_t seed)
{
    init_run init = {.run.want = {.ranks = ranks, .nodes = 1, .sharding = sharding}, .seed = seed};
    mics_schedule_spec spec = {
        .model = model, .batch = {.sequences = 1, .length = 2, .threads = 1}, .micro_steps = 1};
    int64_t elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++)
        elems += model->units[u].elems;
    init.run.params = calloc((size_t)elems, sizeof(float));
    assert_non_null(init.run.params);
    ASSERT_OK(mics_mesh_init(ranks, 1, sharding, &spec.mesh));
    ASSERT_OK(mics_schedule_open(memory, &spec, &init.run.schedule));
    init.run.model = model;
    ranks_run_ok(ranks, init_rank, &init);
    mics_schedule_close(init.run.schedule);
    return init.run.params;
}

// Mean and deviation within five standard errors; for constants, exactly.
static void check_param(const mics_param *param, const float *values)
{
    double sum = 0, squares = 0;
    const double n = (double)param->elems;
    for (int64_t i = 0; i < param->elems; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
        if (param->init != MICS_INIT_NORMAL)
            assert_true(values[i] == (param->init == MICS_INIT_ONES ? 1.0f : 0.0f));
    }
    if (param->init != MICS_INIT_NORMAL)
        return;
    const double std = param->init_std, deviation = sqrt(squares / n);
    if (!(fabs(sum / n) <= 5 * std / sqrt(n)) || !(fabs(deviation - std) <= 5 * std / sqrt(2 * n)))
        fail_msg("%s: mean %g, deviation %g of %d values, not 0 and %g", param->name, sum / n,
                 deviation, (int)param->elems, std);
}

static void test_statistics(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = open_model(memory);
    float *whole = draw(memory, model, 1, (mics_sharding){1, 1, 1}, 1);
    const float *unit = whole;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++)
            check_param(&model->units[u].params[p], unit + model->units[u].params[p].offset);
        unit += model->units[u].elems;
    }
    free(whole);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static size_t model_bytes(const mics_model *model)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++)
        elems += model->units[u].elems;
    return (size_t)elems * sizeof(float);
}

static void test_same_on_every_mesh(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{1, 1, 1}, {2, 2, 2}, {3, 3, 6}, {6, 6, 6}};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = open_model(memory);
    float *one = draw(memory, model, 1, shardings[0], 7);
    for (int i = 0; i < 4; i++) {
        float *many = draw(memory, model, 6, shardings[i], 7);
        assert_memory_equal(one, many, model_bytes(model));
        free(many);
    }
    free(one);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Another seed, and another tensor of the same shape, have other numbers.
static void test_streams_differ(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = open_model(memory);
    float *a = draw(memory, model, 1, (mics_sharding){1, 1, 1}, 7);
    float *b = draw(memory, model, 1, (mics_sharding){1, 1, 1}, 8);
    const mics_param *weight =
        mics_model_param(model, mics_model_find_param(model, "h.0.mlp.c_fc.weight"));
    const int64_t at = model->units[0].elems + weight->offset;
    const int64_t next = at + model->units[1].elems; // the same tensor of the next layer
    int64_t same_seed = 0, same_layer = 0;
    for (int64_t i = 0; i < weight->elems; i++) {
        same_seed += a[at + i] == b[at + i];
        same_layer += a[at + i] == a[next + i];
    }
    assert_true(same_seed < 4 && same_layer < 4);
    free(a);
    free(b);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_same_on_every_mesh),
        cmocka_unit_test(test_streams_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
