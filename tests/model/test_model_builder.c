// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The builder's checks. Each mistake is one line, and the calls after it do nothing.
#include "mics/builder.h"
#include "schedule/models.h"
#include "small_model.h"
#include <math.h>

static mics_param_ref vector(mics_model *model, const char *name, int64_t elems)
{
    return mics_model_add_param(model, name, &(mics_param_spec){.dims = 1, .shape = {elems}});
}

// A weight of WIDTH rows, of the tensors a and b.
static void layer_of_parts(mics_model *model, int64_t a_row, int64_t a_rows, int64_t b_row,
                           int64_t b_rows)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_param_ref weight = matrix(model, "weight", WIDTH, WIDTH);
    mics_model_add_part(model, "a", a_row, a_rows);
    mics_model_add_part(model, "b", b_row, b_rows);
    mics_model_unit_end(model, mics_op_linear(model, 0, weight, mics_param_none(), true));
}

static void layer_parts(mics_model *model)
{
    layer_of_parts(model, 5, 3, 0, 5);
}

static void layer_part_missing(mics_model *model)
{
    layer_of_parts(model, 0, 3, 4, 4);
}

static void layer_part_twice(mics_model *model)
{
    layer_of_parts(model, 0, 4, 3, 4);
}

static void layer_part_all_twice(mics_model *model)
{
    layer_of_parts(model, 0, 8, 0, 4);
}

// Both begin where the rows before them end.
static void layer_part_same_twice(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_param_ref weight = matrix(model, "weight", WIDTH, WIDTH);
    mics_model_add_part(model, "a", 0, 4);
    mics_model_add_part(model, "b", 0, 4);
    mics_model_add_part(model, "c", 4, 4);
    mics_model_unit_end(model, mics_op_linear(model, 0, weight, mics_param_none(), true));
}

static void layer_tensor_again(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_param_ref weight = matrix(model, "weight", WIDTH, WIDTH);
    mics_model_add_part(model, "a", 0, 3);
    mics_model_add_part(model, "b", 3, 3);
    mics_model_add_part(model, "a", 6, 2);
    mics_model_unit_end(model, mics_op_linear(model, 0, weight, mics_param_none(), true));
}

static void layer_tensor_of_another(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_param_ref first = matrix(model, "weight", WIDTH, WIDTH);
    mics_param_ref second = matrix(model, "weight", WIDTH, WIDTH);
    const int32_t x = mics_op_linear(model, 0, first, mics_param_none(), true);
    mics_model_unit_end(model, mics_op_linear(model, x, second, mics_param_none(), true));
}

static void layer_part_beyond(mics_model *model)
{
    layer_of_parts(model, 0, 4, 4, 5);
}

static void layer_part_empty(mics_model *model)
{
    layer_of_parts(model, 0, 8, 8, 0);
}

static void layer_part_of_none(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_model_add_part(model, "a", 0, 1);
}

// ---- mistakes ----

static void embed_width(mics_model *model)
{
    mics_model_unit(model, "embed", WIDTH);
    mics_model_unit_end(
        model, mics_op_embedding(model, matrix(model, "tokens", VOCAB, WIDTH), mics_param_none()));
}

static void embed_rows(mics_model *model)
{
    mics_model_unit(model, "embed", 0);
    mics_model_unit_end(model, mics_op_embedding(model, matrix(model, "tokens", VOCAB - 1, WIDTH),
                                                 mics_param_none()));
}

static void embed_places(mics_model *model)
{
    mics_model_unit(model, "embed", 0);
    mics_param_ref tokens = matrix(model, "tokens", VOCAB, WIDTH);
    mics_model_unit_end(
        model, mics_op_embedding(model, tokens, matrix(model, "places", POSITIONS - 1, WIDTH)));
}

static void embed_places_width(mics_model *model)
{
    mics_model_unit(model, "embed", 0);
    mics_param_ref tokens = matrix(model, "tokens", VOCAB, WIDTH);
    mics_model_unit_end(
        model, mics_op_embedding(model, tokens, matrix(model, "places", POSITIONS, WIDTH + 1)));
}

static void embed_vector(mics_model *model)
{
    mics_model_unit(model, "embed", 0);
    mics_model_unit_end(
        model, mics_op_embedding(model, vector(model, "tokens", VOCAB), mics_param_none()));
}

static void embed_none(mics_model *model)
{
    mics_model_unit(model, "embed", 0);
    mics_model_unit_end(model, mics_op_embedding(model, mics_param_none(), mics_param_none()));
}

static void layer_empty(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_model_unit_end(model, 0);
}

static void layer_inputs(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_param_ref weight = matrix(model, "weight", WIDTH + 1, WIDTH);
    mics_model_unit_end(model, mics_op_linear(model, 0, weight, mics_param_none(), false));
}

static void layer_bias(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_param_ref weight = matrix(model, "weight", WIDTH, WIDTH);
    mics_param_ref bias = vector(model, "bias", WIDTH + 1);
    mics_model_unit_end(model, mics_op_linear(model, 0, weight, bias, false));
}

static void layer_norm(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_param_ref gain = vector(model, "gain", WIDTH), shift = vector(model, "shift", WIDTH - 1);
    mics_model_unit_end(model, mics_op_layernorm(model, 0, gain, shift, 1e-5f));
}

static void layer_norm_none(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_param_ref gain = vector(model, "gain", WIDTH);
    mics_model_unit_end(model, mics_op_layernorm(model, 0, gain, mics_param_none(), 1e-5f));
}

static void layer_heads(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    int32_t qkv = mics_op_linear(model, 0, matrix(model, "weight", WIDTH, 3 * WIDTH),
                                 mics_param_none(), false);
    mics_model_unit_end(model, mics_op_attention(model, qkv, (mics_heads){3, 3, WIDTH / 3}, 0, 0));
}

static void layer_no_heads(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    int32_t qkv = mics_op_linear(model, 0, matrix(model, "weight", WIDTH, 3 * WIDTH),
                                 mics_param_none(), false);
    mics_model_unit_end(model, mics_op_attention(model, qkv, (mics_heads){0, 0, WIDTH}, 0, 0));
}

// A layer whose q, k and v, of 2 query heads and 1 key-value head, go through one op that is wrong.
static int32_t qkv_of(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    return mics_op_linear(model, 0, matrix(model, "weight", WIDTH, 4 * (WIDTH / 2)),
                          mics_param_none(), false);
}
static const mics_heads shared_heads = {2, 1, WIDTH / 2};

static void layer_heads_that_do_not_divide(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    int32_t qkv =
        mics_op_linear(model, 0, matrix(model, "weight", WIDTH, 7), mics_param_none(), false);
    mics_model_unit_end(model, mics_op_attention(model, qkv, (mics_heads){3, 2, 1}, 0, 0));
}

static void layer_window(mics_model *model)
{
    mics_model_unit_end(model, mics_op_attention(model, qkv_of(model), shared_heads, -1, 0));
}

static void layer_query_norm(mics_model *model)
{
    const int32_t qkv = qkv_of(model);
    const mics_param_ref query = vector(model, "query", WIDTH), key = vector(model, "key", 4);
    mics_model_unit_end(model, mics_op_head_norm(model, qkv, shared_heads, query, key, 1e-6f));
}

static void layer_key_norm(mics_model *model)
{
    const int32_t qkv = qkv_of(model);
    const mics_param_ref query = vector(model, "query", 4), key = vector(model, "key", 5);
    mics_model_unit_end(model, mics_op_head_norm(model, qkv, shared_heads, query, key, 1e-6f));
}

static void layer_turned(mics_model *model, int64_t dims, float frequency, float scale)
{
    const float frequencies[] = {1, frequency, 1};
    const mics_rotary_spec spec = {dims, frequencies, scale};
    mics_model_unit_end(model, mics_op_rotary(model, qkv_of(model), shared_heads, &spec));
}

static void layer_odd_rotary(mics_model *model)
{
    layer_turned(model, 3, 1, 1);
}

static void layer_wide_rotary(mics_model *model)
{
    layer_turned(model, 6, 1, 1);
}

static void layer_rotary_frequency(mics_model *model)
{
    layer_turned(model, 4, INFINITY, 1);
}

static void layer_rotary_scale(mics_model *model)
{
    layer_turned(model, 4, 1, NAN);
}

static void layer_no_rotary(mics_model *model)
{
    const int32_t qkv = qkv_of(model);
    mics_op op = mics_op_of(MICS_OP_ROTARY, qkv, mics_param_none(), mics_param_none());
    op.heads = shared_heads;
    mics_model_unit_end(model, mics_model_add_op(model, op));
}

static void layer_odd_swiglu(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    int32_t x =
        mics_op_linear(model, 0, matrix(model, "weight", WIDTH, 7), mics_param_none(), false);
    mics_model_unit_end(model, mics_op_swiglu(model, x));
}

static void layer_sum(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    int32_t wide = mics_op_linear(model, 0, matrix(model, "weight", WIDTH, 2 * WIDTH),
                                  mics_param_none(), false);
    mics_model_unit_end(model, mics_op_add(model, 0, wide));
}

static void layer_no_tensor(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_model_unit_end(model, mics_op_gelu(model, 7, false));
}

static void layer_width(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_model_unit_end(model, mics_op_linear(model, 0, matrix(model, "weight", WIDTH, WIDTH + 1),
                                              mics_param_none(), false));
}

static void layer_passes_input_on(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_op_gelu(model, 0, false);
    mics_model_unit_end(model, 0);
}

static void layer_no_such_output(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_op_gelu(model, 0, false);
    mics_model_unit_end(model, 9);
}

static void layer_unused(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    matrix(model, "idle", WIDTH, WIDTH);
    mics_model_unit_end(model, mics_op_gelu(model, 0, false));
}

static void layer_dead(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_op_linear(model, 0, matrix(model, "weight", WIDTH, WIDTH), mics_param_none(), false);
    mics_model_unit_end(model, mics_op_gelu(model, 0, false));
}

static void layer_deaf(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_model_unit_end(
        model, mics_op_embedding(model, matrix(model, "more", VOCAB, WIDTH), mics_param_none()));
}

static void layer_loss(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    int32_t x = mics_op_gelu(model, 0, false);
    mics_op_lm_head(model, x, matrix(model, "early", VOCAB, WIDTH));
    mics_model_unit_end(model, mics_op_gelu(model, x, false));
}

static void layer_empty_param(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_model_unit_end(model, mics_op_linear(model, 0, matrix(model, "weight", WIDTH, 0),
                                              mics_param_none(), false));
}

static void layer_huge_param(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_model_unit_end(model, mics_op_linear(model, 0, matrix(model, "weight", INT64_MAX / 2, 8),
                                              mics_param_none(), true));
}

static void head_rows(mics_model *model)
{
    mics_model_unit(model, "head", WIDTH);
    mics_op_lm_head(model, 0, matrix(model, "head", VOCAB + 1, WIDTH));
    mics_model_unit_end(model, -1);
}

static void head_width(mics_model *model)
{
    mics_model_unit(model, "head", WIDTH);
    mics_op_lm_head(model, 0, matrix(model, "head", VOCAB, WIDTH + 1));
    mics_model_unit_end(model, -1);
}

static void head_none(mics_model *model)
{
    mics_model_unit(model, "head", WIDTH);
    mics_model_unit_end(model, mics_op_gelu(model, 0, false));
}

static void head_twice(mics_model *model)
{
    mics_model_unit(model, "head", WIDTH);
    mics_op_lm_head(model, 0, matrix(model, "first", VOCAB, WIDTH));
    mics_op_lm_head(model, 0, matrix(model, "second", VOCAB, WIDTH));
    mics_model_unit_end(model, -1);
}

static void head_output(mics_model *model)
{
    mics_model_unit(model, "head", WIDTH);
    int32_t x = mics_op_gelu(model, 0, false);
    mics_op_lm_head(model, x, matrix(model, "head", VOCAB, WIDTH));
    mics_model_unit_end(model, x);
}

static const mistake mistakes[] = {
    {{.embed = embed_width}, "unit embed: the input of the first unit is tokens"},
    {{.embed = embed_rows}, "rows of the table is 4, not 5"},
    {{.embed = embed_places}, "rows of positions is 3, not 4"},
    {{.embed = embed_places_width}, "width of positions is 9, not 8"},
    {{.embed = embed_vector}, "tokens has 1 dimensions, not 2"},
    {{.embed = embed_none}, "embedding: a parameter is missing"},
    {{.layer = layer_empty}, "unit layer has no ops"},
    {{.layer = layer_inputs}, "inputs of the weight is 9, not 8"},
    {{.layer = layer_bias}, "bias is 9, not 8"},
    {{.layer = layer_norm}, "bias is 7, not 8"},
    {{.layer = layer_norm_none}, "layernorm: a parameter is missing"},
    {{.layer = layer_heads},
     "24 elements are not q, k and v of 3 query heads and 3 key-value heads of 2"},
    {{.layer = layer_no_heads}, "not q, k and v of 0 query heads"},
    {{.layer = layer_heads_that_do_not_divide}, "not q, k and v of 3 query heads and 2 key-value"},
    {{.layer = layer_window}, "a window of -1 tokens"},
    {{.layer = layer_query_norm}, "weight of queries is 8, not 4"},
    {{.layer = layer_key_norm}, "weight of keys is 5, not 4"},
    {{.layer = layer_odd_rotary}, "3 of 4 numbers of a head turn"},
    {{.layer = layer_wide_rotary}, "6 of 4 numbers of a head turn"},
    {{.layer = layer_rotary_frequency}, "a frequency or the scale is not finite"},
    {{.layer = layer_rotary_scale}, "a frequency or the scale is not finite"},
    {{.layer = layer_no_rotary}, "the model has no table 0 for heads of 4"},
    {{.layer = layer_odd_swiglu}, "7 elements are not gate and up of one width"},
    {{.layer = layer_sum}, "second operand is 16, not 8"},
    {{.layer = layer_no_tensor}, "unit layer: no tensor 7"},
    {{.layer = layer_width}, "its output does not fit the input of head"},
    {{.layer = layer_passes_input_on}, "nothing reads the output of op 0 (gelu)"},
    {{.layer = layer_no_such_output}, "nothing reads the output of op 0 (gelu)"},
    {{.layer = layer_unused}, "idle is not used"},
    {{.layer = layer_dead}, "nothing reads the output of op 0 (linear)"},
    {{.layer = layer_deaf}, "nothing reads its input"},
    {{.layer = layer_loss}, "must be the last op of the last unit"},
    {{.layer = layer_empty_param}, "weight"},
    {{.layer = layer_part_missing}, "row 3 of 8 is of no tensor"},
    {{.layer = layer_part_twice}, "row 3 of 8 is of two tensors"},
    {{.layer = layer_part_all_twice}, "row 0 of 8 is of two tensors"},
    {{.layer = layer_part_same_twice}, "row 0 of 8 is of two tensors"},
    {{.layer = layer_tensor_again}, "tensor a is given twice"},
    {{.layer = layer_tensor_of_another}, "tensor weight is given twice"},
    {{.layer = layer_part_beyond}, "rows 4 to 9 cannot be those of tensor b"},
    {{.layer = layer_part_empty}, "rows 8 to 8 cannot be those of tensor b"},
    {{.layer = layer_part_of_none}, "cannot be those of tensor a"},
    {{.layer = layer_huge_param}, ""},
    {{.head = head_rows}, "rows of the weight is 6, not 5"},
    {{.head = head_width}, "width of the weight is 9, not 8"},
    {{.head = head_none}, "must be the last op of the last unit"},
    {{.head = head_twice}, "must be the last op of the last unit"},
    {{.head = head_output}, "the last unit has no output"},
};

static void test_mistakes(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(build(memory, (parts){0}));
    ASSERT_OK(build(memory, (parts){.layer = layer_parts}));
    check_mistakes(memory, mistakes, sizeof mistakes / sizeof mistakes[0]);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_bad_spec(void **state)
{
    (void)state;
    char longest[MICS_NAME_BYTES + 1] = "";
    memset(longest, 'a', MICS_NAME_BYTES);
    const mics_model_spec bad[] = {
        {"", VOCAB, POSITIONS, WIDTH}, {longest, VOCAB, POSITIONS, WIDTH},
        {"test", 1, POSITIONS, WIDTH}, {"test", (int64_t)INT32_MAX + 1, POSITIONS, WIDTH},
        {"test", VOCAB, 0, WIDTH},     {"test", VOCAB, POSITIONS, 0},
    };
    enum { BAD = sizeof bad / sizeof bad[0] };
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    capture seen;
    ASSERT_OK(mics_memory_open(&memory));
    capture_begin(&seen);
    for (int i = 0; i < BAD; i++)
        ASSERT_STATUS(MICS_ERR_INVALID, mics_model_open(memory, &bad[i], &model));
    capture_end();
    assert_int_equal(seen.errors, BAD);
    assert_null(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_too_few_units(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    capture seen;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_model_open(memory, &good_spec, &model));
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_model_finish(model));
    capture_end();
    ASSERT_SAID(&seen, "at least two units");
    assert_int_equal(mics_op_gelu(model, 0, false), -1); // no unit yet: nothing happens
    assert_int_equal(mics_op_add(model, 0, 0), -1);
    mics_model_close(model);
    mics_model_close(NULL);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Ops that turn alike share a table, and the model has a copy of it.
static void test_rotary_tables(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    float frequencies[] = {1, 0.5f};
    mics_rotary_spec spec = {4, frequencies, 1};
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_model_open(memory, &good_spec, &model));
    int32_t x = qkv_of(model);
    x = mics_op_rotary(model, x, shared_heads, &spec);
    x = mics_op_rotary(model, x, shared_heads, &spec);
    frequencies[1] = 0.25f;
    x = mics_op_rotary(model, x, shared_heads, &spec);
    spec.scale = 2;
    x = mics_op_rotary(model, x, shared_heads, &spec);
    spec = (mics_rotary_spec){2, frequencies, 1};
    x = mics_op_rotary(model, x, shared_heads, &spec);
    assert_true(x > 0);
    static const int32_t tables[] = {0, 0, 1, 2, 3};
    assert_int_equal(model->rotary_count, 4);
    for (int i = 0; i < 5; i++)
        assert_int_equal(model->units[0].ops[1 + i].rotary, tables[i]);
    assert_true(model->rotaries[0].frequencies[1] == 0.5f);
    assert_true(model->rotaries[1].frequencies[1] == 0.25f && model->rotaries[2].scale == 2);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static mics_status build_kind(mics_memory *memory, const model_kind *kind)
{
    const mics_model_spec spec = {"test", MODEL_VOCAB, MODEL_POSITIONS, MODEL_WIDTH};
    mics_model *model = NULL;
    MICS_TRY(mics_model_open(memory, &spec, &model));
    mics_model_unit(model, "layer", MODEL_WIDTH);
    mics_model_unit_end(model, kind->layers[0](model));
    const mics_status status = model->status;
    mics_model_close(model);
    return status;
}

// Every allocation fails once; nothing is lost.
static void test_allocations(void **state)
{
    (void)state;
    for (int kind = 0; kind < MODEL_KINDS; kind++) {
        mics_status status = MICS_ERR_MEMORY;
        capture seen;
        capture_begin(&seen);
        for (int64_t nth = 1; status != MICS_OK; nth++) {
            mics_memory *memory = NULL;
            ASSERT_OK(mics_memory_open(&memory));
            mics_memory_fail_after(memory, nth);
            status = build_kind(memory, &model_kinds[kind]);
            assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
            assert_int_equal(mics_memory_close(memory), 0);
        }
        capture_end();
    }
}

static void test_good_models(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 2 * MODEL_KINDS; i++)
        mics_model_close(model_build(memory, &model_kinds[i / 2], i % 2 == 0));
    assert_int_equal(mics_memory_close(memory), 0);
}

// What a builder reads of its description: a value of another type, or none, is an error, and the output
// stays.
static void test_descriptions(void **state)
{
    (void)state;
    static const char text[] = "{\"layers\": 2, \"scale\": 0.5, \"name\": \"x\", \"deep\": "
                               "{\"on\": true, \"sizes\": [1, 2, 3]}}";
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    int64_t layers = 7;
    double scale = 7;
    const char *name = NULL;
    bool on = false;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_json_parse(memory, "description", text, sizeof text - 1, &json));
    ASSERT_OK(mics_description_int(json, "layers", &layers));
    ASSERT_OK(mics_description_real(json, "scale", &scale));
    ASSERT_OK(mics_description_text(json, "name", &name));
    ASSERT_OK(mics_description_bool(json, "deep.on", &on));
    assert_true(layers == 2 && scale == 0.5 && strcmp(name, "x") == 0 && on);
    ASSERT_OK(mics_description_real(json, "layers", &scale));
    assert_true(scale == 2);
    assert_int_equal(mics_description_count(json, "deep.sizes"), 3);
    assert_true(mics_description_has(json, "deep") && !mics_description_has(json, "wide"));
    mics_log_hold(true);
    assert_int_equal(mics_description_int(json, "scale", &layers), MICS_ERR_INVALID);
    assert_int_equal(mics_description_int(json, "wide", &layers), MICS_ERR_INVALID);
    assert_true(mics_log_release(false, -1));
    assert_int_equal(layers, 2);
    mics_json_close(json);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptions),  cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_bad_spec),      cmocka_unit_test(test_too_few_units),
        cmocka_unit_test(test_rotary_tables), cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_good_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
