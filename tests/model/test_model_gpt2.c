// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GPT-2 from configurations: sizes, names and shapes as published, and what is refused.
#include "base/capture.h"
#include "engine/golden.h"
#include "mics/builder.h"
#include "model/from_config.h"
#include <math.h>

// As the published gpt2's config.json has it.
static const char gpt2_124m[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 12, \"n_head\": 12, \"n_embd\": 768, "
    "\"n_positions\": 1024, \"n_ctx\": 1024, \"vocab_size\": 50257, "
    "\"activation_function\": \"gelu_new\", \"attn_pdrop\": 0.1, \"embd_pdrop\": 0.1, "
    "\"resid_pdrop\": 0.1, \"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05}";

static mics_status build(mics_memory *memory, const char *text, bool ignore_dropout,
                         mics_model **model_out)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_parse(memory, "config.json", text, strlen(text), &json));
    mics_status status = mics_model_from_config(memory, json, ignore_dropout, model_out);
    mics_json_close(json);
    return status;
}

static const mics_param *find(const mics_model *model, const char *name)
{
    const mics_param_ref ref = mics_model_find_param(model, name);
    if (ref.unit < 0)
        fail_msg("no parameter %s", name);
    return mics_model_param(model, ref);
}

// ---- the published model ----

static void test_124m(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(build(memory, gpt2_124m, true, &model));
    assert_int_equal(mics_model_param_count(model), 124439808);
    assert_int_equal(model->unit_count, 14); // embedding, 12 layers, head
    assert_int_equal(model->vocab, 50257);
    assert_int_equal(model->positions, 1024);
    assert_int_equal(model->hidden, 768);
    assert_true(model->tied);
    assert_string_equal(model->architecture, "gpt2");
    // Products: 12 layers of 12 * 768^2, and the head; attention half of 12 * layers * T * C.
    const double products = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
    assert_true(mics_model_flops_per_token(model, 1024) == 6 * products + 6 * 12.0 * 1024 * 768);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// One for the embeddings, two a layer beside attention's; each mask has a number of its own. Nothing
// of it is there where dropout is 0, or ignored.
static void test_dropout(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int ignored = 0; ignored < 2; ignored++) {
        mics_model *model = NULL;
        int32_t dropouts = 0;
        uint32_t next = 0;
        ASSERT_OK(build(memory, gpt2_124m, ignored == 1, &model));
        for (int32_t u = 0; u < model->unit_count; u++)
            for (int32_t o = 0; o < model->units[u].op_count; o++) {
                const mics_op *op = &model->units[u].ops[o];
                dropouts += op->kind == MICS_OP_DROPOUT;
                if (op->dropout == 0)
                    continue;
                assert_true(op->dropout == 0.1F);
                assert_int_equal(op->mask, next);
                next += op->kind == MICS_OP_ATTENTION ? 12 : 1;
            }
        assert_int_equal(dropouts, ignored ? 0 : 25);
        assert_int_equal(model->masks, ignored ? 0 : 25 + 12 * 12);
        assert_int_equal(next, model->masks);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static int32_t count_casts(const mics_unit *unit, bool wide)
{
    int32_t casts = 0;
    for (int32_t o = 0; o < unit->op_count; o++)
        casts += unit->ops[o].kind == MICS_OP_CAST && unit->ops[o].wide == wide;
    return casts;
}

// The stream is wide from the embeddings to the head. A layer's norms read it rounded, and its two
// sums take what attention and the MLP give as fp32; masks and parameters are what they were.
static void test_wide_residual(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_model *model = NULL, *plain = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(build(memory, gpt2_124m, false, &plain));
    ASSERT_OK(build(memory, gpt2_124m, false, &model));
    ASSERT_OK(mics_model_widen_residual(model));
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        const bool first = u == 0, last = u == model->unit_count - 1;
        assert_int_equal(count_casts(unit, true), first ? 1 : last ? 0 : 2);
        assert_int_equal(count_casts(unit, false), first ? 0 : last ? 1 : 2);
        assert_int_equal(unit->op_count, plain->units[u].op_count + (first || last ? 1 : 4));
        assert_int_equal(unit->tensors[0].wide, !first);
        assert_int_equal(unit->elems, plain->units[u].elems);
        if (!last)
            assert_true(unit->tensors[unit->out].wide);
        for (int32_t o = 0; o < unit->op_count; o++) {
            const mics_op *op = &unit->ops[o];
            assert_int_equal(op->wide,
                             op->kind == MICS_OP_ADD || (op->kind == MICS_OP_CAST && op->wide));
            if (op->out >= 0)
                assert_int_equal(unit->tensors[op->out].wide, op->wide);
        }
    }
    assert_int_equal(model->masks, plain->masks);
    mics_model_close(model);
    mics_model_close(plain);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_initialisation_and_decay(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(build(memory, gpt2_124m, true, &model));
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            const bool gain = strstr(param->name, "ln_") != NULL && strstr(param->name, "weight");
            assert_int_equal(param->decay, param->dims == 2);
            assert_int_equal(param->init, param->dims == 2 ? MICS_INIT_NORMAL
                                          : gain           ? MICS_INIT_ONES
                                                           : MICS_INIT_ZEROS);
            // Projections into the residual stream: smaller by the root of their number.
            bool residual = param->dims == 2 && strstr(param->name, "c_proj") != NULL;
            if (param->dims == 2)
                assert_true(fabs(param->init_std - (residual ? 0.02 / sqrt(24) : 0.02)) < 1e-9);
        }
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Tensors lie in a unit's flat buffer one after the other, each on 64 bytes.
static void test_flat_buffers(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(build(memory, gpt2_124m, true, &model));
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        int64_t end = 0;
        for (int32_t p = 0; p < unit->param_count; p++) {
            const mics_param *param = &unit->params[p];
            assert_int_equal(param->elems,
                             param->shape[0] * (param->dims == 2 ? param->shape[1] : 1));
            assert_int_equal(param->offset, (end + 15) / 16 * 16);
            end = param->offset + param->elems;
        }
        assert_true(unit->elems >= end && unit->elems < end + 16);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- files that others wrote ----

static void check_shape(const mics_param *param, const mics_tensor_info *info)
{
    assert_int_equal(info->dims, param->dims);
    for (int32_t d = 0; d < param->dims; d++) {
        if (info->shape[d] != param->shape[d])
            fail_msg("%s: dimension %d is %d, the file has %d", param->name, (int)d,
                     (int)param->shape[d], (int)info->shape[d]);
    }
}

// The model has the file's tensors, no more and no fewer. Causal masks are not weights.
static void test_names_and_shapes(void **state)
{
    (void)state;
    static const char *const folders[] = {"gpt2",      "gpt2_untied", "gpt2_hub",
                                          "gpt2_gelu", "gpt2_relu",   "gpt2_silu"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        golden g;
        int32_t params = 0, tensors = 0;
        golden_open(&g, folders[f]);
        for (int32_t u = 0; u < g.model->unit_count; u++)
            params += g.model->units[u].param_count;
        for (int32_t i = 0; i < mics_safetensors_count(g.weights); i++) {
            const mics_tensor_info *info = mics_safetensors_at(g.weights, i);
            const size_t length = strlen(info->name);
            if (length > 10 && strcmp(info->name + length - 10, ".attn.bias") == 0)
                continue;
            check_shape(find(g.model, info->name), info);
            tensors++;
        }
        assert_int_equal(tensors, params);
        golden_close(&g);
    }
}

static void test_find_param(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(build(memory, gpt2_124m, true, &model));
    assert_ptr_equal(find(model, "transformer.h.3.mlp.c_fc.weight"),
                     find(model, "h.3.mlp.c_fc.weight"));
    assert_int_equal(mics_model_find_param(model, "h.12.mlp.c_fc.weight").unit, -1);
    assert_int_equal(mics_model_find_param(model, "lm_head.weight").unit, -1); // tied
    assert_int_equal(mics_model_find_param(model, "").unit, -1);
    assert_int_equal(mics_model_find_param(model, "transformer.").unit, -1);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- what is refused ----

typedef struct refusal {
    const char *key, *value; // replaces the key's value; NULL: leaves the key out
    mics_status status;
    const char *said; // beside the key
} refusal;

static const refusal refusals[] = {
    {"model_type", NULL, MICS_ERR_UNSUPPORTED, "missing"},
    {"model_type", "\"lama\"", MICS_ERR_UNSUPPORTED, "lama"},
    {"model_type", "7", MICS_ERR_UNSUPPORTED, "gpt2"},
    {"n_layer", NULL, MICS_ERR_INVALID, "missing"},
    {"n_head", NULL, MICS_ERR_INVALID, "missing"},
    {"n_embd", NULL, MICS_ERR_INVALID, "missing"},
    {"n_positions", NULL, MICS_ERR_INVALID, "missing"},
    {"vocab_size", NULL, MICS_ERR_INVALID, "missing"},
    {"n_layer", "\"12\"", MICS_ERR_INVALID, "must be an integer from 1 to 10000, not \"12\""},
    {"n_layer", "2.5", MICS_ERR_INVALID, "not the real 2.5"},
    {"n_layer", "4.0", MICS_ERR_INVALID, "not the real 4.0"},
    {"n_layer", "10001", MICS_ERR_INVALID, "from 1 to 10000, not 10001"},
    {"n_layer", "0", MICS_ERR_INVALID, "integer"},
    {"n_layer", "-1", MICS_ERR_INVALID, "integer"},
    {"n_layer", "null", MICS_ERR_INVALID, "missing"},
    {"n_layer", "[12]", MICS_ERR_INVALID, "not an array"},
    {"n_layer", "9223372036854775807", MICS_ERR_INVALID, "integer"},
    {"n_head", "5", MICS_ERR_INVALID, "5 heads do not divide n_embd = 12"},
    {"n_embd", "1073741824", MICS_ERR_INVALID, "integer"},
    {"n_positions", "true", MICS_ERR_INVALID, "integer"},
    {"vocab_size", "1", MICS_ERR_INVALID, "from 2"},
    {"n_inner", "0", MICS_ERR_INVALID, "integer"},
    {"layer_norm_epsilon", "-1", MICS_ERR_INVALID, "number"},
    {"layer_norm_epsilon", "\"small\"", MICS_ERR_INVALID, "not \"small\""},
    {"initializer_range", "1e9", MICS_ERR_INVALID, "number"},
    {"tie_word_embeddings", "1", MICS_ERR_INVALID, "true or false, not 1"},
    {"attn_pdrop", "1", MICS_ERR_UNSUPPORTED, "below 1"},
    {"embd_pdrop", "-0.1", MICS_ERR_INVALID, "number"},
    {"resid_pdrop", "\"0.1\"", MICS_ERR_INVALID, "number"},
    {"resid_pdrop", "2", MICS_ERR_INVALID, "number"},
    {"activation_function", "\"tanh\"", MICS_ERR_UNSUPPORTED, "gelu_new"},
    {"activation_function", "\"quick_gelu\"", MICS_ERR_UNSUPPORTED,
     "only \"gelu_new\" or \"gelu_pytorch_tanh\" or \"gelu\" or \"relu\" or \"silu\" or \"swish\" "
     "can "
     "be honoured, not \"quick_gelu\""},
    {"activation_function", "3", MICS_ERR_UNSUPPORTED, "gelu_new"},
    {"scale_attn_weights", "false", MICS_ERR_UNSUPPORTED, "true"},
    {"scale_attn_by_inverse_layer_idx", "true", MICS_ERR_UNSUPPORTED, "false"},
    {"add_cross_attention", "true", MICS_ERR_UNSUPPORTED, "false"},
    {"is_causal", "false", MICS_ERR_UNSUPPORTED, "only true"},
    {"per_layer_config", "[]", MICS_ERR_UNSUPPORTED, "one shape"},
    {"num_hidden_layers", "3", MICS_ERR_INVALID, "is 3, but n_layer, another name of it, is 2"},
    {"num_attention_heads", "6", MICS_ERR_INVALID, "keep one of them"},
    {"hidden_size", "24", MICS_ERR_INVALID, "keep one of them"},
    {"max_position_embeddings", "20", MICS_ERR_INVALID, "keep one of them"},
    {"max_position_embeddings", "0", MICS_ERR_INVALID, "integer from 1"},
};

// A good configuration with one key changed.
static void write_config(const refusal *r, char *text, size_t capacity)
{
    static const char *const keys[] = {"model_type", "n_layer",     "n_head",
                                       "n_embd",     "n_positions", "vocab_size"};
    static const char *const values[] = {"\"gpt2\"", "2", "3", "12", "19", "29"};
    size_t used = (size_t)snprintf(text, capacity, "{\n\"comment\": 0");
    bool given = false;
    for (int i = 0; i < 6; i++) {
        const bool changed = strcmp(keys[i], r->key) == 0;
        const char *value = changed ? r->value : values[i];
        given = given || changed;
        if (value != NULL)
            used += (size_t)snprintf(text + used, capacity - used, ",\n\"%s\": %s", keys[i], value);
    }
    if (!given)
        used += (size_t)snprintf(text + used, capacity - used, ",\n\"%s\": %s", r->key, r->value);
    snprintf(text + used, capacity - used, "\n}");
}

static void test_refusals(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *r = &refusals[i];
        char text[512];
        mics_model *model = NULL;
        capture seen;
        write_config(r, text, sizeof text);
        capture_begin(&seen);
        mics_status status = build(memory, text, false, &model);
        capture_end();
        if (status != r->status)
            fail_msg("%s: %s, expected %s", text, mics_status_name(status),
                     mics_status_name(r->status));
        assert_null(model);
        ASSERT_SAID(&seen, r->said);
        if (strstr(seen.line, r->key) == NULL || strstr(seen.line, "config.json") == NULL)
            fail_msg("\"%s\" names no file or not the key %s", seen.line, r->key);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_not_an_object(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    capture seen;
    ASSERT_OK(mics_memory_open(&memory));
    capture_begin(&seen);
    mics_status status = build(memory, "[1]", false, &model);
    capture_end();
    ASSERT_STATUS(MICS_ERR_INVALID, status);
    ASSERT_SAID(&seen, "object");
    assert_int_equal(mics_memory_close(memory), 0);
}

// Absent keys have the defaults of the published models.
static void test_defaults(void **state)
{
    (void)state;
    static const char text[] = "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 3, "
                               "\"n_embd\": 12, \"n_positions\": 19, \"vocab_size\": 29, "
                               "\"n_inner\": null, \"attn_pdrop\": 0}";
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(build(memory, text, false, &model));
    assert_true(model->tied);
    assert_int_equal(find(model, "h.0.mlp.c_fc.weight")->shape[1], 48);
    assert_true(find(model, "wte.weight")->init_std == 0.02);
    assert_true(model->units[1].ops[0].eps == 1e-5f);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// The names that GPT2Config.attribute_map has beside its own; a null one is none.
static void test_aliases(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"model_type\": \"gpt2\", \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "
        "\"hidden_size\": 12, \"max_position_embeddings\": 19, \"vocab_size\": 29}",
        "{\"model_type\": \"gpt2\", \"num_hidden_layers\": 2, \"n_layer\": 2, \"n_head\": 3, "
        "\"num_attention_heads\": null, \"n_embd\": 12, \"n_positions\": 19, \"vocab_size\": 29}"};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 2; i++) {
        mics_model *model = NULL;
        ASSERT_OK(build(memory, texts[i], false, &model));
        assert_int_equal(model->unit_count, 4);
        assert_int_equal(model->hidden, 12);
        assert_int_equal(model->positions, 19);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_124m),          cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_wide_residual), cmocka_unit_test(test_initialisation_and_decay),
        cmocka_unit_test(test_flat_buffers),  cmocka_unit_test(test_names_and_shapes),
        cmocka_unit_test(test_find_param),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_not_an_object), cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_aliases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
